//! A directory without a manifest becomes a store.
//!
//! The first segment is written and synced before the first manifest names it; a crash before that leaves a directory
//! that still has no manifest and no record.

use std::sync::Arc;

use flatkube_format::frame::Seed;
use flatkube_format::manifest::{Manifest, SegmentEntry};
use flatkube_format::segment;

use super::disk::Disk;
use super::engine::Engine;
use super::error::{Damaged, OpenError};
use super::files;
use super::log::Log;
use super::manifest::ManifestFile;
use super::options::{Durability, Options};
use super::recovery::{Recovered, failed, remove_unnamed, replaced};
use super::rotate::initialize;
use super::spare::{Spare, allocate};
use super::view::View;

/// The first revision of a store, which no write has: "0" and "" mean something else to clients.
const FIRST_REVISION: u64 = 1;

/// A first segment of at most this many bytes is filled with zeroes before the store opens: some milliseconds.
const FIRST_FILLED_MAX: u32 = 1 << 20;

/// A new store in a directory without a manifest.
pub(super) fn create(disk: Arc<dyn Disk>, options: Options) -> Result<Recovered, OpenError> {
    refuse_orphans(&*disk)?;
    let store = uuid::Uuid::new_v4().as_u128();
    remove_unnamed(&*disk, &Manifest::default())?;
    let seed = Seed { store, segment: 1 };
    let name = files::segment(seed.segment);
    let len = options.segment_bytes_first.into();
    let file = allocate(&*disk, seed.segment, len, len).map_err(failed(&*disk, "allocate it", &name))?;
    if options.durability == Durability::Fsync && options.segment_bytes_first <= FIRST_FILLED_MAX {
        // Why: see `spare`.
        file.write_at(&vec![0; options.segment_bytes_first as usize], 0)
            .map_err(failed(&*disk, "fill it", &name))?;
    }
    let active = initialize(&*disk, file, seed, FIRST_REVISION + 1).map_err(failed(&*disk, "write it", &name))?;
    let mut current = Manifest {
        store,
        ..Manifest::default()
    };
    let next = Manifest {
        durability_os: options.durability == Durability::Os,
        revision: FIRST_REVISION,
        next_file: 1,
        segments: vec![SegmentEntry {
            number: seed.segment,
            first_revision: FIRST_REVISION + 1,
            sealed: None,
        }],
        ..current.clone()
    };
    let manifest = ManifestFile::new(disk.clone(), current.clone());
    replaced(&*disk, manifest.replace(&mut current, next))?;
    *manifest.lock() = current;
    let mut view = View::empty(Log::new(vec![active.segment.clone()]));
    view.revision = FIRST_REVISION;
    let mut spare = Spare::default();
    let engine = Arc::new(Engine::new(disk, options, manifest, view));
    spare.refill(&engine, &active);
    Ok(Recovered {
        engine,
        active,
        spare,
        revision: FIRST_REVISION,
    })
}

/// A directory with data but no manifest has lost it; its data must not pass for leftovers of a first start, which has
/// no records and no shelves before the first manifest is in place.
fn refuse_orphans(disk: &dyn Disk) -> Result<(), OpenError> {
    let missing = || {
        Damaged {
            file: disk.path(files::MANIFEST),
            offset: 0,
            reason: "the manifest is missing, but the directory holds data of a store".into(),
        }
        .into()
    };
    for name in disk.list().map_err(failed(disk, "list it", ""))? {
        if name.starts_with("shelf-") {
            return Err(missing());
        }
        if name.starts_with("segment-") {
            let file = disk.open(&name).map_err(failed(disk, "open it", &name))?;
            let mut head = [0; segment::HEADER_LEN + 4];
            let has_record = file.read_at(&mut head, 0).is_ok() && head[segment::HEADER_LEN..] != [0; 4];
            if has_record {
                return Err(missing());
            }
        }
    }
    Ok(())
}
