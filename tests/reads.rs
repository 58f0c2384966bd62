//! The read path over a real store: what a client gets for get, list and watch, from the delta and from the shelf.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flatkube::api::body::Response;
use flatkube::api::negotiate::{Answer, Format, MetaVersion, Shape};
use flatkube::api::read::{self, Compress, Reader};
use flatkube::api::request::{Query, RequestInfo, Verb};
use flatkube::api::status::Status;
use flatkube::api::{Stopper, Stopping};
use flatkube::auth::User;
use flatkube::resources::{self, Resource};
use flatkube::store::disk::sim::SimDisk;
use flatkube::store::{ArchiveError, Archiver, Change, Options, Precondition, RowFrame, Store, Write, Written};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

struct KindArchiver;

impl Archiver for KindArchiver {
    fn layout(&self, resource: &str) -> u32 {
        resources::layout(resource)
    }

    fn archive(&self, _: &str, _: &str, _: &[u8]) -> Result<Vec<u8>, ArchiveError> {
        unreachable!("the layout does not change")
    }

    fn row_frame(&self, resource: &str) -> Option<RowFrame> {
        resources::KindArchiver::default().row_frame(resource)
    }
}

struct World {
    reader: Reader,
    stopper: Stopper,
}

fn configmaps() -> &'static Resource {
    resources::find("", "v1", "configmaps").unwrap()
}

impl World {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(tune: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options {
            background: false,
            ..Options::default()
        };
        tune(&mut options);
        let store = Store::open(Arc::new(SimDisk::new()), options, Arc::new(KindArchiver)).unwrap();
        let (stopper, stopping): (Stopper, Stopping) = Stopper::new();
        let reader = Reader {
            store,
            stopping,
            continue_key: [3; 32],
            compress: Compress::Always,
            notice: flatkube::api::read::Notice::default(),
        };
        Self { reader, stopper }
    }

    async fn put(&self, namespace: &str, name: &str, label: &str, data: &str) -> u64 {
        let object = json!({
            "metadata": {"name": name, "namespace": namespace, "uid": format!("u-{name}"),
                "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"l": label}},
            "data": {"k": data},
        });
        let change = Change::Put(resources::encode(configmaps(), &object.clone().into()).unwrap());
        self.write(namespace, name, change).await.revision
    }

    async fn delete(&self, namespace: &str, name: &str) -> u64 {
        let object = json!({"metadata": {"name": name, "namespace": namespace, "uid": format!("u-{name}"),
            "creationTimestamp": "2026-01-02T03:04:05Z"}, "data": {"k": "final"}});
        let change = Change::Delete(resources::encode(configmaps(), &object.clone().into()).unwrap());
        self.write(namespace, name, change).await.revision
    }

    async fn write(&self, namespace: &str, name: &str, change: Change) -> Written {
        let write = Write {
            resource: "configmaps".into(),
            key: format!("{namespace}/{name}"),
            precondition: Precondition::Any,
            uid: None,
            change,
        };
        self.reader.store.write(write).await.unwrap()
    }

    fn info(verb: Verb, namespace: Option<&str>, query: &str) -> RequestInfo {
        RequestInfo {
            verb,
            resource: configmaps().into(),
            subresource: None,
            namespace: namespace.map(str::to_owned),
            name: None,
            query: Query::new(query),
            answer: Answer::default(),
            user: Arc::new(User::default()),
            peer: ([127, 0, 0, 1], 1).into(),
            audit: None,
            headers: http::HeaderMap::new(),
        }
    }

    async fn list(&self, namespace: Option<&str>, query: &str) -> Value {
        let info = Self::info(Verb::List, namespace, query);
        parsed(read::list(&self.reader, &info).await).await
    }

    async fn list_as(&self, shape: Shape, query: &str) -> Value {
        let mut info = Self::info(Verb::List, None, query);
        info.answer.shape = shape;
        parsed(read::list(&self.reader, &info).await).await
    }

    async fn get(&self, shape: Shape, name: &str, query: &str) -> Result<Bytes, Status> {
        let mut info = Self::info(Verb::Get, Some("a"), query);
        info.name = Some(name.to_owned());
        info.answer.shape = shape;
        let response = read::get(&self.reader, &info).await?;
        Ok(response.into_body().collect().await.unwrap().to_bytes())
    }

    async fn watch(&self, namespace: Option<&str>, query: &str) -> Watched {
        self.watch_as(Shape::Object, namespace, query).await
    }

    async fn watch_as(&self, shape: Shape, namespace: Option<&str>, query: &str) -> Watched {
        let mut info = Self::info(Verb::Watch, namespace, query);
        info.answer.shape = shape;
        let response = read::watch(&self.reader, &info).await.unwrap();
        Watched {
            body: response.into_body(),
            text: Vec::new(),
        }
    }
}

async fn parsed(answer: Result<Response, Status>) -> Value {
    match answer {
        Ok(response) => serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap(),
        Err(status) => serde_json::from_slice(&status.to_json()).unwrap(),
    }
}

/// `namespace/name` of each item of a list or row of a Table.
fn keys(list: &Value) -> Vec<String> {
    let items = list["items"]
        .as_array()
        .or(list["rows"].as_array())
        .unwrap_or_else(|| panic!("no list: {list}"));
    let key = |item: &Value| {
        let metadata = if item["metadata"].is_null() {
            &item["object"]["metadata"]
        } else {
            &item["metadata"]
        };
        format!(
            "{}/{}",
            metadata["namespace"].as_str().unwrap(),
            metadata["name"].as_str().unwrap()
        )
    };
    items.iter().map(key).collect()
}

struct Watched {
    body: flatkube::api::body::Body,
    text: Vec<u8>,
}

impl Watched {
    /// The next event; `None` at a clean end of the stream.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(Duration::from_secs(20), self.body.frame());
            let frame = frame.await.expect("an event or the end in time")?.unwrap();
            self.text.extend_from_slice(&frame.into_data().unwrap());
        }
    }

    /// Type and `name@revision` of the next event.
    async fn brief(&mut self) -> (String, String) {
        let event = self.next().await.expect("an event");
        let object = &event["object"];
        let metadata = if object["rows"].is_null() {
            &object["metadata"]
        } else {
            &object["rows"][0]["object"]["metadata"]
        };
        let name = metadata["name"].as_str().unwrap_or("");
        let revision = metadata["resourceVersion"].as_str().unwrap();
        (event["type"].as_str().unwrap().to_owned(), format!("{name}@{revision}"))
    }
}

fn told(word: &str, name: &str, revision: u64) -> (String, String) {
    (word.to_owned(), format!("{name}@{revision}"))
}

#[tokio::test]
async fn a_get_is_the_stored_bytes_behind_a_head() {
    let world = World::new();
    let revision = world.put("a", "x", "1", "v").await;
    for shelved in [false, true] {
        if shelved {
            world.reader.store.maintain(true);
        }
        let body = world.get(Shape::Object, "x", "").await.unwrap();
        let text = std::str::from_utf8(&body).unwrap();
        assert!(
            text.starts_with(r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"#),
            "{text}"
        );
        let object: Value = serde_json::from_str(text).unwrap();
        assert_eq!(object["metadata"]["resourceVersion"], revision.to_string());
        assert_eq!(object["data"]["k"], "v");
        let partial = world.get(Shape::Partial(MetaVersion::V1), "x", "").await.unwrap();
        let partial: Value = serde_json::from_slice(&partial).unwrap();
        assert_eq!(partial["kind"], "PartialObjectMetadata");
        assert_eq!(partial["apiVersion"], "meta.k8s.io/v1");
        assert_eq!(partial["metadata"], object["metadata"]);
        let table = world
            .get(Shape::Table(MetaVersion::V1Beta1), "x", "includeObject=Object")
            .await
            .unwrap();
        let table: Value = serde_json::from_slice(&table).unwrap();
        assert_eq!(table["apiVersion"], "meta.k8s.io/v1beta1");
        assert_eq!(table["metadata"]["resourceVersion"], revision.to_string());
        assert_eq!(table["rows"][0]["cells"][0], "x");
        assert_eq!(table["rows"][0]["object"], object);
    }
    let missing = world.get(Shape::Object, "y", "").await.unwrap_err();
    assert_eq!((missing.code, &*missing.message), (404, "configmaps \"y\" not found"));
    assert_eq!(
        world
            .get(Shape::PartialList(MetaVersion::V1), "x", "")
            .await
            .unwrap_err()
            .code,
        406
    );
    assert_eq!(
        world
            .get(Shape::Table(MetaVersion::V1), "x", "includeObject=All")
            .await
            .unwrap_err()
            .code,
        400
    );
    assert_eq!(
        world
            .get(Shape::Object, "x", "resourceVersion=x")
            .await
            .unwrap_err()
            .code,
        500
    );
}

#[tokio::test]
async fn lists_hold_what_is_selected_in_key_order_from_delta_and_shelf_alike() {
    let world = World::new();
    for (namespace, name, label) in [
        ("b", "x", "1"),
        ("a", "y", "2"),
        ("a", "x", "1"),
        ("a-b", "x", "1"),
        ("a", "z", "1"),
    ] {
        world.put(namespace, name, label, "v").await;
    }
    for round in 0..3 {
        if round == 1 {
            world.reader.store.maintain(true);
        }
        if round == 2 {
            // Half shelf, half delta.
            world.put("a", "y", "2", "w").await;
            world.delete("a", "z").await;
            world.put("a", "z", "1", "v").await;
        }
        let all = world.list(None, "").await;
        assert_eq!(all["kind"], "ConfigMapList");
        assert_eq!(all["metadata"].as_object().unwrap().len(), 1);
        assert_eq!(
            all["metadata"]["resourceVersion"],
            world.reader.store.view().revision().to_string()
        );
        assert_eq!(keys(&all), ["a-b/x", "a/x", "a/y", "a/z", "b/x"], "round {round}");
        assert_eq!(keys(&world.list(Some("a"), "").await), ["a/x", "a/y", "a/z"]);
        assert_eq!(keys(&world.list(Some("c"), "").await), Vec::<String>::new());
        assert_eq!(
            keys(&world.list(None, "labelSelector=l%3D1").await),
            ["a-b/x", "a/x", "a/z", "b/x"]
        );
        assert_eq!(keys(&world.list(Some("a"), "labelSelector=l!%3D1").await), ["a/y"]);
        assert_eq!(keys(&world.list(None, "labelSelector=l+in+(2,3)").await), ["a/y"]);
        assert_eq!(
            keys(&world.list(Some("a"), "fieldSelector=metadata.name%3Dy").await),
            ["a/y"]
        );
        assert_eq!(
            keys(&world.list(None, "fieldSelector=metadata.name%3Dx").await),
            ["a-b/x", "a/x", "b/x"]
        );
        assert_eq!(
            keys(&world.list(None, "fieldSelector=metadata.namespace%3Db").await),
            ["b/x"]
        );
        assert!(keys(&world.list(Some("a"), "fieldSelector=metadata.namespace%3Db").await).is_empty());
        let table = world
            .list_as(Shape::Table(MetaVersion::V1), "labelSelector=l%3D2")
            .await;
        assert_eq!(keys(&table), ["a/y"]);
        assert_eq!(table["columnDefinitions"][0]["name"], "Name");
        let rows = world.list_as(Shape::Table(MetaVersion::V1), "includeObject=None").await;
        assert_eq!(rows["rows"].as_array().unwrap().len(), 5);
        assert!(rows["rows"][0]["object"].is_null());
        let partial = world.list_as(Shape::PartialList(MetaVersion::V1), "").await;
        assert_eq!(partial["kind"], "PartialObjectMetadataList");
        assert_eq!(partial["items"][0]["kind"], "PartialObjectMetadata");
        assert_eq!(keys(&partial), keys(&all));
    }
}

#[tokio::test]
async fn pages_are_of_one_revision_and_together_are_the_list() {
    let world = World::new();
    let names: Vec<String> = (0..50).map(|n| format!("o-{n:02}")).collect();
    for name in &names {
        world.put("a", name, "1", "v").await;
    }
    world.reader.store.maintain(true);
    for (limit, query) in [
        (7, ""),
        (1, ""),
        (50, ""),
        (49, ""),
        (7, "&labelSelector=l%3D1"),
        (7, "&labelSelector=l!%3D2"),
    ] {
        let mut seen = Vec::new();
        let mut token = String::new();
        let mut revision = Value::Null;
        loop {
            let page = world.list(Some("a"), &format!("limit={limit}{query}{token}")).await;
            seen.extend(keys(&page));
            if revision.is_null() {
                revision = page["metadata"]["resourceVersion"].clone();
            }
            assert_eq!(page["metadata"]["resourceVersion"], revision);
            let remaining = &page["metadata"]["remainingItemCount"];
            let left = names.len() - seen.len();
            if query.is_empty() && left > 0 {
                assert_eq!(*remaining, left);
            } else {
                assert!(remaining.is_null());
            }
            // Neither shows in later pages.
            world.put("a", "o-99", "1", "new").await;
            world.delete("a", "o-99").await;
            world.put("a", &names[40], "1", "changed").await;
            match page["metadata"]["continue"].as_str() {
                Some(next) => token = format!("&continue={next}"),
                None => break,
            }
            assert!(left > 0, "no token when nothing is left");
        }
        let expected: Vec<String> = names.iter().map(|name| format!("a/{name}")).collect();
        assert_eq!(seen, expected, "limit {limit}{query}");
    }
}

#[tokio::test]
async fn tokens_of_elsewhere_and_tokens_with_a_version_are_refused() {
    let world = World::new();
    for namespace in ["a", "b"] {
        world.put(namespace, "x", "1", "v").await;
        world.put(namespace, "y", "1", "v").await;
    }
    let page = world.list(Some("a"), "limit=1").await;
    let token = page["metadata"]["continue"].as_str().unwrap();
    assert_eq!(world.list(Some("b"), &format!("continue={token}")).await["code"], 400);
    assert_eq!(
        world
            .list(Some("a"), &format!("resourceVersion=1&continue={token}"))
            .await["code"],
        400
    );
    assert_eq!(world.list(Some("a"), "continue=AAAA").await["code"], 400);
    assert_eq!(
        keys(&world.list(Some("a"), &format!("continue={token}")).await),
        ["a/y"]
    );
    assert_eq!(
        keys(&world.list(None, &format!("continue={token}")).await),
        ["a/y", "b/x", "b/y"]
    );
}

#[tokio::test]
async fn exact_lists_show_the_past_and_others_the_present() {
    let world = World::new();
    let first = world.put("a", "x", "1", "one").await;
    world.put("a", "x", "1", "two").await;
    let second = world.put("a", "y", "1", "v").await;
    world.delete("a", "x").await;
    for shelved in [false, true] {
        if shelved {
            world.reader.store.maintain(true);
        }
        let past = world
            .list(
                Some("a"),
                &format!("resourceVersion={first}&resourceVersionMatch=Exact"),
            )
            .await;
        assert_eq!(keys(&past), ["a/x"]);
        assert_eq!(past["items"][0]["data"]["k"], "one");
        assert_eq!(past["metadata"]["resourceVersion"], first.to_string());
        let later = world
            .list(Some("a"), &format!("resourceVersion={second}&limit=1"))
            .await;
        assert_eq!(later["items"][0]["data"]["k"], "two");
        assert_eq!(later["metadata"]["remainingItemCount"], 1);
        for query in [
            "",
            "resourceVersion=0&limit=1",
            "resourceVersion=1",
            "resourceVersion=1&resourceVersionMatch=NotOlderThan",
        ] {
            assert_eq!(keys(&world.list(Some("a"), query).await), ["a/y"], "{query}");
        }
    }
    let future = world.list(Some("a"), "resourceVersion=999").await;
    assert_eq!(
        (future["code"].clone(), future["reason"].clone()),
        (json!(504), json!("Timeout"))
    );
    assert_eq!(future["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
}

#[tokio::test]
async fn a_list_waits_for_a_revision_that_is_a_little_ahead() {
    let world = World::new();
    let revision = world.put("a", "x", "1", "v").await;
    let query = format!("resourceVersion={}", revision + 1);
    let (list, _) = tokio::join!(world.list(Some("a"), &query), world.put("a", "y", "1", "v"));
    assert_eq!(keys(&list), ["a/x", "a/y"]);
}

#[tokio::test]
async fn long_lists_come_in_bounded_frames_and_compress_to_the_same_bytes() {
    let world = World::new();
    for n in 0..400 {
        world.put("a", &format!("o-{n:03}"), "1", &"v".repeat(997 + n)).await;
    }
    world.put("a", "large", "1", &"w".repeat(300_000)).await;
    for (shelved, query) in [
        (false, ""),
        (true, ""),
        (true, "labelSelector=l%3D1"),
        (true, "limit=390"),
    ] {
        if shelved {
            world.reader.store.maintain(true);
        }
        let mut info = World::info(Verb::List, None, query);
        let response = read::list(&world.reader, &info).await.unwrap();
        let mut body = response.into_body();
        let mut plain = Vec::new();
        let mut frames = 0;
        while let Some(frame) = body.frame().await {
            plain.extend_from_slice(&frame.unwrap().into_data().unwrap());
            frames += 1;
        }
        assert!(frames < 60, "{frames} frames of {} bytes", plain.len());
        let list: Value = serde_json::from_slice(&plain).unwrap();
        assert_eq!(
            list["items"].as_array().unwrap().len(),
            if query == "limit=390" { 390 } else { 401 }
        );
        info.answer.gzip = true;
        let response = read::list(&world.reader, &info).await.unwrap();
        assert_eq!(response.headers()["content-encoding"], "gzip");
        let compressed = response.into_body().collect().await.unwrap().to_bytes();
        let mut decoder = flate2::read::GzDecoder::new(&compressed[..]);
        let mut back = Vec::new();
        std::io::Read::read_to_end(&mut decoder, &mut back).unwrap();
        assert!(back == plain);
    }
    let mut info = World::info(Verb::List, None, "limit=10&fieldSelector=metadata.name!%3Dlarge");
    info.answer.gzip = true;
    let small = read::list(&world.reader, &info).await.unwrap();
    assert!(
        !small.headers().contains_key("content-encoding"),
        "small bodies are not compressed"
    );
    assert!(
        http_body::Body::size_hint(small.body()).exact().is_some(),
        "and tell their length"
    );
}

/// Rows and metadata lists come from another place of a shelf than from the log, in pieces of another size when they are long.
#[tokio::test]
async fn tables_and_metadata_of_a_shelf_are_those_of_the_delta_byte_for_byte() {
    let world = World::new();
    for n in 0..150_usize {
        let object = json!({
            "metadata": {"name": format!("o-{n:03}"), "namespace": "a", "uid": format!("u-{n}"),
                "creationTimestamp": format!("20{:02}-01-02T03:04:05Z", 10 + n % 9), "labels": {"l": (n % 7).to_string()},
                "annotations": {"long": "v".repeat(if n % 40 > 35 { n * 999 } else { n })}},
            "data": {"k": "v"},
        });
        let change = Change::Put(resources::encode(configmaps(), &object.clone().into()).unwrap());
        world.write("a", &format!("o-{n:03}"), change).await;
    }
    let mut answers = Vec::new();
    for shelved in [false, true] {
        if shelved {
            world.reader.store.maintain(true);
        }
        let mut bodies = Vec::new();
        for version in [MetaVersion::V1, MetaVersion::V1Beta1] {
            for (shape, query) in [
                (Shape::Table(version), ""),
                (Shape::Table(version), "includeObject=None"),
                (Shape::Table(version), "includeObject=Object"),
                (Shape::Table(version), "limit=77"),
                (Shape::Table(version), "labelSelector=l%3D3"),
                (Shape::Table(version), "labelSelector=l+in+(1,2),l%3D2"),
                (Shape::PartialList(version), ""),
                (Shape::PartialList(version), "limit=39&labelSelector=l!%3D3"),
                (Shape::Object, "labelSelector=l%3D3"),
                (Shape::Object, "labelSelector=l+in+(1,2)"),
                (Shape::Object, ""),
            ] {
                let mut info = World::info(Verb::List, None, query);
                info.answer.shape = shape;
                let body = read::list(&world.reader, &info).await.unwrap().into_body();
                bodies.push(body.collect().await.unwrap().to_bytes());
            }
        }
        answers.push(bodies);
    }
    for (delta, shelf) in answers[0].iter().zip(&answers[1]) {
        let start = String::from_utf8_lossy(&shelf[..shelf.len().min(300)]);
        assert!(delta == shelf, "{} and {} bytes: {start}", delta.len(), shelf.len());
        serde_json::from_slice::<Value>(shelf).unwrap();
    }
}

#[tokio::test]
async fn a_watch_tells_objects_first_then_every_write_in_order() {
    let world = World::new();
    let x = world.put("a", "x", "1", "v").await;
    let other = world.put("b", "y", "1", "v").await;
    world.reader.store.maintain(true);
    let mut all = world.watch(None, "").await;
    let mut one = world.watch(Some("a"), "resourceVersion=0").await;
    let mut later = world.watch(Some("a"), &format!("resourceVersion={x}")).await;
    assert_eq!(all.brief().await, told("ADDED", "x", x));
    assert_eq!(all.brief().await, told("ADDED", "y", other));
    assert_eq!(one.brief().await, told("ADDED", "x", x));
    let changed = world.put("a", "x", "1", "w").await;
    let gone = world.delete("b", "y").await;
    let new = world.put("a", "z", "1", "v").await;
    for (watch, in_b) in [(&mut all, true), (&mut one, false), (&mut later, false)] {
        assert_eq!(watch.brief().await, told("MODIFIED", "x", changed));
        if in_b {
            assert_eq!(watch.brief().await, told("DELETED", "y", gone));
        }
        assert_eq!(watch.brief().await, told("ADDED", "z", new));
    }
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection_as_added_and_deleted() {
    let world = World::new();
    let mut watch = world.watch(Some("a"), "labelSelector=l%3Dyes").await;
    let mut partial = world
        .watch_as(Shape::Partial(MetaVersion::V1), Some("a"), "labelSelector=l%3Dyes")
        .await;
    let mut table = world
        .watch_as(Shape::Table(MetaVersion::V1), Some("a"), "labelSelector=l%3Dyes")
        .await;
    world.put("a", "x", "no", "1").await;
    let entered = world.put("a", "x", "yes", "2").await;
    let changed = world.put("a", "x", "yes", "3").await;
    let left = world.put("a", "x", "no", "4").await;
    world.put("a", "x", "no", "5").await;
    let again = world.put("a", "x", "yes", "6").await;
    let gone = world.delete("a", "x").await;
    for watch in [&mut watch, &mut partial, &mut table] {
        assert_eq!(watch.brief().await, told("ADDED", "x", entered));
        assert_eq!(watch.brief().await, told("MODIFIED", "x", changed));
        assert_eq!(watch.brief().await, told("DELETED", "x", left));
        assert_eq!(watch.brief().await, told("ADDED", "x", again));
        assert_eq!(watch.brief().await, told("DELETED", "x", gone));
    }
    let mut again = world
        .watch(Some("a"), &format!("labelSelector=l%3Dyes&resourceVersion={changed}"))
        .await;
    let event = again.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["kind"], "ConfigMap");
    assert_eq!(
        event["object"]["data"]["k"], "3",
        "the last state in which it was selected"
    );
    assert_eq!(event["object"]["metadata"]["labels"]["l"], "yes");
}

#[tokio::test]
async fn only_the_first_table_of_a_watch_has_columns() {
    let world = World::new();
    world.put("a", "x", "1", "v").await;
    world.put("a", "y", "1", "v").await;
    let mut watch = world.watch_as(Shape::Table(MetaVersion::V1), Some("a"), "").await;
    let first = watch.next().await.unwrap();
    assert_eq!(first["object"]["kind"], "Table");
    assert!(first["object"]["columnDefinitions"].is_array());
    let second = watch.next().await.unwrap();
    assert!(second["object"]["columnDefinitions"].is_null());
    assert_eq!(second["object"]["rows"][0]["cells"][0], "y");
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark_and_the_end_is_preceded_by_one() {
    let world = World::new();
    let x = world.put("a", "x", "1", "v").await;
    let mut watch = world
        .watch(
            Some("a"),
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=3",
        )
        .await;
    assert_eq!(watch.brief().await, told("ADDED", "x", x));
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(
        bookmark["object"],
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata":
            {"resourceVersion": x.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}}})
    );
    let elsewhere = world.put("b", "y", "1", "v").await;
    assert_eq!(watch.brief().await, told("BOOKMARK", "", elsewhere));
    assert_eq!(watch.next().await, None, "a clean end when its time is up");
}

#[tokio::test]
async fn a_watch_of_the_future_tells_nothing_and_one_without_initial_events_only_what_comes() {
    let world = World::new();
    let now = world.put("a", "x", "1", "v").await;
    let mut future = world
        .watch(Some("a"), &format!("resourceVersion={}&timeoutSeconds=2", now + 2))
        .await;
    let mut plain = world
        .watch(Some("a"), "sendInitialEvents=false&resourceVersionMatch=NotOlderThan")
        .await;
    world.put("a", "x", "1", "w").await;
    world.put("a", "x", "1", "w").await;
    let third = world.put("a", "x", "1", "w").await;
    assert_eq!(future.brief().await, told("MODIFIED", "x", third));
    assert_eq!(plain.brief().await, told("MODIFIED", "x", now + 1));
}

#[tokio::test]
async fn watches_end_cleanly_when_the_server_stops() {
    let world = World::new();
    let mut watch = world.watch(None, "").await;
    world.stopper.stop();
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn yaml_cannot_be_watched_and_bad_options_are_answered_before_the_stream() {
    let world = World::new();
    let mut info = World::info(Verb::Watch, None, "");
    info.answer.format = Format::Yaml;
    assert_eq!(read::watch(&world.reader, &info).await.unwrap_err().code, 406);
    for (query, code) in [
        ("resourceVersion=abc", 500),
        ("labelSelector=a%3Db%3Dc", 400),
        ("sendInitialEvents=true", 422),
    ] {
        let info = World::info(Verb::Watch, None, query);
        assert_eq!(
            read::watch(&world.reader, &info).await.unwrap_err().code,
            code,
            "{query}"
        );
    }
}

#[tokio::test]
async fn what_is_told_in_protobuf_is_what_is_told_in_json() {
    let world = World::new();
    for number in 0..150 {
        world.put("a", &format!("n{number:03}"), "1", &"v\"é".repeat(200)).await;
    }
    for shelved in [false, true] {
        if shelved {
            world.reader.store.maintain(true);
            world.put("a", "n007", "1", "short").await;
        }
        // A list that is longer than a frame, and one that is not.
        for query in ["", "limit=3"] {
            let mut info = World::info(Verb::List, Some("a"), query);
            let json = parsed(read::list(&world.reader, &info).await).await;
            info.answer.format = Format::Protobuf;
            let answer = read::list(&world.reader, &info).await.unwrap();
            assert_eq!(answer.headers()["content-type"], "application/vnd.kubernetes.protobuf");
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let told = flatkube::schema::protobuf_to_json(&body).unwrap();
            assert_eq!(told.to_string(), json.to_string(), "{shelved} {query}");
        }
    }
}

#[tokio::test]
async fn events_in_protobuf_are_frames_of_bodies() {
    let world = World::new();
    let revision = world.put("a", "x", "1", "v").await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut info = World::info(Verb::Watch, None, query);
    info.answer.format = Format::Protobuf;
    let answer = read::watch(&world.reader, &info).await.unwrap();
    assert_eq!(
        answer.headers()["content-type"],
        "application/vnd.kubernetes.protobuf;stream=watch"
    );
    let frames = answer.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
    let len = usize::try_from(u32::from_be_bytes(frames[..4].try_into().unwrap())).unwrap();
    let (event, rest) = frames[4..].split_at(len);
    assert!(event.starts_with(b"\x0a\x05ADDED\x12"), "{event:?}");
    let start = event.windows(4).position(|window| window == b"k8s\0").unwrap();
    let object = flatkube::schema::protobuf_to_json(&event[start..]).unwrap();
    assert_eq!(object["metadata"]["name"], "x");
    assert_eq!(object["metadata"]["resourceVersion"], revision.to_string());
    assert_eq!(&rest[4..15], b"\x0a\x08BOOKMARK\x12");
}
