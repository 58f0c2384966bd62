//! An authenticating proxy in front of the server: it shows a certificate of an authority of its own and says in headers who
//! asks.

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

use super::User;

/// How a proxy is believed, in kube-apiserver's flags.
#[derive(Debug, Clone)]
pub struct FrontProxy {
    /// PEM of the authorities that sign proxies' certificates (`--requestheader-client-ca-file`).
    pub authorities: Vec<u8>,
    /// Common names that are believed; empty: all that the authorities sign (`--requestheader-allowed-names`).
    pub allowed_names: Vec<String>,
    /// Headers of the user's name, in lower case; the first that is there counts.
    pub username_headers: Vec<String>,
    /// Headers of the user's uid.
    pub uid_headers: Vec<String>,
    /// Headers of groups: all count.
    pub group_headers: Vec<String>,
    /// What names of headers of extras begin with.
    pub extra_prefixes: Vec<String>,
}

impl FrontProxy {
    /// Whether a proxy of this name is believed.
    pub(super) fn allows(&self, common_name: &str) -> bool {
        self.allowed_names.is_empty() || self.allowed_names.iter().any(|name| name == common_name)
    }

    /// Takes away what says who asks: nobody behind this server is to believe it.
    pub(super) fn strip(&self, headers: &mut HeaderMap) {
        for name in [&self.username_headers, &self.uid_headers, &self.group_headers]
            .into_iter()
            .flatten()
        {
            headers.remove(name);
        }
        let is_extra = |name: &str| {
            self.extra_prefixes
                .iter()
                .any(|prefix| name.starts_with(prefix.as_str()))
        };
        let extras: Vec<HeaderName> = headers.keys().filter(|name| is_extra(name.as_str())).cloned().collect();
        for name in extras {
            headers.remove(name);
        }
    }

    /// Whom the proxy names; `None` when it names nobody.
    pub(super) fn user(&self, headers: &HeaderMap) -> Option<User> {
        // Whatever bytes a name has, it is the one that is meant: what was dropped would make somebody else of its bearer.
        let shown = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let first = |names: &[String]| {
            let values = names.iter().filter_map(|name| headers.get(name)).map(shown);
            values.into_iter().find(|value| !value.is_empty())
        };
        let mut user = User {
            name: first(&self.username_headers)?,
            uid: first(&self.uid_headers).unwrap_or_default(),
            ..User::default()
        };
        for header in &self.group_headers {
            let values = headers.get_all(header).iter().map(shown);
            user.groups.extend(values.filter(|group| !group.is_empty()));
        }
        for (header, value) in headers {
            let header = header.as_str();
            let key = self
                .extra_prefixes
                .iter()
                .find_map(|prefix| header.strip_prefix(prefix.as_str()));
            if let Some(key) = key {
                user.extra.entry(extra_key(key)).or_default().push(shown(value));
            }
        }
        Some(user.known_or_not())
    }
}

/// The key of an extra in a header's name: percent-encoded where no name of a header may have it.
pub fn extra_key(header: &str) -> String {
    percent_decode_str(header)
        .decode_utf8()
        .map_or_else(|_| header.to_owned(), |key| key.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_of_a_proxy_name_a_user() {
        let proxy = FrontProxy {
            authorities: Vec::new(),
            allowed_names: vec!["proxy".into()],
            username_headers: vec!["x-remote-user".into()],
            uid_headers: vec!["x-remote-uid".into()],
            group_headers: vec!["x-remote-group".into()],
            extra_prefixes: vec!["x-remote-extra-".into()],
        };
        assert!(proxy.allows("proxy") && !proxy.allows("other"));
        let mut headers = HeaderMap::new();
        assert_eq!(proxy.user(&headers), None);
        for (name, value) in [
            ("x-remote-user", "alice"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-example.com%2fscopes", "read"),
        ] {
            headers.append(
                http::HeaderName::from_static(name),
                http::HeaderValue::from_static(value),
            );
        }
        let user = proxy.user(&headers).unwrap();
        assert_eq!(user.groups, ["a", "b", "system:authenticated"]);
        assert_eq!(user.extra["example.com/scopes"], ["read"]);
        headers.insert("accept", HeaderValue::from_static("*/*"));
        proxy.strip(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);

        let mut headers = HeaderMap::new();
        headers.append("x-remote-user", HeaderValue::from_bytes("josé".as_bytes()).unwrap());
        assert_eq!(proxy.user(&headers).unwrap().name, "josé");
        headers.insert("x-remote-user", HeaderValue::from_static("system:anonymous"));
        headers.append("x-remote-group", HeaderValue::from_static("system:unauthenticated"));
        assert_eq!(proxy.user(&headers).unwrap().groups, ["system:unauthenticated"]);
    }
}
