//! To which level and flow a request belongs.
//!
//! The classes are those of kube-apiserver's suggested configuration (the FlowSchema objects that every server has), fixed
//! here: FlowSchema and PriorityLevelConfiguration objects are stored and shown, but not consulted. A flow is a user
//! within a level, so that, for example, the leases of a node never wait behind its own lists.

use super::super::request::Verb;
use crate::auth::User;
use crate::resources::Resource;

/// A class of requests, named as upstream's FlowSchema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Class {
    /// Never waits.
    Exempt,
    /// Leader election of the scheduler and the controller manager.
    SystemLeaderElection,
    /// Leader election of controllers in kube-system.
    WorkloadLeaderElection,
    /// What keeps a node alive: its Node and its lease.
    SystemNodeHigh,
    /// Everything else that nodes do.
    SystemNodes,
    /// The controller manager.
    KubeControllerManager,
    /// The scheduler.
    KubeScheduler,
    /// Service accounts of kube-system.
    KubeSystemServiceAccounts,
    /// Other service accounts.
    ServiceAccounts,
    /// Everybody else who has credentials.
    GlobalDefault,
    /// Callers without credentials: one flow for all of them.
    CatchAll,
}

pub(super) const CLASSES: [Class; 11] = [
    Class::Exempt,
    Class::SystemLeaderElection,
    Class::WorkloadLeaderElection,
    Class::SystemNodeHigh,
    Class::SystemNodes,
    Class::KubeControllerManager,
    Class::KubeScheduler,
    Class::KubeSystemServiceAccounts,
    Class::ServiceAccounts,
    Class::GlobalDefault,
    Class::CatchAll,
];

impl Class {
    /// Upstream's names: of the FlowSchema, of its priority level; and how often a flow of the class gets the server's time
    /// against one of the catch-all class.
    fn facts(self) -> (&'static str, &'static str, u32) {
        match self {
            Class::Exempt => ("exempt", "exempt", 1),
            Class::SystemLeaderElection => ("system-leader-election", "leader-election", 32),
            Class::WorkloadLeaderElection => ("workload-leader-election", "leader-election", 32),
            Class::SystemNodeHigh => ("system-node-high", "node-high", 32),
            Class::SystemNodes => ("system-nodes", "system", 16),
            Class::KubeControllerManager => ("kube-controller-manager", "workload-high", 16),
            Class::KubeScheduler => ("kube-scheduler", "workload-high", 16),
            Class::KubeSystemServiceAccounts => ("kube-system-service-accounts", "workload-high", 16),
            Class::ServiceAccounts => ("service-accounts", "workload-low", WEIGHT_USUAL),
            Class::GlobalDefault => ("global-default", "global-default", WEIGHT_USUAL),
            Class::CatchAll => ("catch-all", "catch-all", 1),
        }
    }

    pub(super) fn schema(self) -> &'static str {
        self.facts().0
    }

    pub(super) fn level(self) -> &'static str {
        self.facts().1
    }

    pub(super) fn weight(self) -> u32 {
        self.facts().2
    }
}

/// The weight of a flow of an ordinary user.
pub(super) const WEIGHT_USUAL: u32 = 4;

/// What of a request decides its class.
pub(super) struct Asked<'a> {
    pub(super) user: &'a User,
    /// What it is about, unless it is no resource.
    pub(super) resource: Option<(&'a Resource, Verb)>,
}

/// The class of a request.
pub(super) fn class(asked: &Asked<'_>) -> Class {
    const ACCOUNT: &str = "system:serviceaccount:";
    let Asked { user, resource } = asked;
    let is_in = |group: &str| user.groups.iter().any(|member| member == group);
    if is_in("system:masters") {
        return Class::Exempt;
    }
    // Only names of Kubernetes' own begin so.
    let Some(system) = user.name.strip_prefix("system:") else {
        return if user.is_anonymous() {
            Class::CatchAll
        } else {
            Class::GlobalDefault
        };
    };
    let is_lease = |resource: &Resource| resource.group == "coordination.k8s.io" && resource.plural == "leases";
    let is_core =
        |resource: &Resource, plurals: &[&str]| resource.group.is_empty() && plurals.contains(&&*resource.plural);
    let elects = |verb: Verb| matches!(verb, Verb::Get | Verb::Create | Verb::Update);
    if user.is_anonymous() {
        return Class::CatchAll;
    }
    if let Some(account) = user.name.strip_prefix(ACCOUNT) {
        if !account.starts_with("kube-system:") {
            return Class::ServiceAccounts;
        }
        return match resource {
            Some((resource, verb))
                if elects(*verb) && (is_lease(resource) || is_core(resource, &["endpoints", "configmaps"])) =>
            {
                Class::WorkloadLeaderElection
            }
            _ => Class::KubeSystemServiceAccounts,
        };
    }
    let is_elected = resource.is_some_and(|(resource, verb)| elects(verb) && is_lease(resource));
    match system {
        "kube-controller-manager" | "kube-scheduler" if is_elected => Class::SystemLeaderElection,
        "kube-controller-manager" => Class::KubeControllerManager,
        "kube-scheduler" => Class::KubeScheduler,
        _ if is_in("system:nodes") => match resource {
            Some((resource, _)) if is_lease(resource) || is_core(resource, &["nodes"]) => Class::SystemNodeHigh,
            _ => Class::SystemNodes,
        },
        _ => Class::GlobalDefault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources;

    fn found(name: &str, groups: &[&str], resource: Option<(&str, Verb)>) -> Class {
        let user = User::authenticated(name, "", groups.iter().map(|group| (*group).to_owned()).collect());
        let resource = resource.map(|(qualified, verb)| {
            let resource = resources::all()
                .iter()
                .find(|resource| resource.qualified() == qualified);
            (resource.expect("a resource of that name"), verb)
        });
        class(&Asked { user: &user, resource })
    }

    #[test]
    fn requests_are_told_apart_as_upstreams_suggested_configuration_does() {
        let leases = Some(("leases.coordination.k8s.io", Verb::Update));
        let pods = Some(("pods", Verb::List));
        let nodes: &[&str] = &["system:nodes"];
        for (name, groups, resource, expected) in [
            ("alice", &[][..], pods, Class::GlobalDefault),
            ("alice", &["system:masters"][..], pods, Class::Exempt),
            ("system:node:n1", nodes, pods, Class::SystemNodes),
            ("system:node:n1", nodes, leases, Class::SystemNodeHigh),
            (
                "system:node:n1",
                nodes,
                Some(("nodes", Verb::Patch)),
                Class::SystemNodeHigh,
            ),
            ("system:kube-scheduler", &[], pods, Class::KubeScheduler),
            ("system:kube-scheduler", &[], leases, Class::SystemLeaderElection),
            ("system:serviceaccount:team:robot", &[], leases, Class::ServiceAccounts),
            (
                "system:serviceaccount:kube-system:dns",
                &[],
                pods,
                Class::KubeSystemServiceAccounts,
            ),
            (
                "system:serviceaccount:kube-system:dns",
                &[],
                leases,
                Class::WorkloadLeaderElection,
            ),
            ("system:somebody", &[], None, Class::GlobalDefault),
        ] {
            assert_eq!(found(name, groups, resource), expected, "{name} {resource:?}");
        }
        let user = User::anonymous();
        let asked = Asked {
            user: &user,
            resource: None,
        };
        assert_eq!(class(&asked), Class::CatchAll);
    }

    #[test]
    fn classes_stand_in_their_table_at_their_number() {
        for (index, class) in CLASSES.iter().enumerate() {
            assert_eq!(*class as usize, index);
        }
    }
}
