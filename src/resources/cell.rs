//! One cell of a Table row, as kinds make it at write time.

/// One Table cell. What depends on the clock is an instant: it becomes a hole in the archived row, filled when the row is sent.
#[derive(Debug, Clone, PartialEq)]
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
    /// The row's `conditions`, a JSON array that is sent as it is: no column, it comes behind them.
    Json(String),
}
