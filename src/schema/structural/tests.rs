//! What a schema does to an object, told by examples.

use super::Structural;
use crate::tree::{Value, json};

fn compiled(schema: &Value) -> Structural {
    Structural::compile(schema).unwrap_or_else(|error| panic!("{schema}: {error}"))
}

/// The schema of an object with this `spec`.
fn of_spec(spec: &Value) -> Structural {
    compiled(&json!({"type": "object", "properties": {"spec": (serde(spec))}}))
}

fn serde(value: &Value) -> serde_json::Value {
    serde_json::from_str(&value.to_json()).expect("JSON")
}

fn errors(schema: &Structural, old: Option<&Value>, new: &Value) -> Vec<String> {
    schema.validate(old, new).iter().map(ToString::to_string).collect()
}

fn wrong(spec_schema: &Value, spec: &Value) -> Vec<String> {
    errors(&of_spec(spec_schema), None, &json!({"spec": (serde(spec))}))
}

#[test]
fn demands_are_told_as_kube_apiserver_tells_them() {
    let cases: Vec<(Value, Value, Vec<&str>)> = vec![
        (
            json!({"type": "string"}),
            json!(1),
            vec!["spec: Invalid value: \"integer\": spec in body must be of type string: \"integer\""],
        ),
        (
            json!({"type": "integer"}),
            json!(1.5),
            vec!["spec: Invalid value: \"number\": spec in body must be of type integer: \"number\""],
        ),
        (json!({"type": "integer"}), json!(1.0), vec![]),
        (json!({"type": "number"}), json!(1), vec![]),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(99_999_999_999_i64),
            vec![],
        ),
        (
            json!({"type": "string"}),
            json!(null),
            vec!["spec: Invalid value: \"null\": spec in body must be of type string: \"null\""],
        ),
        (json!({"type": "string", "nullable": true}), json!(null), vec![]),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            vec!["spec: Invalid value: \"boolean\": spec in body must be of type integer,string: \"boolean\""],
        ),
        (json!({"x-kubernetes-int-or-string": true}), json!("50%"), vec![]),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("äöü"),
            vec!["spec: Too long: may not be more than 2 bytes"],
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!("ä"),
            vec!["spec: Invalid value: \"ä\": spec in body should be at least 2 chars long"],
        ),
        (
            json!({"type": "string", "maxLength": 1, "pattern": "^x$"}),
            json!("abc"),
            vec!["spec: Too long: may not be more than 1 bytes"],
        ),
        (
            json!({"type": "string", "pattern": "^[a-z]+$"}),
            json!("A"),
            vec!["spec: Invalid value: \"A\": spec in body should match '^[a-z]+$'"],
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("now"),
            vec!["spec: Invalid value: \"now\": spec in body must be of type date-time: \"now\""],
        ),
        (json!({"type": "string", "format": "unheard-of"}), json!("now"), vec![]),
        (
            json!({"type": "string", "enum": ["A", "B"]}),
            json!("C"),
            vec!["spec: Unsupported value: \"C\": supported values: \"A\", \"B\""],
        ),
        (
            json!({"type": "integer", "enum": [1, 2]}),
            json!(3),
            vec!["spec: Unsupported value: 3: supported values: \"1\", \"2\""],
        ),
        (
            json!({"type": "integer", "minimum": 1, "maximum": 10}),
            json!(0),
            vec!["spec: Invalid value: 0: spec in body should be greater than or equal to 1"],
        ),
        (
            json!({"type": "integer", "maximum": 10, "exclusiveMaximum": true}),
            json!(10),
            vec!["spec: Invalid value: 10: spec in body should be less than 10"],
        ),
        (
            json!({"type": "number", "minimum": 0.5, "exclusiveMinimum": true}),
            json!(0.5),
            vec!["spec: Invalid value: 0.5: spec in body should be greater than 0.5"],
        ),
        (
            json!({"type": "integer", "multipleOf": 3}),
            json!(7),
            vec!["spec: Invalid value: 7: spec in body should be a multiple of 3"],
        ),
        (json!({"type": "number", "multipleOf": 0.1}), json!(0.3), vec![]),
        (
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 1, "minItems": 1}),
            json!(["a", "b"]),
            vec!["spec: Too many: 2: must have at most 1 items"],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            json!([]),
            vec!["spec: Invalid value: 0: spec in body should have at least 1 items"],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            json!(["a", 1]),
            vec!["spec[1]: Invalid value: \"integer\": spec[1] in body must be of type string: \"integer\""],
        ),
        (
            json!({"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "string"}}}),
            json!({}),
            vec!["spec.a: Required value", "spec.b: Required value"],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"k.x/y": "v"}),
            vec!["spec.k.x/y: Invalid value: \"string\": spec.k.x/y in body must be of type integer: \"string\""],
        ),
        (
            json!({"type": "object", "additionalProperties": true, "minProperties": 1}),
            json!({}),
            vec!["spec: Invalid value: 0: spec in body should have at least 1 properties"],
        ),
        (
            json!({"type": "object", "additionalProperties": true, "maxProperties": 1}),
            json!({"a": 1, "b": 2}),
            vec!["spec: Too many: 2: must have at most 1 items"],
        ),
    ];
    for (schema, spec, expected) in cases {
        assert_eq!(wrong(&schema, &spec), expected, "{schema} on {spec}");
    }
}

#[test]
fn combinations_complain_of_the_branch_that_most_was_right_of() {
    let schema = json!({
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    });
    assert_eq!(wrong(&schema, &json!({"a": 1})), Vec::<String>::new());
    assert_eq!(
        wrong(&schema, &json!({})),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found none valid",
            "spec.a: Required value",
        ]
    );
    assert_eq!(
        wrong(&schema, &json!({"a": 1, "b": 1})),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
        ]
    );
    let any = json!({"type": "integer", "anyOf": [{"minimum": 10}, {"maximum": 0}]});
    assert_eq!(
        wrong(&any, &json!(5)),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate at least one schema (anyOf)",
            "spec: Invalid value: 5: spec in body should be greater than or equal to 10",
        ]
    );
    let all = json!({"type": "integer", "allOf": [{"minimum": 1}, {"maximum": 4}]});
    assert_eq!(
        wrong(&all, &json!(5)),
        [
            "spec: Invalid value: 5: spec in body should be less than or equal to 4",
            "<nil>: Invalid value: \"\": \"spec\" must validate all the schemas (allOf)",
        ]
    );
    let not = json!({"type": "string", "not": {"enum": ["x"]}});
    assert_eq!(
        wrong(&not, &json!("x")),
        ["<nil>: Invalid value: \"\": \"spec\" must not validate the schema (not)",]
    );
}

#[test]
fn what_did_not_change_is_not_complained_of() {
    let schema = of_spec(&json!({
        "type": "object",
        "required": ["must"],
        "properties": {
            "a": {"type": "string", "maxLength": 1},
            "list": {"type": "array", "items": {"type": "string", "maxLength": 1}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 1}},
            "map": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string", "maxLength": 1}}},
            },
        },
    }));
    let old = json!({"spec": {
        "a": "long", "list": ["long", "x"], "set": ["long"], "map": [{"k": "1", "v": "long"}, {"k": "2", "v": "x"}],
    }});
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut new = old.clone();
        change(&mut new);
        errors(&schema, Some(&old), &new)
    };
    assert_eq!(changed(&|_| ()), Vec::<String>::new());
    assert_eq!(changed(&|new| new["spec"]["must"] = json!(1)), Vec::<String>::new());
    // What changed brings back what is wrong with the object around it.
    assert_eq!(
        changed(&|new| new["spec"]["list"] = json!(["long", "y"])),
        ["spec.must: Required value"]
    );
    let too_long = |field: &str| {
        vec![
            format!("{field}: Too long: may not be more than 1 bytes"),
            "spec.must: Required value".into(),
        ]
    };
    assert_eq!(changed(&|new| new["spec"]["a"] = json!("other")), too_long("spec.a"));
    assert_eq!(
        changed(&|new| new["spec"]["list"] = json!(["x", "long"])),
        too_long("spec.list[1]")
    );
    assert_eq!(
        changed(&|new| new["spec"]["set"] = json!(["long", "x"])),
        too_long("spec.set[0]")
    );
    assert_eq!(
        changed(&|new| new["spec"]["map"] = json!([{"k": "2", "v": "y"}, {"k": "1", "v": "long"}])),
        ["spec.must: Required value"]
    );
    assert_eq!(
        changed(&|new| new["spec"]["map"] = json!([{"k": "3", "v": "long"}])),
        too_long("spec.map[0].v")
    );
}

#[test]
fn unknown_fields_go_and_are_told() {
    let schema = of_spec(&json!({
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "keep": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"in": {"type": "object", "properties": {"k": {"type": "string"}}}},
            },
            "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"type": "integer"}}}},
            "any": {"type": "object", "additionalProperties": true},
        },
    }));
    let mut object = json!({
        "apiVersion": "a/v1", "kind": "K", "metadata": {"anything": 1}, "extra": 5,
        "spec": {
            "a": "1", "gone": 1, "keep": {"any": {"thing": 1}, "in": {"k": "v", "cut": 1}},
            "list": [{"x": 1}, {"y": 2}], "map": {"one": {"x": 1, "z": 1}}, "any": {"x": 1, "y": {"z": 1}},
        },
    });
    let unknown = schema.prune(&mut object).unwrap();
    assert_eq!(
        unknown,
        [
            "extra",
            "spec.any.y.z",
            "spec.gone",
            "spec.keep.in.cut",
            "spec.list[1].y",
            "spec.map.one.z",
        ]
    );
    assert_eq!(
        object,
        json!({
            "apiVersion": "a/v1", "kind": "K", "metadata": {"anything": 1},
            "spec": {
                "a": "1", "keep": {"any": {"thing": 1}, "in": {"k": "v"}},
                "list": [{"x": 1}, {}], "map": {"one": {"x": 1}}, "any": {"x": 1, "y": {}},
            },
        })
    );
    let before = object.clone();
    assert!(schema.prune(&mut object).unwrap().is_empty());
    assert!(object.shares(&before), "what needs no change keeps its memory");
}

#[test]
fn whole_numbers_are_written_as_such() {
    let schema = compiled(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    let mut object: Value =
        serde_json::from_str(r#"{"a":1.0,"b":[1e3,-2.0,1.25],"c":{"d":9007199254740993,"e":1e300}}"#).unwrap();
    schema.prune(&mut object).unwrap();
    assert_eq!(
        object.to_json(),
        r#"{"a":1,"b":[1000,-2,1.25],"c":{"d":9007199254740993,"e":1e+300}}"#
    );
}

#[test]
fn nulls_go_unless_they_may_stay_or_a_default_takes_their_place() {
    let schema = of_spec(&json!({
        "type": "object",
        "properties": {
            "plain": {"type": "string"},
            "nullable": {"type": "string", "nullable": true},
            "default": {"type": "string", "default": "d"},
            "both": {"type": "string", "nullable": true, "default": "d"},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }));
    let mut object = json!({"spec": {
        "plain": null, "nullable": null, "default": null, "both": null, "map": {"a": null, "b": "x"},
    }});
    assert!(schema.prune(&mut object).unwrap().is_empty());
    schema.fill(&mut object).unwrap();
    assert_eq!(
        object,
        json!({"spec": {"nullable": null, "default": "d", "both": null, "map": {"b": "x"}}})
    );
}

#[test]
fn defaults_are_filled_in_turn() {
    let schema = of_spec(&json!({
        "type": "object",
        "properties": {
            "a": {"type": "string", "default": "x"},
            "o": {"type": "object", "default": {}, "properties": {"n": {"type": "integer", "default": 7}, "m": {"type": "string"}}},
            "l": {"type": "array", "items": {"type": "object", "properties": {"p": {"type": "string", "default": "TCP"}}}},
            "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"q": {"type": "integer", "default": 1}}}},
        },
    }));
    let mut object = json!({"spec": {"l": [{}, {"p": "UDP"}], "m": {"k": {}}}});
    schema.fill(&mut object).unwrap();
    let filled = json!({"spec": {
        "a": "x", "o": {"n": 7}, "l": [{"p": "TCP"}, {"p": "UDP"}], "m": {"k": {"q": 1}},
    }});
    assert_eq!(object, filled);
    let before = object.clone();
    schema.fill(&mut object).unwrap();
    assert!(object.shares(&before));
    let mut without_spec = json!({"kind": "K"});
    schema.fill(&mut without_spec).unwrap();
    assert_eq!(without_spec, json!({"kind": "K"}));
}

#[test]
fn embedded_resources_keep_their_head_and_lose_what_metadata_does_not_have() {
    let schema = of_spec(&json!({"type": "object", "properties": {
        "emb": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    }}));
    let mut object = json!({"spec": {"emb": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "bogus": 1}, "spec": {"z": 1}}}});
    assert_eq!(schema.prune(&mut object).unwrap(), ["spec.emb.metadata.bogus"]);
    assert_eq!(object["spec"]["emb"]["metadata"], json!({"name": "x"}));
    let mut object = json!({"spec": {"emb": {"apiVersion": 1}}});
    let error = schema.prune(&mut object).unwrap_err();
    assert_eq!(
        error.to_string(),
        "spec.emb.apiVersion: Invalid value: 1: must be a string"
    );
    let mut told = Vec::new();
    schema.embedded_resources(&json!({"spec": {"emb": {"a": 1}}}), &mut |path, _| told.push(path));
    assert_eq!(told, ["spec.emb"]);
}

#[test]
fn what_occurs_twice_in_a_set_or_a_map_is_told_once() {
    let schema = of_spec(&json!({"type": "object", "properties": {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "one": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object"}},
        "two": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "l"], "items": {"type": "object"}},
    }}));
    let duplicates = |spec: Value| -> Vec<String> {
        schema
            .duplicates(&json!({"spec": (serde(&spec))}))
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    assert_eq!(
        duplicates(json!({"set": ["a", "b", "a", "a"]})),
        ["spec.set[2]: Duplicate value: \"a\""]
    );
    assert_eq!(
        duplicates(json!({"one": [{"k": "x", "v": 1}, {"k": "x", "v": 2}]})),
        ["spec.one[1]: Duplicate value: {\"k\":\"x\"}"]
    );
    assert_eq!(
        duplicates(json!({"one": [{}, {"v": 1}]})),
        ["spec.one[1]: Duplicate value: {}"]
    );
    assert_eq!(
        duplicates(json!({"two": [{"k": 1, "l": 1}, {"k": 1, "l": 2}]})),
        Vec::<String>::new()
    );
    assert_eq!(
        duplicates(json!({"two": [{"k": 1, "l": 1}, {"k": 1, "l": 1}]})),
        ["spec.two[1]: Duplicate value: {\"k\":1,\"l\":1}"]
    );
}

#[test]
fn equal_parts_are_stored_once() {
    let part =
        json!({"type": "object", "properties": {"x": {"type": "string", "maxLength": 3}, "y": {"type": "integer"}}});
    let properties: serde_json::Map<String, serde_json::Value> =
        (0..1_000).map(|i| (format!("f{i}"), serde(&part))).collect();
    let schema = compiled(&json!({"type": "object", "properties": properties}));
    assert_eq!(schema.node_count(), 4);
    assert!(schema.bytes() < 20_000, "{}", schema.bytes());
}

#[test]
fn a_bomb_is_refused_or_ends_soon() {
    use super::Unusable;
    let mut deep = json!({"type": "string"});
    for _ in 0..110 {
        deep = json!({"type": "array", "items": (serde(&deep))});
    }
    assert_eq!(Structural::compile(&deep).unwrap_err(), Unusable::TooDeep);
    // Lists of a hundred defaults, five levels of them.
    let mut bomb = json!({"type": "object", "properties": {"x": {"type": "string", "default": "y"}}});
    for _ in 0..5 {
        let items = vec![serde_json::json!({}); 100];
        bomb = json!({"type": "object", "properties": {"l": {"type": "array", "default": items, "items": (serde(&bomb))}}});
    }
    let schema = compiled(&bomb);
    let mut object = json!({});
    assert!(schema.fill(&mut object).is_err());
    assert_eq!(object, json!({}));
    // A thousand branches over a list of a hundred thousand items.
    let branches: Vec<serde_json::Value> = (0..1_000)
        .map(|i| serde_json::json!({"enum": [format!("{i}")]}))
        .collect();
    let schema = of_spec(&json!({"type": "array", "items": {"type": "string", "anyOf": branches}}));
    let items: Vec<String> = (0..100_000).map(|_| "999".to_owned()).collect();
    let found = errors(&schema, None, &json!({"spec": items}));
    let too_long = ["<nil>: Invalid value: the object takes too long to validate against its schema"];
    assert_eq!(found, too_long);
    // As many values of an enum, most of them looked at each time.
    let values: Vec<String> = (0..10_000).map(|i| i.to_string()).collect();
    let schema = of_spec(&json!({"type": "array", "items": {"type": "string", "enum": values}}));
    let items: Vec<String> = (0..100_000).map(|_| "9999".to_owned()).collect();
    assert_eq!(errors(&schema, None, &json!({"spec": items})), too_long);
    let few: Vec<String> = (0..100).map(|_| "9999".to_owned()).collect();
    assert_eq!(errors(&schema, None, &json!({"spec": few})), [""; 0]);
}
