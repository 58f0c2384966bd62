//! Patches of a Pod, each of the three kinds making the same change.

use criterion::{Criterion, Throughput};
use flatkube::patch::{self, PatchKind};
use flatkube::schema::{FieldValidation, Schema};
use serde_json::json;

use crate::stored;

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = crate::group(criterion, "patch of a Pod");
    let schema = Schema::of("", "v1", "Pod").expect("a built-in kind");
    let mut pod = stored::pod(7, false);
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    group.throughput(Throughput::Bytes(pod.to_string().len() as u64));
    let (name, image) = (
        &pod["spec"]["containers"][0]["name"],
        "registry.example.com/shop/other:2",
    );
    let mut containers = pod["spec"]["containers"].clone();
    containers[0]["image"] = image.into();
    let labels = json!({ "metadata": { "labels": { "patched": "yes", "team": null } } });
    let mut merge = labels.clone();
    merge["spec"] = json!({ "containers": containers });
    let mut strategic = labels;
    strategic["spec"] = json!({ "containers": [{ "name": name, "image": image }] });
    let operations = json!([
        { "op": "add", "path": "/metadata/labels/patched", "value": "yes" },
        { "op": "remove", "path": "/metadata/labels/team" },
        { "op": "replace", "path": "/spec/containers/0/image", "value": image },
    ]);
    let cases = [
        ("merge", PatchKind::Merge, merge),
        ("strategic", PatchKind::Strategic, strategic),
        ("JSON", PatchKind::Json, operations),
    ];
    let mut results = Vec::new();
    for (name, kind, body) in cases {
        let body = body.to_string();
        let apply = || patch::apply(kind, &pod, body.as_bytes(), schema, FieldValidation::Strict).expect("it applies");
        results.push(apply().value);
        group.bench_function(name, |bencher| bencher.iter(apply));
    }
    assert!(results[0]["metadata"]["labels"]["patched"] == "yes" && results.iter().all(|result| *result == results[0]));
    group.finish();
}
