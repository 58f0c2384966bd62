//! Texts with a grammar of their own that several layers read: names, quantities, durations, time zones.

pub(crate) mod go_duration;
pub(crate) mod names;
pub mod quantity;
pub(crate) mod zone;
