//! `kubectl` as the tests run it: each test in a namespace of its own, on one server for all.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::process::Server;

/// A small object to write.
pub(crate) const MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  labels: {app: one}
data:
  colour: red
  size: small
";

/// The server that is shared by the tests that run at the same time; the last to end it drops it.
pub(crate) fn shared_server() -> Arc<Server> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Server::ephemeral());
        *shared = Arc::downgrade(&server);
        server
    })
}

/// A server of the test's own, without built-in controllers.
pub(crate) fn uncontrolled_server() -> Arc<Server> {
    let server = Server::start(&["--ephemeral", "--controllers", "off"]);
    Arc::new(server.unwrap_or_else(|ended| panic!("the server does not start: {ended:?}")))
}

/// Every `kubectl` of this machine, the one on PATH first: that one, and `kubectl.1.NN` beside it.
pub(crate) fn installed() -> Vec<PathBuf> {
    let Some(paths) = std::env::var_os("PATH") else {
        return Vec::new();
    };
    let Some(main) = std::env::split_paths(&paths)
        .map(|folder| folder.join("kubectl"))
        .find(|path| path.is_file())
    else {
        eprintln!("\n!!! no kubectl on PATH: THE TESTS WITH kubectl CHECK NOTHING\n");
        return Vec::new();
    };
    let real = main.canonicalize().unwrap_or_else(|_| main.clone());
    let mut found = vec![main.clone()];
    for folder in [main.parent(), real.parent()].into_iter().flatten() {
        let Ok(entries) = std::fs::read_dir(folder) else {
            continue;
        };
        let others = entries.flatten().map(|entry| entry.path()).filter(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with("kubectl.1."))
        });
        found.extend(others);
    }
    found.sort_by_key(|path| path != &main);
    found.dedup();
    found
}

/// One kubectl in one namespace of the shared server.
pub(crate) struct Kubectl {
    program: PathBuf,
    server: Arc<Server>,
    home: tempfile::TempDir,
    pub(crate) namespace: String,
}

impl Kubectl {
    /// The kubectl on PATH, in a new namespace; `None` (and a loud line) when there is none.
    pub(crate) fn new(topic: &str) -> Option<Self> {
        let program = installed().into_iter().next()?;
        Some(Kubectl::with(&program, topic))
    }

    /// `program`, in a new namespace.
    pub(crate) fn with(program: &Path, topic: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let namespace = format!("{topic}-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        Kubectl::on(shared_server(), program, namespace)
    }

    /// The kubectl on PATH on a server of its own without built-in controllers: for tests that write what those would, and
    /// for those that nobody else may write beside.
    pub(crate) fn without_controllers(topic: &str) -> Option<Self> {
        let program = installed().into_iter().next()?;
        Some(Kubectl::on(uncontrolled_server(), &program, topic.to_owned()))
    }

    /// `program`, in a new namespace of `server`.
    pub(crate) fn on(server: Arc<Server>, program: &Path, namespace: String) -> Self {
        let kubectl = Kubectl {
            program: program.to_owned(),
            server,
            home: tempfile::tempdir().expect("a folder"),
            namespace,
        };
        let manifest = format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {}}}\n",
            kubectl.namespace
        );
        kubectl.ok_with(&["create", "-f", "-"], &manifest);
        kubectl
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["--kubeconfig", self.server.kubeconfig.to_str().expect("a plain path")])
            .args(["--namespace", &self.namespace])
            .args(arguments)
            .env("HOME", self.home.path())
            .env_remove("KUBECONFIG")
            .env("KUBE_EDITOR", "false")
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures"))
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end, with `input` on standard input.
    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl starts");
        let mut stdin = child.stdin.take().expect("piped");
        let input = input.to_owned();
        // Written beside, so that a command that answers while it reads never waits for us.
        let writer = std::thread::spawn(move || {
            let _ = stdin.write_all(input.as_bytes());
        });
        let output = child.wait_with_output().expect("kubectl ends");
        writer.join().expect("written");
        output
    }

    /// Succeeds: standard output.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        self.ok_with(arguments, "")
    }

    /// Succeeds with `input` on standard input: standard output.
    pub(crate) fn ok_with(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        let text = String::from_utf8(output.stdout).expect("text");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{} {arguments:?} in {} failed ({}):\n{text}{errors}",
            self.program.display(),
            self.namespace,
            output.status,
        );
        text
    }

    /// Succeeds, and says nothing on standard error (no warning, no deprecation, no complaint).
    pub(crate) fn quiet(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments, "");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && errors.is_empty(),
            "kubectl {arguments:?}: {}: {errors}",
            output.status
        );
        String::from_utf8(output.stdout).expect("text")
    }

    /// Fails: standard error.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        self.fails_with(arguments, "")
    }

    /// Fails with `input` on standard input: standard error.
    pub(crate) fn fails_with(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        assert!(
            !output.status.success(),
            "kubectl {arguments:?} succeeded: {}",
            String::from_utf8_lossy(&output.stdout)
        );
        String::from_utf8(output.stderr).expect("text")
    }

    /// A field of an object by JSON path.
    pub(crate) fn field(&self, object: &str, path: &str) -> String {
        self.ok(&["get", object, "-o", &format!("jsonpath={{{path}}}")])
    }

    /// Runs beside the test; its lines are read one by one.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let mut child = self
            .command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("kubectl starts");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Running { child, lines }
    }
}

/// A kubectl that goes on, such as `get --watch`. Killed when dropped.
pub(crate) struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    /// The next line, without its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("text");
        assert!(line.ends_with('\n'), "kubectl ended after {line:?}");
        line.truncate(line.len() - 1);
        line
    }

    /// Waits for the end; whether it succeeded.
    pub(crate) fn end(mut self) -> bool {
        self.child.wait().expect("it ends").success()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asserts that applying `file` once more changes nothing.
///
/// kubectl compares on its own, and says "configured" each time where what the server keeps is written otherwise: claim
/// templates (a list that is one value and has got defaults), selectors that are replaced as a whole, quantities that
/// were not in canonical form. The server finds no difference and writes nothing, which is what counts.
#[track_caller]
pub(crate) fn unchanged(kubectl: &Kubectl, file: &str) {
    let revisions = || {
        let columns = "custom-columns=K:.kind,N:.metadata.name,R:.metadata.resourceVersion";
        kubectl.ok(&["get", "-f", file, "-o", columns])
    };
    let before = revisions();
    for line in kubectl.ok(&["apply", "-f", file]).lines() {
        let as_usual = line.ends_with(" unchanged")
            || ["statefulset.apps/", "poddisruptionbudget.policy/", "pod/everything"]
                .iter()
                .any(|kind| line.starts_with(kind));
        assert!(as_usual, "{}: applied again: {line}", kubectl.program.display());
    }
    assert_eq!(
        revisions(),
        before,
        "{}: {file} was written again",
        kubectl.program.display()
    );
}

/// Asserts that `text` contains each of `parts`.
#[track_caller]
pub(crate) fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

/// The columns of a table line, split at runs of two or more spaces (cells may hold single ones).
pub(crate) fn columns(line: &str) -> Vec<&str> {
    line.split("  ")
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .collect()
}
