//! Heads of requests: too large, too many fields, too slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::frames::{CONTINUATION, END_HEADERS, END_STREAM, Fields, HEADERS, Raw, connect_from, frame};
use crate::process::Who;
use crate::siege::{Attack, Ground, Outcome};

pub(crate) struct HeaderBombs;

impl Attack for HeaderBombs {
    const NAME: &'static str = "header-bombs";
    const TEXT: &'static str = "64 clients that send heads of 1 MiB, of 20,000 fields, and HPACK bombs: 4 KiB in the \
                                decoder's table, named 12,000 times (48 MiB)";

    async fn run(&self, ground: &Ground) -> Result<Outcome, Failure> {
        let refused = Arc::new(AtomicU64::new(0));
        let others = Arc::new(AtomicU64::new(0));
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..64 {
            let address = ground.process.http;
            let (refused, others) = (refused.clone(), others.clone());
            clients.spawn(async move {
                loop {
                    let is_refused = match number % 3 {
                        0 => one_long_field(address).await,
                        1 => many_fields(address).await,
                        _ => hpack_bomb(address).await,
                    };
                    match is_refused {
                        Ok(true) => refused.fetch_add(1, Ordering::Relaxed),
                        Ok(false) => others.fetch_add(1, Ordering::Relaxed),
                        Err(_) => 0,
                    };
                }
            });
        }
        ground.hold(20).await;
        clients.abort_all();
        let (refused, others) = (refused.load(Ordering::Relaxed), others.load(Ordering::Relaxed));
        Ok(Outcome::new(64, "clients", 64 * (1 << 20))
            .note(format!("{refused} heads were refused, {others} were not"))
            .expect(refused > 0 && others == 0, format!("{others} heads were not refused")))
    }
}

/// Whether an answer over HTTP/1.1 is a refusal (431), or the connection was ended before it came.
async fn is_refused(socket: &mut TcpStream) -> bool {
    let mut line = [0; 12];
    match timeout(Duration::from_secs(10), socket.read_exact(&mut line)).await {
        Ok(Ok(_)) => &line == b"HTTP/1.1 431",
        Ok(Err(_)) => true,
        Err(_) => false,
    }
}

async fn one_long_field(address: std::net::SocketAddr) -> Result<bool, Failure> {
    let mut socket = TcpStream::connect(address).await?;
    let head = format!(
        "GET /version HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n",
        "y".repeat(1 << 20)
    );
    let _ = socket.write_all(head.as_bytes()).await;
    Ok(is_refused(&mut socket).await)
}

async fn many_fields(address: std::net::SocketAddr) -> Result<bool, Failure> {
    let mut socket = TcpStream::connect(address).await?;
    let head = format!("GET /version HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(20_000));
    let _ = socket.write_all(head.as_bytes()).await;
    Ok(is_refused(&mut socket).await)
}

async fn hpack_bomb(address: std::net::SocketAddr) -> Result<bool, Failure> {
    let mut raw = Raw::open(address, &frame(crate::frames::SETTINGS, 0, 0, &[])).await?;
    let mut fields = Fields::get("/version", Who::Attacker);
    fields.kept_field("x", &"y".repeat(4_000));
    fields.0.extend(std::iter::repeat_n(0xbe, 12_000));
    let _ = raw.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &fields.0)).await;
    // A GOAWAY, or a connection that is gone.
    let ended = timeout(Duration::from_secs(10), raw.goaway()).await;
    Ok(ended.is_ok())
}

pub(crate) struct Slowloris;

impl Attack for Slowloris {
    const NAME: &'static str = "slowloris";
    const TEXT: &'static str = "3,000 connections on which one byte a second comes: heads of HTTP/1.1, HTTP/2 heads without \
                                an end, bodies, and nothing at all; those that are ended come again";

    async fn run(&self, ground: &Ground) -> Result<Outcome, Failure> {
        let count: usize = ground.size(3_000, 200);
        let ended = Arc::new(AtomicU64::new(0));
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..count {
            let (address, ended) = (ground.process.http, ended.clone());
            clients.spawn(async move {
                loop {
                    if drip(number, address).await.is_ok() {
                        ended.fetch_add(1, Ordering::Relaxed);
                    }
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            });
        }
        ground.hold(100).await;
        let ended = ended.load(Ordering::Relaxed);
        let outcome = Outcome::new(count as u64, "connections", count as u64 * (32 << 10) + (16 << 20))
            .note(format!("{ended} were ended by the server"))
            .holding(clients);
        // Twice the time that a body has, and three times that of a head.
        let is_whole = !ground.is_quick;
        Ok(outcome.expect(
            !is_whole || ended >= count as u64,
            format!("only {ended} connections were ended"),
        ))
    }
}

/// Comes back when the server has ended the connection.
async fn drip(number: usize, address: std::net::SocketAddr) -> Result<(), Failure> {
    let mut socket = connect_from(number, address).await?;
    let begin = match number % 4 {
        0 => "GET /version HTTP/1.1\r\nhost: x\r\nx-slow: ".to_owned(),
        1 => String::new(),
        2 => format!(
            "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: 100000\r\n\r\n",
            Who::Attacker.token()
        ),
        _ => "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    };
    socket.write_all(begin.as_bytes()).await?;
    if number % 4 == 3 {
        socket.write_all(&frame(crate::frames::SETTINGS, 0, 0, &[])).await?;
        let fields = Fields::get("/version", Who::Attacker).0;
        socket.write_all(&frame(HEADERS, 0, 1, &fields)).await?;
        // The head of a frame whose payload never comes whole.
        socket.write_all(&frame(CONTINUATION, 0, 1, &[0; 16_000])[..9]).await?;
    }
    let (mut read, mut write) = socket.split();
    let mut buffer = [0; 4096];
    loop {
        match timeout(Duration::from_secs(1), read.read(&mut buffer)).await {
            Ok(Ok(0) | Err(_)) => return Ok(()),
            Ok(Ok(_)) => {}
            Err(_) if number % 4 == 1 => {}
            Err(_) => {
                if write.write_all(b"y").await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}
