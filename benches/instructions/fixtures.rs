//! Data directories that scenarios begin with, made once at full speed. Each run gets a copy: none sees what another left.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatkube::store::{Durability, Store, Write};

use crate::opened;
use crate::requests::Served;
use crate::stored::{self, pods};

/// Pods on shelves.
pub(crate) const SHELVED: usize = 10_000;
/// Of them, with the label `pick=yes`.
pub(crate) const PICKED: usize = 100;
/// Pods in the log only.
pub(crate) const LOGGED: usize = 1_000;

/// The directories.
pub(crate) struct Fixtures {
    folder: PathBuf,
}

/// Of which directory a scenario gets a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// None.
    Nothing,
    /// A store of [`LOGGED`] Pods, all in the log.
    Delta,
    /// A store of [`SHELVED`] Pods, all on shelves.
    Shelf,
    /// A server's data directory with [`LOGGED`] Pods on shelves.
    Served,
}

impl Data {
    fn folder(self) -> Option<&'static str> {
        match self {
            Data::Nothing => None,
            Data::Delta => Some("delta"),
            Data::Shelf => Some("shelf"),
            Data::Served => Some("served"),
        }
    }
}

impl Fixtures {
    /// Those that are there.
    pub(crate) fn at(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// Makes those that the scenarios ask for.
    pub(crate) fn make(folder: &Path, wanted: impl Iterator<Item = Data>) -> Self {
        for data in wanted {
            let Some(name) = data.folder() else { continue };
            let folder = folder.join(name);
            if !folder.exists() {
                match data {
                    Data::Served => make_served(&folder),
                    Data::Shelf => make(&folder, SHELVED, true),
                    Data::Delta | Data::Nothing => make(&folder, LOGGED, false),
                }
            }
        }
        Self::at(folder)
    }

    /// A copy of one of them, for one run.
    pub(crate) fn copy(&self, data: Data) -> tempfile::TempDir {
        let copy = tempfile::tempdir_in(&self.folder).expect("a directory");
        if let Some(name) = data.folder() {
            copy_folder(&self.folder.join(name), &copy.path().join(name));
        }
        copy
    }

    /// A store of [`SHELVED`] Pods.
    pub(crate) fn shelf(&self) -> Arc<Store> {
        opened::open(&self.folder.join("shelf"), Durability::Os)
    }

    /// A store of [`LOGGED`] Pods.
    pub(crate) fn delta(&self) -> Arc<Store> {
        opened::open(&self.delta_folder(), Durability::Os)
    }

    pub(crate) fn delta_folder(&self) -> PathBuf {
        self.folder.join("delta")
    }

    pub(crate) fn served_folder(&self) -> PathBuf {
        self.folder.join("served")
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        let to = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_folder(&path, &to);
        } else {
            std::fs::copy(&path, to).expect("space for a copy");
        }
    }
}

/// A server's first start makes certificates, which takes long and never takes the same.
fn make_served(folder: &Path) {
    std::fs::create_dir(folder).expect("a directory");
    let served = Served::start(folder);
    let writes = (0..LOGGED).map(|index| write(scattered(index, LOGGED), LOGGED));
    opened::fill(&opened::runtime(), served.store(), writes);
    served.store().maintain(true);
    served.stop();
}

fn make(folder: &Path, count: usize, shelved: bool) {
    let runtime = opened::runtime();
    let store = opened::open(folder, Durability::Os);
    opened::fill(
        &runtime,
        &store,
        (0..count).map(|index| write(scattered(index, count), count)),
    );
    if shelved {
        store.maintain(true);
    }
    store.close();
}

fn write(number: usize, count: usize) -> Write {
    // Not aligned with the namespaces: picked Pods lie apart on the shelf.
    let picked = (number / 25 * 7 + number).is_multiple_of(count / PICKED);
    stored::put(pods(), &stored::pod(number, picked))
}

/// Objects are not written in the order of their keys.
fn scattered(index: usize, count: usize) -> usize {
    index * 7_919 % count
}
