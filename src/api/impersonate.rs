//! Impersonation: a caller who may asks to be taken for somebody else.
//!
//! Rules: <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation>.

use std::fmt::Write as _;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::Api;
use super::authorize::demand;
use super::status::Status;
use crate::auth::authorization::{Asked, Attributes, What};
use crate::auth::{User, extra_key};

const PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";

/// For whom the request counts. What it says of that is taken from its headers, so that nobody further on reads it.
///
/// # Errors
/// 403 when the caller may not be taken for that user, one of the groups, the uid or an extra; 400 when none but the user's name is
/// missing.
pub(super) fn caller(api: &Api, caller: Arc<User>, headers: &mut HeaderMap) -> Result<Arc<User>, Status> {
    if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
        return Ok(caller);
    }
    let asked = take(headers);
    if asked.name.is_empty() {
        if asked == User::default() {
            return Ok(caller);
        }
        return Err(Status::bad_request(format!(
            "requested {} without impersonating a user name",
            shown(&asked)
        )));
    }
    let may = |asked: Asked<'_>| {
        let attributes = Attributes {
            user: &caller,
            verb: "impersonate",
            what: What::Resource(asked),
        };
        demand(api, &attributes)
    };
    may(match User::service_account_of(&asked.name) {
        Some((namespace, name)) => Asked {
            resource: "serviceaccounts",
            namespace,
            name,
            ..Asked::default()
        },
        None => Asked {
            resource: "users",
            name: &asked.name,
            ..Asked::default()
        },
    })?;
    for group in &asked.groups {
        may(Asked {
            resource: "groups",
            name: group,
            ..Asked::default()
        })?;
    }
    let of_authentication = Asked {
        group: "authentication.k8s.io",
        ..Asked::default()
    };
    for (key, values) in &asked.extra {
        for value in values {
            may(Asked {
                resource: "userextras",
                subresource: key,
                name: value,
                ..of_authentication
            })?;
        }
    }
    if !asked.uid.is_empty() {
        may(Asked {
            resource: "uids",
            name: &asked.uid,
            ..of_authentication
        })?;
    }
    Ok(Arc::new(asked.impersonated()))
}

/// Takes the headers out.
fn take(headers: &mut HeaderMap) -> User {
    // Whatever bytes a name has, it is asked for: what was dropped would let the caller act as itself.
    let shown = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let text = |name: &str| headers.get(name).map(shown).unwrap_or_default();
    let mut asked = User {
        name: text(USER),
        uid: text(UID),
        ..User::default()
    };
    asked.groups = headers.get_all(GROUP).iter().map(shown).collect();
    for (name, value) in headers.iter() {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            asked.extra.entry(extra_key(key)).or_default().push(shown(value));
        }
    }
    let names: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with(PREFIX))
        .cloned()
        .collect();
    for name in names {
        headers.remove(name);
    }
    asked
}

/// A user as Go prints one.
fn shown(user: &User) -> String {
    let list = |list: &[String]| {
        let texts: Vec<String> = list.iter().map(|text| format!("{text:?}")).collect();
        format!("{{{}}}", texts.join(", "))
    };
    let groups = if user.groups.is_empty() {
        "(nil)".to_owned()
    } else {
        list(&user.groups)
    };
    let mut extra = String::new();
    for (key, values) in &user.extra {
        let comma = if extra.is_empty() { "" } else { ", " };
        // Writing to a text does not fail.
        let _ = write!(extra, "{comma}{key:?}:[]string{}", list(values));
    }
    let extra = if extra.is_empty() {
        "(nil)".to_owned()
    } else {
        format!("{{{extra}}}")
    };
    format!(
        "&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:[]string{groups}, Extra:map[string][]string{extra}}}",
        user.name, user.uid
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_taken_out_of_the_headers_and_shown_as_go_shows_it() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("impersonate-group", "g1"),
            ("impersonate-group", "g2"),
            ("impersonate-extra-example.com%2fscopes", "read"),
            ("accept", "*/*"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let asked = take(&mut headers);
        assert_eq!(headers.len(), 1);
        assert_eq!(
            shown(&asked),
            r#"&user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g1", "g2"}, Extra:map[string][]string{"example.com/scopes":[]string{"read"}}}"#
        );
    }

    #[test]
    fn a_name_beyond_ascii_is_not_passed_over() {
        let mut headers = HeaderMap::new();
        headers.append(USER, HeaderValue::from_bytes("josé".as_bytes()).unwrap());
        assert_eq!(take(&mut headers).name, "josé");
        headers.append(USER, HeaderValue::from_bytes(b"\xff").unwrap());
        assert_ne!(take(&mut headers).name, "");
    }

    #[test]
    fn nobody_is_both_known_and_unknown() {
        let user = |name: &str, groups: &[&str]| User {
            name: name.into(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..User::default()
        };
        assert_eq!(user("bob", &["g"]).impersonated().groups, ["g", "system:authenticated"]);
        assert_eq!(
            user("system:anonymous", &[]).impersonated().groups,
            ["system:unauthenticated"]
        );
        assert_eq!(
            user("bob", &["system:unauthenticated"]).impersonated().groups,
            ["system:unauthenticated"]
        );
    }
}
