//! What an operator does on a bad day, with the real binary: damaged directories are looked at, repaired, and served again.

#[path = "process/client.rs"]
mod client;
mod process;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use client::Client;
use process::{Server, flatkube, flatkube_ok, runtime, text};
use serde_json::json;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn serve(data: &Path) -> Server {
    let tokens = data.with_extension("tokens");
    client::write_tokens(&tokens);
    Server::over_http(data, &tokens)
}

/// A stopped server's directory with 20 ConfigMaps, which are shelved if `shelved`.
fn written(data: &Path, shelved: bool) {
    let server = serve(data);
    runtime().block_on(async {
        let mut client = Client::connect(server.http_address()).await.expect("it listens");
        for number in 0..20 {
            let body = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("map-{number:02}") },
                "data": { "text": format!("text-of-{number:02}-{}", "x".repeat(200)) },
            });
            let answer = client.post(MAPS, &body).await.expect("an answer");
            assert_eq!(answer.status, 201, "{answer:?}");
        }
    });
    while shelved && find(data, "shelf-", "text-of-07-").is_none() {
        std::thread::yield_now();
    }
    assert!(server.end("TERM").status.success());
}

/// The file in the store whose name begins with `prefix` and that holds `sought`, and where.
fn find(data: &Path, prefix: &str, sought: &str) -> Option<(PathBuf, u64)> {
    let files = fs::read_dir(data.join("store")).ok()?;
    let files = files.filter_map(|entry| Some(entry.ok()?.path()));
    let named = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| text(Path::new(name)).starts_with(prefix))
    };
    files.filter(named).find_map(|path| {
        let bytes = fs::read(&path).ok()?;
        let at = bytes
            .windows(sought.len())
            .position(|window| window == sought.as_bytes())?;
        Some((path, at as u64))
    })
}

/// Changes the byte at an offset.
fn rot(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).expect("writable");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("readable");
    file.write_all_at(&[byte[0] ^ 1], at).expect("written");
}

fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path());
    files
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), fs::read(path).expect("readable")))
        .collect()
}

fn aside(data: &Path) -> PathBuf {
    let mut folders = fs::read_dir(data)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path());
    let is_aside = |path: &PathBuf| text(path).contains("/aside-");
    folders.find(is_aside).expect("the originals are kept")
}

fn texts(data: &Path) -> Vec<String> {
    let lines = flatkube_ok(&["store", "export", text(data), "--resource", "configmaps"]);
    let maps = lines.lines().filter(|line| line.contains("text-of-"));
    maps.map(str::to_owned).collect()
}

#[test]
fn a_damaged_shelf_is_repaired_from_the_log_and_the_originals_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    written(&data, true);
    let before = texts(&data);
    let (shelf, at) = find(&data, "shelf-", "text-of-07-").expect("it is shelved");
    rot(&shelf, at);
    let damaged = contents(&data.join("store"));

    let looked = flatkube(&["store", "verify", text(&data)]);
    assert_eq!(looked.status.code(), Some(6), "{looked:?}");
    assert!(
        String::from_utf8_lossy(&looked.stderr).contains("--repair"),
        "{looked:?}"
    );
    let would = flatkube(&["store", "verify", "--repair", "--dry-run", text(&data)]);
    assert_eq!(would.status.code(), Some(6), "{would:?}");
    let said = String::from_utf8_lossy(&would.stdout).into_owned();
    assert!(
        said.contains("written anew") && said.contains("lost: nothing"),
        "{said}"
    );
    assert!(contents(&data.join("store")) == damaged, "a dry run changes nothing");

    flatkube_ok(&["store", "verify", "--repair", text(&data)]);
    assert_eq!(texts(&data), before);
    let kept = contents(&aside(&data));
    for (path, bytes) in &damaged {
        let name = path.file_name().expect("a name");
        assert!(
            name == "lock" || kept[&aside(&data).join(name)] == *bytes,
            "{name:?} was not kept"
        );
    }
    let sound = flatkube_ok(&["store", "verify", "--repair", text(&data)]);
    assert!(sound.starts_with("sound"), "{sound}");

    let server = serve(&data);
    runtime().block_on(async {
        let mut client = Client::connect(server.http_address()).await.expect("it listens");
        let got = client.get(&format!("{MAPS}/map-07"), "application/json").await;
        assert_eq!(got.expect("an answer").status, 200);
    });
    // The server that goes on does not write into what was kept.
    assert!(contents(&aside(&data)) == kept);
}

#[test]
fn what_a_damaged_log_has_lost_is_named_and_given_up_only_when_told_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    written(&data, false);
    let (segment, at) = find(&data, "segment-", "text-of-07-").expect("it is logged");
    if find(&data, "shelf-", "text-of-07-").is_some() {
        // A slow machine has shelved it meanwhile: then the shelf has it, and there is nothing to be lost.
        return;
    }
    rot(&segment, at);
    let damaged = contents(&data.join("store"));
    let refused = Server::start(&["--data-dir", text(&data)]);
    let refused = refused.err().expect("the log is damaged");
    assert_eq!(refused.status.code(), Some(6));
    assert!(refused.log.contains("--repair"), "{refused:?}");

    let asked = flatkube(&["store", "verify", "--repair", text(&data)]);
    assert_eq!(asked.status.code(), Some(6), "{asked:?}");
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
    assert!(said.contains("likely of configmaps default/map-07"), "{said}");
    assert_eq!(said.matches("the write at revision").count(), 1, "{said}");
    assert!(contents(&data.join("store")) == damaged, "nothing is lost silently");

    flatkube_ok(&["store", "verify", "--repair", "--accept-loss", text(&data)]);
    let left = texts(&data);
    assert_eq!(left.len(), 19);
    assert!(!left.iter().any(|line| line.contains("text-of-07-")));
    let server = serve(&data);
    runtime().block_on(async {
        let mut client = Client::connect(server.http_address()).await.expect("it listens");
        let list = client.get(MAPS, "application/json").await.expect("an answer").json();
        let revision = list["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|text| text.parse::<u64>().ok());
        assert!(
            revision.is_some_and(|revision| revision > 1 << 32),
            "no client's cache is fooled"
        );
        let body = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "map-07" } });
        let again = client.post(MAPS, &body).await.expect("an answer");
        assert_eq!(again.status, 201, "it can be written again");
    });
}

#[test]
fn a_server_is_compacted_while_it_runs_and_a_directory_while_none_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    written(&data, true);
    let before = texts(&data);
    let server = serve(&data);
    let kubeconfig = text(&server.kubeconfig).to_owned();
    let list = || async {
        let mut client = Client::connect(server.http_address()).await.expect("it listens");
        client.get(MAPS, "application/json").await.expect("an answer").json()
    };
    let (kept, let_go) = runtime().block_on(async {
        let revision = list().await["metadata"]["resourceVersion"]
            .as_str()
            .expect("a revision")
            .to_owned();
        let old = format!("{MAPS}?resourceVersion=10&resourceVersionMatch=Exact");
        let mut client = Client::connect(server.http_address()).await.expect("it listens");
        let history = client.get(&old, "application/json").await.expect("an answer");
        assert_eq!(history.status, 200, "{history:?}");
        (revision, old)
    });
    let said = flatkube_ok(&["store", "compact", "--keep-history", "1h", "--kubeconfig", &kubeconfig]);
    assert!(said.contains("log ") && said.contains("shelves "), "{said}");
    let status = |path: String| {
        let address = server.http_address();
        runtime().block_on(async move {
            let mut client = Client::connect(address).await.expect("it listens");
            client.get(&path, "application/json").await.expect("an answer").status
        })
    };
    assert_eq!(status(let_go.clone()), 200, "an hour was kept");
    flatkube_ok(&["store", "compact", "--kubeconfig", &kubeconfig]);
    assert_eq!(status(let_go), 410, "clients list anew");
    let now = runtime().block_on(list());
    assert_eq!(
        now["metadata"]["resourceVersion"],
        kept.as_str(),
        "no revision is made by it"
    );
    assert_eq!(
        flatkube(&["store", "compact", text(&data)]).status.code(),
        Some(4),
        "a server uses it"
    );
    assert!(server.end("TERM").status.success());

    flatkube_ok(&["store", "compact", text(&data)]);
    assert_eq!(texts(&data), before);
    flatkube_ok(&["store", "verify", text(&data)]);
    let segments = contents(&data.join("store"))
        .into_iter()
        .filter(|(path, _)| text(path).contains("segment-"));
    let bytes: usize = segments.map(|(_, bytes)| bytes.len()).sum();
    assert!(bytes <= 2 << 20, "the log has {bytes} bytes");
}
