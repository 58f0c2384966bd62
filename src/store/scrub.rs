//! Scrubbing: bytes that nobody reads are proven again now and then.
//!
//! A pass reads every block of every shelf part and every record of every sealed segment, at most
//! [`Options::scrub_bytes_per_second`] of them, and looks at their checksums. Parts are read through their files, where a
//! device that cannot read says so by an error; segments through their maps. Both come through the page cache: what the
//! kernel holds in memory is not read from the device.
//!
//! A damaged part is written anew ([`super::shelving`]): its objects whose bytes are wrong are taken from the log, if that
//! still has the records that made them. What it has not is told ([`Stats::damaged`](super::Stats::damaged)) and stays
//! an error to whoever asks for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flatkube_format::frame;
use flatkube_format::segment::HEADER_LEN;

use super::engine::{Counters, Engine};
use super::error::Damaged;
use super::files;
use super::log::RecordRef;
use super::options::Options;
use super::shelf_set::Part;

/// Time between two steps of a pass.
const STEP_INTERVAL: Duration = Duration::from_millis(250);

/// Where a pass is.
pub(super) struct Scrub {
    /// What is still to be read.
    left: VecDeque<Item>,
    /// In the first of them: the number of the next block, or the offset of the next record.
    at: usize,
    next: Instant,
}

/// What can be read one after the other. Named, not held: what is replaced meanwhile is not kept for it.
enum Item {
    Part { resource: Arc<str>, file: u64 },
    Segment(u32),
}

/// A part with a block whose checksum is wrong.
#[derive(Debug)]
pub(super) struct DamagedPart {
    pub(super) resource: Arc<str>,
    pub(super) file: u64,
}

impl Scrub {
    pub(super) fn new(options: &Options) -> Scrub {
        Scrub {
            left: VecDeque::new(),
            at: 0,
            next: Instant::now() + options.scrub_delay,
        }
    }

    /// Time until the next step.
    pub(super) fn due_in(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Reads what is due now. The parts that were found damaged.
    pub(super) fn step(&mut self, engine: &Engine) -> Vec<DamagedPart> {
        if !self.due_in().is_zero() {
            return Vec::new();
        }
        if self.left.is_empty() {
            self.begin(engine);
        }
        let options = &engine.options;
        let bytes_max = options.scrub_bytes_per_second * STEP_INTERVAL.as_millis() as u64 / 1_000;
        let found = self.read(engine, bytes_max);
        let pause = if self.left.is_empty() {
            options.scrub_interval
        } else {
            STEP_INTERVAL
        };
        self.next = Instant::now() + pause;
        found
    }

    /// A whole pass, without pauses.
    pub(super) fn pass(&mut self, engine: &Engine) -> Vec<DamagedPart> {
        self.begin(engine);
        self.read(engine, u64::MAX)
    }

    fn begin(&mut self, engine: &Engine) {
        let view = engine.view();
        self.at = 0;
        self.left.clear();
        for (resource, of) in &view.resources {
            self.left.extend(of.shelf.parts().iter().map(|part| Item::Part {
                resource: resource.clone(),
                file: part.manifest_entry().file,
            }));
        }
        let sealed = view
            .log
            .segments()
            .iter()
            .filter(|segment| segment.seal_data().is_some());
        self.left.extend(sealed.map(|segment| Item::Segment(segment.number())));
    }

    /// Reads at most `bytes_max` bytes, and at least one block or record.
    fn read(&mut self, engine: &Engine, bytes_max: u64) -> Vec<DamagedPart> {
        let mut found: Vec<DamagedPart> = Vec::new();
        let mut bytes = 0;
        while bytes < bytes_max && !engine.signal.stopped() {
            let Some(item) = self.left.front() else {
                Counters::add(&engine.counters.scrubs, 1);
                break;
            };
            let step = match item {
                Item::Part { resource, file } => {
                    let step = block(engine, resource, *file, self.at);
                    if let Some(Err(damaged)) = &step {
                        tracing::error!(%damaged, %resource, "a shelf is damaged");
                        if found.last().is_none_or(|last| last.file != *file) {
                            found.push(DamagedPart {
                                resource: resource.clone(),
                                file: *file,
                            });
                        }
                    }
                    // The part is written anew as a whole.
                    step.and_then(Result::ok)
                }
                Item::Segment(number) => match record(engine, *number, self.at) {
                    Some(Err(damaged)) => {
                        tracing::error!(%damaged, "the log is damaged: history reaches back to there only");
                        engine.tell_damage(damaged);
                        None
                    }
                    step => step.and_then(Result::ok),
                },
            };
            if let Some(Step { next, len }) = step {
                self.at = next;
                bytes += len;
                Counters::add(&engine.counters.scrubbed_bytes, len);
            } else {
                self.left.pop_front();
                self.at = 0;
            }
        }
        found
    }
}

struct Step {
    /// What [`Scrub::at`] is next.
    next: usize,
    /// Bytes that were read.
    len: u64,
}

/// Proves a block of a part; `None` behind the last one, and when the part is in use no more.
fn block(engine: &Engine, resource: &str, file: u64, block: usize) -> Option<Result<Step, Damaged>> {
    let view = engine.view();
    let parts = view.resource(resource)?.shelf.parts();
    let part: &Arc<Part> = parts.iter().find(|part| part.manifest_entry().file == file)?;
    let range = part.block_range(block);
    if range.is_empty() {
        return None;
    }
    let name = files::part(file);
    let mut bytes = vec![0; range.len()];
    let read = engine
        .disk
        .open(&name)
        .and_then(|file| file.read_at(&mut bytes, range.start as u64));
    let proven = match read {
        Err(error) => Err(Damaged {
            file: engine.disk.path(&name),
            offset: range.start as u64,
            reason: format!("cannot be read: {error}"),
        }),
        Ok(()) => part.prove_bytes(block, &bytes),
    };
    Some(proven.map(|()| Step {
        next: block + 1,
        len: bytes.len() as u64,
    }))
}

/// Proves a record of a sealed segment; `None` behind the last one, and when the segment was retired.
fn record(engine: &Engine, number: u32, offset: usize) -> Option<Result<Step, Damaged>> {
    let view = engine.view();
    let offset = offset.max(HEADER_LEN);
    let segment = view.log.holding(RecordRef {
        segment: number,
        offset: offset as u32,
    });
    let segment = segment.ok()?;
    let end = segment.seal_data()?.end as usize;
    if offset >= end {
        return None;
    }
    let record = frame::read(segment.bytes(), offset, segment.seed());
    let record = record.map_err(|error| Damaged::of(segment.map().file(), &error));
    Some(record.map(|record| Step {
        next: record.end(),
        len: record.len as u64,
    }))
}
