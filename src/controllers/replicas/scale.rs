//! Makes and deletes Pods until there are as many as are asked for.

use std::cmp::Ordering;
use std::collections::HashMap;

use tokio::task::JoinSet;

use super::Replicas;
use crate::api::Delete;
use crate::controllers::event::Level;
use crate::controllers::failure::{Failure, is_terminating};
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

    /// Makes Pods in batches that double: if none can be made, because of a quota, say, it is asked for few.
    async fn make(&self, set: &Value, pods: &mut Vec<Value>, count: usize) -> Option<ScaleFailure> {
        let template = pod::of_template(&set["spec"]["template"], set);
        let namespace = set["metadata"]["namespace"].as_str().unwrap_or("").to_owned();
        let (mut left, mut batch) = (count, 1);
        while left > 0 {
            let mut making = JoinSet::new();
            for _ in 0..batch.min(left) {
                let (client, resource) = (self.client.clone(), self.pods.clone());
                let (namespace, template) = (namespace.clone(), template.clone());
                making.spawn(async move { client.create(&resource, Some(&namespace), template).await });
            }
            left -= batch.min(left);
            batch *= 2;
            let mut failed = None;
            while let Some(made) = making.join_next().await {
                match made {
                    Ok(Ok(pod)) => {
                        let name = pod["metadata"]["name"].as_str().unwrap_or("");
                        self.recorder
                            .tell(set, Level::Normal, "SuccessfulCreate", format!("Created pod: {name}"));
                        pods.push(pod);
                    }
                    // With the namespace goes the set.
                    Ok(Err(status)) if is_terminating(&status) => return None,
                    Ok(Err(status)) => {
                        let text = format!("Error creating: {}", status.message);
                        self.recorder.tell(set, Level::Warning, "FailedCreate", text);
                        failed = Some(Failure::from(status));
                    }
                    Err(error) => failed = Some(error.into()),
                }
            }
            if let Some(why) = failed {
                let reason = "FailedCreate";
                return Some(ScaleFailure { reason, why });
            }
        }
        None
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
        let mut deleting = JoinSet::new();
        for at in candidates {
            let text = |field: &str| pods[at]["metadata"][field].as_str().unwrap_or("").to_owned();
            let (name, key) = (text("name"), format!("{}/{}", text("namespace"), text("name")));
            let delete = Delete {
                uid: Some(text("uid")),
                ..Delete::default()
            };
            let (client, resource) = (self.client.clone(), self.pods.clone());
            deleting.spawn(async move { (at, name, client.delete(&resource, &key, &delete).await) });
        }
        let (mut gone, mut failed) = (Vec::new(), None);
        while let Some(deleted) = deleting.join_next().await {
            match deleted {
                Ok((at, name, Ok(()))) => {
                    self.recorder
                        .tell(set, Level::Normal, "SuccessfulDelete", format!("Deleted pod: {name}"));
                    gone.push(at);
                }
                Ok((at, _, Err(status))) if status.code == 404 => gone.push(at),
                Ok((_, _, Err(status))) => {
                    let text = format!("Error deleting: {}", status.message);
                    self.recorder.tell(set, Level::Warning, "FailedDelete", text);
                    failed = Some(Failure::from(status));
                }
                Err(error) => failed = Some(error.into()),
            }
        }
        gone.sort_unstable();
        for at in gone.into_iter().rev() {
            pods.swap_remove(at);
        }
        failed.map(|why| ScaleFailure {
            reason: "FailedDelete",
            why,
        })
    }
}
