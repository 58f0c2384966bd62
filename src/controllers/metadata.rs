//! The part of an object's metadata that controllers go by, read without the rest of the object.

use serde::Deserialize;

use super::failure::Failure;
use crate::resources::DELETING;
use crate::store::{Damaged, Object};
use crate::tree::{Value, json};

/// What of `metadata` decides about owners and deletion. Costs a parse of the metadata alone.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) uid: String,
    pub(super) deletion_timestamp: Option<String>,
    pub(super) finalizers: Vec<String>,
    pub(super) owner_references: Vec<Owner>,
}

/// One entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Owner {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) controller: Option<bool>,
    pub(super) block_owner_deletion: Option<bool>,
}

impl Metadata {
    pub(super) fn of(object: &Object) -> Result<Self, Failure> {
        serde_json::from_slice(object.metadata()?).map_err(|error| Failure::Metadata(object.key().to_owned(), error))
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub(super) fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|other| other == finalizer)
    }

    /// The owner that controls the object.
    pub(super) fn controller(&self) -> Option<&Owner> {
        self.owner_references
            .iter()
            .find(|owner| owner.controller == Some(true))
    }
}

/// The name of an object.
pub(super) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or("")
}

/// The key of an object that lies in a namespace.
pub(super) fn key_of(object: &Value) -> String {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("");
    format!("{namespace}/{}", name_of(object))
}

/// Whether two states are of one object, and not of two that had the same name.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    one["metadata"]["uid"] == other["metadata"]["uid"]
}

/// Whether an object is being deleted, by its sidecar.
pub(super) fn is_deleting(object: &Object) -> Result<bool, Damaged> {
    Ok(object.sidecar()?.field(DELETING.0).is_some())
}

/// The entry of `metadata.ownerReferences` that makes `owner` the controller of what it stands in. `owner` has its kind and
/// apiVersion.
pub(super) fn controller_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"].as_str(),
        "kind": owner["kind"].as_str(),
        "name": owner["metadata"]["name"].as_str(),
        "uid": owner["metadata"]["uid"].as_str(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
