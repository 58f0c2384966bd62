//! Numbers as Go has them: whole ones of 64 bits and all others as floating point.

use serde_json::Number;

use super::prune::VALUE_DEPTH_MAX;
use crate::tree::{List, Map, Value};

/// A number of JSON as Go reads it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Numeric {
    Integer(i64),
    Float(f64),
}

impl Numeric {
    pub(super) fn of(number: &Number) -> Numeric {
        match number.as_i64() {
            Some(integer) => Numeric::Integer(integer),
            None => Numeric::Float(number.as_f64().unwrap_or(f64::INFINITY)),
        }
    }

    pub(super) fn shown(self) -> String {
        match self {
            Numeric::Integer(integer) => integer.to_string(),
            Numeric::Float(float) => shown(float),
        }
    }
}

/// A value with its whole numbers written as such: `1` for `1.0` and `1e0`, as Go writes them, because clients read integers
/// without a fraction alone. `None` when it is so already.
pub(super) fn with_whole(value: &Value, depth: usize) -> Option<Value> {
    /// Digits of smaller ones are read back as an integer of 64 bits; of larger ones as what they are.
    const INTEGER_END: f64 = 9_223_372_036_854_775_808.0;
    if depth > VALUE_DEPTH_MAX {
        return None;
    }
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number
                .as_f64()
                .filter(|float| float.fract() == 0.0 && (-INTEGER_END..INTEGER_END).contains(float))?;
            Some(Value::from(float as i64))
        }
        Value::Array(list) => {
            let mut changed: Option<List> = None;
            for (at, item) in list.iter().enumerate() {
                if let Some(item) = with_whole(item, depth + 1) {
                    changed.get_or_insert_with(|| list.clone())[at] = item;
                }
            }
            changed.map(Value::Array)
        }
        Value::Object(map) => {
            let mut changed: Option<Map> = None;
            for (at, (_, value)) in map.iter().enumerate() {
                if let Some(value) = with_whole(value, depth + 1) {
                    *changed.get_or_insert_with(|| map.clone()).value_at_mut(at) = value;
                }
            }
            changed.map(Value::Object)
        }
        _ => None,
    }
}

/// A floating point number as `%v` prints it: the shortest digits, with an exponent where it is below -4 or above 5.
pub(super) fn shown(float: f64) -> String {
    if float == 0.0 || !float.is_finite() {
        return if float.is_nan() {
            "NaN".to_owned()
        } else if float.is_infinite() {
            if float > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
        } else {
            "0".to_owned()
        };
    }
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{float}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// Whether a number is whole as far as floating point can tell (the rule of go-openapi: within a billionth, and not beyond
/// what a double holds exactly).
#[expect(clippy::float_cmp, reason = "what is whole is its own whole part")]
pub(super) fn is_whole(float: f64) -> bool {
    const EXACT_MAX: f64 = 9_007_199_254_740_991.0;
    if !float.is_finite() || float.abs() > EXACT_MAX {
        return false;
    }
    let whole = float.trunc();
    if float == whole {
        return true;
    }
    if whole == 0.0 {
        return false;
    }
    (float - whole).abs() / (float.abs() + whole.abs()) < 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_go_shows_them() {
        for (float, text) in [
            (1.5, "1.5"),
            (1.0, "1"),
            (-0.25, "-0.25"),
            (123_456.0, "123456"),
            (1_000_000.0, "1e+06"),
            (1_234_567.5, "1.2345675e+06"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
        ] {
            assert_eq!(shown(float), text);
        }
    }

    #[test]
    fn what_64_bits_hold_is_written_as_an_integer() {
        let whole = |float: f64| with_whole(&Value::from(float), 0);
        assert_eq!(whole(9.22e18), Some(Value::from(9_220_000_000_000_000_000_i64)));
        assert_eq!(whole(-9_223_372_036_854_775_808.0), Some(Value::from(i64::MIN)));
        for float in [9_223_372_036_854_775_808.0, 1e300, 0.5] {
            assert_eq!(whole(float), None, "{float}");
        }
    }

    #[test]
    fn what_is_whole_but_for_rounding_is_whole() {
        assert!(is_whole(1.0) && is_whole(-3.0) && is_whole(0.0));
        assert!(is_whole(3.000_000_000_000_000_4));
        assert!(!is_whole(1.5) && !is_whole(0.1) && !is_whole(1e300) && !is_whole(f64::NAN));
    }
}
