//! The order in which a request is looked at before it changes anything, which is that of kube-apiserver:
//!
//! 1. built-in plugins fill in and refuse, then mutating policies and webhooks change the object;
//! 2. defaults, the kind's strategy and its validation (`resources`) are between the two halves;
//! 3. built-in plugins, validating policies and webhooks judge the object as it would be stored; quotas are charged last.
//!
//! Whatever is asked, nothing is locked meanwhile, and nothing is paid for what is not configured.

use std::borrow::Cow;
use std::sync::Arc;

use super::delete_options::DeleteOptions;
use super::object;
use super::target::Target;
use crate::admission::{Attributes, Caller, Operation, Refused, Request, plugins};
use crate::api::Api;
use crate::api::request::{Query, RequestInfo};
use crate::api::status::{Cause, Status};
use crate::auth::User;
use crate::resources::Resource;
use crate::store::View;
use crate::tree::{Value, json};

/// A request on its way through admission.
#[derive(Clone, Copy)]
pub(super) struct Chain<'a> {
    pub api: &'a Api,
    pub resource: &'a Resource,
    pub subresource: &'a str,
    pub operation: Operation,
    pub namespace: Option<&'a str>,
    /// `""` for a name that is to be generated, and for a whole collection.
    pub name: &'a str,
    pub user: &'a User,
    pub dry_run: bool,
    pub options: Options<'a>,
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

    fn request(&self) -> Request<'a> {
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
            },
            dry_run: self.dry_run,
        }
    }

    /// Lets plugins, policies and webhooks change the object, which has its defaults and is in the stored shape. Whether one
    /// outside of this program did comes back: whoever asks prepares the object anew then.
    ///
    /// # Errors
    /// What one of them refuses with.
    #[allow(clippy::unused_async, reason = "webhooks are asked here")]
    pub(super) async fn mutate(
        &self,
        object: &mut Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Status> {
        let view = self.api.reader.store.view();
        plugins::mutate(&view, &self.request(), object, old, warnings).map_err(|refused| self.refused(refused))?;
        Ok(false)
    }

    /// Lets plugins, policies and webhooks judge what would be stored, in the stored shape: no `object` for a deletion, no `old`
    /// for a creation.
    ///
    /// # Errors
    /// What one of them refuses with.
    #[allow(clippy::unused_async, reason = "webhooks are asked here")]
    pub(super) async fn validate(
        &self,
        object: Option<&Value>,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let view = self.api.reader.store.view();
        let request = self.request();
        plugins::validate(&view, &request, object, old, warnings).map_err(|refused| self.refused(refused))?;
        if !self.api.policies.is_idle(&view) {
            warnings.extend(self.judge(&view, object, old)?);
        }
        plugins::charge(&view, &request, object, old).map_err(|refused| self.refused(refused))
    }

    /// Both halves for a deletion.
    ///
    /// # Errors
    /// What one of them refuses with.
    pub(super) async fn remove(&self, old: &Value, warnings: &mut Vec<String>) -> Result<(), Status> {
        self.validate(None, Some(old), warnings).await
    }

    /// Both halves for the body of a subresource that is no part of the object, and for questions.
    ///
    /// # Errors
    /// What one of them refuses with.
    pub(super) async fn admit(&self, body: &mut Value, warnings: &mut Vec<String>) -> Result<(), Status> {
        self.mutate(body, None, warnings).await?;
        self.validate(Some(body), None, warnings).await
    }

    fn judge(&self, view: &Arc<View>, new: Option<&Value>, old: Option<&Value>) -> Result<Vec<String>, Status> {
        let (new, old) = (self.shown(new), self.shown(old));
        let attributes = Attributes {
            request: self.request(),
            options: &self.options(),
            object: &new,
            old: &old,
        };
        let judged = self.api.policies.judge(view, &attributes).map_err(Status::damaged)?;
        judged.map_err(|denied| {
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
        })
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

    /// An object as policies and webhooks see it.
    fn shown<'b>(&self, object: Option<&'b Value>) -> Cow<'b, Value> {
        match object {
            None => Cow::Owned(Value::Null),
            Some(body) if self.has_own_body() => Cow::Borrowed(body),
            Some(object) => Cow::Owned(object::in_version(self.resource, object.clone())),
        }
    }

    /// Whether what is sent is another object than the one that the path names.
    fn has_own_body(&self) -> bool {
        self.operation == Operation::Connect || self.operation == Operation::Create && !self.subresource.is_empty()
    }

    fn forbidden(&self, why: &str) -> Status {
        Status::forbidden(&self.resource.group, &self.resource.plural, self.name, why)
    }

    fn refused(&self, refused: Refused) -> Status {
        match refused {
            Refused::Forbidden(why) => self.forbidden(&why),
            Refused::Told { code, reason, message } => {
                let mut status = Status::plain(code, message);
                status.reason = reason;
                status
            }
            Refused::Damaged(damaged) => Status::damaged(damaged),
        }
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
    let kind = match (&*info.resource.plural, info.subresource_name()) {
        ("pods", "exec") => "PodExecOptions",
        ("pods", "attach") => "PodAttachOptions",
        ("pods", "portforward") => "PodPortForwardOptions",
        ("nodes", _) => "NodeProxyOptions",
        ("services", _) => "ServiceProxyOptions",
        _ => "PodProxyOptions",
    };
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
