//! Bugs that are planted to see that they are found.

use flatkube::store::disk::sim::{Operation, SimDisk};

/// A bug of the disk's driver, or (with cargo's feature `planted`) of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Plant {
    /// The log is not synced
    UnsyncedLog,
    /// Shelf parts are not synced
    UnsyncedShelf,
    /// The manifest is not synced
    UnsyncedManifest,
    /// The directory is not synced
    ForgottenDirectorySync,
    /// Checksums of shelves are not looked at
    #[cfg(feature = "planted")]
    SkipBlockChecksum,
    /// Shelf parts are removed while the manifest names them
    #[cfg(feature = "planted")]
    RemoveBeforeManifest,
    /// The log goes on behind a cut
    #[cfg(feature = "planted")]
    AppendBehindCut,
    /// A segment is retired one record too early
    #[cfg(feature = "planted")]
    RetireEarly,
    /// Writes are published before they are synced
    #[cfg(feature = "planted")]
    PublishBeforeSync,
}

impl Plant {
    /// Plants it into the store, if it is one of the store's.
    #[cfg(feature = "planted")]
    pub(crate) fn in_store(self) {
        use flatkube::store::planted::{Planted, plant};
        match self {
            Plant::SkipBlockChecksum => plant(Planted::SkipBlockChecksum),
            Plant::RemoveBeforeManifest => plant(Planted::RemoveBeforeManifest),
            Plant::AppendBehindCut => plant(Planted::AppendBehindCut),
            Plant::RetireEarly => plant(Planted::RetireEarly),
            Plant::PublishBeforeSync => plant(Planted::PublishBeforeSync),
            _ => {}
        }
    }

    /// Plants it into the disk, if it is one of the disk's.
    pub(crate) fn in_disk(self, disk: &SimDisk) {
        let lie = match self {
            Plant::UnsyncedLog => (Operation::SyncData, "segment-"),
            Plant::UnsyncedShelf => (Operation::SyncData, "shelf-"),
            Plant::UnsyncedManifest => (Operation::SyncData, "manifest"),
            Plant::ForgottenDirectorySync => (Operation::SyncDir, ""),
            #[cfg(feature = "planted")]
            _ => return,
        };
        disk.lie_about(lie.0, lie.1);
    }
}

impl std::fmt::Display for Plant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use clap::ValueEnum as _;
        f.write_str(self.to_possible_value().expect("no plant is hidden").get_name())
    }
}
