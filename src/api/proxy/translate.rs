//! An exec or attach that comes over WebSocket (`v5.channel.k8s.io`) and goes to the kubelet over SPDY (KEP-4006): how kubectl
//! from 1.30 on is served by kubelets that do not take its WebSocket themselves.
//!
//! | channel of the client | stream of the kubelet |
//! | --- | --- |
//! | 0, to it | `stdin` |
//! | 1, from it | `stdout` |
//! | 2, from it | `stderr`, unless there is a terminal |
//! | 3, from it | `error`: how it ended, a Status as JSON |
//! | 4, to it | `resize`, if there is a terminal |
//! | 255, to it | the channel named by the next byte ends |

use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, WriteHalf};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use super::spdy::{self, Frame};
use super::tunnel::Moved;
use super::websocket::{self, NORMAL, Piece};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const END_OF_CHANNEL: u8 = 255;

/// How long a kubelet may take for the streams that are opened.
const OPENING: Duration = Duration::from_secs(30);
/// How long a client may take for what is on its way to it when the command has ended (kube-apiserver's time).
const FINISHING: Duration = Duration::from_mins(15);

/// Which streams a client asked for.
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the request")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

/// Streams are numbered as they are opened: odd, from 1 on. The order is that of upstream's client.
#[derive(Debug)]
struct Streams(Vec<(u32, u8, &'static str)>);

impl Streams {
    fn of(wanted: Wanted) -> Self {
        let all = [
            (true, ERROR, "error"),
            (wanted.stdin, STDIN, "stdin"),
            (wanted.stdout, STDOUT, "stdout"),
            (wanted.stderr && !wanted.tty, STDERR, "stderr"),
            (wanted.tty, RESIZE, "resize"),
        ];
        let opened = all.into_iter().filter(|(is_wanted, ..)| *is_wanted);
        Self(
            opened
                .zip((1..).step_by(2))
                .map(|((_, channel, name), stream)| (stream, channel, name))
                .collect(),
        )
    }

    fn stream(&self, channel: u8) -> Option<u32> {
        self.0
            .iter()
            .find(|(_, other, _)| *other == channel)
            .map(|(stream, ..)| *stream)
    }

    fn channel(&self, stream: u32) -> Option<u8> {
        self.0
            .iter()
            .find(|(other, ..)| *other == stream)
            .map(|(_, channel, _)| *channel)
    }
}

/// The client's side: its WebSocket after the handshake.
pub(super) struct Client<C> {
    reader: websocket::Reader<tokio::io::ReadHalf<C>>,
    writer: websocket::Writer<WriteHalf<C>>,
}

impl<C: AsyncRead + AsyncWrite> Client<C> {
    /// Tells the client that the connection stands: by an empty message on the first channel that it reads.
    pub(super) async fn begin(connection: C, wanted: Wanted) -> io::Result<Self> {
        let (read, write) = tokio::io::split(connection);
        let client = Self {
            reader: websocket::Reader::new(read),
            writer: websocket::Writer::new(write),
        };
        let first = match wanted {
            Wanted { stdout: true, .. } => STDOUT,
            Wanted { stderr: true, .. } => STDERR,
            _ => ERROR,
        };
        client.writer.message(&[first], &[]).await?;
        Ok(client)
    }

    /// Tells how it ended, and waits until the client has got everything.
    pub(super) async fn finish(mut self, status: &[u8]) -> io::Result<()> {
        self.writer.message(&[ERROR], status).await?;
        self.writer.close(NORMAL).await?;
        // Closing before the client has would throw away what is on its way to it.
        let drained = async {
            while let Ok(Some(piece)) = self.reader.next().await {
                if piece == Piece::Close {
                    return;
                }
            }
        };
        let _ = timeout(FINISHING, drained).await;
        self.writer.shutdown().await
    }

    /// Runs the session with a kubelet that speaks SPDY, and tells the client how it ended. `failed` makes a Status of what
    /// went wrong between here and the kubelet.
    pub(super) async fn run<K>(
        mut self,
        kubelet: K,
        wanted: Wanted,
        moved: &Moved,
        failed: impl Fn(&str) -> Vec<u8>,
    ) -> io::Result<()>
    where
        K: AsyncRead + AsyncWrite,
    {
        let streams = Streams::of(wanted);
        let (read, write) = tokio::io::split(kubelet);
        let write = Mutex::new(write);
        let (tell, told) = watch::channel(0);
        let ended = {
            let there = there(&mut self.reader, &self.writer, &streams, &write, told, moved);
            let back = back(spdy::Reader::new(read), &self.writer, &streams, &write, tell, moved);
            let (there, mut back) = (pin!(there), pin!(back));
            let went = tokio::select! {
                ended = there => Err(ended),
                ended = &mut back => Ok(ended),
            };
            let came = match went {
                Ok(came) => came.map(Some),
                // Nobody is there to be told.
                Err(Ok(())) => Ok(None),
                Err(Err(Failed::Kubelet(error))) if error.kind() != io::ErrorKind::TimedOut => {
                    // It takes nothing more: the command may have ended, and what it said last is still to be read.
                    let ended = timeout(OPENING, back).await;
                    ended.unwrap_or(Err(Failed::Kubelet(error))).map(Some)
                }
                Err(Err(failed)) => Err(failed),
            };
            match came {
                Ok(status) => Ok(status),
                Err(Failed::Kubelet(error)) => Err(error),
                Err(Failed::Client(error)) => return Err(error),
            }
        };
        let _ = write.lock().await.shutdown().await;
        match ended {
            Ok(None) => self.writer.shutdown().await,
            Ok(Some(status)) if status.is_empty() => self.finish(br#"{"metadata":{},"status":"Success"}"#).await,
            Ok(Some(status)) => self.finish(&status).await,
            Err(error) => {
                let status = failed(&format!("the connection to the kubelet broke off: {error}"));
                self.finish(&status).await
            }
        }
    }
}

/// Which side broke off.
enum Failed {
    Client(io::Error),
    Kubelet(io::Error),
}

/// From the client to the kubelet; done when the client ends the connection.
async fn there<R, W, K>(
    reader: &mut websocket::Reader<R>,
    writer: &websocket::Writer<W>,
    streams: &Streams,
    kubelet: &Mutex<WriteHalf<K>>,
    mut replied: watch::Receiver<usize>,
    moved: &Moved,
) -> Result<(), Failed>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    K: AsyncWrite,
{
    let mut opening = Vec::new();
    for (stream, _, name) in &streams.0 {
        spdy::open(*stream, &[("streamtype", name)], *stream == 1, &mut opening);
    }
    send(kubelet, &opening, &[]).await?;
    // What comes for a stream that it has not taken yet, a kubelet throws away.
    let all = replied.wait_for(|count| *count == streams.0.len());
    if !matches!(timeout(OPENING, all).await, Ok(Ok(_))) {
        return Err(Failed::Kubelet(io::ErrorKind::TimedOut.into()));
    }
    let mut channel = None;
    while let Some(piece) = reader.next().await.map_err(Failed::Client)? {
        let mut bytes = match piece {
            Piece::Data(is_first, bytes) => {
                if is_first {
                    channel = None;
                }
                bytes
            }
            Piece::Ping(payload) => {
                writer.pong(&payload).await.map_err(Failed::Client)?;
                continue;
            }
            Piece::Close => return Ok(()),
        };
        if channel.is_none() && !bytes.is_empty() {
            channel = Some(bytes.split_to(1)[0]);
        }
        match channel {
            Some(END_OF_CHANNEL) => {
                if let Some(stream) = bytes.first().and_then(|channel| input(streams, *channel)) {
                    send(kubelet, &spdy::data(stream, 0, true), &[]).await?;
                }
            }
            Some(channel) => {
                if let Some(stream) = input(streams, channel) {
                    for part in bytes.chunks(spdy::DATA_MAX) {
                        send(kubelet, &spdy::data(stream, part.len(), false), part).await?;
                    }
                }
            }
            None => {}
        }
        moved.add(bytes.len());
    }
    Ok(())
}

/// The stream of a channel that clients may write to.
fn input(streams: &Streams, channel: u8) -> Option<u32> {
    matches!(channel, STDIN | RESIZE)
        .then(|| streams.stream(channel))
        .flatten()
}

async fn send<K: AsyncWrite>(kubelet: &Mutex<WriteHalf<K>>, head: &[u8], bytes: &[u8]) -> Result<(), Failed> {
    let mut kubelet = kubelet.lock().await;
    let sent = async {
        kubelet.write_all(head).await?;
        kubelet.write_all(bytes).await?;
        kubelet.flush().await
    };
    sent.await.map_err(Failed::Kubelet)
}

/// Longest Status of a kubelet, bytes.
const STATUS_MAX: usize = 64 * 1024;

/// From the kubelet to the client; done when all output has ended: what came on the stream of errors.
async fn back<R, W, K>(
    mut reader: spdy::Reader<R>,
    writer: &websocket::Writer<W>,
    streams: &Streams,
    kubelet: &Mutex<WriteHalf<K>>,
    replied: watch::Sender<usize>,
    moved: &Moved,
) -> Result<BytesMut, Failed>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    K: AsyncWrite,
{
    let broken = |why: &'static str| Failed::Kubelet(io::Error::new(io::ErrorKind::InvalidData, why));
    let is_output = |(_, channel, _): &&(u32, u8, &str)| matches!(*channel, STDOUT | STDERR | ERROR);
    let mut open: Vec<u8> = streams
        .0
        .iter()
        .filter(is_output)
        .map(|(_, channel, _)| *channel)
        .collect();
    let mut taken: Vec<u32> = Vec::new();
    let mut status = BytesMut::new();
    while !open.is_empty() {
        let Some(frame) = reader.next().await.map_err(Failed::Kubelet)? else {
            return Err(Failed::Kubelet(io::ErrorKind::UnexpectedEof.into()));
        };
        let (stream, bytes, ends) = match frame {
            Frame::Reply(stream) => {
                if streams.channel(stream).is_some() && !taken.contains(&stream) {
                    taken.push(stream);
                    replied.send_replace(taken.len());
                }
                continue;
            }
            Frame::Data(stream, bytes, ends) => (stream, bytes, ends),
            Frame::Reset(stream) if taken.contains(&stream) => (stream, BytesMut::new(), true),
            Frame::Reset(_) => return Err(broken("a stream was not taken")),
            Frame::Ping(id) => {
                send(kubelet, &spdy::pong(id), &[]).await?;
                continue;
            }
            Frame::GoAway => continue,
        };
        let Some(channel) = streams.channel(stream) else {
            continue;
        };
        match channel {
            STDOUT | STDERR if !bytes.is_empty() => {
                writer.message(&[channel], &bytes).await.map_err(Failed::Client)?;
                moved.add(bytes.len());
            }
            ERROR if status.len() + bytes.len() > STATUS_MAX => return Err(broken("a Status that is too long")),
            ERROR => status.extend_from_slice(&bytes),
            _ => {}
        }
        if ends {
            open.retain(|other| *other != channel);
        }
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, DuplexStream};

    use super::*;

    const ALL: Wanted = Wanted {
        stdin: true,
        stdout: true,
        stderr: true,
        tty: false,
    };

    /// A client's message.
    fn message(payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x82, 0x80 | payload.len() as u8, 0, 0, 0, 0];
        bytes.extend_from_slice(payload);
        bytes
    }

    /// The payload of the next frame to a client, after its opcode.
    async fn heard(client: &mut DuplexStream) -> (u8, Vec<u8>) {
        let first = client.read_u8().await.unwrap();
        let len = match client.read_u8().await.unwrap() {
            126 => usize::from(client.read_u16().await.unwrap()),
            127 => client.read_u64().await.unwrap() as usize,
            len => usize::from(len),
        };
        let mut payload = vec![0; len];
        client.read_exact(&mut payload).await.unwrap();
        (first & 0x0f, payload)
    }

    /// A session on both sides, until the kubelet has taken all streams.
    async fn session(wanted: Wanted) -> (DuplexStream, DuplexStream, tokio::task::JoinHandle<io::Result<()>>) {
        let (mut client, ours) = tokio::io::duplex(4096);
        let (backend, mut kubelet) = tokio::io::duplex(4096);
        let task = tokio::spawn(async move {
            let client = Client::begin(ours, wanted).await?;
            client
                .run(backend, wanted, &Moved::default(), |why| why.as_bytes().to_vec())
                .await
        });
        heard(&mut client).await;
        for (stream, ..) in Streams::of(wanted).0 {
            let mut head = [0; 8];
            kubelet.read_exact(&mut head).await.unwrap();
            let mut body = vec![0; usize::from(head[7])];
            kubelet.read_exact(&mut body).await.unwrap();
            assert_eq!((head[3], body[3]), (1, stream as u8));
            kubelet
                .write_all(&[0x80, 3, 0, 2, 0, 0, 0, 4, 0, 0, 0, stream as u8])
                .await
                .unwrap();
        }
        (client, kubelet, task)
    }

    async fn said(kubelet: &mut DuplexStream, stream: u32, bytes: &[u8], ends: bool) {
        kubelet.write_all(&spdy::data(stream, bytes.len(), ends)).await.unwrap();
        kubelet.write_all(bytes).await.unwrap();
    }

    #[tokio::test]
    async fn channels_and_streams_are_told_apart_both_ways() {
        let (mut client, mut kubelet, task) = session(ALL).await;
        client.write_all(&message(b"\0hello")).await.unwrap();
        client
            .write_all(&message(b"\x01not to be written by clients"))
            .await
            .unwrap();
        client.write_all(&message(b"\xff\0")).await.unwrap();
        let mut got = [0; 8 + 5 + 8];
        kubelet.read_exact(&mut got).await.unwrap();
        assert_eq!(got[..8], spdy::data(3, 5, false));
        assert_eq!(&got[8..13], b"hello");
        assert_eq!(got[13..], spdy::data(3, 0, true));
        said(&mut kubelet, 5, b"out", false).await;
        said(&mut kubelet, 7, b"err", true).await;
        said(&mut kubelet, 5, b"", true).await;
        said(&mut kubelet, 1, b"{\"status\":", false).await;
        said(&mut kubelet, 1, b"\"Failure\"}", true).await;
        assert_eq!(heard(&mut client).await, (2, b"\x01out".to_vec()));
        assert_eq!(heard(&mut client).await, (2, b"\x02err".to_vec()));
        assert_eq!(heard(&mut client).await, (2, b"\x03{\"status\":\"Failure\"}".to_vec()));
        assert_eq!(heard(&mut client).await, (8, NORMAL.to_be_bytes().to_vec()));
        drop(client);
        let _ = task.await.unwrap();
    }

    #[tokio::test]
    async fn a_kubelet_that_breaks_off_is_no_success() {
        let (mut client, kubelet, task) = session(ALL).await;
        drop(kubelet);
        let (_, told) = heard(&mut client).await;
        assert!(
            told.starts_with(b"\x03the connection to the kubelet broke off"),
            "{told:?}"
        );
        assert_eq!(heard(&mut client).await.0, 8);
        client.write_all(&[0x88, 0x80, 0, 0, 0, 0]).await.unwrap();
        task.await.unwrap().unwrap();
    }

    /// A kubelet whose command ended closes its side, whatever the client still sends.
    #[tokio::test]
    async fn what_a_kubelet_said_last_is_told_although_it_takes_nothing_more() {
        let (mut client, mut kubelet, task) = session(ALL).await;
        said(&mut kubelet, 5, b"last words", true).await;
        said(&mut kubelet, 7, b"", true).await;
        said(&mut kubelet, 1, b"{\"status\":\"Success\"}", true).await;
        drop(kubelet);
        let sent: Vec<u8> = (0..100).flat_map(|_| message(b"\0more input")).collect();
        let _ = client.write_all(&sent).await;
        assert_eq!(heard(&mut client).await.1, b"\x01last words");
        assert_eq!(heard(&mut client).await.1, b"\x03{\"status\":\"Success\"}");
        drop(client);
        let _ = task.await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_goes_ends_the_session_and_pings_are_answered() {
        let tty = Wanted {
            stdin: true,
            stdout: true,
            stderr: true,
            tty: true,
        };
        let (mut client, mut kubelet, task) = session(tty).await;
        client.write_all(b"\x89\x82\0\0\0\0hi").await.unwrap();
        assert_eq!(heard(&mut client).await, (10, b"hi".to_vec()));
        kubelet.write_all(&spdy::pong([1, 2, 3, 4])).await.unwrap();
        let mut pong = [0; 12];
        kubelet.read_exact(&mut pong).await.unwrap();
        assert_eq!(pong, spdy::pong([1, 2, 3, 4]));
        client.write_all(&message(b"\x04{\"Width\":80}")).await.unwrap();
        let mut got = [0; 8 + 12];
        kubelet.read_exact(&mut got).await.unwrap();
        assert_eq!(got[..8], spdy::data(7, 12, false));
        drop(client);
        let _ = task.await.unwrap();
        assert_eq!(kubelet.read(&mut [0; 8]).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_kubelet_that_takes_no_stream_is_not_waited_for() {
        let (mut client, ours) = tokio::io::duplex(4096);
        let (backend, _kubelet) = tokio::io::duplex(4096);
        tokio::spawn(async move {
            let client = Client::begin(ours, ALL).await?;
            client
                .run(backend, ALL, &Moved::default(), |why| why.as_bytes().to_vec())
                .await
        });
        heard(&mut client).await;
        let begun = tokio::time::Instant::now();
        assert_eq!(heard(&mut client).await.1[0], ERROR);
        assert_eq!(begun.elapsed(), OPENING);
    }
}
