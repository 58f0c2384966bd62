//! May you: what a caller asks for, and whether it is allowed.
//!
//! Rules: <https://kubernetes.io/docs/reference/access-authn-authz/authorization/>.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `node` | what kubelets may do |
//! | `rules` | one rule of a role: what it matches, what it covers of others |
//! | `rbac` | who has which rules, by roles and bindings |

mod node;
mod rbac;
mod rules;

pub use rules::{Rule, missing};

use std::sync::Arc;

use super::User;
use crate::store::{Damaged, View};
use rbac::{Grant, Rbac};

/// The group whose members may do everything, whatever roles say.
pub const MASTERS: &str = "system:masters";

/// What somebody wants to do.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a User,
    /// The verb: one of the API's for resources, `escalate`, `bind`, `impersonate`, `approve`, `sign`, …; the method in lower case
    /// for paths.
    pub verb: &'a str,
    /// What it is about.
    pub what: What<'a>,
}

/// What a request is about.
#[derive(Debug, Clone, Copy)]
pub enum What<'a> {
    /// A resource.
    Resource(Asked<'a>),
    /// A path that is no resource's, e.g. `/metrics`.
    Path(&'a str),
}

/// A resource that is asked for. Empty texts stand for what is not named.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked<'a> {
    /// API group.
    pub group: &'a str,
    /// Plural name.
    pub resource: &'a str,
    /// Subresource.
    pub subresource: &'a str,
    /// Namespace; of a Namespace its own name.
    pub namespace: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// The field selector of a list, a watch or a deletion of many.
    pub fields: &'a str,
}

/// What an authorizer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may be done.
    Allow,
    /// It may not, whatever others say.
    Deny,
    /// Others are to be asked; when nobody allows it, it may not be done.
    NoOpinion,
}

/// A verdict with its reason.
#[derive(Debug, Clone)]
pub struct Decision {
    /// What is said.
    pub verdict: Verdict,
    why: Why,
}

#[derive(Debug, Clone)]
enum Why {
    Nothing,
    Granted(Grant),
    Text(String),
}

impl Decision {
    fn of(verdict: Verdict) -> Self {
        Self {
            verdict,
            why: Why::Nothing,
        }
    }

    /// Whether it may be done.
    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allow
    }

    /// Why, in upstream's words; may be empty. Costs an allocation.
    pub fn reason(&self) -> String {
        match &self.why {
            Why::Nothing => String::new(),
            Why::Granted(grant) => grant.told(),
            Why::Text(text) => text.clone(),
        }
    }
}

/// Decides who may do what: members of `system:masters` everything, nodes what belongs to their Pods, others what roles give them.
///
/// Roles and bindings are compiled once and again when the log has changed them: some 250 bytes a binding and 300 a role with two
/// rules, 1.2 MiB at 5,000 bindings.
#[derive(Debug, Default)]
pub struct Authorizer {
    rbac: Rbac,
}

impl Authorizer {
    /// Whether something may be done, by the roles and bindings of `view`. A lookup for the user and one for each of its groups,
    /// and the rules that they have; more when these have changed since the last decision.
    pub fn decide(&self, view: &Arc<View>, attributes: &Attributes<'_>) -> Decision {
        if is_master(attributes.user) {
            return Decision::of(Verdict::Allow);
        }
        let decided = || {
            let mut of_node = None;
            if let Some(node) = node::identity(attributes.user) {
                let by_rules = || self.rbac.role_allows(view, node::ROLE, attributes);
                let decision = node::decide(view, attributes, node, by_rules)?;
                if decision.verdict != Verdict::NoOpinion {
                    return Ok(decision);
                }
                of_node = Some(decision.why);
            }
            let mut decision = self.rbac.decide(view, attributes)?;
            // The reasons of all who allow nothing are told.
            if let (Verdict::NoOpinion, Some(Why::Text(text))) = (decision.verdict, of_node) {
                decision.why = match decision.why {
                    Why::Text(other) => Why::Text(format!("{text}\n{other}")),
                    _ => Why::Text(text),
                };
            }
            Ok(decision)
        };
        decided().unwrap_or_else(|damaged: Damaged| Decision {
            verdict: Verdict::NoOpinion,
            why: Why::Text(damaged.to_string()),
        })
    }

    /// The rules that a user has in a namespace (`""`: in the whole cluster), and what could not be resolved.
    ///
    /// # Errors
    /// When roles or bindings cannot be read.
    pub fn rules_of(
        &self,
        view: &Arc<View>,
        user: &User,
        namespace: &str,
    ) -> Result<(Vec<Rule>, Vec<String>), Damaged> {
        let (mut rules, missing) = self.rbac.rules_of(view, user, namespace)?;
        if is_master(user) {
            rules.push(Rule::everything());
            rules.push(Rule::every_path());
        }
        Ok((rules, missing))
    }

    /// The rules of a role: of a namespace, or with `""` of the cluster; `None` if there is none.
    ///
    /// # Errors
    /// When roles cannot be read.
    pub fn rules_of_role(&self, view: &Arc<View>, namespace: &str, name: &str) -> Result<Option<Vec<Rule>>, Damaged> {
        self.rbac.rules_of_role(view, namespace, name)
    }
}

/// Whether a user may do everything.
pub fn is_master(user: &User) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}
