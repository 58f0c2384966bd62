//! The real binary as a process: started on a free port, read until it says that it is ready, ended with signals.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

/// The binary under test.
pub(crate) const FLATKUBE: &str = env!("CARGO_BIN_EXE_flatkube");

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// What a client of the server runs on.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("a runtime")
}

/// A running `flatkube server`. Killed when dropped.
pub(crate) struct Server {
    child: Child,
    /// The whole ready line.
    pub(crate) ready: String,
    /// `https://127.0.0.1:PORT`.
    pub(crate) url: String,
    /// The administrator's kubeconfig.
    pub(crate) kubeconfig: PathBuf,
    log: Option<JoinHandle<String>>,
}

/// A server that ended before it was ready.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) log: String,
}

impl Server {
    /// A server that keeps nothing.
    pub(crate) fn ephemeral() -> Self {
        Server::start(&["--ephemeral"]).unwrap_or_else(|ended| panic!("the server does not start: {ended:?}"))
    }

    /// A server on `data_dir`.
    pub(crate) fn on(data_dir: &Path) -> Self {
        Server::start(&["--data-dir", text(data_dir)])
            .unwrap_or_else(|ended| panic!("the server does not start: {ended:?}"))
    }

    /// A server on `data_dir` that serves plain HTTP, too, to those whose tokens are in `tokens`.
    pub(crate) fn over_http(data_dir: &Path, tokens: &Path) -> Self {
        Server::start(&[
            "--data-dir",
            text(data_dir),
            "--http-bind",
            "127.0.0.1:0",
            "--token-auth-file",
            text(tokens),
            // What a test puts there is what is there: nothing is collected, nothing made.
            "--controllers",
            "off",
        ])
        .unwrap_or_else(|ended| panic!("the server does not start: {ended:?}"))
    }

    /// Starts `flatkube server ARGUMENTS` on a free port, unless the arguments name one.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self, Ended> {
        let mut command = Command::new(FLATKUBE);
        command.arg("server").args(arguments);
        if !arguments.contains(&"--bind") {
            command.args(["--bind", "127.0.0.1:0"]);
        }
        // Accounts are made a moment after their namespaces: tests that are not about them do not wait for them.
        if !arguments.contains(&"--enable-admission-plugins") {
            command.args(["--disable-admission-plugins", "ServiceAccount"]);
        }
        Server::spawn(&mut command)
    }

    /// Runs a command that becomes a server, and waits until it is ready.
    pub(crate) fn spawn(command: &mut Command) -> Result<Self, Ended> {
        let mut child = command
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        // Read to its end on a thread of its own, so that a server that logs much never waits for us.
        let mut errors = child.stderr.take().expect("piped");
        let log = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            text
        });
        let mut ready = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut ready)
            .expect("text");
        if !ready.contains(" ready in ") {
            let status = child.wait().expect("it ended");
            return Err(Ended {
                status,
                log: log.join().expect("the log"),
            });
        }
        let after = |mark: &str| {
            let start = ready.find(mark).unwrap_or_else(|| panic!("{mark} is not in {ready:?}")) + mark.len();
            ready[start..]
                .split([' ', ',', '\n'])
                .next()
                .expect("split gives one")
                .to_owned()
        };
        let url = format!("https://{}", after("https://"));
        let kubeconfig = PathBuf::from(after("KUBECONFIG="));
        Ok(Server {
            child,
            url,
            kubeconfig,
            ready,
            log: Some(log),
        })
    }

    /// The plain HTTP address of a server that was started with `--http-bind`.
    pub(crate) fn http_address(&self) -> std::net::SocketAddr {
        let start = self.ready.find("http://").expect("started with --http-bind") + "http://".len();
        let text = self.ready[start..].split([' ', ',']).next().expect("split gives one");
        text.parse().expect("an address")
    }

    /// The server's process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal (`TERM`, `INT`, `KILL`) and waits for the end: the exit status and what was logged.
    pub(crate) fn end(self, signal: &str) -> Ended {
        self.signal(signal);
        self.wait()
    }

    /// Waits for its end, which something else brings about.
    pub(crate) fn wait(mut self) -> Ended {
        let status = self.child.wait().expect("it ends");
        Ended {
            status,
            log: self
                .log
                .take()
                .map(|log| log.join().expect("the log"))
                .unwrap_or_default(),
        }
    }

    /// Kills it, at once: no other process has to start for that.
    pub(crate) fn kill(mut self) -> ExitStatus {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it ends")
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// When it has not after `limit`.
    pub(crate) fn wait_at_most(mut self, limit: std::time::Duration) -> Ended {
        let (id, log) = (self.id(), self.log.take());
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let status = self.child.wait();
            let log = log.map(|log| log.join().expect("the log")).unwrap_or_default();
            // Too late, if nobody takes it.
            let _ = sender.send(Ended {
                status: status.expect("it ends"),
                log,
            });
        });
        receiver.recv_timeout(limit).unwrap_or_else(|_| {
            let _ = Command::new("kill").arg("-KILL").arg(id.to_string()).status();
            panic!("it goes on")
        })
    }

    /// Sends a signal and goes on.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .arg(format!("-{signal}"))
            .arg(self.id().to_string())
            .status();
        assert!(sent.expect("kill runs").success(), "the server has ended already");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `flatkube ARGUMENTS` to its end.
pub(crate) fn flatkube(arguments: &[&str]) -> std::process::Output {
    Command::new(FLATKUBE)
        .args(arguments)
        .env_remove("KUBECONFIG")
        .output()
        .expect("the binary starts")
}

/// `flatkube ARGUMENTS`, which succeeds: its standard output.
pub(crate) fn flatkube_ok(arguments: &[&str]) -> String {
    let output = flatkube(arguments);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        output.status.success(),
        "flatkube {arguments:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}
