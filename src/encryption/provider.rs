//! What a provider of the file does with an object.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::cipher;
use super::config::{Key, ProviderConfig};
use super::kms::Kms;
use crate::store::{SealError, Sealed};

/// One way to write objects, and the ways to read what it wrote.
pub(super) enum Provider {
    /// As they are.
    Identity,
    /// With keys of the file: the first one writes.
    Keys(Vec<NamedKey>),
    /// With seeds that a plugin encrypts.
    Kms(Arc<Kms>),
}

/// A key as stored objects name it.
pub(super) struct NamedKey {
    /// `k8s:enc:aesgcm:v1:NAME`
    by: String,
    cipher: Cipher,
    secret: Zeroizing<Vec<u8>>,
}

#[derive(Clone, Copy)]
enum Cipher {
    AesGcm,
    Secretbox,
}

impl Provider {
    /// # Errors
    /// Why a plugin cannot be used. Blocks until it has answered.
    pub(super) fn of(config: &ProviderConfig) -> Result<Provider, String> {
        Ok(match config {
            ProviderConfig::Identity => Provider::Identity,
            ProviderConfig::AesGcm(keys) => Provider::of_keys(Cipher::AesGcm, "aesgcm", keys),
            ProviderConfig::Secretbox(keys) => Provider::of_keys(Cipher::Secretbox, "secretbox", keys),
            ProviderConfig::Kms(plugin) => Provider::Kms(Kms::start(plugin)?),
        })
    }

    fn of_keys(cipher: Cipher, name: &str, keys: &[Key]) -> Provider {
        let key = |key: &Key| NamedKey {
            by: format!("k8s:enc:{name}:v1:{}", key.name),
            cipher,
            secret: key.secret.clone(),
        };
        Provider::Keys(keys.iter().map(key).collect())
    }

    /// Encrypts for a place; `None` for the identity.
    pub(super) fn seal(&self, place: &[u8], plain: &[u8]) -> Result<Option<Sealed>, SealError> {
        match self {
            Provider::Identity => Ok(None),
            Provider::Keys(keys) => match keys.first() {
                Some(key) => key.seal(place, plain).map(Some),
                None => Err(SealError("there is no key".to_owned())),
            },
            Provider::Kms(kms) => kms.seal(place, plain).map(Some),
        }
    }

    /// Decrypts what the key `by` encrypted; `None` if this is not its provider.
    pub(super) fn open(&self, by: &str, place: &[u8], payload: &[u8]) -> Option<Result<Zeroizing<Vec<u8>>, SealError>> {
        match self {
            Provider::Identity => None,
            Provider::Keys(keys) => Some(keys.iter().find(|key| key.by == by)?.open(place, payload)),
            Provider::Kms(kms) => kms.open(by, place, payload),
        }
    }

    /// Whether this provider would write again what lies there.
    pub(super) fn is_current(&self, by: Option<&str>) -> bool {
        match self {
            Provider::Identity => by.is_none(),
            Provider::Keys(keys) => by.is_some() && keys.first().map(|key| key.by.as_str()) == by,
            Provider::Kms(kms) => kms.is_current(by),
        }
    }

    /// Asks a plugin whether its key is another one; no other provider's changes by itself.
    pub(super) fn look(&self) -> Result<bool, String> {
        match self {
            Provider::Identity | Provider::Keys(_) => Ok(false),
            Provider::Kms(kms) => kms.look(),
        }
    }
}

impl NamedKey {
    fn seal(&self, place: &[u8], plain: &[u8]) -> Result<Sealed, SealError> {
        let payload = match self.cipher {
            Cipher::AesGcm => cipher::seal_gcm(&self.secret, place, plain),
            Cipher::Secretbox => cipher::seal_box(self.box_key()?, place, plain),
        };
        let payload = payload.map_err(|_| SealError("the system has no random numbers".to_owned()))?;
        Ok(Sealed {
            by: self.by.clone(),
            payload,
        })
    }

    fn open(&self, place: &[u8], payload: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let plain = match self.cipher {
            Cipher::AesGcm => cipher::open_gcm(&self.secret, place, payload),
            Cipher::Secretbox => cipher::open_box(self.box_key()?, place, payload),
        };
        plain.map_err(|_| {
            SealError("the key of that name does not open it: it is another key, or the bytes were changed".to_owned())
        })
    }

    fn box_key(&self) -> Result<&[u8; 32], SealError> {
        let key = self.secret.as_slice().try_into();
        key.map_err(|_| SealError("the key has another length".to_owned()))
    }
}
