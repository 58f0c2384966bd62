//! URLs, read as Go's `net/url` does.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::super::value::{Failure, Key, Map, Outcome, Val};
use super::{Price, Row};

pub(super) const ROWS: &[Row] = &[
    ("url", false, Price::Tenths(1), |_, args| match args {
        [Val::String(text)] => Some(
            parse(text)
                .map(|url| Val::Url(Arc::new(url)))
                .map_err(|wrong| Failure::told(format!("URL parse error during conversion from string: {wrong}"))),
        ),
        _ => None,
    }),
    ("isURL", false, Price::Tenths(1), |_, args| match args {
        [Val::String(text)] => Some(Ok(Val::Bool(parse(text).is_ok()))),
        _ => None,
    }),
    ("getScheme", true, Price::One, |_, args| {
        part(args, |url| url.scheme.clone())
    }),
    ("getHost", true, Price::One, |_, args| {
        part(args, |url| url.host.clone())
    }),
    ("getHostname", true, Price::One, |_, args| {
        part(args, |url| url.hostname().to_owned())
    }),
    ("getPort", true, Price::One, |_, args| {
        part(args, |url| url.port().to_owned())
    }),
    ("getEscapedPath", true, Price::One, |_, args| {
        part(args, |url| url.path.clone())
    }),
    ("getQuery", true, Price::One, |_, args| match args {
        [Val::Url(url)] => Some(Ok(query(&url.query))),
        _ => None,
    }),
];

/// The parts of a URL.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Url {
    scheme: String,
    user: String,
    /// With its port.
    host: String,
    /// With its escapes.
    path: String,
    query: String,
    fragment: String,
}

impl Url {
    fn hostname(&self) -> &str {
        let host = match self.port_at() {
            Some(at) => &self.host[..at],
            None => &self.host,
        };
        host.strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host)
    }

    fn port(&self) -> &str {
        self.port_at().map_or("", |at| &self.host[at + 1..])
    }

    /// Where the colon before the port is.
    fn port_at(&self) -> Option<usize> {
        let at = self.host.rfind(':')?;
        (!self.host[at..].contains(']')).then_some(at)
    }
}

fn part<'a>(args: &[Val<'a>], of: fn(&Url) -> String) -> Option<Outcome<'a>> {
    match args {
        [Val::Url(url)] => Some(Ok(Val::text(of(url)))),
        _ => None,
    }
}

/// Reads an absolute URL or an absolute path; the error is Go's.
pub(super) fn parse(text: &str) -> Result<Url, String> {
    read(text).map_err(|wrong| format!("parse {text:?}: {wrong}"))
}

fn read(text: &str) -> Result<Url, String> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".into());
    }
    if text.is_empty() {
        return Err("empty url".into());
    }
    let (whole, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (scheme, rest) = scheme(whole)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url = Url {
        scheme,
        user: String::new(),
        host: String::new(),
        path: String::new(),
        query: query.to_owned(),
        fragment: fragment.to_owned(),
    };
    if !rest.starts_with('/') {
        // `mailto:a@b` has neither host nor path.
        return if url.scheme.is_empty() {
            Err("invalid URI for request".into())
        } else {
            Ok(url)
        };
    }
    let path = match rest.strip_prefix("//").filter(|_| !url.scheme.is_empty()) {
        Some(after) => {
            let end = after.find('/').unwrap_or(after.len());
            authority(&mut url, &after[..end])?;
            &after[end..]
        }
        None => rest,
    };
    unescaped(path).ok_or_else(|| invalid_escape(path))?;
    url.path = escaped_path(path);
    Ok(url)
}

/// The scheme, in small letters, and what comes after it.
fn scheme(text: &str) -> Result<(String, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".into()),
            b':' => return Ok((text[..at].to_ascii_lowercase(), &text[at + 1..])),
            _ => break,
        }
    }
    Ok((String::new(), text))
}

fn authority(url: &mut Url, text: &str) -> Result<(), String> {
    let host = match text.rsplit_once('@') {
        None => text,
        Some((user, host)) => {
            let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
            if !user.bytes().all(known) {
                return Err("net/url: invalid userinfo".into());
            }
            unescaped(user).ok_or_else(|| invalid_escape(user))?;
            user.clone_into(&mut url.user);
            host
        }
    };
    let port = if host.starts_with('[') {
        let end = host.rfind(']').ok_or("missing ']' in host")?;
        &host[end + 1..]
    } else {
        host.rfind(':').map_or("", |at| &host[at..])
    };
    let port_is_number = port
        .strip_prefix(':')
        .is_some_and(|port| port.bytes().all(|it| it.is_ascii_digit()));
    if !port.is_empty() && !port_is_number {
        return Err(format!("invalid port {port:?} after host"));
    }
    for c in host.chars() {
        let known = c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:[]<>\"%".contains(c) || !c.is_ascii();
        if !known {
            return Err(format!("invalid character {:?} in host name", c.to_string()));
        }
    }
    unescaped(host).ok_or_else(|| invalid_escape(host))?;
    host.clone_into(&mut url.host);
    Ok(())
}

fn invalid_escape(text: &str) -> String {
    let wrong = text.match_indices('%').map(|(at, _)| &text[at..]).find(|rest| {
        let digits = rest.as_bytes().get(1..3);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    let shown: String = wrong.unwrap_or("%").chars().take(3).collect();
    format!("invalid URL escape {shown:?}")
}

/// The text with its escapes resolved; `None` if one is none.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let digits = bytes.get(at + 1..at + 3)?;
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    Some(out)
}

/// A path as it is when nothing in it needs an escape; else all of it escaped anew.
fn escaped_path(path: &str) -> String {
    use std::fmt::Write;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let valid = path
        .bytes()
        .all(|byte| plain(byte) || b"!$&'()*+,;=:@[]%/".contains(&byte));
    if valid {
        return path.to_owned();
    }
    let mut out = String::new();
    for byte in unescaped(path).unwrap_or_default() {
        if plain(byte) || b"$&+,/:;=@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn query<'a>(text: &str) -> Val<'a> {
    let mut found: BTreeMap<Key, Vec<Val<'a>>> = BTreeMap::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let plain = |part: &str| {
            let bytes = unescaped(&part.replace('+', " "))?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        if let (Some(name), Some(value)) = (plain(name), plain(value)) {
            found
                .entry(Key::String(name.into()))
                .or_default()
                .push(Val::text(value));
        }
    }
    let lists = found.into_iter().map(|(name, values)| (name, Val::list(values)));
    Val::Map(Map::Made(Rc::new(lists.collect())))
}
