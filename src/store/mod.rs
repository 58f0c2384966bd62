//! The storage engine: log, shelves, views, history. It knows bytes, keys, revisions and sidecars, nothing of kinds or HTTP.

mod error;
mod listing;
mod object;
mod selection;
mod tree;
mod view;

pub use error::Damaged;
pub use listing::{Listing, Range, Run, ShelvedRun};
pub use object::Object;
pub use selection::{Requirement, Selection};
pub use view::View;
