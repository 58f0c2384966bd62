//! A whole data directory of any bytes: it is refused, or it works.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatkube::store::disk::sim::SimDisk;
use flatkube::store::{Object, OpenError, Range, Requirement, Run, Selection, Store, View, files};
use flatkube_format::frame::Seed;
use flatkube_format::manifest::Manifest;
use flatkube_format::shelf::Shelf;

use super::exercise;
use super::input::Input;
use super::written::{self, objects, open, options, put, put_file};

const FILES_MAX: usize = 24;
const FILE_LEN_MAX: usize = 256 << 10;

/// Which checksums are made right before the store sees the files.
const SEAL_MANIFEST: u8 = 1;
const SEAL_SEGMENTS: u8 = 2;
const SEAL_SHELVES: u8 = 4;
/// The manifest's word on the parts (length, checksum of the header) is made right.
const LINK: u8 = 8;

/// The files of a directory from `data`: a byte of flags, then of each file its sort, its number, its length without and
/// with the zeroes at its end, and its bytes.
///
/// A directory that is refused for damage is not changed. One that opens answers every read with an object or an error, takes
/// a write, closes, opens again, and then shows what it showed before.
pub fn data_directory(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.byte();
    let mut files = BTreeMap::new();
    for _ in 0..FILES_MAX {
        if input.is_empty() {
            break;
        }
        let (sort, number) = (input.byte(), u64::from(input.byte()));
        let zeroes = input.short() * 16;
        let len = input.short();
        let mut bytes = input.bytes(len).to_vec();
        bytes.resize((bytes.len() + zeroes).min(FILE_LEN_MAX), 0);
        files.insert(name_of(sort, number), bytes);
    }
    seal(flags, &mut files);
    let disk = SimDisk::new();
    for (name, bytes) in &files {
        put_file(&disk, name, bytes, bytes.len());
    }
    run(&disk, &files);
}

fn name_of(sort: u8, number: u64) -> String {
    match sort % 8 {
        0 => files::MANIFEST.into(),
        1 => files::segment(number),
        2 => files::part(number),
        3 => files::SPARE.into(),
        4 => files::cut(number),
        5 => files::MANIFEST_NEW.into(),
        6 => files::part_new(number),
        _ => format!("another-{number}"),
    }
}

fn seal(flags: u8, files: &mut BTreeMap<String, Vec<u8>>) {
    if flags & SEAL_SHELVES != 0 {
        for (_, bytes) in files.iter_mut().filter(|(name, _)| name.starts_with("shelf-")) {
            exercise::seal_shelf(bytes);
        }
    }
    let Some(mut bytes) = files.get(files::MANIFEST).cloned() else {
        return;
    };
    if flags & SEAL_MANIFEST != 0 {
        exercise::seal_manifest(&mut bytes);
    }
    if let Ok(mut manifest) = Manifest::decode(&bytes) {
        if flags & SEAL_SEGMENTS != 0 {
            for entry in &manifest.segments {
                let seed = Seed {
                    store: manifest.store,
                    segment: entry.number,
                };
                if let Some(bytes) = files.get_mut(&files::segment(entry.number)) {
                    exercise::seal_segment_of(bytes, &seed, entry.first_revision);
                }
            }
        }
        if flags & LINK != 0 {
            for part in manifest.resources.iter_mut().flat_map(|resource| &mut resource.parts) {
                let Some(bytes) = files.get(&files::part(part.file)) else {
                    continue;
                };
                part.bytes = bytes.len() as u64;
                if let Ok(shelf) = Shelf::open(bytes) {
                    part.header_crc = shelf.header_crc();
                }
            }
            bytes = manifest.encode().expect("it was decoded");
        }
    }
    files.insert(files::MANIFEST.into(), bytes);
}

fn run(disk: &SimDisk, files: &BTreeMap<String, Vec<u8>>) {
    let is_failed = Arc::new(AtomicBool::new(false));
    let store = match open(disk, options(&is_failed)) {
        Ok(store) => store,
        Err(OpenError::Damaged(_) | OpenError::NewerFormat { .. }) => {
            // The end of the log may have been written again, as it was.
            assert!(
                disk.files().iter().map(|(name, _)| name).eq(files.keys()),
                "no file comes or goes"
            );
            for (name, bytes) in files {
                assert_eq!(
                    &written::file(disk, name),
                    bytes,
                    "{name} of a refused directory is not changed"
                );
            }
            return;
        }
        Err(_) => return,
    };
    let mut before = shown(&store);
    if shows_doubles(&store) {
        return;
    }
    store.scrub();
    store.maintain(true);
    let object = objects().swap_remove(0);
    let changed = put(&store, object.resource, &object.value);
    if let Ok(written) = &changed {
        let key = written::key_of(object.resource, &object.value);
        let found = store
            .view()
            .get(&object.resource.storage, &key)
            .expect("it was just written");
        assert_eq!(found.map(|found| found.revision()), Some(written.revision));
    }
    let after = shown_again(&store);
    if store.stats().mended_objects == 0 {
        assert_eq!(after, before, "upkeep and another object change nothing that is shown");
    }
    // What was mended from the log is what the log says, and not what the shelf showed.
    before = after;
    store.close();
    assert!(!is_failed.load(Ordering::SeqCst), "the disk did not fail");
    drop(store);

    let disk = disk.after_kill();
    let store = open(&disk, options(&is_failed)).expect("what was closed in order opens again");
    assert_eq!(
        shown_again(&store),
        before,
        "another start changes nothing that is shown"
    );
    if let Ok(written) = changed {
        assert!(store.view().revision() >= written.revision);
    }
}

/// Every object that can be read, by resource and key, with its revision and JSON; and all errors met, by their resource.
/// Whoever reads meets either the same object again, or an error.
type Shown = BTreeMap<String, BTreeMap<String, (u64, Vec<u8>)>>;

/// Whether a list shows two objects of one key: a log that creates what a shelf has (see docs/fuzzing.md). Which of the two
/// is shelved later is not promised.
fn shows_doubles(store: &Arc<Store>) -> bool {
    let view = store.view();
    view.resources().any(|resource| {
        let objects = list(&view, resource, Range::default(), &Selection::all()).unwrap_or_default();
        !objects.is_sorted_by(|a, b| a.key() < b.key())
    })
}

/// What the store shows to readers of all kinds.
fn shown(store: &Arc<Store>) -> Shown {
    let view = store.view();
    let resources: Vec<String> = view.resources().map(str::to_owned).collect();
    for resource in &resources {
        look(store, &view, resource);
    }
    shown_again(store)
}

/// What lists show, without the object that [`run`] writes, resources with damaged places left out.
fn shown_again(store: &Arc<Store>) -> Shown {
    let view = store.view();
    let resources: Vec<String> = view.resources().map(str::to_owned).collect();
    let mut shown = Shown::new();
    for resource in resources {
        let Some(objects) = list(&view, &resource, Range::default(), &Selection::all()) else {
            continue;
        };
        let mut all = BTreeMap::new();
        for object in objects {
            if object.key() == "default/settings" {
                continue;
            }
            if let Ok(json) = object.json() {
                all.insert(object.key().to_owned(), (object.revision(), json.to_vec()));
            }
        }
        if !all.is_empty() {
            shown.insert(resource, all);
        }
    }
    shown
}

/// All objects of a list in its order; `None` when it met a damaged place.
fn list(view: &Arc<View>, resource: &str, range: Range, selection: &Selection) -> Option<Vec<Object>> {
    let mut listing = view.list(resource, range, selection);
    let mut objects = Vec::new();
    loop {
        match listing.next(7) {
            Ok(None) => break,
            Ok(Some(run)) => {
                if let Run::Shelved(run) = &run {
                    let _ = run.json().map(|json| assert_eq!(json.len(), run.json_len()));
                    let _ = run
                        .rows(run_layout(resource))
                        .map(|rows| rows.map(|rows| rows.bytes().len()));
                    let _ = std::hint::black_box(run.row_holes().count());
                    for object in run.row_objects().into_iter().flatten() {
                        let _ = object.map(|object| object.bytes().len());
                    }
                }
                objects.extend(run.objects());
            }
            Err(_) => return None,
        }
    }
    let keys: Vec<&str> = objects.iter().map(Object::key).collect();
    // A log that creates what a shelf has, under right checksums, shows both: see docs/fuzzing.md.
    assert!(keys.is_sorted(), "in list order: {keys:?}");
    Some(objects)
}

fn run_layout(resource: &str) -> u32 {
    flatkube::resources::layout(resource)
}

/// Reads a resource in every way there is.
fn look(store: &Arc<Store>, view: &Arc<View>, resource: &str) {
    let _ = view.count(resource, None);
    let _ = view.count(resource, Some("default"));
    let mut text = String::new();
    if let Some(objects) = list(view, resource, Range::default(), &Selection::all()) {
        for object in &objects {
            look_at(object, &mut text);
            // A posting or an entry can be wrong under a right checksum; the object that is found is the one asked for.
            if let Ok(Some(found)) = view.get(resource, object.key()) {
                assert_eq!(found.key(), object.key());
            }
        }
        if let Some(middle) = objects.get(objects.len() / 2) {
            let after = middle.key().to_owned();
            let range = Range {
                namespace: None,
                after: Some(after.clone()),
            };
            for object in list(view, resource, range, &Selection::all()).unwrap_or_default() {
                assert!(object.key() > after.as_str());
            }
        }
    }
    let range = || Range {
        namespace: Some("default".into()),
        after: None,
    };
    for requirement in [
        Requirement::LabelIn {
            name: "app".into(),
            values: vec!["web".into(), String::new()],
        },
        Requirement::LabelExists("number".into()),
        Requirement::LabelAbsent("app".into()),
        Requirement::FieldIs {
            name: "spec.nodeName".into(),
            value: "node-1".into(),
        },
        Requirement::Name {
            value: "web-0".into(),
            is: true,
        },
    ] {
        let selection = Selection {
            requirements: vec![requirement],
        };
        for object in list(view, resource, range(), &selection).unwrap_or_default() {
            assert!(object.key().starts_with("default/"));
            // Postings that vouch for a whole run are believed: under right checksums they are those of the engine.
            let _ = selection.matches(&object);
        }
    }
    let current = view.revision();
    for after in [0, current / 2, current.saturating_sub(3), current] {
        let Ok(mut follower) = store.follow(resource, None, after) else {
            continue;
        };
        let mut last = after;
        while let Ok(Some(event)) = follower.next() {
            assert!(event.revision > last, "events come once and in order");
            last = event.revision;
            look_at(&event.object, &mut text);
            if let Some(previous) = &event.previous {
                look_at(previous, &mut text);
            }
        }
        if let Ok(past) = store.view_at(resource, after) {
            for object in list(&past, resource, Range::default(), &Selection::all()).unwrap_or_default() {
                look_at(&object, &mut text);
            }
        }
    }
    std::hint::black_box(text.len());
}

fn look_at(object: &Object, text: &mut String) {
    let _ = write!(text, "{}{:?}{}", object.key(), object.namespace(), object.name());
    let _ = object.json_bytes().map(|json| text.len() + json.len());
    let _ = object
        .json_around_revision()
        .map(|(before, after)| before.len() + after.len());
    let _ = object.metadata().map(<[u8]>::len);
    let _ = object.sidecar_bytes().map(exercise::sidecar);
    if let Ok(sidecar) = object.sidecar() {
        let mut row = Vec::new();
        flatkube::resources::table::write_row(sidecar, written::NOW_S, object.revision(), &mut row);
        assert!(row.len() <= flatkube::resources::table::row_len_max(sidecar));
    }
}

/// A sound directory as an input of [`data_directory`]: `sealed` lets its checksums be made again.
pub fn directory_seed(name: &str) -> Vec<u8> {
    let disk = SimDisk::new();
    let is_failed = Arc::new(AtomicBool::new(false));
    let disk = match name {
        "small" => {
            let store = open(&disk, options(&is_failed)).expect("a new store");
            let objects = objects();
            for written::Object { resource, value } in [&objects[0], &objects[5]] {
                let mut value = value.clone();
                if let Some(metadata) = value["metadata"].as_object_mut() {
                    metadata.remove("managedFields");
                }
                put(&store, resource, &value).expect("room");
                if resource.plural == "configmaps" {
                    store.maintain(true);
                }
            }
            let killed = disk.after_kill();
            drop(store);
            killed
        }
        "new" => {
            open(&disk, options(&is_failed)).expect("a new store").close();
            disk
        }
        "killed" => {
            let store = written::story(&disk, options(&is_failed));
            let killed = disk.after_kill();
            drop(store);
            killed
        }
        "shelved" => {
            let store = written::story(&disk, options(&is_failed));
            store.maintain(true);
            store.close();
            disk
        }
        _ => {
            written::story(&disk, options(&is_failed)).close();
            disk
        }
    };
    let mut seed = vec![SEAL_MANIFEST | SEAL_SEGMENTS | SEAL_SHELVES | LINK];
    for (name, _) in disk.files() {
        let bytes = written::file(&disk, &name);
        let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let number = name
            .rsplit('-')
            .next()
            .and_then(|number| number.parse::<u8>().ok())
            .unwrap_or(0);
        let Some(sort) = (0..8).find(|&sort| name_of(sort, number.into()) == name) else {
            continue;
        };
        // The zeroes at the end are counted in sixteens.
        let end = bytes.len() - (bytes.len() - end) / 16 * 16;
        seed.extend([sort, number]);
        seed.extend((((bytes.len() - end) / 16) as u16).to_le_bytes());
        seed.extend((end as u16).to_le_bytes());
        seed.extend(&bytes[..end]);
    }
    seed
}
