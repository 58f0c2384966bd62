//! Whether a Pod suits a node for what the node is, whatever else is on it: what those ask who make a Pod for each node.

use super::class::{Class, Taint};
use super::names::Names;
use super::node::NodeSpec;
use crate::tree::Value;

/// A Pod that is to be on many nodes.
pub(crate) struct Resident {
    class: Class,
    names: Names,
}

/// What a node says to a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// It may come.
    pub(crate) comes: bool,
    /// One that is there may stay.
    pub(crate) stays: bool,
}

impl Resident {
    /// Of a Pod as it is stored.
    pub(crate) fn of(pod: &Value) -> Self {
        let mut names = Names::default();
        Self {
            class: Class::of(pod, &mut names),
            names,
        }
    }

    /// What a node says by its labels and taints.
    pub(crate) fn welcome(&mut self, name: &str, node: &Value) -> Welcome {
        let spec = NodeSpec::of(node, &mut self.names);
        let is_allowed = self.class.allows_node(name, &spec.labels);
        let repels =
            |taint: &Taint, effects: &[&str]| effects.contains(&&*taint.effect) && !self.class.tolerates(taint);
        let none_repels = |effects: &[&str]| !spec.taints.iter().any(|taint| repels(taint, effects));
        Welcome {
            comes: is_allowed && none_repels(&["NoSchedule", "NoExecute"]),
            stays: is_allowed && none_repels(&["NoExecute"]),
        }
    }
}
