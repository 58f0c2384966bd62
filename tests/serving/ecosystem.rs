//! As many definitions as a well-equipped cluster has, and as large: what they cost.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::{LONG, Started};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// How many definitions there are.
const COUNT: usize = 300;
/// Small ones that are made beside those, each waited for.
const SINGLES: usize = 20;

/// A description as generators take it from comments: about 160 bytes.
fn description(field: &str, number: usize) -> String {
    format!(
        "{field}{number} tells the controller what to do about the {field} of this resource. It is optional; when it is left out, the \
         default of the operator applies. More info: https://example.com/docs/{field}"
    )
}

/// An object schema with `width` fields a level, `depth` levels deep, of the kinds that real schemas have.
fn object(width: usize, depth: usize) -> Value {
    let mut fields = Map::new();
    for number in 0..width {
        let field = match number % 6 {
            0 => {
                json!({"type": "string", "description": description("mode", number), "enum": ["Auto", "Never", "Always"]})
            }
            1 => {
                json!({"type": "integer", "format": "int32", "minimum": 0, "description": description("count", number)})
            }
            2 => json!({"x-kubernetes-int-or-string": true, "description": description("quantity", number)}),
            3 => json!({"type": "array", "description": description("list", number), "items": {"type": "string"}}),
            4 if depth > 0 => json!({
                "type": "array", "description": description("items", number), "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": named(object(width / 2, depth - 1)),
            }),
            5 if depth > 0 => object(width, depth - 1),
            _ => {
                json!({"type": "object", "description": description("labels", number), "additionalProperties": {"type": "string"}})
            }
        };
        fields.insert(format!("field{number}"), field);
    }
    json!({"type": "object", "description": description("object", width), "properties": fields})
}

/// An item of a list that is a map has its key.
fn named(mut item: Value) -> Value {
    item["properties"]["name"] = json!({"type": "string"});
    item["required"] = json!(["name"]);
    item
}

/// Most definitions are small, some are large (Prometheus operator, Argo CD), a few very large; a third has two versions.
fn definition(number: usize) -> Value {
    let (width, depth) = match number % 30 {
        0 => (20, 3),
        1..=5 => (14, 3),
        _ => (12, 2),
    };
    let group = format!("team{}.example.com", number % 25);
    let (plural, kind) = (format!("things{number}"), format!("Thing{number}"));
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage, "subresources": {"status": {}},
            "additionalPrinterColumns": [
                {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            ],
            "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                    "spec": object(width, depth), "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                },
            }},
        })
    };
    let mut versions = vec![version("v1", true)];
    if number.is_multiple_of(3) {
        versions.push(version("v1beta1", false));
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "versions": versions,
            "names": {"plural": plural, "kind": kind, "singular": kind.to_lowercase(), "listKind": format!("{kind}List"),
                "shortNames": [format!("t{number}")], "categories": ["all"]},
        },
    })
}

/// Private memory of this process that no file stands behind, in KiB.
fn private_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text
        .lines()
        .find(|line| line.starts_with("Anonymous:"))
        .unwrap_or_default();
    line.split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: run it by hand, of a release build"]
async fn three_hundred_definitions() {
    let bodies: Vec<Value> = (0..COUNT).map(definition).collect();
    let sizes: Vec<usize> = bodies.iter().map(|body| body.to_string().len()).collect();
    let started = Started::usual().await;
    let admin = started.admin();
    let before = private_kib();
    let begun = Instant::now();
    for body in &bodies {
        let made = admin.post(DEFINITIONS, body).await;
        assert_eq!(made.code, 201, "{}", made.body);
    }
    let created = begun.elapsed();
    let last = format!("/apis/team{}.example.com/v1/things{}", (COUNT - 1) % 25, COUNT - 1);
    while admin.get(&last).await.code != 200 {
        assert!(begun.elapsed() < LONG * 4);
    }
    let served = begun.elapsed();
    let grown = private_kib().saturating_sub(before);
    let mut discovery = Duration::MAX;
    let mut first = Duration::ZERO;
    for round in 0..20 {
        let begun = Instant::now();
        let answer = admin
            .get_as(
                "/apis",
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            )
            .await;
        assert_eq!(answer.code, 200);
        assert!(answer.body["items"].as_array().unwrap().len() > 25);
        discovery = discovery.min(begun.elapsed());
        if round == 0 {
            first = begun.elapsed();
        }
    }
    let mut slowest = Duration::ZERO;
    for number in 0..SINGLES {
        let (plural, kind) = (format!("singles{number}"), format!("Single{number}"));
        let single = json!({
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": object(4, 2)}}]},
        });
        let begun = Instant::now();
        let made = admin.post(DEFINITIONS, &single).await;
        assert_eq!(made.code, 201, "{}", made.body);
        while admin.get(&format!("/apis/example.com/v1/{plural}")).await.code != 200 {
            assert!(begun.elapsed() < LONG);
        }
        slowest = slowest.max(begun.elapsed());
    }
    println!("{SINGLES} more, small ones: each served within {slowest:.1?} of its request, beside the {COUNT}");
    println!(
        "{COUNT} definitions, {} KiB together, the largest {} KiB: created one after the other in {created:.1?}, all served after {served:.1?}; \
         {grown} KiB more private memory; aggregated discovery {first:.1?} the first time, {discovery:.1?} then",
        sizes.iter().sum::<usize>() / 1024,
        sizes.iter().max().unwrap() / 1024,
    );
}
