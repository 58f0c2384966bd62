//! ControllerRevisions: the templates that a DaemonSet or a StatefulSet had, numbered, so that a rollout can go back to one.

use std::sync::Arc;

use super::claim::Claimant;
use super::deployment::hash;
use super::failure::Failure;
use super::metadata::{controller_reference, key_of, name_of};
use crate::api::{Client, Delete};
use crate::resources::ResourceRef;
use crate::store::{Selection, View};
use crate::tree::{Value, json};

pub(super) const REVISIONS: &str = "controllerrevisions.apps";
/// Label of Pods that says of which template they are.
pub(super) const HASH_LABEL: &str = "controller-revision-hash";
/// Other names that are tried for a template whose name another one has.
const COLLISIONS_MAX: i64 = 16;

/// How an owner keeps its history.
pub(super) struct History<'a> {
    pub(super) client: &'a Client,
    pub(super) revisions: &'a ResourceRef,
    /// With its kind and apiVersion.
    pub(super) owner: &'a Value,
    pub(super) selection: &'a Selection,
    /// Label of revisions whose value is their hash.
    pub(super) label: &'static str,
}

/// The revisions of an owner, in the order of their numbers.
pub(super) struct Revisions {
    pub(super) all: Vec<Value>,
    /// Place in `all` of the one of the present template.
    pub(super) current: usize,
    /// How often a name was taken, `status.collisionCount`.
    pub(super) collisions: i64,
}

impl Revisions {
    /// The revision of the present template.
    pub(super) fn current(&self) -> &Value {
        &self.all[self.current]
    }
}

/// The number of a revision.
pub(super) fn number(revision: &Value) -> i64 {
    revision["revision"].as_i64().unwrap_or(0)
}

/// What a revision keeps: a patch that puts the template back.
fn data_of(owner: &Value) -> Value {
    let mut template = owner["spec"]["template"].clone();
    template["$patch"] = "replace".into();
    json!({"spec": {"template": template}})
}

impl History<'_> {
    /// The revisions that the owner has, with one of its present template as the newest, which is made if it is missing.
    ///
    /// # Errors
    /// When one cannot be read, made or numbered.
    pub(super) async fn sync(&self, view: &Arc<View>) -> Result<Revisions, Failure> {
        let claimant = Claimant {
            client: self.client,
            dependents: self.revisions,
            owner: self.owner,
            selection: self.selection,
            may_adopt: |_| true,
        };
        let mut all = claimant.claim(view).await?;
        all.sort_by_key(|revision| (number(revision), name_of(revision).to_owned()));
        let data = data_of(self.owner);
        let mut collisions = self.owner["status"]["collisionCount"].as_i64().unwrap_or(0);
        let is_current = |revision: &Value| revision["data"] == data;
        let current = if let Some(place) = all.iter().rposition(is_current) {
            let highest = all.iter().enumerate().filter(|(other, _)| *other != place);
            let highest = highest.map(|(_, revision)| number(revision)).max().unwrap_or(0);
            if number(&all[place]) <= highest {
                // The template of a former revision is back.
                let mut revision = all.remove(place);
                self.renumber(&mut revision, highest + 1).await?;
                all.push(revision);
                all.len() - 1
            } else {
                place
            }
        } else {
            let next = all.last().map_or(0, number) + 1;
            let made = self.make(&data, next, &mut collisions).await?;
            all.push(made);
            all.len() - 1
        };
        Ok(Revisions {
            all,
            current,
            collisions,
        })
    }

    async fn make(&self, data: &Value, number: i64, collisions: &mut i64) -> Result<Value, Failure> {
        let metadata = &self.owner["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or("");
        let last = *collisions + COLLISIONS_MAX;
        loop {
            let hash = hash(&self.owner["spec"]["template"], *collisions);
            let name = format!("{}-{hash}", metadata["name"].as_str().unwrap_or(""));
            let mut revision = json!({
                "metadata": {"name": name, "ownerReferences": [controller_reference(self.owner)]},
                "data": data.clone(), "revision": number,
            });
            let mut labels = self.owner["spec"]["template"]["metadata"]["labels"].clone();
            if !labels.is_object() {
                labels = json!({});
            }
            labels[self.label] = hash.as_str().into();
            revision["metadata"]["labels"] = labels;
            if !metadata["annotations"].is_null() {
                revision["metadata"]["annotations"] = metadata["annotations"].clone();
            }
            match self.client.create(self.revisions, Some(namespace), revision).await {
                Ok(made) => return Ok(made),
                Err(status) if status.reason == "AlreadyExists" && *collisions < last => {
                    let key = format!("{namespace}/{name}");
                    let found = self.client.store().view().get(REVISIONS, &key)?;
                    let found = found
                        .map(|found| self.client.read(self.revisions, &found))
                        .transpose()?;
                    match found {
                        // Made a moment ago, after the view was taken.
                        Some(found) if found["data"] == *data && is_owned(&found, metadata) => return Ok(found),
                        _ => *collisions += 1,
                    }
                }
                Err(status) => return Err(status.into()),
            }
        }
    }

    async fn renumber(&self, revision: &mut Value, number: i64) -> Result<(), Failure> {
        revision["revision"] = number.into();
        let edit = |old: &Value| {
            let mut new = old.clone();
            new["revision"] = number.into();
            Some(new)
        };
        Ok(self
            .client
            .change(self.revisions, None, &key_of(revision), edit)
            .await?)
    }

    /// Deletes the oldest revisions beyond `spec.revisionHistoryLimit` that are not `in_use`.
    ///
    /// # Errors
    /// When one cannot be deleted.
    pub(super) async fn forget_old(
        &self,
        revisions: &Revisions,
        in_use: impl Fn(&Value) -> bool,
    ) -> Result<(), Failure> {
        // A limit below none keeps all.
        let limit = self.owner["spec"]["revisionHistoryLimit"].as_i64().unwrap_or(10);
        let idle = revisions.all.iter().enumerate();
        let idle: Vec<&Value> = idle
            .filter(|(place, revision)| *place != revisions.current && !in_use(revision))
            .map(|(_, revision)| revision)
            .collect();
        let over = idle.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        for revision in &idle[..over] {
            let delete = Delete {
                uid: revision["metadata"]["uid"].as_str().map(str::to_owned),
                ..Delete::default()
            };
            match self.client.delete(self.revisions, &key_of(revision), &delete).await {
                Err(status) if status.code != 404 => return Err(status.into()),
                _ => {}
            }
        }
        Ok(())
    }
}

fn is_owned(object: &Value, owner: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.is_some_and(|owners| owners.iter().any(|one| one["uid"] == owner["uid"]))
}
