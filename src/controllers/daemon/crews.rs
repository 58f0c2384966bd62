//! Makes the Pods that nodes want, and deletes those that are too much.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::{BACKOFF_FIRST, BACKOFF_MAX, BURST, DaemonSets, Look, place};
use crate::controllers::crew::Crew;
use crate::controllers::event::Level;
use crate::controllers::failure::Failure;
use crate::controllers::pod;
use crate::tree::Value;

impl DaemonSets {
    /// Brings the Pods of all nodes to their number. Gives what failed, and when to look again at nodes whose Pods fail.
    pub(super) async fn man(&self, crew: &Crew<'_>, look: &mut Look<'_>) -> (Option<Failure>, Option<Duration>) {
        let surges = look.surge() > 0;
        let (mut wanting, mut surplus, mut next) = (Vec::new(), Vec::new(), None);
        for node in &look.nodes {
            let on = look.on(&node.name);
            if on.is_empty() {
                if node.runs {
                    wanting.push(node.name.clone());
                }
                continue;
            }
            let living = on.iter().copied().filter(|&place| !is_deleting(&look.pods[place]));
            if !node.stays {
                surplus.extend(living);
                continue;
            }
            let mut running = Vec::new();
            for place in living {
                let pod = &look.pods[place];
                let phase = pod["status"]["phase"].as_str().unwrap_or("");
                if phase == "Failed" {
                    if let Some(wait) = self.wait_after_failure(look.set, &node.name) {
                        next = next.into_iter().chain([wait]).min();
                        continue;
                    }
                    self.tell_over(look.set, pod, &node.name, Level::Warning, "FailedDaemonPod");
                    surplus.push(place);
                } else if phase == "Succeeded" {
                    self.tell_over(look.set, pod, &node.name, Level::Normal, "SucceededDaemonPod");
                    surplus.push(place);
                } else {
                    running.push(place);
                }
            }
            if running.len() <= 1 {
                if running.is_empty() && node.runs && surges {
                    wanting.push(node.name.clone());
                }
                continue;
            }
            // The oldest first.
            running.sort_by_key(|&place| {
                let metadata = &look.pods[place]["metadata"];
                let text = |field: &str| metadata[field].as_str().unwrap_or("").to_owned();
                (text("creationTimestamp"), text("name"))
            });
            if surges {
                surplus.extend(beyond_surge(look, &running));
            } else {
                surplus.extend(&running[1..]);
            }
        }
        // Pods for nodes that are gone, which never got there.
        for (name, places) in &look.by_node {
            if !look.nodes.iter().any(|node| node.name == *name) {
                let lost = |place: &usize| {
                    let pod = &look.pods[*place];
                    !is_deleting(pod) && pod["spec"]["nodeName"].as_str().unwrap_or("").is_empty()
                };
                surplus.extend(places.iter().copied().filter(lost));
            }
        }
        let failed = self.exchange(crew, look, wanting, surplus).await;
        (failed, next)
    }

    /// Makes a Pod on each of these nodes, and deletes the Pods at these places. `look` is what it is then.
    pub(super) async fn exchange(
        &self,
        crew: &Crew<'_>,
        look: &mut Look<'_>,
        mut wanting: Vec<String>,
        mut surplus: Vec<usize>,
    ) -> Option<Failure> {
        wanting.truncate(BURST);
        surplus.truncate(BURST);
        let (set, hash) = (look.set, look.hash.clone());
        let made = crew
            .make(wanting.iter().map(|node| place::pod_for(set, &hash, node)))
            .await;
        for pod in made.pods {
            if let Some(node) = place::node_of(&pod) {
                look.by_node.entry(node.to_owned()).or_default().push(look.pods.len());
            }
            look.pods.push(pod);
        }
        let removed = crew.remove(&look.pods, surplus).await;
        for place in removed.places {
            // Its place is not given to another one; it counts as one that is being deleted.
            look.pods[place]["metadata"]["deletionTimestamp"] = "now".into();
        }
        made.failed.or(removed.failed)
    }

    /// How long the failed Pod of a node has to wait for its successor; `None`: no longer.
    fn wait_after_failure(&self, set: &Value, node: &str) -> Option<Duration> {
        let now = Instant::now();
        let uid = set["metadata"]["uid"].as_str().unwrap_or("").to_owned();
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.retain(|_, (since, _)| now.duration_since(*since) < 2 * BACKOFF_MAX);
        match failed.get_mut(&(uid.clone(), node.to_owned())) {
            Some((since, wait)) => {
                let left = wait.saturating_sub(now.duration_since(*since));
                if !left.is_zero() {
                    return Some(left);
                }
                (*since, *wait) = (now, (*wait * 2).min(BACKOFF_MAX));
            }
            None => {
                failed.insert((uid, node.to_owned()), (now, BACKOFF_FIRST));
            }
        }
        None
    }

    fn tell_over(&self, set: &Value, pod: &Value, node: &str, level: Level, reason: &'static str) {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or("");
        let (what, will) = match level {
            Level::Warning => ("failed", "kill"),
            Level::Normal => ("succeeded", "delete"),
        };
        let message = format!(
            "Found {what} daemon pod {}/{} on node {node}, will try to {will} it",
            text("namespace"),
            text("name")
        );
        self.recorder.tell(set, level, reason, message);
    }
}

/// During a rollout with a surge a node may have two: the oldest of the former template while it is ready, and the oldest of the
/// present one until it is. What is beyond that goes.
fn beyond_surge(look: &Look<'_>, running: &[usize]) -> Vec<usize> {
    let oldest = |updated: bool| running.iter().copied().find(|&place| look.is_updated(place) == updated);
    let (new, old) = (oldest(true), oldest(false));
    let keeps_old = old.is_some_and(|old| pod::is_ready(&look.pods[old]));
    let keeps_new = new.is_some_and(|new| !keeps_old || !pod::is_ready(&look.pods[new]));
    running
        .iter()
        .copied()
        .filter(|&place| {
            let kept = Some(place) == new && (keeps_new || keeps_old)
                || Some(place) == old && (keeps_old && keeps_new || new.is_none());
            !kept
        })
        .collect()
}

pub(super) fn is_deleting(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}
