//! What a writer says and is told.

use std::sync::Arc;

use flatkube_format::object::Prepared;
use flatkube_format::shelf::RowFrame;

use super::error::ArchiveError;
use super::object::Object;

/// One write of one object. It is made whole or not at all.
#[derive(Debug, Clone)]
pub struct Write {
    /// Storage resource: `pods`, `deployments.apps`.
    pub resource: Arc<str>,
    /// `namespace/name`, or `name` for objects without a namespace.
    pub key: String,
    /// What must hold at the moment of the write. Checked against everything that was accepted before it.
    pub precondition: Precondition,
    /// If set, the present object must also have this UID.
    pub uid: Option<String>,
    /// What to do.
    pub change: Change,
}

/// What must hold of the key at the moment of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// There is no object.
    Absent,
    /// There is an object, and it is at this revision.
    Revision(u64),
    /// There is an object.
    Exists,
    /// Nothing.
    Any,
}

/// What a write does.
#[derive(Debug, Clone)]
pub enum Change {
    /// Creates or replaces the object.
    Put(Prepared),
    /// Deletes the object, which must exist whatever the precondition says (`Conflict { current: None }` otherwise).
    /// The prepared bytes are its final state; the deletion's revision is spliced into them.
    Delete(Prepared),
}

impl Change {
    pub(super) fn prepared(&self) -> &Prepared {
        match self {
            Change::Put(prepared) | Change::Delete(prepared) => prepared,
        }
    }
}

/// A write that was made.
#[derive(Debug, Clone)]
pub struct Written {
    /// Its revision.
    pub revision: u64,
    /// The object as written; of a deletion, its final state.
    pub object: Object,
}

/// What happened to an object, in the log's words: selections do not matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was not there before.
    Created,
    /// It was there before.
    Updated,
    /// It is gone.
    Deleted,
}

/// One write as a follower sees it.
#[derive(Debug, Clone)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The write's revision.
    pub revision: u64,
    /// The object after the write; of a deletion, its final state with the deletion's revision in it.
    pub object: Object,
    /// The object before the write, with the revision it had then; `None` for a creation.
    pub previous: Option<Object>,
}

/// Makes sidecars from stored JSON. Given to the store from above, which alone knows kinds; used when the column layout
/// of a resource changed. Called from any thread.
pub trait Archiver: Send + Sync {
    /// Number of the column layout in which sidecars of `resource` are made now.
    fn layout(&self, resource: &str) -> u32;
    /// The archived sidecar of an object from its stored JSON.
    fn archive(&self, resource: &str, key: &str, json: &[u8]) -> Result<Vec<u8>, ArchiveError>;
    /// Whether stored JSON is whole and says of itself that it is the object `key` at `revision`: for repair, where no index can be
    /// believed. An archiver that cannot tell says no.
    fn is_object(&self, key: &str, revision: u64, json: &[u8]) -> bool {
        let _ = (key, revision, json);
        false
    }
    /// What Table rows of `resource` have around the object's metadata on shelves; without it shelves get no rows.
    fn row_frame(&self, resource: &str) -> Option<RowFrame> {
        let _ = resource;
        None
    }
}
