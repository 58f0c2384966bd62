//! Patches, what they make, and what is said of those that cannot be.

use super::*;
use crate::tree::json;
use proptest::prelude::*;

fn schema(kind: &str) -> Schema<'static> {
    let group = if kind == "Deployment" { "apps" } else { "" };
    Schema::of(group, "v1", kind).unwrap()
}

/// Applies a patch and gives the result without a head.
fn patched(kind: PatchKind, of: &str, original: &Value, patch: &Value) -> Result<Value, PatchError> {
    apply(
        kind,
        original,
        patch.to_string().as_bytes(),
        schema(of),
        FieldValidation::Warn,
    )
    .map(|made| made.value)
}

fn strategic(of: &str, original: &Value, patch: &Value) -> Value {
    patched(PatchKind::Strategic, of, original, patch).unwrap()
}

fn pod_spec(spec: &Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

#[test]
fn json_patch_operations_do_what_rfc_6902_says() {
    let original = json!({"data": {"a": "1", "b": "2"}});
    for (patch, data) in [
        (
            json!([{"op":"add","path":"/data/c","value":"3"}]),
            json!({"a":"1","b":"2","c":"3"}),
        ),
        (
            json!([{"op":"replace","path":"/data/a","value":"9"}]),
            json!({"a":"9","b":"2"}),
        ),
        (json!([{"op":"remove","path":"/data/b"}]), json!({"a":"1"})),
        (
            json!([{"op":"move","from":"/data/a","path":"/data/z"}]),
            json!({"b":"2","z":"1"}),
        ),
        (
            json!([{"op":"copy","from":"/data/a","path":"/data/z"}]),
            json!({"a":"1","b":"2","z":"1"}),
        ),
        (
            json!([{"op":"test","path":"/data/a","value":"1"},{"op":"add","path":"/data/ok","value":"yes"}]),
            json!({"a":"1","b":"2","ok":"yes"}),
        ),
        (
            json!([{"op":"add","path":"/data/x~1y~0z","value":"3"}]),
            json!({"a":"1","b":"2","x/y~z":"3"}),
        ),
        // as upstream: a key that is missing is added
        (
            json!([{"op":"replace","path":"/data/none","value":"x"}]),
            json!({"a":"1","b":"2","none":"x"}),
        ),
        (json!([]), json!({"a":"1","b":"2"})),
    ] {
        assert_eq!(
            patched(PatchKind::Json, "ConfigMap", &original, &patch).unwrap()["data"],
            data,
            "{patch}"
        );
    }
}

#[test]
fn json_patch_reaches_into_lists() {
    let original = json!({"metadata": {"finalizers": ["a", "b"]}});
    for (patch, finalizers) in [
        (
            json!([{"op":"add","path":"/metadata/finalizers/-","value":"c"}]),
            json!(["a", "b", "c"]),
        ),
        (
            json!([{"op":"add","path":"/metadata/finalizers/0","value":"c"}]),
            json!(["c", "a", "b"]),
        ),
        (json!([{"op":"remove","path":"/metadata/finalizers/-1"}]), json!(["a"])),
        (
            json!([{"op":"replace","path":"/metadata/finalizers/1","value":"z"}]),
            json!(["a", "z"]),
        ),
    ] {
        let made = patched(PatchKind::Json, "ConfigMap", &original, &patch).unwrap();
        assert_eq!(made["metadata"]["finalizers"], finalizers, "{patch}");
    }
}

#[test]
fn json_patches_that_cannot_be_applied_are_refused() {
    let original = json!({"data": {"a": "1"}, "metadata": {"finalizers": []}});
    for patch in [
        json!([{"op":"test","path":"/data/a","value":"no"}]),
        json!([{"op":"remove","path":"/data/none"}]),
        json!([{"op":"frobnicate","path":"/data/a","value":"x"}]),
        json!([{"op":"add","path":"/none/deeper/x","value":"1"}]),
        json!([{"op":"add","path":"/metadata/finalizers/1","value":"1"}]),
        json!([{"op":"add","path":"","value":"1"}]),
        json!([{"op":"copy","from":"/none","path":"/data/b"}]),
        json!([{"op":"add","value":"1"}]),
    ] {
        let error = patched(PatchKind::Json, "ConfigMap", &original, &patch).unwrap_err();
        assert!(matches!(error, PatchError::NotApplicable(_)), "{patch}: {error:?}");
    }
    let object = json!({"op":"add","path":"/data/x","value":"1"});
    assert_eq!(
        patched(PatchKind::Json, "ConfigMap", &original, &object).unwrap_err(),
        PatchError::BadRequest(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp".into()
        )
    );
    let long = Value::from(vec![json!({"op":"test","path":"/data/a","value":"1"}); 10_001]);
    assert_eq!(
        patched(PatchKind::Json, "ConfigMap", &original, &long).unwrap_err(),
        PatchError::TooLarge("The allowed maximum operations in a JSON patch is 10000, got 10001".into())
    );
}

#[test]
fn copies_that_double_an_object_end_early() {
    let original = json!({"data": {"a": "0123456789".repeat(1000)}});
    let doubling = Value::from(
        (0..40)
            .map(|i| json!({"op":"copy","from":"","path":format!("/data/{i}")}))
            .collect::<Vec<_>>(),
    );
    let error = patched(PatchKind::Json, "ConfigMap", &original, &doubling).unwrap_err();
    assert!(matches!(error, PatchError::NotApplicable(_)), "{error:?}");
}

/// Each copy into the deepest place doubles the depth: a document that nothing could drop without overflowing the stack
/// from a patch of 100 KB.
#[test]
fn operations_cannot_nest_a_document_without_end() {
    let original = json!({"data": {"a": "1"}});
    let nested = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"a": inner}));
    let deepest = |levels: usize| format!("/x{}", "/a".repeat(levels));
    for name in ["copy", "move"] {
        let mut operations = vec![json!({"op":"add","path":"/x","value":nested(50)})];
        let mut levels = 50;
        while levels < 50_000 {
            let (mut from, to) = ("/x", deepest(levels));
            if name == "move" {
                operations.push(json!({"op":"copy","from":"/x","path":"/y"}));
                from = "/y";
            }
            operations.push(json!({"op":name,"from":from,"path":to}));
            levels *= 2;
        }
        let error = patched(PatchKind::Json, "ConfigMap", &original, &json!(operations)).unwrap_err();
        assert!(matches!(error, PatchError::NotApplicable(_)), "{error:?}");
    }
    // What serde can read back is allowed, however it came about.
    let shallow = json!([
        {"op":"add","path":"/x","value":nested(60)},
        {"op":"copy","from":"/x","path":deepest(60)},
        {"op":"remove","path":"/x"},
        {"op":"add","path":"/x","value":nested(120)},
    ]);
    assert!(patched(PatchKind::Json, "ConfigMap", &original, &shallow).is_ok());
}

#[test]
fn operations_at_the_front_of_a_long_array_end_early() {
    let original = json!({"x": vec![0; 200_000]});
    let patch = Value::from(vec![json!({"op":"remove","path":"/x/0"}); 1000]);
    let error = patched(PatchKind::Json, "ConfigMap", &original, &patch).unwrap_err();
    assert!(matches!(error, PatchError::NotApplicable(_)), "{error:?}");
}

#[test]
fn what_stands_before_the_first_slash_is_ignored() {
    let patch = br#"[{"op":"add","path":"data/x","value":"1"}]"#;
    let made = apply(
        PatchKind::Json,
        &json!({}),
        patch,
        schema("ConfigMap"),
        FieldValidation::Warn,
    )
    .unwrap();
    assert_eq!(
        (made.value, made.warnings),
        (json!({}), vec!["unknown field \"x\"".to_owned()])
    );
}

#[test]
fn a_patch_cannot_make_another_kind_of_an_object() {
    let original = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"a": "1"}});
    for (patch, text) in [
        (json!({"kind": "Secret"}), "illegal base64 data at input byte 0"),
        (
            json!({"kind": "Secret", "data": null}),
            "converting (v1.Secret) to (core.ConfigMap): unknown conversion",
        ),
        (
            json!({"apiVersion": "v2"}),
            "no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"flatkube/schema\"",
        ),
    ] {
        match patched(PatchKind::Merge, "ConfigMap", &original, &patch).unwrap_err() {
            PatchError::InvalidResult { detail, .. } => assert_eq!(detail, text),
            other => panic!("{other:?}"),
        }
    }
    // The converter from maps does not look at the head.
    assert_eq!(strategic("ConfigMap", &original, &json!({"kind": "Secret"})), original);
}

/// The examples of RFC 7386, appendix A.
#[test]
fn merge_patch_does_what_rfc_7386_shows() {
    for (original, patch, result) in [
        (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
        (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
        (json!({"a":"b"}), json!({"a":null}), json!({})),
        (json!({"a":"b","b":"c"}), json!({"a":null}), json!({"b":"c"})),
        (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
        (json!({"a":"c"}), json!({"a":["b"]}), json!({"a":["b"]})),
        (
            json!({"a":{"b":"c"}}),
            json!({"a":{"b":"d","c":null}}),
            json!({"a":{"b":"d"}}),
        ),
        (json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]})),
        (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
        (json!({"a":"b"}), json!(["c"]), json!(["c"])),
        (json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1})),
        (json!([1, 2]), json!({"a":"b","c":null}), json!({"a":"b"})),
        (json!({}), json!({"a":{"bb":{"ccc":null}}}), json!({"a":{"bb":{}}})),
    ] {
        let mut made = original.clone();
        merge(&mut made, patch.clone());
        assert_eq!(made, result, "{original} and {patch}");
    }
}

#[test]
fn merge_patches_that_are_refused_say_why() {
    let original = json!({"data": {"a": "1"}});
    for (patch, text) in [
        (
            "[\"x\"]",
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            "{bad",
            "error decoding patch: invalid character 'b' looking for beginning of object key string",
        ),
        ("", "error decoding patch: unexpected end of JSON input"),
        (
            "data:\n  b: \"2\"\n",
            "error decoding patch: invalid character 'd' looking for beginning of value",
        ),
    ] {
        let error = apply(
            PatchKind::Merge,
            &original,
            patch.as_bytes(),
            schema("ConfigMap"),
            FieldValidation::Warn,
        );
        assert_eq!(error.unwrap_err(), PatchError::BadRequest(text.to_owned()));
    }
    for (patch, text) in [
        (
            json!({"data":{"n":5}}),
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            json!({"data":"text"}),
            "json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string",
        ),
    ] {
        match patched(PatchKind::Merge, "ConfigMap", &original, &patch).unwrap_err() {
            PatchError::InvalidResult { detail, .. } => assert_eq!(detail, text),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn field_validation_holds_for_the_patch_and_for_its_result() {
    let run = |kind, patch: &str, validation| {
        apply(
            kind,
            &json!({"data": {"a": "1"}}),
            patch.as_bytes(),
            schema("ConfigMap"),
            validation,
        )
    };
    for (kind, patch, field) in [
        (PatchKind::Merge, r#"{"bogus":1}"#, "bogus"),
        (PatchKind::Strategic, r#"{"metadata":{"bogus":1}}"#, "metadata.bogus"),
        (PatchKind::Json, r#"[{"op":"add","path":"/bogus","value":1}]"#, "bogus"),
    ] {
        let error = run(kind, patch, FieldValidation::Strict).unwrap_err();
        let PatchError::InvalidResult { detail, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!(detail, format!("strict decoding error: unknown field \"{field}\""));
        assert_eq!(
            run(kind, patch, FieldValidation::Warn).unwrap().warnings,
            [format!("unknown field \"{field}\"")]
        );
        assert_eq!(run(kind, patch, FieldValidation::Ignore).unwrap().warnings, [""; 0]);
    }
    let twice = r#"{"data":{"a":"1","a":"2"}}"#;
    assert_eq!(
        run(PatchKind::Merge, twice, FieldValidation::Warn).unwrap().warnings,
        ["duplicate field \"data.a\""]
    );
}

#[test]
fn strategic_lists_merge_by_key_and_new_elements_come_first() {
    let original = pod_spec(&json!({"containers": [
        {"name": "one", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}, {"name": "two"}]}));
    let made = strategic(
        "Deployment",
        &original,
        &pod_spec(
            &json!({"containers": [{"name": "one", "env": [{"name": "B", "value": "9"}, {"name": "C", "value": "3"}]}]}),
        ),
    );
    let env = json!([{"name": "A", "value": "1"}, {"name": "B", "value": "9"}, {"name": "C", "value": "3"}]);
    assert_eq!(
        made,
        pod_spec(&json!({"containers": [{"name": "one", "image": "i", "env": env}, {"name": "two"}]}))
    );
    let made = strategic(
        "Deployment",
        &made,
        &pod_spec(&json!({"containers": [{"name": "three", "image": "t:1"}]})),
    );
    let names: Vec<&Value> = made["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["name"])
        .collect();
    assert_eq!(names, ["three", "one", "two"]);
    let made = strategic(
        "Deployment",
        &made,
        &pod_spec(&json!({"containers": [{"name": "two", "$patch": "delete"}]})),
    );
    assert_eq!(
        made["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(),
        2
    );
}

#[test]
fn strategic_ports_merge_by_number() {
    let original = json!({"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}});
    let made = strategic(
        "Service",
        &original,
        &json!({"spec": {"ports": [{"port": 81, "name": "bb"}, {"port": 82, "name": "c"}]}}),
    );
    assert_eq!(
        made["spec"]["ports"],
        json!([{"name": "a", "port": 80}, {"name": "bb", "port": 81}, {"name": "c", "port": 82}])
    );
    let made = strategic(
        "Service",
        &made,
        &json!({"spec": {"ports": [{"port": 80, "$patch": "delete"}]}}),
    );
    assert_eq!(
        made["spec"]["ports"],
        json!([{"name": "bb", "port": 81}, {"name": "c", "port": 82}])
    );
}

#[test]
fn strategic_directives_replace_and_delete_lists_and_maps() {
    let original = json!({"metadata": {"labels": {"x": "1", "y": "2"}},
        "spec": {"template": {"spec": {"containers": [{"name": "one"}, {"name": "two"}]}}}});
    let made = strategic(
        "Deployment",
        &original,
        &pod_spec(&json!({"containers": [{"$patch": "replace"}, {"name": "only", "image": "o:1"}]})),
    );
    assert_eq!(
        made["spec"]["template"]["spec"]["containers"],
        json!([{"name": "only", "image": "o:1"}])
    );
    let made = strategic(
        "Deployment",
        &original,
        &json!({"metadata": {"labels": {"$patch": "replace", "z": "3"}}}),
    );
    assert_eq!(made["metadata"]["labels"], json!({"z": "3"}));
    let made = strategic(
        "Deployment",
        &original,
        &json!({"metadata": {"labels": {"$patch": "delete"}}}),
    );
    assert_eq!(made["metadata"]["labels"], json!({}));
}

#[test]
fn strategic_primitive_lists_merge_and_lose_what_a_directive_names() {
    let original = json!({"metadata": {"finalizers": ["e/a", "e/b"]}});
    let made = strategic("ConfigMap", &original, &json!({"metadata": {"finalizers": ["e/c"]}}));
    assert_eq!(made["metadata"]["finalizers"], json!(["e/c", "e/a", "e/b"]));
    let made = strategic(
        "ConfigMap",
        &made,
        &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["e/a"]}}),
    );
    assert_eq!(made["metadata"]["finalizers"], json!(["e/c", "e/b"]));
    let order = json!({"metadata": {"$setElementOrder/finalizers": ["e/c", "e/b"], "finalizers": ["e/c"]}});
    assert_eq!(
        strategic("ConfigMap", &made, &order)["metadata"]["finalizers"],
        json!(["e/c", "e/b"])
    );
    let swap = json!({"metadata": {"$setElementOrder/finalizers": ["e/b", "e/c"]}});
    assert_eq!(
        strategic("ConfigMap", &made, &swap)["metadata"]["finalizers"],
        json!(["e/b", "e/c"])
    );
}

/// What `kubectl apply` sends when a container is added at the end and another is changed.
#[test]
fn set_element_order_puts_merged_elements_where_the_manifest_has_them() {
    let original = pod_spec(&json!({"containers": [{"name": "a"}, {"name": "injected"}, {"name": "b"}]}));
    let patch = pod_spec(&json!({
        "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}, {"name": "c"}],
        "containers": [{"name": "a", "image": "x"}, {"name": "c", "image": "y"}]}));
    let made = strategic("Deployment", &original, &patch);
    let containers = &made["spec"]["template"]["spec"]["containers"];
    let names: Vec<&Value> = containers
        .as_array()
        .unwrap()
        .iter()
        .map(|container| &container["name"])
        .collect();
    assert_eq!(names, ["injected", "b", "a", "c"]);
    let wrong = pod_spec(&json!({
        "$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a", "image": "x"}]}));
    assert!(matches!(
        patched(PatchKind::Strategic, "Deployment", &original, &wrong),
        Err(PatchError::Internal(text)) if text.starts_with("The order in patch list:")
    ));
}

#[test]
fn retain_keys_clears_what_it_does_not_name() {
    let original = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
        "template": {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}}});
    let made = strategic(
        "Deployment",
        &original,
        &json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
    );
    assert_eq!(made["spec"]["strategy"], json!({"type": "Recreate"}));
    let volumes = json!([{"$retainKeys": ["name", "configMap"], "name": "v", "configMap": {"name": "c"}}]);
    let made = strategic("Deployment", &original, &pod_spec(&json!({"volumes": volumes})));
    assert_eq!(
        made["spec"]["template"]["spec"]["volumes"],
        json!([{"name": "v", "configMap": {"name": "c"}}])
    );
    let bad = json!({"spec": {"strategy": {"$retainKeys": ["nothing"], "type": "Recreate"}}});
    assert_eq!(
        patched(PatchKind::Strategic, "Deployment", &original, &bad).unwrap_err(),
        PatchError::BadRequest("invalid patch format of retainKeys".into())
    );
}

#[test]
fn nulls_in_a_strategic_patch_delete() {
    let original = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"k": "v"}}, "spec": {"replicas": 3}});
    let patch =
        json!({"metadata": {"labels": null, "annotations": {"k": null}}, "spec": {"replicas": null, "paused": true}});
    assert_eq!(
        strategic("Deployment", &original, &patch),
        json!({"metadata": {"annotations": {}}, "spec": {"paused": true}})
    );
}

#[test]
fn strategic_patches_that_are_refused_say_why() {
    let original = pod_spec(&json!({"containers": [{"name": "c"}]}));
    let refuse = |patch: Value| patched(PatchKind::Strategic, "Deployment", &original, &patch).unwrap_err();
    assert_eq!(
        refuse(pod_spec(&json!({"containers": [{"image": "noname"}]}))),
        PatchError::Internal("map: map[image:noname] does not contain declared merge key: name".into())
    );
    assert_eq!(
        refuse(pod_spec(&json!({"containers": [{"name": "c", "$patch": "bogus"}]}))),
        PatchError::Internal("unknown patch type: bogus in map: map[$patch:bogus name:c]".into())
    );
    assert_eq!(
        refuse(json!([1])),
        PatchError::BadRequest("json: cannot unmarshal array into Go value of type map[string]interface {}".into())
    );
    for (patch, text) in [
        (json!({"spec": {"replicas": "many"}}), "unrecognized type: int32"),
        (
            pod_spec(&json!({"containers": {"name": "c"}})),
            "cannot restore slice from map",
        ),
    ] {
        let PatchError::InvalidResult { detail, object } = refuse(patch) else {
            panic!("another error")
        };
        assert_eq!(detail, text);
        assert!(object.starts_with("\"map[spec:"), "{object}");
    }
}

/// The merge patch that makes `to` of `from`: the inverse that the properties below hold `merge` against.
fn difference(from: &Value, to: &Value) -> Value {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            let gone = from
                .keys()
                .filter(|key| !to.contains_key(key))
                .map(|key| (key.clone(), Value::Null));
            let changed = to
                .iter()
                .filter(|(key, value)| from.get(key) != Some(value))
                .map(|(key, value)| (key.clone(), difference(from.get(key).unwrap_or(&Value::Null), value)));
            Value::Object(gone.chain(changed).collect())
        }
        (_, to) => to.clone(),
    }
}

/// JSON without nulls: those cannot be told from deletions in a merge patch.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        (0..5_i64).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-d]", inner, 0..5).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

pub(in crate::patch) fn any_object() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-d]", any_json(), 0..5).prop_map(|map| Value::Object(map.into_iter().collect()))
}

/// Containers with distinct names, in any order.
fn any_containers() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-e]", "[x-z]", 0..5)
        .prop_map(|map| map.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
        .prop_map(|list| {
            list.into_iter()
                .map(|(name, image)| json!({"name": name, "image": image}))
                .collect::<Value>()
        })
}

proptest! {
    #[test]
    fn merging_the_difference_gives_the_target(from in any_object(), to in any_object()) {
        let mut made = from.clone();
        merge(&mut made, difference(&from, &to));
        prop_assert_eq!(made, to);
    }

    #[test]
    fn merging_twice_changes_nothing_more(from in any_object(), patch in any_object()) {
        let mut once = from.clone();
        merge(&mut once, patch.clone());
        let mut twice = once.clone();
        merge(&mut twice, patch);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn a_strategic_merge_keeps_what_it_does_not_name_and_sets_what_it_names(
        from in any_containers(), with in any_containers()
    ) {
        let made = strategic("Pod", &json!({"spec": {"containers": from}}), &json!({"spec": {"containers": with}}));
        let made = made["spec"]["containers"].as_array().unwrap();
        let find = |list: &Value, name: &Value| list.as_array().unwrap().iter().find(|c| &c["name"] == name).cloned();
        for container in made {
            let name = &container["name"];
            let expected = find(&with, name).or_else(|| find(&from, name));
            prop_assert_eq!(Some(container.clone()), expected);
        }
        let mut names: Vec<String> =
            from.as_array().unwrap().iter().chain(with.as_array().unwrap()).map(|c| c["name"].to_string()).collect();
        names.sort();
        names.dedup();
        prop_assert_eq!(names.len(), made.len());
        // the order of the patch holds among those that it names
        let order: Vec<&Value> = made.iter().map(|c| &c["name"]).filter(|name| find(&with, name).is_some()).collect();
        let asked: Vec<&Value> = with.as_array().unwrap().iter().map(|c| &c["name"]).collect();
        prop_assert_eq!(order, asked);
    }

    #[test]
    fn patches_of_any_bytes_do_no_harm(body in prop::collection::vec(any::<u8>(), 0..64), text in any_json()) {
        let original = json!({"metadata": {"name": "a", "labels": {"a": "b"}}, "data": {"a": "b"}});
        for kind in [PatchKind::Json, PatchKind::Merge, PatchKind::Strategic] {
            for body in [body.as_slice(), text.to_string().as_bytes()] {
                let _ = apply(kind, &original, body, schema("ConfigMap"), FieldValidation::Warn);
            }
        }
    }
}
