//! The archive beside an object's JSON: everything a read can ask of an object besides its body.
//!
//! Bytes: a head of four bytes (magic, version), then an rkyv archive (little-endian, 32-bit relative pointers, unaligned)
//! whose root sits at the end. Only integers, strings, vectors and one plain enum are archived: no maps, no shared or
//! boxed pointers, no niches. rkyv has no schema evolution; the version in the head chooses the type, and because the
//! JSON is the truth, a sidecar can always be made again.

use std::fmt;
use std::ops::Range;

use rkyv::rancor::Failure;
use rkyv::{Archive, Deserialize, Serialize};

use crate::bytes::u16_at;
use crate::row;
pub use crate::row::{ArchivedFill, ArchivedHole, Fill, Hole};
use crate::{FormatError, Reason};

/// First two bytes of a sidecar.
pub const MAGIC: u16 = u16::from_le_bytes(*b"fS");
/// Version of the archived type that is written.
pub const VERSION: u16 = 1;
/// Bytes before the archive.
pub const HEAD_LEN: usize = 4;

/// What is archived beside an object's JSON.
///
/// Spans are relative to the JSON of the same version of the object; those behind the digits of `resourceVersion` are
/// counted from there, because the number of digits is not known when the sidecar is made.
#[derive(Debug, Clone, Default, PartialEq, Archive, Serialize, Deserialize)]
#[rkyv(derive(Debug))]
pub struct Sidecar {
    /// Number of the column layout that `row` follows; it is above that numbers layouts.
    pub layout: u32,
    /// Offset of the `{` of metadata's value.
    pub metadata_start: u32,
    /// Offset of the first digit of `resourceVersion`.
    pub splice: u32,
    /// Bytes from behind the last digit to behind the `}` of metadata's value.
    pub metadata_tail: u32,
    /// `creationTimestamp` in Unix seconds, 0 when there is none.
    pub created: i64,
    /// `metadata.uid`.
    pub uid: String,
    /// Labels, sorted by the bytes of their names, each name once.
    pub labels: Vec<Pair>,
    /// Selectable fields (not `metadata.name` and `metadata.namespace`, which the key tells), sorted like labels.
    pub fields: Vec<Pair>,
    /// UIDs of the owners.
    pub owners: Vec<String>,
    /// The object's row in a Table of the columns of `layout`, as JSON text from its `{` up to the value of `object`, save
    /// for what goes into the holes.
    pub row: String,
    /// Where in `row` something goes that is known only when the row is sent.
    pub holes: Vec<Hole>,
}

/// A name and a value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Archive, Serialize, Deserialize)]
#[rkyv(derive(Debug))]
pub struct Pair {
    /// Label or field name.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl Sidecar {
    /// The bytes of this sidecar, head and archive.
    ///
    /// # Panics
    /// When the strings together exceed 2 GiB, which no object of [`crate::frame::RECORD_LEN_MAX`] can reach.
    pub fn archive(&self) -> Vec<u8> {
        debug_assert!(
            self.labels.is_sorted_by(|a, b| a.name < b.name),
            "labels are sorted, each name once"
        );
        debug_assert!(
            self.fields.is_sorted_by(|a, b| a.name < b.name),
            "fields are sorted, each name once"
        );
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        rkyv::api::high::to_bytes_in::<_, Failure>(self, out).expect("relative pointers reach 2 GiB")
    }
}

/// The sidecar in these bytes, checked: what it returns can be read without further care.
///
/// Allocates nothing. Order of labels and fields is not checked; out of order, lookups by name may miss.
pub fn access(bytes: &[u8]) -> Result<&ArchivedSidecar, FormatError> {
    let Some((_, archive)) = bytes.split_at_checked(HEAD_LEN) else {
        let available = bytes.len() as u64;
        let reason = Reason::Truncated {
            part: "sidecar",
            needed: HEAD_LEN as u64,
            available,
        };
        return Err(FormatError::new(0, reason));
    };
    if u16_at(bytes, 0) != MAGIC {
        return Err(FormatError::new(0, Reason::Magic { part: "sidecar" }));
    }
    match u16_at(bytes, 2) {
        VERSION => {}
        found if found > VERSION => {
            let reason = Reason::NewerFormat {
                part: "sidecar",
                found: found.into(),
                supported: VERSION.into(),
            };
            return Err(FormatError::new(2, reason));
        }
        found => {
            return Err(FormatError::new(
                2,
                Reason::Value {
                    field: "sidecar version",
                    value: found.into(),
                },
            ));
        }
    }
    rkyv::api::low::access::<ArchivedSidecar, Failure>(archive).map_err(|_| FormatError::new(HEAD_LEN, Reason::Archive))
}

impl ArchivedSidecar {
    /// Where metadata's value lies in the JSON, braces included, when `resourceVersion` has `revision_digits` digits
    /// (see [`digit_count`]). The range comes from the archive as it is: slice with `get`.
    #[inline]
    pub fn metadata_span(&self, revision_digits: usize) -> Range<usize> {
        let digits_end = (self.splice.to_native() as usize).saturating_add(revision_digits);
        self.metadata_start.to_native() as usize..digits_end.saturating_add(self.metadata_tail.to_native() as usize)
    }

    /// All of it, to be changed and archived anew.
    pub fn to_sidecar(&self) -> Result<Sidecar, FormatError> {
        rkyv::api::high::deserialize::<Sidecar, Failure>(self).map_err(|_| FormatError::new(HEAD_LEN, Reason::Archive))
    }

    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        find(&self.labels, name)
    }

    /// The value of a selectable field.
    pub fn field(&self, name: &str) -> Option<&str> {
        find(&self.fields, name)
    }

    /// The row's text cut at its holes: each piece with what fills the hole behind it, at the end the rest without. The
    /// holes come from the archive as they are; wrong ones are filled at other places, nothing worse.
    #[inline]
    pub fn row_pieces(&self) -> impl Iterator<Item = (&[u8], Option<&ArchivedFill>)> {
        row::pieces(&self.row, &self.holes)
    }

    /// Unix seconds of `creationTimestamp`, `None` when there is none.
    pub fn created_at(&self) -> Option<i64> {
        Some(self.created.to_native()).filter(|&created| created != 0)
    }
}

fn find<'a>(pairs: &'a [ArchivedPair], name: &str) -> Option<&'a str> {
    /// Up to here, comparing lengths one after the other beats halving.
    const SHORT: usize = 16;
    let pair = if pairs.len() <= SHORT {
        pairs.iter().find(|pair| pair.name.as_str() == name)
    } else {
        let index = pairs.binary_search_by(|pair| pair.name.as_str().cmp(name)).ok()?;
        pairs.get(index)
    };
    pair.map(|pair| pair.value.as_str())
}

/// A revision in decimal, without leading zeros.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digits {
    buffer: [u8; 20],
    start: u8,
}

/// The decimal digits of a revision.
pub const fn digits(revision: u64) -> Digits {
    let mut buffer = [b'0'; 20];
    let mut start = 20;
    let mut rest = revision;
    loop {
        start -= 1;
        buffer[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return Digits {
                buffer,
                start: start as u8,
            };
        }
    }
}

/// How many digits a revision has.
#[inline]
pub const fn digit_count(revision: u64) -> usize {
    match revision.checked_ilog10() {
        Some(log) => log as usize + 1,
        None => 1,
    }
}

impl Digits {
    /// The digits as ASCII.
    pub fn as_bytes(&self) -> &[u8] {
        self.buffer.get(usize::from(self.start)..).unwrap_or_default()
    }

    /// The digits as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// How many digits; never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }
}

impl AsRef<[u8]> for Digits {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl std::ops::Deref for Digits {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: &str) -> Pair {
        Pair {
            name: name.into(),
            value: value.into(),
        }
    }

    #[test]
    fn a_sidecar_reads_back_as_it_was_written() {
        let sidecar = Sidecar {
            layout: 7,
            metadata_start: 12,
            splice: 40,
            metadata_tail: 9,
            created: 1_700_000_000,
            uid: "0d1f".into(),
            labels: vec![
                pair("app", "shop"),
                pair("tier.example.com/layer", "a long value of a label"),
            ],
            fields: vec![pair("spec.nodeName", ""), pair("status.phase", "Running")],
            owners: vec!["owner".into()],
            row: r#"{"cells":["",""],"object":"#.into(),
            holes: vec![
                Hole {
                    at: 11,
                    fill: Fill::Since(3),
                },
                Hole {
                    at: 14,
                    fill: Fill::Revision,
                },
            ],
        };
        let bytes = sidecar.archive();
        let read = access(&bytes).unwrap();
        assert_eq!(read.label("app"), Some("shop"));
        assert_eq!(read.label("tier"), None);
        assert_eq!(read.field("spec.nodeName"), Some(""));
        assert_eq!(read.metadata_span(2), 12..51);
        let pieces: Vec<_> = read.row_pieces().map(|(piece, fill)| (piece, fill.is_some())).collect();
        assert_eq!(
            pieces,
            [
                (&br#"{"cells":[""#[..], true),
                (br#"",""#, true),
                (br#""],"object":"#, false)
            ]
        );
        assert_eq!(rkyv::api::low::deserialize::<Sidecar, Failure>(read).unwrap(), sidecar);
    }

    #[test]
    fn holes_at_wrong_places_lose_no_text() {
        let hole = |at| Hole {
            at,
            fill: Fill::Revision,
        };
        let bytes = Sidecar {
            row: "abcdef".into(),
            holes: vec![hole(4), hole(2), hole(u32::MAX), hole(0)],
            ..Sidecar::default()
        }
        .archive();
        let pieces: Vec<_> = access(&bytes).unwrap().row_pieces().map(|(piece, _)| piece).collect();
        assert_eq!(pieces, [&b"abcd"[..], b"", b"ef", b"", b""]);
    }

    #[test]
    fn an_alien_or_cut_sidecar_is_refused_with_its_reason() {
        let bytes = Sidecar::default().archive();
        assert_eq!(
            access(&bytes[..3]).unwrap_err().reason,
            Reason::Truncated {
                part: "sidecar",
                needed: 4,
                available: 3
            }
        );
        assert_eq!(access(&bytes[..bytes.len() - 1]).unwrap_err().reason, Reason::Archive);
        let mut newer = bytes.clone();
        newer[2] = 2;
        assert_eq!(
            access(&newer).unwrap_err(),
            FormatError {
                offset: 2,
                reason: Reason::NewerFormat {
                    part: "sidecar",
                    found: 2,
                    supported: 1
                }
            }
        );
        newer[0] = 0;
        assert_eq!(access(&newer).unwrap_err().reason, Reason::Magic { part: "sidecar" });
    }

    #[test]
    fn digits_are_those_of_the_standard_library() {
        for revision in [0, 1, 9, 10, 99, 100, 12_345, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(digits(revision).as_str(), revision.to_string());
            assert_eq!(digits(revision).len(), digit_count(revision));
        }
    }
}
