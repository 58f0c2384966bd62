//! Descriptions, inflated chunk by chunk when they are asked for.

use super::blob::{Blob, DescriptionPlace};

/// Inflated chunks, kept as long as this value: at most all of them, about half a megabyte.
pub(crate) struct Descriptions<'a> {
    blob: Blob<'a>,
    chunks: Vec<Option<String>>,
}

impl<'a> Descriptions<'a> {
    pub(crate) fn new(blob: Blob<'a>) -> Descriptions<'a> {
        Descriptions {
            blob,
            chunks: vec![None; blob.chunk_count()],
        }
    }

    /// The description at `place`; empty when there is none.
    pub(crate) fn take(&mut self, place: DescriptionPlace) -> &str {
        if place.length == 0 {
            return "";
        }
        let number = place.chunk as usize;
        let Some(slot) = self.chunks.get_mut(number) else {
            return "";
        };
        let chunk = slot.get_or_insert_with(|| self.blob.chunk(number));
        let start = place.offset as usize;
        chunk.get(start..start + place.length as usize).unwrap_or_default()
    }
}
