//! A toy of what stands above the store: an archiver, writes of small objects, lists.

#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod model;

use std::sync::Arc;
use std::time::Duration;

use flatkube::store::{ArchiveError, Archiver, Change, Options, Precondition, Prepared, Range, Selection, View, Write};
use flatkube_format::sidecar::{Pair, Sidecar};

pub(crate) struct Toy;

impl Archiver for Toy {
    fn layout(&self, _resource: &str) -> u32 {
        1
    }

    fn archive(&self, _resource: &str, key: &str, json: &[u8]) -> Result<Vec<u8>, ArchiveError> {
        let splice = 32;
        let digits = json[splice..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        Ok(sidecar(
            key,
            &json[splice + digits + 14..json.len() - 2].len().to_string(),
        ))
    }
}

fn sidecar(key: &str, value: &str) -> Vec<u8> {
    Sidecar {
        layout: 1,
        metadata_start: 12,
        splice: 32,
        metadata_tail: 2,
        created: 1,
        uid: format!("uid-of-{key}"),
        labels: vec![Pair {
            name: "value".into(),
            value: value.chars().take(20).collect(),
        }],
        fields: Vec::new(),
        owners: Vec::new(),
        row: String::new(),
        holes: Vec::new(),
    }
    .archive()
}

/// `{"metadata":{"resourceVersion":"…"},"value":"…"}`
pub(crate) fn prepared(key: &str, value: &str) -> Prepared {
    let json = format!(r#"{{"metadata":{{"resourceVersion":""}},"value":"{value}"}}"#).into_bytes();
    Prepared {
        json,
        splice: 32,
        sidecar: sidecar(key, value),
    }
}

pub(crate) fn put(resource: &str, key: &str, value: &str, precondition: Precondition) -> Write {
    let change = Change::Put(prepared(key, value));
    Write {
        resource: Arc::from(resource),
        key: key.to_owned(),
        precondition,
        uid: None,
        change,
    }
}

pub(crate) fn delete(resource: &str, key: &str, value: &str, precondition: Precondition) -> Write {
    let change = Change::Delete(prepared(key, value));
    Write {
        resource: Arc::from(resource),
        key: key.to_owned(),
        precondition,
        uid: None,
        change,
    }
}

/// Tiny limits, so that a few hundred writes rotate, shelve and retire.
pub(crate) fn options() -> Options {
    Options {
        segment_bytes_first: 8 << 10,
        segment_bytes: 16 << 10,
        part_bytes: 4 << 10,
        shelve_min_bytes: 2 << 10,
        shelve_step_bytes: 1 << 10,
        shelve_pause: Duration::ZERO,
        background: false,
        on_fatal: Arc::new(|_| {}),
        ..Options::default()
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// Keys and revisions in list order.
pub(crate) fn list(view: &Arc<View>, resource: &str) -> Vec<(String, u64)> {
    let mut listing = view.list(resource, Range::default(), &Selection::default());
    let mut objects = Vec::new();
    while let Some(run) = listing.next(7).unwrap() {
        for object in run.objects() {
            let json = String::from_utf8(object.json().unwrap().to_vec()).unwrap();
            assert!(
                json.starts_with(&format!(
                    r#"{{"metadata":{{"resourceVersion":"{}"}}"#,
                    object.revision()
                )),
                "{json}"
            );
            objects.push((object.key().to_owned(), object.revision()));
        }
    }
    assert_eq!(objects.len() as u64, view.count(resource, None));
    objects
}
