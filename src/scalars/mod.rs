//! Texts with a grammar of their own that several layers read: names, quantities.

pub(crate) mod names;
pub mod quantity;
