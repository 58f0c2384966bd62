//! Where a request goes on to: a backend's address, the path there, and how the backend is trusted.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::ClientConfig;

/// What may stand in a path as it is: as Go's `URL.EscapedPath` has it.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// Which addresses may be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// All: a kubelet may listen on a loopback address.
    Any,
    /// None that leads back to this machine or to what only neighbours on a link should reach, such as the metadata of a
    /// cloud's machine.
    Proxyable,
}

/// TLS towards a backend.
#[derive(Debug, Clone)]
pub(in crate::api) struct Tls {
    pub(super) config: Arc<ClientConfig>,
    /// The name that its certificate has to bear, if it is verified.
    pub(super) name: String,
}

/// A place on a backend.
#[derive(Debug, Clone)]
pub(super) struct Location {
    pub(super) tls: Option<Tls>,
    /// A name or an address.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) reach: Reach,
    /// Percent-encoded, begins with `/` or is empty.
    pub(super) path: String,
    /// Without the `?`; may be empty.
    pub(super) query: String,
}

impl Location {
    /// `host:port`, with brackets around an IPv6 address.
    pub(super) fn authority(&self) -> String {
        join(&self.host, self.port)
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// The whole address, as messages name it.
    pub(super) fn url(&self) -> String {
        format!("{}://{}{}", self.scheme(), self.authority(), self.path_and_query())
    }

    /// What stands in the first line of a request.
    pub(super) fn path_and_query(&self) -> String {
        let mut text = if self.path.is_empty() {
            "/".to_owned()
        } else {
            self.path.clone()
        };
        if !self.query.is_empty() {
            let _ = write!(text, "?{}", self.query);
        }
        text
    }
}

/// `host:port`, with brackets around an IPv6 address.
pub(super) fn join(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// A decoded path, encoded again.
pub(super) fn encode_path(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// The decoded path below `proxy`, as a path from the root without empty and dot segments; `""` for none. Whether it ends in
/// `/` is kept.
pub(super) fn clean(rest: &str, ends_in_slash: bool) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in rest.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    if segments.is_empty() {
        return if ends_in_slash { "/".to_owned() } else { String::new() };
    }
    let mut path = String::with_capacity(rest.len() + 2);
    for segment in segments {
        path.push('/');
        path.push_str(segment);
    }
    if ends_in_slash {
        path.push('/');
    }
    path
}

/// Takes `name`, `name:port` and `scheme:name:port` apart: scheme, name, port. `None` for anything else.
pub(super) fn split(id: &str) -> Option<(&str, &str, &str)> {
    let parts: Vec<&str> = id.splitn(4, ':').collect();
    let (scheme, name, port) = match parts.as_slice() {
        [name] => ("", *name, ""),
        [name, port] => ("", *name, *port),
        [scheme, name, port] => (*scheme, *name, *port),
        _ => return None,
    };
    (!name.is_empty() && matches!(scheme, "" | "http" | "https")).then_some((scheme, name, port))
}

/// Whether an address may be that of a Pod that is proxied to: not of this machine, not of its link, not of several.
pub(super) fn is_global(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            !(v4.is_unspecified() || v4.is_loopback() || v4.is_multicast() || v4.is_link_local() || v4.is_broadcast())
        }
        IpAddr::V6(v6) => !(v6.is_unspecified() || v6.is_loopback() || v6.is_multicast() || v6.is_unicast_link_local()),
    }
}

/// Whether a node's address may be proxied to on other ports than its kubelet's.
pub(super) fn is_proxyable(address: IpAddr) -> bool {
    // Upstream lets other multicast addresses and the unspecified one through; the latter is this machine.
    is_global(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_taken_apart_as_upstream_takes_them() {
        assert_eq!(split("web"), Some(("", "web", "")));
        assert_eq!(split("web:80"), Some(("", "web", "80")));
        assert_eq!(split("https:web:"), Some(("https", "web", "")));
        for bad in ["", ":80", "ftp:web:80", "http::80", "https:web:80:x"] {
            assert_eq!(split(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_path_stays_below_its_root_whatever_it_says() {
        for (rest, ends, expected) in [
            ("", false, ""),
            ("", true, "/"),
            ("a/b", false, "/a/b"),
            ("a//b", true, "/a/b/"),
            ("../../etc/passwd", false, "/etc/passwd"),
            ("a/../..", true, "/"),
            ("./a/.", false, "/a"),
        ] {
            assert_eq!(clean(rest, ends), expected, "{rest}");
        }
        assert_eq!(encode_path("/a b/ü?x#y%2f\r\n"), "/a%20b/%C3%BC%3Fx%23y%252f%0D%0A");
    }

    #[test]
    fn addresses_of_this_machine_and_of_its_link_are_none_of_a_pod() {
        for bad in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
        ] {
            assert!(!is_global(bad.parse().unwrap()), "{bad}");
        }
        for good in ["10.0.0.1", "192.168.7.7", "8.8.8.8", "fd00::1", "2001:db8::1"] {
            assert!(is_global(good.parse().unwrap()), "{good}");
        }
    }

    #[test]
    fn an_address_is_told_as_a_url() {
        let mut location = Location {
            tls: None,
            host: "fd00::1".into(),
            port: 80,
            reach: Reach::Any,
            path: String::new(),
            query: "a=b".into(),
        };
        assert_eq!(location.url(), "http://[fd00::1]:80/?a=b");
        location.path = "/x".into();
        assert_eq!(location.path_and_query(), "/x?a=b");
    }
}
