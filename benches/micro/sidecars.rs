//! Sidecars: made, accessed, asked by selectors, and rendered as rows of a Table.

use criterion::{Criterion, Throughput};
use flatkube::resources::{self, table};
use flatkube::store::{Requirement, Selection};
use flatkube_format::sidecar::{ArchivedSidecar, Sidecar, access};

use crate::reads::label;
use crate::stored::{self, CREATED_S, pods};

/// Objects whose sidecars are looked at.
const COUNT: usize = 500;

pub(crate) fn bench(criterion: &mut Criterion) {
    let objects: Vec<_> = (0..COUNT)
        .map(|number| {
            let (namespace, name) = stored::pod_place(number);
            let prepared = stored::prepared(pods(), &stored::pod(number, false));
            (format!("{namespace}/{name}"), prepared.sidecar)
        })
        .collect();
    let opened: Vec<(&str, &ArchivedSidecar)> = objects
        .iter()
        .map(|(key, bytes)| (key.as_str(), access(bytes).expect("an archive")))
        .collect();
    made(criterion);
    accessed(criterion, &objects);
    selected(criterion, &opened);
    rendered(criterion, &opened);
}

fn made(criterion: &mut Criterion) {
    let mut group = crate::group(criterion, "sidecar");
    let prepared = stored::prepared(pods(), &stored::pod(7, false));
    let [before, after] = prepared.halves().expect("a place for the revision");
    let json = [before, b"1234567", after].concat();
    group.throughput(Throughput::Bytes(json.len() as u64));
    group.bench_function("from JSON", |bencher| {
        bencher.iter(|| resources::archive("pods", &json).expect("stored JSON").len());
    });
    let archived = access(&prepared.sidecar).expect("an archive");
    let sidecar: Sidecar = rkyv::deserialize::<_, rkyv::rancor::Error>(archived).expect("an archive");
    group.throughput(Throughput::Bytes(prepared.sidecar.len() as u64));
    group.bench_function("archive", |bencher| {
        bencher.iter(|| sidecar.archive().len());
    });
    group.finish();
}

fn accessed(criterion: &mut Criterion, objects: &[(String, Vec<u8>)]) {
    let mut group = crate::group(criterion, "sidecars, 500");
    group.throughput(Throughput::Elements(COUNT as u64));
    group.bench_function("access", |bencher| {
        bencher.iter(|| {
            let spans = objects
                .iter()
                .map(|(_, bytes)| access(bytes).expect("an archive").metadata_span(7));
            spans.map(|span| span.len()).sum::<usize>()
        });
    });
    group.finish();
}

fn selected(criterion: &mut Criterion, opened: &[(&str, &ArchivedSidecar)]) {
    let mut group = crate::group(criterion, "selector on 500");
    group.throughput(Throughput::Elements(COUNT as u64));
    let (name, tier) = ("app.kubernetes.io/name".to_owned(), "app.kubernetes.io/component");
    let some = vec!["cart".to_owned(), "ledger".to_owned(), "search".to_owned()];
    let cases: [(&str, Vec<Requirement>); 5] = [
        ("label=value", vec![label(tier, "web")]),
        (
            "label in (3)",
            vec![Requirement::LabelIn {
                name: name.clone(),
                values: some.clone(),
            }],
        ),
        ("label notin (3)", vec![Requirement::LabelNotIn { name, values: some }]),
        (
            "field=value",
            vec![Requirement::FieldIs {
                name: "status.phase".into(),
                value: "Running".into(),
            }],
        ),
        (
            "label, !label, label=value",
            vec![
                Requirement::LabelExists("team".into()),
                Requirement::LabelAbsent("canary".into()),
                label(tier, "web"),
            ],
        ),
    ];
    for (name, requirements) in cases {
        let selection = Selection { requirements };
        let count = || {
            let selected = opened
                .iter()
                .filter(|(key, sidecar)| selection.matches_parts(key, sidecar));
            selected.count()
        };
        assert!(count() > 0, "{name} selects something");
        group.bench_function(name, |bencher| bencher.iter(count));
    }
    group.finish();
}

fn rendered(criterion: &mut Criterion, opened: &[(&str, &ArchivedSidecar)]) {
    let mut group = crate::group(criterion, "Table");
    group.throughput(Throughput::Elements(COUNT as u64));
    group.bench_function("500 rows", |bencher| {
        let mut out = Vec::new();
        bencher.iter(|| {
            out.clear();
            for (_, sidecar) in opened {
                table::write_row(sidecar, CREATED_S + 86_400, 1_234_567, &mut out);
            }
            out.len()
        });
    });
    group.finish();
}
