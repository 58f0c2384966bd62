//! A disk that takes no more: full, read-only, limited, or gone from under the server. Nothing that was acknowledged is lost,
//! and the server says what is wrong.

#[path = "process/client.rs"]
mod client;
#[path = "process/mount.rs"]
mod mount;
mod process;

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use client::{Answer, Client};
use mount::Mount;
use process::{Ended, Server, runtime};
use serde_json::json;

const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
/// The server looks for its directory every five seconds when nothing is written.
const NOTICED: Duration = Duration::from_mins(1);

/// Where a test keeps its files.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().expect("a folder"));
        client::write_tokens(&folder.tokens());
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn tokens(&self) -> PathBuf {
        self.path("tokens.csv")
    }

    /// A new folder in it.
    fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).expect("made");
        path
    }

    /// A server on `data`, run by `wrapper` if there is one.
    fn serve(&self, data: &Path, wrapper: &[&str]) -> Result<Server, Ended> {
        self.serve_at("127.0.0.1:0", data, wrapper)
    }

    fn serve_at(&self, address: &str, data: &Path, wrapper: &[&str]) -> Result<Server, Ended> {
        let words: Vec<&str> = wrapper.iter().copied().chain([process::FLATKUBE]).collect();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            // What controllers write would be counted as a client's.
            .args([
                "server",
                "--controllers",
                "off",
                "--bind",
                address,
                "--http-bind",
                "127.0.0.1:0",
                "--data-dir",
            ])
            .arg(data)
            .arg("--token-auth-file")
            .arg(self.tokens());
        Server::spawn(&mut command)
    }
}

fn connect(runtime: &tokio::runtime::Runtime, server: &Server) -> Client {
    runtime
        .block_on(Client::connect(server.http_address()))
        .expect("it listens")
}

/// Creates ConfigMaps of `bytes` bytes with the names from `from` on until one is refused: how many there are then, and the
/// refusal. An error: the connection broke.
async fn fill(client: &mut Client, from: usize, bytes: usize) -> (usize, Result<Answer, client::Broken>) {
    for number in from.. {
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("map-{number}") },
            "data": { "text": "x".repeat(bytes) },
        });
        match client.post(COLLECTION, &body).await {
            Ok(answer) if answer.status == 201 => {}
            other => return (number, other),
        }
        assert!((number - from) * bytes < 1 << 30, "a gigabyte on a small disk");
    }
    unreachable!("the loop has no end")
}

async fn count(client: &mut Client) -> usize {
    let list = client.get(COLLECTION, "application/json").await.expect("an answer");
    list.json()["items"].as_array().expect("items").len()
}

fn is_refusal(answer: &Answer, word: &str) {
    let status = answer.json();
    assert!(answer.status.is_server_error(), "{answer:?}");
    assert_eq!(status["reason"], "InsufficientStorage", "{answer:?}");
    assert!(
        status["message"].as_str().is_some_and(|text| text.contains(word)),
        "{answer:?}"
    );
}

/// Takes what is left of a file system.
fn take_the_rest(path: &Path) {
    let mut file = fs::File::create(path).expect("a file");
    for bytes in [1 << 20, 4 << 10, 1] {
        while file.write_all(&vec![1; bytes]).is_ok() {}
    }
    // A tmpfs has no space for another page now, and none for another file with contents.
}

#[test]
fn a_full_disk_refuses_writes_and_does_everything_else() {
    let (folder, runtime) = (Folder::new(), runtime());
    let Some(small) = Mount::tmpfs(&folder.folder("tiny"), 64 << 10) else {
        return;
    };
    let Err(ended) = folder.serve(&small.path().join("data"), &[]) else {
        panic!("it serves on 64 KiB")
    };
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
    assert!(ended.log.contains("space"), "{}", ended.log);

    let Some(mount) = Mount::tmpfs(&folder.folder("small"), 48 << 20) else {
        return;
    };
    let (data, ballast, rest) = (
        mount.path().join("data"),
        mount.path().join("ballast"),
        mount.path().join("rest"),
    );
    fs::write(&ballast, vec![1; 16 << 20]).expect("there is space");
    let server = folder.serve(&data, &[]).unwrap_or_else(|ended| panic!("{ended:?}"));
    let mut client = connect(&runtime, &server);
    let (created, refusal) = runtime.block_on(fill(&mut client, 0, 100_000));
    is_refusal(&refusal.expect("an answer"), "space");
    assert!(created > 20, "{created} were created");
    runtime.block_on(async {
        assert_eq!(count(&mut client).await, created);
        // Deletes have a reserve.
        let answer = client.delete(&format!("{COLLECTION}/map-0")).await.expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
    });

    // Killed when nothing is left at all, and started so.
    take_the_rest(&rest);
    // At the same address: another one would have to be written into the kubeconfig.
    let address = server.url.trim_start_matches("https://").to_owned();
    server.kill();
    let server = folder
        .serve_at(&address, &data, &[])
        .unwrap_or_else(|ended| panic!("{ended:?}"));
    let mut client = connect(&runtime, &server);
    let more = runtime.block_on(async {
        assert_eq!(count(&mut client).await, created - 1);
        let (more, refusal) = fill(&mut client, created, 100_000).await;
        is_refusal(&refusal.expect("an answer"), "space");
        more
    });

    // Space again: writes go on, without a restart.
    fs::remove_file(&rest).expect("removed");
    fs::remove_file(&ballast).expect("removed");
    let last = runtime.block_on(async {
        let (last, refusal) = fill(&mut client, more, 100_000).await;
        is_refusal(&refusal.expect("an answer"), "space");
        assert!(last > more + 20, "only {} more on 16 MiB", last - more);
        assert_eq!(count(&mut client).await, last - 1);
        last
    });
    let ended = server.end("TERM");
    assert!(ended.status.success(), "{ended:?}");
    let server = folder.serve(&data, &[]).unwrap_or_else(|ended| panic!("{ended:?}"));
    assert_eq!(runtime.block_on(count(&mut connect(&runtime, &server))), last - 1);
}

#[test]
fn a_disk_that_turns_read_only_ends_the_server_and_loses_nothing() {
    let (folder, runtime) = (Folder::new(), runtime());
    let Some(mut mount) = Mount::ext4(&folder.folder("disk"), &folder.path("image"), 64 << 20) else {
        return;
    };
    let data = mount.path().join("data");
    let server = folder.serve(&data, &[]).unwrap_or_else(|ended| panic!("{ended:?}"));
    let mut client = connect(&runtime, &server);
    let remount = |how: &str| format!("mount -o remount,{how} {}", folder.path("disk").display());
    // Files are open for writing: the kernel refuses, and the server does not notice.
    assert!(!mount.run(&remount("ro")));
    let mut acknowledged = 0;
    runtime.block_on(async {
        for number in 0..20 {
            let body = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("map-{number}") },
            });
            let answer = client.post(COLLECTION, &body).await.expect("an answer");
            assert_eq!(answer.status, 201, "{answer:?}");
            acknowledged += 1;
        }
    });
    // As after an error of the device: the file system aborts its journal and is read-only, whoever has files open.
    if !mount.run(&remount("abort")) {
        eprintln!("\n!!! this ext4 cannot be aborted: A READ-ONLY DISK IS NOT TESTED\n");
        return;
    }
    let (created, broken) = runtime.block_on(fill(&mut client, acknowledged, 100));
    assert_eq!(created, acknowledged, "acknowledged on a read-only disk");
    assert!(broken.is_err(), "{broken:?}");
    let ended = server.wait_at_most(NOTICED);
    assert_eq!(ended.status.signal(), Some(6), "{ended:?}");
    assert!(ended.log.contains("the disk failed"), "{}", ended.log);
    // It is not served as it is.
    let Err(ended) = folder.serve(&data, &[]) else {
        panic!("it serves from a read-only disk")
    };
    assert_eq!(ended.status.code(), Some(5), "{ended:?}");

    assert!(mount.unmount() && mount.mount(), "mounted anew");
    let server = folder.serve(&data, &[]).unwrap_or_else(|ended| panic!("{ended:?}"));
    let found = runtime.block_on(count(&mut connect(&runtime, &server)));
    // The one that was not answered may be there.
    assert!(
        found == acknowledged || found == acknowledged + 1,
        "{found} of {acknowledged}"
    );
}

#[test]
fn a_limit_on_file_sizes_refuses_writes_and_does_not_kill() {
    let (folder, runtime) = (Folder::new(), runtime());
    let data = folder.path("data");
    // In blocks of 512 bytes; the first log segment has 1 MiB.
    let limited = |blocks: usize| format!("ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let Err(ended) = folder.serve(&data, &["sh", "-c", &limited(1 << 10)]) else {
        panic!("it serves within 512 KiB")
    };
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
    assert!(ended.log.contains("ulimit -f"), "{}", ended.log);

    let server = folder
        .serve(&data, &["sh", "-c", &limited(6 << 10)])
        .unwrap_or_else(|ended| panic!("{ended:?}"));
    let mut client = connect(&runtime, &server);
    let created = runtime.block_on(async {
        let (created, refusal) = fill(&mut client, 0, 100_000).await;
        is_refusal(&refusal.expect("an answer"), "ulimit -f");
        assert_eq!(count(&mut client).await, created);
        let answer = client.delete(&format!("{COLLECTION}/map-0")).await.expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
        created
    });
    let ended = server.end("TERM");
    assert!(ended.status.success(), "{ended:?}");
    let server = folder.serve(&data, &[]).unwrap_or_else(|ended| panic!("{ended:?}"));
    let mut client = connect(&runtime, &server);
    assert_eq!(runtime.block_on(count(&mut client)), created - 1);

    // Lowered under the running server, below what is allocated: the log cannot be written, which ends the process, loudly.
    let lowered = Command::new("prlimit")
        .args(["--pid", &server.id().to_string(), "--fsize=4096:4096"])
        .status();
    if !lowered.is_ok_and(|status| status.success()) {
        eprintln!("\n!!! no prlimit here: A LIMIT THAT IS LOWERED IS NOT TESTED\n");
        return;
    }
    let (more, broken) = runtime.block_on(fill(&mut client, created, 100));
    assert_eq!(more, created, "acknowledged beyond the limit");
    assert!(broken.is_err(), "{broken:?}");
    let ended = server.wait_at_most(NOTICED);
    assert_eq!(ended.status.signal(), Some(6), "{ended:?}");
    assert!(
        ended.log.contains("the disk failed") && ended.log.contains("File too large"),
        "{}",
        ended.log
    );
    let server = folder.serve(&data, &[]).unwrap_or_else(|ended| panic!("{ended:?}"));
    assert_eq!(runtime.block_on(count(&mut connect(&runtime, &server))), created - 1);
}

/// Checks how a server ended whose directory was taken away.
fn said_so(ended: &Ended, data: &Path) {
    assert_eq!(ended.status.signal(), Some(6), "{ended:?}");
    let path = data.join("store");
    let named = ended.log.contains(path.to_str().expect("a plain path"));
    assert!(
        named && ended.log.contains("removed, moved or replaced"),
        "{}",
        ended.log
    );
}

#[test]
fn a_moved_directory_ends_the_server_before_it_acknowledges_anything() {
    let (folder, runtime) = (Folder::new(), runtime());
    for is_replaced in [false, true] {
        let name = if is_replaced { "replaced" } else { "moved" };
        let (data, moved) = (folder.path(name), folder.path(&format!("{name}-away")));
        let server = folder.serve(&data, &[]).unwrap_or_else(|ended| panic!("{ended:?}"));
        let mut client = connect(&runtime, &server);
        let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "one" } });
        let answer = runtime.block_on(client.post(COLLECTION, &body)).expect("an answer");
        assert_eq!(answer.status, 201, "{answer:?}");
        fs::rename(&data, &moved).expect("moved");
        if is_replaced {
            let copied = Command::new("cp").arg("-a").args([&moved, &data]).status();
            assert!(copied.expect("cp runs").success());
        }
        let (count_then, broken) = runtime.block_on(fill(&mut client, 0, 100));
        assert_eq!(count_then, 0, "acknowledged into a directory that is gone");
        assert!(
            broken.is_err() || broken.as_ref().is_ok_and(|answer| answer.status.is_server_error()),
            "{broken:?}"
        );
        said_so(&server.wait_at_most(NOTICED), &data);

        // Put back, all is there.
        if is_replaced {
            fs::remove_dir_all(&data).expect("removed");
        }
        fs::rename(&moved, &data).expect("moved back");
        let server = folder.serve(&data, &[]).unwrap_or_else(|ended| panic!("{ended:?}"));
        let found = runtime.block_on(count(&mut connect(&runtime, &server)));
        assert!(
            found == 1 || found == 2,
            "{found}: the write without an answer may be there"
        );
    }
}

#[test]
fn a_removed_directory_ends_an_idle_server_and_a_removed_log_a_busy_one() {
    let (folder, runtime) = (Folder::new(), runtime());
    let data = folder.path("idle");
    let server = folder.serve(&data, &[]).unwrap_or_else(|ended| panic!("{ended:?}"));
    fs::remove_dir_all(&data).expect("removed");
    said_so(&server.wait_at_most(NOTICED), &data);

    let data = folder.path("busy");
    let server = folder.serve(&data, &[]).unwrap_or_else(|ended| panic!("{ended:?}"));
    let mut client = connect(&runtime, &server);
    for entry in fs::read_dir(data.join("store")).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("segment-"))
        {
            fs::remove_file(path).expect("removed");
        }
    }
    let (count_then, _) = runtime.block_on(fill(&mut client, 0, 100));
    assert_eq!(count_then, 0, "acknowledged into a file that is gone");
    said_so(&server.wait_at_most(NOTICED), &data);
}
