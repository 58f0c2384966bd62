//! More connections than there are places for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::connection::{Connection, Question};
use crate::failure::Failure;
use crate::frames::connect_from;
use crate::process::{Setting, Who};
use crate::siege::{Attack, Ground, Outcome};

pub(crate) struct ConnectionFlood;

impl Attack for ConnectionFlood {
    const NAME: &'static str = "connection-flood";
    const TEXT: &'static str = "100,000 connections from 100 addresses to a server that may have 1,024 descriptors; each asks \
                                /healthz once, without credentials, and stays until it is ended (4 s at most)";

    fn setting(&self) -> Setting {
        Setting {
            descriptors: Some(1024),
            ..Setting::default()
        }
    }

    async fn run(&self, ground: &Ground) -> Result<Outcome, Failure> {
        let (count, at_once) = ground.size((100_000, 4_000), (3_000, 1_500));
        let (begun, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut clients = tokio::task::JoinSet::new();
        let is_quick = ground.is_quick;
        for _ in 0..at_once {
            let (address, begun, answered) = (ground.process.http, begun.clone(), answered.clone());
            clients.spawn(async move {
                loop {
                    let number = begun.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let stay = Duration::from_millis(if is_quick { 500 } else { 4_000 });
                    let _ = timeout(stay, ask_and_stay(number as usize, address, &answered)).await;
                }
            });
        }
        // Who is not connected yet gets in as soon as a place is free, and places become free.
        let server = ground.process.tls(Who::Canary)?;
        tokio::time::sleep(ground.duration(3)).await;
        let waited = Instant::now();
        let newcomer = timeout(Duration::from_mins(1), async {
            Connection::open(&server).await?.ask(&Question::get("/version")).await
        })
        .await;
        let waited = waited.elapsed();
        let deadline = Instant::now() + Duration::from_secs(ground.size(600, 10));
        while begun.load(Ordering::Relaxed) < count && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        clients.abort_all();
        let begun = begun.load(Ordering::Relaxed).min(count);
        Ok(Outcome::new(begun, "connections", 64 << 20)
            .note(format!(
                "{} were answered; {at_once} at a time; a newcomer over TLS was answered after {:.2} s",
                answered.load(Ordering::Relaxed),
                waited.as_secs_f64()
            ))
            .expect(
                matches!(newcomer, Ok(Ok(_))),
                "a newcomer was not answered within a minute",
            ))
    }
}

async fn ask_and_stay(number: usize, address: std::net::SocketAddr, answered: &AtomicU64) -> Result<(), Failure> {
    let mut socket = connect_from(number, address).await?;
    socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await?;
    let mut buffer = [0; 1024];
    if socket.read(&mut buffer).await? > 0 {
        answered.fetch_add(1, Ordering::Relaxed);
    }
    while socket.read(&mut buffer).await? > 0 {}
    Ok(())
}
