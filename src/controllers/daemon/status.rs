//! What a DaemonSet tells of its Pods.

use std::time::Duration;

use super::{DaemonSets, Look};
use crate::controllers::claim::gone_is_fine;
use crate::controllers::failure::Failure;
use crate::controllers::metadata::is_same;
use crate::controllers::pod;
use crate::tree::{Value, json};

impl DaemonSets {
    /// Writes the status if it says something new. Gives the time until a Pod that is ready will count as available.
    pub(super) async fn tell_status(
        &self,
        key: &str,
        look: &Look<'_>,
        collisions: i64,
    ) -> Result<Option<Duration>, Failure> {
        let counts = counts(look);
        let edit = |old: &Value| {
            if !is_same(old, look.set) {
                return None;
            }
            let mut new = old.clone();
            if !new["status"].is_object() {
                new["status"] = json!({});
            }
            for (field, count, is_always_told) in counts {
                match new["status"].as_object_mut() {
                    Some(fields) if count == 0 && !is_always_told => drop(fields.remove(field)),
                    _ => new["status"][field] = count.into(),
                }
            }
            if collisions > 0 {
                new["status"]["collisionCount"] = collisions.into();
            }
            new["status"]["observedGeneration"] = look.set["metadata"]["generation"].clone();
            (new["status"] != old["status"]).then_some(new)
        };
        gone_is_fine(self.client.change(&self.resource, Some("status"), key, edit).await)?;
        let min_ready_s = look.min_ready_s();
        let waits = |place: usize| pod::is_ready(&look.pods[place]) && !look.is_available(place);
        let is_waiting = (0..look.pods.len()).any(waits);
        Ok(is_waiting.then(|| Duration::from_secs(u64::try_from(min_ready_s).unwrap_or(1).max(1))))
    }
}

/// Field, count, and whether it is told when it is none.
fn counts(look: &Look<'_>) -> [(&'static str, i64, bool); 7] {
    let (mut desired, mut current, mut misscheduled, mut ready, mut available, mut updated) = (0, 0, 0, 0, 0, 0);
    for node in &look.nodes {
        // The oldest one counts.
        let oldest = look.on(&node.name).iter().copied().min_by_key(|&place| {
            let metadata = &look.pods[place]["metadata"];
            let text = |field: &str| metadata[field].as_str().unwrap_or("").to_owned();
            (text("creationTimestamp"), text("name"))
        });
        desired += i64::from(node.runs);
        let Some(place) = oldest else { continue };
        if !node.runs {
            misscheduled += 1;
            continue;
        }
        current += 1;
        updated += i64::from(look.is_updated(place));
        ready += i64::from(pod::is_ready(&look.pods[place]));
        available += i64::from(look.is_available(place));
    }
    [
        ("currentNumberScheduled", current, true),
        ("numberMisscheduled", misscheduled, true),
        ("desiredNumberScheduled", desired, true),
        ("numberReady", ready, true),
        ("updatedNumberScheduled", updated, false),
        ("numberAvailable", available, false),
        ("numberUnavailable", desired - available, false),
    ]
}
