//! Scalars with a syntax of their own: base64, quantities, times. Texts of errors are Go's.

use std::fmt::Write as _;

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime};

/// What kube-apiserver says of a quantity that is not one.
pub(crate) const QUANTITY_FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const QUANTITY_SUFFIX: &str = "unable to parse quantity's suffix";

/// Checks the syntax of a resource quantity.
pub(crate) fn quantity(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err(QUANTITY_FORMAT);
    }
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let rest = rest
        .strip_prefix('.')
        .map_or(rest, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    let digits = rest.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let exponent = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(QUANTITY_FORMAT);
    }
    let known = match rest {
        "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei" => true,
        // a decimal exponent: e3, E-2
        _ => rest
            .strip_prefix(['e', 'E'])
            .is_some_and(|exponent| exponent.parse::<i32>().is_ok()),
    };
    if known { Ok(()) } else { Err(QUANTITY_SUFFIX) }
}

/// Checks standard base64 with padding. Line ends are allowed and dropped; `Some` is the canonical form where it differs.
pub(crate) fn base64(text: &str) -> Result<Option<String>, String> {
    use base64::Engine as _;
    use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
    use base64::prelude::BASE64_STANDARD;
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    let corrupt = |at: usize| format!("illegal base64 data at input byte {at}");
    let is_code = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    let mut plain = true;
    let mut in_quantum = 0;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\r' | b'\n' => plain = false,
            b'=' => {
                // Padding: one more '=' after two characters, none after three, then nothing but line ends.
                if in_quantum < 2 {
                    return Err(corrupt(at));
                }
                let mut rest = bytes.by_ref().filter(|(_, byte)| !matches!(byte, b'\r' | b'\n'));
                if in_quantum == 2 {
                    match rest.next() {
                        Some((_, b'=')) => {}
                        Some((at, _)) => return Err(corrupt(at)),
                        None => return Err(corrupt(text.len())),
                    }
                }
                if let Some((at, _)) = rest.next() {
                    return Err(corrupt(at));
                }
                in_quantum = 0;
            }
            byte if is_code(byte) => in_quantum = (in_quantum + 1) % 4,
            _ => return Err(corrupt(at)),
        }
    }
    if in_quantum != 0 {
        return Err(corrupt(text.len() - in_quantum));
    }
    if plain && BASE64_STANDARD.decode(text).is_ok() {
        return Ok(None);
    }
    let joined: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let decoded = LENIENT.decode(joined).map_err(|_| corrupt(0))?;
    Ok(Some(BASE64_STANDARD.encode(decoded)))
}

/// RFC 3339 in UTC with seconds, as kube-apiserver writes what it was given.
pub(crate) fn time(text: &str) -> Result<String, String> {
    let timestamp = rfc3339(text, "2006-01-02T15:04:05Z07:00", false)?;
    let mut canonical = String::with_capacity(20);
    let _ = write!(canonical, "{}", timestamp.strftime("%Y-%m-%dT%H:%M:%SZ"));
    Ok(canonical)
}

/// RFC 3339 in UTC with microseconds.
pub(crate) fn micro_time(text: &str) -> Result<String, String> {
    let timestamp = rfc3339(text, "2006-01-02T15:04:05.000000Z07:00", true)?;
    let mut canonical = String::with_capacity(27);
    let _ = write!(canonical, "{}", timestamp.strftime("%Y-%m-%dT%H:%M:%S.%6fZ"));
    Ok(canonical)
}

/// Reads RFC 3339 step by step, so that the text of an error names the step as Go does. What comes back is UTC. (`jiff`'s own points in
/// time end a day before the year 9999 does, whose last second is a favourite of those who mean never.)
fn rfc3339(text: &str, layout: &str, micro: bool) -> Result<DateTime, String> {
    let cannot = |rest: &str, step: &str| {
        format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{rest}\" as \"{step}\"")
    };
    let range = |what: &str| format!("parsing time \"{text}\": {what} out of range");
    let mut rest = text;
    let mut numbers = [0_i16; 6];
    let steps = [
        ("2006", 4, "-"),
        ("01", 2, "-"),
        ("02", 2, "T"),
        ("15", 2, ":"),
        ("04", 2, ":"),
        ("05", 2, ""),
    ];
    for (number, (step, width, then)) in numbers.iter_mut().zip(steps) {
        let digits = rest
            .get(..width)
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        *number = digits
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| cannot(rest, step))?;
        rest = &rest[width..];
        rest = rest.strip_prefix(then).ok_or_else(|| cannot(rest, then))?;
    }
    let mut nanoseconds = 0_i32;
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let digits = fraction.len() - fraction.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits == 0 || (micro && digits != 6) {
            return Err(cannot(rest, if micro { ".000000" } else { "Z07:00" }));
        }
        let padded = format!("{:0<9}", &fraction[..digits.min(9)]);
        nanoseconds = padded.parse().unwrap_or(0);
        rest = &fraction[digits..];
    } else if micro {
        return Err(cannot(rest, ".000000"));
    }
    let offset = zone(rest).ok_or_else(|| cannot(rest, "Z07:00"))?;
    let [year, month, day, hour, minute, second] = numbers;
    for (number, top, what) in [
        (month, 12, "month"),
        (hour, 23, "hour"),
        (minute, 59, "minute"),
        (second, 59, "second"),
    ] {
        if number > top || (what == "month" && number == 0) {
            return Err(range(what));
        }
    }
    let date = Date::new(year, month as i8, day as i8).map_err(|_| range("day"))?;
    let time = date.at(hour as i8, minute as i8, second as i8, nanoseconds);
    time.checked_sub(SignedDuration::from_secs(offset.into()))
        .map_err(|_| range("year"))
}

/// Seconds east of UTC of `Z` or `+07:00`.
fn zone(text: &str) -> Option<i32> {
    if text == "Z" {
        return Some(0);
    }
    let sign = match text.bytes().next()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = text[1..].split_once(':')?;
    let number = |digits: &str| {
        (digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse::<i32>().ok())?
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours <= 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_told_from_what_is_not_one() {
        for good in ["1", "0.5", "-1", "+.5Gi", "100m", "1e3", "1E-2", "5.", "12Ei", "1E"] {
            assert_eq!(quantity(good), Ok(()), "{good}");
        }
        for (bad, text) in [
            ("lots", QUANTITY_FORMAT),
            ("", QUANTITY_FORMAT),
            ("1ki", QUANTITY_SUFFIX),
            ("1Kb", QUANTITY_FORMAT),
        ] {
            assert_eq!(quantity(bad), Err(text), "{bad}");
        }
    }

    #[test]
    fn base64_errors_name_the_byte_that_go_names() {
        assert_eq!(base64("aGVsbG8="), Ok(None));
        assert_eq!(base64("aGVs\nbG8=\n"), Ok(Some("aGVsbG8=".to_owned())));
        assert_eq!(base64("aGVsbG9="), Ok(Some("aGVsbG8=".to_owned())));
        for (bad, at) in [
            ("not base64!", 3),
            ("a", 0),
            ("aGVsbG8", 4),
            ("aGVsbG8==", 8),
            ("aG=x", 3),
            ("=", 0),
        ] {
            assert_eq!(
                base64(bad),
                Err(format!("illegal base64 data at input byte {at}")),
                "{bad}"
            );
        }
    }

    #[test]
    fn times_are_brought_to_utc_and_errors_name_the_step() {
        assert_eq!(time("2024-03-01T01:30:00+02:00").unwrap(), "2024-02-29T23:30:00Z");
        assert_eq!(time("2024-03-01T01:30:00.999Z").unwrap(), "2024-03-01T01:30:00Z");
        assert_eq!(time("9999-12-31T23:59:59Z").unwrap(), "9999-12-31T23:59:59Z");
        assert_eq!(
            micro_time("2024-03-01T01:30:00.000123Z").unwrap(),
            "2024-03-01T01:30:00.000123Z"
        );
        assert_eq!(
            time("yesterday").unwrap_err(),
            r#"parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#
        );
        assert_eq!(
            time("2024-01-01").unwrap_err(),
            r#"parsing time "2024-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#
        );
        assert_eq!(
            time("2024-13-01T00:00:00Z").unwrap_err(),
            r#"parsing time "2024-13-01T00:00:00Z": month out of range"#
        );
        assert_eq!(
            time("2023-02-29T00:00:00Z").unwrap_err(),
            r#"parsing time "2023-02-29T00:00:00Z": day out of range"#
        );
    }
}
