//! Figures of a store.

use std::sync::atomic::Ordering;

use super::Store;
use super::error::Damaged;

/// Figures of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Newest published revision.
    pub revision: u64,
    /// Bytes of log that are kept, the active segment's included.
    pub log_bytes: u64,
    /// Number of log segments.
    pub segments: u64,
    /// Batches written since the store was opened.
    pub batches: u64,
    /// Records written since the store was opened.
    pub records: u64,
    /// Syncs of the log since the store was opened.
    pub log_syncs: u64,
    /// Nanoseconds spent in syncs of the log.
    pub log_sync_nanoseconds: u64,
    /// Times a resource was shelved since the store was opened.
    pub shelvings: u64,
    /// Bytes of shelf parts written since the store was opened.
    pub shelved_bytes: u64,
    /// Bytes of files that were removed and that readers still hold.
    pub retired_bytes: u64,
    /// Followers that were too slow for the retention.
    pub followers_too_old: u64,
    /// Passes over all shelves and sealed segments since the store was opened.
    pub scrubs: u64,
    /// Bytes that those read.
    pub scrubbed_bytes: u64,
    /// Objects that were damaged on a shelf and taken from the log.
    pub mended_objects: u64,
    /// What was found damaged and is in the log no more: reads of it fail. At most 100 places.
    pub damaged: Vec<Damaged>,
    /// Per storage resource, sorted by name.
    pub resources: Vec<ResourceStats>,
}

/// Figures of one storage resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceStats {
    /// Its name.
    pub name: String,
    /// Live objects.
    pub objects: u64,
    /// Entries of the deltas.
    pub delta_entries: u64,
    /// Bytes of log behind the deltas.
    pub delta_bytes: u64,
    /// Number of shelf parts.
    pub parts: u64,
    /// Bytes of shelf parts.
    pub shelf_bytes: u64,
    /// Everything up to this revision is on the shelf.
    pub shelved_revision: u64,
    /// Newest discarded revision; 0 if all history is there.
    pub floor: u64,
}

impl Store {
    /// Figures for metrics and the `store stats` command. O(resources).
    pub fn stats(&self) -> Stats {
        let view = self.view();
        let counters = &self.engine.counters;
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let resources = view.resources.iter().map(|(name, resource)| ResourceStats {
            name: name.to_string(),
            objects: view.count(name, None),
            delta_entries: resource.delta_len() as u64,
            delta_bytes: resource.delta_bytes(),
            parts: resource.shelf.parts().len() as u64,
            shelf_bytes: resource.shelf.bytes(),
            shelved_revision: resource.shelved_revision,
            floor: super::follow::floor(&self.engine, &view, name),
        });
        Stats {
            revision: view.revision(),
            log_bytes: view
                .log
                .segments()
                .iter()
                .map(|segment| segment.map().capacity() as u64)
                .sum(),
            segments: view.log.segments().len() as u64,
            batches: count(&counters.batches),
            records: count(&counters.records),
            log_syncs: count(&counters.log_syncs),
            log_sync_nanoseconds: count(&counters.log_sync_nanoseconds),
            shelvings: count(&counters.shelvings),
            shelved_bytes: count(&counters.shelved_bytes),
            retired_bytes: self.engine.retired.bytes(),
            followers_too_old: count(&counters.followers_too_old),
            scrubs: count(&counters.scrubs),
            scrubbed_bytes: count(&counters.scrubbed_bytes),
            mended_objects: count(&counters.mended_objects),
            damaged: self.engine.damage(),
            resources: resources.collect(),
        }
    }
}
