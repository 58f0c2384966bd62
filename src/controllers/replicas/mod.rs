//! ReplicaSets and replication controllers: as many Pods of a template as are asked for.
//!
//! | file | what it does |
//! | --- | --- |
//! | `claim` | which Pods are its own; takes in those that have nobody, lets go those that it does not select |
//! | `scale` | makes and deletes Pods until there are enough |
//! | `status` | tells how many there are, and what went wrong |

mod claim;
mod scale;
mod status;

use std::sync::Arc;
use std::time::Duration;

use super::event::Recorder;
use super::failure::Failure;
use super::metadata::Metadata;
use super::queue::Done;
use super::runtime::{Change, Controller};
use super::selector;
use crate::api::Client;
use crate::resources::{self, ResourceRef};
use crate::store::{Object, Range, Selection, View};
use crate::tree::Value;

/// Which of the two kinds it is; they differ in names and in the form of their selectors.
#[derive(Debug)]
pub(super) struct Kind {
    /// Name in the store.
    pub(super) storage: &'static str,
    /// `apps`, or the empty group.
    group: &'static str,
    kind: &'static str,
    /// Of a `LabelSelector`, or a map of labels.
    selection: fn(&Value) -> Option<Selection>,
}

pub(super) const REPLICA_SETS: Kind = Kind {
    storage: "replicasets.apps",
    group: "apps",
    kind: "ReplicaSet",
    selection: selector::selection,
};

pub(super) const REPLICATION_CONTROLLERS: Kind = Kind {
    storage: "replicationcontrollers",
    group: "",
    kind: "ReplicationController",
    selection: selector::selection_of_labels,
};

const PODS: &str = "pods";

/// The controller of one of the two kinds.
pub(super) struct Replicas {
    client: Client,
    recorder: Recorder,
    kind: &'static Kind,
    resource: ResourceRef,
    pods: ResourceRef,
}

impl Replicas {
    /// `None` if there is no such kind.
    pub(super) fn new(client: Client, recorder: Recorder, kind: &'static Kind) -> Option<Self> {
        Some(Self {
            client,
            recorder,
            kind,
            resource: resources::stored(kind.storage)?.into(),
            pods: resources::stored(PODS)?.into(),
        })
    }

    /// The key of the set that controls a Pod.
    fn controller_of(&self, pod: &Object) -> Result<Option<Arc<str>>, Failure> {
        if pod.sidecar()?.owners.is_empty() {
            return Ok(None);
        }
        let metadata = Metadata::of(pod)?;
        let owner = metadata.controller().filter(|owner| {
            let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
            owner.kind == self.kind.kind && group == self.kind.group
        });
        Ok(owner
            .zip(pod.namespace())
            .map(|(owner, namespace)| format!("{namespace}/{}", owner.name).into()))
    }

    /// The keys of the sets that would take a Pod in which nobody controls.
    fn takers(&self, pod: &Object, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        let range = Range {
            namespace: pod.namespace().map(str::to_owned),
            after: None,
        };
        let mut listing = view.list(self.kind.storage, range, &Selection::all());
        let mut keys = Vec::new();
        while let Some(run) = listing.next(64)? {
            for set in run.objects() {
                let tree = self.client.read(&self.resource, &set)?;
                let selection = (self.kind.selection)(&tree["spec"]["selector"]);
                if selection.is_some_and(|selection| selection.matches(pod).is_ok_and(|matches| matches)) {
                    keys.push(set.key().into());
                }
            }
        }
        Ok(keys)
    }
}

impl Controller for Replicas {
    fn resource(&self) -> &'static str {
        self.kind.storage
    }

    fn watches(&self) -> &'static [&'static str] {
        &[PODS]
    }

    fn concerned(&self, change: &Change<'_>, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        let now = self.controller_of(change.object)?;
        let before = change
            .previous
            .map(|pod| self.controller_of(pod))
            .transpose()?
            .flatten();
        let mut keys: Vec<Arc<str>> = now.iter().chain(&before).cloned().collect();
        keys.dedup();
        let is_orphan = !change.is_gone && change.object.sidecar()?.owners.is_empty();
        if is_orphan {
            keys.extend(self.takers(change.object, view)?);
        }
        Ok(keys)
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(self.kind.storage, key)? else {
            return Ok(Done::Settled);
        };
        let set = self.client.read(&self.resource, &object)?;
        let now_s = jiff::Timestamp::now().as_second();
        let mut pods = self.claim(&set, key, &view).await?;
        let mut failure = None;
        if set["metadata"]["deletionTimestamp"].is_null() {
            failure = self.scale(&set, &mut pods, now_s).await;
        }
        let next = self.tell_status(key, &set, &pods, failure.as_ref(), now_s).await?;
        match failure {
            Some(failure) => Err(failure.why),
            None => Ok(next.map_or(Done::Settled, |seconds| {
                Done::After(Duration::from_secs(u64::try_from(seconds).unwrap_or(1).max(1)))
            })),
        }
    }
}
