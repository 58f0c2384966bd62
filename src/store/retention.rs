//! Retention: how long the log is kept as history.
//!
//! The oldest sealed segment goes when it is older than [`Options::history_age`] and the rest of the log still has
//! [`Options::history_bytes_min`]; and whatever its age when the log has more than [`Options::history_bytes`]. A reader does
//! not hold it: what it still reads stays mapped (`retired.rs`), but a follower behind it is told that it is too slow.
//!
//! A segment goes only when all its records are on shelves. With it goes the history of the resources that have records in
//! it, up to the newest of these: that is their floor. History of other resources is untouched.
//!
//! # Order, and why a crash is safe at any point
//! The manifest stops naming the segment and raises the floors; then views stop reading it; then the file is removed. A
//! crash in between leaves a file that no manifest names.

use std::sync::Arc;
use std::time::Duration;

use super::engine::{Engine, remove, unix_seconds};
use super::files;
use super::log::Log;
use super::manifest::ReplaceError;
use super::options::Options;
use super::planted::{Planted, is_planted};
use super::recovery::raise_floor;
use super::segment::Segment;
use super::shelving::ShelveError;
use super::view::View;

/// How many of the oldest segments may go, if their records are on shelves. With `keep`, those that were sealed longer ago than
/// that, whatever the options say.
fn retirable(options: &Options, log: &Log, now: i64, keep: Option<Duration>) -> usize {
    let bytes = |segment: &Arc<Segment>| segment.map().capacity() as u64;
    let mut kept: u64 = log.segments().iter().map(bytes).sum();
    let mut count = 0;
    for segment in log.segments() {
        let Some(sealed) = segment.seal_data() else { break };
        let age = u64::try_from(now.saturating_sub(sealed.at)).unwrap_or(0);
        let rest = kept - bytes(segment);
        let over = kept > options.history_bytes;
        let old = age >= options.history_age.as_secs() && rest >= options.history_bytes_min;
        let unwanted = keep.is_some_and(|keep| age >= keep.as_secs());
        if !over && !old && !unwanted {
            break;
        }
        kept = rest;
        count += 1;
    }
    count
}

/// The newest record of each resource in a sealed segment.
fn newest(segment: &Segment) -> impl Iterator<Item = (&str, u64)> {
    let bytes = segment.bytes();
    let footer = segment.seal_data().map(|sealed| sealed.footer);
    footer.into_iter().flat_map(move |footer| {
        footer
            .resources(bytes)
            .map(move |(name, run)| (name, footer.entry(bytes, run, run.len() - 1).revision))
    })
}

fn is_shelved(view: &View, name: &str, revision: u64) -> bool {
    view.resource(name).is_some_and(|resource| {
        let revision = if is_planted(Planted::RetireEarly) {
            revision - 1
        } else {
            revision
        };
        revision <= resource.shelved_revision || (resource.active.is_empty() && resource.frozen.is_none())
    })
}

/// Resources that must be shelved before old segments can go.
pub(super) fn standing_in_the_way(engine: &Engine, keep: Option<Duration>) -> Vec<Arc<str>> {
    let view = engine.view();
    let count = retirable(&engine.options, &view.log, unix_seconds(), keep);
    let mut names: Vec<Arc<str>> = Vec::new();
    for segment in &view.log.segments()[..count] {
        for (name, revision) in newest(segment) {
            if !is_shelved(&view, name, revision) && !names.iter().any(|known| **known == *name) {
                names.push(name.into());
            }
        }
    }
    names
}

/// Retires the oldest segments, as far as they may go and are on shelves.
pub(super) fn retire(engine: &Engine, keep: Option<Duration>) -> Result<(), ShelveError> {
    let mut manifest = engine.manifest.lock();
    let view = engine.view();
    let count = retirable(&engine.options, &view.log, unix_seconds(), keep);
    let old: Vec<_> = view.log.segments()[..count]
        .iter()
        .take_while(|segment| newest(segment).all(|(name, revision)| is_shelved(&view, name, revision)))
        .cloned()
        .collect();
    let Some(last) = old.last() else { return Ok(()) };
    let keep_from = last.number() + 1;

    let mut next = manifest.clone();
    next.revision = next.revision.max(view.revision());
    next.segments.retain(|segment| segment.number >= u64::from(keep_from));
    let mut floors: Vec<(&str, u64)> = Vec::new();
    for (name, revision) in old.iter().flat_map(|segment| newest(segment)) {
        raise_floor(&mut next, name, revision);
        match floors.iter_mut().find(|(known, _)| *known == name) {
            Some((_, floor)) => *floor = revision.max(*floor),
            None => floors.push((name, revision)),
        }
    }
    match engine.manifest.replace(&mut manifest, next) {
        Ok(()) => {}
        Err(ReplaceError::NoSpace(_)) => return Err(ShelveError::NoSpace),
        Err(ReplaceError::Failed(error)) => {
            engine.fail("replace the manifest", &error);
            return Err(ShelveError::Failed);
        }
    }
    let mut working = engine.working();
    working.view.log.retire_below(keep_from);
    if is_planted(Planted::RetireInTwoSteps) {
        working.publish();
        working = engine.working();
    }
    for (name, floor) in floors {
        let resource = working.view.resource_mut(name);
        resource.floor = resource.floor.max(floor);
    }
    working.publish();
    drop(manifest);
    for segment in &old {
        engine.retired.add(segment.map());
        let name = files::segment(segment.number().into());
        if let Err(error) = remove(&*engine.disk, &name) {
            tracing::warn!(%error, file = engine.disk.path(&name), "cannot remove a retired segment");
        }
    }
    Ok(())
}
