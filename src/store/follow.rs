//! The log as history: what was written to a resource after a revision.
//!
//! A follower is a position and nothing else. It reads the log where it lies, by the index of each segment, so a slow
//! one reads further back and has no queue that could overflow; it fails only if retention discarded a record of its
//! resource that it has not read.

use std::sync::Arc;
use std::task::{Context, Poll};

use flatkube_format::frame::Kind;

use super::bell::Listener;
use super::engine::{Counters, Engine};
use super::error::HistoryError;
use super::log::EntryList;
use super::object::Object;
use super::view::View;
use super::write::{Event, EventKind};

/// A position in the log of one resource, from which its writes are read in order. While nothing happens it costs a
/// number and a waker.
pub struct Follower {
    engine: Arc<Engine>,
    resource: Box<str>,
    namespace: Option<Namespace>,
    position: u64,
    listener: Listener,
}

struct Namespace {
    name: Box<str>,
    crc: u32,
}

impl Namespace {
    fn holds(&self, key: &str) -> bool {
        key.strip_prefix(&*self.name).is_some_and(|rest| rest.starts_with('/'))
    }
}

/// Newest discarded revision of a resource.
pub(super) fn floor(engine: &Engine, view: &View, resource: &str) -> u64 {
    view.resource(resource)
        .map_or(0, |resource| resource.floor)
        .max(engine.floor)
}

/// Whether all writes of the resource after `revision` are there.
pub(super) fn check(engine: &Engine, view: &View, resource: &str, revision: u64) -> Result<(), HistoryError> {
    let current = view.revision();
    let floor = floor(engine, view, resource);
    if revision > current {
        return Err(HistoryError::Future { current });
    }
    if revision < floor {
        return Err(HistoryError::TooOld { floor, current });
    }
    Ok(())
}

impl Follower {
    pub(super) fn new(
        engine: &Arc<Engine>,
        resource: &str,
        namespace: Option<&str>,
        after: u64,
    ) -> Result<Follower, HistoryError> {
        check(engine, &engine.view(), resource, after)?;
        Ok(Follower {
            engine: engine.clone(),
            resource: resource.into(),
            namespace: namespace.map(|name| Namespace {
                name: name.into(),
                crc: crc32fast::hash(name.as_bytes()),
            }),
            position: after,
            listener: Listener::new(engine.bell(resource)),
        })
    }

    /// The next write after the position; `None` when nothing newer is published now.
    ///
    /// [`HistoryError::TooOld`]: the reader was slower than retention allows; it must read anew.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator ends; this goes on when more is published"
    )]
    pub fn next(&mut self) -> Result<Option<Event>, HistoryError> {
        let view = self.engine.view();
        if self.position >= view.revision() {
            // Nothing was published since, so nothing can have been discarded that was not read.
            return Ok(None);
        }
        check(&self.engine, &view, &self.resource, self.position).inspect_err(|error| {
            if matches!(error, HistoryError::TooOld { .. }) {
                Counters::add(&self.engine.counters.followers_too_old, 1);
            }
        })?;
        let none = EntryList::default();
        let index = view.resource(&self.resource).map_or(&none, |resource| &resource.index);
        for (at, entry) in view.log.entries_after(&self.resource, index, self.position) {
            if self
                .namespace
                .as_ref()
                .is_none_or(|namespace| namespace.crc == entry.namespace)
            {
                let segment = view.log.holding(at)?;
                let record = segment.record(at.offset)?;
                if self
                    .namespace
                    .as_ref()
                    .is_none_or(|namespace| namespace.holds(record.key))
                {
                    let event = Event {
                        kind: match record.kind {
                            Kind::Create => EventKind::Created,
                            Kind::Delete => EventKind::Deleted,
                            Kind::Update | Kind::Marker => EventKind::Updated,
                        },
                        revision: entry.revision,
                        object: Object::of_record(segment, &record),
                        previous: Object::before_record(segment, &record)?,
                    };
                    let event = match view
                        .resource(&self.resource)
                        .and_then(|resource| resource.sealing.as_ref())
                    {
                        None => event,
                        Some(sealing) => Event {
                            object: event.object.opened_by(sealing),
                            previous: event.previous.map(|previous| previous.opened_by(sealing)),
                            ..event
                        },
                    };
                    self.position = entry.revision;
                    return Ok(Some(event));
                }
            }
            self.position = entry.revision;
        }
        self.position = view.revision();
        Ok(None)
    }

    /// Resolves when a write of the resource (in whatever namespace) was published that [`Follower::next`] has not passed
    /// yet. Cancel-safe.
    pub async fn changed(&mut self) {
        std::future::poll_fn(|context| self.poll_changed(context)).await;
    }

    /// [`Follower::changed`] for hand-written futures and streams.
    pub fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.listener.poll_above(self.position, context)
    }

    /// Everything of the resource up to this revision was given. Advances over writes of other resources, too, each time
    /// [`Follower::next`] gives `None`.
    pub fn position(&self) -> u64 {
        self.position
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Follower({} after {})", self.resource, self.position)
    }
}
