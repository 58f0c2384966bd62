//! Continue tokens: where the next page of a list begins, and in which revision.
//!
//! A token is the base64 (URL-safe, no padding) of
//!
//! | bytes | content |
//! | --- | --- |
//! | 1 | version of this layout, 1 |
//! | 8 | revision, little-endian; 0 = "whatever is current", which a 410 answer offers |
//! | 16 | the first half of HMAC-SHA256 over the storage resource, a zero byte, and all other bytes of the token |
//! | rest | key of the last object already sent, UTF-8 |
//!
//! Clients treat tokens as opaque; the HMAC keeps them from becoming a way to read from arbitrary positions, and tokens of
//! one resource from being used on another. Its key lies in the data directory, so tokens survive a restart.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use subtle::ConstantTimeEq as _;

const VERSION: u8 = 1;
const MAC_LEN: usize = 16;
const HEAD_LEN: usize = 1 + 8 + MAC_LEN;
/// Keys are two DNS names at most; a longer token is not ours.
const TOKEN_LEN_MAX: usize = 2048;

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::api) struct Position {
    /// The revision that all pages show; `None` goes on in the current one (an inconsistent list).
    pub(in crate::api) revision: Option<u64>,
    /// Key of the last object of the page before.
    pub(in crate::api) after: String,
}

impl Position {
    /// The token for `resource` (storage name).
    pub(in crate::api) fn to_token(&self, secret: &[u8; 32], resource: &str) -> String {
        let revision = self.revision.unwrap_or(0).to_le_bytes();
        let mac = authenticate(secret, resource, revision, &self.after);
        let mut bytes = Vec::with_capacity(HEAD_LEN + self.after.len());
        bytes.push(VERSION);
        bytes.extend_from_slice(&revision);
        bytes.extend_from_slice(&mac);
        bytes.extend_from_slice(self.after.as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads a token of `resource`; `None` for anything that this server did not issue for it.
    pub(in crate::api) fn from_token(token: &str, secret: &[u8; 32], resource: &str) -> Option<Self> {
        if token.len() > TOKEN_LEN_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (head, after) = bytes.split_at_checked(HEAD_LEN)?;
        let after = std::str::from_utf8(after).ok()?;
        let revision: [u8; 8] = head[1..9].try_into().ok()?;
        let mac = authenticate(secret, resource, revision, after);
        let genuine: bool = mac.ct_eq(&head[9..]).into();
        if head[0] != VERSION || !genuine {
            return None;
        }
        let revision = u64::from_le_bytes(revision);
        Some(Self {
            revision: (revision != 0).then_some(revision),
            after: after.to_owned(),
        })
    }
}

fn authenticate(secret: &[u8; 32], resource: &str, revision: [u8; 8], after: &str) -> [u8; MAC_LEN] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut context = hmac::Context::with_key(&key);
    context.update(resource.as_bytes());
    context.update(&[0, VERSION]);
    context.update(&revision);
    context.update(after.as_bytes());
    let mut mac = [0; MAC_LEN];
    mac.copy_from_slice(&context.sign().as_ref()[..MAC_LEN]);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    fn position() -> Position {
        Position {
            revision: Some(42),
            after: "default/a".into(),
        }
    }

    #[test]
    fn a_token_leads_back_to_its_position() {
        let current = Position {
            revision: None,
            ..position()
        };
        for position in [position(), current] {
            let token = position.to_token(&SECRET, "pods");
            assert_eq!(Position::from_token(&token, &SECRET, "pods"), Some(position));
        }
    }

    #[test]
    fn a_token_is_refused_when_any_bit_differs_or_it_belongs_elsewhere() {
        let token = position().to_token(&SECRET, "pods");
        assert_eq!(Position::from_token(&token, &SECRET, "secrets"), None);
        assert_eq!(Position::from_token(&token, &[8; 32], "pods"), None);
        let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let changed = URL_SAFE_NO_PAD.encode(changed);
            assert_eq!(Position::from_token(&changed, &SECRET, "pods"), None, "bit {bit}");
        }
        for text in ["", "x", "AAAA", "not base64!", &"A".repeat(5000)] {
            assert_eq!(Position::from_token(text, &SECRET, "pods"), None);
        }
    }
}
