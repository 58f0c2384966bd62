//! What a server gives up before it serves, and where it does not connect to whatever objects say.

#[path = "process/client.rs"]
mod client;
mod process;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use client::Client;
use process::{Server, runtime, text};
use serde_json::json;

/// All files and folders in a folder.
fn all_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut index = 0;
    while let Some(path) = found.get(index) {
        if path.is_dir() {
            let entries = fs::read_dir(path).expect("a folder");
            let entries: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
            found.extend(entries);
        }
        index += 1;
    }
    found
}

#[test]
fn the_data_directory_is_its_owners_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let server = Server::on(&data);
    assert!(server.end("TERM").status.success());
    for path in all_in(&data) {
        let metadata = fs::metadata(&path).expect("it is there");
        let mode = metadata.permissions().mode() & 0o777;
        let is_public = path.extension().is_some_and(|extension| extension == "crt");
        let expected = match (metadata.is_dir(), is_public) {
            (true, _) => 0o700,
            (false, true) => 0o644,
            (false, false) => 0o600,
        };
        assert_eq!(mode, expected, "{} has {mode:o}", path.display());
    }
}

/// The numbers behind a name in what Linux tells of a thread.
fn numbers(status: &str, name: &str) -> Vec<u64> {
    let line = status.lines().find(|line| line.starts_with(name)).expect("it is told");
    let radix = if name.starts_with("Cap") { 16 } else { 10 };
    let words = line.split_whitespace().skip(1);
    words
        .map(|word| u64::from_str_radix(word, radix).expect("a number"))
        .collect()
}

#[test]
fn root_becomes_another_user_with_all_threads_and_for_good() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("LEFT OUT: only root can become another user");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let data = folder.path().join("data");
    let server = Server::start(&["--data-dir", text(&data), "--user", "65534"]).expect("it starts");
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).expect("it runs");
    let mut threads = 0;
    for task in tasks {
        // A thread may end meanwhile.
        let Ok(status) = fs::read_to_string(task.expect("an entry").path().join("status")) else {
            continue;
        };
        threads += 1;
        assert_eq!(numbers(&status, "Uid:"), [65534; 4]);
        assert_eq!(numbers(&status, "Gid:"), [65534; 4]);
        assert!(numbers(&status, "Groups:").is_empty());
        assert_eq!(numbers(&status, "CapEff:"), [0]);
        assert_eq!(numbers(&status, "CapPrm:"), [0]);
        assert_eq!(numbers(&status, "NoNewPrivs:"), [1]);
    }
    assert!(threads > 2, "{threads}");
    assert!(server.end("TERM").status.success());
    for path in all_in(&data) {
        let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&path).expect("it is there"));
        assert_eq!(owner, 65534, "{}", path.display());
    }
    let again = Server::start(&["--data-dir", text(&data), "--user", "65534"]).expect("it starts again");
    assert!(again.end("TERM").status.success());

    let theirs = folder.path().join("theirs");
    fs::create_dir(&theirs).expect("it is made");
    let refused = Server::start(&["--data-dir", text(&theirs), "--user", "65534"]);
    let log = refused.err().expect("it is not theirs").log;
    assert!(
        log.contains("belongs to the user with the number 0") && log.contains("chown -R 65534"),
        "{log}"
    );
    for user in ["root", "0", "nobody-of-this-name"] {
        let refused = Server::start(&["--data-dir", text(&data), "--user", user]);
        assert_eq!(refused.err().expect("it is refused").status.code(), Some(2), "{user}");
    }
}

#[test]
fn networks_that_are_denied_are_not_connected_to_whatever_a_webhook_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, tokens) = (folder.path().join("data"), folder.path().join("tokens.csv"));
    client::write_tokens(&tokens);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("it can");
    let address = listener.local_addr().expect("an address");
    let server = Server::start(&[
        "--data-dir",
        text(&data),
        "--token-auth-file",
        text(&tokens),
        "--http-bind",
        "127.0.0.1:0",
        "--controllers",
        "off",
        "--outbound-denied-cidrs",
        "127.0.0.0/8,::1",
    ])
    .expect("it starts");
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "inside" },
        "webhooks": [{
            "name": "inside.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": { "url": format!("https://{address}/steal") },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }],
        }],
    });
    runtime().block_on(async {
        let mut client = Client::connect(server.http_address()).await.expect("it listens");
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        let made = client.post(path, &webhook).await.expect("an answer");
        assert_eq!(made.status, 201, "{made:?}");
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
        let refused = client
            .post("/api/v1/namespaces/default/configmaps", &map)
            .await
            .expect("an answer");
        assert_eq!(refused.status, 500, "{refused:?}");
        let message = refused.json()["message"].as_str().expect("a message").to_owned();
        assert!(message.contains("address not allowed"), "{message}");
    });
    let came = listener.accept().expect_err("nobody came");
    assert_eq!(came.kind(), std::io::ErrorKind::WouldBlock);
}
