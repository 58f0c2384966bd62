//! The formats of texts that kube-apiserver checks (`pkg/apiserver/validation/formats.go` names them, go-openapi's `strfmt`
//! says what they are). Other formats are not looked at.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

use crate::scalars::go_duration;

/// A format that is checked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Format {
    BsonObjectId,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid,
    Uuid3,
    Uuid4,
    Uuid5,
    Isbn,
    Isbn10,
    Isbn13,
    CreditCard,
    Ssn,
    HexColor,
    RgbColor,
    Byte,
    Password,
    Date,
    Duration,
    DateTime,
    ShortName,
    LongName,
}

const FORMATS: &[(&str, Format)] = &[
    ("bsonobjectid", Format::BsonObjectId),
    ("uri", Format::Uri),
    ("email", Format::Email),
    ("hostname", Format::Hostname),
    ("ipv4", Format::Ipv4),
    ("ipv6", Format::Ipv6),
    ("cidr", Format::Cidr),
    ("mac", Format::Mac),
    ("uuid", Format::Uuid),
    ("uuid3", Format::Uuid3),
    ("uuid4", Format::Uuid4),
    ("uuid5", Format::Uuid5),
    ("isbn", Format::Isbn),
    ("isbn10", Format::Isbn10),
    ("isbn13", Format::Isbn13),
    ("creditcard", Format::CreditCard),
    ("ssn", Format::Ssn),
    ("hexcolor", Format::HexColor),
    ("rgbcolor", Format::RgbColor),
    ("byte", Format::Byte),
    ("password", Format::Password),
    ("date", Format::Date),
    ("duration", Format::Duration),
    ("date-time", Format::DateTime),
    ("k8s-short-name", Format::ShortName),
    ("k8s-long-name", Format::LongName),
];

/// Whether texts of a format are checked.
pub(crate) fn is_known(name: &str) -> bool {
    Format::of(name).is_some()
}

/// The letters of a format's name that count: dashes do not.
fn letters(name: &str) -> impl Iterator<Item = u8> {
    name.bytes().filter(|byte| *byte != b'-')
}

impl Format {
    /// The format of that name, with or without dashes.
    pub(super) fn of(name: &str) -> Option<Format> {
        let found = FORMATS.iter().find(|(known, _)| letters(known).eq(letters(name)));
        found.map(|(_, format)| *format)
    }

    /// Its name as most write it.
    pub(super) fn name(self) -> &'static str {
        let found = FORMATS.iter().find(|(_, format)| *format == self);
        found.map_or("", |(name, _)| name)
    }

    /// Whether a text is of the format.
    pub(super) fn accepts(self, text: &str) -> bool {
        match self {
            Format::BsonObjectId => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
            Format::Uri => is_uri(text),
            Format::Email => is_email(text),
            Format::Hostname => is_hostname(text),
            Format::Ipv4 => text.contains('.') && is_ip(text),
            Format::Ipv6 => text.contains(':') && is_ip(text),
            Format::Cidr => is_cidr(text),
            Format::Mac => is_mac(text),
            Format::Uuid => is_uuid(text, None, false),
            Format::Uuid3 => is_uuid(text, Some(b'3'), false),
            Format::Uuid4 => is_uuid(text, Some(b'4'), true),
            Format::Uuid5 => is_uuid(text, Some(b'5'), true),
            Format::Isbn => is_isbn10(text) || is_isbn13(text),
            Format::Isbn10 => is_isbn10(text),
            Format::Isbn13 => is_isbn13(text),
            Format::CreditCard => is_credit_card(text),
            Format::Ssn => SSN.is_match(text),
            Format::HexColor => HEX_COLOR.is_match(text),
            Format::RgbColor => RGB_COLOR.is_match(text),
            Format::Byte => BASE64.is_match(text),
            Format::Password => true,
            Format::Date => is_date(text),
            Format::Duration => is_duration(text),
            Format::DateTime => is_date_time(text),
            Format::ShortName => text.len() <= 63 && !text.contains('.') && is_subdomain(text),
            Format::LongName => is_subdomain(text),
        }
    }
}

macro_rules! patterns {
    ($($name:ident = $pattern:literal;)*) => {$(
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($pattern).expect("a pattern in the code"));
    )*};
}

patterns! {
    SSN = r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$";
    HEX_COLOR = r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$";
    RGB_COLOR = r"^rgb\([\t\n\x0C\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\x0C\r ]*,[\t\n\x0C\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\x0C\r ]*,[\t\n\x0C\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\x0C\r ]*\)$";
    BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$";
    CARD = r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$";
    HOSTNAME = r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$";
    TIME = r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$";
    LONG_DURATION = r"^[\t\n\x0C\r ]*(?:[0-9]+[\t\n\x0C\r ]*[A-Za-zµ]+[\t\n\x0C\r ]*)+$";
    DURATION_PART = r"([0-9]+)[\t\n\x0C\r ]*([A-Za-zµ]+)";
}

fn is_subdomain(text: &str) -> bool {
    let label = |label: &str| {
        let end = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        end(label.bytes().next())
            && end(label.bytes().next_back())
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && HOSTNAME.is_match(text)
}

/// An address as Go's old parser took it: zeros may lead in IPv4.
fn is_ip(text: &str) -> bool {
    is_ipv4(text) || is_ipv6(text)
}

fn is_ipv4(text: &str) -> bool {
    without_zeros(text).parse::<Ipv4Addr>().is_ok()
}

fn is_ipv6(text: &str) -> bool {
    match text.rsplit_once(':') {
        Some((front, back)) if back.contains('.') => {
            format!("{front}:{}", without_zeros(back)).parse::<Ipv6Addr>().is_ok()
        }
        _ => text.parse::<Ipv6Addr>().is_ok(),
    }
}

fn without_zeros(address: &str) -> String {
    let parts = address.split('.').map(|part| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0",
        rest => rest,
    });
    parts.collect::<Vec<_>>().join(".")
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let most = match address.contains(':') {
        true if is_ipv6(address) => 128,
        false if is_ipv4(address) => 32,
        _ => return false,
    };
    !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit()) && bits.parse::<u32>().is_ok_and(|bits| bits <= most)
}

/// Addresses of 6, 8 or 20 bytes: pairs of digits with `:` or `-`, or groups of four with dots.
fn is_mac(text: &str) -> bool {
    let hex = |part: &str, len: usize| part.len() == len && part.bytes().all(|b| b.is_ascii_hexdigit());
    let pairs = |separator: char| {
        let parts: Vec<&str> = text.split(separator).collect();
        matches!(parts.len(), 6 | 8 | 20) && parts.iter().all(|part| hex(part, 2))
    };
    let fours = || {
        let parts: Vec<&str> = text.split('.').collect();
        matches!(parts.len(), 3 | 4 | 10) && parts.iter().all(|part| hex(part, 4))
    };
    text.len() <= 59 && (pairs(':') || pairs('-') || fours())
}

/// Eight, four, four, four and twelve hexadecimal digits, with dashes between or not.
fn is_uuid(text: &str, version: Option<u8>, variant: bool) -> bool {
    let mut rest = text.as_bytes();
    for (i, len) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 && rest.first() == Some(&b'-') {
            rest = &rest[1..];
        }
        let Some((group, after)) = rest.split_at_checked(len) else {
            return false;
        };
        if !group.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        let fits = match i {
            2 => version.is_none_or(|version| group[0] == version),
            3 => !variant || matches!(group[0].to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b'),
            _ => true,
        };
        if !fits {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

/// Without the spaces and dashes that may stand between digits.
fn bare(text: &str) -> Vec<u8> {
    text.bytes()
        .filter(|b| !matches!(b, b' ' | b'-' | b'\t' | b'\n'))
        .collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = bare(text);
    if digits.len() != 10 {
        return false;
    }
    let mut sum = 0;
    for (i, byte) in digits.iter().enumerate() {
        let digit = match byte {
            b'0'..=b'9' => u32::from(byte - b'0'),
            b'X' if i == 9 => 10,
            _ => return false,
        };
        sum += (i as u32 + 1) * digit;
    }
    sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = bare(text);
    if digits.len() != 13 || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let weighed = digits
        .iter()
        .enumerate()
        .map(|(i, byte)| u32::from(byte - b'0') * if i % 2 == 0 { 1 } else { 3 });
    weighed.sum::<u32>().is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CARD.is_match(&digits) {
        return false;
    }
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(i, byte)| match u32::from(byte - b'0') {
            digit if i % 2 == 0 => digit,
            digit if digit > 4 => digit * 2 - 9,
            digit => digit * 2,
        })
        .sum();
    sum.is_multiple_of(10)
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = |range: std::ops::Range<usize>| bytes[range].iter().all(u8::is_ascii_digit);
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' || !(digits(0..4) && digits(5..7) && digits(8..10)) {
        return false;
    }
    let number = |range: std::ops::Range<usize>| text[range].parse::<u32>().unwrap_or(0);
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return false,
    };
    (1..=days).contains(&day)
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    let Some(found) = TIME.captures(time).filter(|_| is_date(date)) else {
        return false;
    };
    &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59"
}

/// A duration of Go, or one in words: `2 weeks 3 days`.
fn is_duration(text: &str) -> bool {
    const UNITS: &[&[&str]] = &[
        &["ns", "nano"],
        &["us", "µs", "micro"],
        &["ms", "milli"],
        &["s", "sec"],
        &["m", "min"],
        &["h", "hr", "hour"],
        &["d", "day"],
        &["w", "wk", "week"],
    ];
    if go_duration::nanoseconds(text).is_ok() {
        return true;
    }
    if !LONG_DURATION.is_match(text) {
        return false;
    }
    let mut any = false;
    for part in DURATION_PART.captures_iter(text) {
        if part[1].parse::<i64>().is_err() {
            return false;
        }
        let unit = part[2].to_lowercase();
        any |= UNITS.iter().any(|names| {
            let (last, others) = names.split_last().unwrap_or((&"", &[]));
            unit.starts_with(last) || others.contains(&unit.as_str())
        });
    }
    any
}

/// What Go's `url.ParseRequestURI` takes: an absolute URL, or an absolute path.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let scheme_len = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')))
        .unwrap_or(text.len());
    let (scheme, rest) = match text[scheme_len..].strip_prefix(':') {
        // An address that begins with a colon has no scheme, which is an error.
        Some(_) if scheme_len == 0 => return false,
        Some(rest) if text.as_bytes()[0].is_ascii_alphabetic() => (&text[..scheme_len], rest),
        _ => ("", text),
    };
    let rest = rest.split('?').next().unwrap_or("");
    if !rest.starts_with('/') {
        return !scheme.is_empty();
    }
    let mut path = rest;
    if let Some(after) = rest
        .strip_prefix("//")
        .filter(|_| !scheme.is_empty() || !rest.starts_with("///"))
    {
        let end = after.find('/').unwrap_or(after.len());
        if !is_authority(&after[..end]) {
            return false;
        }
        path = &after[end..];
    }
    is_escaped_well(path)
}

fn is_authority(authority: &str) -> bool {
    let (user, host) = authority
        .rsplit_once('@')
        .map_or(("", authority), |(user, host)| (user, host));
    let user_fine = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(user_fine) || !is_escaped_well(user) {
        return false;
    }
    let (name, port) = if let Some(inner) = host.strip_prefix('[') {
        let Some((name, port)) = inner.rsplit_once(']') else {
            return false;
        };
        (name, port)
    } else {
        match host.rfind(':') {
            Some(colon) => host.split_at(colon),
            None => (host, ""),
        }
    };
    let port_fine = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    let host_fine = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:[]<>\"%".contains(c);
    port_fine && name.chars().all(host_fine) && is_escaped_well(name)
}

/// Whether every `%` is followed by two hexadecimal digits.
fn is_escaped_well(text: &str) -> bool {
    text.split('%').skip(1).all(|part| {
        let digits = part.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// What Go's `mail.ParseAddress` takes (RFC 5322): `a@b.c`, `Name <a@b.c>`. Comments are not taken.
fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let spec = if let Some(inner) = text.strip_suffix('>') {
        let Some((name, spec)) = inner.rsplit_once('<') else {
            return false;
        };
        if !is_phrase(name.trim_matches([' ', '\t'])) {
            return false;
        }
        spec
    } else {
        text
    };
    let (local, domain) = match spec.strip_prefix('"') {
        Some(rest) => {
            let Some(end) = end_of_quoted(rest) else { return false };
            match rest[end + 1..].strip_prefix('@') {
                Some(domain) if end > 0 => ("quoted", domain),
                _ => return false,
            }
        }
        None => match spec.split_once('@') {
            Some(parts) => parts,
            None => return false,
        },
    };
    is_dot_atom(local) && (is_dot_atom(domain) || is_domain_literal(domain))
}

/// The place of the quote that ends a quoted text, in characters that may stand in one.
fn end_of_quoted(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at),
            c if c.is_control() && c != '\t' => return None,
            _ => {}
        }
    }
    None
}

fn is_atom(text: &str) -> bool {
    let fine = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c);
    !text.is_empty() && text.chars().all(fine)
}

fn is_dot_atom(text: &str) -> bool {
    text.split('.').all(is_atom)
}

fn is_phrase(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(body) = rest.strip_prefix('"') {
            let Some(end) = end_of_quoted(body) else { return false };
            rest = &body[end + 1..];
        } else {
            let end = rest.find([' ', '\t', '"']).unwrap_or(rest.len());
            // A dot in a name is old habit, and taken.
            if !rest[..end].split('.').all(|part| part.is_empty() || is_atom(part)) {
                return false;
            }
            rest = &rest[end..];
        }
        rest = rest.trim_start_matches([' ', '\t']);
    }
    true
}

fn is_domain_literal(text: &str) -> bool {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.is_some_and(|address| is_ip(address.strip_prefix("IPv6:").unwrap_or(address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_takes_what_is_of_it_and_nothing_else() {
        let taken: &[(&str, &[&str], &[&str])] = &[
            (
                "bsonobjectid",
                &["507f1f77bcf86cd799439011"],
                &["507f", "507f1f77bcf86cd79943901x"],
            ),
            (
                "uri",
                &["http://a.b/c?d=e#f", "/path", "urn:a:b", "https://[::1]:8080/x"],
                &["a/b", "", ":x", "http://a b/", "/%zz"],
            ),
            (
                "email",
                &["a@b.c", "Some One <a.b@c>", "\"a b\"@c.d"],
                &["a", "@b", "a@", "a@b@c", "a..b@c", "<a@b"],
            ),
            (
                "hostname",
                &["example.com", "a", "a-b.example.org"],
                &["a_b", "-a.com", "", "a..b"],
            ),
            (
                "ipv4",
                &["1.2.3.4", "010.0.0.1", "::ffff:1.2.3.4"],
                &["1.2.3", "1.2.3.256", "a"],
            ),
            ("ipv6", &["::1", "fe80::1"], &["1.2.3.4", "::g"]),
            (
                "cidr",
                &["10.0.0.0/8", "fd00::/64"],
                &["10.0.0.0", "10.0.0.0/33", "x/8"],
            ),
            (
                "mac",
                &["01:23:45:67:89:ab", "01-23-45-67-89-ab", "0123.4567.89ab"],
                &["01:23:45", "01:23:45:67:89:zz"],
            ),
            (
                "uuid",
                &[
                    "A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11",
                    "a0eebc999c0b4ef8bb6d6bb9bd380a11",
                ],
                &["a0eebc99", ""],
            ),
            (
                "uuid3",
                &["a0eebc99-9c0b-3ef8-bb6d-6bb9bd380a11"],
                &["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
            ),
            (
                "uuid4",
                &["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
                &["a0eebc99-9c0b-4ef8-cb6d-6bb9bd380a11"],
            ),
            (
                "uuid5",
                &["a0eebc99-9c0b-5ef8-bb6d-6bb9bd380a11"],
                &["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
            ),
            ("isbn", &["0321751043", "978-0321751041"], &["0321751042", "x"]),
            ("isbn10", &["0321751043"], &["978-0321751041"]),
            ("isbn13", &["978-0321751041"], &["0321751043"]),
            ("creditcard", &["4012 8888 8888 1881"], &["4012888888881882", "1"]),
            ("ssn", &["111-11-1111", "111111111"], &["11-1"]),
            ("hexcolor", &["#FFFFFF", "fff"], &["#ff", "#ggg"]),
            ("rgbcolor", &["rgb(255, 0,12)"], &["rgb(256,0,0)", "rgb(1,2)"]),
            ("byte", &["aGVsbG8=", "aGVs"], &["", "a", "aGVsbG8"]),
            ("password", &["", "anything"], &[]),
            (
                "date",
                &["2026-02-28", "2024-02-29"],
                &["2026-02-29", "2026-2-1", "20260101"],
            ),
            (
                "duration",
                &["1h30m", "-1.5h", "0", "22 ns", "2 weeks", "3 days"],
                &["", "1", "x", "1 fortnight"],
            ),
            (
                "date-time",
                &["2014-12-15T19:30:20.000Z", "2014-12-15t19:30:20+01:00"],
                &["yesterday", "2014-12-15T24:00:00Z", "2014-12-15"],
            ),
            ("datetime", &["2014-12-15T19:30:20Z"], &["x"]),
            ("k8s-short-name", &["a-b"], &["a.b", "A", "-a"]),
            ("k8s-long-name", &["a.b"], &["A.b", ""]),
        ];
        for (name, good, bad) in taken {
            let format = Format::of(name).unwrap();
            for text in *good {
                assert!(format.accepts(text), "{name} takes {text:?}");
            }
            for text in *bad {
                assert!(!format.accepts(text), "{name} does not take {text:?}");
            }
        }
        assert!(Format::of("int32").is_none() && Format::of("").is_none());
    }
}
