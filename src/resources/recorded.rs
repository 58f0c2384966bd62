//! Recorded creates of a kube-apiserver, made again: what it answered to each body is what we make of it.

use crate::tree::{Value, json};

use super::allocation::Allocations;
use super::{Context, Refusal, canonicalize, convert, find, prepare_create};

/// Recordings that rest on what is not this module's: admission plugins that look at other objects, allocated addresses,
/// controllers of the API server itself.
const NOT_OURS: &[&str] = &[
    // The requester's name, field owners, a name that the recording gives a name of its own.
    "apply/managers-of-updates",
    "defaults/min-certificatesigningrequests",
    "tables/csrs",
    "update/csr-approval",
    "validation/csr.json#7",
    "update/generate-name.json#0",
    // Bindings are not stored.
    "update/binding.json#5",
    // What other objects say: priority classes, storage classes, Services before this one.
    "defaults/priority-class.json",
    "defaults/storage-class-default.json#1",
    "update/service-allocation",
    // A null inside a map, which these recordings lose on the way here.
    "defaults/secret-forms.json#1",
    "errors/validating-policy",
    "errors/bad-options",
];

/// Rules that are not checked yet: CEL expressions.
const NOT_YET: &[&str] = &["validation/webhooks.json#8 "];

#[test]
fn creates_answer_as_kube_apiserver_did() {
    let mut wrong = Vec::new();
    let mut right = 0;
    for line in include_str!("testdata/creates.jsonl").lines() {
        let recorded: Value = serde_json::from_str(line).unwrap();
        let from = recorded["from"].as_str().unwrap();
        if NOT_OURS
            .iter()
            .chain(NOT_YET)
            .any(|not| format!("{from} ").starts_with(not))
        {
            continue;
        }
        match difference(&recorded) {
            None => right += 1,
            Some(difference) => wrong.push(format!("{from} {}: {difference}", recorded["resource"][2])),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} right, {} differ:\n{}",
        right,
        wrong.len(),
        wrong.join("\n")
    );
}

fn difference(recorded: &Value) -> Option<String> {
    let part = |i: usize| recorded["resource"][i].as_str().unwrap();
    let resource = find(part(0), part(1), part(2)).unwrap();
    let mut object = recorded["body"].clone();
    drop_nulls(&mut object);
    let context = Context {
        now_s: 1_767_300_000,
        namespace: resource.namespaced.then_some("space"),
        name: None,
        asked: Some(resource),
    };
    let mut object = convert::to_stored(resource, object);
    let shape = resource.stored_shape().unwrap_or(resource);
    let mut made = prepare_create(shape, &mut object, &context);
    let mut object = convert::from_stored(resource, object);
    if made.is_ok() && resource.storage == "services" {
        let allocated = Allocations::default().allocate(&mut object, None, false);
        made = made.and_then(|warnings| allocated.map(|()| warnings));
    }
    if let Some(expected) = recorded.get("answer") {
        return match made {
            Ok(_) => unlike("", expected, &object),
            Err(refusal) => Some(format!("refused: {refusal:?}")),
        };
    }
    if let Some(picked) = recorded.get("picked").and_then(Value::as_object) {
        if let Err(refusal) = made {
            return Some(format!("refused: {refusal:?}"));
        }
        return picked
            .iter()
            .find_map(|(path, expected)| unlike(path, expected, &pick(&object, path)));
    }
    let expected = &recorded["refused"];
    match made {
        Ok(_) => Some(format!("taken, but should be {expected}")),
        Err(Refusal::Invalid(errors)) => {
            let sorted = |mut texts: Vec<String>| {
                texts.sort();
                texts
            };
            let got = sorted(errors.iter().map(ToString::to_string).collect());
            let Some(causes) = expected["causes"].as_array() else {
                let text = if let [one] = &got[..] {
                    one.clone()
                } else {
                    format!("[{}]", got.join(", "))
                };
                let message = expected["message"].as_str().unwrap_or("");
                let fits = message
                    .split_once(" is invalid: ")
                    .is_some_and(|(_, wanted)| wanted == text);
                return (!fits).then(|| format!("wanted {message}\n    got {}", json!(got)));
            };
            let wanted = causes.iter().map(|cause| {
                format!(
                    "{}: {}",
                    cause["field"].as_str().unwrap_or(""),
                    cause["message"].as_str().unwrap_or("")
                )
            });
            let wanted = sorted(wanted.collect());
            let same = got.len() == wanted.len() && got.iter().zip(&wanted).all(|(got, wanted)| fits(wanted, got));
            (!same).then(|| format!("wanted {}\n    got {}", json!(wanted), json!(got)))
        }
        Err(other) => Some(format!("{other:?} instead of {expected}")),
    }
}

/// Whether a text is the recorded one, apart from masked parts.
fn fits(wanted: &str, got: &str) -> bool {
    match wanted.split_once("<internal object>") {
        Some((before, after)) => got.starts_with(before) && got.ends_with(after),
        None => wanted == got || (wanted.contains("<uid:") && !got.is_empty()),
    }
}

/// The value at a path like `spec.containers[*].resources`.
fn pick(object: &Value, path: &str) -> Value {
    match path.split_once("[*].") {
        Some((list, rest)) => {
            let items = pick(object, list);
            items
                .as_array()
                .into_iter()
                .flatten()
                .map(|item| pick(item, rest))
                .collect()
        }
        None => object
            .pointer(&format!("/{}", path.replace('.', "/")))
            .cloned()
            .unwrap_or(Value::Null),
    }
}

/// What decoding does with nulls, as far as these bodies need it.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// The first difference between a recorded (masked) value and ours.
fn unlike(path: &str, expected: &Value, got: &Value) -> Option<String> {
    match (expected, got) {
        (Value::Object(a), Value::Object(b)) => {
            for (name, value) in a {
                if matches!(
                    (path, name.as_str()),
                    ("", "kind" | "apiVersion") | (".metadata", "resourceVersion")
                ) {
                    continue;
                }
                match b.get(name) {
                    Some(other) => {
                        if let Some(difference) = unlike(&format!("{path}.{name}"), value, other) {
                            return Some(difference);
                        }
                    }
                    None => return Some(format!("{path}.{name} is missing, should be {value}")),
                }
            }
            let extra = b.keys().find(|name| {
                !(a.contains_key(name) || path.is_empty() && matches!(name.as_str(), "kind" | "apiVersion"))
            });
            extra.map(|name| format!("{path}.{name} is {} but should not be there", b[name]))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .find_map(|(i, (a, b))| unlike(&format!("{path}[{i}]"), a, b)),
        (Value::String(mask), Value::String(text)) if mask.contains('<') && mask != text => {
            let fits = match mask.as_str() {
                "<time>" | "<microtime>" => text.parse::<jiff::Timestamp>().is_ok(),
                mask if ["<uid:", "<suffix>", "<ip:"].iter().any(|known| mask.contains(known)) => !text.is_empty(),
                _ => false,
            };
            (!fits).then(|| format!("{path} is {text:?}, should be {mask}"))
        }
        (Value::String(mask), Value::Number(_)) if mask == "<nodePort>" => None,
        (a, b) => (a != b).then(|| format!("{path} is {b}, should be {a}")),
    }
}

#[test]
fn a_canonical_object_is_its_own_canonical_form() {
    for line in include_str!("testdata/creates.jsonl").lines() {
        let recorded: Value = serde_json::from_str(line).unwrap();
        let Some(answer) = recorded.get("answer") else { continue };
        if recorded["from"]
            .as_str()
            .is_some_and(|from| NOT_OURS.iter().any(|not| from.starts_with(not)))
        {
            continue;
        }
        let part = |i: usize| recorded["resource"][i].as_str().unwrap();
        let mut object = answer.clone();
        canonicalize(find(part(0), part(1), part(2)).unwrap(), &mut object);
        assert_eq!(unlike("", answer, &object), None, "{}", recorded["from"]);
    }
}

#[test]
fn a_write_that_changes_nothing_changes_nothing() {
    let mut wrong = Vec::new();
    for line in include_str!("testdata/creates.jsonl").lines() {
        let recorded: Value = serde_json::from_str(line).unwrap();
        let part = |i: usize| recorded["resource"][i].as_str().unwrap();
        let resource = find(part(0), part(1), part(2)).unwrap();
        let Some(shape) = resource.stored_shape() else { continue };
        let mut object = recorded["body"].clone();
        drop_nulls(&mut object);
        let mut object = convert::to_stored(resource, object);
        let context = Context {
            now_s: 1_767_300_000,
            namespace: resource.namespaced.then_some("space"),
            name: None,
            asked: None,
        };
        if prepare_create(shape, &mut object, &context).is_err() {
            continue;
        }
        if shape.storage == "services" && Allocations::default().allocate(&mut object, None, false).is_err() {
            continue;
        }
        for subresource in [None, Some("status")] {
            if subresource.is_some_and(|name| shape.subresource(name).is_none()) {
                continue;
            }
            let mut again = object.clone();
            let later = Context {
                now_s: context.now_s + 60,
                ..context
            };
            match super::prepare_update(shape, subresource, &object, &mut again, &later) {
                Ok(_) => wrong.extend(unlike("", &object, &again).map(|it| format!("{}: {it}", recorded["from"]))),
                Err(refusal) => wrong.push(format!("{} {subresource:?}: {refusal:?}", recorded["from"])),
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_stateful_set_mounts_the_volumes_of_its_claims() {
    let sets = find("apps", "v1", "statefulsets").unwrap();
    let mut set = json!({"metadata": {"name": "db"}, "spec": {
        "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [
            {"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}
        ]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}
        }}]
    }});
    let context = Context {
        now_s: 1_767_300_000,
        namespace: Some("space"),
        name: None,
        asked: None,
    };
    prepare_create(sets, &mut set, &context).unwrap();
    let claim = &set["spec"]["volumeClaimTemplates"][0];
    assert_eq!(
        (&claim["kind"], &claim["status"]["phase"]),
        (&json!("PersistentVolumeClaim"), &json!("Pending"))
    );
    let again = set.clone();
    let mut same = set;
    super::prepare_update(sets, None, &again, &mut same, &context).unwrap();
    assert_eq!(same, again, "a write that changes nothing changes nothing");
}

#[test]
fn a_resize_changes_resources_and_nothing_else() {
    let pods = find("", "v1", "pods").unwrap();
    let container =
        |image: &str, cpu: &str| json!({"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}});
    let mut old = json!({"metadata": {"name": "p"}, "spec": {"containers": [container("i:1", "1")]}});
    let context = Context {
        now_s: 1_767_300_000,
        namespace: Some("space"),
        name: None,
        asked: None,
    };
    prepare_create(pods, &mut old, &context).unwrap();
    let mut new = old.clone();
    new["spec"]["containers"][0] = container("other:2", "2");
    new["spec"]["nodeName"] = json!("n");
    super::prepare_update(pods, Some("resize"), &old, &mut new, &context).unwrap();
    let mut expected = old.clone();
    expected["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    expected["metadata"]["generation"] = json!(2);
    assert_eq!(unlike("", &expected, &new), None);
}

/// Prints how long a write's preparation takes; run with `--release -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, not a check"]
fn how_long_a_pod_takes() {
    let pods = find("", "v1", "pods").unwrap();
    let line = include_str!("testdata/creates.jsonl")
        .lines()
        .find(|line| line.contains("tables/pods-basic.json#0"));
    let recorded: Value = serde_json::from_str(line.unwrap()).unwrap();
    let context = Context {
        now_s: 1_767_300_000,
        namespace: Some("space"),
        name: None,
        asked: None,
    };
    let rounds = 5_000_u32;
    let mut prepared = Value::Null;
    let start = std::time::Instant::now();
    for _ in 0..rounds {
        prepared = recorded["body"].clone();
        prepare_create(pods, &mut prepared, &context).unwrap();
    }
    println!("prepare_create of a Pod: {:?}", start.elapsed() / rounds);
    let start = std::time::Instant::now();
    for _ in 0..rounds {
        std::hint::black_box(super::encode(pods, &prepared).unwrap());
    }
    println!("encode of a Pod: {:?}", start.elapsed() / rounds);
    let start = std::time::Instant::now();
    for _ in 0..rounds {
        let mut changed = prepared.clone();
        super::prepare_update(pods, Some("status"), &prepared, &mut changed, &context).unwrap();
    }
    println!("prepare_update of a Pod's status: {:?}", start.elapsed() / rounds);
}
