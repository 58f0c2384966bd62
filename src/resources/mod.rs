//! What is particular to each Kubernetes kind: its declaration (names, verbs, subresources, Table columns, selectable
//! fields), how an object of it is prepared for a write (defaults, validation, strategy) and how it is encoded for the
//! store (compact JSON and sidecar).
//!
//! A kind is a declaration: facts are tables in `facts/*.tsv`; what must be computed is in one file a group.

mod apps;
mod batch;
mod core;
mod declaration;
pub mod duration;
mod encode;
mod error;
mod extension;
mod kind;
mod lookup;
mod networking;
mod policy;
mod rbac;
mod row;
mod storage;
mod strategy;
pub mod table;

pub use declaration::{Column, Resource, Subresource, all, find, stored};
pub use encode::{EncodeError, archive, encode, layout};
pub use error::{FieldError, FieldReason, Refusal};
pub use strategy::{Context, prepare_create, prepare_update};
