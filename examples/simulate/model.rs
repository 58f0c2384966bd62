//! What the store must be, said simply: the writes that were made, in order.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use flatkube::store::Prepared;
use flatkube_format::sidecar::{Pair, Sidecar};

/// Storage resources of the simulated cluster.
pub(crate) const RESOURCES: [&str; 3] = ["pods", "nodes", "leases.coordination.k8s.io"];

/// What an object holds besides its key and revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Body {
    /// Sorted by name.
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) node: String,
    pub(crate) letter: char,
    pub(crate) len: usize,
}

const HEAD: &str = r#"{"metadata":{"resourceVersion":""#;

impl Body {
    /// The stored JSON before and after the digits of the revision.
    fn halves(&self, key: &str) -> (String, String) {
        let mut tail = format!(r#"","uid":"uid-of-{key}","labels":{{"#);
        for (index, (name, value)) in self.labels.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(tail, r#"{comma}"{name}":"{value}""#);
        }
        tail.push_str("}}");
        let value = self.letter.to_string().repeat(self.len);
        let _ = write!(tail, r#","spec":{{"node":"{}"}},"value":"{value}"}}"#, self.node);
        (HEAD.to_owned(), tail)
    }

    /// The JSON that a reader gets.
    pub(crate) fn json(&self, key: &str, revision: u64) -> String {
        let (head, tail) = self.halves(key);
        format!("{head}{revision}{tail}")
    }

    pub(crate) fn prepared(&self, key: &str) -> Prepared {
        let (head, tail) = self.halves(key);
        let metadata_tail = tail.find("}}").expect("labels end") + 2;
        let pair = |name: &str, value: &str| Pair {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let sidecar = Sidecar {
            metadata_start: 12,
            splice: HEAD.len() as u32,
            metadata_tail: metadata_tail as u32,
            uid: format!("uid-of-{key}"),
            labels: self.labels.iter().map(|(name, value)| pair(name, value)).collect(),
            fields: vec![pair("spec.node", &self.node)],
            ..Sidecar::default()
        };
        Prepared {
            json: [head, tail].concat().into_bytes(),
            splice: HEAD.len() as u32,
            sidecar: sidecar.archive(),
        }
    }
}

/// One write that was made.
#[derive(Debug, Clone)]
pub(crate) struct Done {
    pub(crate) revision: u64,
    pub(crate) resource: usize,
    pub(crate) key: String,
    pub(crate) body: Body,
    pub(crate) deleted: bool,
    /// Index of the write that made the version before.
    pub(crate) previous: Option<usize>,
}

/// Live objects of a resource: by key, the index of the write that made them.
pub(crate) type State = BTreeMap<String, usize>;

/// A write's condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    Any,
    Absent,
    Exists,
    At(u64),
    /// It exists and has this UID.
    Uid(String),
}

/// A write to come.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) resource: usize,
    pub(crate) key: String,
    pub(crate) body: Body,
    pub(crate) delete: bool,
    pub(crate) condition: Condition,
}

/// All writes that were made, in order.
#[derive(Debug, Default)]
pub(crate) struct Model {
    first: u64,
    revision: u64,
    /// History before it is gone: a process without syncs ended uncleanly.
    pub(crate) restarted_at: u64,
    done: Vec<Done>,
    /// Indices of the writes of each resource.
    of: [Vec<usize>; RESOURCES.len()],
    now: [State; RESOURCES.len()],
}

impl Model {
    pub(crate) fn new(revision: u64) -> Model {
        Model {
            first: revision,
            revision,
            ..Model::default()
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision of the empty store.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn done(&self, index: usize) -> &Done {
        &self.done[index]
    }

    pub(crate) fn now(&self, resource: usize) -> &State {
        &self.now[resource]
    }

    /// Revisions jumped, and history began anew.
    pub(crate) fn jump(&mut self, revision: u64) {
        self.revision = revision;
        self.restarted_at = revision;
    }

    /// The state of a resource at a revision.
    pub(crate) fn at(&self, resource: usize, revision: u64) -> State {
        if revision >= self.revision {
            return self.now[resource].clone();
        }
        let mut state = State::new();
        for index in self.of[resource].iter().copied() {
            let done = &self.done[index];
            if done.revision > revision {
                break;
            }
            if done.deleted {
                state.remove(&done.key);
            } else {
                state.insert(done.key.clone(), index);
            }
        }
        state
    }

    /// The writes of a resource after a revision.
    pub(crate) fn after(&self, resource: usize, revision: u64) -> impl Iterator<Item = usize> + '_ {
        let of = &self.of[resource];
        let from = of.partition_point(|index| self.done[*index].revision <= revision);
        of[from..].iter().copied()
    }

    /// Makes the write, if its condition holds.
    pub(crate) fn apply(&mut self, step: &Step) -> bool {
        let current = self.now[step.resource].get(&step.key).copied();
        let exists = current.is_some();
        let holds = match &step.condition {
            Condition::Any => true,
            Condition::Absent => !exists,
            Condition::Exists => exists,
            Condition::At(revision) => current.is_some_and(|index| self.done[index].revision == *revision),
            Condition::Uid(uid) => exists && *uid == format!("uid-of-{}", step.key),
        };
        if !holds || (step.delete && !exists) {
            return false;
        }
        self.revision += 1;
        let index = self.done.len();
        self.done.push(Done {
            revision: self.revision,
            resource: step.resource,
            key: step.key.clone(),
            body: step.body.clone(),
            deleted: step.delete,
            previous: current,
        });
        self.of[step.resource].push(index);
        if step.delete {
            self.now[step.resource].remove(&step.key);
        } else {
            self.now[step.resource].insert(step.key.clone(), index);
        }
        true
    }
}
