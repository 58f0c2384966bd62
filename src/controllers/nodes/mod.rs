//! Nodes: whether they live, what keeps Pods off them, which addresses they have for Pods.
//!
//! | file | what it does |
//! | --- | --- |
//! | `lifecycle` | nodes that fall silent are unreachable; conditions become taints |
//! | `health`, `zones` | when each node was heard of last, and how much of its zone is well |
//! | `taints` | which taints a node's conditions ask for |
//! | `eviction` | Pods go from nodes with `NoExecute` taints that they do not tolerate |
//! | `ranges`, `numbering` | every node gets a range of addresses for its Pods |
//! | `ttl` | how long kubelets may go by what they know of Secrets and ConfigMaps |
//! | `collect` | Pods that nobody else would take away |

mod collect;
mod eviction;
mod health;
mod lifecycle;
mod numbering;
mod ranges;
mod taints;
mod ttl;
mod zones;

pub(super) use collect::run as collect_pods;
pub(super) use eviction::Evictions;
pub(super) use lifecycle::Lifecycle;
pub(super) use ranges::NodeRanges;
pub(super) use ttl::Ttl;

pub use numbering::{ClusterRange, ClusterRangeError};

use std::sync::Arc;

use super::failure::Failure;
use crate::store::{Object, Range, Requirement, Selection, View};

const NODES: &str = "nodes";
const PODS: &str = "pods";

/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 256;

/// Keys of the Pods on a node.
fn pods_on(view: &Arc<View>, node: &str) -> Result<Vec<Arc<str>>, Failure> {
    let on_node = Selection {
        requirements: vec![Requirement::FieldIs {
            name: "spec.nodeName".to_owned(),
            value: node.to_owned(),
        }],
    };
    let mut listing = view.list(PODS, Range::default(), &on_node);
    let mut keys = Vec::new();
    while let Some(run) = listing.next(RUN_MAX)? {
        keys.extend(run.objects().map(|pod| pod.key().into()));
    }
    Ok(keys)
}

/// Whether an object's text has this in it.
fn mentions(object: &Object, text: &str) -> Result<bool, Failure> {
    Ok(std::str::from_utf8(object.json()?).is_ok_and(|json| json.contains(text)))
}
