//! TLS connections that never become any.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::failure::Failure;
use crate::frames::connect_from;
use crate::siege::{Attack, Ground, Outcome};

pub(crate) struct HalfOpenHandshakes;

impl Attack for HalfOpenHandshakes {
    const NAME: &'static str = "half-open-handshakes";
    const TEXT: &'static str = "4,000 connections to the TLS port that send nothing, or the first bytes of a handshake, and come \
                                again when they are ended";

    async fn run(&self, ground: &Ground) -> Result<Outcome, Failure> {
        let count: usize = ground.size(4_000, 300);
        let ended = Arc::new(AtomicU64::new(0));
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..count {
            let (address, ended) = (ground.process.https, ended.clone());
            clients.spawn(async move {
                loop {
                    if let Ok(mut socket) = connect_from(number, address).await {
                        if number % 2 == 0 {
                            // A record of a handshake, 512 bytes long, of which five are there.
                            let _ = socket.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3]).await;
                        }
                        let mut end = Vec::new();
                        let _ = timeout(Duration::from_mins(2), socket.read_to_end(&mut end)).await;
                        ended.fetch_add(1, Ordering::Relaxed);
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            });
        }
        ground.hold(35).await;
        let ended = ended.load(Ordering::Relaxed);
        let is_whole = !ground.is_quick;
        Ok(
            Outcome::new(count as u64, "connections", count as u64 * (24 << 10) + (16 << 20))
                .note(format!("{ended} were ended by the server"))
                .expect(
                    !is_whole || ended >= count as u64,
                    format!("only {ended} connections were ended"),
                )
                .holding(clients),
        )
    }
}
