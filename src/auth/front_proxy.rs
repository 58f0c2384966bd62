//! An authenticating proxy in front of the server: it shows a certificate of an authority of its own and says in headers who
//! asks.

use http::HeaderMap;
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

    /// Whom the proxy names; `None` when it names nobody.
    pub(super) fn user(&self, headers: &HeaderMap) -> Option<User> {
        let first = |names: &[String]| {
            let values = names.iter().filter_map(|name| headers.get(name)?.to_str().ok());
            values.map(str::to_owned).find(|value| !value.is_empty())
        };
        let name = first(&self.username_headers)?;
        let mut groups = Vec::new();
        for header in &self.group_headers {
            let values = headers.get_all(header).iter().filter_map(|value| value.to_str().ok());
            groups.extend(values.filter(|group| !group.is_empty()).map(str::to_owned));
        }
        let mut user = User::authenticated(name, first(&self.uid_headers).unwrap_or_default(), groups);
        for (header, value) in headers {
            let header = header.as_str();
            let key = self
                .extra_prefixes
                .iter()
                .find_map(|prefix| header.strip_prefix(prefix.as_str()));
            if let (Some(key), Ok(value)) = (key, value.to_str()) {
                user.extra.entry(extra_key(key)).or_default().push(value.to_owned());
            }
        }
        Some(user)
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
    }
}
