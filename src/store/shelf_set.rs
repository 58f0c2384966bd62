//! The shelf of a resource: mapped parts in list order, and which of their objects were overwritten since.
//!
//! Nothing here grows with the number of shelved objects but three bits of bookkeeping: two per 64 KiB block, that its checksum
//! and that its archives were proven, and, in a resource that is being written, a bit per object that a delta overwrote (its *shadow*).

use std::fmt;
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use bytes::Bytes;
use flatkube_format::manifest::PartEntry;
use flatkube_format::shelf::{Entry, PostingKind, PostingRun, Postings, RowHoles, Shelf, posting_hash};
use flatkube_format::sidecar::ArchivedSidecar;

use super::archive::ShelvedArchives;
use super::delta::{Delta, Keys};
use super::error::Damaged;
use super::map::Map;
use super::planted::{Planted, is_planted};
use super::selection::Sought;

/// One mapped shelf part. Its index was checked when it was opened; JSON and sidecars are proven block by block when they
/// are first touched.
pub struct Part {
    entry: PartEntry,
    map: Arc<Map>,
    bytes: Bytes,
    shelf: Shelf,
    /// A bit per block of JSON and sidecars: set once its checksum was found right.
    proven: Box<[AtomicU64]>,
    /// The sidecars, as far as their archives are checked: another bit per block.
    archives: ShelvedArchives,
    /// [`Sought::proof`]s of labels and fields of which a sidecar has shown that their run lists them, by their hashes.
    vouched: [AtomicU64; VOUCHED],
    /// What [`Part::lists_owners`] found; 0: nothing yet.
    owners_listed: AtomicU8,
    /// The long range that was last read ahead: see [`Ahead`].
    ahead: AtomicU64,
}

/// A range of blocks and the second in which the kernel was told to read it, in one word.
#[derive(Clone, Copy)]
struct Ahead {
    second: u32,
    start: u16,
    end: u16,
}

impl Ahead {
    /// Shorter ranges are a fault or a few.
    const LEN_MIN: usize = 64 << 10;

    fn of(range: &Range<usize>) -> Ahead {
        static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
        let block = |offset: usize| u16::try_from(offset / Self::LEN_MIN).unwrap_or(u16::MAX);
        Ahead {
            second: STARTED.elapsed().as_secs() as u32 + 1,
            start: block(range.start),
            end: block(range.end),
        }
    }

    fn word(self) -> u64 {
        u64::from(self.second) << 32 | u64::from(self.start) << 16 | u64::from(self.end)
    }

    /// Whether the range in `word` holds this one and is as young.
    fn is_in(self, word: u64) -> bool {
        (word >> 32) as u32 == self.second && (word >> 16) as u16 <= self.start && word as u16 >= self.end
    }
}

/// Labels and fields that a part remembers to have vouched for.
const VOUCHED: usize = 16;

/// The parts of a resource's shelf with their shadows. Cloning is O(1) and a clone never changes.
#[derive(Clone, Debug, Default)]
pub struct ShelfSet {
    parts: Arc<[Arc<Part>]>,
    /// Rank of the first object of each part, and behind them the number of all objects.
    ranks: Arc<[u64]>,
    /// Per part; parts at the end that have no shadow may be missing.
    shadows: imbl::Vector<Option<Shadow>>,
    /// Slots of the active delta that [`ShelfSet::shadowed_by`] has dealt with.
    slots_seen: usize,
}

/// A bit per object of one part.
type Shadow = Arc<[u64]>;

/// A place between two shelved objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Index of the part.
    pub(super) part: usize,
    /// Number of the object in it.
    pub(super) object: usize,
}

impl Part {
    /// Opens a mapped part and checks its index; `entry` is what the manifest says of it.
    pub fn open(entry: PartEntry, map: Arc<Map>) -> Result<Part, Damaged> {
        let bytes = map.owned();
        let shelf = Shelf::open(&bytes).map_err(|error| Damaged::of(map.file(), &error))?;
        let foreign = shelf.header_crc() != entry.header_crc
            || shelf.count() as u64 != entry.count
            || shelf.key(&bytes, 0) != entry.first_key
            || shelf.key(&bytes, shelf.count().saturating_sub(1)) != entry.last_key;
        if foreign {
            let reason = "this is not the part that the manifest names".to_owned();
            return Err(Damaged {
                file: map.file().to_owned(),
                offset: 0,
                reason,
            });
        }
        map.expect_scattered_reads();
        let proven = (0..shelf.block_count().div_ceil(64))
            .map(|_| AtomicU64::new(0))
            .collect();
        Ok(Part {
            entry,
            map,
            archives: ShelvedArchives::new(bytes.clone(), shelf),
            bytes,
            shelf,
            proven,
            vouched: Default::default(),
            owners_listed: AtomicU8::new(0),
            ahead: AtomicU64::new(0),
        })
    }

    /// What the manifest says of the part.
    pub fn manifest_entry(&self) -> &PartEntry {
        &self.entry
    }

    /// The map that the part lies in.
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// Number of objects.
    pub fn count(&self) -> usize {
        self.shelf.count()
    }

    /// Key of the object `index`; empty if there is none.
    pub fn key(&self, index: usize) -> &str {
        self.shelf.key(&self.bytes, index)
    }

    pub(super) fn key_bytes(&self, index: usize) -> &[u8] {
        self.shelf.key_bytes(&self.bytes, index)
    }

    /// Where the object `index` lies.
    pub fn entry(&self, index: usize) -> Entry {
        self.shelf.entry(&self.bytes, index)
    }

    /// The stored JSON of the object `index`, proven.
    pub fn json(&self, index: usize) -> Result<&[u8], Damaged> {
        self.proven(self.entry(index).json)
    }

    /// The sidecar of the object `index`, its block proven, its archive unchecked.
    pub fn sidecar(&self, index: usize) -> Result<&[u8], Damaged> {
        self.proven(self.entry(index).sidecar)
    }

    /// The JSON of neighbours, separated by commas, proven: a slice that keeps the map alive.
    pub(super) fn json_of(&self, objects: Range<usize>) -> Result<Bytes, Damaged> {
        let range = self.json_range(objects);
        self.expect(&range);
        self.prove(range.clone())?;
        Ok(self.bytes.slice(range))
    }

    /// Reads where the objects lie, and a byte of each, so that the processor has what is read next in its caches: the reads
    /// do not wait for each other.
    pub(super) fn touch(&self, objects: impl Iterator<Item = usize>) {
        let read = objects.fold(0, |sum: u8, object| {
            let at = self.entry(object).json.start;
            sum ^ self.bytes.get(at).copied().unwrap_or_default()
        });
        std::hint::black_box(read);
    }

    pub(super) fn json_range(&self, objects: Range<usize>) -> Range<usize> {
        self.shelf.json_run(&self.bytes, objects)
    }

    /// The column layout of the part's Table rows; `None` when it has none.
    pub(super) fn row_layout(&self) -> Option<u32> {
        self.shelf.row_layout()
    }

    /// Where the Table rows of neighbours lie, separated by commas, proven.
    pub(super) fn rows_of(&self, objects: Range<usize>) -> Result<Range<usize>, Damaged> {
        let range = self.shelf.rows_run(&self.bytes, objects);
        self.expect(&range);
        self.prove(range.clone())?;
        Ok(range)
    }

    /// The holes in rows that [`Part::rows_of`] gave.
    pub(super) fn holes_of(&self, objects: Range<usize>) -> RowHoles<'_> {
        self.shelf.row_holes(&self.bytes, objects)
    }

    /// Where the value of `object` in the row of the object `index` lies, proven.
    pub(super) fn row_object(&self, index: usize) -> Result<Range<usize>, Damaged> {
        let range = self.shelf.row_object(&self.bytes, index);
        self.prove(range.clone())?;
        Ok(range)
    }

    /// Bytes of the file that were proven.
    pub(super) fn bytes_of(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    /// A slice of the file that keeps the map alive; its bytes were proven.
    pub(super) fn slice_of(&self, range: Range<usize>) -> Bytes {
        self.bytes.slice(range)
    }

    /// Where the numbers of the objects with this posting hash are, and perhaps of a few others.
    pub(super) fn posting_run(&self, hash: u64) -> Option<PostingRun> {
        self.shelf.posting_run(&self.bytes, hash)
    }

    pub(super) fn postings_of(&self, run: PostingRun) -> Postings<'_> {
        self.shelf.postings_of(&self.bytes, run)
    }

    /// Whether the postings tell of owners. Those of parts that were written before there were such postings do not; to tell them
    /// from parts without owned objects, all sidecars are looked at, once.
    pub(super) fn lists_owners(&self) -> Result<bool, Damaged> {
        const YES: u8 = 1;
        const NO: u8 = 2;
        match self.owners_listed.load(Ordering::Relaxed) {
            YES => return Ok(true),
            NO => return Ok(false),
            _ => {}
        }
        let mut listed = self.posting_run(posting_hash(PostingKind::Owner, "", "")).is_some();
        if !listed {
            listed = true;
            for object in 0..self.count() {
                listed = listed && self.archive(object)?.owners.is_empty();
            }
        }
        self.owners_listed
            .store(if listed { YES } else { NO }, Ordering::Relaxed);
        Ok(listed)
    }

    /// Whether all objects of a run have what is sought. Looks at one sidecar, once.
    pub(super) fn vouches(&self, run: PostingRun, sought: &Sought) -> Result<bool, Damaged> {
        if run.is_mixed() {
            return Ok(false);
        }
        let vouched = &self.vouched[sought.hash as usize % VOUCHED];
        if vouched.load(Ordering::Relaxed) == sought.proof {
            return Ok(true);
        }
        let Some(object) = self.postings_of(run).get(0) else {
            return Ok(false);
        };
        let is_right = sought.is_of(self.archive(object as usize)?);
        if is_right {
            vouched.store(sought.proof, Ordering::Relaxed);
        }
        Ok(is_right)
    }

    /// The sidecar of the object `index`, its block proven and its archive checked, once for all that begin in the block.
    pub(super) fn archive(&self, index: usize) -> Result<&ArchivedSidecar, Damaged> {
        match self.archives.get(index) {
            Some(archive) => Ok(archive),
            None => self.check_archive(index),
        }
    }

    #[cold]
    fn check_archive(&self, index: usize) -> Result<&ArchivedSidecar, Damaged> {
        self.prove(self.entry(index).sidecar)?;
        // The last sidecar of the block may reach into the next one. Damage there is not this object's: it is told when
        // its own object is read, and until then the archives of this block are checked at each access.
        if self.prove(self.archives.span(&self.archives.neighbours(index))).is_ok() {
            self.archives.check_block_of(index);
        }
        let archive = self.archives.check_one(index);
        archive.map_err(|error| Damaged::of(self.map.file(), &error))
    }

    /// Lets the kernel read a long range ahead, the same one once a second: what is in memory mostly stays there.
    pub(super) fn expect(&self, range: &Range<usize>) {
        if range.len() < Ahead::LEN_MIN {
            return;
        }
        let ahead = Ahead::of(range);
        if !ahead.is_in(self.ahead.load(Ordering::Relaxed)) {
            self.ahead.store(ahead.word(), Ordering::Relaxed);
            self.map.expect_all_of(range.clone());
        }
    }

    /// Bytes of the file from `range`, proven.
    #[inline]
    fn proven(&self, range: Range<usize>) -> Result<&[u8], Damaged> {
        self.prove(range.clone())?;
        // The index was checked when the part was opened, so the range lies in the file.
        Ok(self.bytes.get(range).unwrap_or_default())
    }

    /// Proves the blocks of `range` that were not proven before.
    #[inline]
    pub(super) fn prove(&self, range: Range<usize>) -> Result<(), Damaged> {
        for block in self.shelf.block_of(range) {
            let (word, bit) = (block / 64, 1 << (block % 64));
            let Some(word) = self.proven.get(word) else { break };
            if word.load(Ordering::Relaxed) & bit == 0 && !is_planted(Planted::SkipBlockChecksum) {
                self.check_block(block)?;
            }
        }
        Ok(())
    }

    #[cold]
    fn check_block(&self, block: usize) -> Result<(), Damaged> {
        self.map.expect_all_of(self.shelf.block_range(block));
        let checked = self.shelf.check_block(&self.bytes, block);
        checked.map_err(|error| Damaged::of(self.map.file(), &error))?;
        if let Some(word) = self.proven.get(block / 64) {
            word.fetch_or(1 << (block % 64), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Where a block of JSON, sidecars and rows lies; empty behind the last one.
    pub(super) fn block_range(&self, block: usize) -> Range<usize> {
        self.shelf.block_range(block)
    }

    /// Proves what was read of a block, whatever the map shows.
    pub(super) fn prove_bytes(&self, block: usize, read: &[u8]) -> Result<(), Damaged> {
        let proven = self.shelf.check_block_read(&self.bytes, block, read);
        proven.map_err(|error| Damaged::of(self.map.file(), &error))
    }

    /// Number of the first object whose key is not below `bound`. O(log n) key reads.
    pub(super) fn lower(&self, bound: Bound<&[u8]>) -> usize {
        self.lower_within(bound, 0..self.count())
    }

    /// [`Part::lower`] among the objects of a range, or the range's end.
    pub(super) fn lower_within(&self, bound: Bound<&[u8]>, objects: Range<usize>) -> usize {
        let Range {
            start: mut low,
            end: mut high,
        } = objects;
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_below(self.key_bytes(middle), bound) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// [`Part::lower_within`] in O(log d) key reads, d objects from the start of the range: for merges that move forward.
    pub(super) fn gallop(&self, key: &[u8], objects: Range<usize>) -> usize {
        let Range { start, end } = objects;
        let mut step = 1;
        let mut low = start;
        while low + step <= end {
            if self.key_bytes(low + step - 1) >= key {
                return self.lower_within(Bound::Included(key), low..low + step - 1);
            }
            low += step;
            step *= 2;
        }
        self.lower_within(Bound::Included(key), low..end)
    }
}

fn is_below(key: &[u8], bound: Bound<&[u8]>) -> bool {
    match bound {
        Bound::Unbounded => false,
        Bound::Included(bound) => key < bound,
        Bound::Excluded(bound) => key <= bound,
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({}, {} objects)", self.map.file(), self.count())
    }
}

impl ShelfSet {
    /// Opens all parts of a resource, in order of their keys.
    pub fn open(parts: Vec<(PartEntry, Arc<Map>)>) -> Result<ShelfSet, Damaged> {
        let parts = parts
            .into_iter()
            .map(|(entry, map)| Part::open(entry, map).map(Arc::new));
        Ok(ShelfSet::from_parts(parts.collect::<Result<_, _>>()?))
    }

    /// A shelf of open parts, in order of their keys, with no shadows.
    pub fn from_parts(parts: Vec<Arc<Part>>) -> ShelfSet {
        debug_assert!(
            parts
                .windows(2)
                .all(|pair| pair[0].entry.last_key < pair[1].entry.first_key)
        );
        let mut rank = 0;
        let mut ranks = vec![0];
        ranks.extend(parts.iter().map(|part| {
            rank += part.count() as u64;
            rank
        }));
        ShelfSet {
            parts: parts.into(),
            ranks: ranks.into(),
            shadows: imbl::Vector::new(),
            slots_seen: 0,
        }
    }

    /// The parts in order of their keys.
    pub fn parts(&self) -> &[Arc<Part>] {
        &self.parts
    }

    /// Number of objects, shadowed ones included.
    pub fn count(&self) -> u64 {
        self.ranks.last().copied().unwrap_or(0)
    }

    /// Bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.entry.bytes).sum()
    }

    /// Index of the part into whose key range `key` falls: the last one that begins at or before it, else the first.
    pub fn part_of(&self, key: &[u8]) -> usize {
        self.parts
            .partition_point(|part| part.entry.first_key.as_bytes() <= key)
            .saturating_sub(1)
    }

    /// The keys that belong to the part `index`, from (inclusive) and to (exclusive); `None` is no bound. Together the
    /// ranges of all parts cover every key.
    pub fn keys_of(&self, index: usize) -> (Option<&str>, Option<&str>) {
        let first_key = |index: usize| self.parts.get(index).map(|part| part.entry.first_key.as_str());
        (if index == 0 { None } else { first_key(index) }, first_key(index + 1))
    }

    /// Where a key is, shadowed or not.
    pub(super) fn find(&self, key: &[u8]) -> Option<Place> {
        let part = self.part_of(key);
        let object = self.parts.get(part)?.lower(Bound::Included(key));
        (self.parts[part].key_bytes(object) == key).then_some(Place { part, object })
    }

    /// The place before the first object whose key is not below `bound`.
    pub(super) fn lower(&self, bound: Bound<&[u8]>) -> Place {
        let (Bound::Included(key) | Bound::Excluded(key)) = bound else {
            return Place { part: 0, object: 0 };
        };
        let part = self.part_of(key);
        let object = self.parts.get(part).map_or(0, |part| part.lower(bound));
        Place { part, object }
    }

    /// The place behind all objects.
    pub(super) fn end(&self) -> Place {
        Place {
            part: self.parts.len(),
            object: 0,
        }
    }

    /// Number of objects before a place, shadowed ones included.
    pub(super) fn rank(&self, place: Place) -> u64 {
        self.ranks.get(place.part).map_or(0, |rank| rank + place.object as u64)
    }

    /// Whether a delta overwrote any object of a part.
    pub(super) fn has_shadow(&self, part: usize) -> bool {
        self.shadows.get(part).is_some_and(Option::is_some)
    }

    /// Whether a delta overwrote the object at `place`.
    pub(super) fn is_shadowed(&self, place: Place) -> bool {
        let shadow = self.shadows.get(place.part).and_then(Option::as_ref);
        shadow.is_some_and(|words| words[place.object / 64] >> (place.object % 64) & 1 == 1)
    }

    /// The first object of the part from `object` on that is (or is not) shadowed, or `end`.
    pub(super) fn next_with_shadow(&self, part: usize, object: usize, end: usize, shadowed: bool) -> usize {
        let Some(words) = self.shadows.get(part).and_then(Option::as_ref) else {
            return if shadowed { end } else { object.min(end) };
        };
        let flip = if shadowed { 0 } else { u64::MAX };
        let mut at = object;
        while at < end {
            let rest = (words[at / 64] ^ flip) >> (at % 64);
            if rest != 0 {
                return (at + rest.trailing_zeros() as usize).min(end);
            }
            at = (at / 64 + 1) * 64;
        }
        end
    }

    /// Marks the object of a key as overwritten, if it is here.
    pub(super) fn shadow(&mut self, key: &[u8]) {
        let Some(Place { part, object }) = self.find(key) else {
            return;
        };
        while self.shadows.len() <= part {
            self.shadows.push_back(None);
        }
        let words = self.parts[part].count().div_ceil(64);
        if let Some(shadow) = self.shadows.get_mut(part) {
            let shadow = shadow.get_or_insert_with(|| std::iter::repeat_n(0, words).collect());
            Arc::make_mut(shadow)[object / 64] |= 1 << (object % 64);
        }
    }

    /// Marks the objects that the keys of a delta overwrite. Slots that an earlier call has dealt with are passed over, so
    /// the bulk can be done outside the committer against a view's delta, and the rest with the newest state of the same
    /// delta when the shelf is installed.
    pub(super) fn shadowed_by(&mut self, keys: &impl Keys, delta: &Delta) {
        for slot in self.slots_seen..delta.len() {
            self.shadow(delta.key(keys, slot as u32));
        }
        self.slots_seen = delta.len();
    }
}
