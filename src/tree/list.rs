//! Lists.

use std::ops::{Deref, DerefMut};

use ecow::EcoVec;

use super::Value;

/// A list of values; copied when it is changed while it is shared.
#[derive(Clone, Debug, Default)]
pub struct List(EcoVec<Value>);

impl List {
    /// An empty list.
    pub const fn new() -> List {
        List(EcoVec::new())
    }

    /// An empty list with room for `capacity` values.
    pub fn with_capacity(capacity: usize) -> List {
        List(EcoVec::with_capacity(capacity))
    }

    /// The values.
    #[inline]
    pub fn as_slice(&self) -> &[Value] {
        &self.0
    }

    /// Puts a value at the end.
    #[inline]
    pub fn push(&mut self, value: Value) {
        self.0.push(value);
    }

    /// Puts a value before the one at `at`. Panics when `at` lies beyond the end.
    pub fn insert(&mut self, at: usize, value: Value) {
        self.0.insert(at, value);
    }

    /// Takes the value at `at` out. Panics when there is none.
    pub fn remove(&mut self, at: usize) -> Value {
        self.0.remove(at)
    }

    /// Keeps the values that `keep` says yes to.
    pub fn retain(&mut self, mut keep: impl FnMut(&Value) -> bool) {
        self.0.retain(|value| keep(value));
    }

    /// Whether both are the same list in memory.
    #[inline]
    pub(super) fn shares(&self, other: &List) -> bool {
        self.len() == other.len() && std::ptr::eq(self.as_ptr(), other.as_ptr())
    }
}

impl Deref for List {
    type Target = [Value];

    #[inline]
    fn deref(&self) -> &[Value] {
        &self.0
    }
}

impl DerefMut for List {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Value] {
        self.0.make_mut()
    }
}

impl PartialEq for List {
    fn eq(&self, other: &List) -> bool {
        self.shares(other) || self.as_slice() == other.as_slice()
    }
}

impl From<Vec<Value>> for List {
    fn from(values: Vec<Value>) -> List {
        List(values.into_iter().collect())
    }
}

impl FromIterator<Value> for List {
    fn from_iter<I: IntoIterator<Item = Value>>(values: I) -> List {
        List(values.into_iter().collect())
    }
}

impl Extend<Value> for List {
    fn extend<I: IntoIterator<Item = Value>>(&mut self, values: I) {
        self.0.extend(values);
    }
}

impl IntoIterator for List {
    type Item = Value;
    type IntoIter = ecow::vec::IntoIter<Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a List {
    type Item = &'a Value;
    type IntoIter = std::slice::Iter<'a, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a mut List {
    type Item = &'a mut Value;
    type IntoIter = std::slice::IterMut<'a, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.make_mut().iter_mut()
    }
}
