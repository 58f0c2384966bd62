//! WebSocket as a server speaks it (RFC 6455): the answer to a handshake, frames of a client, frames to it.
//!
//! A message is never held whole: what a frame carries is given on piece by piece, as it comes.

use std::io;

use base64::Engine as _;
use bytes::{BufMut as _, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Mutex;

/// Bytes that are read at one go, and so the largest piece.
const READ_LEN: usize = 16 * 1024;
/// Payload of a control frame, bytes (RFC 6455, 5.5).
const CONTROL_MAX: u64 = 125;

/// The close code of an end as it should be.
pub(super) const NORMAL: u16 = 1000;

/// The value of `Sec-WebSocket-Accept` for a client's key (RFC 6455, 4.2.2).
fn accept(key: &[u8]) -> String {
    let mut digest = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(key);
    digest.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    base64::engine::general_purpose::STANDARD.encode(digest.finish())
}

/// Whether a request asks for WebSocket.
pub(super) fn is_asked(headers: &HeaderMap) -> bool {
    headers
        .get(header::UPGRADE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}

/// The subprotocols that a request offers, in its order.
pub(super) fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|protocol| !protocol.is_empty())
}

/// The headers of the answer `101 Switching Protocols` to a request; `None` when its handshake is none.
pub(super) fn handshake(headers: &HeaderMap, protocol: Option<&str>) -> Option<HeaderMap> {
    let key = headers.get(header::SEC_WEBSOCKET_KEY)?.as_bytes();
    let version = headers.get(header::SEC_WEBSOCKET_VERSION)?;
    if key.len() != 24 || version != "13" {
        return None;
    }
    let mut answer = HeaderMap::new();
    let mut insert = |name: HeaderName, value: &str| {
        answer.insert(name, HeaderValue::from_str(value).ok()?);
        Some(())
    };
    insert(header::UPGRADE, "websocket")?;
    insert(header::CONNECTION, "Upgrade")?;
    insert(header::SEC_WEBSOCKET_ACCEPT, &accept(key))?;
    if let Some(protocol) = protocol {
        insert(header::SEC_WEBSOCKET_PROTOCOL, protocol)?;
    }
    Some(answer)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opcode {
    Continuation,
    Data,
    Close,
    Ping,
    Pong,
}

/// The head of a client's frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    is_last: bool,
    opcode: Opcode,
    len: u64,
    mask: [u8; 4],
    /// Bytes of the head itself.
    size: usize,
}

fn malformed(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Reads a frame's head; `None` when it is not there whole.
fn head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let [first, second, rest @ ..] = bytes else {
        return Ok(None);
    };
    if first & 0x70 != 0 {
        return Err(malformed("a frame with an extension that was not agreed on"));
    }
    if second & 0x80 == 0 {
        return Err(malformed("a client's frame without a mask"));
    }
    let is_last = first & 0x80 != 0;
    let opcode = match first & 0x0f {
        0 => Opcode::Continuation,
        1 | 2 => Opcode::Data,
        8 => Opcode::Close,
        9 => Opcode::Ping,
        10 => Opcode::Pong,
        _ => return Err(malformed("a frame of an unknown kind")),
    };
    let (len, rest, size) = match second & 0x7f {
        126 => match rest.split_first_chunk::<2>() {
            Some((len, rest)) => (u64::from(u16::from_be_bytes(*len)), rest, 4),
            None => return Ok(None),
        },
        127 => match rest.split_first_chunk::<8>() {
            Some((len, rest)) => (u64::from_be_bytes(*len), rest, 10),
            None => return Ok(None),
        },
        len => (u64::from(len), rest, 2),
    };
    if len > i64::MAX as u64 {
        return Err(malformed("a frame of impossible length"));
    }
    let is_control = matches!(opcode, Opcode::Close | Opcode::Ping | Opcode::Pong);
    if is_control && (!is_last || len > CONTROL_MAX) {
        return Err(malformed("a control frame in parts, or too long"));
    }
    Ok(rest.first_chunk::<4>().map(|mask| Head {
        is_last,
        opcode,
        len,
        mask: *mask,
        size: size + 4,
    }))
}

fn unmask(bytes: &mut [u8], mask: [u8; 4], offset: u64) {
    for (byte, at) in bytes.iter_mut().zip(offset..) {
        *byte ^= mask[(at % 4) as usize];
    }
}

/// What a client sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A part of a message: whether it is its beginning, and the bytes (there may be none).
    Data(bool, BytesMut),
    /// To be answered with [`Writer::pong`].
    Ping(BytesMut),
    /// The client ends the connection.
    Close,
}

/// Reads what a client sends. Holds at most [`READ_LEN`] bytes and a frame's head.
pub(super) struct Reader<R> {
    inner: R,
    buffer: BytesMut,
    /// The data frame that is being read, and how much of it was given on.
    frame: Option<(Head, u64)>,
    /// In the middle of a message.
    in_message: bool,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            buffer: BytesMut::new(),
            frame: None,
            in_message: false,
        }
    }

    /// The next piece; `None` when the connection ended between two frames.
    ///
    /// # Errors
    /// When the connection breaks, or what comes are no frames of a client.
    pub(super) async fn next(&mut self) -> io::Result<Option<Piece>> {
        loop {
            if let Some(piece) = self.take()? {
                return Ok(Some(piece));
            }
            self.buffer.reserve(READ_LEN);
            let mut limited = (&mut self.inner).take(READ_LEN as u64);
            if limited.read_buf(&mut self.buffer).await? == 0 {
                let is_between = self.buffer.is_empty() && self.frame.is_none();
                return if is_between {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }

    /// A piece of what was read; `None` when more has to be read.
    fn take(&mut self) -> io::Result<Option<Piece>> {
        if let Some((frame, given)) = &mut self.frame {
            if self.buffer.is_empty() {
                return Ok(None);
            }
            let left = frame.len - *given;
            let len = usize::try_from(left).map_or(self.buffer.len(), |left| left.min(self.buffer.len()));
            let mut bytes = self.buffer.split_to(len);
            unmask(&mut bytes, frame.mask, *given);
            *given += len as u64;
            if *given == frame.len {
                self.in_message = !frame.is_last;
                self.frame = None;
            }
            return Ok(Some(Piece::Data(false, bytes)));
        }
        let head = loop {
            let Some(head) = head(&self.buffer)? else {
                return Ok(None);
            };
            // Nobody waits for these.
            let whole = head.size + head.len as usize;
            if head.opcode != Opcode::Pong || self.buffer.len() < whole {
                break head;
            }
            let _ = self.buffer.split_to(whole);
        };
        if matches!(head.opcode, Opcode::Data | Opcode::Continuation) {
            let is_first = head.opcode == Opcode::Data;
            if is_first == self.in_message {
                return Err(malformed("a frame that does not go on with its message"));
            }
            let _ = self.buffer.split_to(head.size);
            if head.len == 0 {
                self.in_message = !head.is_last;
                return Ok(Some(Piece::Data(is_first, BytesMut::new())));
            }
            self.frame = Some((head, 0));
            // The beginning of a message is told, also when its bytes are still to come.
            let bytes = match self.take()? {
                Some(Piece::Data(_, bytes)) => bytes,
                _ => BytesMut::new(),
            };
            return Ok(Some(Piece::Data(is_first, bytes)));
        }
        let len = head.len as usize;
        if self.buffer.len() < head.size + len {
            return Ok(None);
        }
        let _ = self.buffer.split_to(head.size);
        let mut payload = self.buffer.split_to(len);
        unmask(&mut payload, head.mask, 0);
        Ok(Some(match head.opcode {
            Opcode::Ping => Piece::Ping(payload),
            _ => Piece::Close,
        }))
    }
}

/// Writes frames to a client; whole ones, from wherever they come. A write that is dropped half done is finished by the next.
pub(super) struct Writer<W>(Mutex<Pending<W>>);

struct Pending<W> {
    inner: W,
    /// What of frames is still to be written.
    bytes: BytesMut,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    pub(super) fn new(inner: W) -> Self {
        let bytes = BytesMut::new();
        Self(Mutex::new(Pending { inner, bytes }))
    }

    /// A binary message of a prefix (one byte at most) and bytes.
    pub(super) async fn message(&self, prefix: &[u8], bytes: &[u8]) -> io::Result<()> {
        self.frame(2, prefix, bytes).await
    }

    /// The answer to a ping.
    pub(super) async fn pong(&self, payload: &[u8]) -> io::Result<()> {
        self.frame(10, &[], payload).await
    }

    /// Tells the client that nothing more comes.
    pub(super) async fn close(&self, code: u16) -> io::Result<()> {
        self.frame(8, &[], &code.to_be_bytes()).await
    }

    /// Closes the connection towards the client.
    pub(super) async fn shutdown(&self) -> io::Result<()> {
        self.0.lock().await.inner.shutdown().await
    }

    async fn frame(&self, opcode: u8, prefix: &[u8], bytes: &[u8]) -> io::Result<()> {
        let mut lock = self.0.lock().await;
        let Pending { inner, bytes: pending } = &mut *lock;
        while !pending.is_empty() {
            inner.write_buf(pending).await?;
        }
        pending.put_u8(0x80 | opcode);
        match prefix.len() + bytes.len() {
            len @ 0..=125 => pending.put_u8(len as u8),
            len @ 126..=0xffff => {
                pending.put_u8(126);
                pending.put_u16(len as u16);
            }
            len => {
                pending.put_u8(127);
                pending.put_u64(len as u64);
            }
        }
        pending.put_slice(prefix);
        pending.put_slice(bytes);
        while !pending.is_empty() {
            inner.write_buf(pending).await?;
        }
        inner.flush().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client's frame.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [7, 0x80, 0, 0xff];
        let mut bytes = vec![first];
        match payload.len() {
            len @ 0..=125 => bytes.push(0x80 | len as u8),
            len @ 126..=0xffff => {
                bytes.push(0xfe);
                bytes.extend_from_slice(&(len as u16).to_be_bytes());
            }
            len => {
                bytes.push(0xff);
                bytes.extend_from_slice(&(len as u64).to_be_bytes());
            }
        }
        bytes.extend_from_slice(&mask);
        bytes.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
        bytes
    }

    /// Everything that a reader makes of `bytes` that come in parts of `step`.
    async fn read(bytes: &[u8], step: usize) -> io::Result<Vec<Piece>> {
        let (mut theirs, ours) = tokio::io::duplex(step);
        let bytes = bytes.to_vec();
        let sent = tokio::spawn(async move {
            let _ = theirs.write_all(&bytes).await;
        });
        let mut reader = Reader::new(ours);
        let mut pieces = Vec::new();
        while let Some(piece) = reader.next().await? {
            pieces.push(piece);
        }
        let _ = sent.await;
        Ok(pieces)
    }

    /// Messages, put together again.
    fn messages(pieces: Vec<Piece>) -> Vec<Vec<u8>> {
        let mut messages: Vec<Vec<u8>> = Vec::new();
        for piece in pieces {
            if let Piece::Data(is_first, bytes) = piece {
                if is_first {
                    messages.push(Vec::new());
                }
                messages
                    .last_mut()
                    .expect("a message has a beginning")
                    .extend_from_slice(&bytes);
            }
        }
        messages
    }

    #[tokio::test]
    async fn messages_are_read_whatever_their_parts() {
        let long: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
        let mut bytes = frame(0x82, b"\0ab");
        bytes.extend(frame(0x02, b"one"));
        bytes.extend(frame(0x89, b"ping"));
        bytes.extend(frame(0x00, b""));
        bytes.extend(frame(0x80, b"two"));
        bytes.extend(frame(0x82, b""));
        bytes.extend(frame(0x8a, b"pong"));
        bytes.extend(frame(0x82, &long));
        for step in [1, 2, 3, 7, 1000, 1 << 20] {
            let pieces = read(&bytes, step).await.unwrap();
            assert!(pieces.contains(&Piece::Ping(BytesMut::from(&b"ping"[..]))), "{step}");
            let found = messages(pieces);
            assert_eq!(found[..3], [b"\0ab".to_vec(), b"onetwo".to_vec(), Vec::new()], "{step}");
            assert!(found[3] == long && found.len() == 4, "{step}");
        }
    }

    #[tokio::test]
    async fn what_is_no_frame_of_a_client_is_refused() {
        let mut unmasked = frame(0x82, b"x");
        unmasked[1] &= 0x7f;
        let mut endless = vec![0x82, 0xff];
        endless.extend_from_slice(&[0xff; 12]);
        for bytes in [
            unmasked,
            endless,
            frame(0xc2, b"rsv"),
            frame(0x83, b"kind"),
            frame(0x80, b"goes on with nothing"),
            [frame(0x02, b"begun"), frame(0x82, b"anew")].concat(),
            frame(0x09, b"ping in parts"),
            frame(0x88, &[0; 126]),
            frame(0x82, b"cut")[..7].to_vec(),
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
            if let Some(first) = bytes.first_mut() {
                *first &= 0x8f;
            }
            let _ = read(&bytes, 1 + usize::from(next() % 16)).await;
        }
        let pongs = frame(0x8a, b"").repeat(100_000);
        assert_eq!(read(&pongs, 1 << 20).await.unwrap(), []);
    }

    #[test]
    fn a_handshake_is_answered_as_the_rfc_shows_it() {
        let mut headers = HeaderMap::new();
        let mut put = |name, value| headers.insert(name, HeaderValue::from_static(value));
        put(header::UPGRADE, "WebSocket");
        put(header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ==");
        put(header::SEC_WEBSOCKET_VERSION, "13");
        put(header::SEC_WEBSOCKET_PROTOCOL, "v5.channel.k8s.io, v4.channel.k8s.io");
        assert!(is_asked(&headers));
        assert_eq!(
            protocols(&headers).collect::<Vec<_>>(),
            ["v5.channel.k8s.io", "v4.channel.k8s.io"]
        );
        let answer = handshake(&headers, Some("v5.channel.k8s.io")).unwrap();
        assert_eq!(answer[header::SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(handshake(&headers, Some("injected\r\nheader")).is_none());
        headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("8"));
        assert!(handshake(&headers, None).is_none());
    }

    #[tokio::test]
    async fn a_frame_whose_writer_is_dropped_in_the_middle_is_finished_by_the_next() {
        use std::time::Duration;
        let (ours, mut theirs) = tokio::io::duplex(4);
        let writer = Writer::new(ours);
        let dropped = tokio::time::timeout(Duration::from_millis(1), writer.message(&[1], b"0123456789"));
        assert!(dropped.await.is_err());
        let mut sent = [0; 13 + 4];
        let (written, read) = tokio::join!(writer.pong(b"hi"), theirs.read_exact(&mut sent));
        written.unwrap();
        read.unwrap();
        assert_eq!(&sent, b"\x82\x0b\x010123456789\x8a\x02hi");
    }

    #[tokio::test]
    async fn frames_to_a_client_have_their_length_and_no_mask() {
        for len in [0_usize, 1, 124, 125, 126, 65_535, 65_536] {
            let (ours, mut theirs) = tokio::io::duplex(1 << 20);
            let writer = Writer::new(ours);
            writer.message(&[1], &vec![b'x'; len]).await.unwrap();
            writer.shutdown().await.unwrap();
            let mut sent = Vec::new();
            theirs.read_to_end(&mut sent).await.unwrap();
            let told = match sent[1] {
                126 => usize::from(u16::from_be_bytes([sent[2], sent[3]])),
                127 => u64::from_be_bytes(sent[2..10].try_into().unwrap()) as usize,
                short => usize::from(short),
            };
            assert_eq!((sent[0], told), (0x82, len + 1));
            assert_eq!(sent[sent.len() - told], 1);
        }
    }
}
