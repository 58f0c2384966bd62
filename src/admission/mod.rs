//! What looks at requests before they change anything: built-in plugins, policies and webhooks. The order in which they are asked
//! is that of kube-apiserver and stands in `docs/admission.md`; `api::write::admission` keeps it.
//!
//! Rules: <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/>,
//! <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/>.

mod expressions;
mod judging;
mod matching;
mod mutations;
pub mod plugins;
mod policies;
pub mod webhooks;

pub use judging::Remarks;
pub use mutations::Change;
pub use policies::{Family, Invocation, Policies};

use std::collections::BTreeMap;

use crate::resources::{FieldError, Resource, ResourceRef};
use crate::store::Damaged;
use crate::tree::Value;

/// What is done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// It is new.
    Create,
    /// It changes.
    Update,
    /// It goes.
    Delete,
    /// A connection is made to what it stands for.
    Connect,
}

impl Operation {
    /// The word of rules and reviews.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// The name.
    pub name: &'a str,
    /// The uid, or `""`.
    pub uid: &'a str,
    /// All groups.
    pub groups: &'a [String],
    /// What else is known.
    pub extra: &'a BTreeMap<String, Vec<String>>,
}

/// A request that is looked at, but for its objects.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What is written, in the version of the request.
    pub resource: &'a Resource,
    /// The subresource, or `""`.
    pub subresource: &'a str,
    /// What is done.
    pub operation: Operation,
    /// The namespace, of what lies in one.
    pub namespace: Option<&'a str>,
    /// The object's name; `""` for one that is to be generated, and for a whole collection.
    pub name: &'a str,
    /// Who asks.
    pub user: Caller<'a>,
    /// Whether it is only tried.
    pub dry_run: bool,
}

/// A request as a policy or a webhook sees it.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    /// What is asked for.
    pub request: Request<'a>,
    /// The version that the objects are shown in: that of the request, or another one that was asked for.
    pub resource: &'a Resource,
    /// Other versions of the same objects that are served.
    pub equivalents: &'a [ResourceRef],
    /// Its options, `null` for none.
    pub options: &'a Value,
    /// The object as it is to be; `null` for none.
    pub object: &'a Value,
    /// The object as it is; `null` for none.
    pub old: &'a Value,
    /// The object of the namespace that it lies in; `null` for none.
    pub namespace: &'a Value,
}

/// Why a request is refused by a plugin.
#[derive(Debug)]
pub enum Refused {
    /// 403; the message begins with the object: `pods "a" is forbidden: `.
    Forbidden(String),
    /// Another error.
    Told {
        /// The HTTP status.
        code: u16,
        /// The Status' reason.
        reason: &'static str,
        /// The whole message.
        message: String,
    },
    /// 422: fields that break rules.
    Invalid(Vec<FieldError>),
    /// The store could not be read.
    Damaged(Damaged),
}

impl From<Damaged> for Refused {
    fn from(damaged: Damaged) -> Self {
        Refused::Damaged(damaged)
    }
}

/// A refusal of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The Status' reason: `Invalid`, `Forbidden`, `Unauthorized` or `RequestEntityTooLarge`.
    pub reason: &'static str,
    /// The HTTP status that goes with it.
    pub code: u16,
    /// Which policy says no, and why.
    pub message: String,
}

/// The kind of the options of a connection, which are what admission is shown.
pub fn connection_kind(plural: &str, subresource: &str) -> &'static str {
    match (plural, subresource) {
        ("pods", "exec") => "PodExecOptions",
        ("pods", "attach") => "PodAttachOptions",
        ("pods", "portforward") => "PodPortForwardOptions",
        ("nodes", _) => "NodeProxyOptions",
        ("services", _) => "ServiceProxyOptions",
        _ => "PodProxyOptions",
    }
}
