//! Audit: who did what, and what came of it, written down as a policy says.
//!
//! Rules: <https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/>. What a person needs to know stands in `docs/audit.md`.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `policy` | of which requests how much is recorded |
//! | `event` | what is told, and how it is written |
//! | `sink` | the buffer before what is written to, and what becomes of that which has no room |
//! | `log` | files of lines |
//! | `webhook` | lists that are posted |

mod event;
mod log;
mod policy;
mod sink;
mod webhook;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

pub use event::{Event, Object, Outcome, Person};
pub use log::Rotation;
pub use policy::{Extent, Level, Policy, PolicyError, Stage};
pub use sink::{Batching, Mode};

use crate::remote::{KubeconfigError, Remote};
use sink::Sink;
use webhook::Webhook;

/// Events that found no room, by what they were for.
pub const DROPPED: &str = "flatkube_audit_dropped_events_total";
/// Events that could not be written, by what they were for.
pub const ERRORS: &str = "apiserver_audit_error_total";
/// Events that were made.
pub const EVENTS: &str = "apiserver_audit_event_total";
/// Requests by the level that they are recorded at.
pub const LEVELS: &str = "apiserver_audit_level_total";
/// Requests that were refused because their first event could not be written.
pub const REFUSED: &str = "apiserver_audit_requests_rejected_total";

/// What these figures are.
pub const FIGURES: [(&str, &str); 5] = [
    (DROPPED, "Audit events that found the buffer of their backend full."),
    (ERRORS, "Audit events that a backend could not write."),
    (EVENTS, "Audit events that were made."),
    (LEVELS, "Requests by the level that the audit policy has for them."),
    (REFUSED, "Requests that were refused because they could not be audited."),
];

/// What is recorded, and where.
#[derive(Debug, Clone, Default)]
pub struct AuditOptions {
    /// The policy; without one nothing is recorded.
    pub policy_file: Option<PathBuf>,
    /// The file (`-`: the standard output), how it is kept, and its buffer.
    pub log: Option<(PathBuf, Rotation, Batching)>,
    /// The kubeconfig of a server that is told, the first pause after a failure, and its buffer.
    pub webhook: Option<(PathBuf, Duration, Batching)>,
}

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The policy cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The server that is to be told cannot be.
    #[error("the audit webhook: {0}")]
    Webhook(#[from] KubeconfigError),
    /// There is no thread for it.
    #[error("the audit webhook cannot be started: {0}")]
    Start(std::io::Error),
    /// A file cannot be opened.
    #[error("the audit log {path}: {source}")]
    Log {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// Records requests. Events wait in a buffer for each backend: at most as many as it is told, and 64 MiB and one event; a server
/// without a policy has none.
#[derive(Debug)]
pub struct Audit {
    policy: Policy,
    sinks: Vec<Sink>,
}

impl Audit {
    /// Begins; `None` without a policy, or without anything to write to.
    ///
    /// # Errors
    /// When a file cannot be read or opened.
    pub fn open(options: &AuditOptions) -> Result<Option<Self>, AuditError> {
        let Some(path) = &options.policy_file else {
            return Ok(None);
        };
        let policy = Policy::read(path)?;
        let mut sinks = Vec::new();
        if let Some((path, rotation, batching)) = &options.log {
            let failed = |source| AuditError::Log {
                path: path.clone(),
                source,
            };
            let sink = if path.as_os_str() == "-" {
                Sink::start("log", log::Output, batching.clone())
            } else {
                let log = log::Log::open(path, rotation.clone()).map_err(failed)?;
                Sink::start("log", log, batching.clone())
            };
            sinks.push(sink.map_err(failed)?);
        }
        if let Some((path, backoff, batching)) = &options.webhook {
            let webhook = Webhook::new(Remote::open(path)?, *backoff).map_err(AuditError::Start)?;
            sinks.push(Sink::start("webhook", webhook, batching.clone()).map_err(AuditError::Start)?);
        }
        Ok((!sinks.is_empty()).then_some(Self { policy, sinks }))
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Records a stage of a request, waiting for room where that is chosen. `false`: the request is to be refused.
    pub async fn record(&self, event: &Event, stage: Stage) -> bool {
        let line = self.line(event, stage);
        let mut is_recorded = true;
        for sink in &self.sinks {
            is_recorded &= sink.take(line.clone(), stage == Stage::RequestReceived).await;
        }
        if !is_recorded {
            metrics::counter!(REFUSED).increment(1);
        }
        is_recorded
    }

    /// [`Audit::record`] for a request that cannot be let wait any more.
    pub fn record_now(&self, event: &Event, stage: Stage) {
        let line = self.line(event, stage);
        for sink in &self.sinks {
            sink.take_now(line.clone());
        }
    }

    fn line(&self, event: &Event, stage: Stage) -> Bytes {
        metrics::counter!(EVENTS).increment(1);
        if self.sinks.iter().any(Sink::is_heavy) && (event.sent.is_some() || event.answered.is_some()) {
            let mut event = event.clone();
            event.truncate();
            return event.told(stage).into();
        }
        event.told(stage).into()
    }

    /// Writes what waits, and ends. Blocks until that is done.
    pub fn close(&self) {
        for sink in &self.sinks {
            sink.close();
        }
    }
}
