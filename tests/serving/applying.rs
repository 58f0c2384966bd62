//! Server-side applies that lie, go too deep, or come at the same time.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::Started;
use crate::client::{Answer, Client};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn apply(client: &Client, name: &str, query: &str, body: impl Into<Bytes>) -> Answer {
    let path = format!("{MAPS}/{name}?{query}");
    client
        .send("PATCH", &path, "application/apply-patch+yaml", body.into())
        .await
}

fn map(name: &str, data: &Value) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}).to_string()
}

/// A nest in YAML once ended the server: each level took too much of the stack.
#[tokio::test]
async fn nests_are_refused_or_taken() {
    let started = Started::usual().await;
    let admin = started.admin();
    for depth in [50, 64, 120, 140, 50_000] {
        for (open, close) in [("{\"a\":", "}"), ("[", "]")] {
            let nest = [&open.repeat(depth), "1", &close.repeat(depth)].concat();
            let json = format!(
                "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"n\"}},\"data\":{nest}}}"
            );
            let yaml = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: n}}\ndata: {nest}\n");
            for body in [json, yaml, format!("{open}\n").repeat(depth)] {
                let answer = apply(&admin, "n", "fieldManager=m", body).await;
                assert!(
                    matches!(answer.code.as_u16(), 400 | 500),
                    "{} {}",
                    answer.code,
                    answer.body
                );
            }
        }
    }
    assert_eq!(
        apply(&admin, "n", "fieldManager=m", map("n", &json!({"a": "1"})))
            .await
            .code,
        201
    );
}

#[tokio::test]
async fn keys_that_come_twice_are_told_or_refused() {
    let started = Started::usual().await;
    let admin = started.admin();
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: q}\ndata:\n  a: \"1\"\n  a: \"2\"\n";
    let strict = apply(&admin, "q", "fieldManager=m&fieldValidation=Strict", yaml).await;
    assert_eq!(
        strict.body["message"],
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 6: key \"a\" already set in map"
    );
    let warned = apply(&admin, "q", "fieldManager=m", yaml).await;
    assert_eq!((warned.code.as_u16(), &warned.body["data"]["a"]), (201, &json!("2")));
}

#[tokio::test]
async fn managers_that_lie_do_no_harm() {
    let started = Started::usual().await;
    let admin = started.admin();
    assert_eq!(
        apply(&admin, "m", "fieldManager=m", map("m", &json!({"a": "1"})))
            .await
            .code,
        201
    );
    let path = format!("{MAPS}/m");
    let entry = |manager: String, fields: Value| json!({"manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
    // What is no set leaves all as it was.
    for fields in [
        json!({"x": {}}),
        json!({"k:{": {}}),
        json!({"f:data": 5}),
        json!({"k:[1]": {}}),
    ] {
        let mut lie: Value = serde_json::from_str(&map("m", &json!({"a": "1"}))).unwrap();
        lie["metadata"]["managedFields"] = json!([entry("liar".into(), fields)]);
        let answer = admin.put(&path, &lie).await;
        assert_eq!(
            answer.body["metadata"]["managedFields"][0]["manager"], "m",
            "{}",
            answer.body
        );
    }
    // What is one counts, whatever it says is there; and there may be many.
    let many = (0..3_000).map(|number| entry(format!("m{number}"), json!({"f:data": {"f:a": {}, "f:none": {}}})));
    let mut lie: Value = serde_json::from_str(&map("m", &json!({"a": "1"}))).unwrap();
    lie["metadata"]["managedFields"] = many.collect();
    let answer = admin.put(&path, &lie).await;
    assert_eq!(
        answer.body["metadata"]["managedFields"].as_array().map(Vec::len),
        Some(3_000)
    );
    let refused = apply(&admin, "m", "fieldManager=m0", map("m", &json!({"a": "2"}))).await;
    assert_eq!(refused.code, 409);
    assert_eq!(refused.body["details"]["causes"].as_array().map(Vec::len), Some(1_000));
    let forced = apply(&admin, "m", "fieldManager=m0&force=true", map("m", &json!({"a": "2"}))).await;
    assert_eq!((forced.code.as_u16(), &forced.body["data"]), (200, &json!({"a": "2"})));
    let gone = apply(&admin, "m", "fieldManager=m0", map("m", &json!({}))).await;
    assert_eq!(gone.body.get("data"), None, "{}", gone.body["data"]);
}

/// Each of several managers applies its own key, all at once, also the creation: nobody loses any.
#[tokio::test]
async fn applies_at_the_same_time_all_count() {
    let started = Started::usual().await;
    let admin = started.admin();
    let applies = (0..12).map(|number| {
        let admin = admin.clone();
        tokio::spawn(async move {
            let data = json!({format!("k{number}"): "v"});
            let answer = apply(&admin, "race", &format!("fieldManager=m{number}"), map("race", &data)).await;
            assert!(matches!(answer.code.as_u16(), 200 | 201), "{}", answer.body);
        })
    });
    for apply in applies.collect::<Vec<_>>() {
        apply.await.expect("it is applied");
    }
    let made = admin.get(&format!("{MAPS}/race")).await;
    assert_eq!(made.body["data"].as_object().map(serde_json::Map::len), Some(12));
    assert_eq!(
        made.body["metadata"]["managedFields"].as_array().map(Vec::len),
        Some(12)
    );
}

#[tokio::test]
async fn fields_of_another_version_are_told_by_the_schema_of_that_version() {
    let started = Started::usual().await;
    let admin = started.admin();
    let version = |name: &str, storage: bool, list_type: &str| {
        let tags = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": list_type});
        let spec = json!({"type": "object", "properties": {"tags": tags}});
        json!({"name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boxes.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "boxes", "kind": "Box"},
            "versions": [version("v1", true, "atomic"), version("v2", false, "set")]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(admin.post(definitions, &definition).await.code, 201);
    let of = |version: &str| format!("/apis/example.com/{version}/namespaces/default/boxes");
    while admin.get(&of("v2")).await.code != 200 {
        tokio::task::yield_now().await;
    }
    let apply = async |version: &str, manager: &str, tag: &str| {
        let path = format!("{}/one?fieldManager={manager}", of(version));
        let body = json!({"apiVersion": format!("example.com/{version}"), "kind": "Box", "metadata": {"name": "one"}, "spec": {"tags": [tag]}});
        admin
            .send("PATCH", &path, "application/apply-patch+yaml", body.to_string().into())
            .await
    };
    let first = apply("v1", "one", "red").await;
    assert_eq!(first.code, 201, "{}", first.body);
    // In v2 a tag more is nobody's. In v1, in which the first manager wrote, all tags are one field, which is its own.
    let second = apply("v2", "two", "blue").await;
    assert_eq!(second.code, 409, "{}", second.body);
    assert_eq!(second.body["details"]["causes"][0]["field"], ".spec.tags");
}

/// The replicas of a custom object may lie anywhere; who applies a Scale manages that field.
#[tokio::test]
async fn an_applied_scale_takes_the_field_that_the_definition_names() {
    const OBJECT: &str = "/apis/example.com/v1/namespaces/default/gadgets/g";
    let started = Started::usual().await;
    let admin = started.admin();
    let definition = json!({"metadata": {"name": "gadgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "subresources": {"scale": {"specReplicasPath": ".spec.pool.size", "statusReplicasPath": ".status.size"}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "color": {"type": "string"},
                "pool": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}}}}]}});
    let made = admin
        .post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)
        .await;
    assert_eq!(made.code, 201, "{}", made.body);
    let begun = std::time::Instant::now();
    while admin.get("/apis/example.com/v1/gadgets").await.code != 200 {
        assert!(begun.elapsed() < crate::LONG);
        tokio::task::yield_now().await;
    }
    let apply = async |path: &str, query: &str, body: Value| {
        let path = format!("{path}?{query}");
        let body = Bytes::from(body.to_string());
        admin.send("PATCH", &path, "application/apply-patch+yaml", body).await
    };
    let gadget = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"},
        "spec": {"color": "red", "pool": {"size": 2}}});
    assert_eq!(apply(OBJECT, "fieldManager=maker", gadget).await.code, 201);
    let scale =
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "g"}, "spec": {"replicas": 5}});
    let at = format!("{OBJECT}/scale");
    let refused = apply(&at, "fieldManager=scaler", scale.clone()).await;
    assert_eq!(refused.code, 409, "{}", refused.body);
    assert_eq!(refused.body["details"]["causes"][0]["field"], ".spec.replicas");
    let taken = apply(&at, "fieldManager=scaler&force=true", scale).await;
    assert_eq!(taken.code, 200, "{}", taken.body);
    assert_eq!(taken.body["spec"]["replicas"], 5);
    let object = admin.get(OBJECT).await.body;
    assert_eq!(object["spec"]["pool"]["size"], 5);
    let entries = object["metadata"]["managedFields"].as_array().expect("managers");
    let of = |manager: &str| {
        let entry = entries.iter().find(|entry| entry["manager"] == manager);
        entry.unwrap_or_else(|| panic!("{object}"))
    };
    let scaler = of("scaler");
    assert_eq!(
        (&scaler["apiVersion"], &scaler["operation"], &scaler["subresource"]),
        (&json!("example.com/v1"), &json!("Apply"), &json!("scale"))
    );
    assert_eq!(scaler["fieldsV1"], json!({"f:spec": {"f:pool": {"f:size": {}}}}));
    assert_eq!(of("maker")["fieldsV1"]["f:spec"]["f:pool"].get("f:size"), None);
}
