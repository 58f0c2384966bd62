//! What is refused, and why: tables of small objects with the causes that kube-apiserver gives, one file an area.
//!
//! A line is JSON: `resource` (group, version, plural), `object`, for changes `old` (what is stored; `stored`, when it would be
//! refused today) and perhaps `subresource`,
//! and `causes`: `field: message`, in any order. No causes: it is accepted.

use crate::tree::Value;

use super::{Context, Refusal, convert, find, prepare_create, prepare_update};

const TABLES: &[(&str, &str)] = &[
    ("access", include_str!("testdata/refusals/access.jsonl")),
    ("admission", include_str!("testdata/refusals/admission.jsonl")),
    ("apps", include_str!("testdata/refusals/apps.jsonl")),
    ("batch", include_str!("testdata/refusals/batch.jsonl")),
    ("definitions", include_str!("testdata/refusals/definitions.jsonl")),
    ("devices", include_str!("testdata/refusals/devices.jsonl")),
    ("managers", include_str!("testdata/refusals/managers.jsonl")),
    ("networking", include_str!("testdata/refusals/networking.jsonl")),
    ("nodes", include_str!("testdata/refusals/nodes.jsonl")),
    ("pods", include_str!("testdata/refusals/pods.jsonl")),
    ("policy", include_str!("testdata/refusals/policy.jsonl")),
    ("quotas", include_str!("testdata/refusals/quotas.jsonl")),
    ("services", include_str!("testdata/refusals/services.jsonl")),
    ("storage", include_str!("testdata/refusals/storage.jsonl")),
    ("volumes", include_str!("testdata/refusals/volumes.jsonl")),
];

#[test]
fn causes_are_those_of_kube_apiserver() {
    let mut wrong = Vec::new();
    for (area, table) in TABLES {
        for (number, line) in table.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            let case: Value =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{area}:{}: {error}", number + 1));
            let mut expected: Vec<String> = case["causes"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|cause| cause.as_str().unwrap_or("").to_owned())
                .collect();
            expected.sort();
            let found = causes(&case);
            if found != expected {
                wrong.push(format!(
                    "{area}:{}\n  found    {found:#?}\n  expected {expected:#?}",
                    number + 1
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn causes(case: &Value) -> Vec<String> {
    let part = |i: usize| case["resource"][i].as_str().unwrap_or("");
    let resource = find(part(0), part(1), part(2)).unwrap_or_else(|| panic!("no resource {}", case["resource"]));
    let shape = resource.stored_shape().unwrap_or(resource);
    let mut context = Context {
        now_s: 1_767_300_000,
        namespace: resource.namespaced.then_some("space"),
        name: None,
        asked: Some(resource),
    };
    let mut object = convert::to_stored(resource, case["object"].clone());
    let result = match case.get("old").or(case.get("stored")) {
        None => prepare_create(shape, &mut object, &context),
        Some(old) => {
            let mut stored = convert::to_stored(resource, old.clone());
            let status = stored.get("status").cloned();
            // What is refused has been made ready all the same.
            let refused = prepare_create(shape, &mut stored, &context).err();
            assert_eq!(refused.is_some(), case.get("stored").is_some(), "{refused:?} in {case}");
            if let Some(status) = status {
                stored["status"] = status;
            }
            context.name = old["metadata"]["name"].as_str();
            prepare_update(shape, case["subresource"].as_str(), &stored, &mut object, &context)
        }
    };
    let mut causes: Vec<String> = match result {
        Ok(_) => Vec::new(),
        Err(Refusal::Invalid(errors)) => errors
            .into_iter()
            .map(|error| format!("{}: {}", error.field, error.message))
            .collect(),
        Err(other) => vec![format!("{other:?}")],
    };
    causes.sort();
    causes
}
