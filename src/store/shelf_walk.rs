//! The shelf of a resource, walked in order as runs of neighbours: what a [`Listing`](super::listing::Listing) merges
//! with the layers above.

use std::ops::{Bound, Range};
use std::sync::Arc;

use super::candidates::Candidates;
use super::error::Damaged;
use super::layer::KeyRange;
use super::selection::{Listed, Plan, Selection, Sought};
use super::shelf_set::{Part, Place, ShelfSet};

/// A place on a shelf that moves forward over what a selection may want.
#[derive(Clone)]
pub(super) struct ShelfWalk {
    at: Place,
    end: Place,
    /// If set, only these objects are looked at.
    candidates: Option<Candidates>,
}

/// Neighbours on a shelf part.
pub(super) struct Neighbours {
    pub(super) part: usize,
    pub(super) objects: Range<usize>,
}

impl ShelfWalk {
    /// Over the objects of a range.
    pub(super) fn new(shelf: &ShelfSet, range: &KeyRange) -> ShelfWalk {
        let at = shelf.lower(range.lower());
        let end = range
            .upper
            .as_deref()
            .map_or(shelf.end(), |upper| shelf.lower(Bound::Included(upper)));
        ShelfWalk {
            at,
            end,
            candidates: None,
        }
    }

    /// Over those objects alone that a plan makes candidates.
    pub(super) fn of_candidates(self, plan: Plan) -> ShelfWalk {
        ShelfWalk {
            candidates: Some(Candidates::new(plan)),
            ..self
        }
    }

    /// Number of objects of the walk that postings list, shadowed ones included.
    pub(super) fn listed(&self, shelf: &ShelfSet, listed: &Listed) -> usize {
        let parts = shelf
            .parts()
            .iter()
            .enumerate()
            .take(self.end.part + 1)
            .skip(self.at.part);
        let in_part = |(index, part): (usize, &Arc<Part>)| {
            let objects = self.objects_of(index, part);
            let count = |sought: &Sought| match part.posting_run(sought.hash) {
                None => 0,
                Some(run) if objects == (0..part.count()) => run.len(),
                Some(run) => part
                    .postings_of(run)
                    .within(objects.start as u32, objects.end as u32)
                    .len(),
            };
            listed.sought.iter().map(count).sum::<usize>()
        };
        parts.map(in_part).sum()
    }

    /// The objects of one part that are still before the walk.
    fn objects_of(&self, index: usize, part: &Part) -> Range<usize> {
        let start = if index == self.at.part { self.at.object } else { 0 };
        let end = match index.cmp(&self.end.part) {
            std::cmp::Ordering::Less => part.count(),
            std::cmp::Ordering::Equal => self.end.object,
            std::cmp::Ordering::Greater => 0,
        };
        start..end.max(start)
    }

    /// The next neighbours that are not shadowed, are selected, and have keys below `before`; at most `max`. `None`
    /// leaves the walk before the first object that is not below `before`, or at its end.
    pub(super) fn next(
        &mut self,
        shelf: &ShelfSet,
        before: Option<&[u8]>,
        max: usize,
        selection: &Selection,
    ) -> Result<Option<Neighbours>, Damaged> {
        while let Some(part) = shelf.parts().get(self.at.part) {
            let objects = self.objects_of(self.at.part, part);
            let (limited, found) = match &mut self.candidates {
                None => self.next_of_all(shelf, part, objects.clone(), before, max, selection)?,
                Some(_) => self.next_candidates(shelf, part, objects.clone(), before, max, selection)?,
            };
            if found.is_some() || limited {
                return Ok(found);
            }
            if self.at.part >= self.end.part {
                self.at = Place {
                    object: objects.end,
                    ..self.at
                };
                return Ok(None);
            }
            self.at = Place {
                part: self.at.part + 1,
                object: 0,
            };
        }
        Ok(None)
    }

    /// Passes over the next runs of the part at which the walk stands and adds them to `found`, the next one last: those
    /// that postings alone decide about. For when nothing above the shelf is left to be merged with it.
    pub(super) fn gather(&mut self, shelf: &ShelfSet, selection: &Selection, found: &mut Vec<(u32, u32)>) {
        let (Some(part), Some(candidates)) = (shelf.parts().get(self.at.part), &mut self.candidates) else {
            return;
        };
        if shelf.has_shadow(self.at.part) || !candidates.are_selected(self.at.part, selection) {
            return;
        }
        let end = match self.at.part.cmp(&self.end.part) {
            std::cmp::Ordering::Less => part.count(),
            std::cmp::Ordering::Equal => self.end.object,
            std::cmp::Ordering::Greater => 0,
        };
        self.at.object = candidates.gather(self.at.object..end, found);
        part.touch(found.iter().map(|run| run.0 as usize));
        found.reverse();
    }

    /// Whether nothing is left.
    pub(super) fn is_over(&self) -> bool {
        self.at >= self.end
    }

    /// Passes over the object at which the walk stands if it has this key: a layer above has another version of it.
    pub(super) fn pass_over(&mut self, shelf: &ShelfSet, key: &[u8]) {
        if let Some(part) = shelf.parts().get(self.at.part)
            && self.at.object < self.objects_of(self.at.part, part).end
            && part.key_bytes(self.at.object) == key
        {
            self.at.object += 1;
        }
    }

    /// Whether the walk stopped because of `before`, and what it found in this part.
    fn next_of_all(
        &mut self,
        shelf: &ShelfSet,
        part: &Part,
        objects: Range<usize>,
        before: Option<&[u8]>,
        max: usize,
        selection: &Selection,
    ) -> Result<(bool, Option<Neighbours>), Damaged> {
        let mut at = objects.start;
        loop {
            at = shelf.next_with_shadow(self.at.part, at, objects.end, false);
            self.at.object = at;
            if at == objects.end {
                return Ok((false, None));
            }
            let shadowed = shelf.next_with_shadow(self.at.part, at, objects.end, true);
            let limit = before.map_or(shadowed, |before| part.gallop(before, at..shadowed));
            if limit == at {
                return Ok((true, None));
            }
            if selection.is_everything() {
                let end = limit.min(at.saturating_add(max));
                self.at.object = end;
                return Ok((
                    false,
                    Some(Neighbours {
                        part: self.at.part,
                        objects: at..end,
                    }),
                ));
            }
            let mut start = at;
            while start < limit && !is_selected(part, start, selection)? {
                start += 1;
            }
            if start == limit {
                at = limit;
                continue;
            }
            let mut end = start + 1;
            while end < limit && end - start < max && is_selected(part, end, selection)? {
                end += 1;
            }
            self.at.object = end;
            return Ok((
                false,
                Some(Neighbours {
                    part: self.at.part,
                    objects: start..end,
                }),
            ));
        }
    }

    /// Like [`ShelfWalk::next_of_all`], among the candidates.
    fn next_candidates(
        &mut self,
        shelf: &ShelfSet,
        part: &Part,
        objects: Range<usize>,
        before: Option<&[u8]>,
        max: usize,
        selection: &Selection,
    ) -> Result<(bool, Option<Neighbours>), Damaged> {
        let Some(candidates) = &mut self.candidates else {
            return Ok((false, None));
        };
        let mut found: Option<Range<usize>> = None;
        let mut from = objects.start;
        loop {
            let Some(candidate) = candidates.peek(self.at.part, part, from, objects.end)? else {
                // With a run in hand the next call comes here again and finds the part empty.
                self.at.object = found.as_ref().map_or(objects.end, |run| run.end);
                break;
            };
            if let Some(run) = &found
                && (candidate != run.end || run.len() >= max)
            {
                self.at.object = run.end;
                break;
            }
            self.at.object = candidate;
            if shelf.is_shadowed(self.at) {
                from = candidate + 1;
                if found.is_some() {
                    self.at.object = from;
                    break;
                }
                continue;
            }
            if before.is_some_and(|before| part.key_bytes(candidate) >= before) {
                return Ok((
                    true,
                    found.map(|objects| Neighbours {
                        part: self.at.part,
                        objects,
                    }),
                ));
            }
            from = candidate + 1;
            if candidates.is_selected(part, candidate, selection)? {
                found = Some(found.map_or(candidate, |run| run.start)..candidate + 1);
            } else if found.is_some() {
                self.at.object = from;
                break;
            }
        }
        Ok((
            false,
            found.map(|objects| Neighbours {
                part: self.at.part,
                objects,
            }),
        ))
    }
}

/// Whether an object is selected, by its key and sidecar.
pub(super) fn is_selected(part: &Part, object: usize, selection: &Selection) -> Result<bool, Damaged> {
    if !selection.needs_sidecar() {
        return Ok(selection.key_matches(part.key(object)));
    }
    Ok(selection.matches_parts(part.key(object), part.archive(object)?))
}
