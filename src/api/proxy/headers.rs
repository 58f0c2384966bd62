//! Headers on their way through: what concerns one connection only, or tells who somebody is, goes no further.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::auth::User;

/// Headers of a connection, not of what goes over it (RFC 9110, 7.6.1).
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "proxy-connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A token that a browser shows in place of `Authorization`, as a WebSocket protocol.
const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// All that is no token of RFC 9110, and the percent sign itself.
const NOT_IN_NAMES: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Removes what belongs to a connection, `Connection` and what that names included.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Whether a request wants its connection for something else than HTTP.
pub(super) fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONNECTION).iter().any(|value| {
        let text = value.to_str().unwrap_or("");
        text.to_ascii_lowercase().contains("upgrade")
    })
}

/// Removes what tells this server who asks: no backend may see a token, and none may be told of a user, or of how this server
/// is reached, by a client.
pub(super) fn strip_identity(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
    let claims: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let name = name.as_str();
            let is_outside = matches!(name, "x-forwarded-host" | "x-forwarded-proto" | "x-forwarded-uri");
            name.starts_with("x-remote-") || name.starts_with("impersonate-") || is_outside
        })
        .cloned()
        .collect();
    for name in claims {
        headers.remove(name);
    }
    let shown: Vec<HeaderValue> = headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .cloned()
        .collect();
    let has_token = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains(BEARER_PROTOCOL));
    if shown.iter().any(has_token) {
        headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
        for value in shown {
            let Ok(text) = value.to_str() else { continue };
            let kept: Vec<&str> = text
                .split(',')
                .map(str::trim)
                .filter(|protocol| !protocol.starts_with(BEARER_PROTOCOL))
                .collect();
            if let Ok(value) = HeaderValue::from_str(&kept.join(", "))
                && !value.is_empty()
            {
                headers.append(header::SEC_WEBSOCKET_PROTOCOL, value);
            }
        }
    }
}

/// Tells a backend whom the request is from.
pub(super) fn append_forwarded_for(headers: &mut HeaderMap, client: IpAddr) {
    let mut text = String::new();
    for before in headers.get_all(&FORWARDED_FOR) {
        if let Ok(before) = before.to_str() {
            text.push_str(before);
            text.push_str(", ");
        }
    }
    text.push_str(&client.to_string());
    if let Ok(value) = HeaderValue::from_str(&text) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Tells an aggregated API server who asks, in the headers that it believes from this server alone. `None` when a name cannot
/// stand in a header.
pub(super) fn set_identity(headers: &mut HeaderMap, user: &User) -> Option<()> {
    let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).ok();
    headers.insert(HeaderName::from_static("x-remote-user"), value(&user.name)?);
    if !user.uid.is_empty() {
        headers.insert(HeaderName::from_static("x-remote-uid"), value(&user.uid)?);
    }
    for group in &user.groups {
        headers.append(HeaderName::from_static("x-remote-group"), value(group)?);
    }
    for (key, values) in &user.extra {
        // Keys may hold what no header's name may: those bytes are percent-encoded, as client-go does.
        let key = percent_encoding::utf8_percent_encode(key, NOT_IN_NAMES);
        let name = HeaderName::from_bytes(format!("x-remote-extra-{key}").as_bytes()).ok()?;
        for text in values {
            headers.append(name.clone(), value(text)?);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn what_a_connection_header_names_goes_no_further() {
        let mut all = headers(&[
            ("connection", "close, X-Secret"),
            ("connection", "x-other"),
            ("x-secret", "1"),
            ("x-other", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("accept", "*/*"),
        ]);
        strip_hop_by_hop(&mut all);
        assert_eq!(all, headers(&[("accept", "*/*")]));
    }

    #[test]
    fn no_token_and_no_claim_of_an_identity_goes_further() {
        let mut all = headers(&[
            ("authorization", "Bearer secret"),
            ("x-remote-user", "admin"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-scopes", "all"),
            ("x-remote-uid", "1"),
            ("x-forwarded-host", "elsewhere.example"),
            ("impersonate-user", "admin"),
            (
                "sec-websocket-protocol",
                "base64url.bearer.authorization.k8s.io.c2VjcmV0, v4.channel.k8s.io",
            ),
            ("cookie", "theirs"),
        ]);
        strip_identity(&mut all);
        let kept = headers(&[("cookie", "theirs"), ("sec-websocket-protocol", "v4.channel.k8s.io")]);
        assert_eq!(all, kept);
    }

    #[test]
    fn an_identity_is_told_whole_or_not_at_all() {
        let mut user = User::authenticated("alice", "uid-1", vec!["a".into(), "b".into()]);
        let mut all = HeaderMap::new();
        set_identity(&mut all, &user).unwrap();
        let groups: Vec<_> = all.get_all("x-remote-group").iter().collect();
        assert_eq!(groups, ["a", "b", "system:authenticated"]);
        assert_eq!(
            (&all["x-remote-user"], &all["x-remote-uid"]),
            (&HeaderValue::from_static("alice"), &HeaderValue::from_static("uid-1"))
        );
        user.extra
            .insert("example.com/a%b".into(), vec!["1".into(), "2".into()]);
        set_identity(&mut all, &user).unwrap();
        let told: Vec<_> = all.get_all("x-remote-extra-example.com%2fa%25b").iter().collect();
        assert_eq!(told, ["1", "2"]);
        user.groups[0] = "a\r\nX-Remote-Group: system:masters".into();
        assert!(set_identity(&mut HeaderMap::new(), &user).is_none());
    }

    #[test]
    fn who_forwarded_before_is_kept() {
        let mut all = headers(&[("x-forwarded-for", "192.0.2.1")]);
        append_forwarded_for(&mut all, "10.0.0.9".parse().unwrap());
        assert_eq!(all["x-forwarded-for"], "192.0.2.1, 10.0.0.9");
    }
}
