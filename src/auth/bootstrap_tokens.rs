//! Bootstrap tokens: what a machine joins with before it has a certificate. `ID.SECRET`, held by the Secret
//! `kube-system/bootstrap-token-ID`.

use std::collections::BTreeMap;

use base64::Engine as _;
use serde::Deserialize;
use subtle::ConstantTimeEq as _;

use super::User;
use crate::store::View;

/// The group of everybody with such a token.
const GROUP: &str = "system:bootstrappers";
/// Type of the Secrets.
pub const BOOTSTRAP_TOKEN_TYPE: &str = "bootstrap.kubernetes.io/token";

#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    data: BTreeMap<String, String>,
    #[serde(default, rename = "type")]
    kind: String,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(rename = "deletionTimestamp")]
    deletion: Option<String>,
}

/// Id and secret of a text that is such a token by its form: six and sixteen of `a-z0-9`.
pub fn parts_of_bootstrap_token(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |text: &str, length: usize| {
        text.len() == length
            && text
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    (plain(id, 6) && plain(secret, 16)).then_some((id, secret))
}

/// The user of a token; `None` when there is no such token that is good now. Costs a lookup for what has the form of one.
pub(super) fn user(view: &View, now_s: i64, token: &str) -> Option<User> {
    let (id, secret) = parts_of_bootstrap_token(token)?;
    let found = view
        .get("secrets", &format!("kube-system/bootstrap-token-{id}"))
        .ok()??;
    let held: Secret = serde_json::from_slice(found.json().ok()?).ok()?;
    let text = |key: &str| {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(held.data.get(key)?)
            .ok()?;
        String::from_utf8(bytes).ok()
    };
    let is_it = text("token-secret")?.as_bytes().ct_eq(secret.as_bytes());
    if held.kind != BOOTSTRAP_TOKEN_TYPE || held.metadata.deletion.is_some() || !bool::from(is_it) {
        return None;
    }
    if text("token-id")? != id || text("usage-bootstrap-authentication")? != "true" {
        return None;
    }
    // One that cannot be read has passed.
    if held.data.contains_key("expiration") && text("expiration")?.parse::<jiff::Timestamp>().ok()?.as_second() <= now_s
    {
        return None;
    }
    let mut groups = vec![GROUP.to_owned()];
    let more = text("auth-extra-groups").unwrap_or_default();
    for group in more.split(',').map(str::trim).filter(|group| !group.is_empty()) {
        // One that is not of this family makes the token worthless: nobody becomes an administrator by it.
        if !is_group(group) {
            return None;
        }
        if !groups.iter().any(|known| known == group) {
            groups.push(group.to_owned());
        }
    }
    groups[1..].sort();
    Some(User::authenticated(format!("system:bootstrap:{id}"), "", groups))
}

/// Whether a group is one that a token may give: `system:bootstrappers:` and 1 to 256 of `a-z0-9:-`, not ending in `:` or `-`.
fn is_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else {
        return false;
    };
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    rest.len() <= 256
        && rest.bytes().all(|byte| known(byte) || byte == b':' || byte == b'-')
        && rest.bytes().last().is_some_and(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_its_form_and_gives_groups_of_its_family_only() {
        assert_eq!(
            parts_of_bootstrap_token("abcdef.0123456789abcdef"),
            Some(("abcdef", "0123456789abcdef"))
        );
        for wrong in ["abcdef.0123456789abcde", "ABCDEF.0123456789abcdef", "abcdef", "", "é.é"] {
            assert_eq!(parts_of_bootstrap_token(wrong), None, "{wrong}");
        }
        assert!(is_group("system:bootstrappers:kubeadm:default-node-token"));
        for wrong in [
            "system:masters",
            "system:bootstrappers:",
            "system:bootstrappers:a-",
            "system:bootstrappers:A",
        ] {
            assert!(!is_group(wrong), "{wrong}");
        }
    }
}
