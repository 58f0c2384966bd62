//! Does what is to be done about the Pods of a set, and tells of it.

use std::time::Duration;

use tokio::task::JoinSet;

use super::plan::{Place, Pods, Step};
use super::retention::{Owners, deletes_scaled, is_stale};
use super::{CLAIMS, Level, StatefulSets, identity};
use crate::api::Delete;
use crate::api::status::Status;
use crate::controllers::claim::gone_is_fine;
use crate::controllers::failure::{Failure, is_terminating};
use crate::controllers::metadata::{key_of, name_of};
use crate::tree::Value;

/// When to look again at a Pod whose claims are still those of its predecessor.
const STALE_AGAIN: Duration = Duration::from_secs(1);

/// A template that Pods are made of, and the name of its revision.
#[derive(Clone, Copy)]
pub(super) struct Template<'a> {
    pub(super) revision: &'a str,
    pub(super) template: &'a Value,
}

impl<'a> Template<'a> {
    pub(super) fn of(revision: &'a Value) -> Self {
        Self {
            revision: name_of(revision),
            template: &revision["data"]["spec"]["template"],
        }
    }
}

/// The work on one set.
pub(super) struct Work<'a> {
    pub(super) sets: &'a StatefulSets,
    /// With its kind and apiVersion.
    pub(super) set: &'a Value,
    /// Of Pods whose ordinals are lower than `partition`.
    pub(super) before_partition: Template<'a>,
    /// Of the others.
    pub(super) template: Template<'a>,
    pub(super) partition: i64,
}

/// A write that was refused, and in which words that is told.
struct Refused {
    text: String,
    why: Failure,
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self {
            text: status.message.clone(),
            why: status.into(),
        }
    }
}

impl From<Failure> for Refused {
    fn from(why: Failure) -> Self {
        Self {
            text: why.to_string(),
            why,
        }
    }
}

/// How a write is told of.
fn told(result: &Result<(), Status>) -> Result<(), &str> {
    match result {
        Ok(()) => Ok(()),
        Err(status) => Err(status.message.as_str()),
    }
}

impl Work<'_> {
    /// Takes these steps; `pods` is what there is then. Gives when to look again.
    ///
    /// # Errors
    /// What the first step that failed says; those after it are not taken.
    pub(super) async fn on(&self, pods: &mut Pods, steps: &[Step]) -> Result<Option<Duration>, Failure> {
        let is_make = |step: &Step| matches!(step, Step::Make(_));
        let mut next = None;
        // Batches double: if none can be made, because of a quota, say, it is asked for few.
        let mut batch = 1;
        let mut steps = steps;
        while let Some(step) = steps.first() {
            let count = match step {
                Step::Make(_) => steps.iter().take(batch).take_while(|step| is_make(step)).count(),
                _ => 1,
            };
            let (taken, rest) = steps.split_at(count);
            steps = rest;
            match *step {
                Step::Make(_) => {
                    batch *= 2;
                    let ordinals = taken.iter().filter_map(|step| match step {
                        Step::Make(ordinal) => Some(*ordinal),
                        _ => None,
                    });
                    next = self.make(ordinals, pods).await?.or(next);
                }
                Step::Claim(ordinal) => {
                    if let Some(pod) = pods.get(Place::Replica(ordinal)) {
                        self.claim(pod, ordinal).await.map_err(|refused| refused.why)?;
                        self.retain(pod, ordinal).await?;
                    }
                }
                Step::Keep(place) => {
                    if let Some(pod) = pods.get(place) {
                        self.keep(pod, matches!(place, Place::Replica(_))).await?;
                    }
                }
                Step::Remove(place) => {
                    if let Some(pod) = pods.get(place) {
                        self.remove(pod).await?;
                    }
                    pods.note_deletion(place);
                }
            }
        }
        Ok(next)
    }

    /// Makes Pods side by side, after their claims. Gives when to look again at those whose claims have to go first.
    async fn make(&self, ordinals: impl Iterator<Item = i64>, pods: &mut Pods) -> Result<Option<Duration>, Failure> {
        let namespace = self.set["metadata"]["namespace"].as_str().unwrap_or("");
        let (mut next, mut failed) = (None, None);
        let mut making = JoinSet::new();
        for ordinal in ordinals {
            let template = if ordinal < self.partition {
                self.before_partition
            } else {
                self.template
            };
            let pod = identity::pod_for(self.set, template.template, template.revision, ordinal);
            if self.has_stale_claim(&pod, ordinal)? {
                next = Some(STALE_AGAIN);
                continue;
            }
            if let Err(refused) = self.claim(&pod, ordinal).await {
                self.tell("create", &pod, Err(&refused.text));
                failed = Some(refused.why);
                break;
            }
            let (client, resource, namespace) =
                (self.sets.client.clone(), self.sets.pods.clone(), namespace.to_owned());
            making.spawn(async move {
                let made = client.create(&resource, Some(&namespace), pod.clone()).await;
                (ordinal, pod, made)
            });
        }
        while let Some(made) = making.join_next().await {
            match made? {
                (ordinal, _, Ok(pod)) => {
                    let retained = self.retain(&pod, ordinal).await;
                    self.tell("create", &pod, Ok(()));
                    pods.replicas.insert(ordinal, pod);
                    failed = failed.or(retained.err());
                }
                // With the namespace goes the set.
                (_, _, Err(status)) if is_terminating(&status) => {}
                (_, pod, Err(status)) => {
                    // One of that name is somebody else's, or going.
                    if status.reason != "AlreadyExists" {
                        self.tell("create", &pod, Err(&status.message));
                    }
                    failed = Some(status.into());
                }
            }
        }
        failed.map_or(Ok(next), Err)
    }

    fn has_stale_claim(&self, pod: &Value, ordinal: i64) -> Result<bool, Failure> {
        if !deletes_scaled(self.set) {
            return Ok(false);
        }
        for (_, claim, _) in identity::claims(self.set, ordinal) {
            let claim = self.stored_claim(&claim)?;
            if claim.is_some_and(|claim| is_stale(&claim, name_of(pod))) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes the claims that a Pod lacks.
    async fn claim(&self, pod: &Value, ordinal: i64) -> Result<(), Refused> {
        for (_, name, template) in identity::claims(self.set, ordinal) {
            if let Some(claim) = self.stored_claim(&name)? {
                if !claim["metadata"]["deletionTimestamp"].is_null() {
                    return Err(Refused::from(Status::plain(
                        409,
                        format!("pvc {name} is being deleted"),
                    )));
                }
                continue;
            }
            let claim = self.claim_of(template, &name);
            let namespace = self.set["metadata"]["namespace"].as_str();
            match self.sets.client.create(&self.sets.claims, namespace, claim).await {
                Ok(_) => self.tell_claim(pod, &name, Ok(())),
                Err(status) if status.reason == "AlreadyExists" => {}
                Err(status) => {
                    self.tell_claim(pod, &name, Err(&status.message));
                    let text = format!("failed to create PVC {name}: {}", status.message);
                    return Err(Refused {
                        text,
                        why: status.into(),
                    });
                }
            }
        }
        Ok(())
    }

    fn claim_of(&self, template: &Value, name: &str) -> Value {
        let mut claim = template.clone();
        if let Some(fields) = claim.as_object_mut() {
            fields.remove("status");
        }
        claim["metadata"]["name"] = name.into();
        claim["metadata"]["namespace"] = self.set["metadata"]["namespace"].clone();
        let labels = self.set["spec"]["selector"]["matchLabels"].as_object();
        for (name, value) in labels.into_iter().flat_map(|labels| labels.iter()) {
            claim["metadata"]["labels"][name.as_str()] = value.clone();
        }
        claim
    }

    fn stored_claim(&self, name: &str) -> Result<Option<Value>, Failure> {
        let namespace = self.set["metadata"]["namespace"].as_str();
        let key = self.sets.claims.key(namespace, name);
        let claim = self.sets.client.store().view().get(CLAIMS, &key)?;
        Ok(claim
            .map(|claim| self.sets.client.read(&self.sets.claims, &claim))
            .transpose()?)
    }

    /// Gives the claims of a Pod the owners that they should have.
    async fn retain(&self, pod: &Value, ordinal: i64) -> Result<(), Failure> {
        let owners = Owners { set: self.set, pod };
        for (_, name, _) in identity::claims(self.set, ordinal) {
            let Some(claim) = self.stored_claim(&name)? else {
                continue;
            };
            if owners.has_other_controller(&claim) {
                let message = format!(
                    "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a managing controller, the retention \
                     policy is ignored for this claim"
                );
                self.sets
                    .recorder
                    .tell(self.set, Level::Warning, "ConflictingController", message);
            }
            if owners.corrected(&claim).is_none() {
                continue;
            }
            let edit = |old: &Value| {
                let mut new = old.clone();
                new["metadata"]["ownerReferences"] = owners.corrected(old)?;
                Some(new)
            };
            let changed = self
                .sets
                .client
                .change(&self.sets.claims, None, &key_of(&claim), edit)
                .await;
            if let Err(status) = gone_is_fine(changed) {
                let text = format!(
                    "could not update claim {name} for delete policy ownerRefs: {}",
                    status.message
                );
                self.tell("update", pod, Err(&text));
                return Err(status.into());
            }
        }
        Ok(())
    }

    /// Gives a Pod back what it lost of its labels and volumes (`is_wanted`), and its claims the right owners.
    async fn keep(&self, pod: &Value, is_wanted: bool) -> Result<(), Failure> {
        let Some(ordinal) = identity::ordinal(self.set, pod) else {
            return Ok(());
        };
        self.retain(pod, ordinal).await?;
        if !is_wanted || identity::mended(self.set, pod).is_none() {
            return Ok(());
        }
        if let Err(refused) = self.claim(pod, ordinal).await {
            self.tell("update", pod, Err(&refused.text));
            return Err(refused.why);
        }
        let edit = |old: &Value| identity::mended(self.set, old);
        let changed = self.sets.client.change(&self.sets.pods, None, &key_of(pod), edit).await;
        self.tell("update", pod, told(&changed));
        Ok(gone_is_fine(changed)?)
    }

    async fn remove(&self, pod: &Value) -> Result<(), Failure> {
        let delete = Delete {
            uid: pod["metadata"]["uid"].as_str().map(str::to_owned),
            ..Delete::default()
        };
        let deleted = self.sets.client.delete(&self.sets.pods, &key_of(pod), &delete).await;
        self.tell("delete", pod, told(&deleted));
        Ok(gone_is_fine(deleted)?)
    }

    fn tell(&self, verb: &str, pod: &Value, done: Result<(), &str>) {
        let (pod, set) = (name_of(pod), name_of(self.set));
        let (done_reason, failed_reason) = match verb {
            "create" => ("SuccessfulCreate", "FailedCreate"),
            "delete" => ("SuccessfulDelete", "FailedDelete"),
            _ => ("SuccessfulUpdate", "FailedUpdate"),
        };
        let (level, reason, message) = match done {
            Ok(()) => {
                let message = format!("{verb} Pod {pod} in StatefulSet {set} successful");
                (Level::Normal, done_reason, message)
            }
            Err(why) => {
                let message = format!("{verb} Pod {pod} in StatefulSet {set} failed error: {why}");
                (Level::Warning, failed_reason, message)
            }
        };
        self.sets.recorder.tell(self.set, level, reason, message);
    }

    fn tell_claim(&self, pod: &Value, claim: &str, done: Result<(), &str>) {
        let (pod, set) = (name_of(pod), name_of(self.set));
        let (level, reason, message) = match done {
            Ok(()) => {
                let message = format!("create Claim {claim} Pod {pod} in StatefulSet {set} success");
                (Level::Normal, "SuccessfulCreate", message)
            }
            Err(why) => {
                let message = format!("create Claim {claim} for Pod {pod} in StatefulSet {set} failed error: {why}");
                (Level::Warning, "FailedCreate", message)
            }
        };
        self.sets.recorder.tell(self.set, level, reason, message);
    }
}
