//! Nobody gives more than is held: what a role may be made of, and which roles may be bound, by whom.
//!
//! Rule: <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping>.

use std::sync::Arc;

use super::admission::Chain;
use crate::api::status::Status;
use crate::auth::authorization::{Asked, Attributes, Rule, What, is_master, missing};
use crate::store::View;
use crate::tree::Value;

/// The group of roles and bindings.
const GROUP: &str = "rbac.authorization.k8s.io";

/// Refuses a role with rules, or a binding to a role, that give what the asker does not have and is not allowed to give.
///
/// # Errors
/// 403 with the rights that are missing; 404 for a binding to a role that is not there.
pub(super) fn check(chain: &Chain<'_>, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    if chain.resource.group != GROUP || is_master(chain.user) || old.is_some_and(|old| only_garbage(old, object)) {
        return Ok(());
    }
    let view = chain.api.reader.store.view();
    match &*chain.resource.plural {
        "roles" | "clusterroles" => role(chain, &view, object, old),
        "rolebindings" | "clusterrolebindings" => binding(chain, &view, object),
        _ => Ok(()),
    }
}

fn role(chain: &Chain<'_>, view: &Arc<View>, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    // The path of a creation names nothing.
    let named = old.map_or("", |_| chain.name);
    let is_same = |field: &str| old.is_some_and(|old| old[field] == object[field]);
    if is_same("rules") && is_same("aggregationRule") || may(chain, view, "escalate", &chain.resource.plural, named) {
        return Ok(());
    }
    held(chain, view, &rules(object))?;
    let gathers = |role: &Value| !role["aggregationRule"].is_null();
    if gathers(object) || old.is_some_and(gathers) {
        let everything = [Rule::everything(), Rule::every_path()];
        held(chain, view, &everything)
            .map_err(|_| refused(chain, "must have cluster-admin privileges to use an aggregationRule"))?;
    }
    Ok(())
}

fn binding(chain: &Chain<'_>, view: &Arc<View>, object: &Value) -> Result<(), Status> {
    let text = |field: &str| object["roleRef"][field].as_str().unwrap_or("");
    let (plural, namespace) = match text("kind") {
        "ClusterRole" => ("clusterroles", ""),
        "Role" => ("roles", chain.namespace.unwrap_or("")),
        // The kind's rules refuse it.
        _ => return Ok(()),
    };
    let name = text("name");
    if may(chain, view, "bind", plural, name) {
        return Ok(());
    }
    let found = chain.api.authorizer.rules_of_role(view, namespace, name);
    match found.map_err(Status::damaged)? {
        Some(rules) => held(chain, view, &rules),
        None => Err(Status::not_found(GROUP, &chain.resource.plural, name)),
    }
}

/// Whether the asker has a verb on a role.
fn may(chain: &Chain<'_>, view: &Arc<View>, verb: &str, plural: &str, name: &str) -> bool {
    let attributes = Attributes {
        user: chain.user,
        verb,
        what: What::Resource(Asked {
            group: GROUP,
            resource: plural,
            namespace: chain.namespace.unwrap_or(""),
            name,
            ..Asked::default()
        }),
    };
    chain.api.authorizer.decide(view, &attributes).is_allowed()
}

/// Whether the asker has all of these rights.
fn held(chain: &Chain<'_>, view: &Arc<View>, wanted: &[Rule]) -> Result<(), Status> {
    let namespace = chain.namespace.unwrap_or("");
    let own = chain.api.authorizer.rules_of(view, chain.user, namespace);
    let (own, unresolved) = own.map_err(Status::damaged)?;
    let lacking = missing(&own, wanted);
    if lacking.is_empty() {
        return Ok(());
    }
    let user = chain.user;
    let groups: Vec<String> = user.groups.iter().map(|group| format!("{group:?}")).collect();
    let mut why = format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        groups.join(" "),
        lacking.join("\n")
    );
    if !unresolved.is_empty() {
        why = format!("{why}; resolution errors: [{}]", unresolved.join(", "));
    }
    Err(refused(chain, &why))
}

fn refused(chain: &Chain<'_>, why: &str) -> Status {
    Status::forbidden(GROUP, &chain.resource.plural, chain.name, why)
}

/// Whether nothing changes but what the garbage collector changes.
fn only_garbage(old: &Value, new: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in ["ownerReferences", "finalizers", "managedFields"] {
                metadata.remove(field);
            }
        }
        object
    };
    without(old) == without(new)
}

fn rules(role: &Value) -> Vec<Rule> {
    serde_json::from_str(&role["rules"].to_string()).unwrap_or_default()
}
