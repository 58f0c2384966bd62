//! Backups of a server that goes on being written, and what is restored from them.

#[path = "process/client.rs"]
mod client;
mod process;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use client::Client;
use process::{Server, flatkube, flatkube_ok, text};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("map-{number:06}") },
        "data": { "text": "x".repeat(number % 3_000) },
    })
}

async fn list(server: &Server) -> Value {
    let mut client = Client::connect(server.http_address()).await.expect("it listens");
    let answer = client.get(MAPS, "application/json").await.expect("an answer");
    answer.json()
}

fn revision(list: &Value) -> u64 {
    let revision = list["metadata"]["resourceVersion"].as_str();
    revision.and_then(|revision| revision.parse().ok()).expect("a revision")
}

#[test]
fn a_backup_of_a_busy_server_restores_to_one_moment_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, tokens) = (folder.path().join("data"), folder.path().join("tokens.csv"));
    client::write_tokens(&tokens);
    let server = Server::over_http(&data, &tokens);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writer = runtime.spawn({
        let (stop, written, address) = (stop.clone(), written.clone(), server.http_address());
        async move {
            let mut client = Client::connect(address).await.expect("it listens");
            while !stop.load(Ordering::SeqCst) {
                let number = written.load(Ordering::SeqCst);
                let answer = client.post(MAPS, &map(number)).await.expect("an answer");
                assert_eq!(answer.status, 201, "{answer:?}");
                written.store(number + 1, Ordering::SeqCst);
            }
        }
    });
    let wait = |count: usize| {
        while written.load(Ordering::SeqCst) < count {
            std::thread::yield_now();
        }
    };

    let file = folder.path().join("backup.tar");
    wait(300);
    let (before, kubeconfig) = (written.load(Ordering::SeqCst), text(&server.kubeconfig).to_owned());
    flatkube_ok(&["store", "backup", "--output", text(&file), "--kubeconfig", &kubeconfig]);
    let after = written.load(Ordering::SeqCst) + 1;
    wait(after + 10);
    stop.store(true, Ordering::SeqCst);
    runtime.block_on(writer).expect("the writer ends");
    let last = revision(&runtime.block_on(list(&server)));

    let again = flatkube(&["store", "backup", "--output", text(&file), "--kubeconfig", &kubeconfig]);
    assert_eq!(again.status.code(), Some(2), "a file that is there is not overwritten");
    assert!(server.end("TERM").status.success());

    for bump in [false, true] {
        let restored = folder.path().join(format!("restored-{bump}"));
        let mut arguments = vec!["store", "restore", text(&file), text(&restored)];
        if bump {
            arguments.push("--bump-revisions");
        }
        flatkube_ok(&arguments);
        let server = Server::over_http(&restored, &tokens);
        let list = runtime.block_on(list(&server));
        let names: Vec<&str> = list["items"]
            .as_array()
            .expect("items")
            .iter()
            .filter_map(|item| item["metadata"]["name"].as_str())
            .filter(|name| name.starts_with("map-"))
            .collect();
        assert!(
            (before..=after).contains(&names.len()),
            "{before}..{after}: {}",
            names.len()
        );
        assert!(
            names
                .iter()
                .enumerate()
                .all(|(number, name)| *name == format!("map-{number:06}"))
        );
        assert_eq!(revision(&list) > last, bump, "{} after {last}", revision(&list));
        let over = flatkube(&["store", "restore", text(&file), text(&restored)]);
        assert_eq!(over.status.code(), Some(2), "a store that is there is not overwritten");
    }
}

#[test]
fn half_a_backup_or_a_damaged_one_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::ephemeral();
    let file = folder.path().join("backup.tar");
    let kubeconfig = text(&server.kubeconfig).to_owned();
    flatkube_ok(&["store", "backup", "--output", text(&file), "--kubeconfig", &kubeconfig]);
    let whole = fs::read(&file).expect("it is there");

    let mut damaged = whole.clone();
    // Within the records of the first file, the log.
    let at = 512 + 64 + 200;
    damaged[at] ^= 1;
    let traps = [&whole[..whole.len() / 2], &damaged, b"no archive at all"];
    for trap in traps {
        fs::write(&file, trap).expect("a file");
        let into = folder.path().join("into");
        let refused = flatkube(&["store", "restore", text(&file), text(&into)]);
        assert_eq!(refused.status.code(), Some(6), "{refused:?}");
        let left = fs::read_dir(&into).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{refused:?}");
    }
}

#[test]
fn a_backup_is_for_administrators() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().join("tokens.csv");
    fs::write(&tokens, format!("{},alice,uid-alice\n", client::TOKEN)).expect("a file");
    let server = Server::over_http(&folder.path().join("data"), &tokens);
    let answer = tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let mut client = Client::connect(server.http_address()).await.expect("it listens");
        client.get("/flatkube/v1/backup", "*/*").await.expect("an answer")
    });
    assert_eq!(answer.status, 403);
    assert!(
        answer.json()["message"]
            .as_str()
            .is_some_and(|message| message.contains("alice"))
    );
}
