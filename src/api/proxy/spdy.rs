//! SPDY/3.1 as far as kubelets speak it: several streams of bytes over one connection. The side of a client.
//!
//! (Kubelets use `moby/spdystream`, which has no flow control of its own: a side that does not read holds up the other by
//! TCP. Blocks of headers are zlib streams; ours are made of stored blocks, which every zlib reads and which need no state.
//! Blocks of the other side are not looked into: what a kubelet says with them, it says by their kind.)

use std::io;

use bytes::{BufMut as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Largest control frame that is taken, bytes. Kubelets send some tens.
const CONTROL_MAX: u32 = 64 * 1024;
/// Bytes of data that are read at one go.
const READ_LEN: usize = 16 * 1024;
/// Largest data frame that is made, bytes.
pub(super) const DATA_MAX: usize = 16 * 1024;

const FIN: u8 = 1;

/// What a kubelet sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// It took a stream.
    Reply(u32),
    /// A part of a stream, and whether the stream ends with it.
    Data(u32, BytesMut, bool),
    /// It ends a stream, or does not take it.
    Reset(u32),
    /// To be sent back as it is.
    Ping([u8; 4]),
    /// It ends the connection.
    GoAway,
}

/// Reads frames. Holds at most [`CONTROL_MAX`] bytes.
pub(super) struct Reader<R> {
    inner: R,
    buffer: BytesMut,
    /// Of a data frame: its stream, bytes still to come, whether the stream ends with it.
    data: Option<(u32, u32, bool)>,
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|word| u32::from_be_bytes(*word) & 0x7fff_ffff)
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            buffer: BytesMut::new(),
            data: None,
        }
    }

    /// The next frame, or a part of one; `None` when the connection ended between two frames.
    ///
    /// # Errors
    /// When the connection breaks, or what comes is no SPDY.
    pub(super) async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(Some(frame));
            }
            self.buffer.reserve(READ_LEN);
            let mut limited = (&mut self.inner).take(READ_LEN as u64);
            if limited.read_buf(&mut self.buffer).await? == 0 {
                return if self.buffer.is_empty() && self.data.is_none() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }

    fn take(&mut self) -> io::Result<Option<Frame>> {
        let malformed = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        loop {
            if let Some((stream, left, ends)) = &mut self.data {
                if self.buffer.is_empty() {
                    return Ok(None);
                }
                let part = self.buffer.split_to(self.buffer.len().min(*left as usize));
                *left -= part.len() as u32;
                let is_over = *left == 0;
                let frame = Frame::Data(*stream, part, is_over && *ends);
                if is_over {
                    self.data = None;
                }
                return Ok(Some(frame));
            }
            let Some(head) = self.buffer.first_chunk::<8>().copied() else {
                return Ok(None);
            };
            let [first, second, third, fourth, flags, ..] = head;
            let len = u32::from_be_bytes([0, head[5], head[6], head[7]]);
            let ends = flags & FIN != 0;
            if first & 0x80 == 0 {
                let stream = u32::from_be_bytes([first, second, third, fourth]);
                let _ = self.buffer.split_to(8);
                if len == 0 {
                    return Ok(Some(Frame::Data(stream, BytesMut::new(), ends)));
                }
                self.data = Some((stream, len, ends));
                continue;
            }
            if (first, second) != (0x80, 3) {
                return Err(malformed("not SPDY/3"));
            }
            if len > CONTROL_MAX {
                return Err(malformed("a SPDY control frame that is too long"));
            }
            let whole = 8 + len as usize;
            if self.buffer.len() < whole {
                return Ok(None);
            }
            let frame = self.buffer.split_to(whole);
            let body = &frame[8..];
            let stream = || word(body).ok_or_else(|| malformed("a SPDY control frame that is too short"));
            return Ok(Some(match u16::from_be_bytes([third, fourth]) {
                2 | 8 if ends => Frame::Data(stream()?, BytesMut::new(), true),
                2 => Frame::Reply(stream()?),
                3 => Frame::Reset(stream()?),
                6 => match body.first_chunk() {
                    Some(id) => Frame::Ping(*id),
                    None => return Err(malformed("a SPDY control frame that is too short")),
                },
                7 => Frame::GoAway,
                // Streams of the kubelet's own, settings, more headers, windows: nothing that a client of it waits for.
                _ => continue,
            }));
        }
    }
}

/// The 8 bytes before a control frame's body.
fn control(kind: u16, len: usize, out: &mut Vec<u8>) {
    out.put_u16(0x8003);
    out.put_u16(kind);
    out.put_u32(len as u32 & 0x00ff_ffff);
}

/// What stands before the first block of headers: zlib without a dictionary and without compression.
const ZLIB_HEAD: [u8; 2] = [0x78, 0x01];
/// An empty stored block: what came before it may be read to its end.
const FLUSH: [u8; 5] = [0, 0, 0, 0xff, 0xff];

/// A stream is opened: SYN_STREAM with headers, whose names are lower case. `is_first`: of this connection.
pub(super) fn open(stream: u32, headers: &[(&str, &str)], is_first: bool, out: &mut Vec<u8>) {
    let mut block = Vec::new();
    block.put_u32(headers.len() as u32);
    for part in headers.iter().flat_map(|(name, value)| [name, value]) {
        block.put_u32(part.len() as u32);
        block.put_slice(part.as_bytes());
    }
    // Names of streams and ports: far below the 64 KiB of a stored block.
    let len = block.len() as u16;
    let start: &[u8] = if is_first { &ZLIB_HEAD } else { &[] };
    control(1, 10 + start.len() + 5 + block.len() + FLUSH.len(), out);
    out.put_u32(stream);
    out.put_u32(0);
    out.put_u16(0);
    out.put_slice(start);
    out.put_u8(0);
    out.put_u16_le(len);
    out.put_u16_le(!len);
    out.put_slice(&block);
    out.put_slice(&FLUSH);
}

/// The 8 bytes before data of a stream, of at most [`DATA_MAX`] bytes.
pub(super) fn data(stream: u32, len: usize, ends: bool) -> [u8; 8] {
    let mut head = [0; 8];
    head[..4].copy_from_slice(&stream.to_be_bytes());
    head[4..].copy_from_slice(&(len as u32).to_be_bytes());
    head[4] = u8::from(ends);
    head
}

/// The answer to a ping.
pub(super) fn pong(id: [u8; 4]) -> [u8; 12] {
    let mut frame = [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 0];
    frame[8..].copy_from_slice(&id);
    frame
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    async fn read(bytes: &[u8], step: usize) -> io::Result<Vec<Frame>> {
        let (mut theirs, ours) = tokio::io::duplex(step);
        let bytes = bytes.to_vec();
        tokio::spawn(async move {
            let _ = theirs.write_all(&bytes).await;
        });
        let mut reader = Reader::new(ours);
        let mut frames = Vec::new();
        while let Some(frame) = reader.next().await? {
            frames.push(frame);
        }
        Ok(frames)
    }

    fn framed(kind: u16, flags: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        control(kind, body.len(), &mut bytes);
        bytes[4] = flags;
        bytes.extend_from_slice(body);
        bytes
    }

    #[tokio::test]
    async fn frames_are_read_whatever_their_parts() {
        let mut bytes = framed(4, 0, &[0; 12]);
        bytes.extend(framed(2, 0, &[0, 0, 0, 5, 1, 2, 3]));
        bytes.extend(data(5, 70_000, true));
        bytes.extend(vec![b'x'; 70_000]);
        bytes.extend(framed(6, 0, &[0, 0, 0, 9]));
        bytes.extend(framed(3, 0, &[0, 0, 0, 7, 0, 0, 0, 1]));
        bytes.extend(framed(7, 0, &[0; 8]));
        for step in [1, 3, 8, 4096, 1 << 20] {
            let mut frames = read(&bytes, step).await.unwrap();
            assert_eq!(frames.remove(0), Frame::Reply(5));
            let mut len = 0;
            loop {
                let Frame::Data(5, part, ends) = frames.remove(0) else {
                    panic!("no data");
                };
                len += part.len();
                if ends {
                    break;
                }
            }
            assert_eq!(len, 70_000);
            assert_eq!(frames, [Frame::Ping([0, 0, 0, 9]), Frame::Reset(7), Frame::GoAway]);
        }
    }

    #[tokio::test]
    async fn what_is_no_spdy_is_refused() {
        let mut long = framed(2, 0, &[0; 8]);
        long[5] = 0xff;
        for bytes in [
            b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
            vec![0x80, 4, 0, 1, 0, 0, 0, 0],
            framed(2, 0, &[0, 0]),
            framed(6, 0, &[]),
            long,
            data(1, 10, false).to_vec(),
        ] {
            assert!(read(&bytes, 64).await.is_err(), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn whatever_comes_is_read_or_refused() {
        let mut state = 7_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        for _ in 0..300 {
            let mut bytes: Vec<u8> = (0..next()).map(|_| next()).collect();
            if bytes.len() > 8 {
                bytes[..7].copy_from_slice(&[0x80, 3, 0, next() % 12, 0, 0, 0]);
            }
            let _ = read(&bytes, 1 + usize::from(next() % 16)).await;
        }
    }

    #[test]
    fn blocks_of_headers_are_one_zlib_stream_that_can_be_read_block_by_block() {
        let mut frames = Vec::new();
        open(1, &[("streamtype", "error")], true, &mut frames);
        let first = frames.len();
        open(3, &[("streamtype", "stdin")], false, &mut frames);
        assert_eq!(frames[..4], [0x80, 3, 0, 1]);
        assert_eq!(usize::from(frames[7]), first - 8);
        let blocks = [&frames[18..first], &frames[first + 18..]].concat();
        let mut read = Vec::new();
        // It has no end, as the connection has none while it lasts.
        let _ = flate2::read::ZlibDecoder::new(&blocks[..]).read_to_end(&mut read);
        let pair = |value: &[u8]| [&[0, 0, 0, 1, 0, 0, 0, 10][..], b"streamtype", &[0, 0, 0, 5], value].concat();
        assert_eq!(read, [pair(b"error"), pair(b"stdin")].concat());
    }
}
