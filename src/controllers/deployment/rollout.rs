//! A look at a Deployment: its ReplicaSets are found or made and brought to their sizes.
//!
//! One look does one thing and tells the status; what it changed brings the next look.

use std::sync::Arc;

use super::revisions::{DESIRED, MAX, REVISION, annotation, hand_on, is_of, new_set, number};
use super::sizes::{Goal, Set};
use super::status::{PROGRESSING, Progress, TOO_LATE, has_deadline, is_complete, set_condition};
use super::{DEPLOYMENTS, Deployments, PODS};
use crate::api::Delete;
use crate::controllers::claim::{Claimant, gone_is_fine};
use crate::controllers::event::Level;
use crate::controllers::failure::Failure;
use crate::controllers::metadata::is_same;
use crate::controllers::percent::resolve;
use crate::controllers::pod;
use crate::controllers::queue::Done;
use crate::resources::condition;
use crate::store::{Range, Requirement, Selection, View};
use crate::tree::Value;

/// A Deployment with its ReplicaSets.
pub(super) struct Rollout {
    pub(super) key: String,
    pub(super) deployment: Value,
    /// The set of the present template.
    pub(super) new: Option<Value>,
    /// The others, oldest first.
    pub(super) old: Vec<Value>,
    pub(super) goal: Goal,
    pub(super) now_s: i64,
}

/// `spec.replicas`.
pub(super) fn replicas(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or(1)
}

pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or("")
}

fn set_of(set: &Value) -> Set {
    Set {
        replicas: replicas(set),
        available: set["status"]["availableReplicas"].as_i64().unwrap_or(0),
        of_max: number(set, MAX),
        created_s: pod::seconds(&set["metadata"]["creationTimestamp"]).unwrap_or(0),
        name: name(set).to_owned(),
    }
}

impl Rollout {
    pub(super) fn sets(&self) -> impl Iterator<Item = &Value> {
        self.old.iter().chain(&self.new)
    }

    /// Pods that the sets ask for.
    pub(super) fn asked(&self) -> i64 {
        self.sets().map(replicas).sum()
    }

    fn recreates(&self) -> bool {
        self.deployment["spec"]["strategy"]["type"] == "Recreate"
    }

    fn is_paused(&self) -> bool {
        self.deployment["spec"]["paused"] == true
    }

    /// Whether the number of Pods that are asked for was changed since a set got its size.
    fn was_scaled(&self) -> bool {
        self.sets()
            .filter(|set| replicas(set) > 0)
            .any(|set| !annotation(set, DESIRED).is_empty() && number(set, DESIRED) != self.goal.replicas)
    }
}

impl Deployments {
    /// Looks at the Deployment with this key.
    pub(super) async fn roll_out(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(DEPLOYMENTS.storage, key)? else {
            return Ok(Done::Settled);
        };
        let deployment = self.client.read(&self.resource, &object)?;
        let Some(selection) = (DEPLOYMENTS.selection)(&deployment["spec"]["selector"]) else {
            return Ok(Done::Settled);
        };
        let claimant = Claimant {
            client: &self.client,
            dependents: &self.sets,
            owner: &deployment,
            selection: &selection,
            may_adopt: |_| true,
        };
        let mut sets = claimant.claim(&view).await?;
        sets.sort_by_cached_key(|set| (set_of(set).created_s, name(set).to_owned()));
        let present = sets.iter().position(|set| is_of(set, &deployment["spec"]["template"]));
        let new = present.map(|at| sets.remove(at));
        let mut rollout = Rollout {
            key: key.to_owned(),
            goal: goal_of(&deployment),
            deployment,
            new,
            old: sets,
            now_s: jiff::Timestamp::now().as_second(),
        };
        if !rollout.deployment["metadata"]["deletionTimestamp"].is_null() {
            return self.tell(&rollout, Progress::NotJudged).await;
        }
        self.note_pause(&rollout).await?;
        if rollout.is_paused() {
            self.number_new(&mut rollout).await?;
            self.scale_in_proportion(&rollout).await?;
            self.forget_old(&rollout).await?;
            return self.tell(&rollout, Progress::NotJudged).await;
        }
        // What recreates is brought to its size by recreating, unless one set has all Pods.
        let is_divided = rollout.sets().filter(|set| replicas(set) > 0).count() > 1;
        if rollout.was_scaled() && !(rollout.recreates() && is_divided) {
            self.number_new(&mut rollout).await?;
            self.scale_in_proportion(&rollout).await?;
            return self.tell(&rollout, Progress::NotJudged).await;
        }
        let is_at_rest = if rollout.recreates() {
            self.recreate(&mut rollout, &view).await?
        } else {
            self.replace(&mut rollout).await?
        };
        if is_at_rest && is_complete(&rollout) {
            self.forget_old(&rollout).await?;
        }
        self.tell(&rollout, Progress::Judged).await
    }

    /// Old Pods make room for new ones, and new ones for old. `true` when nothing had to be done.
    async fn replace(&self, rollout: &mut Rollout) -> Result<bool, Failure> {
        let new = self.new_or_made(rollout).await?;
        let size = rollout.goal.of_new(replicas(&new), rollout.asked());
        if self.scale(rollout, &new, size).await? {
            return Ok(false);
        }
        let old: Vec<Set> = rollout.old.iter().map(set_of).collect();
        let sizes = rollout.goal.of_old(&old, (replicas(&new), set_of(&new).available));
        let mut at_rest = true;
        for (set, size) in rollout.old.iter().zip(sizes) {
            if replicas(set) != size {
                at_rest &= !self.scale(rollout, set, size).await?;
            }
        }
        Ok(at_rest)
    }

    /// All old Pods go, then the new ones come. `true` when nothing had to be done.
    async fn recreate(&self, rollout: &mut Rollout, view: &Arc<View>) -> Result<bool, Failure> {
        let mut scaled = false;
        for set in rollout.old.iter().filter(|set| replicas(set) > 0) {
            scaled |= self.scale(rollout, set, 0).await?;
        }
        if scaled || self.has_old_pods(rollout, view)? {
            return Ok(false);
        }
        let new = self.new_or_made(rollout).await?;
        Ok(!self.scale(rollout, &new, rollout.goal.replicas).await?)
    }

    /// Whether Pods of old sets are still running, or about to.
    fn has_old_pods(&self, rollout: &Rollout, view: &Arc<View>) -> Result<bool, Failure> {
        let Some(pods) = crate::resources::stored(PODS) else {
            return Ok(false);
        };
        let pods = pods.into();
        for set in &rollout.old {
            let uid = set["metadata"]["uid"].as_str().unwrap_or("").to_owned();
            let selection = Selection {
                requirements: vec![Requirement::OwnedBy(uid)],
            };
            let range = Range {
                namespace: set["metadata"]["namespace"].as_str().map(str::to_owned),
                after: None,
            };
            let mut listing = view.list(PODS, range, &selection);
            while let Some(run) = listing.next(64)? {
                for object in run.objects() {
                    if !pod::is_over(&self.client.read(&pods, &object)?) {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// After a change of `spec.replicas`, or while paused: the sets keep their shares.
    async fn scale_in_proportion(&self, rollout: &Rollout) -> Result<(), Failure> {
        let goal = rollout.goal;
        let active: Vec<&Value> = rollout.sets().filter(|set| replicas(set) > 0).collect();
        let only = match active.as_slice() {
            // The newest of those without Pods.
            [] => rollout.new.as_ref().or(rollout.old.last()),
            [only] => Some(*only),
            _ => None,
        };
        if active.len() < 2 {
            if let Some(set) = only {
                self.scale(rollout, set, goal.replicas).await?;
            }
            return Ok(());
        }
        if let Some(new) = &rollout.new
            && replicas(new) == goal.replicas
            && number(new, DESIRED) == goal.replicas
            && set_of(new).available == goal.replicas
        {
            for set in rollout.old.iter().filter(|set| replicas(set) > 0) {
                self.scale(rollout, set, 0).await?;
            }
            return Ok(());
        }
        if rollout.recreates() {
            return Ok(());
        }
        let sizes: Vec<Set> = active.iter().map(|set| set_of(set)).collect();
        let so_far = rollout.deployment["status"]["replicas"].as_i64().unwrap_or(0);
        for (set, size) in active.iter().zip(goal.in_proportion(&sizes, so_far)) {
            self.scale(rollout, set, size).await?;
        }
        Ok(())
    }

    /// Gives a set its size and notes what it was reckoned from; `true` if its size changed.
    async fn scale(&self, rollout: &Rollout, set: &Value, size: i64) -> Result<bool, Failure> {
        let (from, goal) = (replicas(set), rollout.goal);
        let edit = |old: &Value| {
            // Another one of its name is none of ours.
            if !is_same(old, set) {
                return None;
            }
            let mut new = old.clone();
            new["spec"]["replicas"] = size.into();
            new["metadata"]["annotations"][DESIRED] = goal.replicas.to_string().into();
            new["metadata"]["annotations"][MAX] = goal.most().to_string().into();
            Some(new)
        };
        let is_noted = number(set, DESIRED) == goal.replicas && number(set, MAX) == goal.most();
        if from == size && is_noted {
            return Ok(false);
        }
        let key = format!("{}/{}", set["metadata"]["namespace"].as_str().unwrap_or(""), name(set));
        gone_is_fine(self.client.change(&self.sets, None, &key, edit).await)?;
        if from == size {
            return Ok(false);
        }
        let word = if size > from { "up" } else { "down" };
        let text = format!("Scaled {word} replica set {} from {from} to {size}", name(set));
        self.recorder
            .tell(&rollout.deployment, Level::Normal, "ScalingReplicaSet", text);
        Ok(true)
    }

    /// The set of the present template, made if there is none.
    async fn new_or_made(&self, rollout: &mut Rollout) -> Result<Value, Failure> {
        if let Some(new) = self.number_new(rollout).await? {
            return Ok(new);
        }
        let revision = next_revision(rollout);
        let mut set = new_set(&rollout.deployment, revision);
        let size = rollout.goal.of_new(0, rollout.asked());
        let size = if rollout.recreates() {
            rollout.goal.replicas
        } else {
            size
        };
        set["spec"]["replicas"] = size.into();
        set["metadata"]["annotations"][DESIRED] = rollout.goal.replicas.to_string().into();
        set["metadata"]["annotations"][MAX] = rollout.goal.most().to_string().into();
        let namespace = rollout.deployment["metadata"]["namespace"].as_str();
        match self.client.create(&self.sets, namespace, set).await {
            Ok(made) => {
                let made_name = name(&made).to_owned();
                if size > 0 {
                    let text = format!("Scaled up replica set {made_name} from 0 to {size}");
                    self.recorder
                        .tell(&rollout.deployment, Level::Normal, "ScalingReplicaSet", text);
                }
                self.note_revision(
                    rollout,
                    revision,
                    "NewReplicaSetCreated",
                    &format!("Created new replica set \"{made_name}\""),
                )
                .await?;
                rollout.new = Some(made.clone());
                Ok(made)
            }
            Err(status) if status.code == 409 => {
                // Another template has the name: the next one gets another.
                let edit = |old: &Value| {
                    if !is_same(old, &rollout.deployment) {
                        return None;
                    }
                    let mut new = old.clone();
                    let count = old["status"]["collisionCount"].as_i64().unwrap_or(0);
                    new["status"]["collisionCount"] = (count + 1).into();
                    Some(new)
                };
                gone_is_fine(
                    self.client
                        .change(&self.resource, Some("status"), &rollout.key, edit)
                        .await,
                )?;
                Err(status.into())
            }
            Err(status) => {
                let text = format!("Failed to create new replica set: {}", status.message);
                self.recorder.tell(
                    &rollout.deployment,
                    Level::Warning,
                    "ReplicaSetCreateError",
                    text.clone(),
                );
                self.note_condition(rollout, (PROGRESSING, "False", "ReplicaSetCreateError"), &text)
                    .await?;
                Err(status.into())
            }
        }
    }

    /// Gives the set of the present template, if there is one, the highest number, and the Deployment's annotations.
    async fn number_new(&self, rollout: &mut Rollout) -> Result<Option<Value>, Failure> {
        let Some(set) = rollout.new.take() else {
            return Ok(None);
        };
        let revision = next_revision(rollout);
        let min_ready = &rollout.deployment["spec"]["minReadySeconds"];
        let change = |old: &Value| {
            let mut new = old.clone();
            hand_on(&rollout.deployment, &mut new, revision);
            if new["spec"]["minReadySeconds"] != *min_ready && !min_ready.is_null() {
                new["spec"]["minReadySeconds"] = min_ready.clone();
            }
            new
        };
        let changed = change(&set);
        if changed != set {
            let key = format!("{}/{}", set["metadata"]["namespace"].as_str().unwrap_or(""), name(&set));
            let written = self
                .client
                .change(&self.sets, None, &key, |old| Some(change(old)))
                .await;
            gone_is_fine(written)?;
        }
        let text = format!("Found new replica set \"{}\"", name(&set));
        self.note_revision(rollout, number(&changed, REVISION), "FoundNewReplicaSet", &text)
            .await?;
        rollout.new = Some(changed.clone());
        Ok(Some(changed))
    }

    /// Notes the number of the present template, and, if it is new, that there is a set of it.
    async fn note_revision(&self, rollout: &Rollout, revision: i64, reason: &str, text: &str) -> Result<(), Failure> {
        let deployment = &rollout.deployment;
        let revision = revision.to_string();
        let is_noted = annotation(deployment, REVISION) == revision;
        let tells_progress = has_deadline(deployment) && !(is_noted && condition(deployment, PROGRESSING).is_some());
        if is_noted && !tells_progress {
            return Ok(());
        }
        let edit = |old: &Value| {
            if !is_same(old, deployment) {
                return None;
            }
            let mut new = old.clone();
            new["metadata"]["annotations"][REVISION] = revision.as_str().into();
            if tells_progress {
                set_condition(&mut new["status"], (PROGRESSING, "True", reason), text, rollout.now_s);
            }
            Some(new)
        };
        // As a status: an annotation that a client writes counts as a new generation, this one must not.
        Ok(gone_is_fine(
            self.client
                .change(&self.resource, Some("status"), &rollout.key, edit)
                .await,
        )?)
    }

    /// Notes that the Deployment was paused, or goes on: its deadline does not run meanwhile.
    async fn note_pause(&self, rollout: &Rollout) -> Result<(), Failure> {
        let deployment = &rollout.deployment;
        if !has_deadline(deployment) {
            return Ok(());
        }
        let reason = condition(deployment, PROGRESSING).map_or("", |found| found["reason"].as_str().unwrap_or(""));
        match (rollout.is_paused(), reason) {
            (_, TOO_LATE) => Ok(()),
            (true, reason) if reason != "DeploymentPaused" => {
                self.note_condition(
                    rollout,
                    (PROGRESSING, "Unknown", "DeploymentPaused"),
                    "Deployment is paused",
                )
                .await
            }
            (false, "DeploymentPaused") => {
                self.note_condition(
                    rollout,
                    (PROGRESSING, "Unknown", "DeploymentResumed"),
                    "Deployment is resumed",
                )
                .await
            }
            _ => Ok(()),
        }
    }

    /// Writes one condition: type, status and reason.
    pub(super) async fn note_condition(
        &self,
        rollout: &Rollout,
        what: (&str, &str, &str),
        text: &str,
    ) -> Result<(), Failure> {
        let edit = |old: &Value| {
            if !is_same(old, &rollout.deployment) {
                return None;
            }
            let mut new = old.clone();
            set_condition(&mut new["status"], what, text, rollout.now_s);
            Some(new)
        };
        Ok(gone_is_fine(
            self.client
                .change(&self.resource, Some("status"), &rollout.key, edit)
                .await,
        )?)
    }

    /// Deletes old sets without Pods beyond `revisionHistoryLimit`, the oldest first.
    async fn forget_old(&self, rollout: &Rollout) -> Result<(), Failure> {
        let Some(limit) = rollout.deployment["spec"]["revisionHistoryLimit"].as_u64() else {
            return Ok(());
        };
        let mut old: Vec<&Value> = rollout
            .old
            .iter()
            .filter(|set| set["metadata"]["deletionTimestamp"].is_null())
            .collect();
        let excess = old.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        old.sort_by_key(|set| number(set, REVISION));
        for set in old.into_iter().take(excess) {
            let status = &set["status"];
            let is_empty = replicas(set) == 0 && status["replicas"].as_i64().unwrap_or(0) == 0;
            let is_seen = status["observedGeneration"].as_i64() >= set["metadata"]["generation"].as_i64();
            if !is_empty || !is_seen {
                continue;
            }
            let key = format!("{}/{}", set["metadata"]["namespace"].as_str().unwrap_or(""), name(set));
            let delete = Delete {
                uid: set["metadata"]["uid"].as_str().map(str::to_owned),
                ..Delete::default()
            };
            gone_is_fine(self.client.delete(&self.sets, &key, &delete).await)?;
        }
        Ok(())
    }
}

/// What a Deployment asks for, percentages resolved. Surge and unavailability cannot both be nothing, or nothing could be replaced.
fn goal_of(deployment: &Value) -> Goal {
    let replicas = replicas(deployment);
    let strategy = &deployment["spec"]["strategy"];
    if strategy["type"] == "Recreate" {
        return Goal {
            replicas,
            surge: 0,
            unavailable: 0,
        };
    }
    let rolling = &strategy["rollingUpdate"];
    let surge = resolve(&rolling["maxSurge"], replicas, true);
    let unavailable = resolve(&rolling["maxUnavailable"], replicas, false);
    Goal {
        replicas,
        surge,
        unavailable: if surge == 0 && unavailable == 0 {
            1
        } else {
            unavailable.min(replicas)
        },
    }
}

/// The number after those of all old sets. What a user wrote there may be as high as can be.
fn next_revision(rollout: &Rollout) -> i64 {
    let highest = rollout.old.iter().map(|set| number(set, REVISION)).max().unwrap_or(0);
    highest.max(0).saturating_add(1)
}
