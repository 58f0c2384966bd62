//! Structural schemas of custom resources: what a version's `openAPIV3Schema` says, in a compact form of its own.
//!
//! [`Structural::compile`] reads the JSON of a schema into arenas: nodes of 32 bytes, runs of fields, checks, names, default
//! values. Parts that are equal are stored once (the shape of a Pod template occurs a dozen times in a big definition), so a
//! schema is a graph without cycles and a node knows nothing of where it stands. Titles and descriptions are not kept.
//!
//! Three things are done by it, as KEP-2332, KEP-1929 and the API's documentation of structural schemas have them:
//! [`Structural::prune`] drops what is not specified, [`Structural::fill`] puts in defaults, [`Structural::validate`] says what
//! is wrong. Objects are trees that share what they have in common; what needs no change is not copied.

mod arena;
mod checks;
mod compile;
mod correlate;
mod defaults;
mod embedded;
mod formats;
mod list_types;
mod numbers;
mod path;
mod prune;
mod validate;

#[cfg(test)]
mod examples;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use arena::{Additional, Kind, ListType, Node, Structural};
pub use compile::Unusable;
pub(crate) use formats::is_known as is_known_format;
pub(crate) use validate::Under;

/// Levels of a schema within each other.
pub(crate) const DEPTH_MAX: usize = 100;
/// Schemas in one schema, before equal ones are found to be.
pub(crate) const NODES_MAX: usize = 200_000;
/// Faults of one object that are told; the rest of it is not looked at.
pub(crate) const FAULTS_MAX: usize = 500;
/// Unknown fields of one object that are told; all are dropped.
pub(crate) const UNKNOWN_MAX: usize = 500;
/// Steps that checking one object may take: a schema at a value is one, so is matching 64 bytes of text.
/// Less than a second.
pub(crate) const STEPS_MAX: u64 = 5_000_000;
