//! Files that the store is done with and readers are not: removed from the directory, still mapped, and so still on the
//! disk.
//!
//! A reader of an old view keeps the shelf parts and segments of that view. That is what makes a view immutable, and it
//! must have an end, or one slow client fills the disk with the past. The store only knows which files those are; readers
//! ask it ([`Store::overstayed`](super::Store::overstayed)) and end what is too old.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Instant;

use super::map::Map;
use crate::sync::{Mutex, MutexGuard};

/// The retired files that are still mapped.
#[derive(Default)]
pub(super) struct Retired(Mutex<Vec<RetiredFile>>);

struct RetiredFile {
    map: Weak<Map>,
    bytes: u64,
    at: Instant,
}

impl Retired {
    /// Notes a file that no published view names any more. Bounded: files that nobody has mapped are forgotten.
    pub(super) fn add(&self, map: &Arc<Map>) {
        self.mapped().push(RetiredFile {
            map: Arc::downgrade(map),
            bytes: map.capacity() as u64,
            at: Instant::now(),
        });
    }

    /// Bytes of retired files that are still mapped.
    pub(super) fn bytes(&self) -> u64 {
        self.mapped().iter().map(|file| file.bytes).sum()
    }

    /// When more than `bytes_max` are held: the moment such that, once all readers that began before it are gone, no more
    /// than that is.
    pub(super) fn overstayed(&self, bytes_max: u64) -> Option<Instant> {
        let mut held = 0;
        // The newest is the last.
        self.mapped().iter().rev().find_map(|file| {
            held += file.bytes;
            (held > bytes_max).then_some(file.at)
        })
    }

    fn mapped(&self) -> MutexGuard<'_, Vec<RetiredFile>> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| file.map.strong_count() > 0);
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(bytes: usize) -> Arc<Map> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes as u64).unwrap();
        Arc::new(Map::new(&file, bytes, "t").unwrap())
    }

    #[test]
    fn only_readers_that_began_before_what_is_too_much_must_go() {
        let retired = Retired::default();
        let maps = [map(100), map(200), map(400)];
        for map in &maps {
            retired.add(map);
        }
        let at: Vec<Instant> = retired.mapped().iter().map(|file| file.at).collect();
        assert_eq!(retired.bytes(), 700);
        assert_eq!(retired.overstayed(700), None);
        assert_eq!(retired.overstayed(699), Some(at[0]));
        assert_eq!(retired.overstayed(600), Some(at[0]));
        assert_eq!(retired.overstayed(599), Some(at[1]));
        assert_eq!(retired.overstayed(0), Some(at[2]));
        let second = maps[1].clone();
        drop(maps);
        assert_eq!(retired.bytes(), 200, "who is gone holds nothing");
        drop(second);
        assert_eq!((retired.bytes(), retired.overstayed(0)), (0, None));
    }
}
