//! Applies of custom objects: what their schema says of lists and maps decides who owns what.

use super::super::managed::OneVersion;
use super::*;
use crate::schema::structural::Structural;
use crate::tree::json;

fn schema() -> Structural {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "ports": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {"type": "object", "required": ["port"], "properties": {
                "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": {"type": "string"},
            }},
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "whole": {"type": "array", "items": {"type": "string"}},
        "selector": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}}});
    Structural::compile(&schema).unwrap()
}

fn applied(schema: &Structural, live: Option<&Value>, manager: &str, spec: &Value) -> Result<Value, ApplyError> {
    let configuration: Value = [
        ("apiVersion", "example.com/v1".into()),
        ("kind", "Widget".into()),
        ("metadata", json!({"name": "w", "labels": {"by": "all"}})),
        ("spec", spec.clone()),
    ]
    .into_iter()
    .collect::<Map>()
    .into();
    let request = Request {
        manager,
        api_version: "example.com/v1",
        subresource: "",
        now: "2026-01-02T03:04:05Z",
        resets: &[],
    };
    let typed = Typed::from(schema);
    apply(typed, &OneVersion(typed), live, &configuration, &request, false).map(Applied::managed)
}

#[test]
fn lists_and_maps_are_merged_as_the_schema_says() {
    let schema = schema();
    let one = json!({"ports": [{"port": 80, "name": "web"}], "tags": ["a"], "anything": {"x": {"y": 1}}});
    let one = applied(&schema, None, "one", &one).unwrap();
    let two = json!({"ports": [{"port": 80, "protocol": "UDP"}], "tags": ["b"], "anything": {"x": {"z": 2}}});
    let both = applied(&schema, Some(&one), "two", &two).unwrap();
    assert_eq!(both["spec"]["ports"].as_array().map(|ports| ports.len()), Some(2));
    assert_eq!(both["spec"]["tags"], json!(["a", "b"]));
    assert_eq!(both["spec"]["anything"], json!({"x": {"y": 1, "z": 2}}));
    let fields = both["metadata"]["managedFields"][0]["fieldsV1"].to_json();
    assert!(fields.contains(r#""f:metadata":{"f:labels":{"f:by":{}}}"#), "{fields}");
    assert!(fields.contains(r#"k:{\"port\":80,\"protocol\":\"TCP\"}"#), "{fields}");
    let again = applied(&schema, Some(&both), "two", &two).unwrap();
    assert_eq!(again, both, "the same apply changes nothing");
    let gone = applied(&schema, Some(&both), "one", &json!({"tags": ["b"]})).unwrap();
    assert_eq!(gone["spec"]["tags"], json!(["b"]));
    assert_eq!(gone["spec"]["ports"], json!([{"port": 80, "protocol": "UDP"}]));
}

#[test]
fn what_is_atomic_is_one_field() {
    let schema = schema();
    let one = applied(&schema, None, "one", &json!({"whole": ["a"], "selector": {"a": "b"}})).unwrap();
    let conflict = applied(
        &schema,
        Some(&one),
        "two",
        &json!({"whole": ["a", "b"], "selector": {"c": "d"}}),
    )
    .unwrap_err();
    let conflict = conflict.to_string();
    assert!(
        conflict.contains(".spec.whole") && conflict.contains(".spec.selector"),
        "{conflict}"
    );
    let unknown = applied(&schema, None, "one", &json!({"bogus": 1}))
        .unwrap_err()
        .to_string();
    assert!(unknown.contains(".spec.bogus"), "{unknown}");
}
