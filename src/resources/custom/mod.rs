//! Custom resources: what CustomResourceDefinitions add to the resources that are served.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `registry` | which custom resources are served at this moment |

mod registry;

pub use registry::{Registry, Served};

use super::ResourceRef;

/// What a custom resource has in one version beyond what all resources have.
#[derive(Debug)]
pub struct Custom {
    /// The version that objects are stored in; `None` for that version itself.
    pub stored: Option<ResourceRef>,
}
