//! What holds for every schema and every object.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::{Structural, Under};
use crate::tree::Value;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "spec"];

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&NAMES[..])
}

/// Any small value, of the names that schemas have too.
fn value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        (-3_i64..9).prop_map(Json::from),
        (-4_i64..9).prop_map(|n| json!(n as f64 / 2.0)),
        "[a-c]{0,4}".prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::btree_map(name().prop_map(str::to_owned), inner, 0..4)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

fn scalar() -> impl Strategy<Value = Json> {
    let bound = || prop::option::of(0_i64..5);
    prop_oneof![
        (bound(), bound(), any::<bool>()).prop_map(|(min, max, nullable)| {
            let mut schema = json!({"type": "string", "nullable": nullable});
            schema["minLength"] = json!(min);
            schema["maxLength"] = json!(max);
            schema
        }),
        Just(json!({"type": "string", "pattern": "^a*b?$"})),
        Just(json!({"type": "string", "enum": ["a", "b"]})),
        (bound(), bound()).prop_map(|(min, max)| json!({"type": "integer", "minimum": min, "maximum": max})),
        Just(json!({"type": "number", "multipleOf": 0.5})),
        Just(json!({"type": "boolean"})),
        Just(json!({"x-kubernetes-int-or-string": true})),
    ]
}

/// A schema that is structural but for whether its defaults are values of it. `combined`: with what looks at whole objects.
fn schema(combined: bool) -> impl Strategy<Value = Json> {
    let leaf = (scalar(), prop::option::of(value())).prop_map(|(mut schema, default)| {
        schema["default"] = json!(default);
        schema
    });
    leaf.prop_recursive(3, 24, 4, move |inner| {
        let fields = prop::collection::btree_map(name().prop_map(str::to_owned), inner.clone(), 0..4);
        let required = prop::collection::vec(name(), 0..2);
        let branches = prop::collection::vec(prop::collection::vec(name(), 1..2), 0..3);
        let word = prop::sample::select(vec!["anyOf", "oneOf", "allOf"]);
        prop_oneof![
            3 => (fields, required, any::<bool>(), prop::option::of(value()), branches, word).prop_map(
                move |(fields, mut required, preserves, default, branches, word)| {
                    // What is required is specified, or it would be pruned.
                    required.retain(|name| fields.contains_key(*name));
                    let mut schema = json!({"type": "object", "properties": fields, "required": required, "default": default});
                    if preserves {
                        schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
                    }
                    if combined && !branches.is_empty() {
                        let branches: Vec<Json> = branches.iter().map(|names| json!({"required": names})).collect();
                        schema[word] = json!(branches);
                        schema["maxProperties"] = json!(3);
                    }
                    schema
                }
            ),
            1 => (inner.clone(), prop::sample::select(vec!["atomic", "set", "none", "map"])).prop_map(|(items, kind)| {
                json!({"type": "array", "items": items, "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": ["a"]})
            }),
            1 => inner.prop_map(|values| json!({"type": "object", "additionalProperties": values})),
        ]
    })
}

/// An object whose `spec` has a schema.
fn whole(spec: &Json) -> Structural {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    Structural::compile(&Value::from(schema)).expect("a structural schema")
}

/// Whether every default of a schema is a value of it.
fn is_sound(schema: &Json) -> bool {
    let own = schema.get("default").is_none_or(|default| {
        default.is_null() || {
            let compiled = Structural::compile(&Value::from(schema.clone())).expect("a structural schema");
            let default = Value::from(default.clone());
            let under = Under {
                base: "d".into(),
                default: true,
            };
            !Structural::has_unknown(compiled.root(), false, &default)
                && compiled.root().validate(None, &default, &under).is_empty()
        }
    });
    own && match schema {
        Json::Object(map) => {
            let below = map
                .get("properties")
                .and_then(Json::as_object)
                .into_iter()
                .flat_map(|map| map.values());
            let others = ["items", "additionalProperties"]
                .into_iter()
                .filter_map(|name| map.get(name));
            below.chain(others).all(is_sound)
        }
        _ => true,
    }
}

/// Words that mean something in a schema, for schemas that are none.
fn anything() -> impl Strategy<Value = Json> {
    let word = prop::sample::select(vec![
        "type",
        "properties",
        "items",
        "additionalProperties",
        "default",
        "enum",
        "required",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "pattern",
        "format",
        "minimum",
        "maxLength",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "nullable",
        "a",
        "metadata",
    ]);
    let leaf = prop_oneof![
        value(),
        prop::sample::select(vec![
            "object", "array", "string", "integer", "map", "set", "uri", "[", "date"
        ])
        .prop_map(Json::from),
    ];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Json::from),
            prop::collection::btree_map(word.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_compiles_or_is_refused(schema in anything(), object in value()) {
        let Ok(compiled) = Structural::compile(&Value::from(schema)) else { return Ok(()) };
        let mut object = Value::from(object);
        let _ = compiled.prune(&mut object);
        let _ = compiled.fill(&mut object);
        let _ = (compiled.validate(Some(&object), &object), compiled.duplicates(&object));
    }

    #[test]
    fn pruning_and_filling_come_to_rest(spec in schema(true), object in value()) {
        let compiled = whole(&spec);
        let mut object = Value::from(json!({"apiVersion": "v1", "spec": object}));
        compiled.prune(&mut object).unwrap();
        compiled.fill(&mut object).unwrap();
        let once = object.clone();
        // A default may be of a form that pruning changes, unless it was checked with its definition.
        if is_sound(&spec) {
            prop_assert_eq!(compiled.prune(&mut object).unwrap(), Vec::<String>::new());
            compiled.fill(&mut object).unwrap();
            prop_assert_eq!(&object, &once);
        }
        compiled.fill(&mut object).unwrap();
        let twice = object.clone();
        compiled.fill(&mut object).unwrap();
        prop_assert_eq!(object, twice);
    }

    #[test]
    fn what_is_valid_stays_so(spec in schema(false), object in value()) {
        prop_assume!(is_sound(&spec));
        let compiled = whole(&spec);
        let mut object = Value::from(json!({"spec": object}));
        let valid = compiled.validate(None, &object).is_empty();
        compiled.prune(&mut object).unwrap();
        compiled.fill(&mut object).unwrap();
        if valid {
            prop_assert_eq!(compiled.validate(None, &object), vec![]);
        }
    }

    #[test]
    fn nothing_is_said_of_what_did_not_change(spec in schema(true), object in value()) {
        let compiled = whole(&spec);
        let mut object = Value::from(json!({"spec": object}));
        compiled.prune(&mut object).unwrap();
        // What the schema does not name is never known to be the same, nor is null in a list, nor one of several items of a
        // list that is a map that have the same key.
        let schema = spec.to_string();
        prop_assume!(!schema.contains("preserve-unknown") && !schema.contains("\"map\""));
        prop_assume!(!object.to_json().contains("null"));
        let copy: Value = serde_json::from_str(&object.to_json()).unwrap();
        prop_assert_eq!(compiled.validate(Some(&copy), &object), vec![]);
    }
}
