//! Ways in for tests that attack what otherwise only a token or a file leads to (`fuzz/`). No part of the interface.

use super::jws::{PublicKey, Signed};
use super::oidc;
use super::signing::public_keys;

/// Parts of an input: a token, a key set, an AuthenticationConfiguration and a token's claims, a line each but for the claims.
///
/// # Panics
/// When a promise does not hold: that is what the fuzzer looks for.
pub fn tokens(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let mut lines = text.splitn(4, '\n');
    let mut line = || lines.next().unwrap_or("");
    let (token, keys, configuration, claims) = (line(), line(), line(), line());
    let keys = oidc::keys_of(keys.as_bytes()).unwrap_or_default();
    if let Some(signed) = Signed::parse(token) {
        for (_, key) in &keys {
            let is_it = signed.is_by(key);
            assert!(!is_it || !matches!(signed.algorithm.as_str(), "none" | "HS256" | "HS384" | "HS512"));
        }
    }
    for (_, key) in &keys {
        // What is written down is read as the same key, or, where its numbers can be none, not at all.
        if let Some(read) = PublicKey::of_spki(&key.spki()) {
            assert_eq!(read, *key);
        }
    }
    let _ = public_keys(text.as_bytes());
    oidc::attack(configuration.as_bytes(), claims.as_bytes());
}
