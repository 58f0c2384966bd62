//! One object: a handle on its bytes in a mapped file.

use std::fmt;

use bytes::Bytes;
use flatkube_format::sidecar::ArchivedSidecar;

use super::error::Damaged;

/// An object at one revision. Keeps the mapped file alive that its bytes lie in; cloning costs one reference count.
#[derive(Clone)]
pub struct Object {}

impl Object {
    /// `namespace/name`, or `name` for objects without a namespace.
    pub fn key(&self) -> &str {
        todo!()
    }

    /// The namespace, if the object has one.
    pub fn namespace(&self) -> Option<&str> {
        namespace_of(self.key())
    }

    /// The name.
    pub fn name(&self) -> &str {
        name_of(self.key())
    }

    /// Revision of the write that made this version.
    pub fn revision(&self) -> u64 {
        todo!()
    }

    /// Generation of the schema under which the object was stored.
    pub fn shape(&self) -> u32 {
        todo!()
    }

    /// The stored JSON, with the revision in it. Shelved bytes are checked at first touch.
    pub fn json(&self) -> Result<&[u8], Damaged> {
        todo!()
    }

    /// The stored JSON as a slice that keeps its map alive.
    pub fn json_bytes(&self) -> Result<Bytes, Damaged> {
        todo!()
    }

    /// The stored JSON before and behind the digits of its `resourceVersion`.
    pub fn json_around_revision(&self) -> Result<(&[u8], &[u8]), Damaged> {
        todo!()
    }

    /// The value of `metadata`, braces included.
    pub fn metadata(&self) -> Result<&[u8], Damaged> {
        todo!()
    }

    /// What was archived beside the JSON, checked on every call (some hundred nanoseconds): keep the reference.
    pub fn sidecar(&self) -> Result<&ArchivedSidecar, Damaged> {
        todo!()
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} @ {})", self.key(), self.revision())
    }
}

/// The part of a key before the `/`.
pub(super) fn namespace_of(key: &str) -> Option<&str> {
    key.split_once('/').map(|(namespace, _)| namespace)
}

/// The part of a key behind the `/`, or all of it.
pub(super) fn name_of(key: &str) -> &str {
    key.split_once('/').map_or(key, |(_, name)| name)
}
