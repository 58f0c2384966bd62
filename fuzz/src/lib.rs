//! What attacks flatkube: one function a target, from any bytes to a panic if a promise is broken.
//!
//! `fuzz_targets/` wraps each for libFuzzer; `tests/fuzz_corpora.rs` of the main workspace includes this file and runs the
//! same functions over the seeds on stable Rust. Nothing here needs libFuzzer. What each target promises stands in
//! `docs/fuzzing.md`.

mod applies;
mod directory;
mod expressions;
mod files;
mod input;
mod json_tree;
mod objects;
mod patches;
mod scalars;
mod schemas;
mod selectors;
mod served;
mod tokens;
mod written;

/// The readers and sealers that `format`'s own property tests use, too.
#[path = "../../format/tests/properties/exercise.rs"]
mod exercise;

pub use applies::apply;
pub use directory::{data_directory, directory_seed};
pub use expressions::cel;
pub use files::{manifest, record, segment, shelf, sidecar};
pub use json_tree::{tree, tree_changes};
pub use objects::{body, protobuf, row, stored_object};
pub use patches::{json_patch, merge_patch, strategic_patch};
pub use scalars::scalars;
pub use schemas::structural;
pub use selectors::{continue_token, field_selector, label_selector};
pub use served::{connection, request};
pub use tokens::tokens;

/// A target: its name, which is also that of its folder of seeds, and what it runs.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, those that read what comes from outside first.
pub const TARGETS: &[Target] = &[
    ("data_directory", data_directory),
    ("connection", connection),
    ("request", request),
    ("body", body),
    ("strategic_patch", strategic_patch),
    ("json_patch", json_patch),
    ("merge_patch", merge_patch),
    ("apply", apply),
    ("protobuf", protobuf),
    ("label_selector", label_selector),
    ("field_selector", field_selector),
    ("continue_token", continue_token),
    ("tree", tree),
    ("tree_changes", tree_changes),
    ("scalars", scalars),
    ("structural", structural),
    ("cel", cel),
    ("tokens", tokens),
    ("row", row),
    ("stored_object", stored_object),
    ("sidecar", sidecar),
    ("record", record),
    ("segment", segment),
    ("shelf", shelf),
    ("manifest", manifest),
];
