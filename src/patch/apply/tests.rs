//! Applies, one after another, and what they leave.

use super::super::managed::OneVersion;
use super::*;
use crate::tree::json;
use proptest::prelude::*;

const NOW: &str = "2026-01-02T03:04:05Z";

fn typed(kind: &str) -> Typed<'static> {
    let group = if kind == "Deployment" { "apps" } else { "" };
    Schema::of(group, "v1", kind).unwrap().into()
}

fn by<'a>(manager: &'a str, now: &'a str) -> Request<'a> {
    Request {
        manager,
        api_version: "v1",
        subresource: "",
        now,
        resets: &["status"],
    }
}

/// Applies for a manager and gives the object with its managers.
fn applied(kind: &str, live: Option<&Value>, manager: &str, configuration: &Value) -> Result<Value, ApplyError> {
    at(kind, live, &by(manager, NOW), configuration, false)
}

fn at(
    kind: &str,
    live: Option<&Value>,
    request: &Request<'_>,
    configuration: &Value,
    force: bool,
) -> Result<Value, ApplyError> {
    let typed = typed(kind);
    apply(typed, &OneVersion(typed), live, configuration, request, force).map(Applied::managed)
}

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data})
}

/// Managers and their sets.
fn managers(object: &Value) -> Vec<(String, String)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned();
    let entry = |entry: Value| {
        (
            format!("{} {}", text(&entry, "manager"), text(&entry, "operation")),
            entry["fieldsV1"].to_json(),
        )
    };
    entries.unwrap_or_default().into_iter().map(entry).collect()
}

fn refused(result: Result<Value, ApplyError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn what_is_named_no_longer_goes_unless_somebody_else_manages_it() {
    let one = applied("ConfigMap", None, "one", &config_map(&json!({"a": "1", "b": "2"}))).unwrap();
    let two = applied(
        "ConfigMap",
        Some(&one),
        "two",
        &config_map(&json!({"a": "1", "z": "3"})),
    )
    .unwrap();
    assert_eq!(two["data"], json!({"a": "1", "b": "2", "z": "3"}));
    let less = applied("ConfigMap", Some(&two), "one", &config_map(&json!({"q": "4"}))).unwrap();
    assert_eq!(less["data"], json!({"a": "1", "q": "4", "z": "3"}));
    let none = applied(
        "ConfigMap",
        Some(&less),
        "two",
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}),
    );
    let none = none.unwrap();
    assert_eq!(none["data"], json!({"q": "4"}));
    assert_eq!(
        managers(&none),
        [("one Apply".to_owned(), r#"{"f:data":{"f:q":{}}}"#.to_owned())]
    );
}

#[test]
fn other_values_of_fields_that_others_manage_are_conflicts_unless_forced() {
    let one = applied(
        "ConfigMap",
        None,
        "one",
        &config_map(&json!({"a": "1", "b": "1", "c": "1"})),
    )
    .unwrap();
    let other = config_map(&json!({"a": "2", "b": "2", "c": "1"}));
    assert_eq!(
        refused(applied("ConfigMap", Some(&one), "two", &other)),
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.a\n- .data.b"
    );
    let forced = at("ConfigMap", Some(&one), &by("two", NOW), &other, true).unwrap();
    assert_eq!(
        managers(&forced),
        [
            ("one Apply".to_owned(), r#"{"f:data":{"f:c":{}}}"#.to_owned()),
            (
                "two Apply".to_owned(),
                r#"{"f:data":{"f:a":{},"f:b":{},"f:c":{}}}"#.to_owned()
            )
        ]
    );
    let mut updated = one.clone();
    updated["data"]["a"] = "3".into();
    managed::update(typed("ConfigMap"), Some(&one), &mut updated, &by("tool", NOW));
    assert_eq!(
        refused(applied(
            "ConfigMap",
            Some(&updated),
            "one",
            &config_map(&json!({"a": "1"}))
        )),
        "Apply failed with 1 conflict: conflict with \"tool\" using v1: .data.a"
    );
}

#[test]
fn an_apply_that_changes_nothing_keeps_all_times() {
    let configuration = config_map(&json!({"a": "1"}));
    let one = applied("ConfigMap", None, "one", &configuration).unwrap();
    let later = by("one", "2030-01-01T00:00:00Z");
    let again = at("ConfigMap", Some(&one), &later, &configuration, false).unwrap();
    assert_eq!(again, one);
    // A manager that comes to what is there already changed nothing at any time.
    let other = at("ConfigMap", Some(&one), &by("two", NOW), &configuration, false).unwrap();
    assert_eq!(other["metadata"]["managedFields"][0]["manager"], "two");
    assert_eq!(other["metadata"]["managedFields"][0].get("time"), None);
    // What comes out the same once it is decoded is no change either.
    let mut new = at(
        "ConfigMap",
        Some(&one),
        &later,
        &config_map(&json!({"a": "1", "b": null})),
        false,
    )
    .unwrap();
    new["data"].as_object_mut().unwrap().remove("b");
    new["metadata"]["managedFields"][0]["fieldsV1"] = one["metadata"]["managedFields"][0]["fieldsV1"].clone();
    assert_ne!(new, one);
    keep_times(&one, &mut new);
    assert_eq!(new, one);
}

#[test]
fn what_is_wrong_with_a_configuration_is_told_with_its_place() {
    let of = |kind: &str, spec: Value| {
        let configuration = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec});
        refused(applied(kind, None, "m", &configuration))
    };
    let what = "failed to create typed patch object (/x; /v1, Kind=Pod)";
    for (spec, text) in [
        (json!({"bogus": 1}), ".spec.bogus: field not declared in schema"),
        (
            json!({"containers": [{"name": "c", "image": 1}]}),
            ".spec.containers[name=\"c\"].image: expected string, got &value.valueUnstructured{Value:1}",
        ),
        (
            json!({"containers": [{"name": "c"}, {"name": "c"}]}),
            ".spec.containers: duplicate entries for key [name=\"c\"]",
        ),
        (
            json!({"tolerations": [{"tolerationSeconds": "1"}]}),
            ".spec.tolerations[0].tolerationSeconds: expected numeric (int or float), got string",
        ),
        (json!({"hostPID": "y"}), ".spec.hostPID: expected boolean, got &{y}"),
        (
            json!({"containers": {"a": [1]}}),
            ".spec.containers: expected list, got &{map[a:[1]]}",
        ),
        (json!({"nodeSelector": 5}), ".spec.nodeSelector: expected map, got &{5}"),
        (
            json!({"hostIPC": 1, "hostname": {"a": null, "b": "c"}}),
            "errors:\n  .spec.hostIPC: expected boolean, got &{1}\n  .spec.hostname: expected string, got \
             &value.valueUnstructured{Value:map[string]interface {}{\"a\":interface {}(nil), \"b\":\"c\"}}",
        ),
    ] {
        assert_eq!(of("Pod", spec), format!("{what}: {text}"));
    }
    let managed = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "managedFields": []}});
    assert_eq!(
        refused(applied("ConfigMap", None, "m", &managed)),
        "metadata.managedFields must be nil"
    );
}

#[test]
fn what_had_no_managers_is_of_nobody_in_particular() {
    let live = config_map(&json!({"k": "v"}));
    let new = applied("ConfigMap", Some(&live), "one", &config_map(&json!({"n": "1"}))).unwrap();
    assert_eq!(
        managers(&new),
        [
            ("one Apply".to_owned(), r#"{"f:data":{"f:n":{}}}"#.to_owned()),
            (
                "before-first-apply Update".to_owned(),
                r#"{"f:data":{".":{},"f:k":{}}}"#.to_owned()
            )
        ]
    );
}

#[test]
fn kubectl_takes_over_what_it_applied_on_its_own_side() {
    let last = config_map(&json!({"a": "1", "b": "1"})).to_json();
    let mut live = config_map(&json!({"a": "1", "b": "other"}));
    live["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": last});
    let mut made = live.clone();
    managed::update(
        typed("ConfigMap"),
        None,
        &mut made,
        &by("kubectl-client-side-apply", NOW),
    );
    let new = config_map(&json!({"a": "<2>"}));
    assert!(applied("ConfigMap", Some(&made), "somebody", &new).is_err());
    let taken = applied("ConfigMap", Some(&made), "kubectl", &new).unwrap();
    assert_eq!(taken["data"]["a"], "<2>");
    assert_eq!(
        taken["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"],
        "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"\\u003c2\\u003e\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\"}}\n"
    );
    // What has changed since is not its own.
    assert_eq!(
        refused(applied(
            "ConfigMap",
            Some(&made),
            "kubectl",
            &config_map(&json!({"a": "2", "b": "2"}))
        )),
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.b"
    );
}

#[test]
fn sets_that_were_made_before_a_list_became_one_value_are_gathered() {
    let mut set = Fields::checked(
        &json!({"f:spec": {"f:tolerations": {"k:{\"key\":\"a\"}": {".": {}, "f:key": {}}},
        "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}}}}}),
    )
    .unwrap();
    assert!(reconcile::reconcile(typed("Pod"), &mut set));
    assert_eq!(
        set.write().to_json(),
        r#"{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:name":{}}},"f:tolerations":{}}}"#
    );
    assert!(!reconcile::reconcile(typed("Pod"), &mut set));
}

#[test]
fn managers_of_replicas_are_those_of_a_scale() {
    let entry = |manager: &str, version: &str, sub: &str, fields: Value| {
        let mut entry = json!({"manager": manager, "operation": "Apply", "apiVersion": version, "fieldsType": "FieldsV1",
            "fieldsV1": fields, "time": NOW});
        if !sub.is_empty() {
            entry["subresource"] = sub.into();
        }
        entry
    };
    let path = |version: &str| (version == "apps/v1").then_some(&["spec", "replicas"][..]);
    let both = json!({"f:spec": {"f:replicas": {}, "f:selector": {}}});
    let parent = [
        entry("one", "apps/v1", "", both),
        entry("two", "apps/v1", "", json!({"f:spec": {"f:selector": {}}})),
        entry("old", "apps/v0", "", json!({"f:spec": {"f:replicas": {}}})),
    ];
    let scaled = to_scale(&parent, path);
    let names = |entries: &[Value]| {
        entries
            .iter()
            .map(|entry| text(entry, "manager").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&scaled), ["one"]);
    assert_eq!(scaled[0]["apiVersion"], "autoscaling/v1");
    assert_eq!(names(&to_parent(&parent, &scaled, "apps/v1", path)), ["one", "two"]);
    let stolen = [entry(
        "three",
        "autoscaling/v1",
        "scale",
        json!({"f:spec": {"f:replicas": {}}}),
    )];
    let after = to_parent(&parent, &stolen, "apps/v1", path);
    assert_eq!(names(&after), ["three", "one", "two"]);
    assert_eq!(after[0]["apiVersion"], "apps/v1");
    assert_eq!(after[0].get("time"), None);
    assert_eq!(after[1]["fieldsV1"].to_json(), r#"{"f:spec":{"f:selector":{}}}"#);
}

fn texts(names: &'static str) -> impl Strategy<Value = Value> {
    prop::collection::btree_map(names, "[1-3]", 0..4).prop_map(|map| {
        map.into_iter()
            .map(|(name, value)| (name, Value::from(value)))
            .collect::<Map>()
            .into()
    })
}

/// Configurations of Deployments with maps, sets, lists of structs in lists of structs, and values that are whole.
fn any_configuration() -> impl Strategy<Value = Value> {
    let env = prop::collection::btree_map("[a-c]", "[1-3]", 0..3);
    let container = (
        prop::option::of("[x-z]"),
        env,
        prop::option::of(prop::collection::vec("[a-c]", 0..3)),
    );
    let containers = prop::collection::btree_map("[a-d]", container, 1..4)
        .prop_map(|map| map.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
        .prop_map(|containers| {
            type Parts = (
                Option<String>,
                std::collections::BTreeMap<String, String>,
                Option<Vec<String>>,
            );
            let container = |(name, (image, env, args)): (String, Parts)| {
                let mut container = json!({"name": name});
                if let Some(image) = image {
                    container["image"] = image.into();
                }
                if !env.is_empty() {
                    container["env"] = env
                        .into_iter()
                        .map(|(name, value)| json!({"name": name, "value": value}))
                        .collect();
                }
                if let Some(args) = args {
                    container["args"] = args.into();
                }
                container
            };
            containers.into_iter().map(container).collect::<Value>()
        });
    let finalizers = prop::collection::btree_set("[a-d]", 1..4)
        .prop_map(|set| set.into_iter().collect::<Vec<_>>())
        .prop_shuffle();
    let parts = (
        texts("[a-d]"),
        finalizers,
        containers,
        prop::option::of(0..3),
        texts("[a-b]"),
        0..64_u8,
    );
    parts.prop_map(|(labels, finalizers, containers, replicas, selector, which)| {
        let mut configuration = json!({"apiVersion": "v1", "kind": "Deployment", "metadata": {"name": "d"}});
        let mut put = |bit: u8, path: &[&str], value: Value| {
            if which & bit != 0 {
                let place = path.iter().fold(&mut configuration, |place, name| &mut place[*name]);
                *place = value;
            }
        };
        put(1, &["metadata", "labels"], labels.clone());
        put(2, &["metadata", "finalizers"], finalizers.into());
        put(4, &["spec", "template", "spec", "containers"], containers);
        put(8, &["spec", "replicas"], replicas.map_or(Value::Null, Value::from));
        put(16, &["spec", "selector", "matchLabels"], selector);
        put(32, &["spec", "template", "metadata", "annotations"], labels);
        configuration
    })
}

proptest! {
    #[test]
    fn applies_do_what_they_say(steps in prop::collection::vec((0..3_usize, any_configuration(), any::<bool>()), 1..8)) {
        let typed = typed("Deployment");
        let mut live: Option<Value> = None;
        for (second, (who, configuration, updates)) in steps.into_iter().enumerate() {
            let now = format!("2026-01-01T00:00:{second:02}Z");
            let request = by(["one", "two", "three"][who], &now);
            if let (Some(old), true) = (&live, updates) {
                // (Parts that are there in every stored object are not here, so nothing is taken out.)
                let mut new = merge::merge(typed, old, &configuration).unwrap().unwrap_or_else(|| old.clone());
                managed::update(typed, Some(old), &mut new, &request);
                live = Some(new);
                continue;
            }
            let new = at("Deployment", live.as_ref(), &request, &configuration, true).unwrap();
            prop_assert_eq!(unmet(typed, Some(&new), &configuration), None);
            for entry in new["metadata"]["managedFields"].as_array().into_iter().flatten() {
                prop_assert_eq!(beyond(typed, &new, entry), None, "{}", new);
            }
            if managers(&new).is_empty() {
                live = Some(new);
                continue;
            }
            let later = by(request.manager, "2030-01-01T00:00:00Z");
            let again = at("Deployment", Some(&new), &later, &configuration, false).unwrap();
            prop_assert_eq!(&again, &new);
            live = Some(new);
        }
    }

    #[test]
    fn any_managers_and_any_configuration_do_no_harm(
        fields in crate::patch::tests::any_object(), configuration in crate::patch::tests::any_object()
    ) {
        let mut live = config_map(&json!({"a": "1"}));
        live["metadata"]["managedFields"] = json!([
            {"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields},
            {"manager": "n", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": 5}]);
        let _ = applied("ConfigMap", Some(&live), "m", &configuration);
        let _ = applied("ConfigMap", Some(&live), "m", &config_map(&configuration));
        let mut new = live.clone();
        new["data"] = configuration;
        managed::update(typed("ConfigMap"), Some(&live), &mut new, &by("o", NOW));
    }
}
