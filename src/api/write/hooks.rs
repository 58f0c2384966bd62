//! Webhooks are asked: mutating ones one after the other, validating ones at once.

use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinSet;

use super::admission::{Chain, Facts};
use super::rounds::Rounds;
use crate::admission::webhooks::{self, MUTATING, VALIDATING, Verdict, Webhook};
use crate::api::status::Status;
use crate::api::webhooks::{Call, Counted, rejection};
use crate::store::View;
use crate::tree::Value;

/// What a call came to.
enum Outcome {
    Agreed(Verdict),
    /// It could not be asked, and that stops nobody.
    Skipped,
    /// With what it notes for the audit log.
    Refused(Status, Vec<(String, String)>),
}

impl Chain<'_> {
    /// Asks the mutating webhooks that the request is about. Whether one changed the object comes back.
    ///
    /// # Errors
    /// The first refusal.
    pub(super) async fn call_mutating(
        &self,
        facts: &Facts,
        rounds: &mut Rounds<(String, usize)>,
        object: &mut Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Status> {
        let view = self.api.reader.store.view();
        if webhooks::is_idle(&view, MUTATING) {
            return Ok(false);
        }
        let hooks = self.api.mutating.all(&view, MUTATING)?;
        drop(view);
        let mut has_changed = false;
        for (index, hook) in hooks.iter().enumerate() {
            let place = (u8::from(rounds.is_second()), index);
            if rounds.skips(&hook.place) {
                continue;
            }
            let deletes = self.is_deletion();
            let present = (!deletes).then_some(&*object);
            let Some(asked) = self.asked(facts, hook, present, old, true).await? else {
                continue;
            };
            let (version, shown) = (asked.version.clone(), asked.object.clone());
            let operation = self.operation.as_str();
            let verdict = match asked.call(hook, operation, true).await {
                Outcome::Refused(status, annotations) => {
                    self.note_webhook(hook, annotations);
                    return Err(status);
                }
                Outcome::Skipped => {
                    self.note_open("mutating", place, hook);
                    None
                }
                Outcome::Agreed(verdict) => Some(verdict),
            };
            if let Some(mut verdict) = verdict {
                self.note_webhook(hook, std::mem::take(&mut verdict.annotations));
                let mut is_patched = false;
                warnings.extend(verdict.warnings);
                if let Some(patch) = verdict.patch {
                    let patched = self.patched(&hook.name, &version, object, &shown, &patch)?;
                    if let Some(patched) = patched {
                        *object = self.settled(patched).await?;
                        has_changed = true;
                        is_patched = true;
                        rounds.changed();
                    }
                    self.note_patch(place, hook, is_patched.then_some(&*patch));
                } else {
                    self.note_patch(place, hook, None);
                }
            }
            if hook.is_asked_again() {
                rounds.asked(hook.place.clone());
            }
        }
        rounds.end(object);
        Ok(has_changed)
    }

    /// Asks the validating webhooks that the request is about, all at once.
    ///
    /// # Errors
    /// The refusal of the first that refuses, in the order of their configurations.
    pub(super) async fn call_validating(
        &self,
        facts: &Facts,
        object: Option<&Value>,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let view = self.api.reader.store.view();
        if webhooks::is_idle(&view, VALIDATING) {
            return Ok(());
        }
        let hooks = self.api.validating.all(&view, VALIDATING)?;
        drop(view);
        let mut calls = JoinSet::new();
        let mut answers = Vec::new();
        let operation = self.operation.as_str();
        for hook in hooks.iter() {
            let Some(asked) = self.asked(facts, hook, object, old, false).await? else {
                continue;
            };
            let (at, hook) = (answers.len(), hook.clone());
            answers.push((hook.clone(), None));
            calls.spawn(async move { (at, asked.call(&hook, operation, false).await) });
        }
        while let Some(done) = calls.join_next().await {
            let (at, outcome) = done.map_err(Status::internal)?;
            answers[at].1 = Some(outcome);
        }
        let mut refusal = Ok(());
        for (index, (hook, answer)) in answers.into_iter().enumerate() {
            let Some(answer) = answer else { continue };
            match answer {
                Outcome::Agreed(verdict) => {
                    warnings.extend(verdict.warnings);
                    self.note_webhook(&hook, verdict.annotations);
                }
                Outcome::Skipped => self.note_open("validating", (0, index), &hook),
                Outcome::Refused(status, annotations) => {
                    self.note_webhook(&hook, annotations);
                    refusal = refusal.and(Err(status));
                }
            }
        }
        refusal
    }

    /// Tells the audit log what a webhook has to say.
    fn note_webhook(&self, hook: &Webhook, annotations: Vec<(String, String)>) {
        if let Some(recording) = self.audit {
            let keyed = annotations
                .into_iter()
                .map(|(key, value)| (format!("{}/{key}", hook.name), value));
            recording.annotated(keyed);
        }
    }

    /// Tells the audit log that a request went on although a webhook could not be asked.
    fn note_open(&self, kind: &str, (round, index): (u8, usize), hook: &Webhook) {
        if let Some(recording) = self.audit {
            let key = format!("failed-open.{kind}.webhook.admission.k8s.io/round_{round}_index_{index}");
            recording.annotate(key, hook.name.as_str());
        }
    }

    /// Tells the audit log whether a mutating webhook changed the object, and where requests are told, how.
    fn note_patch(&self, (round, index): (u8, usize), hook: &Webhook, patch: Option<&[u8]>) {
        let Some(recording) = self.audit else {
            return;
        };
        let text = |text: &str| Value::from(text).to_json();
        let (configuration, name) = (text(&hook.place.0), text(&hook.name));
        let told = format!(
            "{{\"configuration\":{configuration},\"webhook\":{name},\"mutated\":{}}}",
            patch.is_some()
        );
        recording.annotate(
            format!("mutation.webhook.admission.k8s.io/round_{round}_index_{index}"),
            told,
        );
        if let Some(patch) = patch.filter(|_| recording.tells_requests()) {
            let told = format!(
                "{{\"configuration\":{configuration},\"webhook\":{name},\"patch\":{},\"patchType\":\"JSONPatch\"}}",
                String::from_utf8_lossy(patch)
            );
            recording.annotate(
                format!("patch.webhook.admission.k8s.io/round_{round}_index_{index}"),
                told,
            );
        }
    }

    /// The question to a webhook; `None` when the request is none of its business.
    async fn asked(
        &self,
        facts: &Facts,
        hook: &Webhook,
        object: Option<&Value>,
        old: Option<&Value>,
        mutating: bool,
    ) -> Result<Option<Asked>, Status> {
        // Selectors look at labels, which are the same in every version.
        let request = self.request();
        let first = facts.attributes(
            request,
            self.resource,
            object.unwrap_or(&Value::Null),
            old.unwrap_or(&Value::Null),
        );
        let Some(version) = hook.version(&first).map(|version| facts.find(self.resource, version)) else {
            return Ok(None);
        };
        let object = self.shown(&version, object, mutating).await?;
        let old = self.shown(&version, old, false).await?;
        let attributes = facts.attributes(request, &version, &object, &old);
        let applies = hook.applies(&attributes, &self.authorizer());
        if !applies.map_err(|why| self.forbidden(&why))? {
            return Ok(None);
        }
        if self.dry_run && !hook.takes_dry_runs() {
            let why = format!("admission webhook {:?} does not support dry run", hook.name);
            return Err(Status::bad_request(why));
        }
        let view: Arc<View> = self.api.reader.store.view();
        let uid = uuid::Uuid::new_v4().to_string();
        let body = webhooks::review(&attributes, &uid);
        Ok(Some(Asked {
            call: Call::of(self.api, &view, hook),
            body,
            uid,
            object,
            version,
        }))
    }
}

/// A question to a webhook.
struct Asked {
    call: Call,
    body: Vec<u8>,
    uid: String,
    /// The object that it is shown, in that version.
    object: Value,
    version: crate::resources::ResourceRef,
}

impl Asked {
    async fn call(self, hook: &Webhook, operation: &'static str, mutating: bool) -> Outcome {
        let counted = Counted {
            name: &hook.name,
            kind: if mutating { "admit" } else { "validating" },
            operation,
            begun: Instant::now(),
        };
        let answer = self.call.make(self.body).await;
        let verdict = answer.and_then(|answer| webhooks::verdict(&answer, &self.uid, mutating));
        match verdict {
            Ok(Verdict {
                refusal: Some(said),
                annotations,
                ..
            }) => {
                let status = rejection(&hook.name, &said);
                counted.ended(Some(("no_error", status.code)), false);
                Outcome::Refused(status, annotations)
            }
            Ok(verdict) => {
                counted.ended(None, false);
                Outcome::Agreed(verdict)
            }
            Err(why) => {
                counted.ended(Some(("calling_webhook_error", 503)), hook.fails_open());
                let why = format!("failed calling webhook {:?}: {why}", hook.name);
                if hook.fails_open() {
                    tracing::warn!("{why}; the request goes on");
                    Outcome::Skipped
                } else {
                    Outcome::Refused(Status::internal(why), Vec::new())
                }
            }
        }
    }
}
