//! The read path: get, list and watch, answered from sidecars and slices.
//!
//! Nothing here parses stored JSON, and nothing here knows `serde_json::Value`: a body is made of mapped bytes and a few
//! constant strings.

mod chunks;
mod fields;
mod gzip;
mod labels;
mod options;
mod quote;
pub mod stall;
mod token;
