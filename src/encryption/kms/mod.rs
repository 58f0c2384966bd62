//! A plugin that holds keys, over a unix socket: `KeyManagementService` v2 (KEP-3299).
//!
//! The plugin encrypts no objects but a seed, once: 32 random bytes, from which each write derives a key of its own as from a
//! configured key. The encrypted seed lies beside each object that was sealed by it, the open one is kept in memory. So the
//! plugin is called at the start, when its key changes, and for seeds of before the start that are met for the first time.
//!
//! Objects name `k8s:enc:kms:v2:PLUGIN:KEY:SEED`: digests of the plugin's key id and of the encrypted seed, so that sidecars
//! tell what another key of the plugin sealed.

mod call;
mod message;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ring::digest;
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use super::cipher::{self, Unspecified};
use super::config::KmsConfig;
use crate::store::{SealError, Sealed};
use message::{IN_ANSWER, IN_REQUEST, Message, Wrapped, check_key_id, fields, last, text};

/// Calls that wait for a plugin.
const WAITING_MAX: usize = 64;
/// Open seeds that are kept, 100 bytes each; beyond it they are asked for anew.
const SEEDS_MAX: usize = 10_000;

type Seed = Zeroizing<[u8; 32]>;

/// A plugin, and the seeds that it has opened.
pub(super) struct Kms {
    config: KmsConfig,
    /// `k8s:enc:kms:v2:PLUGIN:`
    prefix: String,
    calls: mpsc::Sender<Call>,
    state: Mutex<State>,
    /// Held by who makes a seed, so that nobody makes another one meanwhile.
    making: Mutex<()>,
}

#[derive(Default)]
struct State {
    /// The plugin's key now.
    key_id: String,
    /// What seals, until the plugin's key changes.
    writer: Option<Arc<Writer>>,
    /// By the digest of the encrypted seed.
    seeds: HashMap<String, Arc<Seed>>,
}

struct Writer {
    seed: Arc<Seed>,
    by: String,
    wrapped: Vec<u8>,
}

struct Call {
    method: &'static str,
    message: Vec<u8>,
    answer: SyncSender<Result<Bytes, String>>,
}

impl Kms {
    /// Asks the plugin for its status.
    ///
    /// # Errors
    /// Why the plugin cannot be used.
    pub(super) fn start(config: &KmsConfig) -> Result<Arc<Kms>, String> {
        let (calls, waiting) = mpsc::channel(WAITING_MAX);
        let runner = config.clone();
        std::thread::Builder::new()
            .name("kms".to_owned())
            .spawn(move || answer(&runner, waiting))
            .map_err(|error| format!("cannot start a thread for it: {error}"))?;
        let kms = Kms {
            config: config.clone(),
            prefix: format!("k8s:enc:kms:v2:{}:", config.name),
            calls,
            state: Mutex::default(),
            making: Mutex::default(),
        };
        kms.look()?;
        Ok(Arc::new(kms))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the plugin's status; whether its key is another one since.
    ///
    /// # Errors
    /// Why the plugin cannot be used; what it gave before goes on being used.
    pub(super) fn look(&self) -> Result<bool, String> {
        let told = |reason: String| self.told(reason);
        let answer = self.call("Status", Vec::new())?;
        let fields = fields(&answer).map_err(told)?;
        let version = text(last(&fields, 1)).map_err(told)?;
        if !matches!(version, "v2" | "v2beta1") {
            return Err(told(format!("it speaks version {version:?}, not v2")));
        }
        let health = text(last(&fields, 2)).map_err(told)?;
        if health != "ok" {
            return Err(told(format!("it says of itself that it is {health:?}, not ok")));
        }
        let key_id = text(last(&fields, 3)).map_err(told)?;
        check_key_id(key_id).map_err(told)?;
        let mut state = self.state();
        if state.key_id == key_id {
            return Ok(false);
        }
        key_id.clone_into(&mut state.key_id);
        state.writer = None;
        Ok(true)
    }

    /// Encrypts for a place.
    pub(super) fn seal(&self, place: &[u8], plain: &[u8]) -> Result<Sealed, SealError> {
        let writer = self.writer().map_err(SealError)?;
        let sealed = cipher::seal_gcm(writer.seed.as_slice(), place, plain);
        let sealed = sealed.map_err(|Unspecified| SealError("the system has no random numbers".to_owned()))?;
        Ok(Sealed {
            by: writer.by.clone(),
            payload: [
                &(writer.wrapped.len() as u32).to_le_bytes()[..],
                &writer.wrapped,
                &sealed,
            ]
            .concat(),
        })
    }

    /// Decrypts what was sealed by any seed of this plugin; `None` if it is not this plugin's.
    pub(super) fn open(&self, by: &str, place: &[u8], payload: &[u8]) -> Option<Result<Zeroizing<Vec<u8>>, SealError>> {
        by.starts_with(&self.prefix)
            .then(|| self.opened(place, payload).map_err(SealError))
    }

    fn opened(&self, place: &[u8], payload: &[u8]) -> Result<Zeroizing<Vec<u8>>, String> {
        let parts = payload
            .split_first_chunk()
            .and_then(|(len, rest)| rest.split_at_checked(u32::from_le_bytes(*len) as usize));
        let (wrapped, sealed) = parts.ok_or_else(|| "its seed is cut off".to_owned())?;
        let seed = self.seed(wrapped)?;
        cipher::open_gcm(seed.as_slice(), place, sealed).map_err(|Unspecified| {
            format!(
                "the seed from {} does not open it: its bytes were changed",
                self.config.name
            )
        })
    }

    /// Whether what lies there was sealed under the plugin's key of now.
    pub(super) fn is_current(&self, by: Option<&str>) -> bool {
        let key = short_digest(self.state().key_id.as_bytes());
        let rest = by.and_then(|by| by.strip_prefix(&self.prefix)?.strip_prefix(&key));
        rest.is_some_and(|rest| rest.starts_with(':'))
    }

    fn name_of(&self, key_id: &str, wrapped: &[u8]) -> String {
        let (key, seed) = (short_digest(key_id.as_bytes()), short_digest(wrapped));
        format!("{}{key}:{seed}", self.prefix)
    }

    /// What seals now; a seed is made if there is none. Blocks for a call of the plugin then.
    fn writer(&self) -> Result<Arc<Writer>, String> {
        if let Some(writer) = &self.state().writer {
            return Ok(writer.clone());
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = &self.state().writer {
            return Ok(writer.clone());
        }
        let seed = cipher::random().map_err(|Unspecified| "the system has no random numbers".to_owned())?;
        let seed: Seed = Zeroizing::new(seed);
        let uid = uuid::Uuid::new_v4().to_string();
        let request = Message::default().with(1, seed.as_slice()).with(2, uid.as_bytes());
        let answer = self.call("Encrypt", request.bytes())?;
        let wrapped = Wrapped::of(&answer, IN_ANSWER).map_err(|reason| self.told(reason))?;
        if wrapped.ciphertext == seed.as_slice() {
            return Err(self.told("it gives back a seed as it was"));
        }
        let bytes = wrapped.decrypt_request("");
        let writer = Arc::new(Writer {
            seed: Arc::new(seed),
            by: self.name_of(&wrapped.key_id, &bytes),
            wrapped: bytes,
        });
        let mut state = self.state();
        // The plugin's key may have changed since it was asked.
        state.key_id = wrapped.key_id;
        state.keep(digest_of(&writer.wrapped), writer.seed.clone());
        state.writer = Some(writer.clone());
        Ok(writer)
    }

    /// An open seed. Blocks for a call of the plugin when it is met for the first time.
    fn seed(&self, wrapped: &[u8]) -> Result<Arc<Seed>, String> {
        let digest = digest_of(wrapped);
        if let Some(seed) = self.state().seeds.get(&digest) {
            return Ok(seed.clone());
        }
        let parts = Wrapped::of(wrapped, IN_REQUEST).map_err(|reason| format!("of its seed: {reason}"))?;
        let uid = uuid::Uuid::new_v4().to_string();
        let answer = self.call("Decrypt", parts.decrypt_request(&uid))?;
        let fields = fields(&answer).map_err(|reason| self.told(reason))?;
        let seed: [u8; 32] = last(&fields, 1)
            .try_into()
            .map_err(|_| self.told("what it decrypts is no seed of this server"))?;
        let seed = Arc::new(Zeroizing::new(seed));
        let mut state = self.state();
        state.keep(digest, seed.clone());
        if state.writer.is_none() && state.key_id == parts.key_id {
            // A seed of before the start serves on, so that there is not one more with each start.
            state.writer = Some(Arc::new(Writer {
                seed: seed.clone(),
                by: self.name_of(&parts.key_id, wrapped),
                wrapped: wrapped.to_vec(),
            }));
        }
        Ok(seed)
    }

    fn told(&self, reason: impl std::fmt::Display) -> String {
        format!("kms {}: {reason}", self.config.name)
    }

    /// Calls the plugin and waits.
    fn call(&self, method: &'static str, message: Vec<u8>) -> Result<Bytes, String> {
        let (answer, answered) = sync_channel(1);
        let call = Call {
            method,
            message,
            answer,
        };
        let sent = self.calls.try_send(call);
        sent.map_err(|_| self.told(format_args!("{method}: too many calls wait for it")))?;
        // The thread keeps the time; this is for the case that it is no more.
        let answer = answered.recv_timeout(self.config.timeout.saturating_add(Duration::from_secs(1)));
        let answer = answer.unwrap_or_else(|_| Err("it does not answer".to_owned()));
        answer.map_err(|reason| self.told(format_args!("{method}: {reason}")))
    }
}

impl State {
    fn keep(&mut self, digest: String, seed: Arc<Seed>) {
        if self.seeds.len() >= SEEDS_MAX {
            self.seeds.clear();
        }
        self.seeds.insert(digest, seed);
    }
}

/// The thread of a plugin: who calls may be on a thread of any runtime or of none, so calls have one of their own.
fn answer(config: &KmsConfig, mut waiting: mpsc::Receiver<Call>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return;
    };
    runtime.block_on(async move {
        while let Some(call) = waiting.recv().await {
            let config = config.clone();
            tokio::spawn(async move {
                let asked = call::call(&config.socket, call.method, &call.message);
                let answer = tokio::time::timeout(config.timeout, asked).await;
                let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {:?}", config.timeout)));
                // Nobody may be waiting any more.
                let _ = call.answer.send(answer);
            });
        }
    });
}

fn digest_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in digest::digest(&digest::SHA256, bytes).as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Sixteen digits: names are told apart by it, nothing is proven.
fn short_digest(bytes: &[u8]) -> String {
    let mut text = digest_of(bytes);
    text.truncate(16);
    text
}
