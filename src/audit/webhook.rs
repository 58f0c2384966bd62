//! Events as lists that are posted to another server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};

use super::sink::Backend;
use crate::remote::Remote;

/// Tries of one batch before it is given up, as upstream.
const TRIES_MAX: u32 = 5;
/// What a pause grows by from one try to the next.
const BACKOFF: f64 = 1.5;
/// For one try.
const WITHIN: Duration = Duration::from_secs(30);
/// How often a pause looks whether the server ends.
const LOOK: Duration = Duration::from_millis(100);

/// Another server. It has a runtime of its own: who waits for events to be sent must not be what sends them.
#[derive(Debug)]
pub(super) struct Webhook {
    remote: Remote,
    runtime: Runtime,
    backoff: Duration,
}

impl Webhook {
    /// `backoff`: the first pause after a try that failed.
    pub(super) fn new(remote: Remote, backoff: Duration) -> std::io::Result<Self> {
        Ok(Self {
            remote,
            runtime: Builder::new_current_thread().enable_all().build()?,
            backoff,
        })
    }

    fn post(&self, list: Vec<u8>) -> Result<(), (String, bool)> {
        match self.runtime.block_on(self.remote.post(list, WITHIN)) {
            Ok((200..=299, _)) => Ok(()),
            Ok((code, _)) => Err((format!("the server answered {code}"), code == 429 || code >= 500)),
            Err(why) => Err((why.to_string(), true)),
        }
    }
}

impl Backend for Webhook {
    fn write(&mut self, events: &[Bytes], ending: &AtomicBool) -> Result<(), String> {
        let mut list = br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#.to_vec();
        for (index, event) in events.iter().enumerate() {
            if index > 0 {
                list.push(b',');
            }
            list.extend_from_slice(event);
        }
        list.extend_from_slice(b"]}");
        let mut pause = self.backoff;
        let mut tries = 1;
        loop {
            match self.post(list.clone()) {
                Ok(()) => return Ok(()),
                Err((_, true)) if tries < TRIES_MAX && !ending.load(Ordering::Relaxed) => {
                    let until = Instant::now() + pause;
                    while Instant::now() < until && !ending.load(Ordering::Relaxed) {
                        thread::park_timeout(LOOK.min(until.saturating_duration_since(Instant::now())));
                    }
                    pause = pause.mul_f64(BACKOFF);
                    tries += 1;
                }
                Err((why, _)) => return Err(why),
            }
        }
    }
}
