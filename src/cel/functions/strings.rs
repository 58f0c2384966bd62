//! Texts. Places in them are counted in code points.

use super::super::machine::Machine;
use super::super::value::{Failure, Outcome, Str, Val};
use super::{Price, Row, rendered};

/// Longest text that a function makes of shorter ones, in bytes.
const MADE_MAX: usize = 16 << 20;

pub(super) const ROWS: &[Row] = &[
    ("contains", true, Price::Product, |machine, args| {
        test(machine, args, |text, part| text.contains(part))
    }),
    ("startsWith", true, Price::Tenths(1), |machine, args| {
        test(machine, args, |text, part| text.starts_with(part))
    }),
    ("endsWith", true, Price::Tenths(1), |machine, args| {
        test(machine, args, |text, part| text.ends_with(part))
    }),
    ("matches", true, Price::Pattern, matches),
    ("matches", false, Price::Pattern, matches),
    ("find", true, Price::Pattern, |machine, args| match args {
        [Val::String(text), Val::String(pattern)] => Some(
            machine
                .pattern(pattern)
                .map(|pattern| Val::text(pattern.find(text).map_or("", |found| found.as_str()))),
        ),
        _ => None,
    }),
    ("findAll", true, Price::Pattern, find_all),
    ("charAt", true, Price::One, |machine, args| match args {
        [Val::String(text), Val::Int(at)] => Some(char_at(machine, text, *at)),
        _ => None,
    }),
    ("join", true, Price::Own, |machine, args| match args {
        [Val::List(_)] => Some(join(machine, args, "")),
        [Val::List(_), Val::String(separator)] => Some(join(machine, args, separator)),
        _ => None,
    }),
    ("lowerAscii", true, Price::Tenths(1), |_, args| match args {
        [Val::String(text)] => Some(Ok(Val::text(text.to_ascii_lowercase()))),
        _ => None,
    }),
    ("upperAscii", true, Price::Tenths(1), |_, args| match args {
        [Val::String(text)] => Some(Ok(Val::text(text.to_ascii_uppercase()))),
        _ => None,
    }),
    ("replace", true, Price::Tenths(2), |machine, args| match args {
        [Val::String(text), Val::String(old), Val::String(new)] => Some(replace(machine, text, old, new, -1)),
        [Val::String(text), Val::String(old), Val::String(new), Val::Int(limit)] => {
            Some(replace(machine, text, old, new, *limit))
        }
        _ => None,
    }),
    ("jsonpatch.escapeKey", false, Price::Tenths(1), |_, args| match args {
        [Val::String(text)] => Some(Ok(Val::text(text.replace('~', "~0").replace('/', "~1")))),
        _ => None,
    }),
    ("split", true, Price::Tenths(2), |machine, args| match args {
        [Val::String(text), Val::String(separator)] => Some(split(machine, text, separator, -1)),
        [Val::String(text), Val::String(separator), Val::Int(limit)] => Some(split(machine, text, separator, *limit)),
        _ => None,
    }),
    ("substring", true, Price::Tenths(1), |_, args| match args {
        [Val::String(text), Val::Int(start)] => Some(substring(text, *start, None)),
        [Val::String(text), Val::Int(start), Val::Int(end)] => Some(substring(text, *start, Some(*end))),
        _ => None,
    }),
    ("trim", true, Price::Tenths(1), |_, args| match args {
        [Val::String(text)] => Some(Ok(Val::text(text.trim()))),
        _ => None,
    }),
    ("format", true, Price::Tenths(1), |machine, args| match args {
        [Val::String(format), Val::List(values)] => Some(rendered::format(machine, format, values)),
        _ => None,
    }),
    ("strings.quote", false, Price::Tenths(1), |_, args| match args {
        [Val::String(text)] => Some(Ok(Val::text(rendered::quoted(text)))),
        _ => None,
    }),
];

fn test<'a>(machine: &mut Machine<'a>, args: &[Val<'a>], is: fn(&str, &str) -> bool) -> Option<Outcome<'a>> {
    match args {
        [Val::String(text), Val::String(part)] => {
            Some(machine.work(part.len() as u64 / 8).map(|()| Val::Bool(is(text, part))))
        }
        _ => None,
    }
}

fn matches<'a>(machine: &mut Machine<'a>, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    match args {
        [Val::String(text), Val::String(pattern)] => Some(
            machine
                .pattern(pattern)
                .map(|pattern| Val::Bool(pattern.is_match(text))),
        ),
        _ => None,
    }
}

fn find_all<'a>(machine: &mut Machine<'a>, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let (text, pattern, limit) = match args {
        [Val::String(text), Val::String(pattern)] => (text, pattern, -1),
        [Val::String(text), Val::String(pattern), Val::Int(limit)] => (text, pattern, *limit),
        _ => return None,
    };
    Some(machine.pattern(pattern).and_then(|pattern| {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut found = Vec::new();
        for part in pattern.find_iter(text).take(limit) {
            machine.work(32)?;
            found.push(Val::text(part.as_str()));
        }
        Ok(Val::list(found))
    }))
}

/// The byte at which a code point begins; also the one after the last.
fn byte_of(text: &str, place: i64) -> Option<usize> {
    let place = usize::try_from(place).ok()?;
    text.char_indices()
        .map(|(at, _)| at)
        .chain(std::iter::once(text.len()))
        .nth(place)
}

fn out_of_range(at: i64) -> Failure {
    Failure::told(format!("index out of range: {at}"))
}

fn char_at<'a>(machine: &mut Machine<'a>, text: &str, at: i64) -> Outcome<'a> {
    machine.work(text.len() as u64 / 8)?;
    let start = byte_of(text, at).ok_or_else(|| out_of_range(at))?;
    let c = text[start..].chars().next();
    Ok(Val::text(c.map(String::from).unwrap_or_default()))
}

/// Where a text begins in another, in code points, from a place on; -1 for nowhere.
pub(super) fn index_of<'a>(args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let (text, part, from) = match args {
        [Val::String(text), Val::String(part)] => (text, part, 0),
        [Val::String(text), Val::String(part), Val::Int(from)] => (text, part, *from),
        _ => return None,
    };
    if part.is_empty() {
        return Some(Ok(Val::Int(from)));
    }
    let Some(start) = byte_of(text, from) else {
        return Some(Err(out_of_range(from)));
    };
    let found = text[start..].find(&**part);
    Some(Ok(Val::Int(
        found.map_or(-1, |at| text[..start + at].chars().count() as i64),
    )))
}

/// Where a text begins in another for the last time, in code points, not after a place; -1 for nowhere.
pub(super) fn last_index_of<'a>(args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let (text, part, until) = match args {
        [Val::String(text), Val::String(part)] => (text, part, None),
        [Val::String(text), Val::String(part), Val::Int(until)] => (text, part, Some(*until)),
        _ => return None,
    };
    if part.is_empty() {
        let end = until.unwrap_or_else(|| text.chars().count() as i64);
        return Some(Ok(Val::Int(end)));
    }
    let end = match until {
        None => text.len(),
        Some(until) => match byte_of(text, until) {
            Some(start) => start.saturating_add(part.len()).min(text.len()),
            None => return Some(Err(out_of_range(until))),
        },
    };
    // Where the part is, it ends with a whole character.
    let haystack = &text[..text.floor_char_boundary(end)];
    let found = haystack.rfind(&**part);
    Some(Ok(Val::Int(found.map_or(-1, |at| text[..at].chars().count() as i64))))
}

fn substring<'a>(text: &Str<'a>, start: i64, end: Option<i64>) -> Outcome<'a> {
    let from = byte_of(text, start).ok_or_else(|| out_of_range(start))?;
    let to = match end {
        None => text.len(),
        Some(end) if end < start => {
            let what = format!("invalid substring range. start: {start}, end: {end}");
            return Err(Failure::told(what));
        }
        Some(end) => byte_of(text, end).ok_or_else(|| out_of_range(end))?,
    };
    Ok(Val::String(match text {
        Str::Lent(text) => Str::Lent(&text[from..to]),
        Str::Made(text) => Str::Made(text[from..to].into()),
    }))
}

fn join<'a>(machine: &mut Machine<'a>, args: &[Val<'a>], separator: &str) -> Outcome<'a> {
    let Some(Val::List(list)) = args.first() else {
        return Err(Failure::no_overload("join", args));
    };
    let mut out = String::new();
    for (at, item) in list.iter().enumerate() {
        let Val::String(text) = item? else {
            return Err(Failure::told("join: invalid input: non-string value in list"));
        };
        if at > 0 {
            out.push_str(separator);
        }
        let len = (text.len() + separator.len()) as u64;
        machine.work(16 + len)?;
        out.push_str(&text);
    }
    machine.charge((out.chars().count() as u64 * 2).div_ceil(10))?;
    Ok(Val::text(out))
}

fn replace<'a>(machine: &mut Machine<'a>, text: &str, old: &str, new: &str, limit: i64) -> Outcome<'a> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut out = String::with_capacity(text.len());
    let mut rest = 0;
    for (at, part) in text.match_indices(old).take(limit) {
        machine.work(8 + new.len() as u64)?;
        if out.len() + new.len() + text.len() > MADE_MAX {
            return Err(Failure::TooDear);
        }
        out.push_str(&text[rest..at]);
        out.push_str(new);
        rest = at + part.len();
    }
    out.push_str(&text[rest..]);
    Ok(Val::text(out))
}

fn split<'a>(machine: &mut Machine<'a>, text: &str, separator: &str, limit: i64) -> Outcome<'a> {
    let mut parts = Vec::new();
    if limit == 0 {
        return Ok(Val::list(parts));
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut rest = text;
    while parts.len() + 1 < limit {
        machine.work(64)?;
        let cut = if separator.is_empty() {
            // Into code points; the last one is what is left.
            let first = rest.chars().next().map_or(0, char::len_utf8);
            (first < rest.len()).then_some((first, first))
        } else {
            rest.find(separator).map(|at| (at, at + separator.len()))
        };
        let Some((end, next)) = cut else { break };
        parts.push(Val::text(&rest[..end]));
        rest = &rest[next..];
    }
    if !(separator.is_empty() && text.is_empty()) {
        parts.push(Val::text(rest));
    }
    Ok(Val::list(parts))
}
