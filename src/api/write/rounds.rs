//! The two rounds in which policies and webhooks change an object.

use std::collections::BTreeSet;

use crate::tree::Value;

/// What is known from the first round to the second, in which some are asked again. `K` tells those who are asked apart.
pub(super) struct Rounds<K> {
    is_second: bool,
    /// Asked, and to be asked again should another change the object after them.
    asked: BTreeSet<K>,
    /// To be asked again.
    due: BTreeSet<K>,
    /// The object after the last one.
    last: Option<Value>,
}

impl<K> Default for Rounds<K> {
    fn default() -> Self {
        Self {
            is_second: false,
            asked: BTreeSet::new(),
            due: BTreeSet::new(),
            last: None,
        }
    }
}

impl<K: Ord> Rounds<K> {
    /// Begins the second round, with an object that others may have changed since.
    pub(super) fn begin_second(&mut self, object: &Value) {
        self.is_second = true;
        if self.last.as_ref().is_some_and(|last| last != object) {
            self.changed();
        }
    }

    /// Whether it is the second.
    pub(super) fn is_second(&self) -> bool {
        self.is_second
    }

    /// Whether this one is not asked in this round.
    pub(super) fn skips(&self, key: &K) -> bool {
        self.is_second && !self.due.contains(key)
    }

    /// The object changed: those that were asked before are to be asked again.
    pub(super) fn changed(&mut self) {
        self.due.append(&mut self.asked);
    }

    /// This one was asked, and wants to be asked again should the object change.
    pub(super) fn asked(&mut self, key: K) {
        self.asked.insert(key);
    }

    /// All were asked; this is what they made of the object.
    pub(super) fn end(&mut self, object: &Value) {
        self.last = Some(object.clone());
    }
}
