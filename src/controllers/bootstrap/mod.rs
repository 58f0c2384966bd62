//! Bootstrap tokens, by which machines join: what they sign, and when they go.
//!
//! Rules: <https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/>.

mod cleaner;
mod signer;

use base64::Engine as _;

pub(super) use cleaner::TokenCleaner;
pub(super) use signer::BootstrapSigner;

use crate::auth::BOOTSTRAP_TOKEN_TYPE;
use crate::store::{Damaged, Object, Requirement, Selection};
use crate::tree::Value;

const SECRETS: &str = "secrets";
/// The namespace of tokens.
const NAMESPACE: &str = "kube-system";
/// What names of their Secrets begin with.
const PREFIX: &str = "bootstrap-token-";

/// The Secrets that hold such tokens, of all namespaces.
fn tokens() -> Selection {
    Selection {
        requirements: vec![Requirement::FieldIs {
            name: "type".to_owned(),
            value: BOOTSTRAP_TOKEN_TYPE.to_owned(),
        }],
    }
}

/// Whether a Secret holds such a token.
fn is_token(secret: &Object) -> Result<bool, Damaged> {
    Ok(secret.namespace() == Some(NAMESPACE) && tokens().matches(secret)?)
}

/// A part of a Secret that is text; empty where it has none.
fn text(secret: &Value, part: &str) -> String {
    let data = secret["data"][part].as_str().unwrap_or("");
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(data)
        .unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// Seconds until a token ends; `None`: it never does. One whose end cannot be read has ended.
fn wait_s(secret: &Value, now_s: i64) -> Option<u64> {
    let ends = text(secret, "expiration");
    if ends.is_empty() && secret["data"]["expiration"].as_str().is_none_or(str::is_empty) {
        return None;
    }
    let ends_s = ends.parse().map_or(0, jiff::Timestamp::as_second);
    Some(u64::try_from(ends_s.saturating_sub(now_s)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    #[test]
    fn a_token_lasts_until_its_end_and_one_whose_end_cannot_be_read_has_ended() {
        let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let ending = |text: &str| json!({"data": {"expiration": encoded(text)}});
        assert_eq!(wait_s(&json!({"data": {}}), 5), None);
        assert_eq!(wait_s(&ending(""), 5), None);
        assert_eq!(wait_s(&ending("1970-01-01T00:00:10Z"), 5), Some(5));
        assert_eq!(wait_s(&ending("1970-01-01T01:00:10+01:00"), 5), Some(5));
        assert_eq!(wait_s(&ending("1970-01-01T00:00:10Z"), 10), Some(0));
        assert_eq!(wait_s(&ending("tomorrow"), 5), Some(0));
        assert_eq!(wait_s(&json!({"data": {"expiration": "#"}}), 5), Some(0));
    }
}
