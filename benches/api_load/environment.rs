//! Where and when figures were taken.

use std::process::Command;

use serde::{Deserialize, Serialize};

/// What has to be known to judge a figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Environment {
    /// UTC.
    pub(crate) date: String,
    /// Short hash, with `-dirty` behind it when files differ from it; `unknown` outside a repository.
    pub(crate) commit: String,
    /// The processor's name.
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) kernel: String,
    /// Cargo's profile.
    pub(crate) profile: String,
    /// Pods of the large store.
    pub(crate) objects: usize,
    /// Load average over a minute, before anything was measured.
    pub(crate) load: f64,
}

impl Environment {
    pub(crate) fn now(objects: usize) -> Self {
        Self {
            date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            commit: commit().unwrap_or_else(|| "unknown".to_owned()),
            cpu: cpu_model().unwrap_or_else(|| "unknown".to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel(),
            profile: profile(),
            objects,
            load: load_average(),
        }
    }

    /// Whether others use so much of the machine that absolute figures mislead: more than half of its CPUs.
    pub(crate) fn is_busy(&self) -> bool {
        self.load > self.cpus as f64 / 2.0
    }

    /// One line for people.
    pub(crate) fn line(&self) -> String {
        format!(
            "{}, commit {}, {} CPUs ({}), {}, profile {}, load {}",
            self.date, self.commit, self.cpus, self.cpu, self.kernel, self.profile, self.load
        )
    }
}

fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

fn cpu_model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn kernel() -> String {
    let uname = rustix::system::uname();
    format!(
        "{} {}",
        uname.sysname().to_string_lossy(),
        uname.release().to_string_lossy()
    )
}

fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(env!("CARGO_MANIFEST_DIR"))
            .args(arguments)
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let hash = git(&["rev-parse", "--short", "HEAD"])?;
    let is_dirty = git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|files| !files.is_empty());
    Some(if is_dirty { format!("{hash}-dirty") } else { hash })
}

/// From where the binary lies: `target/<profile>/deps/api_load-…`; a copy elsewhere has none.
fn profile() -> String {
    let find = || {
        let binary = std::env::current_exe().ok()?;
        let deps = binary.parent()?;
        let folder = deps.file_name()? == "deps";
        folder.then(|| deps.parent()?.file_name()?.to_str().map(str::to_owned))?
    };
    find().unwrap_or_else(|| "unknown".to_owned())
}
