//! Turns many small pieces and a few long ones into few frames.
//!
//! Every frame costs a trip through hyper and an entry of a `writev`; a copy costs memory bandwidth. Short pieces are
//! gathered by copying, long ones go out as the slices of mapped files that they are.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::api::body::Body;

/// From this length on a piece is sent as a slice instead of being copied, in bytes: over HTTP/2, where each slice is a frame
/// of its own and TLS copies it anyway ...
pub(super) const SLICE_LEN_MIN: usize = 16 * 1024;
/// ... and over HTTP/1.1, where slices go out by one `writev`.
pub(super) const HTTP1_SLICE_LEN_MIN: usize = 2 * 1024;
/// What gathered pieces are sent in, in bytes. Over HTTP/2 hyper may hold two of them for one answer ...
pub(super) const CHUNK_LEN: usize = 96 * 1024;
/// ... and over HTTP/1.1 one, because it flushes a frame of this size before it asks for the next. Each costs a system call
/// and wakes the client.
pub(super) const HTTP1_CHUNK_LEN: usize = 168 * 1024;
/// What is allocated for a chunk while the one before it waits.
const NEXT_LEN: usize = 32 * 1024;
/// Most slices, and bytes in them, that an answer of known length is made of: a longer one is sent while it is made.
const WAITING_SLICES_MAX: usize = 512;
const WAITING_LEN_MAX: usize = 2 * 1024 * 1024;
/// The first allocation for an answer, because most answers are small; and the length of a chunk at its shortest.
const FIRST_LEN: usize = 4 * 1024;

/// Chunks, longer than [`FIRST_LEN`], that may be of full length at a time. When more wait for their clients, new ones are
/// shorter, so that all together grow with the logarithm of their number: answers get slower, none is refused, and the
/// memory of the process stays bounded.
const FULL_CHUNKS_MAX: usize = 256;
/// Chunks in the process that are being filled or wait for their clients. Memory is the process's, and so is this.
static CHUNKS: AtomicUsize = AtomicUsize::new(0);

/// A counted chunk.
#[derive(Debug)]
struct Place;

impl Place {
    fn take() -> Self {
        CHUNKS.fetch_add(1, Ordering::Relaxed);
        Place
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        CHUNKS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long a chunk may become when there are so many, and would be `len` bytes long if there were few.
fn shortened(len: usize, chunks: usize) -> usize {
    if chunks <= FULL_CHUNKS_MAX {
        len
    } else {
        (len * FULL_CHUNKS_MAX / chunks).max(FIRST_LEN)
    }
}

/// Whether many clients are slower than their answers: not the time to spend memory on any of them.
pub(super) fn is_crowded() -> bool {
    CHUNKS.load(Ordering::Relaxed) > FULL_CHUNKS_MAX
}

/// Bytes of a chunk that is counted while they live.
struct CountedChunk {
    bytes: Vec<u8>,
    _place: Place,
}

impl AsRef<[u8]> for CountedChunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Frames in the making. Holds about one chunk of copied bytes besides what was already cut off.
#[derive(Debug)]
pub(super) struct Chunks {
    slice_len_min: usize,
    chunk_len_max: usize,
    chunk_len: usize,
    /// Bytes of all that was ever cut off.
    cut_len: usize,
    gathered: Vec<u8>,
    /// Of `gathered`, when it is long.
    place: Option<Place>,
    ready: VecDeque<Bytes>,
    ready_len: usize,
}

impl Default for Chunks {
    fn default() -> Self {
        Self::new(SLICE_LEN_MIN, CHUNK_LEN)
    }
}

impl Chunks {
    /// For an answer over HTTP/1.1.
    pub(super) fn for_http1() -> Self {
        Self::new(HTTP1_SLICE_LEN_MIN, HTTP1_CHUNK_LEN)
    }

    fn new(slice_len_min: usize, chunk_len: usize) -> Self {
        Self {
            slice_len_min,
            chunk_len_max: chunk_len,
            chunk_len,
            cut_len: 0,
            gathered: Vec::new(),
            place: None,
            ready: VecDeque::new(),
            ready_len: 0,
        }
    }

    /// Whether so many bytes more fit into the chunk that is being filled, or into the next one if there is none.
    pub(super) fn has_room(&self, additional: usize) -> bool {
        let chunk_len = match self.place {
            Some(_) => self.chunk_len,
            None => shortened(self.chunk_len_max, CHUNKS.load(Ordering::Relaxed)),
        };
        self.gathered.len() + additional <= chunk_len
    }

    /// Whether a piece of that length is better given as a slice.
    pub(super) fn takes_slice(&self, len: usize) -> bool {
        len >= self.slice_len_min
    }

    /// Appends a constant.
    #[inline]
    pub(super) fn constant(&mut self, piece: &'static [u8]) {
        if self.gathered.is_empty() && !self.ready.is_empty() {
            // Between slices: no buffer is begun for it.
            self.ready_len += piece.len();
            self.ready.push_back(Bytes::from_static(piece));
        } else {
            self.copy(piece);
        }
    }

    /// Appends a copy.
    #[inline]
    pub(super) fn copy(&mut self, piece: &[u8]) {
        self.buffer(piece.len()).extend_from_slice(piece);
    }

    /// Appends a slice that keeps its memory alive, without a copy when it is long.
    pub(super) fn slice(&mut self, piece: Bytes) {
        if self.takes_slice(piece.len()) {
            self.cut();
            self.ready_len += piece.len();
            self.ready.push_back(piece);
        } else {
            self.copy(&piece);
        }
    }

    /// Where a renderer may append directly, with room for `additional` bytes (more is taken, too).
    #[inline]
    pub(super) fn buffer(&mut self, additional: usize) -> &mut Vec<u8> {
        if self.gathered.len() + additional > self.gathered.capacity() {
            self.make_room(additional);
        }
        &mut self.gathered
    }

    /// Bytes that wait to be taken.
    pub(super) fn len(&self) -> usize {
        self.ready_len + self.gathered.len()
    }

    /// Whether there is enough to send.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.chunk_len
    }

    /// Whether all that there is can wait and be sent as a body of known length, and more with it: it holds less than one
    /// chunk of copied bytes, and not too much of mapped files.
    pub(super) fn may_wait(&self) -> bool {
        self.cut_len + self.gathered.len() < self.chunk_len
            && self.ready.len() < WAITING_SLICES_MAX
            && self.ready_len < WAITING_LEN_MAX
    }

    /// The next frame; gathered bytes only when nothing else is there.
    pub(super) fn take(&mut self) -> Option<Bytes> {
        if self.ready.is_empty() {
            self.cut();
        }
        let frame = self.ready.pop_front()?;
        self.ready_len -= frame.len();
        Some(frame)
    }

    /// Everything, as a body of known length.
    pub(super) fn into_body(mut self) -> Body {
        let has_parts = !self.ready.is_empty();
        self.cut();
        if has_parts {
            Body::parts(self.ready)
        } else {
            Body::from(self.ready.pop_front().unwrap_or_default())
        }
    }

    fn cut(&mut self) {
        if !self.gathered.is_empty() {
            let gathered = std::mem::take(&mut self.gathered);
            let chunk = match self.place.take() {
                Some(place) => Bytes::from_owner(CountedChunk {
                    bytes: gathered,
                    _place: place,
                }),
                None => Bytes::from(gathered),
            };
            self.ready_len += chunk.len();
            self.cut_len += chunk.len();
            self.ready.push_back(chunk);
        }
    }

    /// A chunk grows from small to its whole length; a piece that does not fit then begins the next one.
    fn make_room(&mut self, additional: usize) {
        if !self.gathered.is_empty() && self.gathered.len() + additional > self.chunk_len {
            self.cut();
        }
        let len = self.gathered.len();
        if len + additional > FIRST_LEN && self.place.is_none() {
            self.chunk_len = shortened(self.chunk_len_max, CHUNKS.load(Ordering::Relaxed));
            self.place = Some(Place::take());
        }
        let wanted = if !self.ready.is_empty() && len + additional <= NEXT_LEN {
            NEXT_LEN.min(self.chunk_len)
        } else if len == 0 && additional <= FIRST_LEN {
            FIRST_LEN
        } else {
            self.chunk_len
        };
        self.gathered.reserve_exact(wanted.max(len + additional) - len);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn short_pieces_share_frames_and_long_ones_keep_their_memory() {
        let long = Bytes::from(vec![b'l'; SLICE_LEN_MIN]);
        let mut chunks = Chunks::default();
        chunks.copy(b"ab");
        chunks.slice(Bytes::from_static(b"cd"));
        chunks.slice(long.clone());
        chunks.copy(b"e");
        assert_eq!(chunks.len(), 5 + long.len());
        let mut body = chunks.into_body();
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(5 + long.len() as u64));
        let mut parts = Vec::new();
        while let Some(frame) = body.frame().await {
            parts.push(frame.unwrap().into_data().unwrap());
        }
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[0], "abcd");
        assert_eq!(parts[1].as_ptr(), long.as_ptr());
        assert_eq!(parts[2], "e");
    }

    #[test]
    fn many_chunks_that_wait_are_short_and_few_are_long() {
        assert_eq!(shortened(CHUNK_LEN, 1), CHUNK_LEN);
        assert_eq!(shortened(CHUNK_LEN, FULL_CHUNKS_MAX), CHUNK_LEN);
        assert_eq!(shortened(CHUNK_LEN, 1_000_000), FIRST_LEN);
        let all: usize = (0..20_000).map(|chunks| shortened(CHUNK_LEN, chunks)).sum();
        assert!(all < 160 << 20, "{all} bytes in 20,000 chunks");
    }

    #[test]
    fn what_is_taken_is_what_was_put_in_and_no_frame_is_larger_than_a_chunk() {
        let mut chunks = Chunks::default();
        let mut expected = Vec::new();
        let mut taken = Vec::new();
        let mut frames = 0;
        for n in 0..2000_usize {
            let piece = vec![(n % 251) as u8; n % 997];
            expected.extend_from_slice(&piece);
            chunks.copy(&piece);
            while chunks.is_full() {
                let frame = chunks.take().unwrap();
                assert!(frame.len() <= CHUNK_LEN, "{}", frame.len());
                frames += 1;
                taken.extend_from_slice(&frame);
            }
        }
        while let Some(frame) = chunks.take() {
            taken.extend_from_slice(&frame);
        }
        assert!(taken == expected);
        assert!(frames <= expected.len() / (CHUNK_LEN / 2), "{frames}");
    }
}
