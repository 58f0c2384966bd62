//! Secrets at rest: what lies in the data directory and in backups is searched for what clients wrote, and clients get it back
//! whatever happened in between.

#[path = "../process/client.rs"]
mod client;
mod kms;
#[path = "../process/mod.rs"]
mod process;
mod stored;

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::{Answer, Client};
use hyper::{Method, StatusCode};
use process::{Ended, Server, flatkube_ok, runtime, text};
use serde_json::{Value, json};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// A data directory, and the file that says what is encrypted in it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Place {
            folder: tempfile::tempdir().expect("a folder"),
        };
        client::write_tokens(&place.path("tokens.csv"));
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Providers of Secrets, the first one first.
    fn configure(&self, providers: &[Value]) {
        self.configure_for(&["secrets"], providers);
    }

    fn configure_for(&self, resources: &[&str], providers: &[Value]) {
        let config = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
            "resources": [{ "resources": resources, "providers": providers }],
        });
        let (new, path) = (self.path("encryption.new"), self.path("encryption.yaml"));
        fs::write(&new, config.to_string()).expect("it is written");
        fs::rename(new, path).expect("it is replaced");
    }

    fn start(&self, data: &str, more: &[&str]) -> Result<Server, Ended> {
        let (data, tokens) = (self.path(data), self.path("tokens.csv"));
        let mut arguments = vec!["--data-dir", text(&data), "--token-auth-file", text(&tokens)];
        arguments.extend(["--http-bind", "127.0.0.1:0", "--controllers", "off"]);
        arguments.extend(more);
        Server::start(&arguments)
    }

    fn encrypted(&self) -> Server {
        let config = self.path("encryption.yaml");
        let more = [
            "--encryption-provider-config",
            text(&config),
            "--encryption-provider-config-automatic-reload",
        ];
        self.start("data", &more).unwrap_or_else(|ended| panic!("{ended:?}"))
    }

    /// Files of the store that hold `needle`.
    fn holding(&self, folder: &str, needle: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.path(folder)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else if holds(&path, needle) {
                    found.push(path);
                }
            }
        }
        found
    }
}

fn holds(path: &Path, needle: &str) -> bool {
    // A file may go while a server runs.
    let bytes = fs::read(path).unwrap_or_default();
    bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
}

fn key(provider: &str, name: &str, byte: u8) -> Value {
    json!({ provider: { "keys": [{ "name": name, "secret": STANDARD.encode([byte; 32]) }] } })
}

fn secret(name: &str, marker: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": name, "labels": { "app": name }, "annotations": { "last-applied": format!("annotated-{marker}") } },
        "data": { "password": STANDARD.encode(marker) },
    })
}

/// As what a marker lies in stored JSON that nobody encrypted.
fn traces(marker: &str) -> [String; 2] {
    [STANDARD.encode(marker), format!("annotated-{marker}")]
}

async fn connect(server: &Server) -> Client {
    Client::connect(server.http_address()).await.expect("it listens")
}

async fn get(server: &Server, path: &str, accept: &str) -> Answer {
    connect(server).await.get(path, accept).await.expect("an answer")
}

async fn patch(client: &mut Client, path: &str, kind: &str, body: &Value) -> Answer {
    let headers = [("content-type", kind)];
    let answer = client.send(Method::PATCH, path, &headers, body.to_string()).await;
    answer.expect("an answer")
}

/// Everything that clients can see of Secrets, but revisions of lists.
async fn seen(server: &Server) -> Vec<Value> {
    let mut seen = Vec::new();
    for (path, accept) in [
        (SECRETS.to_owned(), JSON),
        (format!("{SECRETS}?labelSelector=app%3Dtwo"), JSON),
        (format!("{SECRETS}?fieldSelector=type%3DOpaque"), JSON),
        (format!("{SECRETS}?limit=1"), JSON),
        (format!("{SECRETS}/one"), JSON),
        (
            format!("{SECRETS}/two"),
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ),
        (
            SECRETS.to_owned(),
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        ),
        (format!("{SECRETS}?includeObject=Object"), TABLE),
    ] {
        let answer = get(server, &path, accept).await;
        assert_eq!(answer.status, StatusCode::OK, "{path} as {accept}: {answer:?}");
        let mut json = answer.json();
        for varying in ["resourceVersion", "continue"] {
            if json["kind"] != "Secret" && json["kind"] != "PartialObjectMetadata" {
                json["metadata"][varying].take();
            }
        }
        for row in json["rows"].as_array_mut().into_iter().flatten() {
            // The age.
            row["cells"][3].take();
        }
        seen.push(json);
    }
    seen
}

/// Creates, replaces, patches, applies and deletes Secrets, with a marker each; the markers.
async fn write(server: &Server) -> Vec<String> {
    let markers: Vec<String> = (0..8)
        .map(|number| format!("marker-of-write-{number}-that-is-long"))
        .collect();
    let mut client = connect(server).await;
    let created = client
        .post(SECRETS, &secret("one", &markers[0]))
        .await
        .expect("an answer");
    assert_eq!(created.status, StatusCode::CREATED, "{created:?}");
    assert_eq!(created.json()["data"]["password"], STANDARD.encode(&markers[0]));
    for (name, marker) in [("two", &markers[1]), ("gone", &markers[2])] {
        let answer = client.post(SECRETS, &secret(name, marker)).await.expect("an answer");
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    }
    let one = format!("{SECRETS}/one");
    let replaced = client.put(&one, &secret("one", &markers[3])).await.expect("an answer");
    assert_eq!(replaced.status, StatusCode::OK, "{replaced:?}");
    let data = json!({ "data": { "more": STANDARD.encode(&markers[4]) } });
    let patched = patch(&mut client, &one, "application/merge-patch+json", &data).await;
    assert_eq!(patched.status, StatusCode::OK, "{patched:?}");
    let applied = format!("{SECRETS}/two?fieldManager=test&force=true");
    let applied = patch(
        &mut client,
        &applied,
        "application/apply-patch+yaml",
        &secret("two", &markers[5]),
    )
    .await;
    assert_eq!(applied.status, StatusCode::OK, "{applied:?}");
    let gone = client.delete(&format!("{SECRETS}/gone")).await.expect("an answer");
    assert_eq!(gone.status, StatusCode::OK, "{gone:?}");
    let typed = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "plain" }, "stringData": { "a": markers[6] } });
    let answer = client.post(SECRETS, &typed).await.expect("an answer");
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    let open =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "open" }, "data": { "a": markers[7] } });
    let answer = client.post(MAPS, &open).await.expect("an answer");
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    markers
}

/// The events of a watch from the beginning of history, as text.
async fn watched(server: &Server, count: usize) -> Vec<Value> {
    let mut watch = connect(server)
        .await
        .watch(&format!("{SECRETS}?watch=true&resourceVersion=1"), JSON)
        .await
        .expect("a watch");
    let mut events = Vec::new();
    while events.len() < count {
        let line = watch.line().await.expect("a line").expect("the watch goes on");
        events.push(serde_json::from_slice(&line).expect("JSON"));
    }
    events
}

fn compact(server: &Server) {
    flatkube_ok(&["store", "compact", "--kubeconfig", text(&server.kubeconfig)]);
}

/// Nothing of a Secret is in any file; what is not encrypted is, or the search would prove nothing.
fn assert_hidden(place: &Place, folder: &str, markers: &[String]) {
    let (open, secret) = markers.split_last().expect("markers");
    assert!(
        !place.holding(folder, open).is_empty(),
        "the search finds what is there"
    );
    for trace in secret.iter().flat_map(|marker| traces(marker)) {
        assert_eq!(place.holding(folder, &trace), Vec::<PathBuf>::new(), "{trace}");
    }
}

#[test]
fn no_file_holds_what_is_in_a_secret_and_clients_get_it_all() {
    let place = Place::new();
    let runtime = runtime();
    // What they get without encryption is what they are to get with it.
    let plain = place.start("plain", &[]).unwrap_or_else(|ended| panic!("{ended:?}"));
    let markers = runtime.block_on(write(&plain));
    for trace in traces(&markers[0]) {
        assert!(
            !place.holding("plain", &trace).is_empty(),
            "{trace} is there unless it is encrypted"
        );
    }
    let without_identity = |mut seen: Vec<Value>| {
        fn strip(value: &mut Value) {
            match value {
                Value::Object(fields) => {
                    fields.retain(|name, _| {
                        !matches!(name.as_str(), "uid" | "resourceVersion" | "creationTimestamp" | "time")
                    });
                    fields.values_mut().for_each(strip);
                }
                Value::Array(items) => items.iter_mut().for_each(strip),
                _ => {}
            }
        }
        seen.iter_mut().for_each(strip);
        seen
    };
    let expected = without_identity(runtime.block_on(seen(&plain)));
    let expected_events = without_identity(runtime.block_on(watched(&plain, 8)));
    drop(plain);

    for provider in ["aesgcm", "secretbox"] {
        let _ = fs::remove_dir_all(place.path("data"));
        place.configure(&[key(provider, "first", 1)]);
        let server = place.encrypted();
        let markers = runtime.block_on(write(&server));
        assert_hidden(&place, "data", &markers);
        let now = runtime.block_on(seen(&server));
        assert_eq!(without_identity(now.clone()), expected, "from the log, {provider}");
        let events = without_identity(runtime.block_on(watched(&server, 8)));
        assert_eq!(events, expected_events, "watched, {provider}");
        server.kill();

        let server = place.encrypted();
        assert_eq!(runtime.block_on(seen(&server)), now, "after a kill, {provider}");
        let events = without_identity(runtime.block_on(watched(&server, 8)));
        assert_eq!(events, expected_events, "watched after a kill, {provider}");
        compact(&server);
        assert_eq!(runtime.block_on(seen(&server)), now, "from shelves, {provider}");
        assert_hidden(&place, "data", &markers);
        let backup = place.path(&format!("{provider}.tar"));
        flatkube_ok(&[
            "store",
            "backup",
            "--output",
            text(&backup),
            "--kubeconfig",
            text(&server.kubeconfig),
        ]);
        assert!(holds(&backup, &markers[7]));
        for trace in markers[..7].iter().flat_map(|marker| traces(marker)) {
            assert!(!holds(&backup, &trace), "{trace} is in the backup");
        }
        let ended = server.end("TERM");
        assert!(ended.status.success());
        for trace in markers.iter().flat_map(|marker| traces(marker)) {
            assert!(!ended.log.contains(&trace), "{trace} is in what the server said");
        }
        let data = place.path("data");
        flatkube_ok(&["store", "verify", text(&data)]);
        flatkube_ok(&["store", "compact", text(&data)]);
        assert_hidden(&place, "data", &markers);
        let server = place.encrypted();
        assert_eq!(runtime.block_on(seen(&server)), now, "after all, {provider}");
    }
}

#[test]
fn another_key_or_none_is_told_before_anything_is_served() {
    let place = Place::new();
    place.configure(&[key("secretbox", "first", 1)]);
    let server = place.encrypted();
    runtime().block_on(write(&server));
    assert!(server.end("TERM").status.success());
    let config = place.path("encryption.yaml");
    let refusal = |more: &[&str]| {
        let ended = place.start("data", more).err().expect("it does not start");
        assert!(!ended.status.success());
        ended.log
    };
    let with_config = ["--encryption-provider-config", text(&config)];
    let log = refusal(&[]);
    assert!(
        log.contains("secrets default/one is encrypted by k8s:enc:secretbox:v1:first"),
        "{log}"
    );
    assert!(
        log.contains("no --encryption-provider-config names its resource"),
        "{log}"
    );
    place.configure(&[key("secretbox", "first", 2)]);
    let log = refusal(&with_config);
    assert!(log.contains("the key of that name does not open it"), "{log}");
    place.configure(&[key("secretbox", "second", 1)]);
    let log = refusal(&with_config);
    assert!(log.contains("the encryption configuration has no such key"), "{log}");
    place.configure(&[json!({ "aescbc": {} })]);
    let log = refusal(&with_config);
    assert!(log.contains("aescbc is not offered"), "{log}");
    place.configure(&[key("secretbox", "first", 1)]);
    assert!(runtime().block_on(seen(&place.encrypted())).len() > 1);
}

/// Waits until no file of the data directory holds `needle`, with a compaction before each look.
fn wait_until_gone(place: &Place, server: &Server, needle: &str) {
    let began = std::time::Instant::now();
    loop {
        compact(server);
        if place.holding("data", needle).is_empty() {
            return;
        }
        assert!(
            began.elapsed().as_secs() < 60,
            "{needle} is still in {:?}",
            place.holding("data", needle)
        );
        std::thread::yield_now();
    }
}

#[test]
fn a_new_first_key_has_everything_written_anew_and_the_old_one_can_go() {
    let place = Place::new();
    let runtime = runtime();
    // From no encryption at all ...
    let server = place.start("data", &[]).unwrap_or_else(|ended| panic!("{ended:?}"));
    let markers = runtime.block_on(write(&server));
    assert!(server.end("TERM").status.success());
    let identity = json!({ "identity": {} });
    let (first, second) = (key("aesgcm", "first", 1), key("secretbox", "second", 2));
    place.configure(&[first.clone(), identity.clone()]);
    let server = place.encrypted();
    wait_until_gone(&place, &server, &traces(&markers[5])[0]);
    assert_hidden(&place, "data", &markers);
    let data = |seen: &[Value]| seen[4]["data"].clone();
    let now = runtime.block_on(seen(&server));
    // ... to another key while the server runs ...
    place.configure(&[second.clone(), first]);
    wait_until_gone(&place, &server, "k8s:enc:aesgcm:v1:first");
    assert_eq!(data(&runtime.block_on(seen(&server))), data(&now));
    // ... which is enough after a kill ...
    server.kill();
    place.configure(std::slice::from_ref(&second));
    let server = place.encrypted();
    assert_eq!(data(&runtime.block_on(seen(&server))), data(&now));
    assert_hidden(&place, "data", &markers);
    // ... and back to none.
    place.configure(&[identity, second]);
    wait_until_gone(&place, &server, "k8s:enc:secretbox:v1:second");
    assert!(!place.holding("data", &traces(&markers[5])[0]).is_empty());
    assert_eq!(data(&runtime.block_on(seen(&server))), data(&now));
    assert!(server.end("TERM").status.success());
    let server = place.start("data", &[]).unwrap_or_else(|ended| panic!("{ended:?}"));
    assert_eq!(data(&runtime.block_on(seen(&server))), data(&now));
}

#[test]
fn a_kill_while_everything_is_written_anew_loses_nothing() {
    const SECRETS_COUNT: usize = 300;
    let place = Place::new();
    let runtime = runtime();
    let (first, second) = (key("secretbox", "first", 1), key("aesgcm", "second", 2));
    place.configure(std::slice::from_ref(&first));
    let server = place.encrypted();
    runtime.block_on(async {
        let mut client = connect(&server).await;
        for number in 0..SECRETS_COUNT {
            let body = secret(&format!("s-{number:03}"), &format!("marker-{number:03}"));
            let answer = client.post(SECRETS, &body).await.expect("an answer");
            assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        }
    });
    assert!(server.end("TERM").status.success());
    place.configure(&[second, first]);
    let mut kills = 0;
    let server = loop {
        let server = place.encrypted();
        // Killed at once after the first ones are written, until a start finds little left to do.
        while kills < 3 && place.holding("data/store", "k8s:enc:aesgcm:v1:second").is_empty() {
            std::thread::yield_now();
        }
        if kills == 3 {
            break server;
        }
        server.kill();
        kills += 1;
    };
    let list = || {
        let list = runtime.block_on(get(&server, SECRETS, JSON)).json();
        let items = list["items"].as_array().expect("items").clone();
        items
            .into_iter()
            .map(|item| item["data"]["password"].clone())
            .collect::<Vec<_>>()
    };
    let expected: Vec<Value> = (0..SECRETS_COUNT)
        .map(|number| STANDARD.encode(format!("marker-{number:03}")).into())
        .collect();
    assert_eq!(list(), expected);
    wait_until_gone(&place, &server, "k8s:enc:secretbox:v1:first");
    assert_eq!(list(), expected);
}

#[test]
fn custom_objects_are_selected_by_fields_that_their_definition_names_later() {
    let place = Place::new();
    place.configure_for(&["*.*"], &[key("aesgcm", "first", 1)]);
    let server = place.encrypted();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let version = |more: Value| {
        let mut version = json!({
            "name": "v1", "served": true, "storage": true,
            "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                "spec": { "type": "object", "properties": { "size": { "type": "string" } } },
            } } },
        });
        for (name, value) in more.as_object().expect("fields") {
            version[name] = value.clone();
        }
        version
    };
    let names = json!({ "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": { "group": "example.com", "scope": "Namespaced", "names": names, "versions": [version(json!({}))] },
    });
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    runtime().block_on(async {
        let mut client = connect(&server).await;
        let made = client.post(definitions, &definition).await.expect("an answer");
        assert_eq!(made.status, StatusCode::CREATED, "{made:?}");
        for size in ["marker-large", "marker-small"] {
            let widget = json!({
                "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": size }, "spec": { "size": size },
            });
            // It is served a moment after it was made.
            let mut answer = client.post(widgets, &widget).await.expect("an answer");
            while answer.status == StatusCode::NOT_FOUND {
                tokio::task::yield_now().await;
                answer = client.post(widgets, &widget).await.expect("an answer");
            }
            assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        }
        let columns = json!([{ "name": "Size", "type": "string", "jsonPath": ".spec.size" }]);
        let with = json!({
            "selectableFields": [{ "jsonPath": ".spec.size" }], "additionalPrinterColumns": columns,
        });
        let changed = json!({ "spec": { "versions": [version(with)] } });
        let path = format!("{definitions}/widgets.example.com");
        let changed = patch(&mut client, &path, "application/merge-patch+json", &changed).await;
        assert_eq!(changed.status, StatusCode::OK, "{changed:?}");
        let selected = format!("{widgets}?fieldSelector=spec.size%3Dmarker-large");
        let mut found = client.get(&selected, JSON).await.expect("an answer");
        while found.status != StatusCode::OK || found.json()["items"] == json!([]) {
            tokio::task::yield_now().await;
            found = client.get(&selected, JSON).await.expect("an answer");
        }
        assert_eq!(found.json()["items"][0]["metadata"]["name"], "marker-large");
        let table = client.get(widgets, TABLE).await.expect("an answer").json();
        assert_eq!(table["rows"][1]["cells"][1], "marker-small", "{table}");
    });
    compact(&server);
    let json = runtime().block_on(get(&server, widgets, JSON)).json();
    assert_eq!(json["items"][1]["spec"]["size"], "marker-small");
    // It is open because it is selected by; the column's cell is not there a second time.
    assert!(place.holding("data/store", r#""size":"marker-small""#).is_empty());
}
