//! A few valid things of every sort, always the same. They are committed under `fuzz/seeds`: the fuzzers start from them,
//! and a test holds today's writers and readers to them.

use flatkube_format::frame::{Kind, NewRecord, Previous, encode};
use flatkube_format::manifest::{Manifest, PartEntry, ResourceEntry, Sealed, SegmentEntry};
use flatkube_format::segment::{self, FooterBuilder, FooterEntry, namespace_crc};
use flatkube_format::shelf::{RowFrame, ShelfBuilder};
use flatkube_format::sidecar::{Fill, Hole, Pair, Sidecar};

use crate::exercise::SEED;

const JSON: [&[u8]; 2] = [br#"{"metadata":{"name":"web","resourceVersion":""#, br#""}}"#];

/// One specimen.
pub(crate) struct Specimen {
    /// The fuzz target that reads it.
    pub(crate) target: &'static str,
    /// Its name among those of the target.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// All of them.
pub(crate) fn all() -> Vec<Specimen> {
    let mut all = vec![];
    let mut add = |target, name: &str, bytes: &[u8]| {
        all.push(Specimen {
            target,
            name: name.to_owned(),
            bytes: bytes.to_vec(),
        });
    };
    let sidecars = sidecars();
    for (name, sidecar) in &sidecars {
        add("sidecar", name, &sidecar.archive());
    }
    for kind in [Kind::Create, Kind::Update, Kind::Delete, Kind::Marker] {
        let mut bytes = vec![];
        record(kind, false, 7, 0, 0, &mut bytes);
        add("record", &format!("{kind:?}").to_lowercase(), &bytes);
    }
    add("segment", "empty", &log(0, false));
    add("segment", "records", &log(5, false));
    add("segment", "sealed", &log(5, true));
    add("segment", "allocated", &[log(2, false), vec![0; 64]].concat());
    add("segment", "torn", &log(3, false)[..600]);
    for count in [0, 1, 3] {
        let mut builder = ShelfBuilder::new(SEED.store, "pods", 40);
        for (index, (name, sidecar)) in sidecars.iter().take(count).enumerate() {
            let json = [JSON[0], b"9", JSON[1]].concat();
            builder
                .push(&format!("default/{index}-{name}"), 9, 1, &json, &sidecar.archive())
                .expect("keys ascend");
        }
        add("shelf", &format!("objects-{count}"), &builder.finish().concat());
    }
    let mut builder = ShelfBuilder::new(SEED.store, "pods", 40).with_rows(Some(FRAME));
    for (_, sidecar) in sidecars.iter().filter(|(_, sidecar)| sidecar.layout == 0) {
        let json = [JSON[0], b"9", JSON[1]].concat();
        builder
            .push(&format!("default/{}", builder.count()), 9, 1, &json, &sidecar.archive())
            .expect("keys ascend");
    }
    add("shelf", "rows-3", &builder.finish().concat());
    for (name, manifest) in manifests() {
        add("manifest", name, &manifest.encode().expect("in order"));
    }
    all
}

/// What the specimen with rows has around the metadata in them.
const FRAME: RowFrame = RowFrame {
    before: r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#,
    behind: "}",
};

fn sidecars() -> Vec<(&'static str, Sidecar)> {
    let pair = |name: &str, value: &str| Pair {
        name: name.into(),
        value: value.into(),
    };
    let row = r#"{"cells":["web-7c5d","1/1","5 ( ago)","","",null],"conditions":[{}],"object":"#.to_owned();
    let hole = |before: &str, fill| Hole {
        at: row.find(before).expect("it is there") as u32,
        fill,
    };
    let holes = vec![
        hole(" ago", Fill::Since(1_700_000_000)),
        hole("\",\"\",null", Fill::Since(1)),
        hole("\",null", Fill::Revision),
    ];
    let pod = Sidecar {
        layout: 1,
        metadata_start: 12,
        splice: 45,
        metadata_tail: 2,
        created: 1_700_000_000,
        uid: "5f0c2d0e-8c4e-4a52-9d0a-0c8a4a2f4f11".into(),
        labels: vec![pair("app", "web"), pair("pod-template-hash", "7c5ddbdf54")],
        fields: vec![pair("spec.nodeName", "node-1"), pair("status.phase", "Running")],
        owners: vec!["0b1d8c52-7d0a-4c1e-bb2a-55c1f1d0f9c1".into()],
        row: row.clone(),
        holes: holes.clone(),
    };
    let labels = Sidecar {
        labels: vec![pair("app", "web")],
        ..Sidecar::default()
    };
    vec![
        (
            "row",
            Sidecar {
                row,
                holes,
                ..Sidecar::default()
            },
        ),
        ("labels", labels),
        ("pod", pod),
        ("empty", Sidecar::default()),
    ]
}

fn record(kind: Kind, refer: bool, revision: u64, synced: u32, previous_crc: u32, out: &mut Vec<u8>) -> u32 {
    let archive = sidecars()[1].1.archive();
    let old = [JSON[0], b"5", JSON[1]].concat();
    let marker = kind == Kind::Marker;
    let previous = match kind {
        Kind::Create | Kind::Marker => Previous::None,
        _ if refer => Previous::Reference {
            offset: segment::HEADER_LEN as u32,
        },
        _ => Previous::Inline {
            revision: 5,
            json: &old,
            sidecar: &archive,
            shape: 1,
        },
    };
    let record = NewRecord {
        kind,
        revision,
        resource: if marker { "" } else { "pods" },
        key: if marker { "" } else { "default/web" },
        json: if marker { [&[], &[]] } else { JSON },
        sidecar: if marker { &[] } else { &archive },
        shape: u32::from(!marker),
        previous,
        synced,
    };
    encode(&record, &SEED, previous_crc, out)
}

fn log(count: usize, sealed: bool) -> Vec<u8> {
    let mut bytes = segment::header(SEED.store, SEED.segment, 1).to_vec();
    let mut crc = segment::header_crc(bytes.first_chunk().expect("a header"));
    let mut footer = FooterBuilder::new(SEED);
    let kinds = [Kind::Create, Kind::Update, Kind::Update, Kind::Delete, Kind::Marker];
    for (index, kind) in kinds.into_iter().take(count).enumerate() {
        let (revision, at) = (index as u64 + 1, bytes.len() as u32);
        if kind != Kind::Marker {
            footer.push(
                "pods",
                FooterEntry {
                    revision,
                    offset: at / 16,
                    namespace: namespace_crc("default/web"),
                },
            );
        }
        crc = record(kind, index % 2 == 0, revision, at, crc, &mut bytes);
    }
    if sealed {
        bytes.extend_from_slice(&footer.encode(bytes.len() as u32));
    }
    bytes
}

fn manifests() -> Vec<(&'static str, Manifest)> {
    let new = Manifest {
        store: SEED.store,
        generation: 1,
        next_file: 2,
        ..Manifest::default()
    };
    let sealed = Sealed {
        end: 4096,
        footer_len: 160,
        last_revision: 30,
        sealed_at: 1_700_000_000,
    };
    let segments = vec![
        SegmentEntry {
            number: 1,
            first_revision: 1,
            sealed: Some(sealed),
        },
        SegmentEntry {
            number: 2,
            first_revision: 31,
            sealed: None,
        },
    ];
    let part = PartEntry {
        file: 3,
        count: 2,
        bytes: 2048,
        first_key: "default/a".into(),
        last_key: "default/b".into(),
        header_crc: 7,
    };
    let resources = vec![
        ResourceEntry {
            name: "leases.coordination.k8s.io".into(),
            shelved_revision: 30,
            floor: 4,
            parts: vec![],
        },
        ResourceEntry {
            name: "pods".into(),
            shelved_revision: 30,
            floor: 0,
            parts: vec![part],
        },
    ];
    let used = Manifest {
        revision: 33,
        next_file: 4,
        clean: true,
        segments,
        resources,
        ..new.clone()
    };
    vec![("new", new), ("used", used)]
}
