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
    Refused(Status),
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
        for hook in hooks.iter() {
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
                Outcome::Refused(status) => return Err(status),
                Outcome::Skipped => None,
                Outcome::Agreed(verdict) => Some(verdict),
            };
            if let Some(verdict) = verdict {
                warnings.extend(verdict.warnings);
                if let Some(patch) = verdict.patch {
                    let patched = self.patched(&hook.name, &version, object, &shown, &patch)?;
                    if let Some(patched) = patched {
                        *object = self.settled(patched).await?;
                        has_changed = true;
                        rounds.changed();
                    }
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
            answers.push(None);
            calls.spawn(async move { (at, asked.call(&hook, operation, false).await) });
        }
        while let Some(done) = calls.join_next().await {
            let (at, outcome) = done.map_err(Status::internal)?;
            answers[at] = Some(outcome);
        }
        let mut refusal = Ok(());
        for answer in answers.into_iter().flatten() {
            match answer {
                Outcome::Agreed(verdict) => warnings.extend(verdict.warnings),
                Outcome::Skipped => {}
                Outcome::Refused(status) => refusal = refusal.and(Err(status)),
            }
        }
        refusal
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
                refusal: Some(said), ..
            }) => {
                let status = rejection(&hook.name, &said);
                counted.ended(Some(("no_error", status.code)), false);
                Outcome::Refused(status)
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
                    Outcome::Refused(Status::internal(why))
                }
            }
        }
    }
}
