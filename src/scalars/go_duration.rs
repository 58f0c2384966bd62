//! Durations as Go's `time.ParseDuration` reads them.

/// The nanoseconds of a duration: `1h15m30.918s`, `-1.5h`, `0`.
///
/// # Errors
/// Go's words for what is wrong with it.
pub(crate) fn nanoseconds(text: &str) -> Result<f64, String> {
    const UNITS: &[(&str, f64)] = &[
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        ("μs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("m", 6e10),
        ("h", 3.6e12),
    ];
    let invalid = || Err(format!("time: invalid duration {text:?}"));
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(0.0);
    }
    if rest.is_empty() {
        return invalid();
    }
    let mut nanos = 0.0;
    while !rest.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let number_len = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_len);
        let Ok(count) = number.parse::<f64>() else {
            return invalid();
        };
        let unit_len = after.find(is_number).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let Some((_, unit_nanos)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("time: unknown unit {unit:?} in duration {text:?}"));
        };
        nanos += count * unit_nanos;
        if nanos > i64::MAX as f64 {
            return invalid();
        }
        rest = after;
    }
    Ok(if text.starts_with('-') { -nanos } else { nanos })
}
