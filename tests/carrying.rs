//! Objects carried from one server to another: exported as JSON lines, imported from files and straight from a live cluster.

#[path = "process/client.rs"]
mod client;
mod process;

use std::fs;
use std::path::Path;

use client::Client;
use hyper::Method;
use process::{Server, flatkube, flatkube_ok, runtime, text};
use serde_json::{Value, json};

fn serve(data: &Path) -> Server {
    let tokens = data.with_extension("tokens");
    client::write_tokens(&tokens);
    Server::over_http(data, &tokens)
}

async fn post(client: &mut Client, path: &str, body: Value) -> Value {
    let answer = client.post(path, &body).await.expect("an answer");
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()
}

async fn get(client: &mut Client, path: &str) -> Value {
    let answer = client.get(path, "application/json").await.expect("an answer");
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.json()
}

const PODS: &str = "/api/v1/namespaces/shop/pods";
const SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const STATUS: &str = "/api/v1/namespaces/shop/pods/owned/status";

async fn patch(client: &mut Client, path: &str, patch: Value) {
    let headers = [("content-type", "application/merge-patch+json")];
    let patched = client.send(Method::PATCH, path, &headers, patch.to_string()).await;
    assert_eq!(patched.expect("an answer").status, 200);
}

/// A namespace with more than a page of ConfigMaps, a ReplicaSet, and a Pod of it with a status. The namespace and a Secret have
/// owners of kinds that are written after them.
async fn fill(client: &mut Client) {
    let tenant = post(client, ROLES, json!({ "metadata": { "name": "tenant" } })).await;
    let owner = json!([{ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "tenant", "uid": tenant["metadata"]["uid"] }]);
    post(
        client,
        "/api/v1/namespaces",
        json!({ "metadata": { "name": "shop", "labels": { "team": "a" }, "ownerReferences": owner } }),
    )
    .await;
    for number in 0..510 {
        let body =
            json!({ "metadata": { "name": format!("map-{number:04}") }, "data": { "text": format!("ü {number}") } });
        post(client, "/api/v1/namespaces/shop/configmaps", body).await;
    }
    let pod = json!({ "containers": [{ "name": "c", "image": "registry.example/c:1" }] });
    let set = json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": pod },
        },
    });
    let set = post(client, SETS, set).await;
    let owner = |uid: &Value, name: &str| json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": uid, "controller": true }]);
    for (name, owners) in [
        ("owned", owner(&set["metadata"]["uid"], "web")),
        ("orphan", owner(&json!("no-such-uid"), "gone")),
    ] {
        let body =
            json!({ "metadata": { "name": name, "labels": { "app": "web" }, "ownerReferences": owners }, "spec": pod });
        post(client, PODS, body).await;
    }
    let secret = json!({ "metadata": { "name": "of-web", "ownerReferences": owner(&set["metadata"]["uid"], "web") } });
    post(client, "/api/v1/namespaces/shop/secrets", secret).await;
    let status = json!({ "status": { "phase": "Running", "podIP": "10.0.0.7" } });
    patch(client, STATUS, status).await;
}

/// What [`fill`] made is on a server, with the server's own UIDs.
async fn is_there(client: &mut Client, old_set: &Value) {
    let maps = get(client, "/api/v1/namespaces/shop/configmaps").await;
    let maps = maps["items"].as_array().expect("items").clone();
    assert_eq!(
        maps.iter()
            .filter(|map| map["metadata"]["name"] != "kube-root-ca.crt")
            .count(),
        510
    );
    let is_whole = |map: &&Value| map["metadata"]["name"] == "map-0509" && map["data"]["text"] == "ü 509";
    assert!(maps.iter().any(|map| is_whole(&map)));
    assert_eq!(
        get(client, "/api/v1/namespaces/shop").await["metadata"]["labels"]["team"],
        "a"
    );
    let set = get(client, &format!("{SETS}/web")).await;
    assert_ne!(set["metadata"]["uid"], old_set["metadata"]["uid"]);
    let owned = get(client, &format!("{PODS}/owned")).await;
    assert_eq!(owned["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
    assert_eq!(
        (&owned["status"]["phase"], &owned["status"]["podIP"]),
        (&json!("Running"), &json!("10.0.0.7"))
    );
    let secret = get(client, "/api/v1/namespaces/shop/secrets/of-web").await;
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
    let tenant = get(client, &format!("{ROLES}/tenant")).await;
    let namespace = get(client, "/api/v1/namespaces/shop").await;
    assert_eq!(
        namespace["metadata"]["ownerReferences"][0]["uid"],
        tenant["metadata"]["uid"]
    );
    let orphan = get(client, &format!("{PODS}/orphan")).await;
    assert!(orphan["metadata"]["ownerReferences"].is_null(), "{orphan}");
}

fn count(table: &str, row: &str, column: usize) -> u64 {
    let line = table.lines().find(|line| line.starts_with(&format!("{row} ")));
    let line = line.unwrap_or_else(|| panic!("no {row} in {table}"));
    let cells: Vec<&str> = line[row.len()..].split_whitespace().collect();
    let cells: Vec<&&str> = cells.iter().filter(|cell| cell.parse::<u64>().is_ok()).collect();
    cells[column].parse().expect("a number")
}

#[test]
fn a_live_cluster_is_carried_into_another_server_and_a_file_into_a_third() {
    let folder = tempfile::tempdir().expect("a folder");
    let old = serve(&folder.path().join("old"));
    let runtime = runtime();
    let old_set = runtime.block_on(async {
        let mut client = Client::connect(old.http_address()).await.expect("it listens");
        fill(&mut client).await;
        get(&mut client, &format!("{SETS}/web")).await
    });
    let from = text(&old.kubeconfig).to_owned();

    let second = serve(&folder.path().join("second"));
    let to = text(&second.kubeconfig).to_owned();
    let piped = [
        "store",
        "import",
        "--from-kubeconfig",
        &from,
        "--kubeconfig",
        &to,
        "--skip-existing",
    ];
    let would = flatkube_ok(&[&piped[..], &["--dry-run"]].concat());
    assert_eq!(count(&would, "configmaps", 0), 510, "{would}");
    let table = flatkube_ok(&piped);
    assert_eq!(
        (count(&table, "configmaps", 0), count(&table, "pods", 0)),
        (510, 2),
        "{table}"
    );
    runtime.block_on(async {
        let mut client = Client::connect(second.http_address()).await.expect("it listens");
        is_there(&mut client, &old_set).await;
        // As a run leaves it that was broken off before it set the status.
        let lost = json!({ "status": { "phase": "Pending", "podIP": null } });
        patch(&mut client, STATUS, lost).await;
    });
    let again = flatkube_ok(&piped);
    assert_eq!(
        (count(&again, "configmaps", 0), count(&again, "configmaps", 2)),
        (0, 510),
        "{again}"
    );
    runtime.block_on(async {
        let mut client = Client::connect(second.http_address()).await.expect("it listens");
        is_there(&mut client, &old_set).await;
    });

    // What differs is left, refused or replaced, as it is asked for.
    let file = folder.path().join("objects.jsonl");
    let exported = ["store", "export", "--from-kubeconfig", &from, "--output", text(&file)];
    flatkube_ok(&exported);
    assert_eq!(
        flatkube(&exported).status.code(),
        Some(2),
        "a file that is there is not overwritten"
    );
    let lines = fs::read_to_string(&file).expect("text");
    assert!(!lines.contains("\"kind\":\"Event\"") && lines.lines().all(|line| line.contains("\"apiVersion\":")));
    fs::write(&file, lines.replace("ü 42\"", "changed\"")).expect("written");
    let import = ["store", "import", text(&file), "--kubeconfig", &to];
    let refused = flatkube(&import);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("configmaps shop/map-0042") && said.contains("--overwrite"),
        "{said}"
    );
    let table = flatkube_ok(&[&import[..], &["--overwrite"]].concat());
    assert_eq!(count(&table, "configmaps", 1), 1, "{table}");
    runtime.block_on(async {
        let mut client = Client::connect(second.http_address()).await.expect("it listens");
        let map = get(&mut client, "/api/v1/namespaces/shop/configmaps/map-0042").await;
        assert_eq!(map["data"]["text"], "changed");
    });

    // A stopped server's files give the same lines, in whatever order they are read.
    assert!(old.end("TERM").status.success());
    let mut lines: Vec<String> = flatkube_ok(&["store", "export", text(&folder.path().join("old"))])
        .lines()
        .map(str::to_owned)
        .collect();
    lines.reverse();
    fs::write(&file, lines.join("\n")).expect("written");
    let third = serve(&folder.path().join("third"));
    let to = text(&third.kubeconfig).to_owned();
    let table = flatkube_ok(&["store", "import", text(&file), "--kubeconfig", &to, "--skip-existing"]);
    assert_eq!(count(&table, "configmaps", 0), 510, "{table}");
    runtime.block_on(async {
        let mut client = Client::connect(third.http_address()).await.expect("it listens");
        is_there(&mut client, &old_set).await;
    });
}

#[test]
fn what_a_server_does_not_serve_is_named_and_the_rest_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve(&folder.path().join("data"));
    let file = folder.path().join("objects.yaml");
    let yaml = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n---\n\
                apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, namespace: later}\ndata: {a: b}\n---\n\
                apiVersion: v1\nkind: Namespace\nmetadata: {name: later}\n";
    fs::write(&file, yaml).expect("written");
    let imported = flatkube(&["store", "import", text(&file), "--kubeconfig", text(&server.kubeconfig)]);
    assert_eq!(imported.status.code(), Some(1), "{imported:?}");
    assert!(String::from_utf8_lossy(&imported.stderr).contains("does not serve example.com/v1 Widget"));
    let table = String::from_utf8_lossy(&imported.stdout).into_owned();
    assert_eq!(
        (count(&table, "configmaps", 0), count(&table, "namespaces", 0)),
        (1, 1),
        "{table}"
    );
}
