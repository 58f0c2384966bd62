//! From the body of a create to what is stored: decoding in each syntax, making ready, encoding.

use criterion::{BatchSize, Criterion, Throughput};
use flatkube::resources::{self, Context, Resource};
use flatkube::schema::{self, Expected, FieldValidation, Syntax};
use flatkube::tree::Value;

use crate::stored::{self, CREATED_S, config_maps, pods};
use crate::{Group, protobuf};

pub(crate) fn bench(criterion: &mut Criterion) {
    for (resource, body) in [
        (pods(), stored::pod_body(7)),
        (config_maps(), stored::config_map_body(7)),
    ] {
        let mut group = crate::group(criterion, &format!("create of a {}", &resource.kind));
        of_kind(&mut group, resource, &body);
        group.finish();
    }
}

fn decode(resource: &Resource, syntax: Syntax, body: &[u8]) -> Value {
    let expected = Expected {
        group: &resource.group,
        version: &resource.version,
        kind: &resource.kind,
    };
    schema::decode(body, syntax, &expected, FieldValidation::Strict)
        .expect("a valid object")
        .value
}

fn of_kind(group: &mut Group<'_>, resource: &'static Resource, json: &[u8]) {
    let sent: Value = serde_json::from_slice(json).expect("JSON");
    let yaml = serde_saphyr::to_string(&sent).expect("YAML").into_bytes();
    let protobuf = protobuf::body(&serde_json::to_value(&sent).expect("JSON"));
    let value = decode(resource, Syntax::Json, json);
    for (name, syntax, body) in [
        ("decode JSON", Syntax::Json, json),
        ("decode YAML", Syntax::Yaml, &yaml),
        ("decode protobuf", Syntax::Protobuf, &protobuf),
    ] {
        assert_eq!(decode(resource, syntax, body), value, "{name}");
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(name, |bencher| bencher.iter(|| decode(resource, syntax, body)));
    }

    let namespace = value["metadata"]["namespace"].as_str().map(str::to_owned);
    let context = Context {
        now_s: CREATED_S,
        namespace: namespace.as_deref(),
        name: None,
        asked: None,
    };
    let prepare = |mut value: Value| {
        resources::prepare_create(resource, &mut value, &context).expect("a valid object");
        value
    };
    group.throughput(Throughput::Bytes(json.len() as u64));
    group.bench_function("prepare", |bencher| {
        bencher.iter_batched(|| value.clone(), prepare, BatchSize::SmallInput);
    });
    let ready = prepare(value.clone());
    group.bench_function("encode", |bencher| bencher.iter(|| stored::prepared(resource, &ready)));
    group.bench_function("all of it, from JSON", |bencher| {
        bencher.iter(|| {
            let ready = prepare(decode(resource, Syntax::Json, json));
            stored::prepared(resource, &ready)
        });
    });
}
