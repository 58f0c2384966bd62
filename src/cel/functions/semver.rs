//! Semantic versions (<https://semver.org>).

use std::cmp::Ordering;
use std::sync::Arc;

use super::super::value::{Failure, Outcome, Val};
use super::{Price, Row};

pub(super) const ROWS: &[Row] = &[
    ("semver", false, Price::One, |_, args| {
        let (text, normal) = text_of(args)?;
        let version = read(text, normal).map(|version| Val::Semver(Arc::new(version)));
        Some(version.ok_or_else(|| Failure::told("Invalid Semantic Version")))
    }),
    ("isSemver", false, Price::One, |_, args| {
        let (text, normal) = text_of(args)?;
        Some(Ok(Val::Bool(read(text, normal).is_some())))
    }),
    ("major", true, Price::One, |_, args| {
        part(args, |version| version.numbers[0])
    }),
    ("minor", true, Price::One, |_, args| {
        part(args, |version| version.numbers[1])
    }),
    ("patch", true, Price::One, |_, args| {
        part(args, |version| version.numbers[2])
    }),
];

/// A version; what was built (`+…`) does not count.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Version {
    numbers: [u64; 3],
    before: Vec<Part>,
}

/// A part of what stands before a release: numbers come before names.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Name(Box<str>),
}

impl Ord for Version {
    fn cmp(&self, other: &Version) -> Ordering {
        let released = self.before.is_empty().cmp(&other.before.is_empty());
        self.numbers
            .cmp(&other.numbers)
            .then(released)
            .then_with(|| self.before.cmp(&other.before))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Version) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn part<'a>(args: &[Val<'a>], of: fn(&Version) -> u64) -> Option<Outcome<'a>> {
    match args {
        [Val::Semver(version)] => Some(Ok(Val::Int(of(version) as i64))),
        _ => None,
    }
}

/// A text, and whether it is to be made normal first.
fn text_of<'v>(args: &'v [Val<'_>]) -> Option<(&'v str, bool)> {
    match args {
        [Val::String(text)] => Some((text, false)),
        [Val::String(text), Val::Bool(normal)] => Some((text, *normal)),
        _ => None,
    }
}

fn read(text: &str, normal: bool) -> Option<Version> {
    if normal {
        return parse(&normalized(text)?);
    }
    parse(text)
}

/// A number without needless zeros.
fn number(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with('0');
    (canonical && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

fn parse(text: &str) -> Option<Version> {
    let (text, build) = text
        .split_once('+')
        .map_or((text, None), |(text, build)| (text, Some(build)));
    let (release, before) = text
        .split_once('-')
        .map_or((text, None), |(text, before)| (text, Some(before)));
    let known = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-');
    if build.is_some_and(|build| !build.split('.').all(known)) {
        return None;
    }
    let numbers: Vec<u64> = release.split('.').map(number).collect::<Option<_>>()?;
    let before = before.map_or(Some(Vec::new()), |before| {
        before
            .split('.')
            .map(|part| {
                if !known(part) {
                    return None;
                }
                if part.bytes().all(|byte| byte.is_ascii_digit()) {
                    return number(part).map(Part::Number);
                }
                Some(Part::Name(part.into()))
            })
            .collect()
    })?;
    Some(Version {
        numbers: numbers.try_into().ok()?,
        before,
    })
}

/// A version without its `v`, with zeros where parts are missing, and without needless ones.
fn normalized(text: &str) -> Option<String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text
        .splitn(3, '.')
        .map(|part| {
            let trimmed = part.trim_start_matches('0');
            if part.len() > 1 && !trimmed.starts_with(|c: char| c.is_ascii_digit()) {
                format!("0{trimmed}")
            } else if part.len() > 1 {
                trimmed.to_owned()
            } else {
                part.to_owned()
            }
        })
        .collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|part| part.contains(['+', '-'])) {
            return None;
        }
        parts.resize(3, "0".to_owned());
    }
    Some(parts.join("."))
}
