//! Numbers that may be given as a part of a whole (`IntOrString`).

use crate::tree::Value;

/// A number or a percentage of `total`; percentages are rounded up or down. Not valid: 0.
pub(super) fn resolve(text_or_number: &Value, total: i64, up: bool) -> i64 {
    if let Some(number) = text_or_number.as_i64() {
        return number;
    }
    let percent = text_or_number
        .as_str()
        .and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    let part = |percent: i64| percent.saturating_mul(total).saturating_add(if up { 99 } else { 0 }) / 100;
    percent.map_or(0, part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    #[test]
    fn percentages_are_rounded_as_asked() {
        assert_eq!(resolve(&json!("25%"), 10, true), 3);
        assert_eq!(resolve(&json!("25%"), 10, false), 2);
        assert_eq!((resolve(&json!(4), 10, true), resolve(&json!("x"), 10, true)), (4, 0));
    }
}
