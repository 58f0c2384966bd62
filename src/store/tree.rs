//! A persistent ordered sequence with ranks: a copy-on-write B+tree that only grows.
//!
//! Cloning is O(1) and a clone never changes: nodes are shared and whoever changes a shared node copies it first. The
//! tree knows no order of its own: every search is given a comparison with its target, so that entries can be a few bytes
//! that point to keys elsewhere. Each inner node keeps, per child, the number of entries and the sum of their weights, so
//! that the rank of a place and the weight before it are found on the way down.
//!
//! Leaves are allocated at their exact length: an entry costs its own size and about one byte more.

use std::cmp::Ordering;
use std::sync::Arc;

/// Entries of a leaf at most. A leaf is copied whole for every entry that it takes.
const LEAF_MAX: usize = 128;
/// Children of an inner node at most. Copying one touches the reference counts of all its children.
const INNER_MAX: usize = 32;

/// What a tree holds: small and copied freely.
pub(super) trait Entry: Copy {
    /// What the entry adds to the weight of everything behind it.
    fn weight(&self) -> i64;
}

/// An ordered sequence of entries with ranks and weights.
#[derive(Clone)]
pub(super) struct Tree<E> {
    root: Child<E>,
}

/// A place between two entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place<E> {
    /// Entries before the place.
    pub(super) rank: usize,
    /// Sum of their weights.
    pub(super) weight: i64,
    /// The entry behind the place, if it compares equal to the target.
    pub(super) equal: Option<E>,
}

#[derive(Clone)]
struct Child<E> {
    node: Node<E>,
    weight: i64,
    count: u32,
    /// The smallest entry below; its weight may be out of date.
    first: Option<E>,
}

#[derive(Clone)]
enum Node<E> {
    Leaf(Arc<[E]>),
    Inner(Arc<[Child<E>]>),
}

impl<E: Entry> Default for Tree<E> {
    fn default() -> Self {
        Tree {
            root: Child::leaf(Arc::new([])),
        }
    }
}

impl<E: Entry> Tree<E> {
    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.root.count as usize
    }

    /// Sum of all weights.
    pub(super) fn weight(&self) -> i64 {
        self.root.weight
    }

    /// The place before the first entry that `compare` does not call less than its target. O(log n) comparisons.
    pub(super) fn find(&self, mut compare: impl FnMut(&E) -> Ordering) -> Place<E> {
        let mut place = Place {
            rank: 0,
            weight: 0,
            equal: None,
        };
        let mut node = &self.root.node;
        loop {
            match node {
                Node::Inner(children) => {
                    let index = descend(children, &mut compare);
                    for child in &children[..index] {
                        place.rank += child.count as usize;
                        place.weight += child.weight;
                    }
                    node = &children[index].node;
                }
                Node::Leaf(entries) => {
                    let (index, equal) = search(entries, &mut compare);
                    place.rank += index;
                    place.weight += entries[..index].iter().map(Entry::weight).sum::<i64>();
                    place.equal = equal.then(|| entries[index]);
                    // An equal entry may be the first of the next leaf only if `descend` chose it, so it is never missed.
                    return place;
                }
            }
        }
    }

    /// Puts `entry` at its place, which `compare` tells by comparing with it. An entry that compares equal is replaced
    /// and returned.
    pub(super) fn insert(&mut self, mut compare: impl FnMut(&E) -> Ordering, entry: E) -> Option<E> {
        let mut replaced = None;
        if let Some(right) = self.root.insert(&mut compare, entry, &mut replaced) {
            let empty = Child::leaf(Arc::new([]));
            let left = std::mem::replace(&mut self.root, empty);
            self.root = Child::inner(Arc::new([left, right]));
        }
        replaced
    }

    /// The leaf that holds the entry of this rank, and its index there. O(log n); together with the leaf's length this is
    /// how a cursor walks in order.
    pub(super) fn leaf(&self, rank: usize) -> Option<(Arc<[E]>, usize)> {
        if rank >= self.len() {
            return None;
        }
        let mut rest = rank;
        let mut node = &self.root.node;
        loop {
            match node {
                Node::Inner(children) => {
                    let child = children.iter().find(|child| {
                        let here = rest < child.count as usize;
                        if !here {
                            rest -= child.count as usize;
                        }
                        here
                    })?;
                    node = &child.node;
                }
                Node::Leaf(entries) => return Some((Arc::clone(entries), rest)),
            }
        }
    }

    /// All entries in order.
    pub(super) fn iter(&self) -> Cursor<E> {
        Cursor::new(self, 0..self.len())
    }
}

/// Walks a range of ranks in order. Holds the leaf it stands on, not the tree: [`Cursor::next`] is given the tree.
#[derive(Clone)]
pub(super) struct Cursor<E> {
    leaf: Arc<[E]>,
    index: usize,
    rank: usize,
    end: usize,
    tree: Tree<E>,
}

impl<E: Entry> Cursor<E> {
    /// A cursor over the entries of these ranks.
    pub(super) fn new(tree: &Tree<E>, ranks: std::ops::Range<usize>) -> Cursor<E> {
        let end = ranks.end.min(tree.len());
        let (leaf, index) = tree.leaf(ranks.start).unwrap_or_else(|| (Arc::new([]), 0));
        Cursor {
            leaf,
            index,
            rank: ranks.start,
            end,
            tree: tree.clone(),
        }
    }
}

impl<E: Entry> Iterator for Cursor<E> {
    type Item = E;

    fn next(&mut self) -> Option<E> {
        if self.rank >= self.end {
            return None;
        }
        if self.index == self.leaf.len() {
            (self.leaf, self.index) = self.tree.leaf(self.rank)?;
        }
        let entry = self.leaf[self.index];
        self.index += 1;
        self.rank += 1;
        Some(entry)
    }
}

impl<E: Entry> Child<E> {
    fn leaf(entries: Arc<[E]>) -> Child<E> {
        Child {
            weight: entries.iter().map(Entry::weight).sum(),
            count: entries.len() as u32,
            first: entries.first().copied(),
            node: Node::Leaf(entries),
        }
    }

    fn inner(children: Arc<[Child<E>]>) -> Child<E> {
        Child {
            weight: children.iter().map(|child| child.weight).sum(),
            count: children.iter().map(|child| child.count).sum(),
            first: children.first().and_then(|child| child.first),
            node: Node::Inner(children),
        }
    }

    /// Inserts below this child; returns the new right sibling when the node had to be split.
    fn insert(
        &mut self,
        compare: &mut impl FnMut(&E) -> Ordering,
        entry: E,
        replaced: &mut Option<E>,
    ) -> Option<Child<E>> {
        match &mut self.node {
            Node::Leaf(entries) => {
                let (index, equal) = search(entries, compare);
                if equal {
                    *replaced = Some(entries[index]);
                    self.weight += entry.weight() - entries[index].weight();
                    Arc::make_mut(entries)[index] = entry;
                    return None;
                }
                if entries.len() < LEAF_MAX {
                    *self = Child::leaf(with(entries, index, entry));
                    return None;
                }
                // Entries that arrive in order leave full leaves behind them.
                let cut = if index == entries.len() {
                    index
                } else {
                    entries.len() / 2
                };
                let (left, right) = entries.split_at(cut);
                let (left, right) = if index < cut {
                    (with(left, index, entry), Arc::from(right))
                } else {
                    (Arc::from(left), with(right, index - cut, entry))
                };
                *self = Child::leaf(left);
                Some(Child::leaf(right))
            }
            Node::Inner(children) => {
                let index = descend(children, compare);
                let child = &mut Arc::make_mut(children)[index];
                let (count, weight) = (child.count, child.weight);
                let split = child.insert(compare, entry, replaced);
                let Some(sibling) = split else {
                    self.count += child.count - count;
                    self.weight += child.weight - weight;
                    if index == 0 {
                        self.first = child.first;
                    }
                    return None;
                };
                let index = index + 1;
                if children.len() < INNER_MAX {
                    *self = Child::inner(with(children, index, sibling));
                    return None;
                }
                let cut = if index == children.len() {
                    index
                } else {
                    children.len() / 2
                };
                let (left, right) = children.split_at(cut);
                let (left, right) = if index < cut {
                    (with(left, index, sibling), Arc::from(right))
                } else {
                    (Arc::from(left), with(right, index - cut, sibling))
                };
                *self = Child::inner(left);
                Some(Child::inner(right))
            }
        }
    }
}

/// The child in which an entry that compares so is or belongs: the last one whose first entry is not greater.
fn descend<E>(children: &[Child<E>], compare: &mut impl FnMut(&E) -> Ordering) -> usize {
    let (mut low, mut high) = (1, children.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        match children[middle].first.as_ref().map_or(Ordering::Less, &mut *compare) {
            Ordering::Greater => high = middle,
            Ordering::Less => low = middle + 1,
            Ordering::Equal => return middle,
        }
    }
    low - 1
}

/// Index of the first entry that is not less, and whether it is equal.
fn search<E>(entries: &[E], compare: &mut impl FnMut(&E) -> Ordering) -> (usize, bool) {
    match entries.binary_search_by(compare) {
        Ok(index) => (index, true),
        Err(index) => (index, false),
    }
}

/// `items` with `item` put in at `index`, allocated once at its exact length.
fn with<T: Clone>(items: &[T], index: usize, item: T) -> Arc<[T]> {
    let (before, behind) = items.split_at(index);
    before
        .iter()
        .cloned()
        .chain(std::iter::once(item))
        .chain(behind.iter().cloned())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Numbered {
        key: u32,
        weight: i8,
    }

    impl Entry for Numbered {
        fn weight(&self) -> i64 {
            self.weight.into()
        }
    }

    fn check(tree: &Tree<Numbered>, model: &BTreeMap<u32, i8>) {
        let expected: Vec<Numbered> = model.iter().map(|(&key, &weight)| Numbered { key, weight }).collect();
        assert_eq!(tree.iter().collect::<Vec<_>>(), expected);
        assert_eq!(tree.len(), expected.len());
        assert_eq!(tree.weight(), expected.iter().map(Entry::weight).sum::<i64>());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn a_tree_is_a_sorted_map_with_ranks_and_its_clones_never_change(
            steps in prop::collection::vec((0u32..3000, -1i8..=1), 1..2500),
            ascending in any::<bool>(),
            snapshot_at in 0usize..2500,
        ) {
            let mut tree = Tree::default();
            let mut model = BTreeMap::new();
            let mut snapshot = None;
            for (step, &(key, weight)) in steps.iter().enumerate() {
                let key = if ascending { step as u32 * 2 } else { key };
                if step == snapshot_at {
                    snapshot = Some((tree.clone(), model.clone()));
                }
                let replaced = tree.insert(|entry: &Numbered| entry.key.cmp(&key), Numbered { key, weight });
                prop_assert_eq!(replaced.map(|entry| entry.weight), model.insert(key, weight));
            }
            check(&tree, &model);
            if let Some((tree, model)) = &snapshot {
                check(tree, model);
            }
            for key in (0..3001).step_by(7) {
                let place = tree.find(|entry| entry.key.cmp(&key));
                prop_assert_eq!(place.rank, model.range(..key).count());
                prop_assert_eq!(place.weight, model.range(..key).map(|(_, &weight)| i64::from(weight)).sum::<i64>());
                prop_assert_eq!(place.equal.map(|entry| entry.weight), model.get(&key).copied());
                let walked: Vec<u32> = Cursor::new(&tree, place.rank..place.rank + 300).map(|entry| entry.key).collect();
                prop_assert_eq!(walked, model.range(key..).take(300).map(|(&key, _)| key).collect::<Vec<_>>());
            }
        }
    }
}
