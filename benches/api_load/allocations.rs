//! Counts what the process allocates, per thread, so that the client's share can be left out.
//!
//! A thread counts in a stripe of its own with plain loads and stores: no locked instruction, no shared cache line. That is
//! about a nanosecond an allocation; `--no-allocations` switches it off, to see that timings stay what they are.

#![allow(
    unsafe_code,
    reason = "an allocator is an unsafe trait; it hands everything to the system's and only counts"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Threads that are told apart; later ones share stripes and may lose counts to each other.
const STRIPES: usize = 4096;

static COUNTS: [Stripe; STRIPES] = [const { Stripe::new() }; STRIPES];
static NEXT: AtomicUsize = AtomicUsize::new(0);
static IS_OFF: AtomicBool = AtomicBool::new(false);

thread_local! {
    static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// A cache line of one thread.
#[repr(align(64))]
struct Stripe {
    allocations: AtomicU64,
    bytes: AtomicU64,
}

impl Stripe {
    const fn new() -> Self {
        Self {
            allocations: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    fn read(&self) -> Counts {
        Counts {
            allocations: self.allocations.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }
}

/// Allocations since the process began, and their bytes. A block that grows counts as a new one of its new size; what is
/// freed is not subtracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) allocations: u64,
    pub(crate) bytes: u64,
}

/// The counts of all threads but the calling one.
pub(crate) fn elsewhere() -> Counts {
    let own = own_stripe();
    let used = NEXT.load(Relaxed).min(STRIPES);
    let mut sum = Counts::default();
    for (index, stripe) in COUNTS[..used].iter().enumerate() {
        if index != own {
            let counts = stripe.read();
            sum.allocations += counts.allocations;
            sum.bytes += counts.bytes;
        }
    }
    sum
}

/// Counts nothing from now on.
pub(crate) fn switch_off() {
    IS_OFF.store(true, Relaxed);
}

fn own_stripe() -> usize {
    let own = OWN.get();
    if own != usize::MAX {
        return own;
    }
    let own = NEXT.fetch_add(1, Relaxed) % STRIPES;
    OWN.set(own);
    own
}

fn count(bytes: usize) {
    if IS_OFF.load(Relaxed) {
        return;
    }
    let stripe = &COUNTS[own_stripe()];
    stripe.allocations.store(stripe.allocations.load(Relaxed) + 1, Relaxed);
    stripe.bytes.store(stripe.bytes.load(Relaxed) + bytes as u64, Relaxed);
}

struct Counting;

// SAFETY: every call goes to the system's allocator with its arguments as they came. Counting neither allocates nor
// unwinds: the thread-local value is constant-initialized and has no destructor, the sums cannot overflow in practice and
// a wrapped stripe index stays in bounds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` with this layout, because everything here does.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        // SAFETY: as for `dealloc`; `new_size` is the caller's promise.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
