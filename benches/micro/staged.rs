//! Stores of Pods that are made when they are first measured, once for all benchmarks.

use std::cell::{Cell, OnceCell};

use flatkube::store::Durability;

use crate::asking::Asking;
use crate::opened::Opened;
use crate::stored;

/// Where a store's objects are. A store goes through the stages in this order, and never back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stage {
    /// All in the delta.
    Delta,
    /// All on shelves.
    Shelf,
    /// All on shelves, a quarter of them written again since: the largest delta that shelving leaves.
    Mixed,
}

impl Stage {
    pub(crate) const ALL: [Stage; 3] = [Stage::Delta, Stage::Shelf, Stage::Mixed];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Stage::Delta => "delta",
            Stage::Shelf => "shelf",
            Stage::Mixed => "mixed",
        }
    }
}

/// One store a size.
pub(crate) struct Stores {
    stores: Vec<(usize, OnceCell<Staged>)>,
}

impl Stores {
    pub(crate) fn of(sizes: &[usize]) -> Self {
        Self {
            stores: sizes.iter().map(|size| (*size, OnceCell::new())).collect(),
        }
    }

    pub(crate) fn sizes(&self) -> impl Iterator<Item = usize> {
        self.stores.iter().map(|(size, _)| *size)
    }

    /// The store of `size` Pods, at least as far as `stage`.
    pub(crate) fn at(&self, size: usize, stage: Stage) -> &Staged {
        let (_, cell) = self
            .stores
            .iter()
            .find(|(own, _)| *own == size)
            .expect("one of the sizes");
        let staged = cell.get_or_init(|| Staged::new(size));
        staged.advance(stage);
        staged
    }
}

/// A store, and how far it is.
pub(crate) struct Staged {
    /// Lets go of the store before the directory goes with [`Opened`].
    pub(crate) asking: Asking,
    pub(crate) opened: Opened,
    size: usize,
    stage: Cell<Stage>,
}

impl Staged {
    fn new(size: usize) -> Self {
        let opened = Opened::empty(Durability::Os);
        opened.fill((0..size).map(|index| pod_write(scattered(index, size), size)));
        Self {
            asking: Asking::of(&opened.store),
            opened,
            size,
            stage: Cell::new(Stage::Delta),
        }
    }

    fn advance(&self, stage: Stage) {
        if self.stage.get() < Stage::Shelf && stage >= Stage::Shelf {
            self.opened.shelve();
            self.stage.set(Stage::Shelf);
        }
        if self.stage.get() < Stage::Mixed && stage >= Stage::Mixed {
            let size = self.size;
            self.opened
                .fill((0..size / 4).map(|index| pod_write(scattered(index, size), size)));
            self.stage.set(Stage::Mixed);
        }
    }
}

/// How many of `size` Pods have the label `pick=yes`, about.
pub(crate) fn picks(size: usize) -> usize {
    (size / 10).min(100)
}

fn pod_write(number: usize, size: usize) -> flatkube::store::Write {
    // Not aligned with the namespaces: picked Pods lie apart on the shelf.
    let picked = (number / 25 * 7 + number).is_multiple_of(size / picks(size));
    stored::put(stored::pods(), &stored::pod(number, picked))
}

/// Objects are not written in the order of their keys.
fn scattered(index: usize, size: usize) -> usize {
    index * 7_919 % size
}
