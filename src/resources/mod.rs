//! What is particular to each Kubernetes kind: its declaration (names, verbs, subresources, Table columns, selectable
//! fields), how an object of it is prepared for a write (defaults, validation, strategy) and how it is encoded for the
//! store (compact JSON and sidecar).
//!
//! A kind is a declaration: facts are tables in `facts/*.tsv`; what must be computed is in one file a group.

mod admission;
mod admission_expressions;
pub mod allocation;
mod apps;
mod archiver;
mod autoscaling;
mod batch;
mod bootstrap;
mod canonical;
mod cell;
mod certificates;
mod convert;
mod core;
mod cron;
pub mod custom;
mod declaration;
mod definition_rules;
mod deletion;
mod devices;
pub mod duration;
mod edit;
mod encode;
mod error;
mod extension;
mod flowcontrol;
mod job_rules;
mod job_status_rules;
mod kind;
mod label_selector;
mod lookup;
mod metadata;
mod names;
mod networking;
mod networking_rules;
mod policy;
mod ratchet;
mod rbac;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod refused;
mod reviews;
mod row;
pub mod scale;
mod signing_request;
mod storage;
mod storage_rules;
mod strategy;
pub(crate) mod structural_rules;
pub mod table;
mod validate;
mod workload_rules;

pub use crate::scalars::quantity;
pub use archiver::KindArchiver;
pub use bootstrap::{bootstrap, bootstrap_rbac, own_api_service, own_endpoints};
pub use canonical::canonicalize;
pub use cell::Cell;
pub use certificates::{issued_until_s, requested_groups, set_requester, signing_request};
pub use convert::{from_stored, has_other_shape, to_stored};
pub use core::pods::host_ports::{HostPort, host_ports};
pub use core::pods::resources::{Amounts, PodAmounts, pod_amounts, quality_of_service};
pub use core::pods::tolerate_failing_nodes;
pub use cron::Schedule;
pub use declaration::{
    Column, NameRule, Resource, ResourceRef, Strategy, Subresource, SubresourceRef, all, find, stored,
};
pub use deletion::{DeleteRequest, Deletion, Propagation, is_gone, prepare_delete};
pub use encode::{DELETING, EncodeError, archive, archive_as, encode, layout};
pub use error::{FieldError, FieldReason, Refusal};
pub use kind::cells;
pub use label_selector::selects;
pub use lookup::{condition, time_s};
pub use metadata::dedup_owners;
pub use names::generate as generate_name;
pub use reviews::check_review;
pub use row::selector as selector_text;
pub use signing_request::{AlternativeNames, SigningRequest, common_name};
pub use strategy::{
    Begun, Context, begin_create, begin_update, complete, finish_create, finish_update, prepare_create,
    prepare_create_with, prepare_update, prepare_update_with, time_text,
};
