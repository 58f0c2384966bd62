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
    /// It has an owner of this UID, the value; the name is empty. With an empty value: it has owners.
    Owner = 4,
}

/// The number under which a posting is filed.
///
/// It is stored in shelves and never changes within a format version; `docs/format.md` defines it. Two postings may share
/// a number; whoever finds an object by it looks at its sidecar. Cost: one multiplication for every eight bytes.
pub const fn posting_hash(kind: PostingKind, name: &str, value: &str) -> u64 {
    absorb(absorb(kind as u64, name.as_bytes()), value.as_bytes())
}

/// An odd number without a pattern: the fractional part of the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Takes in the text's length, then its bytes in words of eight, the last one filled up with zeros.
const fn absorb(hash: u64, text: &[u8]) -> u64 {
    let mut hash = fold(hash ^ text.len() as u64);
    let (words, rest) = text.as_chunks::<8>();
    let mut index = 0;
    while index < words.len() {
        hash = fold(hash ^ u64::from_le_bytes(words[index]));
        index += 1;
    }
    if rest.is_empty() {
        return hash;
    }
    let mut last = [0; 8];
    let mut index = 0;
    while index < rest.len() {
        last[index] = rest[index];
        index += 1;
    }
    fold(hash ^ u64::from_le_bytes(last))
}

/// The exclusive or of the two halves of a product of 128 bits. Without the second constant, zero would stay zero.
const fn fold(word: u64) -> u64 {
    let product = (word ^ FACTOR.rotate_left(32)) as u128 * FACTOR as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Where the postings of one number lie in a part.
///
/// Unless it is mixed, all its objects have the *same* label, label name or field: whoever has found by one sidecar which
/// one that is need not look at the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostingRun {
    pub(crate) first: u32,
    pub(crate) len: u32,
    pub(crate) is_mixed: bool,
}

impl PostingRun {
    /// How many objects.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Never: a number without objects has no run.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether two different labels or fields share the number in this part.
    pub const fn is_mixed(&self) -> bool {
        self.is_mixed
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_document() {
        assert_eq!(posting_hash(PostingKind::Label, "app", "web"), 0xf121_e377_a019_f9bf);
        assert_eq!(posting_hash(PostingKind::LabelName, "app", ""), 0xa969_0dbf_4a22_48ed);
        assert_eq!(
            posting_hash(PostingKind::Field, "status.phase", "Running"),
            0xe1cf_47d1_d3ca_ab5f
        );
    }

    /// Names and values as clusters have them: alike, short, counted up. Not one collision is expected among 300,000.
    #[test]
    #[cfg_attr(miri, ignore = "arithmetic alone, three hundred thousand times")]
    fn postings_that_are_alike_have_different_numbers() {
        let mut hashes = Vec::new();
        for index in 0..50_000 {
            for (name, value) in [
                ("app", format!("{index}")),
                ("app", format!("shop-{index}")),
                ("app.kubernetes.io/instance", format!("release-{index:08}")),
                (
                    "spec.nodeName",
                    format!("ip-10-{}-{}-{}.internal", index >> 12, (index >> 6) & 63, index & 63),
                ),
            ] {
                hashes.push(posting_hash(PostingKind::Label, name, &value));
            }
            hashes.push(posting_hash(PostingKind::LabelName, &format!("l{index}"), ""));
            hashes.push(posting_hash(PostingKind::Field, "", &format!("l{index}")));
        }
        let count = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), count);
        // and the halves are as good as the whole: they are spread
        for hash in &mut hashes {
            *hash >>= 32;
        }
        hashes.dedup();
        assert!(
            count - hashes.len() < 40,
            "{} collisions in 32 bits",
            count - hashes.len()
        );
    }
}
