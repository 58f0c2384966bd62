//! HTTP/2 frames, written by hand: no client library makes the ones that are needed here.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::failure::Failure;
use super::process::Who;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0x0;
pub(crate) const HEADERS: u8 = 0x1;
pub(crate) const PRIORITY: u8 = 0x2;
pub(crate) const RST_STREAM: u8 = 0x3;
pub(crate) const SETTINGS: u8 = 0x4;
pub(crate) const PING: u8 = 0x6;
pub(crate) const GOAWAY: u8 = 0x7;
pub(crate) const WINDOW_UPDATE: u8 = 0x8;
pub(crate) const CONTINUATION: u8 = 0x9;

pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;

const INITIAL_WINDOW_SIZE: u16 = 0x4;

/// A frame's bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(9 + payload.len());
    bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// SETTINGS with the window that streams have at first.
pub(crate) fn initial_window(bytes: u32) -> Vec<u8> {
    let mut payload = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
    payload.extend_from_slice(&bytes.to_be_bytes());
    frame(SETTINGS, 0, 0, &payload)
}

pub(crate) fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// Header fields as HPACK has them, without its tables and without Huffman's code.
#[derive(Default)]
pub(crate) struct Fields(pub(crate) Vec<u8>);

impl Fields {
    /// Those of a GET by `who`.
    pub(crate) fn get(path: &str, who: Who) -> Self {
        // Entries of the static table: `:method GET`, `:scheme http`, and the names of `:path` and `:authority`.
        let mut fields = Self(vec![0x82, 0x86, 0x04]);
        fields.text(path);
        fields.0.push(0x01);
        fields.text("localhost");
        fields.field("authorization", &format!("Bearer {}", who.token()));
        fields
    }

    /// Adds a literal field that is not to be indexed.
    pub(crate) fn field(&mut self, name: &str, value: &str) {
        self.0.push(0x00);
        self.text(name);
        self.text(value);
    }

    /// Adds a literal field that the decoder's table keeps: `0xbe` names the newest one from then on.
    pub(crate) fn kept_field(&mut self, name: &str, value: &str) {
        self.0.push(0x40);
        self.text(name);
        self.text(value);
    }

    fn text(&mut self, text: &str) {
        let mut len = text.len();
        if len < 127 {
            self.0.push(len as u8);
        } else {
            self.0.push(127);
            len -= 127;
            while len >= 128 {
                self.0.push(len as u8 | 0x80);
                len >>= 7;
            }
            self.0.push(len as u8);
        }
        self.0.extend_from_slice(text.as_bytes());
    }
}

/// A connection to the plain address that speaks HTTP/2 from its first byte.
pub(crate) struct Raw {
    pub(crate) socket: TcpStream,
}

impl Raw {
    /// `settings` come right after the preface.
    pub(crate) async fn open(address: SocketAddr, settings: &[u8]) -> Result<Self, Failure> {
        let mut socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        socket.write_all(PREFACE).await?;
        socket.write_all(settings).await?;
        Ok(Self { socket })
    }

    /// Sends `bytes`; `false` once the server has hung up.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).await.is_ok()
    }

    /// Reads a frame's kind and payload; `None` at the end of the connection.
    pub(crate) async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 9];
        self.socket.read_exact(&mut head).await.ok()?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; len];
        self.socket.read_exact(&mut payload).await.ok()?;
        Some((head[3], payload))
    }

    /// Reads until the connection ends, or a GOAWAY tells why it will: its code.
    pub(crate) async fn goaway(&mut self) -> Option<u32> {
        while let Some((kind, payload)) = self.next().await {
            if kind == GOAWAY {
                return payload
                    .get(4..8)
                    .map(|code| u32::from_be_bytes(code.try_into().unwrap_or_default()));
            }
        }
        None
    }
}

/// Connects from one of the loopback addresses 127.0.0.2 and following, so that many connections are not of one address.
pub(crate) async fn connect_from(number: usize, to: SocketAddr) -> Result<TcpStream, Failure> {
    let socket = TcpSocket::new_v4()?;
    let from = Ipv4Addr::new(127, 0, 0, 2 + (number % 100) as u8);
    socket.bind(SocketAddr::new(IpAddr::V4(from), 0))?;
    Ok(socket.connect(to).await?)
}
