//! Makes a part of a shelf.

use crate::bytes::pad;
use crate::posting::{PostingKind, posting_hash};
use crate::row::{HOLE_LEN, RowFrame};
use crate::shelf::{
    AS_OF_AT, BLOCK_LEN, COUNT_AT, HEADER_ALIGN, HEADER_CRC_AT, HEADER_FIXED_LEN, INDEX_CRC_AT, INDEX_ENTRY_LEN,
    LENGTHS_AT, Lengths, MAGIC, MIXED, PART_LEN_MAX, REGION_ALIGN, RESOURCE_LEN_AT, ROW_ENTRY_LEN, ROWS_AT, STORE_AT,
    TABLE_ENTRY_LEN, VERSION,
};
use crate::sidecar::{ArchivedFill, ArchivedSidecar, digit_count, digits};
use crate::{FormatError, Reason, sidecar};

/// Collects the objects of one part, in list order.
#[derive(Debug)]
pub struct ShelfBuilder {
    store: u128,
    resource: String,
    as_of: u64,
    json: Vec<u8>,
    sidecars: Vec<u8>,
    keys: Vec<u8>,
    index: Vec<u8>,
    count: u32,
    last_key_at: usize,
    /// sorted only at the end
    postings: Vec<Posting>,
    /// `None` when the part gets no rows
    rows: Option<Rows>,
    lists_owners: bool,
}

/// The Table rows of a part, as long as all of them follow one layout.
#[derive(Debug)]
struct Rows {
    frame: RowFrame,
    layout: Option<u32>,
    text: Vec<u8>,
    index: Vec<u8>,
    holes: Vec<u8>,
}

impl Rows {
    /// Adds a row; `false` if that cannot be.
    fn push(&mut self, json: &[u8], sidecar: &ArchivedSidecar, revision: u64) -> bool {
        if crate::is_sealed(json) {
            return false;
        }
        let layout = sidecar.layout.to_native();
        let Some(metadata) = json.get(sidecar.metadata_span(digit_count(revision))) else {
            return false;
        };
        if *self.layout.get_or_insert(layout) != layout {
            return false;
        }
        if !self.index.is_empty() {
            self.text.push(b',');
        }
        let (start, first_hole) = (self.text.len(), self.holes.len() / HOLE_LEN);
        for (piece, fill) in sidecar.row_pieces() {
            self.text.extend_from_slice(piece);
            match fill {
                Some(ArchivedFill::Since(at)) => {
                    self.holes.extend_from_slice(&(self.text.len() as u32).to_le_bytes());
                    self.holes.extend_from_slice(&at.to_native().to_le_bytes());
                }
                Some(ArchivedFill::Revision) => self.text.extend_from_slice(digits(revision).as_bytes()),
                None => {}
            }
        }
        self.index.extend_from_slice(&(start as u32).to_le_bytes());
        self.index
            .extend_from_slice(&((self.text.len() - start) as u32).to_le_bytes());
        self.index.extend_from_slice(&(first_hole as u32).to_le_bytes());
        self.text.extend_from_slice(self.frame.before.as_bytes());
        self.text.extend_from_slice(metadata);
        self.text.extend_from_slice(self.frame.behind.as_bytes());
        self.text.push(b'}');
        true
    }

    /// Bytes that the row of an object comes to at most, with its place in the index.
    fn row_len_max(frame: &RowFrame, json: &[u8], sidecar: &ArchivedSidecar) -> usize {
        const DIGITS_MAX: usize = 20;
        let text = sidecar.row.len() + sidecar.holes.len() * (HOLE_LEN + DIGITS_MAX);
        let metadata = sidecar.metadata_span(DIGITS_MAX).len().min(json.len());
        text + metadata + frame.before.len() + frame.behind.len() + ROW_ENTRY_LEN + 2
    }
}

/// One object under one number, and what the number stands for.
#[derive(Debug, Clone, Copy)]
struct Posting {
    hash: u64,
    ordinal: u32,
    kind: PostingKind,
    /// Where name and value lie in the sidecars, as offset and length.
    name: (u32, u32),
    value: (u32, u32),
}

impl ShelfBuilder {
    /// An empty part of `resource`, which will hold the effect of every write up to and including revision `as_of`.
    pub fn new(store: u128, resource: &str, as_of: u64) -> Self {
        Self {
            store,
            resource: resource.to_owned(),
            as_of,
            json: Vec::new(),
            sidecars: Vec::new(),
            keys: Vec::new(),
            index: Vec::new(),
            count: 0,
            last_key_at: 0,
            postings: Vec::new(),
            rows: None,
            lists_owners: true,
        }
    }

    /// Makes a part as it was made before owners had postings: for tests of readers.
    #[doc(hidden)]
    #[must_use]
    pub fn without_owners(mut self) -> Self {
        self.lists_owners = false;
        self
    }

    /// Gives the part Table rows, as long as the sidecars of all objects follow one layout. To be called before the first
    /// [`Self::push`].
    #[must_use]
    pub fn with_rows(mut self, frame: Option<RowFrame>) -> Self {
        self.rows = frame.map(|frame| Rows {
            frame,
            layout: None,
            text: Vec::new(),
            index: Vec::new(),
            holes: Vec::new(),
        });
        self
    }

    /// Adds an object: its stored JSON (digits included) and its sidecar, from which the postings are made.
    ///
    /// # Errors
    /// [`Reason::Order`] when `key` is not above the one before; [`Reason::Limit`] when the part would exceed
    /// [`PART_LEN_MAX`]; what [`sidecar::access`] says of the sidecar. The builder is then as it was before.
    pub fn push(
        &mut self,
        key: &str,
        revision: u64,
        shape: u32,
        json: &[u8],
        archive: &[u8],
    ) -> Result<(), FormatError> {
        let last_key = self.keys.get(self.last_key_at..).unwrap_or_default();
        if key.as_bytes() <= last_key {
            return Err(FormatError::new(0, Reason::Order { field: "key" }));
        }
        let sidecar = sidecar::access(archive)?;
        let posting_count = sidecar.labels.len() * 2 + sidecar.fields.len() + sidecar.owners.len() + 1;
        let len = [
            key.len(),
            json.len(),
            archive.len(),
            posting_count * (TABLE_ENTRY_LEN + 4),
            self.rows
                .as_ref()
                .map_or(0, |rows| Rows::row_len_max(&rows.frame, json, sidecar)),
        ]
        .into_iter()
        .fold(self.len_estimate() + INDEX_ENTRY_LEN, usize::saturating_add);
        if len > PART_LEN_MAX {
            let (value, limit) = (len as u64, PART_LEN_MAX as u64);
            return Err(FormatError::new(
                0,
                Reason::Limit {
                    field: "part length",
                    value,
                    limit,
                },
            ));
        }

        if self.count > 0 {
            self.json.push(b',');
        }
        let spans = [
            (self.keys.len(), key.len()),
            (self.json.len(), json.len()),
            (self.sidecars.len(), archive.len()),
        ];
        for (offset, len) in spans {
            self.index.extend_from_slice(&(offset as u32).to_le_bytes());
            self.index.extend_from_slice(&(len as u32).to_le_bytes());
        }
        self.index.extend_from_slice(&revision.to_le_bytes());
        self.index.extend_from_slice(&shape.to_le_bytes());
        self.index.extend_from_slice(&0u32.to_le_bytes());
        if let Some(rows) = &mut self.rows
            && !rows.push(json, sidecar, revision)
        {
            self.rows = None;
        }
        self.last_key_at = self.keys.len();
        self.keys.extend_from_slice(key.as_bytes());
        self.json.extend_from_slice(json);
        self.sidecars.extend_from_slice(archive);
        let sidecar_at = self.sidecars.len() - archive.len();
        // the strings of an accessed archive lie in its bytes
        let place = |text: &str| {
            if text.is_empty() {
                return (0, 0);
            }
            let offset = text.as_ptr() as usize - archive.as_ptr() as usize;
            ((sidecar_at + offset) as u32, text.len() as u32)
        };
        let ordinal = self.count;
        let mut list = |kind, name: &str, value: &str| {
            self.postings.push(Posting {
                hash: posting_hash(kind, name, value),
                ordinal,
                kind,
                name: place(name),
                value: place(value),
            });
        };
        for label in sidecar.labels.iter() {
            list(PostingKind::Label, &label.name, &label.value);
            list(PostingKind::LabelName, &label.name, "");
        }
        for field in sidecar.fields.iter() {
            list(PostingKind::Field, &field.name, &field.value);
        }
        if self.lists_owners && !sidecar.owners.is_empty() {
            list(PostingKind::Owner, "", "");
            for owner in sidecar.owners.iter().filter(|owner| !owner.is_empty()) {
                list(PostingKind::Owner, "", owner);
            }
        }
        self.count += 1;
        Ok(())
    }

    /// Objects so far.
    pub const fn count(&self) -> usize {
        self.count as usize
    }

    /// At most this many bytes will come of what was pushed so far.
    pub fn len_estimate(&self) -> usize {
        let (rows, row_index) = self
            .rows
            .as_ref()
            .map_or((0, 0), |rows| (rows.text.len(), rows.index.len() + rows.holes.len()));
        let blocks = (self.json.len() + self.sidecars.len() + rows).div_ceil(BLOCK_LEN);
        (HEADER_FIXED_LEN + self.resource.len()).next_multiple_of(HEADER_ALIGN)
            + self.json.len()
            + self.sidecars.len()
            + rows
            + self.keys.len()
            + self.index.len()
            + row_index
            + self.postings.len() * (TABLE_ENTRY_LEN + 4)
            + blocks * 4
            + 3 * REGION_ALIGN
    }

    /// The posting table, as numbers and lengths (with [`MIXED`]) of their runs; and the ordinals of all runs.
    fn runs(&mut self) -> (Vec<(u64, u32)>, Vec<u32>) {
        self.postings
            .sort_unstable_by_key(|posting| (posting.hash, posting.ordinal));
        let text = |(offset, len): (u32, u32)| self.sidecars.get(offset as usize..(offset + len) as usize);
        let (mut runs, mut ordinals) = (Vec::new(), Vec::with_capacity(self.postings.len()));
        for run in self.postings.chunk_by(|a, b| a.hash == b.hash) {
            let first = &run[0];
            let is_first = |other: &Posting| {
                other.kind == first.kind
                    && text(other.name) == text(first.name)
                    && text(other.value) == text(first.value)
            };
            let mixed = if run.iter().all(is_first) { 0 } else { MIXED };
            let start = ordinals.len();
            for posting in run {
                // one object may have two postings of one number
                if ordinals[start..].last() != Some(&posting.ordinal) {
                    ordinals.push(posting.ordinal);
                }
            }
            runs.push((first.hash, (ordinals.len() - start) as u32 | mixed));
        }
        (runs, ordinals)
    }

    /// The file, in slices to be written one after the other: header, JSON, sidecars, rows, and all that is behind them.
    pub fn finish(mut self) -> Vec<Vec<u8>> {
        let (runs, ordinals) = self.runs();
        let rows = self.rows.take();
        let has_rows = rows.is_some();
        let (row_layout, rows, row_index, holes) = rows.map_or_else(Default::default, |rows| {
            (rows.layout.unwrap_or(0), rows.text, rows.index, rows.holes)
        });
        let lengths = Lengths {
            resource: self.resource.len(),
            json: self.json.len(),
            sidecars: self.sidecars.len(),
            keys: self.keys.len(),
            count: self.count as usize,
            hashes: runs.len(),
            ordinals: ordinals.len(),
            rows: rows.len(),
            holes: holes.len() / HOLE_LEN,
            has_rows,
        };
        let regions = lengths.regions();

        let mut tail = Vec::with_capacity(regions.end - regions.rows_end);
        tail.resize(regions.keys - regions.rows_end, 0);
        tail.extend_from_slice(&self.keys);
        tail.resize(regions.index - regions.rows_end, 0);
        tail.extend_from_slice(&self.index);
        tail.extend_from_slice(&row_index);
        tail.extend_from_slice(&holes);
        let mut first = 0u32;
        for (hash, len) in runs {
            tail.extend_from_slice(&hash.to_le_bytes());
            tail.extend_from_slice(&first.to_le_bytes());
            tail.extend_from_slice(&len.to_le_bytes());
            first += len & !MIXED;
        }
        for ordinal in ordinals {
            tail.extend_from_slice(&ordinal.to_le_bytes());
        }
        for crc in block_crcs([&self.json, &self.sidecars, &rows]) {
            tail.extend_from_slice(&crc.to_le_bytes());
        }
        debug_assert_eq!(regions.rows_end + tail.len(), regions.end, "the regions as laid out");

        let mut header = vec![0; HEADER_FIXED_LEN];
        header.extend_from_slice(self.resource.as_bytes());
        pad(&mut header, HEADER_ALIGN);
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &(regions.json as u32).to_le_bytes());
        put(STORE_AT, &self.store.to_le_bytes());
        put(AS_OF_AT, &self.as_of.to_le_bytes());
        put(COUNT_AT, &self.count.to_le_bytes());
        put(RESOURCE_LEN_AT, &(self.resource.len() as u32).to_le_bytes());
        let row_figures = [lengths.rows as u32, lengths.holes as u32, row_layout, has_rows.into()];
        for (index, figure) in row_figures.into_iter().enumerate() {
            put(ROWS_AT + index * 4, &figure.to_le_bytes());
        }
        let lengths = [
            lengths.json,
            lengths.sidecars,
            lengths.keys,
            lengths.hashes,
            lengths.ordinals,
            BLOCK_LEN,
        ];
        for (index, len) in lengths.into_iter().enumerate() {
            put(LENGTHS_AT + index * 4, &(len as u32).to_le_bytes());
        }
        put(INDEX_CRC_AT, &crc32fast::hash(&tail).to_le_bytes());
        let crc = Lengths::header_crc(&header);
        header[HEADER_CRC_AT..HEADER_FIXED_LEN].copy_from_slice(&crc.to_le_bytes());
        vec![header, self.json, self.sidecars, rows, tail]
    }
}

/// One checksum for each block of the regions seen as one.
fn block_crcs(regions: [&[u8]; 3]) -> Vec<u32> {
    let mut crcs = Vec::new();
    let mut hasher = crc32fast::Hasher::new();
    let mut filled = 0;
    for mut region in regions {
        while !region.is_empty() {
            let (piece, rest) = region.split_at(region.len().min(BLOCK_LEN - filled));
            hasher.update(piece);
            filled += piece.len();
            region = rest;
            if filled == BLOCK_LEN {
                crcs.push(std::mem::take(&mut hasher).finalize());
                filled = 0;
            }
        }
    }
    if filled > 0 {
        crcs.push(hasher.finalize());
    }
    crcs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shelf::Shelf;
    use crate::sidecar::{Pair, Sidecar};

    fn sidecar(app: &str) -> Vec<u8> {
        let pair = |name: &str, value: &str| Pair {
            name: name.into(),
            value: value.into(),
        };
        Sidecar {
            labels: vec![pair("app", app)],
            fields: vec![pair("status.phase", "Running")],
            ..Sidecar::default()
        }
        .archive()
    }

    fn part(count: usize) -> Vec<u8> {
        let mut builder = ShelfBuilder::new(7, "pods", 99);
        for index in 0..count {
            let app = if index % 3 == 0 { "shop" } else { "bank" };
            let json = format!(r#"{{"metadata":{{"name":"{index}"}}}}"#);
            builder
                .push(
                    &format!("a/{index:05}"),
                    index as u64,
                    4,
                    json.as_bytes(),
                    &sidecar(app),
                )
                .unwrap();
        }
        let estimate = builder.len_estimate();
        let bytes = builder.finish().concat();
        assert!(bytes.len() <= estimate);
        bytes
    }

    #[test]
    fn a_number_that_two_different_labels_share_is_marked_and_no_other() {
        let mut builder = ShelfBuilder::new(7, "pods", 99);
        for (key, app) in [("a/0", "shop"), ("a/1", "bank"), ("a/2", "shop")] {
            builder.push(key, 1, 4, b"{}", &sidecar(app)).unwrap();
        }
        let [shop, bank] = ["shop", "bank"].map(|app| posting_hash(PostingKind::Label, "app", app));
        let pure = builder.runs().0;
        assert!(pure.iter().all(|(_, len)| len & MIXED == 0));
        for posting in &mut builder.postings {
            if posting.hash == bank {
                posting.hash = shop;
            }
        }
        let bytes = builder.finish().concat();
        let shelf = Shelf::open(&bytes).unwrap();
        let run = shelf.posting_run(&bytes, shop).unwrap();
        assert!(run.is_mixed());
        assert_eq!(run.len(), 3);
        assert_eq!(shelf.postings_of(&bytes, run).iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert!(shelf.posting_run(&bytes, bank).is_none());
        let name = posting_hash(PostingKind::LabelName, "app", "");
        assert!(!shelf.posting_run(&bytes, name).unwrap().is_mixed());
    }

    #[test]
    fn a_part_gives_back_its_objects_by_ordinal_key_and_posting() {
        let bytes = part(3000);
        let shelf = Shelf::open(&bytes).unwrap();
        shelf.verify(&bytes).unwrap();
        assert!(shelf.block_count() > 2);
        assert_eq!(
            (shelf.count(), shelf.as_of(), shelf.resource(&bytes)),
            (3000, 99, "pods")
        );
        assert_eq!(shelf.find(&bytes, "a/00017"), Ok(17));
        assert_eq!(shelf.find(&bytes, "a/00017x"), Err(18));
        assert_eq!(shelf.key(&bytes, 17), "a/00017");
        let entry = shelf.entry(&bytes, 17);
        assert_eq!((entry.revision, entry.shape), (17, 4));
        assert_eq!(&bytes[entry.json], br#"{"metadata":{"name":"17"}}"#);
        assert_eq!(&bytes[entry.sidecar], sidecar("bank"));
        let run = shelf.json_run(&bytes, 1..3);
        assert_eq!(&bytes[run], br#"{"metadata":{"name":"1"}},{"metadata":{"name":"2"}}"#);
        assert!(shelf.json_run(&bytes, 5..5).is_empty());
        let postings = shelf.postings(&bytes, posting_hash(PostingKind::Label, "app", "shop"));
        assert_eq!(postings.len(), 1000);
        assert!(postings.iter().all(|ordinal| ordinal % 3 == 0));
        assert!(postings.contains(999) && !postings.contains(1000));
        assert_eq!(postings.within(10, 20).iter().collect::<Vec<_>>(), [12, 15, 18]);
        assert_eq!(
            shelf
                .postings(&bytes, posting_hash(PostingKind::LabelName, "app", ""))
                .len(),
            3000
        );
        assert!(
            shelf
                .postings(&bytes, posting_hash(PostingKind::Label, "app", "none"))
                .is_empty()
        );
    }

    #[test]
    fn an_empty_part_opens() {
        let bytes = part(0);
        let shelf = Shelf::open(&bytes).unwrap();
        shelf.verify(&bytes).unwrap();
        assert!(shelf.is_empty() && shelf.block_count() == 0);
        assert_eq!(shelf.find(&bytes, "a"), Err(0));
    }

    #[test]
    fn keys_out_of_order_are_refused() {
        let mut builder = ShelfBuilder::new(7, "pods", 1);
        let archive = sidecar("x");
        builder.push("b", 1, 0, b"{}", &archive).unwrap();
        for key in ["a", "b", ""] {
            let error = builder.push(key, 1, 0, b"{}", &archive).unwrap_err();
            assert_eq!(error.reason, Reason::Order { field: "key" });
        }
        builder.push("b/", 1, 0, b"{}", &archive).unwrap();
    }
}
