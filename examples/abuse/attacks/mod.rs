//! The attacks, a file each (or one for those of a kind).

use super::{Run, runner};

mod connections;
mod floods;
mod handshakes;
mod heads;
mod idle_watches;
mod large_objects;
mod resets;
mod selectors;
mod slow_readers;
mod windows;
mod writes;

/// All of them, in the order in which they run.
pub(crate) fn all(writes_seconds: u64) -> Vec<(&'static str, Run)> {
    vec![
        runner(idle_watches::IdleWatches),
        runner(slow_readers::SlowReaders),
        runner(windows::ShutWindows),
        runner(windows::LastBytes),
        runner(heads::HeaderBombs),
        runner(heads::Slowloris),
        runner(resets::RapidReset),
        runner(resets::Continuations),
        runner(floods::ControlFrames),
        runner(handshakes::HalfOpenHandshakes),
        runner(connections::ConnectionFlood),
        runner(selectors::LongSelectors),
        runner(large_objects::LargeObjects),
        runner(writes::SteadyWrites {
            seconds: writes_seconds,
        }),
    ]
}
