//! One attack on one server: what is measured before, during and after it, and what is held against it.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::canary::{Canary, Song, quantile};
use super::connection::{Connection, Question};
use super::failure::Failure;
use super::process::{Eye, Process, Sample, Setting, Who, live_bytes};

/// Between two looks at the process.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// What a server may keep of an attack that is over, in live bytes: counters, tables that were made for the first time.
const LEFT_MAX: u64 = 12 << 20;

/// Something that a client does to a server.
pub(crate) trait Attack {
    /// A word for it.
    const NAME: &'static str;
    /// What the client does.
    const TEXT: &'static str;

    /// How its server is started.
    fn setting(&self) -> Setting {
        Setting::default()
    }

    /// Fills the store before anything is measured.
    async fn prepare(&self, _ground: &Ground) -> Result<(), Failure> {
        Ok(())
    }

    /// Attacks, and comes back when it has been at its height for long enough.
    async fn run(&self, ground: &Ground) -> Result<Outcome, Failure>;
}

/// Where an attack takes place.
pub(crate) struct Ground {
    pub(crate) process: Process,
    pub(crate) is_quick: bool,
}

impl Ground {
    /// The first for a whole run, the second for a quick one.
    pub(crate) fn size<T>(&self, whole: T, quick: T) -> T {
        if self.is_quick { quick } else { whole }
    }

    /// How long an attack of `seconds` lasts; 2 s in a quick run.
    pub(crate) fn duration(&self, seconds: u64) -> Duration {
        Duration::from_secs(self.size(seconds, 2))
    }

    /// Waits as long as an attack that is at its height is to last.
    pub(crate) async fn hold(&self, seconds: u64) {
        tokio::time::sleep(self.duration(seconds)).await;
    }
}

/// What came of an attack.
pub(crate) struct Outcome {
    /// How much of it there was at its height ...
    pub(crate) count: u64,
    /// ... of what.
    pub(crate) unit: &'static str,
    /// Private memory that it may cost the server, bytes.
    pub(crate) growth_max: u64,
    /// Mapped files that are removed may have so many bytes.
    pub(crate) removed_max: u64,
    /// Live bytes that may be left of it, besides [`LEFT_MAX`]: of what is stored now and was not before.
    pub(crate) left_max: u64,
    /// What a reader of the table should know.
    pub(crate) notes: Vec<String>,
    /// What should not have been.
    pub(crate) faults: Vec<String>,
    /// Connections that are open until everything has been looked at.
    pub(crate) held: Box<dyn Any + Send>,
}

impl Outcome {
    pub(crate) fn new(count: u64, unit: &'static str, growth_max: u64) -> Self {
        Self {
            count,
            unit,
            growth_max,
            removed_max: 0,
            left_max: 0,
            notes: Vec::new(),
            faults: Vec::new(),
            held: Box::new(()),
        }
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// It is a fault when `is_right` is false.
    pub(crate) fn expect(mut self, is_right: bool, what: impl Into<String>) -> Self {
        if !is_right {
            self.faults.push(what.into());
        }
        self
    }

    pub(crate) fn holding(mut self, held: impl Any + Send) -> Self {
        self.held = Box::new(held);
        self
    }
}

/// All about one attack.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    pub(crate) seconds: f64,
    pub(crate) count: u64,
    pub(crate) unit: &'static str,
    pub(crate) before: Sample,
    pub(crate) height: Sample,
    pub(crate) after: Sample,
    live_before: u64,
    live_after: u64,
    pub(crate) quiet: Song,
    pub(crate) attacked: Song,
    pub(crate) notes: Vec<String>,
    pub(crate) faults: Vec<String>,
}

impl Row {
    /// Private bytes that the attack cost at its height.
    pub(crate) fn growth(&self) -> u64 {
        self.height.private.saturating_sub(self.before.private)
    }

    pub(crate) fn json(&self) -> Value {
        let sample = |sample: &Sample| {
            json!({"private_bytes": sample.private, "descriptors": sample.descriptors, "threads": sample.threads,
                   "removed_bytes": sample.removed, "disk_bytes": sample.disk})
        };
        let times = |sorted: &[f64]| {
            json!({"count": sorted.len(), "p50_ms": quantile(sorted, 0.5), "p99_ms": quantile(sorted, 0.99),
                   "max_ms": quantile(sorted, 1.0)})
        };
        let song = |song: &Song| {
            json!({"get": times(&song.get), "create": times(&song.create), "event": times(&song.event),
                   "failures": song.failures})
        };
        json!({
            "name": self.name, "attack": self.text, "seconds": self.seconds, "count": self.count, "unit": self.unit,
            "before": sample(&self.before), "height": sample(&self.height), "after": sample(&self.after),
            "live_bytes": {"before": self.live_before, "after": self.live_after},
            "quiet": song(&self.quiet), "attacked": song(&self.attacked), "notes": self.notes, "faults": self.faults,
        })
    }
}

/// Looks at the process on a thread of its own.
struct Watchman {
    stop: Arc<AtomicBool>,
    height: Arc<Mutex<Sample>>,
    thread: std::thread::JoinHandle<()>,
}

impl Watchman {
    fn start(eye: Eye) -> Self {
        let (stop, height) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(Mutex::new(Sample::default())),
        );
        let (ended, seen) = (stop.clone(), height.clone());
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let sample = eye.look();
                if let Ok(mut height) = seen.lock() {
                    *height = height.max(sample);
                }
                std::thread::sleep(LOOK_EVERY);
            }
        });
        Self { stop, height, thread }
    }

    fn end(self) -> Sample {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
        self.height.lock().map(|height| *height).unwrap_or_default()
    }
}

/// Starts a server, attacks it, and judges.
///
/// # Errors
/// When something could not be measured; what is wrong with the server stands in the row.
pub(crate) fn besiege<A: Attack>(attack: &A, binary: &Path, is_quick: bool) -> Result<Row, Failure> {
    let ground = Ground {
        process: Process::start(binary, &attack.setting())?,
        is_quick,
    };
    let quiet_runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    quiet_runtime.block_on(make_namespace(&ground))?;
    quiet_runtime.block_on(attack.prepare(&ground))?;
    let eye = ground.process.eye();

    let canary = Canary::start(ground.process.tls(Who::Canary)?);
    std::thread::sleep(Duration::from_millis(ground.size(5_000, 500)));
    let quiet = canary.end();
    let live_before = quiet_runtime.block_on(live_bytes(&ground.process))?;
    let before = eye.look();

    let canary = Canary::start(ground.process.tls(Who::Canary)?);
    // It is there before the attack begins.
    std::thread::sleep(Duration::from_millis(100));
    let watchman = Watchman::start(eye.clone());
    let begun = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(attack.run(&ground));
    let seconds = begun.elapsed().as_secs_f64();
    let height = watchman.end();
    let attacked = canary.end();
    let Outcome {
        count,
        unit,
        growth_max,
        removed_max,
        left_max,
        notes,
        mut faults,
        held,
    } = outcome?;
    drop(held);
    runtime.shutdown_timeout(Duration::from_secs(5));

    let allowed = live_before + LEFT_MAX + left_max;
    let (after, live_after) = quiet_runtime.block_on(recovered(&ground, &eye, before, allowed))?;
    let row = Row {
        name: A::NAME,
        text: A::TEXT,
        seconds,
        count,
        unit,
        before,
        height,
        after,
        live_before,
        live_after,
        quiet,
        attacked,
        notes,
        faults: Vec::new(),
    };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut hold = |is_right: bool, what: String| {
        if !is_right {
            faults.push(what);
        }
    };
    hold(
        row.growth() <= growth_max,
        format!(
            "private memory grew by {:.1} MiB, {:.1} are allowed",
            mib(row.growth()),
            mib(growth_max)
        ),
    );
    hold(
        height.removed <= removed_max.max(before.removed),
        format!(
            "{:.1} MiB of removed files were held, {:.1} are allowed",
            mib(height.removed),
            mib(removed_max)
        ),
    );
    hold(
        live_after <= allowed,
        format!(
            "{:.1} MiB are live after it, {:.1} before",
            mib(live_after),
            mib(live_before)
        ),
    );
    hold(
        after.descriptors <= before.descriptors + 8,
        format!(
            "{} descriptors are open after it, {} before",
            after.descriptors, before.descriptors
        ),
    );
    hold(
        row.attacked.failures.is_empty() && row.quiet.failures.is_empty(),
        format!(
            "the canary failed: {:?} {:?}",
            row.quiet.failures, row.attacked.failures
        ),
    );
    hold(!row.attacked.get.is_empty(), "the canary was never answered".to_owned());
    let mut ground = ground;
    if !ground.process.is_alive() {
        faults.push("the server has ended".to_owned());
    }
    Ok(Row { faults, ..row })
}

async fn make_namespace(ground: &Ground) -> Result<(), Failure> {
    let mut connection = Connection::open(&ground.process.plain(Who::Probe)?).await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "canary"}});
    let question = Question::write(
        http::Method::POST,
        "/api/v1/namespaces",
        "application/json",
        namespace.to_string(),
    );
    connection.ask(&question).await?;
    // Whoever has no rights is sent away before there is anything to attack.
    let binding = json!({
        "metadata": {"name": "abuse"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": "attacker"}, {"kind": "User", "name": "canary"}],
    });
    let question = Question::write(
        http::Method::POST,
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "application/json",
        binding.to_string(),
    );
    connection.ask(&question).await.map(drop)
}

/// Waits until everything is as it was, but not for ever: what is seen then is judged.
async fn recovered(ground: &Ground, eye: &Eye, before: Sample, live_max: u64) -> Result<(Sample, u64), Failure> {
    let deadline = Instant::now() + Duration::from_secs(ground.size(90, 15));
    loop {
        let (sample, live) = (eye.look(), live_bytes(&ground.process).await?);
        let is_back = sample.descriptors <= before.descriptors + 4 && live <= live_max;
        if is_back || Instant::now() > deadline {
            return Ok((sample, live));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Creates `count` objects, 16 at a time.
pub(crate) async fn fill(
    ground: &Ground,
    path: &str,
    count: usize,
    object: impl Fn(usize) -> String + Send + Sync + 'static,
) -> Result<(), Failure> {
    let object = Arc::new(object);
    let mut tasks = tokio::task::JoinSet::new();
    for first in 0..16 {
        let (object, path) = (object.clone(), path.to_owned());
        let server = ground.process.plain(Who::Probe)?;
        tasks.spawn(async move {
            let mut connection = Connection::open(&server).await?;
            for number in (first..count).step_by(16) {
                let question = Question::write(http::Method::POST, path.clone(), "application/json", object(number));
                connection.ask(&question).await?;
            }
            Ok::<(), Failure>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// Where `--json` writes to.
pub(crate) fn write_json(path: &PathBuf, rows: &[Row], binary: &Path, is_quick: bool) -> Result<(), Failure> {
    let rows: Vec<Value> = rows.iter().map(Row::json).collect();
    let all = json!({"binary": binary.display().to_string(), "quick": is_quick, "rows": rows});
    Ok(std::fs::write(path, format!("{all:#}\n"))?)
}
