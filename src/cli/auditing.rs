//! Flags about what is recorded, in kube-apiserver's names.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use crate::audit::{AuditOptions, Batching, Mode, Rotation};
use crate::scalars::go_duration;

/// Flags about audit.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Audit")]
pub(super) struct Auditing {
    /// What is recorded of which requests: a Policy of audit.k8s.io/v1; without it nothing is
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,

    /// The file that requests are recorded in, a line of JSON for each event; - for the standard output
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    audit_log_path: Option<PathBuf>,

    /// How events are written
    #[arg(long, value_enum, default_value_t = Form::Json)]
    audit_log_format: Form,

    /// Megabytes (of 2^20 bytes) above which the file is put aside; 0 for 100
    #[arg(long, value_name = "MB", default_value_t = 0)]
    audit_log_maxsize: u32,

    /// Days that files are kept which were put aside; 0 for ever
    #[arg(long, value_name = "DAYS", default_value_t = 0)]
    audit_log_maxage: u32,

    /// How many files are kept that were put aside; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0)]
    audit_log_maxbackup: usize,

    /// Compress files that are put aside (gzip)
    #[arg(long)]
    audit_log_compress: bool,

    /// What becomes of an event for which the file's buffer has no room: batch drops it, with the others its request waits
    #[arg(long, value_enum, default_value_t = ModeFlag::Blocking)]
    audit_log_mode: ModeFlag,

    /// Events that wait for the file at most
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = buffer)]
    audit_log_batch_buffer_size: usize,

    /// A kubeconfig of a server that events are posted to, as lists
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    audit_webhook_config_file: Option<PathBuf>,

    /// What becomes of an event for which the server's buffer has no room
    #[arg(long, value_enum, default_value_t = ModeFlag::Batch)]
    audit_webhook_mode: ModeFlag,

    /// Events that wait for the server at most
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = buffer)]
    audit_webhook_batch_buffer_size: usize,

    /// Events of one list at most
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = buffer)]
    audit_webhook_batch_max_size: usize,

    /// How long a list that is not full waits for more (such as 30s)
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    audit_webhook_batch_max_wait: Duration,

    /// Whether lists are held back that come faster than the next two flags say
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    audit_webhook_batch_throttle_enable: bool,

    /// Lists a second
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    audit_webhook_batch_throttle_qps: f64,

    /// Lists that may come at once
    #[arg(long, value_name = "N", default_value_t = 15)]
    audit_webhook_batch_throttle_burst: u32,

    /// The first pause after a list could not be sent
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    audit_webhook_initial_backoff: Duration,
}

/// Events that are written to a file at once at most.
const LOG_BATCH_MAX: usize = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A line of JSON for each event
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModeFlag {
    /// It is dropped, and counted in flatkube_audit_dropped_events_total
    Batch,
    /// The request waits until there is room
    Blocking,
    /// The same; and a request is refused whose first event cannot be written
    BlockingStrict,
}

impl From<ModeFlag> for Mode {
    fn from(mode: ModeFlag) -> Self {
        match mode {
            ModeFlag::Batch => Mode::Batch,
            ModeFlag::Blocking => Mode::Blocking,
            ModeFlag::BlockingStrict => Mode::BlockingStrict,
        }
    }
}

fn buffer(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
    number.ok_or_else(|| "not a number from 1 to 1000000".into())
}

fn duration(text: &str) -> Result<Duration, String> {
    let nanoseconds = go_duration::nanoseconds(text)
        .ok()
        .filter(|it| (0.0..=1e18).contains(it));
    let duration = nanoseconds.map(|it| Duration::from_nanos(it as u64));
    duration.ok_or_else(|| "not a duration such as 30s".into())
}

impl Auditing {
    pub(super) fn options(&self) -> AuditOptions {
        const MIB: u64 = 1 << 20;
        let Form::Json = self.audit_log_format;
        let rotation = Rotation {
            bytes_max: match self.audit_log_maxsize {
                0 => 100 * MIB,
                megabytes => u64::from(megabytes) * MIB,
            },
            age_max: (self.audit_log_maxage > 0)
                .then(|| Duration::from_secs(u64::from(self.audit_log_maxage) * 86_400)),
            kept_max: (self.audit_log_maxbackup > 0).then_some(self.audit_log_maxbackup),
            compress: self.audit_log_compress,
        };
        let batching = Batching {
            mode: self.audit_log_mode.into(),
            buffer: self.audit_log_batch_buffer_size,
            size_max: LOG_BATCH_MAX,
            wait_max: Duration::ZERO,
            throttle: None,
        };
        AuditOptions {
            policy_file: self.audit_policy_file.clone(),
            webhook: self.audit_webhook_config_file.clone().map(|path| {
                let throttle = (
                    self.audit_webhook_batch_throttle_qps,
                    self.audit_webhook_batch_throttle_burst,
                );
                let batching = Batching {
                    mode: self.audit_webhook_mode.into(),
                    buffer: self.audit_webhook_batch_buffer_size,
                    size_max: self.audit_webhook_batch_max_size,
                    wait_max: match self.audit_webhook_mode {
                        ModeFlag::Batch => self.audit_webhook_batch_max_wait,
                        ModeFlag::Blocking | ModeFlag::BlockingStrict => Duration::ZERO,
                    },
                    throttle: self.audit_webhook_batch_throttle_enable.then_some(throttle),
                };
                (path, self.audit_webhook_initial_backoff, batching)
            }),
            log: self.audit_log_path.clone().map(|path| (path, rotation, batching)),
        }
    }
}
