//! Bugs that can be planted, to see that the simulation (`examples/simulate`) and the search through interleavings
//! (`tests/interleavings`) find them.
//!
//! Without cargo's feature `planted` there are none, and asking whether one is costs nothing.

#![cfg_attr(not(feature = "planted"), allow(dead_code, reason = "nothing can be planted"))]

#[cfg(feature = "planted")]
use std::sync::atomic::{AtomicU8, Ordering};

/// A wrong way to do one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Planted {
    /// The checksums of a shelf's blocks are not looked at.
    SkipBlockChecksum = 1,
    /// The parts that a new shelf replaces are removed before the manifest names the new ones.
    RemoveBeforeManifest = 2,
    /// After a torn tail the log goes on in place, behind the cut.
    AppendBehindCut = 3,
    /// A segment counts as shelved although its last record is not.
    RetireEarly = 4,
    /// Writes can be read before they are synced.
    PublishBeforeSync = 5,
    /// Followers are told of writes before these can be read.
    RingBeforePublish = 6,
    /// Who waits for a bell looks for news only before it leaves its waker.
    SleepUnchecked = 7,
    /// Views stop reading a retired segment before they know that its history is gone.
    RetireInTwoSteps = 8,
    /// The committer is not woken when the queue is closed.
    CloseUnheard = 9,
}

#[cfg(feature = "planted")]
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants a bug into all stores of this process.
#[cfg(feature = "planted")]
pub fn plant(planted: Planted) {
    PLANTED.store(planted as u8, Ordering::Relaxed);
}

#[cfg(feature = "planted")]
pub(super) fn is_planted(planted: Planted) -> bool {
    PLANTED.load(Ordering::Relaxed) == planted as u8
}

#[cfg(not(feature = "planted"))]
pub(super) const fn is_planted(_planted: Planted) -> bool {
    false
}
