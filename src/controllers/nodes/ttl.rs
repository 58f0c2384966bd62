//! How long kubelets may go by what they know of Secrets and ConfigMaps: the longer the more nodes there are.

use std::sync::Mutex;
use std::sync::PoisonError;

use super::NODES;
use crate::api::Client;
use crate::controllers::claim::gone_is_fine;
use crate::controllers::failure::Failure;
use crate::controllers::queue::Done;
use crate::controllers::runtime::Controller;
use crate::resources::{self, ResourceRef};
use crate::store::{Damaged, Object};
use crate::tree::Value;

const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// From and up to so many nodes, so many seconds; sizes overlap, so that a cluster at an edge does not go back and forth. (Of
/// kube-controller-manager's TTL controller.)
const STEPS: [(u64, u64, u32); 6] = [
    (0, 100, 0),
    (90, 500, 15),
    (450, 1000, 30),
    (900, 2000, 60),
    (1800, 10_000, 300),
    (9000, u64::MAX, 600),
];

pub(in crate::controllers) struct Ttl {
    client: Client,
    nodes: ResourceRef,
    step: Mutex<usize>,
}

impl Ttl {
    /// `None` if there are no nodes.
    pub(in crate::controllers) fn new(client: Client) -> Option<Self> {
        Some(Self {
            client,
            nodes: resources::stored(NODES)?.into(),
            step: Mutex::default(),
        })
    }

    fn seconds(&self) -> u32 {
        let count = self.client.store().view().count(NODES, None);
        let mut step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        *step = step_of(*step, count);
        STEPS[*step].2
    }
}

/// The place in [`STEPS`] for so many nodes, coming from another one.
fn step_of(mut step: usize, count: u64) -> usize {
    while count > STEPS[step].1 {
        step += 1;
    }
    while count < STEPS[step].0 {
        step -= 1;
    }
    step
}

impl Controller for Ttl {
    fn resource(&self) -> &'static str {
        NODES
    }

    fn is_about(&self, node: &Object) -> Result<bool, Damaged> {
        let wanted = format!("\"{ANNOTATION}\":\"{}\"", self.seconds());
        Ok(!std::str::from_utf8(node.json()?).is_ok_and(|json| json.contains(&wanted)))
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let wanted = self.seconds().to_string();
        let edit = |old: &Value| {
            if old["metadata"]["annotations"][ANNOTATION] == *wanted {
                return None;
            }
            let mut new = old.clone();
            new["metadata"]["annotations"][ANNOTATION] = wanted.as_str().into();
            Some(new)
        };
        gone_is_fine(self.client.change(&self.nodes, None, key, edit).await)?;
        Ok(Done::Settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_grow_with_nodes_and_edges_are_wide() {
        let seconds = |from, count| STEPS[step_of(from, count)].2;
        assert_eq!((seconds(0, 100), seconds(0, 101), seconds(1, 95)), (0, 15, 15));
        assert_eq!(
            (seconds(1, 89), seconds(0, 5000), seconds(5, 9000), seconds(5, 0)),
            (0, 300, 600, 0)
        );
    }
}
