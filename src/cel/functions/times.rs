//! Points in time and durations.

use jiff::civil::{Date, DateTime};
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::super::value::{Failure, Outcome, Val};
use super::{Price, Row};

const NANOS: i64 = 1_000_000_000;
/// The years 1 to 9999, in seconds from 1970 on. (`jiff`'s own points in time end a day earlier.)
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Instant {
    /// From 1970 on, in UTC.
    seconds: i64,
    nanos: u32,
}

impl Instant {
    fn new(seconds: i64, nanos: u32) -> Option<Instant> {
        SECONDS.contains(&seconds).then_some(Instant { seconds, nanos })
    }

    pub(super) fn seconds(self) -> i64 {
        self.seconds
    }

    fn total_nanos(self) -> i128 {
        i128::from(self.seconds) * i128::from(NANOS) + i128::from(self.nanos)
    }

    /// What calendar and clock show in a time zone.
    fn shown(self, zone: &TimeZone) -> Option<DateTime> {
        // Beyond what zones know, their first and last rules hold.
        let known = Timestamp::from_second(self.seconds).unwrap_or(if self.seconds < 0 {
            Timestamp::MIN
        } else {
            Timestamp::MAX
        });
        let offset = i64::from(zone.to_offset(known).seconds());
        EPOCH
            .checked_add(SignedDuration::new(self.seconds + offset, self.nanos as i32))
            .ok()
    }
}

fn instant(shown: DateTime, offset_s: i64) -> Option<Instant> {
    let since = shown.duration_since(EPOCH);
    Instant::new(since.as_secs() - offset_s, shown.subsec_nanosecond() as u32)
}

pub(super) const ROWS: &[Row] = &[
    ("timestamp", false, Price::One, |_, args| {
        Some(match args {
            [Val::Timestamp(time)] => Ok(Val::Timestamp(*time)),
            [Val::String(text)] => rfc_3339(text)
                .map(Val::Timestamp)
                .ok_or_else(|| Failure::told("type conversion error from 'string' to 'google.protobuf.Timestamp'")),
            [Val::Int(seconds)] => Instant::new(*seconds, 0).map(Val::Timestamp).ok_or_else(time_overflow),
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
    let Some(zone) = zone else {
        let name = args.get(1).map(Val::shown).unwrap_or_default();
        return Some(Err(Failure::told(format!("unknown time zone {name}"))));
    };
    let shown = time.shown(&zone).map(|shown| Val::Int(of(shown)));
    Some(shown.ok_or_else(time_overflow))
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
    crate::scalars::zone::of(name)
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
            let nanos = one.total_nanos() - other.total_nanos();
            i64::try_from(nanos).map(Val::Duration).map_err(|_| duration_overflow())
        }
        _ => return None,
    })
}

fn moved<'a>(time: Instant, nanos: i64) -> Outcome<'a> {
    let total = time.total_nanos() + i128::from(nanos);
    let unit = i128::from(NANOS);
    let seconds = i64::try_from(total.div_euclid(unit)).ok();
    seconds
        .and_then(|seconds| Instant::new(seconds, total.rem_euclid(unit) as u32))
        .map(Val::Timestamp)
        .ok_or_else(time_overflow)
}

/// A time as RFC 3339 writes it.
pub(in super::super) fn rfc_3339(text: &str) -> Option<Instant> {
    let digits = |range: std::ops::Range<usize>| -> Option<i16> {
        let digits = text.get(range)?;
        digits
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| digits.parse().ok())
            .flatten()
    };
    let bytes = text.as_bytes();
    let signs = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if !signs.iter().all(|(at, sign)| bytes.get(*at) == Some(sign)) || !matches!(bytes.get(10), Some(b'T' | b't')) {
        return None;
    }
    let small = |range| digits(range).and_then(|number| i8::try_from(number).ok());
    let (mut rest, mut nanos) = (text.get(19..)?, 0);
    if let Some(fraction) = rest.strip_prefix('.') {
        let len = fraction.bytes().take_while(u8::is_ascii_digit).count();
        let kept = fraction.get(..len.min(9)).filter(|kept| !kept.is_empty())?;
        nanos = format!("{kept:0<9}").parse().ok()?;
        rest = &fraction[len..];
    }
    let offset_s = match rest.as_bytes() {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] if [h1, h2, m1, m2].iter().all(|it| it.is_ascii_digit()) => {
            let number = |tens: &u8, ones: &u8| i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
            let (hours, minutes) = (number(h1, h2), number(m1, m2));
            if hours > 24 || minutes > 60 {
                return None;
            }
            (hours * 3600 + minutes * 60) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    let shown = DateTime::new(
        digits(0..4)?,
        small(5..7)?,
        small(8..10)?,
        small(11..13)?,
        small(14..16)?,
        small(17..19)?,
        nanos,
    );
    instant(shown.ok()?, offset_s)
}

/// A time of the format `date-time`: RFC 3339, or the same without a time zone.
pub(in super::super) fn date_time(text: &str) -> Option<Instant> {
    rfc_3339(text).or_else(|| rfc_3339(&format!("{text}Z")))
}

/// A day of the format `date`; its beginning in UTC.
pub(in super::super) fn date(text: &str) -> Option<Instant> {
    if text.len() != 10 {
        return None;
    }
    let date: Date = text.parse().ok()?;
    instant(date.at(0, 0, 0, 0), 0)
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

/// A time as `string()` writes it: RFC 3339 in UTC, with as much of a fraction as there is.
pub(super) fn time_text(time: Instant) -> String {
    let Some(shown) = time.shown(&TimeZone::UTC) else {
        return String::new();
    };
    let fraction = if time.nanos == 0 {
        String::new()
    } else {
        let digits = format!("{:09}", time.nanos);
        format!(".{}", digits.trim_end_matches('0'))
    };
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{fraction}Z",
        shown.year(),
        shown.month(),
        shown.day(),
        shown.hour(),
        shown.minute(),
        shown.second()
    )
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
