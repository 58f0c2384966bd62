//! Table cells as they are archived.

#![allow(
    missing_docs,
    reason = "rkyv's derive makes public helper types without docs for variants with named fields"
)]

use rkyv::{Archive, Deserialize, Serialize};

/// One Table cell. Cells that depend on the clock hold instants and are rendered when sent.
#[derive(Debug, Clone, PartialEq, Archive, Serialize, Deserialize)]
#[rkyv(derive(Debug))]
#[repr(u8)]
pub enum Cell {
    /// JSON `null`.
    Null,
    /// JSON `true` or `false`.
    Bool(bool),
    /// A JSON integer.
    Integer(i64),
    /// A JSON number with a fraction.
    Number(f64),
    /// A JSON string, not yet escaped.
    Text(String),
    /// Time since this Unix second, rendered as a short duration string.
    Age(i64),
    /// A string with an age in it, like `5 (3m ago)`.
    TextAge {
        /// Text before the age.
        before: String,
        /// Unix second from which the age counts.
        at: i64,
        /// Text behind the age.
        after: String,
    },
    /// Time between two Unix seconds, rendered as a short duration string.
    Duration {
        /// First second.
        start: i64,
        /// Last second; 0 means until now.
        end: i64,
    },
    /// The object's revision as a JSON string.
    Revision,
    /// JSON that is sent as it is.
    Json(String),
}
