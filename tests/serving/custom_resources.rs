//! Custom resources as a client meets them: from the definition to the end of its objects.

use std::time::{Duration, Instant};

use bytes::Bytes;
use flatkube::api::server::Limits;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::client::Client;
use crate::{LONG, Started};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition of `plural.example.com` with one version, which keeps everything.
fn definition(plural: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [version("v1", true)],
        },
    })
}

fn version(name: &str, storage: bool) -> Value {
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": schema(),
    })
}

/// The schema of everything here: a spec with a color, and whatever else.
fn schema() -> Value {
    json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"color": {"type": "string"}},
    }}}})
}

fn path(version: &str, plural: &str) -> String {
    format!("/apis/example.com/{version}/namespaces/default/{plural}")
}

#[allow(clippy::needless_pass_by_value, reason = "specs are written where they are used")]
fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// Asks until the answer is what is waited for.
async fn until(admin: &Client, path: &str, what: impl Fn(u16, &Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let answer = admin.get(path).await;
        if what(answer.code.as_u16(), &answer.body) {
            return answer.body;
        }
        assert!(begun.elapsed() < LONG, "{path}: {} {}", answer.code, answer.body);
        tokio::task::yield_now().await;
    }
}

async fn serve(admin: &Client, definition: &Value, path: &str) {
    let made = admin.post(DEFINITIONS, definition).await;
    assert_eq!(made.code, 201, "{}", made.body);
    until(admin, path, |code, _| code == 200).await;
}

async fn made(admin: &Client, path: &str, object: &Value) -> Value {
    let answer = admin.post(path, object).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    answer.body
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_definition_is_served_within_fifty_milliseconds() {
    let started = Started::usual().await;
    let admin = started.admin();
    let mut quickest = Duration::MAX;
    // A machine that is busy with other things may be slow now and then.
    for number in 0..20 {
        let plural = format!("widgets{number}");
        let begun = Instant::now();
        serve(
            &admin,
            &definition(&plural, &format!("Widget{number}")),
            &path("v1", &plural),
        )
        .await;
        quickest = quickest.min(begun.elapsed());
    }
    assert!(quickest < Duration::from_millis(50), "{quickest:?}");
}

#[tokio::test]
async fn custom_objects_are_there_after_a_restart_before_the_first_question() {
    let started = Started::usual().await;
    let admin = started.admin();
    let mut widgets = definition("widgets", "Widget");
    widgets["spec"]["versions"][0]["additionalPrinterColumns"] =
        json!([{"name": "Color", "type": "string", "jsonPath": ".spec.color"}]);
    widgets["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    let widgets_path = path("v1", "widgets");
    serve(&admin, &widgets, &widgets_path).await;
    for (name, color) in [("a", "red"), ("b", "blue")] {
        made(&admin, &widgets_path, &widget(name, json!({"color": color}))).await;
    }
    let before = admin.get(&widgets_path).await.body;
    let started = started.again().await;
    let admin = started.admin();
    let after = admin.get(&widgets_path).await;
    assert_eq!(after.code, 200, "{}", after.body);
    assert_eq!(after.body["items"], before["items"]);
    let selected = admin
        .get(&format!("{widgets_path}?fieldSelector=spec.color%3Dblue"))
        .await
        .body;
    assert_eq!(names(&selected), ["b"]);
    let table = admin.table(&widgets_path).await.body;
    assert_eq!(table["rows"][0]["cells"], json!(["a", "red"]));
    assert_eq!(admin.get("/apis/example.com").await.code, 200);
}

#[tokio::test]
async fn columns_and_selectable_fields_that_change_are_right_at_once_for_what_was_there() {
    let started = Started::usual().await;
    let admin = started.admin();
    let widgets_path = path("v1", "widgets");
    serve(&admin, &definition("widgets", "Widget"), &widgets_path).await;
    for number in 0..20 {
        let color = if number % 2 == 0 { "red" } else { "blue" };
        made(
            &admin,
            &widgets_path,
            &widget(&format!("w{number:02}"), json!({"color": color})),
        )
        .await;
    }
    let before = admin.get(&widgets_path).await.body;
    let change = json!({"spec": {"versions": [{
        "name": "v1", "served": true, "storage": true,
        "schema": schema(),
        "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
        "selectableFields": [{"jsonPath": ".spec.color"}],
    }]}});
    let changed = admin
        .merge(&format!("{DEFINITIONS}/widgets.example.com"), &change)
        .await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    loop {
        let table = admin.table(&widgets_path).await.body;
        // Either all of it is of the old definition, or all of the new one.
        if table["columnDefinitions"][1]["name"] == "Color" {
            assert_eq!(table["rows"][1]["cells"], json!(["w01", "blue"]));
            break;
        }
        assert_eq!(table["columnDefinitions"][1]["name"], "Age");
    }
    let selector = format!("{widgets_path}?fieldSelector=spec.color%3Dred");
    let selected = until(&admin, &selector, |code, _| code == 200).await;
    assert_eq!(names(&selected).len(), 10, "{selected}");
    made(&admin, &widgets_path, &widget("new", json!({"color": "red"}))).await;
    assert_eq!(names(&admin.get(&selector).await.body).len(), 11);
    let after = admin.get(&widgets_path).await.body;
    assert_eq!(after["items"].as_array().unwrap().len(), 21);
    let old = before["items"].as_array().unwrap();
    let kept = after["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| old.contains(item));
    assert_eq!(kept.count(), 20, "no object was written again");
}

#[tokio::test]
async fn every_version_shows_all_objects_whichever_version_they_are_stored_in() {
    let started = Started::usual().await;
    let admin = started.admin();
    let mut widgets = definition("widgets", "Widget");
    widgets["spec"]["versions"] = json!([version("v1", true), version("v2", false)]);
    serve(&admin, &widgets, &path("v2", "widgets")).await;
    made(&admin, &path("v1", "widgets"), &widget("a", json!({"n": 1}))).await;
    let change = json!({"spec": {"versions": [version("v1", false), version("v2", true)]}});
    let definition_path = format!("{DEFINITIONS}/widgets.example.com");
    assert_eq!(admin.merge(&definition_path, &change).await.code, 200);
    until(&admin, &definition_path, |_, body| {
        body["status"]["storedVersions"] == json!(["v1", "v2"])
    })
    .await;
    let mut second = widget("b", json!({"n": 2}));
    second["apiVersion"] = "example.com/v2".into();
    made(&admin, &path("v2", "widgets"), &second).await;
    for version in ["v1", "v2"] {
        let wanted = format!("example.com/{version}");
        let list = admin.get(&path(version, "widgets")).await.body;
        assert_eq!((&list["apiVersion"], names(&list)), (&json!(wanted), vec!["a", "b"]));
        for item in list["items"].as_array().unwrap() {
            assert_eq!(item["apiVersion"], wanted);
            let name = item["metadata"]["name"].as_str().unwrap();
            let single = admin.get(&format!("{}/{name}", path(version, "widgets"))).await.body;
            assert_eq!(single, *item);
        }
    }
}

#[tokio::test]
async fn names_belong_to_the_first_who_asks_and_go_to_the_next_when_it_goes() {
    let started = Started::usual().await;
    let admin = started.admin();
    serve(&admin, &definition("widgets", "Widget"), &path("v1", "widgets")).await;
    let second = definition("gadgets", "Widget");
    assert_eq!(admin.post(DEFINITIONS, &second).await.code, 201);
    let gadgets = format!("{DEFINITIONS}/gadgets.example.com");
    let refused = until(&admin, &gadgets, |_, body| body["status"]["conditions"].is_array()).await;
    let condition = &refused["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("NamesAccepted"), &json!("False"))
    );
    assert_eq!(admin.get(&path("v1", "gadgets")).await.code, 404);
    assert_eq!(
        admin.delete(&format!("{DEFINITIONS}/widgets.example.com")).await.code,
        200
    );
    until(&admin, &path("v1", "gadgets"), |code, _| code == 200).await;
    assert_eq!(admin.get(&path("v1", "widgets")).await.code, 404);
}

#[tokio::test]
async fn discovery_and_openapi_follow_the_definitions() {
    let started = Started::usual().await;
    let admin = started.admin();
    let index = admin.get("/openapi/v3").await.body;
    assert!(index["paths"]["apis/example.com/v1"].is_null());
    let mut widgets = definition("widgets", "Widget");
    widgets["spec"]["versions"] = json!([version("v1beta1", false), version("v1", true), version("v2", false)]);
    serve(&admin, &widgets, &path("v1", "widgets")).await;
    let group = admin.get("/apis/example.com").await.body;
    let versions: Vec<&Value> = group["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["version"])
        .collect();
    assert_eq!(versions, ["v2", "v1", "v1beta1"]);
    let groups = admin.get("/apis").await.body;
    assert!(
        groups["groups"]
            .as_array()
            .unwrap()
            .iter()
            .any(|group| group["name"] == "example.com")
    );
    let index = admin.get("/openapi/v3").await.body;
    let first = index["paths"]["apis/example.com/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap()
        .to_owned();
    let document = admin.get(&first).await.body;
    assert_eq!(
        document["components"]["schemas"]["com.example.v1.Widget"]["type"],
        "object"
    );
    let whole = admin.get("/openapi/v2").await.body;
    assert_eq!(whole["definitions"]["com.example.v1.Widget"]["type"], "object");
    let created = &whole["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets"]["post"];
    assert_eq!(
        created["parameters"][0]["schema"]["$ref"],
        "#/definitions/com.example.v1.Widget"
    );
    let change = json!({"spec": {"versions": [version("v1", true)]}});
    let changed = admin
        .merge(&format!("{DEFINITIONS}/widgets.example.com"), &change)
        .await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    until(&admin, "/openapi/v3", |_, body| {
        let now = &body["paths"]["apis/example.com/v1"]["serverRelativeURL"];
        *now != first && body["paths"]["apis/example.com/v2"].is_null()
    })
    .await;
    assert_eq!(
        admin.delete(&format!("{DEFINITIONS}/widgets.example.com")).await.code,
        200
    );
    until(&admin, "/apis/example.com", |code, _| code == 404).await;
}

#[tokio::test]
async fn a_namespace_that_ends_takes_its_custom_objects_with_it() {
    let started = Started::with(Limits::default(), true).await;
    let admin = started.admin();
    serve(&admin, &definition("widgets", "Widget"), &path("v1", "widgets")).await;
    let team = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    made(&admin, "/api/v1/namespaces", &team).await;
    made(
        &admin,
        &path("v1", "widgets").replace("default", "team"),
        &widget("a", json!({})),
    )
    .await;
    made(&admin, &path("v1", "widgets"), &widget("b", json!({}))).await;
    assert_eq!(admin.delete("/api/v1/namespaces/team").await.code, 200);
    until(&admin, "/api/v1/namespaces/team", |code, _| code == 404).await;
    assert_eq!(names(&admin.get("/apis/example.com/v1/widgets").await.body), ["b"]);
}

#[tokio::test]
async fn a_watch_of_a_version_that_is_served_no_more_ends_before_it_tells_of_more() {
    let started = Started::usual().await;
    let admin = started.admin();
    let widgets = definition("widgets", "Widget");
    let old = path("v1", "widgets");
    serve(&admin, &widgets, &old).await;
    made(&admin, &old, &widget("a", json!({}))).await;
    let watch = admin.open("GET", &format!("{old}?watch=true"), "", Bytes::new()).await;
    let mut body = watch.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(br#"{"type":"ADDED""#));

    let mut without = version("v1", false);
    without["served"] = false.into();
    let change = json!({"spec": {"versions": [version("v2", true), without]}});
    let changed = admin
        .merge(&format!("{DEFINITIONS}/widgets.example.com"), &change)
        .await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    let new = path("v2", "widgets");
    until(&admin, &new, |code, _| code == 200).await;
    let mut other = widget("b", json!({}));
    other["apiVersion"] = "example.com/v2".into();
    made(&admin, &new, &other).await;
    let rest = tokio::time::timeout(LONG, body.collect())
        .await
        .unwrap()
        .unwrap()
        .to_bytes();
    assert!(rest.is_empty(), "{rest:?}");
}
