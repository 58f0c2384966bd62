//! Lists: a range of a resource in list order, as few large runs.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use flatkube_format::shelf::RowHoles;

use super::delta::Delta;
use super::error::Damaged;
use super::layer::{Head, KeyRange, Layer, Source};
use super::log::Log;
use super::object::Object;
use super::resource_view::ResourceView;
use super::sealing::ResourceSealing;
use super::selection::{Listed, Requirement, Selection};
use super::shelf_set::Part;
use super::shelf_walk::{Neighbours, ShelfWalk};
use super::view::{View, keys_of_namespace};

/// Which keys of a resource are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Only objects of this namespace.
    pub namespace: Option<String>,
    /// Only objects with a key greater than this one.
    pub after: Option<String>,
}

/// A cursor over the selected objects of a range in list order, which is the byte order of keys.
///
/// Keeps its view alive. Its heap does not depend on how many objects there are, but for selections of several values at
/// once (`in`, exists), which gather up to an eighth of the delta's keys (24 bytes each), if so many have one of them.
#[derive(Clone)]
pub struct Listing {
    view: Arc<View>,
    resource: Arc<ResourceView>,
    selection: Selection,
    range: KeyRange,
    shelf: ShelfWalk,
    /// Past, active, frozen: from top to bottom.
    layers: [Layer; 3],
    last: Option<Last>,
    /// The run that was lent last; the next one takes its place and its handle on the file.
    lent: Option<Run>,
    /// Runs that were found together, in the part of the run that was lent last; the next one last.
    found: Vec<(u32, u32)>,
    /// For resources of which some objects may be sealed.
    opening: Option<Box<Opening>>,
}

/// Objects that may be sealed are lent one by one.
#[derive(Clone)]
struct Opening {
    sealing: Arc<ResourceSealing>,
    lent: Option<Run>,
}

/// The last object that was handed out.
#[derive(Clone)]
enum Last {
    Shelved { part: usize, object: usize },
    Above(Head),
}

impl Listing {
    pub(super) fn new(view: &Arc<View>, resource: &str, range: Range, selection: &Selection) -> Listing {
        let mut listing = Listing::between(view, resource, key_range(range, selection), selection);
        listing.opening = listing
            .resource
            .sealing
            .clone()
            .map(|sealing| Box::new(Opening { sealing, lent: None }));
        listing
    }

    /// Over the keys of a range of bytes, of objects as they lie on the disk: for the store's own use.
    pub(super) fn between(view: &Arc<View>, resource: &str, range: KeyRange, selection: &Selection) -> Listing {
        let resource = view.resource(resource).cloned().unwrap_or_default();
        let shelf = ShelfWalk::new(&resource.shelf, &range);
        let plan = selection.plan(|listed| cost(&resource, &shelf, listed));
        let hashes = plan.as_ref().map(|plan| plan.rarest.in_delta());
        let shelf = match plan {
            Some(plan) => shelf.of_candidates(plan),
            None => shelf,
        };
        let mut layers: [Layer; 3] =
            std::array::from_fn(|layer| Layer::new(source(&resource, layer), &view.log, &range, hashes.as_deref()));
        if selection.needs_sidecar() {
            layers.iter_mut().for_each(Layer::read_sidecars);
        }
        Listing {
            view: Arc::clone(view),
            resource,
            selection: selection.clone(),
            range,
            shelf,
            layers,
            last: None,
            lent: None,
            found: Vec::new(),
            opening: None,
        }
    }

    /// Says that the sidecars of the objects will be read, so that they are fetched ahead.
    #[must_use]
    pub fn reading_sidecars(mut self) -> Listing {
        self.layers.iter_mut().for_each(Layer::read_sidecars);
        self
    }

    /// The next run: at most `max` (and at least one) selected objects that follow each other; `None` at the end of the
    /// range.
    ///
    /// Without a selection, or if postings list what is selected, the cost follows what is handed out; else every object
    /// of the range is looked at.
    pub fn next(&mut self, max: usize) -> Result<Option<Run>, Damaged> {
        Ok(self.advance(max)?.cloned())
    }

    /// [`Listing::next`], lent until the next call. Spares the reference counts of a handle per run.
    pub fn advance(&mut self, max: usize) -> Result<Option<&Run>, Damaged> {
        if self.opening.is_some() {
            return self.advance_opened();
        }
        Ok(if self.step(max)? { self.lent.as_ref() } else { None })
    }

    /// The next object, to be opened when its JSON is looked at.
    fn advance_opened(&mut self) -> Result<Option<&Run>, Damaged> {
        if !self.step(1)? {
            return Ok(None);
        }
        let object = match &self.lent {
            Some(Run::One(object)) => Some(object.clone()),
            Some(Run::Shelved(run)) => run.objects().next(),
            None => None,
        };
        Ok(self.opening.as_mut().and_then(|opening| {
            opening.lent = object.map(|object| Run::One(object.opened_by(&opening.sealing)));
            opening.lent.as_ref()
        }))
    }

    /// Puts the next run into `lent`; `false` at the end.
    fn step(&mut self, max: usize) -> Result<bool, Damaged> {
        if let Some((start, end)) = self.found.pop()
            && let (Some(Run::Shelved(run)), Some(Last::Shelved { object, .. })) = (&mut self.lent, &mut self.last)
        {
            let (start, end) = (start as usize, end as usize);
            let middle = end.min(start.saturating_add(max.max(1)));
            if middle < end {
                self.found.push((middle as u32, end as u32));
            }
            (run.start, run.end) = (start, middle);
            *object = middle - 1;
            return Ok(true);
        }
        self.search(max)
    }

    fn search(&mut self, max: usize) -> Result<bool, Damaged> {
        let Listing {
            view,
            resource,
            selection,
            shelf,
            layers,
            lent,
            found,
            ..
        } = self;
        let max = max.max(1);
        if shelf.is_over()
            && selection.is_everything()
            && let Some(only) = only_layer(layers)
        {
            // Nothing to merge.
            let Some((segment, version)) = layers[only].take(source(resource, only), &view.log)? else {
                return Ok(false);
            };
            let is_there = match lent {
                Some(Run::One(object)) => object.move_to_version(segment, version),
                _ => false,
            };
            if !is_there {
                let Some(holder) = view.log.segment(segment) else {
                    return Ok(false);
                };
                *lent = Some(Run::One(Object::of_version(holder, version)));
            }
            self.last = Some(Last::Above(Head::Logged { segment, version }));
            return Ok(true);
        }
        loop {
            for (layer, place) in layers.iter_mut().enumerate() {
                place.look(source(resource, layer), &view.log)?;
            }
            let log = &view.log;
            let next = first_layer(layers, log);
            if !shelf.is_over()
                && let Some(Neighbours { part, objects }) = {
                    let head = next.and_then(|layer| layers[layer].head.as_ref());
                    shelf.next(&resource.shelf, head.map(|head| head.key_bytes(log)), max, selection)?
                }
            {
                self.last = Some(Last::Shelved {
                    part,
                    object: objects.end - 1,
                });
                let part = &resource.shelf.parts()[part];
                if next.is_none() {
                    shelf.gather(&resource.shelf, selection, found);
                }
                match lent {
                    Some(Run::Shelved(run)) if Arc::ptr_eq(&run.part, part) => {
                        (run.start, run.end) = (objects.start, objects.end);
                    }
                    _ => {
                        *lent = Some(Run::Shelved(ShelvedRun {
                            part: Arc::clone(part),
                            start: objects.start,
                            end: objects.end,
                        }));
                    }
                }
                return Ok(true);
            }
            let Some(next) = next else { return Ok(false) };
            let Some(head) = layers[next].head.take() else {
                return Ok(false);
            };
            if next == 0 {
                // The past hides what lies beneath; the deltas have marked it already.
                let key = head.key_bytes(log);
                for layer in &mut layers[1..] {
                    layer.head.take_if(|other| other.key_bytes(log) == key);
                }
                shelf.pass_over(&resource.shelf, key);
            }
            if let (Some(Run::One(object)), Head::Logged { segment, version }) = (&mut *lent, &head)
                && object.move_to_version(*segment, *version)
            {
                if selection.is_everything() || selection.matches(object)? {
                    self.last = Some(Last::Above(head));
                    return Ok(true);
                }
                continue;
            }
            let Some(object) = head.object(log) else { continue };
            let is_selected = selection.is_everything() || selection.matches(&object)?;
            *lent = Some(Run::One(object));
            if is_selected {
                self.last = Some(Last::Above(head));
                return Ok(true);
            }
        }
    }

    /// Objects of the range behind the last run that was handed out, whether selected or not. O(log n).
    pub fn remaining(&self) -> u64 {
        let after = match &self.last {
            None => self.range.lower(),
            Some(Last::Shelved { part, object }) => {
                Bound::Excluded(self.resource.shelf.parts()[*part].key_bytes(*object))
            }
            Some(Last::Above(head)) => Bound::Excluded(head.key_bytes(&self.view.log)),
        };
        self.resource.count(&self.view.log, after, self.range.upper.as_deref())
    }
}

impl std::fmt::Debug for Listing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listing({:?}, {:?})", self.range, self.selection)
    }
}

fn source(resource: &ResourceView, layer: usize) -> Source<'_> {
    match layer {
        0 => resource.past.as_deref().map_or(Source::Nothing, Source::Past),
        1 => Source::Active(&resource.active),
        _ => resource.frozen.as_ref().map_or(Source::Nothing, Source::Frozen),
    }
}

/// The one layer that may have something to offer, if there is no other, and its versions lie in the log.
fn only_layer(layers: &[Layer; 3]) -> Option<usize> {
    let mut open = (0..layers.len()).filter(|&layer| !layers[layer].is_over());
    open.next()
        .filter(|&layer| layer > 0 && layers[layer].head.is_none() && open.next().is_none())
}

/// The layer with the smallest key; of equals, the topmost. Reads keys only if several layers have one.
fn first_layer(layers: &[Layer; 3], log: &Log) -> Option<usize> {
    let mut first: Option<(usize, &Head)> = None;
    for (layer, place) in layers.iter().enumerate() {
        let Some(head) = &place.head else { continue };
        if first.is_none_or(|(_, smallest)| head.key_bytes(log) < smallest.key_bytes(log)) {
            first = Some((layer, head));
        }
    }
    first.map(|(layer, _)| layer)
}

/// The keys that a range and the requirements on the key leave.
fn key_range(range: Range, selection: &Selection) -> KeyRange {
    let mut namespace = range.namespace;
    let mut name = None;
    for requirement in &selection.requirements {
        match requirement {
            // An object without a namespace has the namespace "" but no slash in its key.
            Requirement::Namespace { value, is: true } if namespace.is_none() && !value.is_empty() => {
                namespace = Some(value.clone());
            }
            Requirement::Name { value, is: true } => name = Some(value),
            _ => {}
        }
    }
    let (mut lower, upper) = match (&namespace, name) {
        (None, _) => (Bound::Unbounded, None),
        (Some(namespace), Some(name)) => {
            let key = format!("{namespace}/{name}").into_bytes();
            let mut upper = key.clone();
            upper.push(0);
            (Bound::Included(key), Some(upper))
        }
        (Some(namespace), None) => {
            let (lower, upper) = keys_of_namespace(namespace);
            (Bound::Included(lower), Some(upper))
        }
    };
    if let Some(after) = range.after.map(String::into_bytes) {
        let moves = match &lower {
            Bound::Included(lower) => after >= *lower,
            _ => true,
        };
        if moves {
            lower = Bound::Excluded(after);
        }
    }
    KeyRange { lower, upper }
}

/// How many candidates postings list.
fn cost(resource: &ResourceView, shelf: &ShelfWalk, listed: &Listed) -> usize {
    let hashes = listed.in_delta();
    let in_delta = |delta: &Delta| {
        hashes
            .iter()
            .map(|hashes| delta.postings().ranks(hashes).len())
            .sum::<usize>()
    };
    shelf.listed(&resource.shelf, listed) + resource.deltas().map(in_delta).sum::<usize>()
}

/// Objects that follow each other in a list.
#[derive(Clone, Debug)]
pub enum Run {
    /// Side by side in a shelf part.
    Shelved(ShelvedRun),
    /// One, from the log.
    One(Object),
}

impl Run {
    /// Number of objects, at least 1.
    pub fn len(&self) -> usize {
        match self {
            Run::Shelved(run) => run.len(),
            Run::One(_) => 1,
        }
    }

    /// Never: a run has at least one object.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Key of the last object: what a continue token names.
    pub fn last_key(&self) -> &str {
        match self {
            Run::Shelved(run) => run.part.key(run.end - 1),
            Run::One(object) => object.key(),
        }
    }

    /// The objects in list order.
    pub fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        let (shelved, one) = match self {
            Run::Shelved(run) => (Some(run.objects()), None),
            Run::One(object) => (None, Some(object.clone())),
        };
        shelved.into_iter().flatten().chain(one)
    }
}

/// Objects that lie side by side in a shelf part, none of them changed since.
#[derive(Clone, Debug)]
pub struct ShelvedRun {
    part: Arc<Part>,
    start: usize,
    end: usize,
}

impl ShelvedRun {
    /// Number of objects, at least 1.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Never: a run has at least one object.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The stored JSON of all of them, separated by commas: one slice of the mapped file, proven at first touch.
    pub fn json(&self) -> Result<Bytes, Damaged> {
        self.part.json_of(self.start..self.end)
    }

    /// The bytes of [`ShelvedRun::json`]; with `comma`, and unless the run is the first of its part, with the comma before
    /// them. The second value tells whether the comma is there.
    pub fn joined_json(&self, comma: bool) -> Result<(ShelvedText<'_>, bool), Damaged> {
        let mut range = self.part.json_range(self.start..self.end);
        let has_comma = comma && self.start > 0;
        range.start -= usize::from(has_comma);
        self.part.expect(&range);
        self.part.prove(range.clone())?;
        let part = &self.part;
        Ok((ShelvedText { part, range }, has_comma))
    }

    /// The Table rows of the objects, side by side, if they follow this column layout and lie on the shelf.
    pub fn rows(&self, layout: u32) -> Result<Option<ShelvedText<'_>>, Damaged> {
        if self.part.row_layout() != Some(layout) {
            return Ok(None);
        }
        let range = self.part.rows_of(self.start..self.end)?;
        Ok(Some(ShelvedText {
            part: &self.part,
            range,
        }))
    }

    /// Where in [`ShelvedRun::rows`] a time goes, in bytes from their start, ascending, and the Unix second since which it is
    /// told.
    pub fn row_holes(&self) -> RowHoles<'_> {
        self.part.holes_of(self.start..self.end)
    }

    /// What is in the rows of the objects as `object`, if there are rows: metadata and what frames it, one after the other.
    pub fn row_objects(&self) -> Option<impl Iterator<Item = Result<ShelvedText<'_>, Damaged>>> {
        self.part.row_layout()?;
        let object = |index| {
            let range = self.part.row_object(index)?;
            Ok(ShelvedText {
                part: &self.part,
                range,
            })
        };
        Some((self.start..self.end).map(object))
    }

    /// The first `count` objects (at least one) and the others.
    pub fn split(&self, count: usize) -> (ShelvedRun, Option<ShelvedRun>) {
        let middle = (self.start + count.max(1)).min(self.end);
        let run = |start, end| ShelvedRun {
            part: Arc::clone(&self.part),
            start,
            end,
        };
        (
            run(self.start, middle),
            (middle < self.end).then(|| run(middle, self.end)),
        )
    }

    /// This run and one that follows it, as [`ShelvedRun::split`] made them.
    pub fn joined_with(mut self, next: &ShelvedRun) -> ShelvedRun {
        debug_assert!(Arc::ptr_eq(&self.part, &next.part) && self.end == next.start);
        self.end = next.end;
        self
    }

    /// Length of [`ShelvedRun::json`] in bytes.
    pub fn json_len(&self) -> usize {
        self.part.json_range(self.start..self.end).len()
    }

    /// The objects in list order.
    pub fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        (self.start..self.end).map(|index| Object::shelved(Arc::clone(&self.part), index))
    }

    /// Looks at the objects in list order up to the first error. Spares the reference count for each of
    /// [`ShelvedRun::objects`].
    pub fn try_for_each<E>(&self, mut look: impl FnMut(&Object) -> Result<(), E>) -> Result<(), E> {
        let mut object = Object::shelved(Arc::clone(&self.part), self.start);
        for index in self.start..self.end {
            object.move_to(index);
            look(&object)?;
        }
        Ok(())
    }
}

/// Some text of a shelf part, proven.
#[derive(Debug)]
pub struct ShelvedText<'a> {
    part: &'a Part,
    range: std::ops::Range<usize>,
}

impl<'a> ShelvedText<'a> {
    /// Its bytes; of rows, without what goes into the holes.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.part.bytes_of(self.range.clone())
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// As a slice that keeps the map alive.
    pub fn slice(&self) -> Bytes {
        self.part.slice_of(self.range.clone())
    }
}
