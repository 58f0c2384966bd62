//! Makes and deletes Pods until there are as many as are asked for.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::Replicas;
use crate::controllers::crew::Crew;
use crate::controllers::failure::Failure;
use crate::controllers::pod;
use crate::tree::Value;

/// Pods that one look makes or deletes at most.
const BURST: usize = 500;

/// What went wrong, and in which direction.
pub(super) struct ScaleFailure {
    /// `FailedCreate`, `FailedDelete`.
    pub(super) reason: &'static str,
    pub(super) why: Failure,
}

impl Replicas {
    /// Brings the number of active Pods to what `spec.replicas` says, and `pods` up to date.
    pub(super) async fn scale(&self, set: &Value, pods: &mut Vec<Value>, now_s: i64) -> Option<ScaleFailure> {
        let wanted = usize::try_from(set["spec"]["replicas"].as_i64().unwrap_or(1)).unwrap_or(0);
        let active = pods.iter().filter(|pod| pod::is_active(pod)).count();
        match active.cmp(&wanted) {
            Ordering::Less => self.make(set, pods, (wanted - active).min(BURST)).await,
            Ordering::Greater => self.remove(set, pods, (active - wanted).min(BURST), now_s).await,
            Ordering::Equal => None,
        }
    }

    fn crew<'a>(&'a self, set: &'a Value) -> Crew<'a> {
        Crew {
            client: &self.client,
            recorder: &self.recorder,
            pods: &self.pods,
            owner: set,
        }
    }

    async fn make(&self, set: &Value, pods: &mut Vec<Value>, count: usize) -> Option<ScaleFailure> {
        let template = pod::of_template(&set["spec"]["template"], set);
        let made = self.crew(set).make(std::iter::repeat_n(template, count)).await;
        pods.extend(made.pods);
        made.failed.map(|why| ScaleFailure {
            reason: "FailedCreate",
            why,
        })
    }

    /// Deletes those that are missed least.
    async fn remove(&self, set: &Value, pods: &mut Vec<Value>, count: usize, now_s: i64) -> Option<ScaleFailure> {
        let mut on_nodes: HashMap<String, usize> = HashMap::new();
        let node = |pod: &Value| pod["spec"]["nodeName"].as_str().unwrap_or("").to_owned();
        for pod in pods.iter().filter(|pod| pod::is_active(pod)) {
            *on_nodes.entry(node(pod)).or_default() += 1;
        }
        let mut candidates: Vec<usize> = (0..pods.len()).filter(|&at| pod::is_active(&pods[at])).collect();
        candidates.sort_by_cached_key(|&at| {
            let on_node = on_nodes.get(&node(&pods[at])).copied().unwrap_or(0);
            pod::deletion_order(&pods[at], on_node, now_s)
        });
        candidates.truncate(count);
        let removed = self.crew(set).remove(pods, candidates).await;
        for at in removed.places.into_iter().rev() {
            pods.swap_remove(at);
        }
        removed.failed.map(|why| ScaleFailure {
            reason: "FailedDelete",
            why,
        })
    }
}
