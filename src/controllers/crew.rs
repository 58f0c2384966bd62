//! Makes and deletes the Pods of an owner, many at a time, and tells of each.

use tokio::task::JoinSet;

use super::event::{Level, Recorder};
use super::failure::{Failure, is_terminating};
use crate::api::status::Status;
use crate::api::{Client, Delete};
use crate::resources::ResourceRef;
use crate::tree::Value;

/// Deletions under way at a time.
const DELETIONS_MAX: usize = 32;

/// Whose Pods are made and deleted.
#[derive(Clone, Copy)]
pub(super) struct Crew<'a> {
    pub(super) client: &'a Client,
    pub(super) recorder: &'a Recorder,
    pub(super) pods: &'a ResourceRef,
    /// With its kind and apiVersion.
    pub(super) owner: &'a Value,
}

/// What came of it.
#[derive(Default)]
pub(super) struct Made {
    pub(super) pods: Vec<Value>,
    /// Why the rest was not made.
    pub(super) failed: Option<Failure>,
}

/// The same of deletions: the places of what is gone.
#[derive(Default)]
pub(super) struct Removed {
    pub(super) places: Vec<usize>,
    pub(super) failed: Option<Failure>,
}

/// A place, the name of the Pod there, and what came of deleting it.
type Deleted = (usize, String, Result<(), Status>);

impl Crew<'_> {
    /// Makes Pods in batches that double: if none can be made, because of a quota, say, it is asked for few. A namespace that is
    /// going is no failure: with it goes the owner.
    pub(super) async fn make(&self, pods: impl ExactSizeIterator<Item = Value>) -> Made {
        let namespace = self.owner["metadata"]["namespace"].as_str().unwrap_or("").to_owned();
        let mut made = Made::default();
        let (mut wanted, mut batch) = (pods, 1);
        while wanted.len() > 0 {
            let mut making = JoinSet::new();
            for pod in wanted.by_ref().take(batch) {
                let (client, resource, namespace) = (self.client.clone(), self.pods.clone(), namespace.clone());
                making.spawn(async move { client.create(&resource, Some(&namespace), pod).await });
            }
            batch *= 2;
            while let Some(one) = making.join_next().await {
                match one {
                    Ok(Ok(pod)) => {
                        let name = pod["metadata"]["name"].as_str().unwrap_or("");
                        self.tell(Level::Normal, "SuccessfulCreate", format!("Created pod: {name}"));
                        made.pods.push(pod);
                    }
                    Ok(Err(status)) if is_terminating(&status) => return made,
                    Ok(Err(status)) => {
                        self.tell(
                            Level::Warning,
                            "FailedCreate",
                            format!("Error creating: {}", status.message),
                        );
                        made.failed = Some(status.into());
                    }
                    Err(error) => made.failed = Some(error.into()),
                }
            }
            if made.failed.is_some() {
                break;
            }
        }
        made
    }

    /// Deletes the Pods at these places of `pods`. What is gone already is no failure.
    pub(super) async fn remove(&self, pods: &[Value], places: impl IntoIterator<Item = usize>) -> Removed {
        let mut removed = Removed::default();
        let mut deleting = JoinSet::new();
        for place in places {
            if deleting.len() >= DELETIONS_MAX {
                self.removed(deleting.join_next().await, &mut removed);
            }
            let text = |field: &str| pods[place]["metadata"][field].as_str().unwrap_or("").to_owned();
            let (name, key) = (text("name"), format!("{}/{}", text("namespace"), text("name")));
            let delete = Delete {
                uid: Some(text("uid")),
                ..Delete::default()
            };
            let (client, resource) = (self.client.clone(), self.pods.clone());
            deleting.spawn(async move { (place, name, client.delete(&resource, &key, &delete).await) });
        }
        while !deleting.is_empty() {
            self.removed(deleting.join_next().await, &mut removed);
        }
        removed.places.sort_unstable();
        removed
    }

    fn removed(&self, deleted: Option<Result<Deleted, tokio::task::JoinError>>, removed: &mut Removed) {
        match deleted {
            None => {}
            Some(Ok((place, name, Ok(())))) => {
                self.tell(Level::Normal, "SuccessfulDelete", format!("Deleted pod: {name}"));
                removed.places.push(place);
            }
            Some(Ok((place, _, Err(status)))) if status.code == 404 => removed.places.push(place),
            Some(Ok((_, _, Err(status)))) => {
                self.tell(
                    Level::Warning,
                    "FailedDelete",
                    format!("Error deleting: {}", status.message),
                );
                removed.failed = Some(status.into());
            }
            Some(Err(error)) => removed.failed = Some(error.into()),
        }
    }

    fn tell(&self, level: Level, reason: &'static str, message: String) {
        self.recorder.tell(self.owner, level, reason, message);
    }
}
