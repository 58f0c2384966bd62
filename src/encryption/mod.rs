//! Encryption at rest: which resources' objects lie on the disk encrypted, and by which keys.
//!
//! The store asks a [`Keyring`] to seal what is written and to open what is read; `docs/encryption.md` says what an operator
//! needs to know. Keys come from a file (`config`) or are given by a plugin (`kms`); what they do with bytes is in
//! `cipher`. When the file or a plugin's key changes, everything that another key sealed is written anew (`rewrite`).

mod cipher;
mod config;
mod kms;
mod provider;
mod rewrite;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use ring::digest::{self, Digest};
use zeroize::Zeroizing;

use crate::store::{Place, SealError, Sealed, Sealing, Store};
use config::{Config, Pattern};
use provider::Provider;

pub use config::ConfigError;
pub use rewrite::Upkeep;

/// Resources whose Table rows hold names, counts and ages alone.
const ROWS_KEPT: [&str; 2] = ["secrets", "configmaps"];

/// The keys that are in use.
pub struct Keyring {
    path: PathBuf,
    ring: ArcSwap<Ring>,
    /// What any file since the start has named.
    covered: ArcSwap<Vec<Pattern>>,
}

/// What one state of the file says.
struct Ring {
    config: Config,
    /// For each rule of the file.
    providers: Vec<Vec<Provider>>,
    /// Of the file's text.
    digest: Digest,
}

impl Ring {
    fn read(path: &Path) -> Result<Ring, ConfigError> {
        let (config, text) = Config::read(path)?;
        let digest = digest::digest(&digest::SHA256, text.as_bytes());
        let providers = config.rules.iter();
        let providers = providers.map(|rule| rule.providers.iter().map(Provider::of).collect());
        let providers = providers.collect::<Result<_, String>>().map_err(|reason| ConfigError {
            path: path.to_owned(),
            reason,
        });
        Ok(Ring {
            providers: providers?,
            config,
            digest,
        })
    }

    fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        self.config.rules.iter().flat_map(|rule| &rule.resources)
    }

    /// The provider that writes objects of a resource.
    fn writer(&self, resource: &str) -> Option<&Provider> {
        self.providers.get(self.config.rule(resource)?)?.first()
    }

    /// All providers, those of the resource first.
    fn readers(&self, resource: &str) -> impl Iterator<Item = &Provider> {
        let own = self.config.rule(resource);
        let others = (0..self.providers.len()).filter(move |&rule| Some(rule) != own);
        own.into_iter()
            .chain(others)
            .filter_map(|rule| self.providers.get(rule))
            .flatten()
    }
}

impl Keyring {
    /// From a file.
    ///
    /// # Errors
    /// [`ConfigError`] with the first thing in the file that is wrong.
    pub fn read(path: &Path) -> Result<Arc<Keyring>, ConfigError> {
        let ring = Ring::read(path)?;
        let covered = ring.patterns().cloned().collect();
        Ok(Arc::new(Keyring {
            path: path.to_owned(),
            ring: ArcSwap::from_pointee(ring),
            covered: ArcSwap::from_pointee(covered),
        }))
    }

    /// Reads the file again, and takes what it says now, if it says something else and everything that is stored can be opened
    /// with it. Whether that is so. Reads the sidecars of sealed objects.
    ///
    /// # Errors
    /// What is wrong; the keys stay as they were.
    pub fn refresh(&self, store: &Store) -> Result<bool, String> {
        let ring = Ring::read(&self.path).map_err(|error| error.to_string())?;
        let before = self.ring.load_full();
        if ring.digest.as_ref() == before.digest.as_ref() {
            return Ok(false);
        }
        let mut covered = Vec::clone(&self.covered.load());
        covered.extend(ring.patterns().cloned());
        covered.sort_unstable();
        covered.dedup();
        // Readers open what is sealed before the first object is.
        self.covered.store(Arc::new(covered));
        store.cover();
        self.ring.store(Arc::new(ring));
        if let Err(error) = store.prove_sealed() {
            self.ring.store(before);
            return Err(format!("{}: {error}; the keys stay as they were", self.path.display()));
        }
        Ok(true)
    }
}

impl Keyring {
    /// Asks the plugins for their status; whether the key of one of them is another one, so that objects are to be written anew.
    /// Blocks for their answers. What is wrong is logged; seeds that were given before go on being used.
    fn look(&self) -> bool {
        let ring = self.ring.load_full();
        let mut changed = false;
        for provider in ring.providers.iter().flatten() {
            match provider.look() {
                Ok(is_other) => changed |= is_other,
                Err(reason) => tracing::error!("{reason}"),
            }
        }
        changed
    }
}

impl Sealing for Keyring {
    fn covers(&self, resource: &str) -> bool {
        self.covered.load().iter().any(|pattern| pattern.matches(resource))
    }

    fn keeps_row(&self, resource: &str) -> bool {
        ROWS_KEPT.contains(&resource)
    }

    fn seal(&self, place: Place<'_>, plain: &[u8]) -> Result<Option<Sealed>, SealError> {
        let ring = self.ring.load();
        match ring.writer(place.resource) {
            Some(writer) => writer.seal(&text(place), plain),
            None => Ok(None),
        }
    }

    fn open(&self, place: Place<'_>, by: &str, payload: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        metrics::counter!("flatkube_converted_reads_total", "reason" => "sealed").increment(1);
        let ring = self.ring.load();
        let text = text(place);
        let mut opened = ring
            .readers(place.resource)
            .filter_map(|provider| provider.open(by, &text, payload));
        let mut failed = None;
        loop {
            match opened.next() {
                Some(Ok(plain)) => return Ok(plain),
                Some(Err(error)) => failed = Some(error),
                None => break,
            }
        }
        Err(failed.unwrap_or_else(|| SealError("the encryption configuration has no such key".to_owned())))
    }

    fn is_stale(&self, resource: &str, by: Option<&str>) -> bool {
        match self.ring.load().writer(resource) {
            Some(writer) => !writer.is_current(by),
            None => by.is_some(),
        }
    }
}

/// What is authenticated along with an object: no two places have the same.
fn text(place: Place<'_>) -> Vec<u8> {
    [place.resource, "/", place.key].concat().into_bytes()
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyring({})", self.path.display())
    }
}
