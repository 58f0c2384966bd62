//! Rules of custom resources: compiled once, run with every write.

use criterion::Criterion;
use flatkube::cel::rules::Rules;
use flatkube::tree::Value;
use serde_json::json;

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = crate::group(criterion, "rules of a custom resource");
    let rule = |text: &str| json!([{ "rule": text }]);
    let schema = Value::from(json!({ "type": "object", "properties": { "spec": {
        "type": "object",
        "properties": {
            "min": { "type": "integer" },
            "max": { "type": "integer" },
            "name": { "type": "string", "x-kubernetes-validations": rule("self.startsWith('w-') && self == oldSelf") },
            "ports": { "type": "array", "items": { "type": "object", "properties": {
                "name": { "type": "string" }, "port": { "type": "integer" }
            } }, "x-kubernetes-validations": rule("self.all(p, p.port > 0 && p.port < 65536 && size(p.name) < 63)") }
        },
        "x-kubernetes-validations": rule("!has(self.min) || !has(self.max) || self.min <= self.max")
    } } }));
    let ports: Vec<_> = (1..=20)
        .map(|port| json!({ "name": format!("port-{port}"), "port": port }))
        .collect();
    let object = Value::from(json!({ "spec": { "min": 1, "max": 2, "name": "w-1", "ports": ports } }));
    let rules = Rules::compile(&schema).expect("rules");
    assert!(rules.validate(Some(&object), &object).broken.is_empty());
    group.bench_function("compiled", |bencher| bencher.iter(|| Rules::compile(&schema)));
    group.bench_function("run", |bencher| {
        bencher.iter(|| rules.validate(Some(&object), &object));
    });
    group.finish();
}
