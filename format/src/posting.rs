//! Postings: which objects of a part have a label, a label name or a selectable field value.

/// What a posting tells of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PostingKind {
    /// It has this label with this value.
    Label = 1,
    /// It has a label of this name; the value is empty.
    LabelName = 2,
    /// It has this selectable field with this value.
    Field = 3,
}

/// The number under which a posting is filed: FNV-1a of 64 bits over the kind's byte, the name, a zero byte, the value.
///
/// It is stored in shelves and never changes within a format version. Two postings may share a number; whoever finds an
/// object by it looks at its sidecar.
pub const fn posting_hash(kind: PostingKind, name: &str, value: &str) -> u64 {
    let hash = fnv1a(FNV_OFFSET_BASIS, &[kind as u8]);
    let hash = fnv1a(hash, name.as_bytes());
    let hash = fnv1a(hash, &[0]);
    fnv1a(hash, value.as_bytes())
}

const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

const fn fnv1a(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(FNV_PRIME);
        index += 1;
    }
    hash
}

/// Ordinals of objects in a part, ascending, as they lie in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Postings<'a> {
    ordinals: &'a [[u8; 4]],
}

impl<'a> Postings<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self {
            ordinals: bytes.as_chunks().0,
        }
    }

    /// How many.
    pub const fn len(&self) -> usize {
        self.ordinals.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.ordinals.is_empty()
    }

    /// The `index`th ordinal.
    pub fn get(&self, index: usize) -> Option<u32> {
        self.ordinals.get(index).copied().map(u32::from_le_bytes)
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + DoubleEndedIterator + Clone + use<'a> {
        self.ordinals.iter().copied().map(u32::from_le_bytes)
    }

    /// How many are below `ordinal`: the index of the first that is not.
    pub fn below(&self, ordinal: u32) -> usize {
        self.ordinals
            .partition_point(|&bytes| u32::from_le_bytes(bytes) < ordinal)
    }

    /// Whether `ordinal` is among them. O(log n).
    pub fn contains(&self, ordinal: u32) -> bool {
        self.get(self.below(ordinal)) == Some(ordinal)
    }

    /// Those from `start` on and below `end`.
    pub fn within(&self, start: u32, end: u32) -> Self {
        let (start, end) = (self.below(start), self.below(end));
        Self {
            ordinals: self.ordinals.get(start..end).unwrap_or_default(),
        }
    }
}
