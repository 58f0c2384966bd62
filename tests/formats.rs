//! Directories as every released format wrote them, kept in the tree: each is opened, read, watched from an old revision, verified, written
//! to, and opened again.
//!
//! A fixture is `tests/fixtures/format-N/directory.tar.gz`: the folder `store` as a server of that format left it, with a shelf, a sealed
//! segment, a log behind the shelf, and every kind of record; and `expected.json`, what is in it. Who changes the format raises the version,
//! runs `cargo test --test formats -- --ignored make_a_fixture` and commits what it made; the old ones stay as they are.

#[path = "process/client.rs"]
mod client;
mod process;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::Client;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use flatkube::resources::KindArchiver;
use flatkube::store::disk::RealDisk;
use flatkube::store::{Options, Range, Selection, Store, View};
use flatkube_format::manifest::{self, Manifest};
use hyper::Method;
use process::{Server, flatkube_ok, runtime};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a fixture holds.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Expected {
    revision: u64,
    /// Key to JSON, by storage resource.
    objects: BTreeMap<String, BTreeMap<String, String>>,
    /// Where the watch begins.
    after: u64,
    /// Kind, revision and key of the events of ConfigMaps from there on.
    events: Vec<(String, u64, String)>,
    /// ConfigMaps as they were at `after`.
    past: BTreeMap<String, String>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn open(data: &Path) -> Arc<Store> {
    let disk = RealDisk::create(data.join("store")).expect("a folder");
    let options = Options {
        background: false,
        ..Options::default()
    };
    Store::open(Arc::new(disk), options, Arc::new(KindArchiver::default())).expect("it opens")
}

fn objects(view: &Arc<View>, resource: &str) -> BTreeMap<String, String> {
    let mut objects = BTreeMap::new();
    let mut listing = view.list(resource, Range::default(), &Selection::default());
    while let Some(run) = listing.next(64).expect("whole") {
        for object in run.objects() {
            object.sidecar().expect("a whole sidecar");
            let json = String::from_utf8(object.json().expect("whole").to_vec()).expect("text");
            objects.insert(object.key().to_owned(), json);
        }
    }
    objects
}

/// What is in a store, watched from the revision `after`.
fn contents(store: &Arc<Store>, after: u64) -> Expected {
    let view = store.view();
    let stats = store.stats();
    let names = stats.resources.iter().map(|resource| resource.name.clone());
    let mut follower = store.follow("configmaps", None, after).expect("it is history");
    let mut events = Vec::new();
    while let Some(event) = follower.next().expect("whole") {
        event.object.json().expect("whole");
        events.push((
            format!("{:?}", event.kind),
            event.revision,
            event.object.key().to_owned(),
        ));
    }
    let past = store.view_at("configmaps", after).expect("it is history");
    Expected {
        revision: view.revision(),
        objects: names
            .map(|name| (name.clone(), objects(&view, &name)))
            .filter(|(_, objects)| !objects.is_empty())
            .collect(),
        after,
        events,
        past: objects(&past, "configmaps"),
    }
}

#[test]
fn directories_of_every_released_format_are_read_written_and_opened_again() {
    let mut formats = Vec::new();
    for entry in fs::read_dir(fixtures()).expect("fixtures") {
        let folder = entry.expect("an entry").path();
        let name = folder
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
            .to_owned();
        let Some(format) = name
            .strip_prefix("format-")
            .and_then(|number| number.parse::<u32>().ok())
        else {
            continue;
        };
        formats.push(format);
        let data = tempfile::tempdir().expect("a folder");
        let packed = File::open(folder.join("directory.tar.gz")).expect("it is kept");
        tar::Archive::new(GzDecoder::new(packed))
            .unpack(data.path())
            .expect("unpacked");
        let expected = File::open(folder.join("expected.json.gz")).expect("it is kept");
        let expected: Expected = serde_json::from_reader(GzDecoder::new(expected)).expect("it is whole");
        let kept = fs::read(data.path().join("store/manifest")).expect("a manifest");
        assert_eq!(u32::from_le_bytes(kept[8..12].try_into().expect("four")), format);

        flatkube_ok(&["store", "verify", data.path().to_str().expect("a plain path")]);
        let store = open(data.path());
        let mut found = contents(&store, expected.after);
        assert_eq!(found.revision, expected.revision, "{name}");
        assert_eq!(
            found.objects.keys().collect::<Vec<_>>(),
            expected.objects.keys().collect::<Vec<_>>()
        );
        assert!(found == expected, "{name}: something in it reads differently");
        store.scrub();
        assert_eq!(store.stats().damaged, []);
        store.close();
        drop(store);

        // A server of today goes on with it, and what was there stays.
        let tokens = data.path().join("tokens.csv");
        client::write_tokens(&tokens);
        let server = Server::over_http(data.path(), &tokens);
        runtime().block_on(async {
            let mut client = Client::connect(server.http_address()).await.expect("it listens");
            let written = client.post(MAPS, &map(9_999, "new")).await.expect("an answer");
            assert_eq!(written.status, 201, "{written:?}");
        });
        assert!(server.end("TERM").status.success());
        let store = open(data.path());
        store.maintain(true);
        found.objects = contents(&store, store.view().revision()).objects;
        let maps = &found.objects["configmaps"];
        assert!(maps.len() > expected.objects["configmaps"].len());
        // Whom to believe is a matter of the server that runs now.
        let authorities = "kube-system/extension-apiserver-authentication";
        assert!(
            expected.objects["configmaps"]
                .iter()
                .all(|(key, json)| key == authorities || maps.get(key) == Some(json))
        );
        store.close();
    }
    assert!(
        formats.contains(&manifest::VERSION),
        "a new format has no fixture yet: cargo test --test formats -- --ignored make_a_fixture"
    );
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(number: usize, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": format!("map-{number:04}"), "labels": { "number": (number % 7).to_string() } },
        "data": { "text": text },
    })
}

#[test]
#[ignore = "makes the fixture of the format that this tree writes"]
fn make_a_fixture() {
    let folder = fixtures().join(format!("format-{}", manifest::VERSION));
    assert!(
        !folder.exists(),
        "{} is there: a released format does not change",
        folder.display()
    );
    let data = tempfile::tempdir().expect("a folder");
    let tokens = data.path().join("tokens.csv");
    client::write_tokens(&tokens);
    let server = Server::over_http(data.path(), &tokens);
    let after = runtime().block_on(async {
        let mut client = Client::connect(server.http_address()).await.expect("it listens");
        // Long enough that the first segment is sealed; they pack well.
        for number in 0..40 {
            let answer = client
                .post(MAPS, &map(number, &"x".repeat(40_000)))
                .await
                .expect("an answer");
            assert_eq!(answer.status, 201, "{answer:?}");
        }
        while !is_shelved(data.path(), "map-0039") {
            std::thread::yield_now();
        }
        let after = client.get(MAPS, "application/json").await.expect("an answer").json();
        for number in 0..10 {
            let path = format!("{MAPS}/map-{number:04}");
            let answer = client.send(
                Method::PUT,
                &path,
                &[("content-type", "application/json")],
                map(number, "short").to_string(),
            );
            assert_eq!(answer.await.expect("an answer").status, 200);
        }
        for number in 5..8 {
            let path = format!("{MAPS}/map-{number:04}");
            let answer = client.send(Method::DELETE, &path, &[], "").await;
            assert_eq!(answer.expect("an answer").status, 200);
        }
        after["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|text| text.parse().ok())
            .expect("a revision")
    });
    assert!(server.end("TERM").status.success());

    fs::create_dir_all(&folder).expect("a folder");
    let packed = File::create(folder.join("directory.tar.gz")).expect("a file");
    let mut archive = tar::Builder::new(GzEncoder::new(packed, flate2::Compression::best()));
    let manifest = Manifest::decode(&fs::read(data.path().join("store/manifest")).expect("a manifest")).expect("whole");
    assert!(manifest.segments.iter().any(|segment| segment.sealed.is_some()));
    let segments = manifest
        .segments
        .iter()
        .map(|segment| format!("segment-{:010}", segment.number));
    let parts = manifest.resources.iter().flat_map(|resource| &resource.parts);
    let names = segments.chain(parts.map(|part| format!("shelf-{:010}", part.file)));
    for name in names.chain(["manifest".to_owned()]) {
        let name = format!("store/{name}");
        archive
            .append_path_with_name(data.path().join(&name), &name)
            .expect("packed");
    }
    archive.into_inner().and_then(GzEncoder::finish).expect("packed");
    // What is in it is read of a copy: opening a directory writes.
    let expected = contents(&open(data.path()), after);
    assert!(
        expected.events.len() == 13 && expected.past.len() > 40,
        "{:?}",
        expected.events
    );
    let packed = File::create(folder.join("expected.json.gz")).expect("a file");
    let mut packed = GzEncoder::new(packed, flate2::Compression::best());
    serde_json::to_writer(&mut packed, &expected).expect("packed");
    packed.finish().expect("packed");
}

/// Whether a shelf of the store holds a text.
fn is_shelved(data: &Path, text: &str) -> bool {
    let files = fs::read_dir(data.join("store")).into_iter().flatten().flatten();
    let mut shelves = files.filter(|file| file.file_name().to_str().is_some_and(|name| name.starts_with("shelf-")));
    shelves.any(|file| {
        let bytes = fs::read(file.path()).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}
