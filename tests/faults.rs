//! Data directories that cannot be served: each is refused with an exit code of its own and a sentence that says what to
//! do, and nothing in it is changed.

#[path = "process/client.rs"]
mod client;
mod process;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use client::Client;
use flatkube_format::frame::Seed;
use flatkube_format::manifest::Manifest;
use flatkube_format::segment;
use process::{Ended, Server, flatkube, runtime, text};
use serde_json::json;

fn refused(data: &Path) -> Ended {
    match Server::start(&["--data-dir", text(data)]) {
        Ok(server) => panic!("it serves: {}", server.ready),
        Err(ended) => ended,
    }
}

/// Every file under `folder` with what is in it.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                pending.push(path);
            } else {
                found.insert(path.clone(), fs::read(&path).expect("a readable file"));
            }
        }
    }
    found
}

/// A data directory with `maps` ConfigMaps in it, written by a server that ended cleanly.
fn written(folder: &Path, maps: usize) -> PathBuf {
    let (data, tokens) = (folder.join("data"), folder.join("tokens.csv"));
    client::write_tokens(&tokens);
    let server = Server::over_http(&data, &tokens);
    runtime().block_on(async {
        let mut client = Client::connect(server.http_address()).await.expect("it listens");
        for number in 0..maps {
            let body = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("map-{number}") },
                "data": { "text": "x".repeat(200) },
            });
            let answer = client
                .post("/api/v1/namespaces/default/configmaps", &body)
                .await
                .expect("an answer");
            assert_eq!(answer.status, 201, "{answer:?}");
        }
    });
    let ended = server.end("TERM");
    assert!(ended.status.success(), "{ended:?}");
    data
}

fn maps(server: &Server) -> usize {
    runtime().block_on(async {
        let mut client = Client::connect(server.http_address()).await.expect("it listens");
        let answer = client
            .get("/api/v1/namespaces/default/configmaps", "application/json")
            .await
            .expect("an answer");
        answer.json()["items"].as_array().expect("items").len()
    })
}

fn manifest(data: &Path) -> Manifest {
    Manifest::decode(&fs::read(data.join("store/manifest")).expect("a manifest")).expect("a whole manifest")
}

#[test]
fn both_signals_end_a_server_cleanly() {
    for signal in ["TERM", "INT"] {
        let folder = tempfile::tempdir().expect("a folder");
        let server = Server::on(&folder.path().join("data"));
        assert!(server.kubeconfig.is_file());
        let mode = fs::metadata(&server.kubeconfig)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0, "the kubeconfig is readable by others");
        let ended = server.end(signal);
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    }
}

#[test]
fn an_ephemeral_server_leaves_nothing_behind() {
    let server = Server::ephemeral();
    let data = server.kubeconfig.parent().expect("a folder").to_owned();
    assert!(data.is_dir());
    let ended = server.end("TERM");
    assert!(ended.status.success(), "{ended:?}");
    assert!(!data.exists(), "{} is still there", data.display());
}

#[test]
fn what_was_written_is_there_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = written(folder.path(), 50);
    let server = Server::over_http(&data, &folder.path().join("tokens.csv"));
    // kube-root-ca.crt and the like are the controllers' business; there are none.
    assert_eq!(maps(&server), 50);
}

#[test]
fn a_directory_in_use_is_refused_and_its_server_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = written(folder.path(), 3);
    let server = Server::over_http(&data, &folder.path().join("tokens.csv"));
    let ended = refused(&data);
    assert_eq!(ended.status.code(), Some(4), "{ended:?}");
    assert!(
        ended.log.contains("in use") && ended.log.contains("what to do"),
        "{}",
        ended.log
    );
    for command in ["stats", "verify", "export"] {
        let output = flatkube(&["store", command, text(&data)]);
        assert_eq!(output.status.code(), Some(4), "store {command}: {output:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("in use by a server"),
            "store {command}: {output:?}"
        );
    }
    assert_eq!(maps(&server), 3);
}

#[test]
fn an_address_in_use_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::ephemeral();
    let address = server.url.trim_start_matches("https://");
    let data = folder.path().join("data");
    let Err(ended) = Server::start(&["--data-dir", text(&data), "--bind", address]) else {
        panic!("two servers on {address}");
    };
    assert_eq!(ended.status.code(), Some(8), "{ended:?}");
    assert!(
        ended.log.contains(address) && ended.log.contains("--bind"),
        "{}",
        ended.log
    );
}

#[test]
fn a_newer_format_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = written(folder.path(), 3);
    let path = data.join("store/manifest");
    let mut bytes = fs::read(&path).expect("a manifest");
    // As docs/format.md has it: the version behind eight bytes of magic, and a checksum of the head's first 20 bytes.
    bytes[8..12].copy_from_slice(&99_u32.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..20]);
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, bytes).expect("written");
    let before = contents(&data);
    let ended = refused(&data);
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    assert!(
        ended.log.contains("99") && ended.log.contains("newer flatkube"),
        "{}",
        ended.log
    );
    assert!(contents(&data) == before, "the directory was changed");
    assert_eq!(flatkube(&["store", "stats", text(&data)]).status.code(), Some(3));
}

#[test]
fn damage_below_what_was_synced_is_refused_by_name_and_offset() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = written(folder.path(), 20);
    // In the middle of the text of a ConfigMap.
    let text_of_map = |bytes: &[u8]| {
        bytes
            .windows(100)
            .position(|window| window.iter().all(|byte| *byte == b'x'))
    };
    let (segment, at) = contents(&data)
        .into_iter()
        .filter(|(path, _)| text(path).contains("segment-"))
        .find_map(|(path, bytes)| text_of_map(&bytes).map(|at| (path, at + 50)))
        .expect("the text is in the log");
    let file = fs::File::options().write(true).open(&segment).expect("writable");
    file.write_all_at(b"y", at as u64).expect("written");
    let before = contents(&data);

    let ended = refused(&data);
    assert_eq!(ended.status.code(), Some(6), "{ended:?}");
    assert!(
        ended.log.contains(text(&segment)) && ended.log.contains("offset"),
        "{}",
        ended.log
    );
    assert!(contents(&data) == before, "the directory was changed");
    let output = flatkube(&["store", "verify", text(&data)]);
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(text(&segment)) && said.contains("offset"), "{said}");

    // Nothing was lost by looking: with the byte mended all is there.
    file.write_all_at(b"x", at as u64).expect("written");
    assert_eq!(maps(&Server::over_http(&data, &folder.path().join("tokens.csv"))), 20);
}

#[test]
fn a_torn_tail_is_cut_and_everything_before_it_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = written(folder.path(), 20);
    let manifest = manifest(&data);
    let number = manifest.segments.last().expect("a segment").number;
    let segment = data.join("store").join(format!("segment-{number:010}"));
    let bytes = fs::read(&segment).expect("readable");
    let seed = Seed {
        store: manifest.store,
        segment: number,
    };
    let end = segment::scan(&bytes, &seed, |_| {}).expect("a segment").end;
    let file = fs::File::options().write(true).open(&segment).expect("writable");
    file.write_all_at(b"\xfffkR half a record", end as u64)
        .expect("written");
    assert_eq!(maps(&Server::over_http(&data, &folder.path().join("tokens.csv"))), 20);
}

/// What a copy that was broken off leaves. It looks like a torn tail, but no tail of a file that is allocated whole.
#[test]
fn a_segment_that_was_shortened_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = written(folder.path(), 20);
    let manifest = manifest(&data);
    let number = manifest.segments.last().expect("a segment").number;
    let segment = data.join("store").join(format!("segment-{number:010}"));
    let bytes = fs::read(&segment).expect("readable");
    let seed = Seed {
        store: manifest.store,
        segment: number,
    };
    let mut middle = 0;
    segment::scan(&bytes, &seed, |record| {
        if record.resource == "configmaps" {
            middle = record.offset + record.len / 2;
        }
    })
    .expect("a segment");
    assert!(middle > 0, "no ConfigMap is in the last segment");
    let file = fs::File::options().write(true).open(&segment).expect("writable");
    file.set_len(middle as u64).expect("shortened");
    let before = contents(&data);

    let ended = refused(&data);
    assert_eq!(ended.status.code(), Some(6), "{ended:?}");
    assert!(ended.log.contains(text(&segment)), "{}", ended.log);
    assert!(contents(&data) == before, "the directory was changed");
    let output = flatkube(&["store", "verify", text(&data)]);
    assert_eq!(output.status.code(), Some(6), "{output:?}");
}

/// Runs as a user without rights when this is run by root, whom no permission stops.
fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new(program);
    if fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0) {
        command.uid(65_534).gid(65_534);
    }
    command
}

fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
}

#[test]
fn a_directory_that_may_not_be_written_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    open_to_all(folder.path());
    // Where a user without rights may reach it.
    let program = folder.path().join("flatkube");
    fs::copy(process::FLATKUBE, &program).expect("copied");
    let parent = folder.path().join("of-another");
    fs::create_dir(&parent).expect("made");
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o555)).expect("ours");
    let output = unprivileged(&program)
        .args([
            "server",
            "--bind",
            "127.0.0.1:0",
            "--data-dir",
            text(&parent.join("data")),
        ])
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(text(&parent)) && said.contains("what to do"), "{said}");

    // What another user wrote: the directory of a store is its owner's alone. (Someone who is not root owns it here.)
    let data = written(folder.path(), 3);
    let before = contents(&data);
    for folder in [data.join("store"), data.clone()] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o555)).expect("ours");
    }
    let output = unprivileged(&program)
        .args(["server", "--bind", "127.0.0.1:0", "--data-dir", text(&data)])
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(contents(&data) == before, "the directory was changed");
    for folder in [data.clone(), data.join("store")] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("ours");
    }
}
