//! Custom resources: what CustomResourceDefinitions add to the resources that are served.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `registry` | which custom resources are served at this moment |
//! | `definition` | what a definition becomes |
//! | `naming` | whether a definition's names are free, and its conditions |
//! | `path` | the JSONPaths of columns, selectable fields and scales |
//! | `object` | what a write does to a custom object |
//! | `cells` | rows and selectable fields of custom objects |

mod cells;
mod definition;
mod naming;
mod object;
mod path;
mod registry;

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub use cells::{Cells, Source};
pub(crate) use definition::VERBS_ENDING;
pub use definition::{Definition, FINALIZER, Life, Version, compile, is_ending, is_true};
pub use naming::{Known, ending, judge, set_condition};
pub(crate) use object::along;
pub use object::{is_of_another_version, refresh, settle, show, store, validate};
pub use path::{Path, PathError};
pub use registry::{Registry, Resources, Served};

use super::ResourceRef;
use crate::schema::structural::Structural;
use crate::tree::Value;

/// What a custom resource has in one version beyond what all resources have.
#[derive(Debug)]
pub struct Custom {
    /// The version that objects are stored in; `None` for that version itself.
    pub stored: Option<ResourceRef>,
    /// All versions of its kind, served or not. Shared by them.
    pub versions: Arc<[VersionSchema]>,
    /// Kind of its lists.
    pub list_kind: String,
    /// The schema of its objects; `None` when it cannot be compiled: everything is kept then.
    pub schema: Option<Arc<Structural>>,
    /// How stored objects are shown in this version.
    pub reads: Reads,
    /// What its rows and its objects' selectable fields are made of.
    pub cells: Cells,
    /// The webhook that converts objects from version to version (`spec.conversion.webhook`); `None`: they differ in name only.
    pub conversion: Option<Arc<Value>>,
    /// Whether objects may be stored in other versions than the one that is stored now.
    pub mixed: bool,
    /// Where the `scale` subresource finds its values; `None` without one.
    pub scale: Option<ScalePaths>,
    /// Whether the definition is being deleted.
    pub terminating: bool,
    /// The definition that it was made of: uid and generation.
    pub fingerprint: String,
    /// Whether the definition has changed since. Watches end then, for they would go on to show objects as it asked for.
    pub overtaken: Arc<AtomicBool>,
    /// Room for figures about its requests.
    pub figures: Figures,
    /// Creations pass it; it is closed before the objects of a definition are deleted.
    pub gate: Arc<Gate>,
}

/// A version of a kind.
#[derive(Debug)]
pub struct VersionSchema {
    /// `example.com/v1`.
    pub api_version: String,
    /// The schema of its objects; `None` when it cannot be compiled.
    pub schema: Option<Arc<Structural>>,
}

/// How stored objects are shown.
#[derive(Debug, Clone, Default)]
pub struct Reads {
    /// Objects up to this revision may lack defaults, or have fields, that the schema of today would have given or taken. 0: none.
    /// Shared by the versions of a definition.
    pub settled_after: Arc<AtomicU64>,
    /// Whether this version has another schema than the one that is stored, so that all objects go through it.
    pub by_schema: bool,
}

impl Reads {
    /// Whether an object of that revision is shown as it is stored, its head apart.
    pub fn as_stored(&self, revision: u64) -> bool {
        !self.by_schema && revision > self.settled_after.load(Ordering::Relaxed)
    }

    /// Whether all objects are.
    pub fn all_as_stored(&self) -> bool {
        self.as_stored(1)
    }
}

/// What those above keep about a resource as long as it lives; what it is, they alone know.
#[derive(Default)]
pub struct Figures(pub OnceLock<Box<dyn Any + Send + Sync>>);

impl std::fmt::Debug for Figures {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Figures")
    }
}

/// The fields of a scale, by the names that lead to them from the object's root.
#[derive(Debug, Clone)]
pub struct ScalePaths {
    /// `spec.replicas` of the Scale.
    pub spec: Vec<String>,
    /// `status.replicas`.
    pub status: Vec<String>,
    /// `status.selector`.
    pub selector: Option<Vec<String>>,
}

/// What creations of a resource's objects pass. Once it is closed, none is under way and none begins.
#[derive(Debug, Default)]
pub struct Gate {
    closed: tokio::sync::RwLock<bool>,
}

/// A creation that is under way.
#[derive(Debug)]
pub struct Passing<'a> {
    _guard: tokio::sync::RwLockReadGuard<'a, bool>,
}

impl Gate {
    /// Lets a creation through, which must be over before the gate can close; `None` when it is closed.
    pub async fn pass(&self) -> Option<Passing<'_>> {
        let guard = self.closed.read().await;
        (!*guard).then_some(Passing { _guard: guard })
    }

    /// Closes it, once all creations that are under way are over.
    pub async fn close(&self) {
        *self.closed.write().await = true;
    }
}
