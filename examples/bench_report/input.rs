//! What the instruments write: `api_load --json` and `measure-baseline.sh --json`.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::Deserialize;

/// Why there is no picture.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure(error.to_string())
    }
}

/// One file.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Input {
    Memory(Box<Memory>),
    Load(Load),
}

impl Input {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let wrong = |error: String| Failure(format!("{}: {error}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        serde_json::from_str(&text).map_err(|_| {
            wrong("written neither by `api_load --json` nor by `measure-baseline.sh --json` of this version".to_owned())
        })
    }
}

/// Figures of `benches/api_load`.
#[derive(Deserialize)]
pub(crate) struct Load {
    pub(crate) environment: Environment,
    pub(crate) rows: Vec<Row>,
}

#[derive(Deserialize)]
pub(crate) struct Environment {
    date: String,
    commit: String,
    cpu: String,
    cpus: u32,
    kernel: String,
    profile: String,
    objects: u64,
    load: f64,
}

impl fmt::Display for Environment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Environment {
            date,
            commit,
            cpu,
            cpus,
            kernel,
            profile,
            objects,
            load,
        } = self;
        write!(
            out,
            "api_load, {objects} objects in the large store: {date}, {cpu}, {cpus} CPUs, {kernel}, load {load}, commit {commit}, \
             profile {profile}"
        )
    }
}

/// One scenario on one transport.
#[derive(Clone, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) transport: String,
    pub(crate) encoding: String,
    pub(crate) state: String,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) rate: f64,
    pub(crate) latency: Latency,
    /// Upper bounds in microseconds, four to a doubling, and how many requests fell below each.
    #[serde(default)]
    pub(crate) histogram: Vec<(f64, u64)>,
    pub(crate) cpu_us: Option<f64>,
    pub(crate) allocations: Option<f64>,
    pub(crate) limit: Option<Limit>,
    pub(crate) cpu_share: Option<f64>,
    pub(crate) rate_share: Option<f64>,
}

impl Row {
    /// Name and state, as a label.
    pub(crate) fn label(&self) -> String {
        let mut text = self.name.clone();
        if !self.state.is_empty() && self.state != "empty" {
            text = format!("{text}, {}", self.state);
        }
        if self.encoding == "gzip" {
            text.push_str(", gzip");
        }
        text
    }

    /// The label with the number of objects.
    pub(crate) fn full_label(&self) -> String {
        if self.objects == 0 {
            return self.label();
        }
        format!("{} ({})", self.label(), count(self.objects))
    }
}

#[derive(Clone, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Limit {
    pub(crate) latency: Latency,
    pub(crate) cpu_us: Option<f64>,
}

/// Figures of `bench/measure-baseline.sh`.
#[derive(Deserialize)]
pub(crate) struct Memory {
    pub(crate) environment: String,
    pub(crate) objects: u64,
    pub(crate) limit: CgroupLimit,
    pub(crate) phases: Vec<Phase>,
    pub(crate) loads: Vec<ClientLoad>,
    pub(crate) samples: Samples,
}

#[derive(Deserialize)]
pub(crate) struct CgroupLimit {
    pub(crate) kind: String,
    pub(crate) memory_bytes: u64,
    pub(crate) cpus: u32,
}

/// Bytes where nothing else is said.
#[derive(Deserialize)]
pub(crate) struct Phase {
    pub(crate) name: String,
    pub(crate) private: Option<f64>,
    pub(crate) live: Option<f64>,
    pub(crate) retained: Option<f64>,
    pub(crate) rss: Option<f64>,
    pub(crate) pss: Option<f64>,
    pub(crate) charge: Option<f64>,
    pub(crate) file: Option<f64>,
    pub(crate) kernel: Option<f64>,
    pub(crate) major_faults: Option<u64>,
    pub(crate) cpu_ms: Option<u64>,
}

/// One load of the runbook's client.
#[derive(Deserialize)]
pub(crate) struct ClientLoad {
    pub(crate) clients: u32,
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    pub(crate) kinds: Vec<ClientKind>,
}

#[derive(Deserialize)]
pub(crate) struct ClientKind {
    pub(crate) kind: String,
    pub(crate) requests: u64,
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
    /// 0 to 100.
    pub(crate) percentiles_us: Vec<f64>,
}

#[derive(Deserialize)]
pub(crate) struct Samples {
    pub(crate) rows: Vec<Sample>,
}

/// Milliseconds, phase, then bytes: private anonymous and file pages of the process, the cgroup's charge, and its anonymous and file parts.
#[derive(Deserialize)]
pub(crate) struct Sample(
    pub(crate) u64,
    pub(crate) String,
    pub(crate) Option<f64>,
    pub(crate) Option<f64>,
    pub(crate) Option<f64>,
    pub(crate) Option<f64>,
    pub(crate) Option<f64>,
);

/// `1k`, `100k`, `1,500`.
pub(crate) fn count(number: u64) -> String {
    if number >= 1_000 && number.is_multiple_of(1_000) {
        return format!("{}k", number / 1_000);
    }
    number.to_string()
}

/// Microseconds with the unit that suits them.
pub(crate) fn duration(us: f64) -> String {
    let (value, unit) = match us {
        ..1e3 => (us, "µs"),
        ..1e6 => (us / 1e3, "ms"),
        _ => (us / 1e6, "s"),
    };
    let digits = match value {
        ..10.0 if value.fract() != 0.0 => 2,
        ..100.0 if value.fract() != 0.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// Bytes with the unit that suits them.
pub(crate) fn size(bytes: f64) -> String {
    match bytes {
        ..1024.0 => format!("{bytes:.0} B"),
        ..1_048_576.0 => format!("{:.1} KiB", bytes / 1024.0),
        _ => format!("{:.1} MiB", bytes / 1_048_576.0),
    }
}
