//! ReplicaSets and replication controllers: as many Pods of a template as are asked for.
//!
//! | file | what it does |
//! | --- | --- |
//! | `scale` | makes and deletes Pods until there are enough |
//! | `status` | tells how many there are, and what went wrong |

mod scale;
mod status;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::claim::{Claimant, Kind};
use super::event::Recorder;
use super::failure::Failure;
use super::pace::Pace;
use super::pod;
use super::queue::Done;
use super::runtime::{Change, Controller};
use super::selector;
use crate::api::Client;
use crate::resources::{self, ResourceRef};
use crate::store::View;

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
    pace: Pace,
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
            pace: Pace::default(),
        })
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
        self.kind.concerned(&self.client, &self.resource, change, view)
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(self.kind.storage, key)? else {
            self.pace.forget(key);
            return Ok(Done::Settled);
        };
        let began = Instant::now();
        let set = self.client.read(&self.resource, &object)?;
        if let Some(rest) = self.pace.rest(key, &set) {
            return Ok(Done::After(rest));
        }
        let Some(selection) = (self.kind.selection)(&set["spec"]["selector"]) else {
            return Ok(Done::Settled);
        };
        let claimant = Claimant {
            client: &self.client,
            dependents: &self.pods,
            owner: &set,
            selection: &selection,
            may_adopt: pod::is_active,
        };
        let mut pods = claimant.claim(&view).await?;
        let (took, found) = (began.elapsed(), pods.len());
        let now_s = jiff::Timestamp::now().as_second();
        let mut failure = None;
        if set["metadata"]["deletionTimestamp"].is_null() {
            failure = self.scale(&set, &mut pods, now_s).await;
        }
        if pods.len() == found {
            self.pace.note(key, &set, took);
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
