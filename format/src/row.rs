//! The Table row of an object, rendered when the object is written.

#![allow(
    missing_docs,
    reason = "rkyv's derive makes public helper types without docs for variants with fields"
)]

use std::ops::Range;

use rkyv::{Archive, Deserialize, Serialize};

use crate::bytes::{u32_at, u64_at};

/// A place in a row's text where something goes that is known only when the row is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Archive, Serialize, Deserialize)]
#[rkyv(derive(Debug))]
pub struct Hole {
    /// Offset in the row's text, in bytes. Ascending from hole to hole.
    pub at: u32,
    /// What goes there.
    pub fill: Fill,
}

/// What fills a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Archive, Serialize, Deserialize)]
#[rkyv(derive(Debug))]
#[repr(u8)]
pub enum Fill {
    /// The time since this Unix second as a short duration (`5m10s`), without quotes.
    Since(i64),
    /// The digits of the object's revision, without quotes.
    Revision,
}

/// A row's text from the hole before, or from its start, up to a hole, and what fills that hole; at the end the rest of the
/// text and `None`. Holes that lie outside the text or before another one are filled where the text before them ends.
pub(crate) fn pieces<'a>(
    text: &'a str,
    holes: &'a [ArchivedHole],
) -> impl Iterator<Item = (&'a [u8], Option<&'a ArchivedFill>)> {
    let mut rest = text.as_bytes();
    let mut from = 0;
    let cut = holes.iter().map(Some).chain([None]);
    cut.map(move |hole| {
        let Some(hole) = hole else { return (rest, None) };
        let at = hole.at.to_native() as usize;
        let (piece, behind) = rest.split_at(at.saturating_sub(from).min(rest.len()));
        from += piece.len();
        rest = behind;
        (piece, Some(&hole.fill))
    })
}

/// What a shelved row has around the object's metadata.
///
/// Such a row is the sidecar's text, `before`, the value of metadata, `behind`, and the `}` that closes the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowFrame {
    /// Begins the value of `object`.
    pub before: &'static str,
    /// Ends it.
    pub behind: &'static str,
}

/// Bytes of a hole in a shelved row: offset from the start of the rows u32, Unix second i64.
pub(crate) const HOLE_LEN: usize = 12;

/// The holes in some shelved rows, ascending: where, in bytes from the start of these rows, and the Unix second since when
/// the time is told that goes there.
#[derive(Debug, Clone, Default)]
pub struct RowHoles<'a> {
    holes: std::slice::Iter<'a, [u8; HOLE_LEN]>,
    start: u32,
}

impl<'a> RowHoles<'a> {
    /// Some of all `holes`, those of the rows that begin at `start`.
    #[inline]
    pub(crate) fn new(holes: &'a [u8], range: Range<usize>, start: usize) -> Self {
        let (holes, _) = holes.as_chunks::<HOLE_LEN>();
        Self {
            holes: holes.get(range).unwrap_or_default().iter(),
            start: start as u32,
        }
    }
}

impl Iterator for RowHoles<'_> {
    type Item = (usize, i64);

    #[inline]
    fn next(&mut self) -> Option<(usize, i64)> {
        let hole = self.holes.next()?;
        let at = u32_at(hole, 0).saturating_sub(self.start);
        Some((at as usize, u64_at(hole, 4) as i64))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.holes.size_hint()
    }
}

impl ExactSizeIterator for RowHoles<'_> {}
