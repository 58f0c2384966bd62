//! Both directions against each other.

use super::*;
use crate::schema::Schema;
use crate::tree::{Value, json};

/// What is left of a value when nothing is as good as an empty value.
fn without_nothing(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name, without_nothing(value)));
            Value::Object(fields.filter(|(_, value)| !value.is_null()).collect())
        }
        Value::Array(list) if list.is_empty() => Value::Null,
        Value::Array(list) => list.iter().map(without_nothing).collect(),
        other => other.clone(),
    }
}

#[test]
fn what_is_told_in_protobuf_is_read_as_what_it_was() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in include_str!("../../resources/testdata/tables.jsonl").lines() {
        let recorded: Value = serde_json::from_str(line).unwrap();
        let object = &recorded["object"];
        if object["kind"].is_null() {
            continue;
        }
        let json = object.to_string();
        let told = json_to_protobuf(json.as_bytes()).unwrap_or_else(|error| panic!("{error}: {json}"));
        let read = protobuf_to_json(&told).unwrap_or_else(|error| panic!("{error}: {json}"));
        count += 1;
        if without_nothing(&read) != without_nothing(object) {
            wrong.push(format!("{}\n{}", without_nothing(object), without_nothing(&read)));
        }
    }
    assert!(count > 60, "{count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn lengths_inlined_messages_escapes_and_raw_json_are_written_as_go_reads_them() {
    let long = "é\n\"".repeat(60);
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "creationTimestamp": "2026-11-30T10:00:01Z", "labels": {"a": long},
            "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {"f:x": {}}}}],
        },
        "spec": {
            "containers": [{
                "name": "c",
                "resources": {"requests": {"cpu": "100m"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 5, "failureThreshold": -1},
            }],
            "volumes": [{"name": "v", "configMap": {"name": "m", "defaultMode": 420}}],
            "ephemeralContainers": [{"name": "e", "image": "i", "targetContainerName": "c", "stdin": true}],
        },
    });
    let told = json_to_protobuf(object.to_string().as_bytes()).unwrap();
    assert!(told.starts_with(b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12"), "{told:?}");
    assert!(told.ends_with(&[0x1a, 0, 0x22, 0]), "{told:?}");
    assert_eq!(protobuf_to_json(&told), Ok(object));
}

#[test]
fn times_before_1970_and_at_the_end_of_the_calendar_come_through() {
    for (created, renewed) in [
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999Z"),
        ("1969-12-31T23:59:59Z", "1969-12-31T23:59:58.000001Z"),
        ("0001-01-02T00:00:00Z", "0001-01-02T00:00:00.500000Z"),
    ] {
        let object = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"creationTimestamp": created}, "spec": {"renewTime": renewed}});
        let told = json_to_protobuf(object.to_string().as_bytes()).unwrap();
        assert_eq!(protobuf_to_json(&told), Ok(object));
    }
}

#[test]
fn what_a_definition_has_for_a_schema_comes_through() {
    let object = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "spec": {"versions": [{
            "name": "v1",
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {
                "properties": {
                    "a": {"additionalProperties": true, "default": {"x": [1, null]}, "maximum": 1.5},
                    "b": {"additionalProperties": {"type": "string"}, "items": {"type": "string"}, "enum": ["u", 1]},
                },
                "type": "object",
            }},
        }]},
    });
    let told = json_to_protobuf(object.to_string().as_bytes()).unwrap();
    assert_eq!(protobuf_to_json(&told), Ok(object));
}

#[test]
fn what_is_no_object_of_its_kind_is_refused() {
    for json in [
        "",
        "{",
        "[]",
        "{}",
        "{\"kind\":\"Pod\"}",
        r#"{"kind":"Unicorn","apiVersion":"v1"}"#,
        r#"{"kind":"Pod","apiVersion":"v1","spec":[]}"#,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"creationTimestamp":"yesterday"}}"#,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"\"#,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}"#,
        r#"{"kind":"Secret","apiVersion":"v1","data":{"a":"%"}}"#,
        r#"{"kind":"Pod","apiVersion":"v1","spec":{"priority":{}}}"#,
    ] {
        assert!(json_to_protobuf(json.as_bytes()).is_err(), "{json}");
    }
}

proptest::proptest! {
    #[test]
    fn texts_of_no_meaning_do_no_harm(text in "[\\[\\]{}\":,a-z\\\\u0-9é]{0,60}") {
        let _ = json_to_protobuf(text.as_bytes());
        let pod = Schema::of("", "v1", "Pod").unwrap();
        let _ = append_message(format!("{{\"spec\":{text}").as_bytes(), pod, &mut Vec::new());
    }
}
