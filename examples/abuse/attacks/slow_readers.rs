//! Clients that read one byte a second of long lists and of watches, while what they read is being replaced.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use crate::connection::{Connection, Question};
use crate::failure::Failure;
use crate::frames::{END_HEADERS, END_STREAM, Fields, HEADERS, Raw, frame, initial_window, window_update};
use crate::process::{Setting, Who, metric};
use crate::siege::{Attack, Ground, Outcome, fill};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Bytes of each object.
const OBJECT: usize = 440 * 1024;
/// Cap of history and of what old views keep, bytes.
const HISTORY: u64 = 256 << 20;
/// What one of them may cost, bytes: two frames of 64 KiB, chunks, the connection.
const EACH_MAX: u64 = 220 * 1024;

pub(crate) struct SlowReaders;

fn object(name: &str, generation: usize) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"generation": format!("{generation}")}},
           "data": {"text": "x".repeat(OBJECT)}})
    .to_string()
}

impl Attack for SlowReaders {
    const NAME: &'static str = "slow-readers";
    const TEXT: &'static str = "500 clients that read one byte a second: lists of 103 MiB over HTTP/1.1 and HTTP/2, Tables, \
                                watches with all initial objects; who is ended comes again; all objects are replaced meanwhile, \
                                with --history-bytes=256MiB";

    fn setting(&self) -> Setting {
        Setting {
            arguments: vec!["--history-bytes=256MiB".to_owned(), "--durability=os".to_owned()],
            ..Setting::default()
        }
    }

    async fn prepare(&self, ground: &Ground) -> Result<(), Failure> {
        let objects = ground.size(240, 12);
        fill(ground, MAPS, objects, |number| object(&format!("m-{number:04}"), 0)).await
    }

    async fn run(&self, ground: &Ground) -> Result<Outcome, Failure> {
        let count: usize = ground.size(500, 40);
        let objects = ground.size(240, 12);
        let ended = Arc::new(AtomicU64::new(0));
        let mut readers = tokio::task::JoinSet::new();
        for number in 0..count {
            let (address, ended) = (ground.process.http, ended.clone());
            readers.spawn(async move {
                loop {
                    let _ = match number % 4 {
                        0 => read_slowly(address, MAPS).await,
                        1 => read_slowly(address, &format!("{MAPS}?watch=1")).await,
                        kind => take_slowly(address, kind == 2).await,
                    };
                    ended.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            });
        }
        let written = replace(ground, objects, ground.duration(180)).await?;
        let counter = |name: &'static str| metric(&ground.process, name);
        let (slow, overstayed) = (
            counter("flatkube_slow_clients_ended_total").await?,
            counter("flatkube_overstayed_answers_total").await?,
        );
        let mut outcome = Outcome::new(count as u64, "readers", count as u64 * EACH_MAX + (64 << 20))
            .note(format!(
                "{written} objects of 440 KiB were replaced meanwhile; {} readers were ended and came again ({slow} for taking \
                 too little, {overstayed} for keeping the past)",
                ended.load(Ordering::Relaxed)
            ))
            .holding(readers);
        // The cap, and what is replaced until the next look at it and the next frame (a minute and a bit).
        outcome.removed_max = 2 * HISTORY;
        Ok(outcome)
    }
}

/// Replaces the objects one after the other, for `duration`.
async fn replace(ground: &Ground, objects: usize, duration: Duration) -> Result<usize, Failure> {
    let mut connection = Connection::open(&ground.process.plain(Who::Probe)?).await?;
    let begun = tokio::time::Instant::now();
    let mut written = 0;
    while begun.elapsed() < duration {
        let name = format!("m-{:04}", written % objects);
        let question = Question::write(
            http::Method::PUT,
            format!("{MAPS}/{name}"),
            "application/json",
            object(&name, written),
        );
        connection.ask(&question).await?;
        written += 1;
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    Ok(written)
}

/// HTTP/1.1, with a small receive buffer.
async fn read_slowly(address: SocketAddr, path: &str) -> Result<(), Failure> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    let mut socket = socket.connect(address).await?;
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        Who::Attacker.token()
    );
    socket.write_all(head.as_bytes()).await?;
    let mut byte = [0];
    while socket.read(&mut byte).await? > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// HTTP/2, by windows that are one byte wide; comes back when the stream or the connection has ended.
async fn take_slowly(address: SocketAddr, table: bool) -> Result<(), Failure> {
    let mut raw = Raw::open(address, &initial_window(1)).await?;
    let mut fields = Fields::get(MAPS, Who::Attacker);
    if table {
        fields.field("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    }
    raw.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &fields.0)).await;
    let (mut read, mut write) = raw.socket.into_split();
    let grants = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if write.write_all(&window_update(1, 1)).await.is_err() {
                return;
            }
        }
    });
    let mut head = [0; 9];
    while read.read_exact(&mut head).await.is_ok() {
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; len];
        read.read_exact(&mut payload).await?;
        if head[3] == crate::frames::RST_STREAM || head[3] == crate::frames::GOAWAY {
            break;
        }
    }
    grants.abort();
    Ok(())
}
