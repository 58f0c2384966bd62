//! What a batch of requests cost the servers of this process.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::allocations::{self, Counts};

/// Everything in this process but the calling thread, which is the client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) server_cpu: Duration,
    pub(crate) wall: Duration,
    pub(crate) allocated: Counts,
}

/// Starts a measurement; call the result to end it. Both on the client's thread.
pub(crate) fn stopwatch() -> impl FnOnce() -> Cost {
    let allocated = allocations::elsewhere();
    let cpu = server_cpu();
    let begun = Instant::now();
    move || {
        let wall = begun.elapsed();
        let now = allocations::elsewhere();
        Cost {
            server_cpu: server_cpu().saturating_sub(cpu),
            wall,
            allocated: Counts {
                allocations: now.allocations - allocated.allocations,
                bytes: now.bytes - allocated.bytes,
            },
        }
    }
}

fn server_cpu() -> Duration {
    let read = |clock| {
        let time = clock_gettime(clock);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    read(ClockId::ProcessCPUTime).saturating_sub(read(ClockId::ThreadCPUTime))
}
