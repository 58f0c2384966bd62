//! ClusterRoles whose rules are gathered from others by their labels.
//!
//! Rule: <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles>.

use std::sync::{Arc, Mutex, PoisonError};

use super::failure::Failure;
use super::queue::Done;
use super::runtime::Controller;
use crate::api::Client;
use crate::resources::{self, ResourceRef};
use crate::store::{Range, ResourceState, Selection, View};
use crate::tree::Value;

const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 256;

/// The controller. Whatever role changes, those that gather are looked at all together, once for each state of the roles: which of
/// them it concerns takes as long to find out.
pub(super) struct Aggregated {
    client: Client,
    resource: ResourceRef,
    /// The state that was looked at last and needed nothing.
    settled: Mutex<Option<ResourceState>>,
}

impl Aggregated {
    /// `None` where there are no such roles.
    pub(super) fn new(client: Client) -> Option<Self> {
        Some(Self {
            client,
            resource: resources::stored(ROLES)?.into(),
            settled: Mutex::new(None),
        })
    }

    /// All roles of the view, in order of their names.
    fn roles(&self, view: &Arc<View>) -> Result<Vec<Value>, Failure> {
        let mut roles = Vec::new();
        let mut listing = view.list(ROLES, Range::default(), &Selection::all());
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                roles.push(self.client.read(&self.resource, &object)?);
            }
        }
        Ok(roles)
    }
}

impl Controller for Aggregated {
    fn resource(&self) -> &'static str {
        ROLES
    }

    async fn look(&self, _: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let is_settled = {
            let settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
            settled.as_ref().is_some_and(|state| state.is_of(&view, ROLES))
        };
        if is_settled {
            return Ok(Done::Settled);
        }
        let roles = self.roles(&view)?;
        for role in roles.iter().filter(|role| !role["aggregationRule"].is_null()) {
            let gathered = gathered(role, &roles);
            if items(&role["rules"]) == gathered.as_slice() {
                continue;
            }
            let name = role["metadata"]["name"].as_str().unwrap_or("");
            let edit = |old: &Value| {
                // One that gathers no more keeps what it has.
                (!old["aggregationRule"].is_null()).then(|| {
                    let mut new = old.clone();
                    new["rules"] = gathered.clone().into();
                    new
                })
            };
            self.client.change(&self.resource, None, name, edit).await?;
        }
        // Every change above brings the role here again.
        *self.settled.lock().unwrap_or_else(PoisonError::into_inner) = Some(view.state(ROLES));
        Ok(Done::Settled)
    }
}

/// The rules of all other roles that a role selects, each once.
fn gathered(role: &Value, roles: &[Value]) -> Vec<Value> {
    let mut rules: Vec<Value> = Vec::new();
    for selector in items(&role["aggregationRule"]["clusterRoleSelectors"]) {
        for other in roles {
            let labels = &other["metadata"]["labels"];
            if other["metadata"]["name"] == role["metadata"]["name"]
                || resources::selects(selector, labels) != Some(true)
            {
                continue;
            }
            for rule in items(&other["rules"]) {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    rules
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], |list| list.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    #[test]
    fn rules_of_selected_roles_are_gathered_once_and_never_a_roles_own() {
        let role = |name: &str, label: &str, rule: &str| json!({"metadata": {"name": name, "labels": {"to": label}}, "rules": [{"verbs": [rule]}]});
        let mut all = role("all", "view", "own");
        all["aggregationRule"] = json!({"clusterRoleSelectors": [
            {"matchLabels": {"to": "view"}},
            {"matchExpressions": [{"key": "to", "operator": "In", "values": ["view", "edit"]}]},
        ]});
        let roles = [
            role("a", "view", "get"),
            all.clone(),
            role("b", "edit", "list"),
            role("c", "none", "watch"),
            role("d", "view", "get"),
        ];
        assert_eq!(
            gathered(&all, &roles),
            [json!({"verbs": ["get"]}), json!({"verbs": ["list"]})]
        );
    }
}
