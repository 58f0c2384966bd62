//! Objects as trees while they are written: JSON values that share what they have in common.
//!
//! A [`Value`] is what `serde_json::Value` is, with three differences that pay in the way of a write:
//!
//! - lists, maps and texts are counted references, copied only when one that is shared is changed. A copy of an object costs
//!   nothing, and of two states of an object one can see at a glance which parts are the same ([`Value::shares`]);
//! - the keys of a map are a sorted array, and names that the schema knows are not copied at all ([`Key`]);
//! - text that is JSON already can be a part of a tree ([`Value::Raw`]) and is written as it is.

mod key;
mod list;
mod map;
mod serde_impl;
mod text;
mod value;

pub use key::Key;
pub use list::List;
pub use map::{Entry, Map};
pub(crate) use text::write_escaped;
pub use text::write_text;
pub use value::{Text, Value, text_of};

/// A [`Value`] written as JSON, as `serde_json::json!` does it.
macro_rules! json {
    ($($json:tt)+) => {
        $crate::tree::Value::from(::serde_json::json!($($json)+))
    };
}
pub(crate) use json;
