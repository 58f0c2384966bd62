//! Named formats of texts.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::super::value::{Failure, Outcome, Val};
use super::{Price, Row, times, url};
use crate::scalars::names;

/// A format: what is wrong with a text that should be of it.
#[derive(Debug)]
pub(in super::super) struct Format {
    pub(super) name: &'static str,
    wrong: fn(&str) -> Vec<String>,
    /// What checking costs, as the length of a pattern.
    pattern_len: u64,
}

const FORMATS: [Format; 13] = [
    Format {
        name: "dns1123Label",
        wrong: names::label,
        pattern_len: 30,
    },
    Format {
        name: "dns1123Subdomain",
        wrong: names::subdomain,
        pattern_len: 60,
    },
    Format {
        name: "dns1035Label",
        wrong: names::dns_1035_label,
        pattern_len: 30,
    },
    Format {
        name: "qualifiedName",
        wrong: names::qualified_name,
        pattern_len: 60,
    },
    Format {
        name: "dns1123LabelPrefix",
        wrong: |text| names::label(&prefix(text)),
        pattern_len: 30,
    },
    Format {
        name: "dns1123SubdomainPrefix",
        wrong: |text| names::subdomain(&prefix(text)),
        pattern_len: 60,
    },
    Format {
        name: "dns1035LabelPrefix",
        wrong: |text| names::dns_1035_label(&prefix(text)),
        pattern_len: 30,
    },
    Format {
        name: "labelValue",
        wrong: names::label_value,
        pattern_len: 40,
    },
    Format {
        name: "uri",
        wrong: |text| url::parse(text).err().into_iter().collect(),
        pattern_len: 800,
    },
    Format {
        name: "uuid",
        wrong: |text| told(is_uuid(text), "does not match the UUID format"),
        pattern_len: 70,
    },
    Format {
        name: "byte",
        wrong: |text| told(base64_bytes(text).is_some(), "invalid base64"),
        pattern_len: 80,
    },
    Format {
        name: "date",
        wrong: |text| told(times::date(text).is_some(), "invalid date"),
        pattern_len: 60,
    },
    Format {
        name: "datetime",
        wrong: |text| told(times::date_time(text).is_some(), "invalid datetime"),
        pattern_len: 60,
    },
];

pub(super) const ROWS: &[Row] = &[
    ("format.named", false, Price::One, |_, args| match args {
        [Val::String(name)] => Some(Ok(named(name).map_or(Val::Optional(None), Val::some))),
        _ => None,
    }),
    ("format.dns1123Label", false, Price::One, |_, _| made("dns1123Label")),
    ("format.dns1123Subdomain", false, Price::One, |_, _| {
        made("dns1123Subdomain")
    }),
    ("format.dns1035Label", false, Price::One, |_, _| made("dns1035Label")),
    ("format.qualifiedName", false, Price::One, |_, _| made("qualifiedName")),
    ("format.dns1123LabelPrefix", false, Price::One, |_, _| {
        made("dns1123LabelPrefix")
    }),
    ("format.dns1123SubdomainPrefix", false, Price::One, |_, _| {
        made("dns1123SubdomainPrefix")
    }),
    ("format.dns1035LabelPrefix", false, Price::One, |_, _| {
        made("dns1035LabelPrefix")
    }),
    ("format.labelValue", false, Price::One, |_, _| made("labelValue")),
    ("format.uri", false, Price::One, |_, _| made("uri")),
    ("format.uuid", false, Price::One, |_, _| made("uuid")),
    ("format.byte", false, Price::One, |_, _| made("byte")),
    ("format.date", false, Price::One, |_, _| made("date")),
    ("format.datetime", false, Price::One, |_, _| made("datetime")),
    ("validate", true, Price::Own, |machine, args| match args {
        [Val::Format(format), text @ Val::String(shown)] => Some((|| {
            let size = machine.size(Some(text))?;
            machine.charge((size + 1).div_ceil(10) * format.pattern_len.div_ceil(4))?;
            let wrong = (format.wrong)(shown);
            if wrong.is_empty() {
                return Ok(Val::Optional(None));
            }
            Ok(Val::some(Val::list(wrong.into_iter().map(Val::text).collect())))
        })()),
        _ => None,
    }),
];

fn named<'a>(name: &str) -> Option<Val<'a>> {
    static ALL: [Format; 13] = FORMATS;
    ALL.iter().find(|format| format.name == name).map(Val::Format)
}

#[allow(clippy::unnecessary_wraps, reason = "what rows of functions give")]
fn made<'a>(name: &str) -> Option<Outcome<'a>> {
    Some(named(name).ok_or_else(|| Failure::told(format!("no such format: {name}"))))
}

/// A name that goes on: a dash at its end counts as a letter.
fn prefix(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => format!("{rest}a"),
        _ => text.to_owned(),
    }
}

fn told(fine: bool, wrong: &str) -> Vec<String> {
    if fine { Vec::new() } else { vec![wrong.to_owned()] }
}

/// A UUID with dashes, or with none of them.
fn is_uuid(text: &str) -> bool {
    let lens = [8, 4, 4, 4, 12];
    let mut rest = text;
    for (at, len) in lens.into_iter().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((part, after)) = rest.split_at_checked(len) else {
            return false;
        };
        if !part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

/// The bytes of base64, with its padding.
pub(in super::super) fn base64_bytes(text: &str) -> Option<Vec<u8>> {
    const CONFIG: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical);
    GeneralPurpose::new(&STANDARD, CONFIG).decode(text).ok()
}
