//! Resource quantities (`500m`, `1.5Gi`, `2e3`): reading them and writing them in their canonical form, which keeps the
//! sort of suffix that was written and has no fraction.
//! Rules: <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>.

/// A quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantity {
    /// In units of 10⁻⁹, the finest there is; finer ones are rounded away from zero.
    nanos: i128,
    suffixes: Suffixes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suffixes {
    /// `n u m k M G T P E`, powers of 1000.
    Decimal,
    /// `Ki Mi Gi Ti Pi Ei`, powers of 1024.
    Binary,
    /// `e3`, an exponent.
    Exponent,
}

impl Suffixes {
    /// Whether a text with such a suffix is left as it was written. This is kube-apiserver's short cut: it takes digits
    /// that a canonical form could have for canonical.
    fn keep(self, text: &str) -> bool {
        let unsigned = text.trim_start_matches(['+', '-']);
        let number_len = unsigned
            .bytes()
            .take_while(|byte| byte.is_ascii_digit() || *byte == b'.')
            .count();
        let (number, suffix) = unsigned.split_at(number_len);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let whole = whole.trim_start_matches('0');
        match self {
            Suffixes::Binary => fraction.is_empty() && whole.parse::<u64>().is_ok_and(|value| value & 7 != 0),
            Suffixes::Decimal | Suffixes::Exponent => {
                let digits = [if whole.is_empty() { "0" } else { whole }, fraction].concat();
                let exponent = suffix_of(suffix).map_or(0, |(_, _, exponent)| exponent);
                digits.len() <= 18
                    && (exponent - fraction.len() as i32) % 3 == 0
                    && !digits.ends_with("000")
                    && (!digits.starts_with('0') || unsigned == "0")
            }
        }
    }
}

const NANOS: i128 = 1_000_000_000;
/// No quantity is larger; what is written larger counts as this.
const UNITS_MAX: i128 = i64::MAX as i128;
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Digits that can matter: more before the point than the largest quantity has are beyond it anyway.
const DIGITS_MAX: usize = 40;

impl Quantity {
    /// Reads a quantity; `None` when the text is none.
    pub fn parse(text: &str) -> Option<Quantity> {
        let (negative, unsigned) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let number_len = unsigned
            .bytes()
            .take_while(|byte| byte.is_ascii_digit() || *byte == b'.')
            .count();
        let (number, suffix) = unsigned.split_at(number_len);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || whole.len() + fraction.len() == 0 {
            return None;
        }
        let (suffixes, binary_steps, exponent) = suffix_of(suffix)?;
        let nanos = match suffixes {
            Suffixes::Binary => {
                let scale = 1_i128 << (10 * binary_steps);
                scaled(whole, fraction, 0, scale)
            }
            _ => scaled(whole, fraction, exponent, 1),
        };
        let nanos = nanos.min(UNITS_MAX * NANOS);
        Some(Quantity {
            nanos: if negative { -nanos } else { nanos },
            suffixes,
        })
    }

    /// In units of 10⁻⁹.
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// That many, in decimal.
    pub fn from_units(units: i64) -> Quantity {
        Quantity {
            nanos: i128::from(units) * NANOS,
            suffixes: Suffixes::Decimal,
        }
    }

    /// The difference; it has the suffixes of the first.
    #[must_use]
    pub fn minus(self, other: Quantity) -> Quantity {
        Quantity {
            nanos: self.nanos.saturating_sub(other.nanos),
            ..self
        }
    }

    /// Nothing instead of less than nothing.
    #[must_use]
    pub fn at_least_nothing(self) -> Quantity {
        Quantity {
            nanos: self.nanos.max(0),
            ..self
        }
    }

    /// The sum; it has the suffixes of the first.
    #[must_use]
    pub fn plus(self, other: Quantity) -> Quantity {
        Quantity {
            nanos: self.nanos.saturating_add(other.nanos),
            ..self
        }
    }

    /// Rounded away from zero to thousandths, as amounts of resources are.
    pub fn to_millis(self) -> Quantity {
        let step = NANOS / 1000;
        let nanos = (self.nanos.abs() + step - 1) / step * step * self.nanos.signum();
        Quantity { nanos, ..self }
    }

    /// What becomes of the text of a quantity that is written: it is kept when it looks canonical enough, else the
    /// canonical text takes its place. With `millis` amounts are rounded to thousandths. `None` when it is no quantity.
    pub fn rewrite(text: &str, millis: bool) -> Option<String> {
        let quantity = Quantity::parse(text)?;
        let rounded = if millis { quantity.to_millis() } else { quantity };
        let kept = rounded == quantity && quantity.suffixes.keep(text);
        Some(if kept { text.to_owned() } else { rounded.canonical() })
    }

    /// The canonical text.
    pub fn canonical(self) -> String {
        if self.nanos == 0 {
            return "0".to_owned();
        }
        // Below 1024, and where units are not whole, a binary suffix would need a fraction.
        let whole = self.nanos.abs() >= 1024 * NANOS && self.nanos % NANOS == 0;
        if self.suffixes == Suffixes::Binary && whole {
            let mut units = self.nanos / NANOS;
            let mut steps = 0;
            while units % 1024 == 0 && steps < BINARY.len() {
                units /= 1024;
                steps += 1;
            }
            return format!("{units}{}", steps.checked_sub(1).map_or("", |step| BINARY[step]));
        }
        let mut mantissa = self.nanos;
        let mut exponent = -9;
        while mantissa % 1000 == 0 && exponent < 18 {
            mantissa /= 1000;
            exponent += 3;
        }
        if self.suffixes == Suffixes::Exponent {
            return if exponent == 0 {
                mantissa.to_string()
            } else {
                format!("{mantissa}e{exponent}")
            };
        }
        let suffix = DECIMAL
            .iter()
            .find(|(_, power)| *power == exponent)
            .map_or("", |(suffix, _)| suffix);
        format!("{mantissa}{suffix}")
    }
}

/// Sort of suffix, power of 1024, power of ten.
fn suffix_of(suffix: &str) -> Option<(Suffixes, u32, i32)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Some((Suffixes::Decimal, 0, *power));
    }
    if let Some(step) = BINARY.iter().position(|known| *known == suffix) {
        return Some((Suffixes::Binary, step as u32 + 1, 0));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((Suffixes::Exponent, 0, exponent.parse().ok()?))
}

/// The number in nanos, rounded up; beyond the largest quantity any value above it may come back.
fn scaled(whole: &str, fraction: &str, exponent: i32, scale: i128) -> i128 {
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    if whole.is_empty() && fraction.is_empty() {
        return 0;
    }
    if whole.len() > DIGITS_MAX || fraction.len() > 1000 || exponent.abs() > 1000 {
        // Far outside what can be told apart.
        return if whole.is_empty() || exponent < 0 {
            1
        } else {
            UNITS_MAX * NANOS
        };
    }
    // Digits times ten to the power `shift` are nanos.
    let mut digits: String = [whole, fraction].concat();
    let mut shift = exponent + 9 - fraction.len() as i32;
    let mut rest = false;
    if scale == 1 {
        while shift < 0 && digits.len() > 1 {
            rest |= digits.pop() != Some('0');
            shift += 1;
        }
        if shift < 0 {
            return 1;
        }
    }
    let mut value: i128 = 0;
    for digit in digits.bytes() {
        value = match value
            .checked_mul(10)
            .and_then(|value| value.checked_add(i128::from(digit - b'0')))
        {
            Some(value) => value,
            None => return UNITS_MAX * NANOS,
        };
    }
    value = value.saturating_add(i128::from(rest)).saturating_mul(scale);
    for _ in 0..shift.max(0) {
        value = value.saturating_mul(10);
        if value >= UNITS_MAX * NANOS {
            return UNITS_MAX * NANOS;
        }
    }
    for _ in shift..0 {
        value = value / 10 + i128::from(value % 10 != 0);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::Quantity;

    #[test]
    fn canonical_forms_have_no_fraction_and_the_suffixes_that_were_written() {
        for (written, canonical) in [
            ("0", "0"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("100000", "100k"),
            ("1024", "1024"),
            ("1Gi", "1Gi"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("12e2", "1200"),
            ("5E", "5E"),
            ("-2.50", "-2500m"),
            ("+7", "7"),
            ("0.0000000001", "1n"),
            ("1u", "1u"),
            (".5", "500m"),
            ("5.", "5"),
            ("99999999999999999999", "9223372036854775807"),
            ("1Ei", "1Ei"),
        ] {
            assert_eq!(
                Quantity::parse(written).map(Quantity::canonical).as_deref(),
                Some(canonical),
                "{written}"
            );
        }
        for (written, kept) in [
            ("010", "010"),
            ("+1", "+1"),
            ("1E6", "1E6"),
            ("12e6", "12e6"),
            ("1.000k", "1k"),
            ("1000m", "1"),
            ("5Ti", "5Ti"),
            ("1024Mi", "1Gi"),
            ("0", "0"),
            ("00", "0"),
            ("0.1Gi", "107374182400m"),
            ("1e-1", "100e-3"),
        ] {
            assert_eq!(Quantity::rewrite(written, true).as_deref(), Some(kept), "{written}");
        }
        assert_eq!(Quantity::rewrite("100u", true).as_deref(), Some("1m"));
        assert_eq!(Quantity::rewrite("100u", false).as_deref(), Some("100u"));
        for bad in ["", "-", "1.2.3", "abc", "1x", "1e", "1 Gi", "Gi", "1ki"] {
            assert_eq!(Quantity::parse(bad), None, "{bad}");
        }
    }
}
