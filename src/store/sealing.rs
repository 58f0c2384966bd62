//! Objects that lie on the disk encrypted.
//!
//! A writer's bytes are sealed in [`Store::write`], before they are queued; a reader's are opened when a view, a listing or a
//! follower hands an object out. Between the two, in the log, on shelves, in backups and in what the committer copies of a
//! previous version, there is the envelope alone. Who decides what is sealed, and holds the keys, is given to the store from
//! above ([`Options::sealing`]). Resources that it does not cover are read as if it did not exist: what asks about it is
//! one pointer a read, not one an object.
//!
//! The envelope is JSON as any stored object, with the revision in its place:
//!
//! `{"sealed":"BY:BASE64","metadata":{"name":…,"namespace":…,"resourceVersion":"42"}}`
//!
//! BY tells the key. What is encrypted is the splice point of the object's JSON (`u32`, little-endian) and its JSON with an empty
//! `resourceVersion`. The sidecar stays open, for it is what lists select by; what it holds of a sealed object stands in
//! `docs/encryption.md`. Its spans are those of the opened JSON.

use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flatkube_format::object::Prepared;
use flatkube_format::sidecar::{self, ArchivedSidecar, Pair, digits};
use flatkube_format::{FormatError, SEALED_HEAD, is_sealed};
use zeroize::{Zeroize, Zeroizing};

use super::error::{ArchiveError, Damaged, OpenError};
use super::listing::Range;
use super::log::RecordRef;
use super::object::{Object, name_of, namespace_of};
use super::selection::{Requirement, Selection};
use super::write::{Archiver, Change, Write};
use super::{Store, WriteError};

/// The field that sidecars of sealed objects have. It is not one that clients may select by: the store finds what is sealed by it.
const SEALED: (&str, &str) = ("flatkube.sealed", "set");
/// The field that tells by which key. As above.
const SEALED_BY: &str = "flatkube.sealed.by";
/// Most keys of one resource that are proven at the start.
const KEYS_MAX: usize = 10_000;

/// Seals and opens objects. Called from any thread; what it does takes the time of the request.
pub trait Sealing: Send + Sync {
    /// Whether objects of the resource may be sealed. It may come to cover more ([`Store::cover`]), never less.
    fn covers(&self, resource: &str) -> bool;
    /// Whether the Table row of the resource's objects tells no more than what stays open anyway.
    fn keeps_row(&self, resource: &str) -> bool;
    /// Encrypts an object for the place that it is to lie at; `None`: its resource is written as it is.
    fn seal(&self, place: Place<'_>, plain: &[u8]) -> Result<Option<Sealed>, SealError>;
    /// Decrypts what [`Sealing::seal`] made for the same place.
    fn open(&self, place: Place<'_>, by: &str, payload: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError>;
    /// Whether what this key sealed (`None`: what is not sealed) is to be written anew.
    fn is_stale(&self, resource: &str, by: Option<&str>) -> bool;
}

/// Where an object lies. Bound to what is encrypted, so that it opens nowhere else.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Storage resource.
    pub resource: &'a str,
    /// `namespace/name`, or `name`.
    pub key: &'a str,
}

/// What became of an object.
#[derive(Debug, Clone)]
pub struct Sealed {
    /// By which key; without `"`, `\` and control characters.
    pub by: String,
    /// The encrypted bytes.
    pub payload: Vec<u8>,
}

/// Why something cannot be sealed or opened. Holds nothing of what was to be.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct SealError(pub String);

/// The sealing of one resource.
pub(super) struct ResourceSealing {
    resource: Arc<str>,
    by: Arc<dyn Sealing>,
}

impl ResourceSealing {
    pub(super) fn of(by: &Arc<dyn Sealing>, resource: &str) -> Option<Arc<ResourceSealing>> {
        by.covers(resource).then(|| {
            Arc::new(ResourceSealing {
                resource: resource.into(),
                by: by.clone(),
            })
        })
    }

    /// Puts the envelope in place of what is to be written.
    pub(super) fn seal(&self, write: &mut Write) -> Result<(), WriteError> {
        let Write { key, change, .. } = write;
        let (Change::Put(prepared) | Change::Delete(prepared)) = change;
        let mut plain = Zeroizing::new(Vec::with_capacity(4 + prepared.json.len()));
        plain.extend_from_slice(&prepared.splice.to_le_bytes());
        plain.extend_from_slice(&prepared.json);
        let place = Place {
            resource: &self.resource,
            key,
        };
        let sealed = self
            .by
            .seal(place, &plain)
            .map_err(|error| WriteError::Sealing(format!("{} {key} cannot be encrypted: {error}", self.resource)))?;
        let Some(sealed) = sealed else { return Ok(()) };
        let sidecar = sealed_sidecar(&prepared.sidecar, &sealed.by, self.by.keeps_row(&self.resource));
        let sidecar = sidecar.map_err(|error| Damaged::of("a sidecar that was just made", &error))?;
        let (json, splice) = envelope(&sealed, key);
        prepared.json.zeroize();
        *prepared = Prepared { json, splice, sidecar };
        Ok(())
    }
}

/// The envelope with an empty `resourceVersion`, and where its digits go.
fn envelope(sealed: &Sealed, key: &str) -> (Vec<u8>, u32) {
    const METADATA: &[u8] = b"\",\"metadata\":{\"name\":";
    let mut json = Vec::with_capacity(sealed.payload.len() / 3 * 4 + sealed.by.len() + key.len() + 128);
    json.extend_from_slice(SEALED_HEAD);
    json.extend_from_slice(sealed.by.as_bytes());
    json.push(b':');
    json.extend_from_slice(STANDARD.encode(&sealed.payload).as_bytes());
    json.extend_from_slice(METADATA);
    quote(name_of(key), &mut json);
    if let Some(namespace) = namespace_of(key) {
        json.extend_from_slice(b",\"namespace\":");
        quote(namespace, &mut json);
    }
    json.extend_from_slice(b",\"resourceVersion\":\"");
    let splice = json.len() as u32;
    json.extend_from_slice(b"\"}}");
    (json, splice)
}

/// Appends a name as a string of JSON.
fn quote(name: &str, json: &mut Vec<u8>) {
    json.push(b'"');
    for character in name.chars() {
        match character {
            '"' | '\\' => json.extend([b'\\', character as u8]),
            '\0'..='\x1f' => json.extend_from_slice(format!("\\u{:04x}", u32::from(character)).as_bytes()),
            _ => json.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    json.push(b'"');
}

/// By which key an envelope was sealed, and the encrypted bytes.
fn unwrapped(json: &[u8]) -> Option<(&str, Vec<u8>)> {
    let rest = json.strip_prefix(SEALED_HEAD)?;
    let end = rest.iter().position(|&byte| byte == b'"')?;
    let (by, text) = std::str::from_utf8(rest.get(..end)?).ok()?.rsplit_once(':')?;
    Some((by, STANDARD.decode(text).ok()?))
}

/// The sidecar of an object once it is sealed: that of the open one, with the fields by which it is found, and perhaps
/// without a row.
fn sealed_sidecar(archive: &[u8], by: &str, keeps_row: bool) -> Result<Vec<u8>, FormatError> {
    let mut sidecar = sidecar::access(archive)?.to_sidecar()?;
    let pair = |name: &str, value: &str| Pair {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    sidecar
        .fields
        .retain(|field| field.name != SEALED.0 && field.name != SEALED_BY);
    sidecar.fields.push(pair(SEALED.0, SEALED.1));
    sidecar.fields.push(pair(SEALED_BY, by));
    sidecar.fields.sort_by(|a, b| a.name.cmp(&b.name));
    if !keeps_row {
        (sidecar.row, sidecar.holes) = (String::new(), Vec::new());
    }
    Ok(sidecar.archive())
}

/// An object that a reader has, of a resource whose objects may be sealed. Opened at the first look at its JSON, once; what was
/// opened is overwritten when the last handle goes.
pub(super) struct OpenedObject {
    pub(super) stored: Object,
    sealing: Arc<ResourceSealing>,
    opened: OnceLock<Result<Option<Bytes>, Damaged>>,
}

impl OpenedObject {
    pub(super) fn new(stored: Object, sealing: &Arc<ResourceSealing>) -> OpenedObject {
        OpenedObject {
            stored,
            sealing: sealing.clone(),
            opened: OnceLock::new(),
        }
    }

    /// The JSON that was sealed, with the revision in it; `None` if the object is not sealed.
    fn opened(&self) -> Result<Option<&Bytes>, Damaged> {
        let opened = self.opened.get_or_init(|| {
            let json = self.stored.json()?;
            if !is_sealed(json) {
                return Ok(None);
            }
            let plain = open(&*self.sealing.by, &self.sealing.resource, self.stored.key(), json);
            let plain = plain.and_then(|plain| spliced(&plain, self.stored.revision()));
            plain.map(|json| Some(Bytes::from_owner(json))).map_err(|error| {
                self.stored.damaged(
                    0,
                    format!(
                        "{} {} cannot be decrypted: {error}",
                        self.sealing.resource,
                        self.stored.key()
                    ),
                )
            })
        });
        match opened {
            Ok(json) => Ok(json.as_ref()),
            Err(damaged) => Err(damaged.clone()),
        }
    }
}

/// What [`Object`] asks of an object that may be sealed. Out of line: what is asked of all others is small enough to be inlined
/// only without these calls to itself.
impl OpenedObject {
    #[cold]
    pub(super) fn json(&self) -> Result<&[u8], Damaged> {
        match self.opened()? {
            Some(json) => Ok(json),
            None => self.stored.json(),
        }
    }

    #[cold]
    pub(super) fn json_bytes(&self) -> Result<Bytes, Damaged> {
        match self.opened()? {
            Some(json) => Ok(json.clone()),
            None => self.stored.json_bytes(),
        }
    }

    #[cold]
    pub(super) fn stored_json(&self) -> Result<&[u8], Damaged> {
        self.stored.json()
    }

    #[cold]
    pub(super) fn key_bytes(&self) -> &[u8] {
        self.stored.key_bytes()
    }

    #[cold]
    pub(super) fn revision(&self) -> u64 {
        self.stored.revision()
    }

    #[cold]
    pub(super) fn shape(&self) -> u32 {
        self.stored.shape()
    }

    #[cold]
    pub(super) fn is_shelved(&self) -> bool {
        self.stored.is_shelved()
    }

    #[cold]
    pub(super) fn record(&self) -> Option<RecordRef> {
        self.stored.record()
    }

    #[cold]
    pub(super) fn sidecar(&self) -> Result<&ArchivedSidecar, Damaged> {
        self.stored.sidecar()
    }

    #[cold]
    pub(super) fn sidecar_bytes(&self) -> Result<&[u8], Damaged> {
        self.stored.sidecar_bytes()
    }

    #[cold]
    pub(super) fn damaged(&self, offset: u64, reason: String) -> Damaged {
        self.stored.damaged(offset, reason)
    }
}

fn open(by: &dyn Sealing, resource: &str, key: &str, json: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
    let (name, payload) = unwrapped(json).ok_or_else(|| SealError("its envelope is malformed".to_owned()))?;
    by.open(Place { resource, key }, name, &payload)
}

/// The object's JSON from what was encrypted, with its revision.
fn spliced(plain: &[u8], revision: u64) -> Result<Zeroizing<Vec<u8>>, SealError> {
    let parts = plain
        .split_first_chunk()
        .and_then(|(splice, json)| json.split_at_checked(u32::from_le_bytes(*splice) as usize));
    let (before, behind) = parts.ok_or_else(|| SealError("what was encrypted is no object".to_owned()))?;
    let digits = digits(revision);
    let mut json = Vec::with_capacity(before.len() + digits.len() + behind.len());
    json.extend_from_slice(before);
    json.extend_from_slice(digits.as_bytes());
    json.extend_from_slice(behind);
    Ok(Zeroizing::new(json))
}

/// Opens one stored JSON, for tools that read files; `None` if it is not sealed.
///
/// # Errors
/// [`SealError`]: an unknown key, or bytes that were not sealed for this place by it.
pub fn opened(
    by: &dyn Sealing,
    place: Place<'_>,
    revision: u64,
    json: &[u8],
) -> Result<Option<Zeroizing<Vec<u8>>>, SealError> {
    if !is_sealed(json) {
        return Ok(None);
    }
    let plain = open(by, place.resource, place.key, json)?;
    spliced(&plain, revision).map(Some)
}

/// The sidecar of a sealed object made again.
pub(super) fn renewed(
    by: &dyn Sealing,
    archiver: &dyn Archiver,
    place: Place<'_>,
    revision: u64,
    json: &[u8],
) -> Result<Vec<u8>, ArchiveError> {
    let told = |error: &dyn std::fmt::Display| ArchiveError(error.to_string());
    let (name, payload) = unwrapped(json).ok_or_else(|| ArchiveError("its envelope is malformed".to_owned()))?;
    let plain = by.open(place, name, &payload).map_err(|error| told(&error))?;
    let open = spliced(&plain, revision).map_err(|error| told(&error))?;
    let sidecar = archiver.archive(place.resource, place.key, &open)?;
    sealed_sidecar(&sidecar, name, by.keeps_row(place.resource)).map_err(|error| told(&error))
}

impl Object {
    /// By which key the object is sealed; `None` if it is not.
    pub fn sealed_by(&self) -> Result<Option<&str>, Damaged> {
        Ok(self.sidecar()?.field(SEALED_BY))
    }
}

impl Store {
    /// Proves that everything that is sealed can be opened, before anything is served: one object for each key. Costs a look
    /// at the sidecars of sealed objects.
    ///
    /// # Errors
    /// [`OpenError::Sealed`] for a key that is missing or another one, and for sealed objects of a resource that nothing covers.
    pub fn prove_sealed(&self) -> Result<(), OpenError> {
        let view = self.view();
        let selection = Selection {
            requirements: vec![Requirement::FieldIs {
                name: SEALED.0.to_owned(),
                value: SEALED.1.to_owned(),
            }],
        };
        for resource in view.resources() {
            let mut proven: Vec<String> = Vec::new();
            let mut listing = view.list(resource, Range::default(), &selection);
            while let Some(run) = listing.next(256)? {
                for object in run.objects() {
                    let Some(by) = object.sealed_by()? else { continue };
                    if proven.len() >= KEYS_MAX || proven.iter().any(|known| known == by) {
                        continue;
                    }
                    let refused = |reason: String| OpenError::Sealed {
                        object: format!("{resource} {}", object.key()),
                        by: by.to_owned(),
                        reason,
                    };
                    if is_sealed(object.json().map_err(|damaged| refused(damaged.reason))?) {
                        return Err(refused("no --encryption-provider-config names its resource".to_owned()));
                    }
                    proven.push(by.to_owned());
                }
            }
        }
        Ok(())
    }

    /// Makes the newest view open what [`Sealing::covers`] says now. To be called after that came to cover more and before
    /// anything of it is sealed.
    pub fn cover(&self) {
        let mut working = self.engine.working();
        working.view.cover();
        working.publish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_says_whose_it_is_and_opens() {
        for key in ["default/a", "node-1", "kube-system/system:a\"b\\c\u{1}é"] {
            let sealed = Sealed {
                by: "k8s:enc:test:v1:key".to_owned(),
                payload: vec![0, 255, 7],
            };
            let (json, splice) = envelope(&sealed, key);
            let (before, behind) = json.split_at(splice as usize);
            let stored = [before, b"42", behind].concat();
            assert!(is_sealed(&stored));
            assert_eq!(unwrapped(&stored), Some(("k8s:enc:test:v1:key", vec![0, 255, 7])));
            let read: serde_json::Value = serde_json::from_slice(&stored).unwrap();
            let metadata = &read["metadata"];
            assert_eq!(metadata["resourceVersion"], "42");
            assert_eq!(metadata["name"], name_of(key));
            assert_eq!(metadata["namespace"].as_str(), namespace_of(key));
        }
    }

    #[test]
    fn envelopes_that_are_none_open_to_nothing() {
        for json in [
            &b""[..],
            b"{}",
            b"{\"sealed\":\"",
            b"{\"sealed\":\"a\"}",
            b"{\"sealed\":\"a:~\"}",
            b"{\"sealed\":\"\xff:AAAA\"}",
        ] {
            assert_eq!(unwrapped(json), None, "{json:?}");
        }
        assert_eq!(
            spliced(b"\x05\0\0\0abc", 1),
            Err(SealError("what was encrypted is no object".to_owned()))
        );
        assert!(spliced(b"\x01", 1).is_err());
        assert_eq!(spliced(b"\x02\0\0\0abc", 17).unwrap().as_slice(), b"ab17c");
    }
}
