//! HTTP/2 streams whose windows are shut: large answers are asked for and never taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use crate::failure::Failure;
use crate::frames::{END_HEADERS, END_STREAM, Fields, HEADERS, Raw, frame, initial_window};
use crate::process::Who;
use crate::siege::{Attack, Ground, Outcome, fill};

/// Streams that a connection may have.
const STREAMS: u32 = 250;
/// What a stream that waits may cost at most once there are many, bytes: its task, its state in h2, its shortened chunk.
const EACH_MAX: u64 = 24 * 1024;
/// What all together may cost while there are few: chunks of full length, and what malloc keeps.
const FULL_MAX: u64 = 160 << 20;

async fn fill_maps(ground: &Ground) -> Result<(), Failure> {
    let count = ground.size(4_000, 1_000);
    fill(ground, "/api/v1/namespaces/default/configmaps", count, |number| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
               "metadata": {"name": format!("m-{number:05}"), "labels": {"part": format!("{}", number % 20)}},
               "data": {"text": "x".repeat(400)}})
        .to_string()
    })
    .await
}

/// Opens connections whose streams have a window of `window` bytes, asks `path` on each stream, and holds them.
async fn shut(ground: &Ground, window: u32, path: &'static str) -> Result<Outcome, Failure> {
    let connections = ground.size(40, 4);
    let ended = Arc::new(AtomicU64::new(0));
    let mut held = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let (address, ended) = (ground.process.http, ended.clone());
        held.spawn(async move {
            // When the server ends it, it begins anew.
            while let Ok(mut raw) = Raw::open(address, &initial_window(window)).await {
                let mut fields = Fields::get(path, Who::Attacker);
                fields.field("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
                for stream in 0..STREAMS {
                    raw.send(&frame(HEADERS, END_STREAM | END_HEADERS, 2 * stream + 1, &fields.0))
                        .await;
                }
                while raw.next().await.is_some() {}
                ended.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    ground.hold(150).await;
    let streams = u64::from(STREAMS) * connections;
    let mut outcome = Outcome::new(streams, "streams", FULL_MAX + streams * EACH_MAX)
        .note(format!(
            "{} of {connections} connections were ended by the server, and opened again",
            ended.load(Ordering::Relaxed)
        ))
        .holding(held);
    // Shelves that were replaced while the store was being filled.
    outcome.removed_max = 64 << 20;
    Ok(outcome)
}

pub(crate) struct ShutWindows;

impl Attack for ShutWindows {
    const NAME: &'static str = "shut-windows";
    const TEXT: &'static str = "40 HTTP/2 connections of 250 streams with a window of 0 bytes, each asking for a Table of \
                                4,000 objects";

    async fn prepare(&self, ground: &Ground) -> Result<(), Failure> {
        fill_maps(ground).await
    }

    async fn run(&self, ground: &Ground) -> Result<Outcome, Failure> {
        shut(ground, 0, "/api/v1/namespaces/default/configmaps").await
    }
}

pub(crate) struct LastBytes;

impl Attack for LastBytes {
    const NAME: &'static str = "last-bytes";
    const TEXT: &'static str = "the same with a window of 1 byte and answers of one frame: the server is done with the \
                                stream, and its end is never taken";

    async fn prepare(&self, ground: &Ground) -> Result<(), Failure> {
        fill_maps(ground).await
    }

    async fn run(&self, ground: &Ground) -> Result<Outcome, Failure> {
        shut(
            ground,
            1,
            "/api/v1/namespaces/default/configmaps?labelSelector=part%3D7&limit=50",
        )
        .await
    }
}
