//! Paging, reads of the past and watches while shelving and retention run all the time, at tiny thresholds.
//!
//! Four writers change ConfigMaps through the API. Beside them a pager reads page by page and compares with the same
//! revision read whole; a watcher keeps a copy from events alone, which in the end must be what is there, byte for byte.

#[path = "process/client.rs"]
mod client;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::Client;
use flatkube::admission::plugins::Plugins;
use flatkube::api::server::{Compress, KubeletAccess, Limits, Server, ServerConfig};
use flatkube::auth::AuthenticationOptions;
use flatkube::store::Options;
use hyper::StatusCode;
use serde_json::{Value, json};

const JSON: &str = "application/json";
const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: u64 = 4;
const WRITES: u64 = 600;
const KEYS: u64 = 40;

fn options() -> Options {
    Options {
        segment_bytes_first: 32 << 10,
        segment_bytes: 64 << 10,
        part_bytes: 16 << 10,
        shelve_min_bytes: 4 << 10,
        shelve_quiet: Duration::from_millis(5),
        shelve_pause: Duration::ZERO,
        history_age: Duration::ZERO,
        history_bytes_min: 512 << 10,
        history_bytes: 1 << 20,
        ..Options::default()
    }
}

fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

async fn write(address: SocketAddr, writer: u64) {
    let mut client = Client::connect(address).await.expect("it listens");
    for number in 0..WRITES {
        let random = mix(writer << 32 | number);
        let name = format!("map-{writer}-{:02}", random % KEYS);
        let path = format!("{COLLECTION}/{name}");
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "labels": { "parity": if random & 64 == 0 { "even" } else { "odd" } } },
            "data": { "text": "x".repeat((random >> 8) as usize % 2_000) },
        });
        let answer = match random >> 32 & 3 {
            0 => client.delete(&path).await,
            _ => client.put(&path, &body).await,
        };
        let mut answer = answer.expect("connected");
        if answer.status == StatusCode::NOT_FOUND {
            answer = client.post(COLLECTION, &body).await.expect("connected");
        }
        assert!(answer.status.is_success(), "{name}: {answer:?}");
    }
}

fn revision(list: &Value) -> &str {
    list["metadata"]["resourceVersion"].as_str().expect("a revision")
}

/// Pages and the past agree, or are told to be too old.
async fn page(address: SocketAddr, done: Arc<AtomicBool>) -> (u64, u64) {
    let mut client = Client::connect(address).await.expect("it listens");
    let (mut compared, mut expired) = (0, 0);
    while !done.load(Ordering::SeqCst) {
        let first = client
            .get(&format!("{COLLECTION}?limit=9"), JSON)
            .await
            .expect("connected")
            .json();
        let shown = revision(&first).to_owned();
        let mut items = first["items"].as_array().expect("items").clone();
        let mut next = first["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        let mut too_old = false;
        while !next.is_empty() {
            let answer = client
                .get(&format!("{COLLECTION}?limit=9&continue={next}"), JSON)
                .await
                .expect("connected");
            if answer.status == StatusCode::GONE {
                too_old = true;
                break;
            }
            assert_eq!(answer.status, 200, "{answer:?}");
            let list = answer.json();
            assert_eq!(revision(&list), shown, "pages of different revisions");
            items.extend_from_slice(list["items"].as_array().expect("items"));
            next.clear();
            next.push_str(list["metadata"]["continue"].as_str().unwrap_or_default());
        }
        let path = format!("{COLLECTION}?resourceVersion={shown}&resourceVersionMatch=Exact");
        let exact = client.get(&path, JSON).await.expect("connected");
        if too_old || exact.status == StatusCode::GONE {
            expired += 1;
            continue;
        }
        assert_eq!(exact.status, 200, "{exact:?}");
        let exact = exact.json();
        assert_eq!(
            exact["items"],
            Value::Array(items),
            "pages and the whole of revision {shown}"
        );
        compared += 1;
    }
    (compared, expired)
}

/// Keeps a copy from events. Ends with the event of the object `the-end`.
async fn watch(address: SocketAddr, selector: &str) -> BTreeMap<String, Value> {
    let path = format!("{COLLECTION}?watch=1&allowWatchBookmarks=true&labelSelector={selector}");
    let mut watch = Client::connect(address)
        .await
        .expect("it listens")
        .watch(&path, JSON)
        .await
        .expect("a watch");
    let mut copy = BTreeMap::new();
    let mut last = 0;
    loop {
        let line = watch
            .line()
            .await
            .expect("connected")
            .expect("the server does not end it");
        let mut event: Value = serde_json::from_slice(&line).expect("JSON");
        let mut object = event["object"].take();
        let kind = event["type"].as_str().expect("a type").to_owned();
        assert!(
            ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"].contains(&kind.as_str()),
            "{kind}: {object}"
        );
        let revision: u64 = object["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|text| text.parse().ok())
            .expect("one");
        if kind != "BOOKMARK" {
            assert!(
                copy.is_empty() || revision > last || kind == "ADDED",
                "{revision} after {last}"
            );
            last = last.max(revision);
        }
        let Some(name) = object["metadata"]["name"].as_str().map(str::to_owned) else {
            continue;
        };
        if name == "the-end" {
            return copy;
        }
        let fields = object.as_object_mut().expect("an object");
        fields.remove("kind");
        fields.remove("apiVersion");
        let before = match kind.as_str() {
            "DELETED" => copy.remove(&name).is_some(),
            "MODIFIED" => copy.insert(name.clone(), object).is_some(),
            _ => copy.insert(name.clone(), object).is_none(),
        };
        assert!(before, "{kind} of {name} does not fit what was told before");
    }
}

#[test]
fn readers_see_whole_states_while_shelves_and_history_turn_over() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let tokens = folder.path().join("tokens.csv");
        client::write_tokens(&tokens);
        let server = Server::start(ServerConfig {
            data_dir: folder.path().join("data"),
            bind: "127.0.0.1:0".parse().expect("an address"),
            http_bind: Some("127.0.0.1:0".parse().expect("an address")),
            authentication: AuthenticationOptions {
                token_auth_file: Some(tokens),
                ..AuthenticationOptions::default()
            },
            store: options(),
            controllers: false,
            plugins: Plugins::without_accounts(),
            compress: Compress::default(),
            kubelets: KubeletAccess::default(),
            tls: flatkube::api::server::TlsOptions::default(),
            limits: Limits::default(),
            ..ServerConfig::default()
        })
        .await
        .expect("it starts");
        let address = server.http_address().expect("it listens");
        let done = Arc::new(AtomicBool::new(false));

        let everything = tokio::spawn(watch(address, ""));
        let odd = tokio::spawn(watch(address, "parity%20in%20(odd,end)"));
        let pager = tokio::spawn(page(address, Arc::clone(&done)));
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            writers.spawn(write(address, writer));
        }
        while let Some(ended) = writers.join_next().await {
            ended.expect("a writer's assertion");
        }
        done.store(true, Ordering::SeqCst);
        let (compared, expired) = pager.await.expect("the pager's assertion");

        let mut client = Client::connect(address).await.expect("it listens");
        let list = client.get(COLLECTION, JSON).await.expect("connected").json();
        let there = |wanted: &str| -> BTreeMap<String, Value> {
            let items = list["items"].as_array().expect("items").iter();
            let chosen = items.filter(|item| wanted.is_empty() || item["metadata"]["labels"]["parity"] == wanted);
            chosen
                .map(|item| {
                    (
                        item["metadata"]["name"].as_str().expect("a name").to_owned(),
                        item.clone(),
                    )
                })
                .collect()
        };
        let end = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "the-end", "labels": { "parity": "end" } },
        });
        assert_eq!(client.post(COLLECTION, &end).await.expect("connected").status, 201);
        assert_eq!(everything.await.expect("the watcher's assertion"), there(""));
        assert_eq!(odd.await.expect("the watcher's assertion"), there("odd"));

        let stats = server.store().stats();
        let resource = stats
            .resources
            .iter()
            .find(|resource| resource.name == "configmaps")
            .expect("configmaps");
        println!(
            "{compared} pagings compared, {expired} expired; {} shelvings, floor {}",
            stats.shelvings, resource.floor
        );
        assert!(stats.shelvings > 20, "{stats:?}");
        assert!(resource.floor > 0, "nothing was ever discarded: {resource:?}");
        assert!(compared > 3, "{compared} pagings compared, {expired} expired");
        server.stop().await;
    });
}
