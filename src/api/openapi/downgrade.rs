//! From schemas of version 3 to those of version 2, which can say less.
//!
//! What is left out is what kube-apiserver leaves out of a definition's schema for `/openapi/v2`: clients that read it would
//! otherwise refuse what the server takes.

use serde_json::{Value, json};

use super::pattern::Version;

/// A structural schema without what version 2 has no words for: choices between schemas, and values that may be `null`.
/// Linear in its size.
pub(super) fn structural(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    for choice in ["oneOf", "anyOf", "allOf", "not"] {
        fields.remove(choice);
    }
    if fields.remove("nullable") == Some(json!(true)) {
        for field in ["type", "items", "properties"] {
            fields.remove(field);
        }
    }
    if fields.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(true)) {
        for field in ["items", "properties"] {
            fields.remove(field);
        }
    }
    for field in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(field) {
            structural(inner);
        }
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(structural);
    }
}

/// References as version 2 writes them: not wrapped, and to its definitions.
pub(super) fn references(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let wrapped = fields.get("allOf").and_then(|all| all.get(0)?.get("$ref")).cloned();
            if let Some(reference) = wrapped {
                fields.remove("allOf");
                fields.remove("default");
                fields.insert("$ref".into(), reference);
            }
            if let Some(Value::String(reference)) = fields.get_mut("$ref")
                && let Some(name) = reference.strip_prefix(Version::V3.base())
            {
                *reference = format!("{}{name}", Version::V2.base());
            }
            fields.values_mut().for_each(references);
        }
        Value::Array(items) => items.iter_mut().for_each(references),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_null_or_one_of_several_is_of_any_type() {
        let mut schema = json!({"type": "object", "properties": {
            "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "maybe": {"type": "object", "nullable": true, "properties": {"a": {"type": "string"}}},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "string"}}},
            "list": {"type": "array", "items": {"type": "string", "not": {"enum": ["x"]}}},
        }});
        structural(&mut schema);
        assert_eq!(
            schema["properties"],
            json!({
                "port": {"x-kubernetes-int-or-string": true},
                "maybe": {},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "list": {"type": "array", "items": {"type": "string"}},
            })
        );
    }

    #[test]
    fn references_lead_to_definitions() {
        let mut schema =
            json!({"metadata": {"allOf": [{"$ref": "#/components/schemas/Meta"}], "default": {}, "description": "x"}});
        references(&mut schema);
        assert_eq!(
            schema,
            json!({"metadata": {"$ref": "#/definitions/Meta", "description": "x"}})
        );
    }
}
