//! What looks at a write after its kind's own rules did: validating policies.
//!
//! Rules: <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/>.

mod matching;
mod policies;

pub use policies::Policies;

use crate::resources::Resource;
use crate::tree::Value;

/// A write that is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    /// What is written, in the version of the request.
    pub resource: &'a Resource,
    /// The subresource, or `""`.
    pub subresource: &'a str,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: &'static str,
    /// The namespace, of what lies in one.
    pub namespace: Option<&'a str>,
    /// The object's name.
    pub name: &'a str,
    /// The user's name, its uid, and its groups.
    pub user: (&'a str, &'a str, &'a [String]),
    /// Whether the write is only tried.
    pub dry_run: bool,
    /// The object as it is to be, in the version of the request; `null` for none.
    pub object: &'a Value,
    /// The object as it is, in the version of the request; `null` for none.
    pub old: &'a Value,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The Status' reason: `Invalid`, `Forbidden`, `Unauthorized` or `RequestEntityTooLarge`.
    pub reason: &'static str,
    /// The HTTP status that goes with it.
    pub code: u16,
    /// Which policy says no, and why.
    pub message: String,
}
