//! Candidates for a selection on shelf parts, found by postings.
//!
//! A run of postings lists objects that all have one label or field, or is marked as mixed (see the format). So once one
//! sidecar has shown that it is the one sought, the sidecars of the others need not be touched, and a requirement beside
//! the rarest one is looked up among its own postings. Only where a run is mixed, or a requirement cannot be decided by
//! postings, the sidecar of every candidate is asked.

use std::ops::Range;

use flatkube_format::shelf::PostingRun;

use super::error::Damaged;
use super::selection::{Listed, Plan, Selection, Sought};
use super::shelf_set::Part;
use super::shelf_walk::is_selected;

/// Candidates that are copied from postings at a time: bounds the heap of a listing.
const WINDOW: usize = 512;

/// Runs that are found at one go: their bytes lie far apart, and the processor fetches them side by side.
const GATHERED_MAX: usize = 64;

/// Numbers of objects of one part after the other, ascending.
#[derive(Clone)]
pub(super) struct Candidates {
    plan: Plan,
    /// The part that the rest is about.
    part: usize,
    /// Runs of the rarest requirement.
    runs: Vec<PostingRun>,
    /// Runs of each other requirement that not all objects of the part satisfy.
    other_runs: Vec<Vec<PostingRun>>,
    /// Whether the runs decide, without a look at sidecars.
    is_sure: bool,
    /// Every object of the part is a candidate: what is sought is not among its postings.
    is_unlisted: bool,
    window: Vec<u32>,
    /// Index in `window` of the next one.
    next: usize,
    /// Objects below this number are covered by the window.
    covered: usize,
}

impl Candidates {
    pub(super) fn new(plan: Plan) -> Candidates {
        Candidates {
            plan,
            part: usize::MAX,
            runs: Vec::new(),
            other_runs: Vec::new(),
            is_sure: false,
            is_unlisted: false,
            window: Vec::new(),
            next: 0,
            covered: 0,
        }
    }

    /// The first candidate of the part from the object `from` on and below `end`.
    pub(super) fn peek(
        &mut self,
        index: usize,
        part: &Part,
        from: usize,
        end: usize,
    ) -> Result<Option<usize>, Damaged> {
        if self.part != index {
            self.enter(index, part)?;
        }
        loop {
            while let Some(&candidate) = self.window.get(self.next) {
                if candidate as usize >= from {
                    return Ok(Some(candidate as usize).filter(|&candidate| candidate < end));
                }
                self.next += 1;
            }
            let start = self.covered.max(from);
            if start >= end {
                return Ok(None);
            }
            self.load(part, start as u32, end as u32);
        }
    }

    /// Whether every candidate of the part `index` is selected, whatever `selection` asks for besides. `false` before the
    /// first one was peeked at.
    pub(super) fn are_selected(&self, index: usize, selection: &Selection) -> bool {
        self.part == index && self.is_sure && self.other_runs.is_empty() && !selection.asks_for_keys()
    }

    /// Takes candidates out of the window: those in `objects`, as runs of neighbours. Gives where the next one is to be
    /// looked for.
    pub(super) fn gather(&mut self, objects: Range<usize>, found: &mut Vec<(u32, u32)>) -> usize {
        let mut at = objects.start;
        while let Some(&candidate) = self.window.get(self.next) {
            if candidate as usize >= objects.end || found.len() >= GATHERED_MAX {
                break;
            }
            self.next += 1;
            if (candidate as usize) < at {
                continue;
            }
            at = candidate as usize + 1;
            match found.last_mut() {
                Some((_, end)) if *end == candidate => *end += 1,
                _ => found.push((candidate, candidate + 1)),
            }
        }
        at
    }

    /// Whether a candidate is selected.
    pub(super) fn is_selected(&self, part: &Part, object: usize, selection: &Selection) -> Result<bool, Damaged> {
        if !self.is_sure {
            return is_selected(part, object, selection);
        }
        let is_listed = |runs: &Vec<PostingRun>| runs.iter().any(|&run| part.postings_of(run).contains(object as u32));
        Ok(self.other_runs.iter().all(is_listed)
            && (!selection.asks_for_keys() || selection.key_matches(part.key(object))))
    }

    fn enter(&mut self, index: usize, part: &Part) -> Result<(), Damaged> {
        (self.part, self.covered, self.next) = (index, 0, 0);
        self.window.clear();
        self.is_sure = self.plan.is_decided;
        self.runs.clear();
        self.other_runs.clear();
        self.is_unlisted = is_unlisted(part, &self.plan.rarest)?;
        if self.is_unlisted {
            self.is_sure = false;
        } else {
            find_runs(part, &self.plan.rarest, &mut self.runs, &mut self.is_sure)?;
        }
        if self.runs.is_empty() {
            return Ok(());
        }
        for listed in &self.plan.others {
            if is_unlisted(part, listed)? {
                self.is_sure = false;
                continue;
            }
            let mut runs = Vec::with_capacity(listed.sought.len());
            find_runs(part, listed, &mut runs, &mut self.is_sure)?;
            // What every object has needs no look-up.
            if !runs.iter().any(|run| run.len() == part.count()) {
                self.other_runs.push(runs);
            }
        }
        Ok(())
    }

    /// Copies the next candidates: all below some number, that is `covered` from then on.
    fn load(&mut self, part: &Part, start: u32, end: u32) {
        self.window.clear();
        self.next = 0;
        if self.is_unlisted {
            let covered = end.min(start.saturating_add(WINDOW as u32));
            self.window.extend(start..covered);
            self.covered = covered as usize;
            return;
        }
        let share = (WINDOW / self.runs.len().max(1)).max(16);
        let mut covered = end;
        for &run in &self.runs {
            let listed = part.postings_of(run).within(start, end);
            self.window.extend(listed.iter().take(share));
            if let Some(cut) = listed.get(share) {
                covered = covered.min(cut);
            }
        }
        if self.runs.len() > 1 {
            self.window.sort_unstable();
            self.window.dedup();
        }
        self.window
            .truncate(self.window.partition_point(|&candidate| candidate < covered));
        self.covered = covered as usize;
    }
}

/// Whether the part's postings do not tell which objects satisfy a requirement.
fn is_unlisted(part: &Part, listed: &Listed) -> Result<bool, Damaged> {
    Ok(listed.sought.iter().any(Sought::is_owner) && !part.lists_owners()?)
}

/// Finds the runs of a requirement; `is_sure` stays true if the part vouches for all of them.
fn find_runs(part: &Part, listed: &Listed, runs: &mut Vec<PostingRun>, is_sure: &mut bool) -> Result<(), Damaged> {
    for sought in &listed.sought {
        if let Some(run) = part.posting_run(sought.hash) {
            *is_sure = *is_sure && part.vouches(run, sought)?;
            runs.push(run);
        }
    }
    Ok(())
}
