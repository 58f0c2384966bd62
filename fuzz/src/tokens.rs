//! Tokens of others, keys that prove them, and what says whom they stand for.

/// A token, a key set, an AuthenticationConfiguration and claims, a line each: no key proves what is signed by nothing or by a
/// secret, a key is written as it was read, a configuration is refused or makes the same user of the same claims twice.
pub fn tokens(input: &[u8]) {
    flatkube::auth::attack::tokens(input);
}
