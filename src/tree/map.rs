//! Maps from names to values, in the order of their names.

use std::ops::{Index, IndexMut};

use ecow::EcoVec;

use super::{Key, Value};

/// A map; copied when it is changed while it is shared.
///
/// Finding a name takes O(log n), putting in or taking out a single one O(n) (a move of what comes after it); `extend` and
/// `collect` sort once.
#[derive(Clone, Default)]
pub struct Map(EcoVec<(Key, Value)>);

/// Up to so many names, looking at each is faster than halving: most differ in their length already.
const LOOKED_AT_MAX: usize = 24;

impl Map {
    /// An empty map.
    pub const fn new() -> Map {
        Map(EcoVec::new())
    }

    /// An empty map with room for `capacity` entries.
    pub fn with_capacity(capacity: usize) -> Map {
        Map(EcoVec::with_capacity(capacity))
    }

    /// How many entries there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    fn find(&self, name: &str) -> Option<usize> {
        if self.0.len() <= LOOKED_AT_MAX {
            self.0.iter().position(|(key, _)| key.as_str() == name)
        } else {
            self.place(name).ok()
        }
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        // What is read from JSON mostly comes in order.
        match self.0.last() {
            None => Err(0),
            Some((last, _)) if last.as_str() < name => Err(self.0.len()),
            Some(_) => self.0.binary_search_by(|(key, _)| key.as_str().cmp(name)),
        }
    }

    /// The value of that name.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.find(name).map(|at| &self.0[at].1)
    }

    /// The value of that name, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        let at = self.find(name)?;
        Some(&mut self.0.make_mut()[at].1)
    }

    /// Whether there is an entry of that name.
    #[inline]
    pub fn contains_key(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Sets an entry; what was there before comes back.
    pub fn insert(&mut self, name: impl Into<Key>, value: Value) -> Option<Value> {
        let name = name.into();
        match self.place(&name) {
            Ok(at) => Some(std::mem::replace(&mut self.0.make_mut()[at].1, value)),
            Err(at) if at == self.0.len() => {
                self.0.push((name, value));
                None
            }
            Err(at) => {
                self.0.insert(at, (name, value));
                None
            }
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let at = self.find(name)?;
        Some(self.0.remove(at).1)
    }

    /// The place of an entry, whether it is there or not.
    pub fn entry(&mut self, name: impl Into<Key>) -> Entry<'_> {
        let name = name.into();
        Entry {
            place: self.place(&name),
            map: self,
            name,
        }
    }

    /// The entry at a place in the order of names.
    #[inline]
    pub fn at(&self, place: usize) -> Option<(&Key, &Value)> {
        self.0.get(place).map(|(key, value)| (key, value))
    }

    /// The value at a place in the order of names, to be changed. Panics when there is none.
    pub fn value_at_mut(&mut self, place: usize) -> &mut Value {
        &mut self.0.make_mut()[place].1
    }

    /// All entries.
    #[inline]
    pub fn iter(&self) -> Iter<'_> {
        self.0.iter().map(pair)
    }

    /// All entries, the values to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Key, &mut Value)> {
        self.0.make_mut().iter_mut().map(|(key, value)| (&*key, value))
    }

    /// All names.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &Key> {
        self.0.iter().map(|(key, _)| key)
    }

    /// All values.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.0.iter().map(|(_, value)| value)
    }

    /// All values, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.0.make_mut().iter_mut().map(|(_, value)| value)
    }

    /// Keeps the entries that `keep` says yes to.
    pub fn retain(&mut self, mut keep: impl FnMut(&Key, &mut Value) -> bool) {
        self.0.retain(|(key, value)| keep(key, value));
    }

    /// Whether both are the same map in memory.
    #[inline]
    pub(super) fn shares(&self, other: &Map) -> bool {
        self.len() == other.len() && std::ptr::eq(self.0.as_ptr(), other.0.as_ptr())
    }

    /// Puts what came in any order in order; of equal names the later one counts.
    fn sort(&mut self) {
        let entries = self.0.make_mut();
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        if !entries.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return;
        }
        let mut unique = EcoVec::with_capacity(self.0.len());
        for entry in std::mem::take(&mut self.0) {
            if unique.last().is_some_and(|(key, _)| *key == entry.0) {
                unique.pop();
            }
            unique.push(entry);
        }
        self.0 = unique;
    }
}

fn pair(entry: &(Key, Value)) -> (&Key, &Value) {
    (&entry.0, &entry.1)
}

/// Entries of a map in the order of names.
pub(super) type Iter<'a> =
    std::iter::Map<std::slice::Iter<'a, (Key, Value)>, fn(&'a (Key, Value)) -> (&'a Key, &'a Value)>;

/// A place in a map.
#[derive(Debug)]
pub struct Entry<'a> {
    map: &'a mut Map,
    name: Key,
    place: Result<usize, usize>,
}

impl<'a> Entry<'a> {
    /// The value there; `otherwise` is put there if there is none.
    pub fn or_insert(self, otherwise: Value) -> &'a mut Value {
        let at = match self.place {
            Ok(at) => at,
            Err(at) => {
                self.map.0.insert(at, (self.name, otherwise));
                at
            }
        };
        self.map.value_at_mut(at)
    }
}

impl std::fmt::Debug for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl PartialEq for Map {
    fn eq(&self, other: &Map) -> bool {
        self.shares(other) || self.0 == other.0
    }
}

impl Index<&str> for Map {
    type Output = Value;

    fn index(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&Value::Null)
    }
}

impl IndexMut<&str> for Map {
    fn index_mut(&mut self, name: &str) -> &mut Value {
        match self.place(name) {
            Ok(at) => self.value_at_mut(at),
            Err(_) => self.entry(name.to_owned()).or_insert(Value::Null),
        }
    }
}

impl<K: Into<Key>> FromIterator<(K, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, Value)>>(entries: I) -> Map {
        let mut map = Map::new();
        map.extend(entries);
        map
    }
}

impl<K: Into<Key>> Extend<(K, Value)> for Map {
    fn extend<I: IntoIterator<Item = (K, Value)>>(&mut self, entries: I) {
        let entries = entries.into_iter();
        self.0.reserve(entries.size_hint().0);
        let mut in_order = true;
        for (name, value) in entries {
            let name = name.into();
            in_order = in_order && self.0.last().is_none_or(|(last, _)| *last < name);
            self.0.push((name, value));
        }
        if !in_order {
            self.sort();
        }
    }
}

impl IntoIterator for Map {
    type Item = (Key, Value);
    type IntoIter = ecow::vec::IntoIter<(Key, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Map {
    type Item = (&'a Key, &'a Value);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
