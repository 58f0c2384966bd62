//! Two ways to encrypt some bytes for one place, authenticated. What comes out says nothing of what went in but its length.
//!
//! AES-256-GCM must never see a nonce twice under one key, and random nonces of 96 bits are good for 2^32 uses of a key at most.
//! So the configured key encrypts nothing itself: each write draws a salt of 256 bits and takes a key of its own from it (HKDF
//! with SHA-256, RFC 5869), which is used once. XSalsa20 (secretbox) has nonces of 192 bits, which may be random.

use crypto_secretbox::XSalsa20Poly1305;
use crypto_secretbox::aead::{Aead as _, KeyInit as _};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::{digest, hkdf};
use subtle::ConstantTimeEq as _;
use zeroize::{Zeroize as _, Zeroizing};

/// Bytes of the salt before what AES-GCM encrypted.
const SALT_LEN: usize = 32;
/// Bytes of a secretbox nonce.
const BOX_NONCE_LEN: usize = 24;
/// Bytes of a SHA-256.
const DIGEST_LEN: usize = 32;
/// What keys are derived for.
const INFO: &[u8] = b"flatkube object AES-256-GCM v1";

/// Nothing could be encrypted or decrypted. Why is not told: it would help who guesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unspecified;

/// Random bytes for keys, salts and nonces.
pub(super) fn random<const N: usize>() -> Result<[u8; N], Unspecified> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Unspecified)?;
    Ok(bytes)
}

/// Encrypts under a key that is derived from `key` for this write: salt, ciphertext, tag. `place` is authenticated along.
pub(super) fn seal_gcm(key: &[u8], place: &[u8], plain: &[u8]) -> Result<Vec<u8>, Unspecified> {
    seal_gcm_with(key, random()?, place, plain)
}

fn seal_gcm_with(key: &[u8], salt: [u8; SALT_LEN], place: &[u8], plain: &[u8]) -> Result<Vec<u8>, Unspecified> {
    let mut sealed = Vec::with_capacity(SALT_LEN + plain.len() + AES_256_GCM.tag_len());
    sealed.extend_from_slice(&salt);
    sealed.extend_from_slice(plain);
    let (_, text) = sealed.split_at_mut(SALT_LEN);
    let tag = derived(key, &salt)?
        .seal_in_place_separate_tag(nonce(), Aad::from(place), text)
        .map_err(|_| Unspecified)?;
    sealed.extend_from_slice(tag.as_ref());
    Ok(sealed)
}

/// Decrypts what [`seal_gcm`] encrypted for the same place.
pub(super) fn open_gcm(key: &[u8], place: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Unspecified> {
    let (salt, text) = sealed.split_first_chunk::<SALT_LEN>().ok_or(Unspecified)?;
    let mut text = Zeroizing::new(text.to_vec());
    let plain = derived(key, salt)?
        .open_in_place(nonce(), Aad::from(place), &mut text)
        .map_err(|_| Unspecified)?;
    let len = plain.len();
    text.truncate(len);
    Ok(text)
}

/// The key of one write.
fn derived(key: &[u8], salt: &[u8; SALT_LEN]) -> Result<LessSafeKey, Unspecified> {
    let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(key);
    let expanded = extracted.expand(&[INFO], &AES_256_GCM).map_err(|_| Unspecified)?;
    Ok(LessSafeKey::new(UnboundKey::from(expanded)))
}

/// The nonce of a key that is used once.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

/// Encrypts as NaCl's secretbox: nonce, tag, ciphertext. It knows no data that are authenticated along, so what is encrypted
/// begins with a digest of the place.
pub(super) fn seal_box(key: &[u8; 32], place: &[u8], plain: &[u8]) -> Result<Vec<u8>, Unspecified> {
    let nonce: [u8; BOX_NONCE_LEN] = random()?;
    let mut whole = Zeroizing::new(Vec::with_capacity(DIGEST_LEN + plain.len()));
    whole.extend_from_slice(digest::digest(&digest::SHA256, place).as_ref());
    whole.extend_from_slice(plain);
    let text = boxed(key)
        .encrypt(&nonce.into(), whole.as_slice())
        .map_err(|_| Unspecified)?;
    Ok([nonce.as_slice(), &text].concat())
}

/// Decrypts what [`seal_box`] encrypted for the same place.
pub(super) fn open_box(key: &[u8; 32], place: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Unspecified> {
    let (nonce, text) = sealed.split_first_chunk::<BOX_NONCE_LEN>().ok_or(Unspecified)?;
    let whole = boxed(key).decrypt(nonce.into(), text).map_err(|_| Unspecified)?;
    let mut whole = Zeroizing::new(whole);
    let of_place = digest::digest(&digest::SHA256, place);
    let (found, plain) = whole.split_at_checked(DIGEST_LEN).ok_or(Unspecified)?;
    if !bool::from(found.ct_eq(of_place.as_ref())) {
        return Err(Unspecified);
    }
    let len = plain.len();
    whole.copy_within(DIGEST_LEN.., 0);
    // What is left behind the end by moving is the end of the plain text once more.
    if let Some(rest) = whole.get_mut(len..) {
        rest.zeroize();
    }
    whole.truncate(len);
    Ok(whole)
}

fn boxed(key: &[u8; 32]) -> XSalsa20Poly1305 {
    XSalsa20Poly1305::new(key.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    /// The vector of NaCl's own tests (`secretbox`).
    #[test]
    fn secretbox_is_that_of_nacl() {
        let key: [u8; 32] = bytes("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389")
            .try_into()
            .unwrap();
        let nonce: [u8; 24] = bytes("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37")
            .try_into()
            .unwrap();
        let plain = bytes(
            "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561f4\
             1db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde048977eb48f59ffd4924ca1c60902e52\
             f0a089bc76897040e082f937763848645e0705",
        );
        let expected = bytes(
            "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186ac0dfc17c98dce87b\
             4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae90224368517acfeabd6bb3732bc0e9da\
             99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5",
        );
        assert_eq!(boxed(&key).encrypt(&nonce.into(), plain.as_slice()).unwrap(), expected);
    }

    /// Reckoned with another implementation (OpenSSL): HKDF-SHA256 of the key with the salt, then AES-256-GCM with a nonce of zeros.
    #[test]
    fn a_write_has_a_key_of_its_own() {
        let key: Vec<u8> = (0..16).collect();
        let salt = std::array::from_fn(|index| 0xff - index as u8);
        let sealed = seal_gcm_with(&key, salt, b"secrets/default/a", b"plain").unwrap();
        assert_eq!(sealed[..SALT_LEN], salt);
        assert_eq!(sealed[SALT_LEN..], bytes("3e86d76e4b5d51ec9f58c24f9804151736a6a6609c"));
        assert_eq!(
            open_gcm(&key, b"secrets/default/a", &sealed).unwrap().as_slice(),
            b"plain"
        );
    }

    #[test]
    fn what_is_sealed_opens_with_its_key_at_its_place_and_whole_alone() {
        type Seal = fn(&[u8], &[u8], &[u8]) -> Result<Vec<u8>, Unspecified>;
        type Open = fn(&[u8], &[u8], &[u8]) -> Result<Zeroizing<Vec<u8>>, Unspecified>;
        let of_box: (Seal, Open) = (
            |key, place, plain| seal_box(key.try_into().unwrap(), place, plain),
            |key, place, sealed| open_box(key.try_into().unwrap(), place, sealed),
        );
        let gcm: (Seal, Open) = (seal_gcm, open_gcm);
        for (seal, open) in [of_box, gcm] {
            let (key, other) = ([7; 32], [8; 32]);
            for plain in [&b""[..], b"x", &[3; 5000]] {
                let sealed = seal(&key, b"a/b", plain).unwrap();
                assert_ne!(sealed, seal(&key, b"a/b", plain).unwrap(), "each write is another one");
                assert_eq!(open(&key, b"a/b", &sealed).unwrap().as_slice(), plain);
                assert_eq!(open(&key, b"a/c", &sealed), Err(Unspecified));
                assert_eq!(open(&other, b"a/b", &sealed), Err(Unspecified));
                for at in [0, sealed.len() / 2, sealed.len() - 1] {
                    let mut bent = sealed.clone();
                    bent[at] ^= 1;
                    assert_eq!(open(&key, b"a/b", &bent), Err(Unspecified), "at {at}");
                }
                for len in [0, 10, 31, sealed.len() - 1] {
                    assert_eq!(open(&key, b"a/b", &sealed[..len]), Err(Unspecified), "of length {len}");
                }
            }
        }
    }
}
