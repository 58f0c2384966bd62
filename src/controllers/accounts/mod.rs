//! What every namespace has: a ServiceAccount for its Pods, and the certificate by which they know the server; and Secrets with tokens of accounts.

mod authority;
mod default;
mod secrets;

pub(super) use authority::Publisher;
pub(super) use default::DefaultAccounts;
pub(super) use secrets::TokenSecrets;

use super::failure::Failure;
use crate::api::status::Status;
use crate::store::View;

/// Whether a namespace is there and not going: nothing is made in one that goes.
fn is_active(view: &View, namespace: &str) -> Result<bool, Failure> {
    match view.get(NAMESPACES, namespace)? {
        None => Ok(false),
        Some(object) => Ok(!super::metadata::is_deleting(&object)?),
    }
}

/// What somebody else made meanwhile is fine, and what was refused because the namespace goes.
fn made(result: Result<crate::tree::Value, Status>) -> Result<(), Failure> {
    match result {
        Err(status) if status.code == 409 || super::failure::is_terminating(&status) => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

const NAMESPACES: &str = "namespaces";
