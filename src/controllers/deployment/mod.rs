//! Deployments: one template after the other, each by a ReplicaSet of its own, so that at no time too many Pods are there or too few
//! available.
//!
//! | file | what it does |
//! | --- | --- |
//! | `revisions` | finds and makes the ReplicaSet of the present template; annotations |
//! | `sizes` | how many Pods which set gets: arithmetic alone |
//! | `rollout` | a look: brings the sets to their sizes, forgets old ones |
//! | `status` | tells how far it is |

mod revisions;

mod rollout;
mod sizes;
mod status;

pub(super) use revisions::hash;

use std::sync::Arc;

use super::claim::Kind;
use super::event::Recorder;
use super::failure::Failure;
use super::queue::Done;
use super::replicas::REPLICA_SETS;
use super::runtime::{Change, Controller};
use super::selector;
use crate::api::Client;
use crate::resources::{self, ResourceRef};
use crate::store::View;

const DEPLOYMENTS: Kind = Kind {
    storage: "deployments.apps",
    group: "apps",
    kind: "Deployment",
    selection: selector::selection,
};

const PODS: &str = "pods";

/// The controller of Deployments.
pub(super) struct Deployments {
    client: Client,
    recorder: Recorder,
    resource: ResourceRef,
    sets: ResourceRef,
}

impl Deployments {
    /// `None` if there is no such kind.
    pub(super) fn new(client: Client, recorder: Recorder) -> Option<Self> {
        Some(Self {
            client,
            recorder,
            resource: resources::stored(DEPLOYMENTS.storage)?.into(),
            sets: resources::stored(REPLICA_SETS.storage)?.into(),
        })
    }
}

impl Controller for Deployments {
    fn resource(&self) -> &'static str {
        DEPLOYMENTS.storage
    }

    fn watches(&self) -> &'static [&'static str] {
        &[REPLICA_SETS.storage, PODS]
    }

    fn concerned(&self, change: &Change<'_>, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        if change.storage != PODS {
            return DEPLOYMENTS.concerned(&self.client, &self.resource, change, view);
        }
        // What recreates waits until the last old Pod is gone.
        if !change.is_gone {
            return Ok(Vec::new());
        }
        let Some(set) = REPLICA_SETS.controller_of(change.object)? else {
            return Ok(Vec::new());
        };
        let set = view.get(REPLICA_SETS.storage, &set)?;
        let deployment = set.map(|set| DEPLOYMENTS.controller_of(&set)).transpose()?;
        Ok(deployment.flatten().into_iter().collect())
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        self.roll_out(key).await
    }
}
