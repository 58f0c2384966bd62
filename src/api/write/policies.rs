//! Policies are run: mutating ones one after the other, each seeing what those before it made; then validating ones.

use super::admission::{Chain, Facts, schema_of};
use super::custom;
use super::manager::typed;
use super::rounds::Rounds;
use crate::admission::{Change, Invocation, Remarks};
use crate::api::status::Status;
use crate::patch::apply;
use crate::resources::{self, ResourceRef};
use crate::schema::{self, FieldValidation};
use crate::tree::Value;

impl Chain<'_> {
    /// Lets validating policies judge.
    ///
    /// # Errors
    /// The first refusal.
    pub(super) async fn judge(
        &self,
        facts: &Facts,
        object: Option<&Value>,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let view = self.api.reader.store.view();
        let (shown, before) = (object.unwrap_or(&Value::Null), old.unwrap_or(&Value::Null));
        let first = facts.attributes(self.request(), self.resource, shown, before);
        let invocations = self
            .api
            .policies
            .invocations(&view, &first, &|version, kind| self.kind(version, kind));
        drop(view);
        let mut remarks = Remarks::default();
        for invocation in invocations.map_err(Status::damaged)? {
            let version = facts.find(self.resource, invocation.resource);
            let shown = self.shown(&version, object, false).await?;
            let before = self.shown(&version, old, false).await?;
            let attributes = facts.attributes(self.request(), &version, &shown, &before);
            let judged = invocation.judge(&attributes, &self.authorizer(), &mut remarks);
            if let Err(denied) = judged {
                self.note(remarks);
                return Err(self.denied(denied));
            }
        }
        warnings.append(&mut remarks.warnings);
        self.note(remarks);
        Ok(())
    }

    /// Tells the audit log what policies have to say.
    fn note(&self, remarks: Remarks) {
        if let Some(recording) = self.audit {
            recording.annotated(remarks.for_audit());
        }
    }

    /// Lets mutating policies change the object, which is in the stored shape. Whether one did comes back.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub(super) async fn run_mutations(
        &self,
        facts: &Facts,
        rounds: &mut Rounds<(String, usize, String)>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<bool, Status> {
        let view = self.api.reader.store.view();
        let original = object.clone();
        let before = old.unwrap_or(&Value::Null);
        let first = facts.attributes(self.request(), self.resource, &original, before);
        let invocations = self
            .api
            .mutations
            .invocations(&view, &first, &|version, kind| self.kind(version, kind));
        drop(view);
        let mut has_changed = false;
        for invocation in invocations.map_err(Status::damaged)? {
            let key = invocation.key();
            if rounds.skips(&key) {
                continue;
            }
            if self.run_policy(facts, &invocation, object, old).await? {
                has_changed = true;
                rounds.changed();
            }
            if invocation.is_run_again() {
                rounds.asked(key);
            }
        }
        rounds.end(object);
        Ok(has_changed)
    }

    async fn run_policy(
        &self,
        facts: &Facts,
        invocation: &Invocation<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<bool, Status> {
        let version = facts.find(self.resource, invocation.resource);
        let before = self.shown(&version, old, false).await?;
        let mut has_changed = false;
        for at in 0..invocation.mutations() {
            let shown = self.shown(&version, Some(&*object), true).await?;
            let attributes = facts.attributes(self.request(), &version, &shown, &before);
            let changed = invocation
                .change(at, &attributes, &self.authorizer())
                .and_then(|change| match change {
                    None => Ok(None),
                    Some(change) => self.changed(&version, object, &shown, change),
                });
            match changed {
                Ok(None) => {}
                Ok(Some(changed)) => {
                    *object = self.settled(changed).await?;
                    has_changed = true;
                }
                Err(wrong) => {
                    if let Some(denied) = invocation.failed(&wrong) {
                        return Err(self.denied(denied));
                    }
                }
            }
        }
        Ok(has_changed)
    }

    /// What a change makes of the object, as [`Chain::taken`] has it.
    fn changed(
        &self,
        version: &ResourceRef,
        object: &Value,
        shown: &Value,
        change: Change,
    ) -> Result<Option<Value>, String> {
        let value = match change {
            Change::Patch(patch) => self
                .apply_patch(version, shown, patch.to_string().as_bytes())
                .map_err(|status| status.message)?,
            Change::Configuration(configuration) => self.merged(version, shown, configuration)?,
        };
        self.taken(version, object, shown, value)
            .map_err(|status| status.message)
    }

    /// The object with what a configuration names.
    fn merged(&self, version: &ResourceRef, shown: &Value, mut configuration: Value) -> Result<Value, String> {
        if !configuration.is_object() {
            return Err("unsupported return type from ApplyConfiguration expression".into());
        }
        for field in ["apiVersion", "kind"] {
            configuration[field] = shown[field].clone();
        }
        let built_in = schema_of(shown);
        let form = match built_in {
            _ if self.is_custom(version) => typed(version),
            schema => schema.map(Into::into),
        };
        let form = form.ok_or("there is no schema to apply it by")?;
        let merged = apply::merged(form, shown, &configuration)
            .map_err(|wrong| format!("error applying patch: invalid ApplyConfiguration: {wrong}"))?;
        match built_in {
            _ if self.is_custom(version) => custom::applied(version, merged).map_err(|status| status.message),
            Some(schema) => {
                let checked = schema::check(merged, schema, FieldValidation::Ignore, false);
                checked
                    .map(|decoded| decoded.value)
                    .map_err(|misfit| misfit.to_string())
            }
            None => Ok(merged),
        }
    }

    /// A kind that policies have parameters of.
    fn kind(&self, api_version: &str, kind: &str) -> Option<ResourceRef> {
        let is = |resource: &resources::Resource| *resource.kind == *kind && resource.api_version() == api_version;
        if let Some(found) = resources::all().iter().find(|resource| is(resource)) {
            return Some(found.into());
        }
        let (group, version) = api_version.split_once('/')?;
        let served = self.api.custom.served();
        let mut named = served.version(group, version)?.values();
        named.find(|resource| is(resource)).cloned()
    }
}
