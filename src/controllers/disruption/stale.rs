//! Takes back what Pods say of a disruption that came to nothing.

use std::time::Duration;

use super::PODS;
use crate::api::Client;
use crate::controllers::claim::gone_is_fine;
use crate::controllers::failure::Failure;
use crate::controllers::metadata::is_same;
use crate::controllers::pod::{is_over, seconds};
use crate::controllers::queue::Done;
use crate::controllers::runtime::Controller;
use crate::resources::{self, ResourceRef, condition, time_text};
use crate::store::{Damaged, Object, Requirement, Selection};
use crate::tree::{Value, json};

const DISRUPTION: &str = "DisruptionTarget";
/// How long a Pod that was to be disrupted may stay, seconds.
const STALE_AFTER_S: i64 = 2 * 60;

pub(in crate::controllers) struct StaleDisruptions {
    client: Client,
    pods: ResourceRef,
}

impl StaleDisruptions {
    /// `None` if there is no such kind.
    pub(in crate::controllers) fn new(client: Client) -> Option<Self> {
        let pods = resources::stored(PODS)?.into();
        Some(Self { client, pods })
    }
}

/// Since when a Pod says, Unix seconds, that it is being disrupted, though it is not going. What a kubelet says may take its time.
fn said_since(pod: &Value) -> Option<i64> {
    if is_over(pod) || !pod["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let said = condition(pod, DISRUPTION)
        .filter(|said| said["status"] == "True" && said["reason"] != "TerminationByKubelet")?;
    Some(seconds(&said["lastTransitionTime"]).unwrap_or(0))
}

fn taken_back(pod: &Value, now_s: i64) -> Value {
    let mut new = pod.clone();
    let conditions = new["status"]["conditions"].as_array_mut();
    for condition in conditions.into_iter().flat_map(|list| list.iter_mut()) {
        if condition["type"] == DISRUPTION {
            *condition = json!({"type": DISRUPTION, "status": "False", "lastTransitionTime": time_text(now_s)});
        }
    }
    new
}

impl Controller for StaleDisruptions {
    fn resource(&self) -> &'static str {
        PODS
    }

    /// None: all Pods would have to be read. One that says so is looked at when it is written next.
    fn begins_with(&self) -> Selection {
        Selection {
            requirements: vec![Requirement::OwnedBy(String::new())],
        }
    }

    fn is_about(&self, pod: &Object) -> Result<bool, Damaged> {
        let json = std::str::from_utf8(pod.json()?).unwrap_or("");
        Ok(json.contains(DISRUPTION))
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let Some(object) = self.client.store().view().get(PODS, key)? else {
            return Ok(Done::Settled);
        };
        let pod = self.client.read(&self.pods, &object)?;
        let Some(since_s) = said_since(&pod) else {
            return Ok(Done::Settled);
        };
        let now_s = jiff::Timestamp::now().as_second();
        let wait_s = since_s + STALE_AFTER_S - now_s;
        if wait_s > 0 {
            return Ok(Done::After(Duration::from_secs(wait_s.unsigned_abs())));
        }
        let edit = |old: &Value| (is_same(old, &pod) && said_since(old).is_some()).then(|| taken_back(old, now_s));
        gone_is_fine(self.client.change(&self.pods, Some("status"), key, edit).await)?;
        Ok(Done::Settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_to_nothing_is_taken_back() {
        let pod = |reason: &str| {
            json!({"metadata": {"name": "p"}, "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": DISRUPTION, "status": "True", "reason": reason, "lastTransitionTime": "1970-01-01T00:01:00Z"}]}})
        };
        let evicted = pod("EvictionByEvictionAPI");
        assert_eq!(said_since(&evicted), Some(60));
        assert_eq!(said_since(&pod("TerminationByKubelet")), None);
        let mut going = evicted.clone();
        going["metadata"]["deletionTimestamp"] = "1970-01-01T00:01:00Z".into();
        assert_eq!(said_since(&going), None);
        let back = taken_back(&evicted, 300);
        assert_eq!(said_since(&back), None);
        assert_eq!(back["status"]["conditions"][0]["type"], "Ready");
        assert_eq!(back["status"]["conditions"][1]["status"], "False");
    }
}
