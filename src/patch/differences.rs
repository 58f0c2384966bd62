//! For each type of patch: the patch that makes one object of another does.

use proptest::prelude::*;

use super::*;
use crate::schema::{Field, Type};
use crate::tree::{Map, json};

/// The JSON patch that makes `to` of `from`, written below `path`.
fn operations(from: &Value, to: &Value, path: &str, made: &mut Vec<Value>) {
    let below = |key: &str| format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
    match (from, to) {
        _ if from == to => {}
        (Value::Object(from), Value::Object(to)) => {
            for key in from.keys().filter(|key| !to.contains_key(key)) {
                made.push(json!({"op": "remove", "path": below(key)}));
            }
            for (key, value) in to {
                match from.get(key) {
                    Some(present) => operations(present, value, &below(key), made),
                    None => made.push(json!({"op": "add", "path": below(key), "value": value})),
                }
            }
        }
        (Value::Array(from), Value::Array(to)) => {
            for (i, (present, value)) in from.iter().zip(to.iter()).enumerate() {
                operations(present, value, &below(&i.to_string()), made);
            }
            for i in (to.len()..from.len()).rev() {
                made.push(json!({"op": "remove", "path": below(&i.to_string())}));
            }
            for value in to.iter().skip(from.len()) {
                made.push(json!({"op": "add", "path": below("-"), "value": value}));
            }
        }
        _ => made.push(json!({"op": "replace", "path": path, "value": to})),
    }
}

/// The strategic merge patch that makes `to` of `from`, with all directives that order and deletion need.
fn directives(from: &Map, to: &Map, schema: Option<Schema<'static>>) -> Map {
    let mut made = Map::new();
    for key in from.keys().filter(|key| !to.contains_key(key)) {
        made.insert(key.clone(), Value::Null);
    }
    for (key, value) in to {
        let present = from.get(key).unwrap_or(&Value::Null);
        if present == value {
            continue;
        }
        let field = schema.and_then(|schema| schema.field(key));
        match (present, value) {
            (Value::Object(present), Value::Object(value)) => {
                let inner = match field.map(Field::ty) {
                    Some(Type::Schema(schema)) => Some(schema),
                    _ => None,
                };
                made.insert(key.clone(), Value::Object(directives(present, value, inner)));
            }
            (Value::Array(present), Value::Array(value)) if field.is_some_and(Field::patch_merge) => {
                let field = field.unwrap();
                match field.merge_key() {
                    Some(merge_key) => keyed(key, merge_key, present, value, field, &mut made),
                    None => primitives(key, present, value, &mut made),
                }
            }
            _ => {
                made.insert(key.clone(), value.clone());
            }
        }
    }
    made
}

fn keyed(
    key: &str,
    merge_key: &str,
    from: &crate::tree::List,
    to: &crate::tree::List,
    field: Field<'static>,
    made: &mut Map,
) {
    let inner = match field.ty() {
        Type::List(element) => match element.ty() {
            Type::Schema(schema) => Some(schema),
            _ => None,
        },
        _ => None,
    };
    let find =
        |list: &crate::tree::List, item: &Value| list.iter().find(|other| other[merge_key] == item[merge_key]).cloned();
    let mut items = Vec::new();
    for item in to {
        match find(from, item) {
            Some(present) if present == *item => {}
            Some(present) => {
                let mut patch = directives(present.as_object().unwrap(), item.as_object().unwrap(), inner);
                patch.insert(merge_key.to_owned(), item[merge_key].clone());
                items.push(Value::Object(patch));
            }
            None => items.push(item.clone()),
        }
    }
    for item in from.iter().filter(|item| find(to, item).is_none()) {
        let mut gone = Map::new();
        gone.insert(merge_key.to_owned(), item[merge_key].clone());
        gone.insert("$patch", "delete".into());
        items.push(Value::Object(gone));
    }
    let order = |item: &Value| Value::Object([(merge_key.to_owned(), item[merge_key].clone())].into_iter().collect());
    made.insert(format!("$setElementOrder/{key}"), to.iter().map(order).collect());
    if !items.is_empty() {
        made.insert(key.to_owned(), items.into());
    }
}

fn primitives(key: &str, from: &crate::tree::List, to: &crate::tree::List, made: &mut Map) {
    let without = |list: &crate::tree::List, other: &crate::tree::List| -> Vec<Value> {
        list.iter()
            .filter(|item| !other.iter().any(|o| o == *item))
            .cloned()
            .collect()
    };
    let (gone, added) = (without(from, to), without(to, from));
    if !gone.is_empty() {
        made.insert(format!("$deleteFromPrimitiveList/{key}"), gone.into());
    }
    made.insert(format!("$setElementOrder/{key}"), to.iter().cloned().collect());
    if !added.is_empty() {
        made.insert(key.to_owned(), added.into());
    }
}

/// JSON of any shape, with keys that a path has to escape.
fn any_document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..5_i64).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from)
    ];
    let inner = leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c~/]{0,2}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    prop::collection::btree_map("[a-c~/]{0,2}", inner, 0..5).prop_map(|map| Value::Object(map.into_iter().collect()))
}

/// Items with distinct names, in any order; each with the fields that `fields` makes.
fn any_named<S>(fields: S) -> impl Strategy<Value = Value>
where
    S: Strategy<Value = Vec<(&'static str, Value)>> + 'static,
{
    prop::collection::btree_map("[a-e]", fields, 0..5)
        .prop_map(|map| map.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
        .prop_map(|list| {
            let item = |(name, fields): (String, Vec<(&'static str, Value)>)| {
                let mut item = json!({"name": name});
                for (field, value) in fields.into_iter().filter(|(_, value)| !value.is_null()) {
                    item[field] = value;
                }
                item
            };
            list.into_iter().map(item).collect::<Value>()
        })
}

fn maybe(strategy: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::option::of(strategy).prop_map(|value| match value {
        Some(Value::Array(items)) if items.is_empty() => Value::Null,
        value => value.unwrap_or_default(),
    })
}

/// A Pod with lists of all sorts: merged by key on two levels, merged as sets, replaced as a whole; and maps.
fn any_pod() -> impl Strategy<Value = Value> {
    let words = || prop::collection::vec("[x-z]", 0..3).prop_map(Value::from);
    let set = || {
        prop::collection::btree_set("e.com/[a-d]", 0..4)
            .prop_map(|set| set.into_iter().collect::<Vec<_>>())
            .prop_shuffle()
            .prop_map(Value::from)
    };
    let map = || {
        prop::collection::btree_map("[a-c]", "[x-z]", 1..3)
            .prop_map(|map| Value::Object(map.into_iter().map(|(key, value)| (key, Value::from(value))).collect()))
    };
    let variables = any_named("[x-z]".prop_map(|value| vec![("value", Value::from(value))]));
    let container = ("[x-z]", maybe(words()), maybe(variables))
        .prop_map(|(image, args, env)| vec![("image", Value::from(image)), ("args", args), ("env", env)]);
    let mounts = any_named("[x-z]".prop_map(|path| vec![("configMap", json!({"name": path}))]));
    (
        any_named(container),
        maybe(mounts),
        maybe(map()),
        maybe(map()),
        maybe(set()),
        maybe(words().prop_map(|keys| keys.as_array().unwrap().iter().map(|key| json!({"key": key})).collect())),
    )
        .prop_map(|(containers, volumes, labels, selector, finalizers, tolerations)| {
            let mut pod = json!({"metadata": {"name": "p"}, "spec": {}});
            for (part, field, value) in [
                ("metadata", "labels", labels),
                ("metadata", "finalizers", finalizers),
                ("spec", "containers", containers),
                ("spec", "volumes", volumes),
                ("spec", "nodeSelector", selector),
                ("spec", "tolerations", tolerations),
            ] {
                if !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()) {
                    pod[part][field] = value;
                }
            }
            pod
        })
}

proptest! {
    #[test]
    fn a_json_patch_of_the_difference_makes_the_target(from in any_document(), to in any_document()) {
        let mut made = Vec::new();
        operations(&from, &to, "", &mut made);
        let (operations, findings) = json_patch::decode(Value::from(made).to_string().as_bytes(), true).unwrap();
        prop_assert_eq!(findings, Vec::<String>::new());
        prop_assert_eq!(json_patch::apply(from, &operations).unwrap(), to);
    }

    #[test]
    fn a_strategic_patch_of_the_difference_makes_the_target(from in any_pod(), to in any_pod()) {
        let schema = Schema::of("", "v1", "Pod").unwrap();
        let patch = Value::Object(directives(from.as_object().unwrap(), to.as_object().unwrap(), Some(schema)));
        let body = patch.to_string();
        let made = apply(PatchKind::Strategic, &from, body.as_bytes(), schema, FieldValidation::Strict).unwrap();
        prop_assert_eq!(&made.value, &to, "{}", patch);
    }
}

#[test]
fn a_patch_that_is_not_looked_at_closely_is_refused_in_other_words() {
    let original = json!({"data": {"a": "1"}});
    let schema = Schema::of("", "v1", "ConfigMap").unwrap();
    let told = |kind, body: &str, validation| match apply(kind, &original, body.as_bytes(), schema, validation) {
        Ok(made) => made.value.to_string(),
        Err(error) => error.to_string(),
    };
    for (kind, body, warned, ignored) in [
        (PatchKind::Merge, "null", "Invalid JSON Patch", "Invalid JSON Patch"),
        (
            PatchKind::Merge,
            "{bad",
            "error decoding patch: invalid character 'b' looking for beginning of object key string",
            "Invalid JSON Patch",
        ),
        (
            PatchKind::Merge,
            "5",
            "error decoding patch: json: cannot unmarshal number into Go value of type map[string]interface {}",
            "Invalid JSON Patch",
        ),
        (
            PatchKind::Json,
            "{}",
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch",
        ),
        (
            PatchKind::Json,
            "[5]",
            "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
            "json: cannot unmarshal number into Go value of type jsonpatch.Operation",
        ),
        (
            PatchKind::Json,
            "null",
            r#"{"data":{"a":"1"}}"#,
            r#"{"data":{"a":"1"}}"#,
        ),
    ] {
        assert_eq!(told(kind, body, FieldValidation::Warn), warned, "{body}");
        assert_eq!(told(kind, body, FieldValidation::Ignore), ignored, "{body}");
    }
    let odd = apply(
        PatchKind::Json,
        &original,
        br#"[{"op":5,"path":"/data/a"}]"#,
        schema,
        FieldValidation::Ignore,
    );
    assert!(matches!(odd, Err(PatchError::NotApplicable(_))), "{odd:?}");
}
