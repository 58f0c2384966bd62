//! The honest test of the one idea: no read parses stored JSON.
//!
//! Pods are written through the API. Then each is written again through the engine, with the sidecar of the true object,
//! but with JSON that is none: bytes of the same length, one letter all over, quotes only around the place of the
//! revision. Whatever a reader then asks must be answered, with those bytes in place: from the delta, from a delta that is
//! frozen while it is shelved, from the shelf, after a restart, and as history.

#[path = "process/client.rs"]
mod client;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Client;
use flatkube::admission::plugins::Plugins;
use flatkube::api::server::{Compress, KubeletAccess, Limits, Server, ServerConfig};
use flatkube::auth::AuthenticationOptions;
use flatkube::resources::{self, Resource};
use flatkube::store::{Change, Options, Precondition, Prepared, Store, Write};
use flatkube_format::sidecar::{access, digits};
use serde_json::{Value, json};

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const PODS: usize = 24;

fn pods() -> &'static Resource {
    resources::find("", "v1", "pods").expect("a built-in resource")
}

/// A Pod that was made unreadable.
#[derive(Clone)]
struct Unreadable {
    namespace: &'static str,
    name: String,
    number: usize,
    prepared: Prepared,
    /// The stored bytes, with the digits of the revision.
    stored: Vec<u8>,
    /// The part of them that the sidecar calls `metadata`.
    metadata: Vec<u8>,
    revision: u64,
}

impl Unreadable {
    /// The answer to a get of it.
    fn whole(&self) -> Vec<u8> {
        [&br#"{"kind":"Pod","apiVersion":"v1","#[..], &self.stored[1..]].concat()
    }
}

/// `prepared` with JSON that is none: of the stored form it keeps the first brace, which every answer may take for
/// granted, and the quotes around the revision.
fn spoiled(prepared: &Prepared, letter: u8) -> Prepared {
    let mut json = vec![letter; prepared.json.len()];
    let splice = prepared.splice as usize;
    json[splice - 1] = b'"';
    json[splice] = b'"';
    json[0] = b'{';
    Prepared {
        json,
        splice: prepared.splice,
        sidecar: prepared.sidecar.clone(),
    }
}

async fn spoil(store: &Store, namespace: &'static str, name: &str, number: usize, mut object: Value) -> Unreadable {
    // What is not part of the stored form.
    object["metadata"]["resourceVersion"].take();
    let prepared = resources::encode(pods(), &object.into()).expect("a Pod can be stored");
    let prepared = spoiled(&prepared, b'a' + (number % 26) as u8);
    write(store, namespace, name, number, prepared).await
}

async fn write(store: &Store, namespace: &'static str, name: &str, number: usize, prepared: Prepared) -> Unreadable {
    let written = store
        .write(Write {
            resource: Arc::from("pods"),
            key: format!("{namespace}/{name}"),
            precondition: Precondition::Exists,
            uid: None,
            change: Change::Put(prepared.clone()),
        })
        .await
        .expect("written");
    let digits = digits(written.revision);
    let [before, after] = prepared.halves().expect("a place for the revision");
    let stored = [before, digits.as_bytes(), after].concat();
    assert_eq!(written.object.json().expect("sound"), stored);
    serde_json::from_slice::<Value>(&stored).expect_err("this is JSON after all");
    let span = access(&prepared.sidecar)
        .expect("an archive")
        .metadata_span(digits.len());
    Unreadable {
        namespace,
        name: name.to_owned(),
        number,
        metadata: stored[span].to_vec(),
        stored,
        revision: written.revision,
        prepared,
    }
}

fn manifest(namespace: &str, number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("pod-{number:02}"), "namespace": namespace,
            "labels": { "tier": if number.is_multiple_of(3) { "web" } else { "db" }, "number": number.to_string() },
        },
        "spec": { "nodeName": format!("node-{}", number % 4), "containers": [{ "name": "main", "image": "main:1" }] },
    })
}

fn config(folder: &Path) -> ServerConfig {
    ServerConfig {
        data_dir: folder.join("data"),
        bind: "127.0.0.1:0".parse().expect("an address"),
        http_bind: Some("127.0.0.1:0".parse().expect("an address")),
        authentication: AuthenticationOptions {
            token_auth_file: Some(folder.join("tokens.csv")),
            ..AuthenticationOptions::default()
        },
        store: Options {
            // The test says when to shelve, and a shelving takes long enough to be read beside.
            background: false,
            shelve_step_bytes: 1024,
            shelve_pause: Duration::from_millis(100),
            ..Options::default()
        },
        controllers: false,
        plugins: Plugins::without_accounts(),
        compress: Compress::default(),
        kubelets: KubeletAccess::default(),
        tls: flatkube::api::server::TlsOptions::default(),
        limits: Limits::default(),
        ..ServerConfig::default()
    }
}

/// The bytes between the brackets of `items`.
fn items(body: &Bytes) -> &[u8] {
    let mark = br#""items":["#;
    let start = body
        .windows(mark.len())
        .position(|window| window == mark)
        .expect("items")
        + mark.len();
    let end = body.iter().rposition(|byte| *byte == b']').expect("the end of items");
    &body[start..end]
}

fn joined<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    parts.collect::<Vec<_>>().join(&b","[..])
}

async fn get(address: SocketAddr, path: &str, accept: &str) -> Bytes {
    let mut client = Client::connect(address).await.expect("it listens");
    let answer = client
        .get(path, accept)
        .await
        .unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.body
}

#[track_caller]
fn same(found: &[u8], expected: &[u8], what: &str) {
    assert!(
        found == expected,
        "{what}:\nfound    {}\nexpected {}",
        String::from_utf8_lossy(found),
        String::from_utf8_lossy(expected)
    );
}

/// Which Pods a list should hold.
type Chosen<'a> = Box<dyn Fn(&Unreadable) -> bool + 'a>;

/// Every way to ask for what is there now.
async fn read_all(address: SocketAddr, pods: &[Unreadable], stage: &str) {
    let mut sorted: Vec<&Unreadable> = pods.iter().collect();
    sorted.sort_by_key(|pod| format!("{}/{}", pod.namespace, pod.name));

    // One by one.
    for pod in &sorted {
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        same(
            get(address, &path, JSON).await.trim_ascii_end(),
            &pod.whole(),
            &format!("{stage}: get"),
        );
        let partial = get(address, &path, PARTIAL).await;
        assert!(
            partial.windows(pod.metadata.len()).any(|window| window == pod.metadata),
            "{stage}: partial get"
        );
        let table: Value = serde_json::from_slice(&get(address, &format!("{path}?includeObject=None"), TABLE).await)
            .expect("a Table without objects is JSON");
        assert_eq!(table["rows"][0]["cells"][0], pod.name.as_str(), "{stage}: Table of one");
    }

    // Lists and selections.
    let cases: Vec<(&str, Chosen<'_>)> = vec![
        ("/api/v1/pods", Box::new(|_| true)),
        ("/api/v1/namespaces/one/pods", Box::new(|pod| pod.namespace == "one")),
        (
            "/api/v1/pods?labelSelector=tier%3Dweb",
            Box::new(|pod| pod.number % 3 == 0),
        ),
        (
            "/api/v1/pods?labelSelector=tier%21%3Dweb",
            Box::new(|pod| pod.number % 3 != 0),
        ),
        (
            "/api/v1/pods?labelSelector=number%20in%20(3,4,11)",
            Box::new(|pod| [3, 4, 11].contains(&pod.number)),
        ),
        (
            "/api/v1/pods?labelSelector=tier,number%20notin%20(3)",
            Box::new(|pod| pod.number != 3),
        ),
        ("/api/v1/pods?labelSelector=%21tier", Box::new(|_| false)),
        (
            "/api/v1/pods?labelSelector=number%3E20",
            Box::new(|pod| pod.number > 20),
        ),
        (
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1",
            Box::new(|pod| pod.number % 4 == 1),
        ),
        (
            "/api/v1/pods?fieldSelector=spec.nodeName%21%3Dnode-1",
            Box::new(|pod| pod.number % 4 != 1),
        ),
        (
            "/api/v1/pods?fieldSelector=metadata.name%3Dpod-07",
            Box::new(|pod| pod.number == 7),
        ),
        (
            "/api/v1/pods?fieldSelector=status.phase%3DPending,metadata.namespace%3Dtwo",
            Box::new(|pod| pod.namespace == "two"),
        ),
        (
            "/api/v1/namespaces/two/pods?fieldSelector=spec.nodeName%3Dnode-1&labelSelector=tier%3Dweb",
            Box::new(|pod| pod.namespace == "two" && pod.number % 4 == 1 && pod.number % 3 == 0),
        ),
        ("/api/v1/pods?resourceVersion=0", Box::new(|_| true)),
    ];
    for (path, chosen) in &cases {
        let chosen: Vec<&&Unreadable> = sorted.iter().filter(|pod| chosen(pod)).collect();
        let what = format!("{stage}: {path}");
        let expected = joined(chosen.iter().map(|pod| &pod.stored[..]));
        same(items(&get(address, path, JSON).await), &expected, &what);

        let and = if path.contains('?') { '&' } else { '?' };
        let table = get(address, &format!("{path}{and}includeObject=None"), TABLE).await;
        let table: Value = serde_json::from_slice(&table).expect("a Table without objects is JSON");
        let names: Vec<&str> = table["rows"]
            .as_array()
            .expect("rows")
            .iter()
            .filter_map(|row| row["cells"][0].as_str())
            .collect();
        assert_eq!(
            names,
            chosen.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(),
            "{what} as a Table"
        );
        for (include, part) in [("Metadata", true), ("Object", false)] {
            let table = get(address, &format!("{path}{and}includeObject={include}"), TABLE).await;
            let mut rest = &table[..];
            for pod in &chosen {
                let part = if part { &pod.metadata[..] } else { &pod.stored[1..] };
                let at = rest.windows(part.len()).position(|window| window == part);
                rest = &rest[at.unwrap_or_else(|| panic!("{what}: {} is not in the Table ({include})", pod.name))..];
            }
        }
        let partial = get(address, path, PARTIAL_LIST).await;
        let mut rest = &partial[..];
        for pod in &chosen {
            let at = rest
                .windows(pod.metadata.len())
                .position(|window| window == pod.metadata);
            rest = &rest[at.unwrap_or_else(|| panic!("{what}: {} is not in the metadata list", pod.name))..];
        }
    }

    // In pages.
    for limit in [1, 5, PODS - 1] {
        let mut pages = Vec::new();
        let mut next = String::new();
        loop {
            let page = get(address, &format!("/api/v1/pods?limit={limit}&continue={next}"), JSON).await;
            let head = String::from_utf8_lossy(&page[..page.len().min(600)]).into_owned();
            pages.push(items(&page).to_vec());
            match head.split_once(r#""continue":""#) {
                Some((_, rest)) => {
                    next = rest
                        .split('"')
                        .next()
                        .expect("a token")
                        .replace('+', "%2B")
                        .replace('=', "%3D");
                }
                None => break,
            }
        }
        let expected = joined(sorted.iter().map(|pod| &pod.stored[..]));
        same(
            &joined(pages.iter().map(Vec::as_slice)),
            &expected,
            &format!("{stage}: pages of {limit}"),
        );
    }

    // As the first events of a watch.
    let mut client = Client::connect(address).await.expect("it listens");
    let path = "/api/v1/namespaces/one/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = std::mem::replace(&mut client, Client::connect(address).await.expect("it listens"))
        .watch(path, JSON)
        .await
        .expect("a watch");
    for pod in sorted.iter().filter(|pod| pod.namespace == "one") {
        let line = watch.line().await.expect("connected").expect("an event");
        let expected = [br#"{"type":"ADDED","object":"#, &pod.whole()[..], b"}"].concat();
        same(&line, &expected, &format!("{stage}: first events"));
    }
}

/// The writes after `revision`, as a watch tells them.
async fn history(address: SocketAddr, after: u64, written: &[Unreadable], stage: &str) {
    let path = format!("/api/v1/pods?watch=1&resourceVersion={after}");
    let mut watch = Client::connect(address)
        .await
        .expect("it listens")
        .watch(&path, JSON)
        .await
        .expect("a watch");
    for pod in written {
        let line = watch.line().await.expect("connected").expect("an event");
        let expected = [br#"{"type":"MODIFIED","object":"#, &pod.whole()[..], b"}"].concat();
        same(&line, &expected, &format!("{stage}: history"));
    }
    // As rows and as metadata, too.
    let mut watch = Client::connect(address)
        .await
        .expect("it listens")
        .watch(&format!("{path}&includeObject=None"), TABLE)
        .await
        .expect("a watch");
    for pod in written {
        let line = watch.line().await.expect("connected").expect("an event");
        let event: Value = serde_json::from_slice(&line).expect("a Table without objects is JSON");
        assert_eq!(
            event["object"]["rows"][0]["cells"][0],
            pod.name.as_str(),
            "{stage}: history as a Table"
        );
    }
    let mut watch = Client::connect(address)
        .await
        .expect("it listens")
        .watch(&path, PARTIAL)
        .await
        .expect("a watch");
    for pod in written {
        let line = watch.line().await.expect("connected").expect("an event");
        assert!(
            line.windows(pod.metadata.len()).any(|window| window == pod.metadata),
            "{stage}: history as metadata"
        );
    }
}

/// Whether a shelf part with `pod` in it is written and not in use yet: then its delta is frozen.
fn is_being_shelved(store: &Path, pod: &Unreadable) -> bool {
    let entries = std::fs::read_dir(store).expect("the store");
    entries.flatten().map(|entry| entry.path()).any(|path| {
        path.extension().is_some_and(|extension| extension == "new")
            && std::fs::read(&path)
                .is_ok_and(|bytes| bytes.windows(pod.stored.len()).any(|window| window == pod.stored))
    })
}

#[test]
fn whatever_is_asked_is_answered_without_a_look_into_the_json() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(scenario());
}

async fn scenario() {
    let folder = tempfile::tempdir().expect("a folder");
    client::write_tokens(&folder.path().join("tokens.csv"));
    let server = Server::start(config(folder.path())).await.expect("it starts");
    let address = server.http_address().expect("it listens");
    let store = Arc::clone(server.store());

    let mut client = Client::connect(address).await.expect("it listens");
    let mut pods = Vec::new();
    for namespace in ["one", "two"] {
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        assert_eq!(
            client
                .post("/api/v1/namespaces", &body)
                .await
                .expect("an answer")
                .status,
            201
        );
    }
    let mut created = Vec::new();
    for number in 0..PODS {
        let namespace = if number % 2 == 0 { "one" } else { "two" };
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let answer = client
            .post(&path, &manifest(namespace, number))
            .await
            .expect("an answer");
        assert_eq!(answer.status, 201, "{answer:?}");
        created.push((namespace, number, answer.json()));
    }
    let before = store.view().revision();
    for (namespace, number, object) in created {
        pods.push(spoil(&store, namespace, &format!("pod-{number:02}"), number, object).await);
    }
    let after = store.view().revision();
    assert_eq!(after, before + PODS as u64);

    read_all(address, &pods, "delta").await;
    history(address, before, &pods, "delta").await;

    let shelving = std::thread::spawn({
        let store = Arc::clone(&store);
        move || store.maintain(true)
    });
    while !is_being_shelved(&folder.path().join("data/store"), &pods[0]) {
        assert!(!shelving.is_finished(), "it was never seen frozen");
        tokio::task::yield_now().await;
    }
    read_all(address, &pods, "frozen delta").await;
    history(address, before, &pods, "frozen delta").await;
    assert!(
        !shelving.is_finished(),
        "the shelving was faster than the reads: this has shown nothing"
    );
    tokio::task::spawn_blocking(move || shelving.join().expect("shelved"))
        .await
        .expect("joined");

    for pod in &pods {
        let object = store
            .view()
            .get("pods", &format!("{}/{}", pod.namespace, pod.name))
            .expect("sound")
            .expect("there");
        assert!(object.is_shelved(), "{} is on the shelf", pod.name);
    }
    read_all(address, &pods, "shelf").await;
    history(address, before, &pods, "shelf").await;

    drop((store, client));
    server.stop().await;
    let server = Server::start(config(folder.path())).await.expect("it starts again");
    let address = server.http_address().expect("it listens");
    let store = Arc::clone(server.store());
    read_all(address, &pods, "restart").await;
    history(address, before, &pods, "restart").await;

    // Shelf and delta mixed, and the past: every third is written anew, with other letters.
    let past = pods.clone();
    let shown = store.view().revision();
    let mut again = Vec::new();
    for pod in pods.iter_mut().filter(|pod| pod.number % 3 == 0) {
        let prepared = spoiled(&pod.prepared, b'A' + pod.number as u8);
        *pod = write(&store, pod.namespace, &pod.name, pod.number, prepared).await;
        again.push(pod.clone());
    }
    read_all(address, &pods, "shelf and delta").await;
    history(address, shown, &again, "shelf and delta").await;
    let mut sorted: Vec<&Unreadable> = past.iter().collect();
    sorted.sort_by_key(|pod| format!("{}/{}", pod.namespace, pod.name));
    let path = format!("/api/v1/pods?resourceVersionMatch=Exact&resourceVersion={shown}");
    let expected = joined(sorted.iter().map(|pod| &pod.stored[..]));
    same(items(&get(address, &path, JSON).await), &expected, "the past");

    // What leaves a selection is shown as it was before, under the revision of the change.
    let leaving = pods
        .iter()
        .find(|pod| pod.number == 6)
        .expect("one of tier web")
        .clone();
    let path = format!(
        "/api/v1/namespaces/one/pods?watch=1&resourceVersion={}&labelSelector=tier%3Dweb",
        store.view().revision()
    );
    let mut watch = Client::connect(address)
        .await
        .expect("it listens")
        .watch(&path, JSON)
        .await
        .expect("a watch");
    let mut moved = manifest("one", 6);
    moved["metadata"]["labels"]["tier"] = json!("elsewhere");
    moved["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
    let prepared = spoiled(&resources::encode(self::pods(), &moved.into()).expect("a Pod"), b'z');
    let written = write(&store, "one", &leaving.name, 6, prepared).await;
    let line = watch.line().await.expect("connected").expect("an event");
    let [head, tail] = leaving.prepared.halves().expect("a place for the revision");
    let shown = [&head[1..], digits(written.revision).as_bytes(), tail].concat();
    let expected = [
        &br#"{"type":"DELETED","object":{"kind":"Pod","apiVersion":"v1","#[..],
        &shown,
        b"}",
    ]
    .concat();
    same(&line, &expected, "what leaves a selection");

    drop((store, watch));
    server.stop().await;
}
