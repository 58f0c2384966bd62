//! What YAML in a request may cost: one document, no larger by aliases than a request may be.

use serde_saphyr::{DuplicateKeyPolicy, Error, Options};

/// Nodes that aliases may stand for. Go's parser takes a few hundred thousand before it counts their share; nothing that people
/// write has a tenth of this.
const REPLAYED_MAX: usize = 100_000;
/// Text that aliases may stand for, beyond that of the document, bytes: as much as the largest request has.
const TEXT_MAX: usize = 3 << 20;
/// Nesting beyond this is refused: each level takes the parser tens of KiB of stack in a build without optimisation.
const DEPTH_MAX: usize = 64;

/// How a document of so many bytes is read. What it may cost grows with its length and not with what it says of itself.
pub fn yaml_options(length: usize, duplicates: DuplicateKeyPolicy) -> Options {
    serde_saphyr::options! {
        duplicate_keys: duplicates,
        with_snippet: false,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: REPLAYED_MAX },
        budget: serde_saphyr::budget! {
            // A node is a byte at least, and has two events at most.
            max_nodes: length + REPLAYED_MAX,
            max_events: 2 * (length + REPLAYED_MAX) + 16,
            max_total_scalar_bytes: length + TEXT_MAX,
            max_recorded_anchor_bytes: length + TEXT_MAX,
            max_depth: DEPTH_MAX,
            // How often an anchor is named is no matter, what comes of it is.
            enforce_alias_anchor_ratio: false,
        },
    }
}

/// The parser's text of what is wrong. What costs too much is told as Go's parser tells it.
pub fn yaml_fault(error: &Error) -> String {
    let text = error.to_string();
    if text.contains("alias replay limit exceeded") || text.contains("budget breached: ScalarBytes") {
        return "yaml: document contains excessive aliasing".to_owned();
    }
    text
}
