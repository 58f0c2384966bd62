//! The order in which a request is looked at before it changes anything, which is that of kube-apiserver:
//!
//! 1. built-in plugins fill in and refuse, then mutating policies and webhooks change the object;
//! 2. defaults, the kind's strategy and its validation (`resources`) are between the two halves;
//! 3. built-in plugins, validating policies and webhooks judge the object as it would be stored; quotas are charged last.
//!
//! Whatever is asked, nothing is locked meanwhile, and nothing is paid for what is not configured.

use std::sync::Arc;

use super::delete_options::DeleteOptions;
use super::quotas::{self, Charged};
use super::rounds::Rounds;
use super::target::Target;
use super::{classes, commit, custom, escalation, object};
use crate::admission::plugins::quota::Charge;
use crate::admission::webhooks::{self, MUTATING, VALIDATING};
use crate::admission::{Attributes, Caller, Denied, Operation, Refused, Request, connection_kind};
use crate::api::audited::Recording;
use crate::api::request::{Query, RequestInfo};
use crate::api::status::{Cause, Status};
use crate::api::{Api, conversion};
use crate::auth::User;
use crate::auth::authorization::{self, Asked, What};
use crate::cel::authorizer::{Authorizer, Question};
use crate::patch::{self, PatchKind};
use crate::resources::scale::{apply_scale, scale_of};
use crate::resources::{self, Refusal, Resource, ResourceRef};
use crate::schema::{FieldValidation, Schema};
use crate::store::View;
use crate::tree::{Value, json};

/// A request on its way through admission.
#[derive(Clone, Copy)]
pub(super) struct Chain<'a> {
    pub api: &'a Api,
    pub resource: &'a ResourceRef,
    pub subresource: &'a str,
    pub operation: Operation,
    pub namespace: Option<&'a str>,
    /// `""` for a name that is to be generated, and for a whole collection.
    pub name: &'a str,
    pub user: &'a User,
    pub dry_run: bool,
    pub options: Options<'a>,
    /// What records the request, if anything does.
    pub audit: Option<&'a Recording>,
}

/// The options of a request, as they came.
#[derive(Clone, Copy)]
pub(super) enum Options<'a> {
    /// Of a connection: they are its object.
    None,
    Query(&'a Query),
    Deletion(&'a DeleteOptions),
}

impl<'a> Chain<'a> {
    /// The chain of a request to create something: an object, or the body of a subresource.
    pub(super) fn of_create(api: &'a Api, info: &'a RequestInfo, name: &'a str, dry_run: bool) -> Self {
        Self {
            api,
            resource: &info.resource,
            subresource: info.subresource_name(),
            operation: Operation::Create,
            namespace: info.namespace.as_deref(),
            name,
            user: &info.user,
            dry_run,
            options: Options::Query(&info.query),
            audit: info.audit.as_deref(),
        }
    }

    /// The chain of a change; `None` where the server itself changes something.
    pub(super) fn of_update(api: &'a Api, target: &'a Target, dry_run: bool) -> Option<Self> {
        let asker = target.asker.as_ref()?;
        Some(Self {
            api,
            resource: &target.resource,
            subresource: target.subresource.unwrap_or(""),
            operation: Operation::Update,
            namespace: target.namespace.as_deref(),
            name: &target.name,
            user: &asker.user,
            dry_run,
            options: Options::Query(&asker.query),
            audit: asker.audit.as_deref(),
        })
    }

    /// The chain of a deletion; `None` where the server itself deletes something.
    pub(super) fn of_delete(api: &'a Api, target: &'a Target, options: &'a DeleteOptions) -> Option<Self> {
        let asker = target.asker.as_ref()?;
        Some(Self {
            operation: Operation::Delete,
            options: Options::Deletion(options),
            name: if asker.collection { "" } else { &target.name },
            ..Self::of_update(api, target, options.dry_run)?
        })
    }

    pub(super) fn request(&self) -> Request<'a> {
        Request {
            resource: self.resource,
            subresource: self.subresource,
            operation: self.operation,
            namespace: self.namespace,
            name: self.name,
            user: Caller {
                name: &self.user.name,
                uid: &self.user.uid,
                groups: &self.user.groups,
                extra: &self.user.extra,
            },
            dry_run: self.dry_run,
        }
    }

    /// Lets plugins, policies and webhooks change the object, which has its defaults and is in the stored shape. Whether one
    /// outside of this program did comes back: whoever asks prepares the object anew then.
    ///
    /// # Errors
    /// What one of them refuses with.
    pub(super) async fn mutate(
        &self,
        object: &mut Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Status> {
        let has_changed = self.alter(object, old, warnings).await?;
        escalation::check(self, object, old)?;
        Ok(has_changed)
    }

    async fn alter(&self, object: &mut Value, old: Option<&Value>, warnings: &mut Vec<String>) -> Result<bool, Status> {
        let view = self.api.reader.store.view();
        self.plug(&view, object, old)?;
        let (policies, hooks) = (!self.api.mutations.is_idle(&view), !webhooks::is_idle(&view, MUTATING));
        if !(policies || hooks) || webhooks::is_exempt(self.resource) {
            return Ok(false);
        }
        let facts = self.facts(&view)?;
        drop(view);
        let (mut ran, mut called) = (Rounds::default(), Rounds::default());
        let mut has_changed = false;
        for is_second in [false, true] {
            if is_second {
                if !has_changed {
                    break;
                }
                // What changed may call for a plugin, a policy or a webhook that had nothing to say before.
                self.plug(&self.api.reader.store.view(), object, old)?;
            }
            if policies {
                if is_second {
                    ran.begin_second(object);
                }
                has_changed |= self.run_mutations(&facts, &mut ran, object, old).await?;
            }
            if hooks {
                if is_second {
                    called.begin_second(object);
                }
                has_changed |= self.call_mutating(&facts, &mut called, object, old, warnings).await?;
            }
        }
        Ok(has_changed)
    }

    fn plug(&self, view: &Arc<View>, object: &mut Value, old: Option<&Value>) -> Result<(), Status> {
        let mutated = self.api.plugins.mutate(view, &self.request(), object, old);
        mutated.map_err(|refused| self.refused(object, refused))
    }

    /// Lets plugins, policies and webhooks judge what would be stored, in the stored shape: no `object` for a deletion, no `old`
    /// for a creation. What it takes of quotas comes back, to be held until it is written.
    ///
    /// # Errors
    /// What one of them refuses with.
    pub(super) async fn validate(
        &self,
        object: Option<&Value>,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<Charged, Status> {
        let view = self.api.reader.store.view();
        let (request, plugins) = (self.request(), &self.api.plugins);
        let named = object.unwrap_or(&Value::Null);
        if let (Some(recording), Some(object)) = (self.audit, object) {
            let told = plugins
                .for_audit(&view, &request, object, old)
                .map_err(Status::damaged)?;
            recording.annotated(told);
        }
        let validated = plugins.validate(&view, &request, object, old, &self.authorizer(), warnings);
        validated.map_err(|refused| self.refused(named, refused))?;
        let hooks = !webhooks::is_idle(&view, VALIDATING);
        let policies = !self.api.policies.is_idle(&view);
        let asks = (hooks || policies) && !webhooks::is_exempt(self.resource);
        let charges = plugins.charges(&view, &request);
        if asks {
            let facts = self.facts(&view)?;
            if policies {
                self.judge(&facts, object, old, warnings).await?;
            }
            drop(view);
            self.call_validating(&facts, object, old, warnings).await?;
        }
        let Some(object) = object.filter(|_| charges) else {
            return Ok(Charged::default());
        };
        let price = |charged: &[Charge]| {
            let view = self.api.reader.store.view();
            let charges = plugins.charge(&view, &request, object, old, charged);
            charges.map_err(|refused| self.refused(object, refused))
        };
        if self.dry_run {
            return price(&[]).map(|_| Charged::default());
        }
        quotas::charge(self.api, self.namespace.unwrap_or(""), price).await
    }

    /// Both halves for a deletion.
    ///
    /// # Errors
    /// What one of them refuses with.
    pub(super) async fn remove(&self, old: &Value, warnings: &mut Vec<String>) -> Result<(), Status> {
        let view = self.api.reader.store.view();
        if !webhooks::is_idle(&view, MUTATING) && !webhooks::is_exempt(self.resource) {
            let facts = self.facts(&view)?;
            drop(view);
            let mut nothing = Value::Null;
            self.call_mutating(&facts, &mut Rounds::default(), &mut nothing, Some(old), warnings)
                .await?;
        }
        self.validate(None, Some(old), warnings).await.map(drop)
    }

    /// Both halves for the body of a subresource that is no part of the object, and for questions.
    ///
    /// # Errors
    /// What one of them refuses with.
    pub(super) async fn admit(&self, body: &mut Value, warnings: &mut Vec<String>) -> Result<(), Status> {
        self.mutate(body, None, warnings).await?;
        self.validate(Some(body), None, warnings).await.map(drop)
    }

    pub(super) fn denied(&self, denied: Denied) -> Status {
        let mut status = self.forbidden(&denied.message);
        status.code = denied.code;
        status.reason = denied.reason;
        if let Some(details) = &mut status.details {
            details.causes.push(Cause {
                message: denied.message,
                ..Cause::default()
            });
        }
        status
    }

    /// What policies and webhooks are told beside the objects.
    fn facts(&self, view: &Arc<View>) -> Result<Facts, Status> {
        let namespace = match self.namespace {
            None => Value::Null,
            Some(name) => match view.get("namespaces", name).map_err(Status::damaged)? {
                Some(found) => classes::read(&found)?,
                None => Value::Null,
            },
        };
        Ok(Facts {
            namespace,
            options: self.options(),
            equivalents: self.equivalents(),
        })
    }

    /// The other versions of the same objects that are served.
    fn equivalents(&self) -> Vec<ResourceRef> {
        let resource = self.resource;
        if resource.storage.is_empty()
            || !self.subresource.is_empty() && resource.subresource(self.subresource).is_none()
        {
            return Vec::new();
        }
        let Some(custom) = &resource.custom else {
            let same = |other: &&Resource| {
                other.storage == resource.storage
                    && (other.group != resource.group || other.version != resource.version)
                    && (self.subresource.is_empty() || other.subresource(self.subresource).is_some())
            };
            return resources::all().iter().filter(same).map(ResourceRef::from).collect();
        };
        let served = self.api.custom.served();
        let others = custom.versions.iter().filter_map(|version| {
            let (_, version) = version.api_version.split_once('/')?;
            served.find(&resource.group, version, &resource.plural)
        });
        others
            .filter(|other| other.version != resource.version)
            .cloned()
            .collect()
    }

    /// The options as an object, `null` for none.
    fn options(&self) -> Value {
        match self.options {
            Options::None => Value::Null,
            Options::Deletion(options) => options.to_value(),
            Options::Query(query) => {
                let kind = match self.operation {
                    Operation::Create => "CreateOptions",
                    _ => "UpdateOptions",
                };
                let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
                if self.dry_run {
                    options["dryRun"] = json!(["All"]);
                }
                for field in ["fieldManager", "fieldValidation"] {
                    if let Some(text) = query.get(field).filter(|text| !text.is_empty()) {
                        options[field] = text.as_ref().into();
                    }
                }
                options
            }
        }
    }

    /// An object as policies and webhooks see it, in that version. `early`: without what the server gives a new object when
    /// everybody has agreed.
    pub(super) async fn shown(
        &self,
        version: &ResourceRef,
        object: Option<&Value>,
        early: bool,
    ) -> Result<Value, Status> {
        let Some(object) = object else {
            return Ok(Value::Null);
        };
        if self.has_own_body() {
            return Ok(object.clone());
        }
        if self.subresource == "scale" {
            return Ok(scale_of(self.resource, object).0);
        }
        let mut object = object::in_version(version, object.clone());
        if resources::custom::is_of_another_version(version, &object) {
            object = conversion::one(self.api, version, object).await?;
        }
        if early && self.operation == Operation::Create {
            let metadata = object::metadata_mut(&mut object);
            for field in ["uid", "creationTimestamp", "generation"] {
                metadata.remove(field);
            }
            if self.name.is_empty() {
                metadata.remove("name");
            }
        }
        Ok(object)
    }

    /// What a webhook's patch makes of the object: `shown` is what it saw. In the stored shape; `None` when it changes nothing.
    ///
    /// # Errors
    /// 500 for a patch that cannot be applied, or makes something else of the object.
    pub(super) fn patched(
        &self,
        webhook: &str,
        version: &ResourceRef,
        object: &Value,
        shown: &Value,
        patch: &[u8],
    ) -> Result<Option<Value>, Status> {
        if self.operation == Operation::Delete {
            let why = format!(
                "admission webhook {webhook:?} attempted to modify the object, which is not supported for this operation"
            );
            return Err(Status::internal(why));
        }
        let patched = self.apply_patch(version, shown, patch)?;
        self.taken(version, object, shown, patched)
    }

    /// `shown` after a JSON patch.
    ///
    /// # Errors
    /// 500 for a patch that cannot be applied, or makes something else of the object.
    pub(super) fn apply_patch(&self, version: &ResourceRef, shown: &Value, patch: &[u8]) -> Result<Value, Status> {
        match schema_of(shown) {
            _ if self.is_custom(version) => {
                let patched = patch::apply_untyped(PatchKind::Json, shown, patch, false);
                custom::applied(version, patched.map_err(Status::internal)?.0)
            }
            Some(schema) => {
                let patched = patch::apply(PatchKind::Json, shown, patch, schema, FieldValidation::Ignore);
                Ok(patched.map_err(Status::internal)?.value)
            }
            None => Ok(patch::apply_untyped(PatchKind::Json, shown, patch, false)
                .map_err(Status::internal)?
                .0),
        }
    }

    /// Whether what is shown is an object of a custom resource.
    pub(super) fn is_custom(&self, version: &ResourceRef) -> bool {
        version.custom.is_some() && !self.has_own_body() && self.subresource != "scale"
    }

    /// The object as it is to be when `value` is to become of `shown`; `None` when that changes nothing.
    pub(super) fn taken(
        &self,
        version: &ResourceRef,
        object: &Value,
        shown: &Value,
        mut value: Value,
    ) -> Result<Option<Value>, Status> {
        if value == *shown {
            return Ok(None);
        }
        if self.has_own_body() {
            return Ok(Some(value));
        }
        if self.subresource == "scale" {
            let scaled = apply_scale(self.resource, object, &value);
            return scaled
                .map(Some)
                .map_err(|refusal| commit::refused(self.resource, self.name, refusal));
        }
        // Who manages what is noted by the server alone.
        let noted = object["metadata"]["managedFields"].clone();
        let metadata = object::metadata_mut(&mut value);
        if noted.is_null() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields", noted);
        }
        let mut stored = resources::to_stored(version, value);
        resources::custom::store(version, &mut stored);
        if let Some(shape) = version.stored_shape() {
            resources::complete(shape, &mut stored);
        }
        Ok(Some(stored))
    }

    /// The object as it is stored, of what a policy or a webhook made of it in its own version.
    ///
    /// # Errors
    /// 500 when a webhook cannot convert it.
    pub(super) async fn settled(&self, object: Value) -> Result<Value, Status> {
        match self.resource.stored_shape() {
            Some(shape) if resources::custom::is_of_another_version(shape, &object) && !self.has_own_body() => {
                conversion::one(self.api, shape, object).await
            }
            _ => Ok(object),
        }
    }

    /// Whether what is sent is another object than the one that the path names.
    fn has_own_body(&self) -> bool {
        self.operation == Operation::Connect || self.operation == Operation::Create && !self.subresource.is_empty()
    }

    pub(super) fn is_deletion(&self) -> bool {
        self.operation == Operation::Delete
    }

    /// Who answers what expressions ask about the user's rights.
    pub(super) fn authorizer(&self) -> Rights<'a> {
        Rights {
            api: self.api,
            user: self.user,
        }
    }

    pub(super) fn forbidden(&self, why: &str) -> Status {
        Status::forbidden(&self.resource.group, &self.resource.plural, self.name, why)
    }

    fn refused(&self, object: &Value, refused: Refused) -> Status {
        let name = match self.name {
            "" if self.operation == Operation::Create => object::generated_name(object),
            name => name,
        };
        match refused {
            Refused::Forbidden(why) => Status::forbidden(&self.resource.group, &self.resource.plural, name, &why),
            Refused::Invalid(faults) => commit::refused(self.resource, name, Refusal::Invalid(faults)),
            Refused::Told { code, reason, message } => {
                let mut status = Status::plain(code, message);
                status.reason = reason;
                status
            }
            Refused::Damaged(damaged) => Status::damaged(damaged),
        }
    }
}

/// What policies and webhooks are told beside the objects.
pub(super) struct Facts {
    /// The object of the namespace, or `null`.
    namespace: Value,
    options: Value,
    equivalents: Vec<ResourceRef>,
}

impl Facts {
    /// The request with its objects, which are in that version.
    pub(super) fn attributes<'a>(
        &'a self,
        request: Request<'a>,
        resource: &'a Resource,
        object: &'a Value,
        old: &'a Value,
    ) -> Attributes<'a> {
        Attributes {
            request,
            resource,
            equivalents: &self.equivalents,
            options: &self.options,
            object,
            old,
            namespace: &self.namespace,
        }
    }

    /// A version that matching found.
    pub(super) fn find(&self, own: &ResourceRef, version: &Resource) -> ResourceRef {
        let same = |other: &&ResourceRef| std::ptr::eq::<Resource>(&raw const ***other, version);
        self.equivalents.iter().find(same).unwrap_or(own).clone()
    }
}

/// Answers what expressions and plugins ask about a user's rights.
pub(super) struct Rights<'a> {
    api: &'a Api,
    user: &'a User,
}

impl Authorizer for Rights<'_> {
    fn check(&self, question: &Question) -> Result<(bool, String), String> {
        let other = question.service_account.as_ref();
        let other = other.map(|(namespace, name)| User::service_account(namespace, name, ""));
        let what = match &question.path {
            Some(path) => What::Path(path),
            None => What::Resource(Asked {
                group: &question.group,
                resource: &question.resource,
                subresource: &question.subresource,
                namespace: &question.namespace,
                name: &question.name,
                // What is escaped may look like a term of its own.
                fields: Some(&*question.field_selector)
                    .filter(|it| !it.contains('\\'))
                    .unwrap_or(""),
            }),
        };
        let asked = authorization::Attributes {
            user: other.as_ref().unwrap_or(self.user),
            verb: &question.verb,
            what,
        };
        let decision = self.api.authorizer.decide(&self.api.reader.store.view(), &asked);
        Ok((decision.is_allowed(), decision.reason()))
    }
}

/// Lets a connection that is to be made (`exec`, `attach`, `portforward`, `proxy`) pass.
///
/// # Errors
/// What plugins, policies or webhooks refuse with.
pub(in crate::api) async fn connect(api: &Api, info: &RequestInfo) -> Result<(), Status> {
    let chain = Chain {
        operation: Operation::Connect,
        options: Options::None,
        ..Chain::of_create(api, info, info.name.as_deref().unwrap_or(""), false)
    };
    // Nobody reads warnings of a connection.
    chain.admit(&mut connect_options(info), &mut Vec::new()).await
}

/// The options of a connection, as an object.
fn connect_options(info: &RequestInfo) -> Value {
    let kind = connection_kind(&info.resource.plural, info.subresource_name());
    let mut options = json!({"kind": kind, "apiVersion": "v1"});
    match kind {
        "PodExecOptions" | "PodAttachOptions" => {
            for flag in ["stdin", "stdout", "stderr", "tty"] {
                if info.query.flag(flag) {
                    options[flag] = true.into();
                }
            }
            if let Some(container) = info.query.get("container").filter(|container| !container.is_empty()) {
                options["container"] = container.as_ref().into();
            }
            let command: Vec<Value> = info.query.all("command").map(|word| word.as_ref().into()).collect();
            if kind == "PodExecOptions" {
                options["command"] = command.into();
            }
        }
        "PodPortForwardOptions" => {
            let ports = info.query.all("ports").filter_map(|port| port.parse::<i64>().ok());
            let ports: Vec<Value> = ports.map(Value::from).collect();
            if !ports.is_empty() {
                options["ports"] = ports.into();
            }
        }
        _ => {
            if let Some(path) = info.query.get("path") {
                options["path"] = path.as_ref().into();
            }
        }
    }
    options
}

/// The schema of an object of a built-in kind.
pub(super) fn schema_of(object: &Value) -> Option<Schema<'static>> {
    let text = |field: &str| object[field].as_str().unwrap_or("");
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    Schema::of(group, version, text("kind"))
}
