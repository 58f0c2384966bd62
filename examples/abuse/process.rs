//! The server under attack, a process of its own, and what can be seen of it from outside.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::connection::{Connection, Question, Server};
use super::failure::Failure;

/// Users of the server's token file: who attacks, who is a modest client beside it, who reads the figures.
const TOKENS: &str =
    "token-of-attacker,attacker,uid-1\ntoken-of-canary,canary,uid-2\ntoken-of-probe,probe,uid-3,\"system:masters\"\n";

/// Whom a connection speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Attacker,
    Canary,
    Probe,
}

impl Who {
    pub(crate) fn token(self) -> &'static str {
        match self {
            Who::Attacker => "token-of-attacker",
            Who::Canary => "token-of-canary",
            Who::Probe => "token-of-probe",
        }
    }
}

/// How the server is started.
#[derive(Debug, Default)]
pub(crate) struct Setting {
    /// Descriptors that it may have.
    pub(crate) descriptors: Option<u32>,
    pub(crate) arguments: Vec<String>,
}

/// A running server in a directory of its own; killed and removed when dropped.
pub(crate) struct Process {
    child: Child,
    dir: tempfile::TempDir,
    /// The plain address.
    pub(crate) http: SocketAddr,
    /// The TLS address.
    pub(crate) https: SocketAddr,
}

/// What is seen of the process at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Private anonymous memory that is resident, bytes.
    pub(crate) private: u64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
    /// Mapped files of the store that are removed already, bytes: disk that only readers hold.
    pub(crate) removed: u64,
    /// What the files of the data directory take on the disk, bytes.
    pub(crate) disk: u64,
}

impl Sample {
    /// The larger of each.
    pub(crate) fn max(self, other: Sample) -> Sample {
        Sample {
            private: self.private.max(other.private),
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
            removed: self.removed.max(other.removed),
            disk: self.disk.max(other.disk),
        }
    }
}

impl Process {
    pub(crate) fn start(binary: &Path, setting: &Setting) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let tokens = dir.path().join("tokens.csv");
        fs::write(&tokens, TOKENS)?;
        let limit = setting
            .descriptors
            .map_or(String::new(), |descriptors| format!("ulimit -n {descriptors} && "));
        let mut child = Command::new("sh")
            .args(["-c", &format!("{limit}exec \"$0\" \"$@\"")])
            .arg(binary)
            .args([
                "server",
                "--bind",
                "127.0.0.1:0",
                "--http-bind",
                "127.0.0.1:0",
                // Nobody waits for accounts.
                "--disable-admission-plugins",
                "ServiceAccount",
                "--data-dir",
            ])
            .arg(dir.path().join("data"))
            .arg("--token-auth-file")
            .arg(&tokens)
            .args(&setting.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Its warnings would drown the table; with RUST_LOG set it is meant to be read.
            .stderr(if std::env::var_os("RUST_LOG").is_some() {
                Stdio::inherit()
            } else {
                Stdio::null()
            })
            .spawn()?;
        let mut ready = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut ready)?;
        }
        let address = |scheme: &str| {
            let (_, rest) = ready.split_once(scheme)?;
            rest.split([' ', ',']).next()?.parse().ok()
        };
        if let (Some(http), Some(https)) = (address("http://"), address("https://")) {
            return Ok(Self {
                child,
                dir,
                http,
                https,
            });
        }
        let _ = child.kill();
        let _ = child.wait();
        Err(Failure::new(format!("{} does not start: {ready:?}", binary.display())))
    }

    /// Where to ask over TLS, as `who`.
    pub(crate) fn tls(&self, who: Who) -> Result<Server, Failure> {
        let pki = self.dir.path().join("data/pki");
        Server::new(&format!("https://{}", self.https), Some(&pki), Some(who.token()))
    }

    /// Where to ask in the clear, as `who`.
    pub(crate) fn plain(&self, who: Who) -> Result<Server, Failure> {
        Server::new(&format!("http://{}", self.http), None, Some(who.token()))
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// For looking at it from another thread.
    pub(crate) fn eye(&self) -> Eye {
        Eye {
            proc: PathBuf::from(format!("/proc/{}", self.child.id())),
            data: self.dir.path().join("data/store"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Looks at the process.
#[derive(Clone, Debug)]
pub(crate) struct Eye {
    proc: PathBuf,
    data: PathBuf,
}

impl Eye {
    pub(crate) fn look(&self) -> Sample {
        use std::os::unix::fs::MetadataExt as _;
        let text = |name: &str| fs::read_to_string(self.proc.join(name)).unwrap_or_default();
        let status = text("status");
        let figure = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
                .unwrap_or(0)
        };
        let removed = text("maps")
            .lines()
            .filter(|line| line.ends_with(" (deleted)") && line.contains("/data/store/"))
            .filter_map(|line| {
                let (start, end) = line.split(' ').next()?.split_once('-')?;
                Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
            })
            .sum();
        let files = fs::read_dir(&self.data).into_iter().flatten().flatten();
        Sample {
            private: figure("RssAnon:") * 1024,
            descriptors: fs::read_dir(self.proc.join("fd")).map_or(0, Iterator::count) as u64,
            threads: figure("Threads:"),
            removed,
            disk: files
                .flat_map(|file| file.metadata())
                .map(|file| file.blocks() * 512)
                .sum(),
        }
    }
}

/// What the server's allocator has given out, bytes, by its own word.
pub(crate) async fn live_bytes(process: &Process) -> Result<u64, Failure> {
    metric(process, "flatkube_allocator_live_bytes").await
}

/// A figure of `/metrics`, over all its labels.
pub(crate) async fn metric(process: &Process, name: &str) -> Result<u64, Failure> {
    let mut connection = Connection::open(&process.plain(Who::Probe)?).await?;
    let text = connection.ask(&Question::get("/metrics")).await?;
    let text = String::from_utf8_lossy(&text);
    let lines = text
        .lines()
        .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])));
    Ok(lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum::<f64>() as u64)
}
