//! Custom objects by their schema: what a write of one costs before it is encoded.

use std::hint::black_box;

use criterion::Criterion;
use flatkube::schema::structural::Structural;
use flatkube::tree::Value;

/// A schema in the style of a certificate manager.
const SCHEMA: &str = include_str!("../../src/schema/structural/testdata/certificate.json");

/// What somebody writes by hand.
const OBJECT: &str = r#"{
    "apiVersion": "certs.example.com/v1", "kind": "Certificate", "metadata": {"name": "site", "namespace": "web"},
    "spec": {
        "secretName": "site-tls", "commonName": "www.example.com", "dnsNames": ["www.example.com", "example.com"],
        "duration": "2160h", "renewBefore": "360h", "issuerRef": {"name": "ca", "kind": "ClusterIssuer"},
        "privateKey": {"algorithm": "ECDSA", "size": 256}, "usages": ["server auth", "client auth"],
        "secretTemplate": {"labels": {"app": "site"}, "annotations": {"example.com/owner": "web"}}
    },
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Ready", "message": "is up to date", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ],
        "notAfter": "2026-04-01T00:00:00Z", "revision": 3
    }
}"#;

fn tree(json: &str) -> Value {
    serde_json::from_str(json).expect("JSON")
}

pub(super) fn bench(criterion: &mut Criterion) {
    let (json, object) = (tree(SCHEMA), tree(OBJECT));
    let schema = Structural::compile(&json).expect("a structural schema");
    let mut group = criterion.benchmark_group("custom_object");
    group.bench_function("compile", |bencher| {
        bencher.iter(|| Structural::compile(black_box(&json)));
    });
    group.bench_function("prune_fill_validate", |bencher| {
        bencher.iter(|| {
            let mut object = black_box(&object).clone();
            let unknown = schema.prune(&mut object).expect("no embedded resources");
            schema.fill(&mut object).expect("few defaults");
            let errors = schema.validate(None, &object);
            assert!(unknown.is_empty() && errors.is_empty(), "{unknown:?} {errors:?}");
        });
    });
    group.finish();
}
