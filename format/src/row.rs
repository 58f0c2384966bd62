//! The Table row of an object, rendered when the object is written.

#![allow(
    missing_docs,
    reason = "rkyv's derive makes public helper types without docs for variants with fields"
)]

use rkyv::{Archive, Deserialize, Serialize};

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
