//! Every kubectl of this machine: logs, exec, attach, port-forward, with a kubelet that speaks SPDY alone and one that takes
//! WebSocket, too.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::client::Started;
use crate::kubelet::Kubelet;

/// Every `kubectl` of this machine: the one on PATH, and `kubectl.1.NN` beside it.
fn installed() -> Vec<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let Some(main) = std::env::split_paths(&paths)
        .map(|folder| folder.join("kubectl"))
        .find(|path| path.is_file())
    else {
        eprintln!("\n!!! no kubectl on PATH: THE TESTS WITH kubectl CHECK NOTHING\n");
        return Vec::new();
    };
    let real = main.canonicalize().unwrap_or_else(|_| main.clone());
    let mut found = vec![main];
    for entry in std::fs::read_dir(real.parent().expect("a folder"))
        .expect("readable")
        .flatten()
    {
        if entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with("kubectl.1."))
        {
            found.push(entry.path());
        }
    }
    found
}

fn command(program: &Path, started: &Started, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(["--kubeconfig", started.server.kubeconfig.to_str().expect("plain")])
        .args(arguments)
        .env("HOME", started.dir.path())
        .env_remove("KUBECONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(program: &Path, started: &Started, arguments: &[&str], input: &str) -> Output {
    let mut child = command(program, started, arguments).spawn().expect("kubectl starts");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(input.as_bytes())
        .expect("written");
    child.wait_with_output().expect("kubectl ends")
}

fn ok(program: &Path, started: &Started, arguments: &[&str], input: &str) -> (String, String) {
    let output = run(program, started, arguments, input);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let (out, err) = (text(output.stdout), text(output.stderr));
    // A kubectl of 1.30 or 1.31 may read the empty message that a connection begins with before it has made its streams, and says so;
    // what it drops then has nothing in it, or the output below would be short.
    let is_told = |line: &&str| !line.ends_with("Unknown stream id 1, discarding message");
    let err: String = err
        .split_inclusive('\n')
        .filter(|line| is_told(&line.trim_end()))
        .collect();
    assert!(
        output.status.success(),
        "{} {arguments:?}: {}\n{out}{err}",
        program.display(),
        output.status
    );
    (out, err)
}

/// Killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn session(program: &Path, started: &Started) {
    let name = program.display();
    assert_eq!(
        ok(program, started, &["logs", "p", "--tail=5"], "").0,
        "log of main with tailLines=5\n",
        "{name}"
    );
    let (out, err) = ok(program, started, &["exec", "-i", "p", "--", "cat"], "hello\nworld\n");
    assert_eq!(
        (out.as_str(), err.as_str()),
        ("hello\nworld\nbye\n", "12 bytes\n"),
        "{name}"
    );
    assert_eq!(
        ok(program, started, &["exec", "p", "--", "true"], "").0,
        "bye\n",
        "{name}"
    );
    let large = "0123456789abcdef".repeat(1 << 16);
    let (out, err) = ok(program, started, &["exec", "-i", "p", "--", "cat"], &large);
    assert!(
        out == format!("{large}bye\n") && err == "1048576 bytes\n",
        "{name}: {} bytes, {err}",
        out.len()
    );
    let failed = run(program, started, &["exec", "p", "--", "fail"], "");
    assert_eq!(
        failed.status.code(),
        Some(7),
        "{name}: {}",
        String::from_utf8_lossy(&failed.stderr)
    );
    let refused = run(program, started, &["exec", "p", "--", "refuse"], "");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && text.contains("container not found (\"main\")"),
        "{name}: {text}"
    );
    let (out, _) = ok(program, started, &["attach", "-i", "p"], "again");
    assert!(out.contains("again") && out.contains("bye\n"), "{name}: {out}");
    forwarded(program, started);
    terminal(program, started);
}

/// With a terminal: what is typed comes back, and the terminal's size is told.
fn terminal(program: &Path, started: &Started) {
    let kubeconfig = started.server.kubeconfig.display();
    let line = format!(
        "stty rows 33 cols 99; {} --kubeconfig {kubeconfig} exec -it p -- cat",
        program.display()
    );
    let mut child = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env("HOME", started.dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("script starts");
    let mut input = child.stdin.take().expect("piped");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("resized to") {
        line.clear();
        assert!(
            output.read_line(&mut line).expect("text") > 0,
            "{}: no size was told",
            program.display()
        );
    }
    assert!(
        line.contains("\"Width\":99,\"Height\":33"),
        "{}: {line}",
        program.display()
    );
    input.write_all(b"typed\x04").expect("written");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("text");
    assert!(
        rest.contains("typed") && rest.contains("bye"),
        "{}: {rest}",
        program.display()
    );
    assert!(
        child.wait().expect("it ends").success(),
        "{}: {rest}",
        program.display()
    );
}

/// Two connections through one port-forward.
fn forwarded(program: &Path, started: &Started) {
    let mut child = command(program, started, &["port-forward", "p", ":8080"])
        .spawn()
        .expect("kubectl starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let running = Running(child);
    let mut line = String::new();
    lines.read_line(&mut line).expect("text");
    let port = line
        .strip_prefix("Forwarding from 127.0.0.1:")
        .and_then(|rest| rest.split(' ').next());
    let port: u16 = port
        .and_then(|port| port.parse().ok())
        .unwrap_or_else(|| panic!("{}: {line:?}", program.display()));
    for text in ["first", "second"] {
        let mut socket = std::net::TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        socket.write_all(text.as_bytes()).expect("written");
        socket.shutdown(std::net::Shutdown::Write).expect("ended");
        let mut heard = String::new();
        socket.read_to_string(&mut heard).expect("an answer");
        assert_eq!(heard, text.to_uppercase(), "{}", program.display());
    }
    drop(running);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kubectl_has_its_sessions_with_a_kubelet_that_speaks_spdy() {
    let kubelet = Kubelet::start().await;
    let started = Started::new(&[]);
    started.node("n", kubelet.address, &[]).await;
    started.pod("p", "n", "10.1.2.3").await;
    tokio::task::block_in_place(|| {
        for program in installed() {
            session(&program, &started);
        }
    });
    // Those from 1.30 on came over WebSocket, and were translated.
    let text = started.get("/metrics").await.text();
    println!(
        "{}",
        text.lines()
            .filter(|line| line.contains("flatkube_upgraded"))
            .collect::<Vec<_>>()
            .join("\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubectl_that_speaks_websocket_has_it_with_a_kubelet_that_takes_it() {
    let kubelet = Kubelet::start().await;
    let started = Started::new(&[]);
    started.node("n", kubelet.address, &["ExtendWebSocketsToKubelet"]).await;
    started.pod("p", "n", "10.1.2.3").await;
    tokio::task::block_in_place(|| {
        for program in installed() {
            let is_new = ["1.31", "1.32", "1.33"]
                .iter()
                .any(|version| program.to_string_lossy().ends_with(version));
            if is_new {
                let (out, _) = ok(&program, &started, &["exec", "-i", "p", "--", "cat"], "hello\n");
                assert_eq!(out, "hello\n", "{}", program.display());
                assert_eq!(kubelet.last().headers["upgrade"], "websocket");
            }
        }
    });
}
