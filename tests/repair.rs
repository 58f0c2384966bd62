//! Repair of directories with random damage: what is not named as lost is there, byte for byte; what is named lost was damaged.

mod store_toy;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use flatkube::store::disk::Disk;
use flatkube::store::disk::sim::SimDisk;
use flatkube::store::repair::{Diagnosis, Loss, RepairError, examine};
use flatkube::store::{ArchiveError, Archiver, HistoryError, Options, Precondition, Selection, Store};
use flatkube_format::frame::{Kind, Seed};
use flatkube_format::manifest::Manifest;
use flatkube_format::segment;
use store_toy::{Toy, delete, options, put, runtime};

const RESOURCES: [&str; 3] = ["configmaps", "nodes", "pods"];

/// The toy, whose objects' values begin with their keys.
struct Named;

impl Archiver for Named {
    fn layout(&self, resource: &str) -> u32 {
        Toy.layout(resource)
    }

    fn archive(&self, resource: &str, key: &str, json: &[u8]) -> Result<Vec<u8>, ArchiveError> {
        Toy.archive(resource, key, json)
    }

    fn is_object(&self, key: &str, revision: u64, json: &[u8]) -> bool {
        let head = format!(r#"{{"metadata":{{"resourceVersion":"{revision}"}},"value":"{key}="#);
        json.starts_with(head.as_bytes())
            && json.ends_with(b"\"}")
            && json.iter().filter(|&&byte| byte == b'}').count() == 2
    }
}

/// One write that was acknowledged.
#[derive(Clone, Debug)]
struct Made {
    resource: &'static str,
    key: String,
    /// `None`: a deletion.
    json: Option<String>,
}

type Objects = BTreeMap<(String, String), (u64, String)>;

/// A closed store and all that was written to it.
struct Scene {
    disk: SimDisk,
    made: BTreeMap<u64, Made>,
    options: Options,
    /// The last server was killed: what is at the end of the log may pass for a write that was never acknowledged.
    was_killed: bool,
}

impl Scene {
    fn new(random: &mut Rng) -> Scene {
        let mut options = options();
        if random.bool() {
            options.history_age = Duration::ZERO;
            options.history_bytes = random.u64(0..40_000);
            options.history_bytes_min = 0;
        }
        let mut scene = Scene {
            disk: SimDisk::new(),
            made: BTreeMap::new(),
            options,
            was_killed: random.u8(0..4) == 0,
        };
        let runtime = runtime();
        let mut starts = random.u32(1..4);
        while starts > 0 {
            starts -= 1;
            let store = scene.open();
            let mut live: BTreeSet<(usize, String)> = store_keys(&scene.expected());
            for _ in 0..random.u32(0..120) {
                let index = random.usize(0..RESOURCES.len());
                let resource = RESOURCES[index];
                let key = format!("ns-{}/{}", random.u8(0..3), random.u8(0..20));
                let value = format!("{key}={}", "v".repeat(random.usize(0..200)));
                let is_delete = live.contains(&(index, key.clone())) && random.u8(0..4) == 0;
                let write = if is_delete {
                    live.remove(&(index, key.clone()));
                    delete(resource, &key, &value, Precondition::Any)
                } else {
                    live.insert((index, key.clone()));
                    put(resource, &key, &value, Precondition::Any)
                };
                let written = runtime.block_on(store.write(write)).expect("it is written");
                let json = String::from_utf8(written.object.json().expect("whole").to_vec()).expect("text");
                let made = Made {
                    resource,
                    key,
                    json: (!is_delete).then_some(json),
                };
                scene.made.insert(written.revision, made);
                if random.u8(0..40) == 0 {
                    store.maintain(random.bool());
                }
            }
            if starts == 0 && scene.was_killed {
                scene.disk = scene.disk.after_kill();
            }
            store.close();
        }
        scene
    }

    fn open(&self) -> Arc<Store> {
        Store::open(Arc::new(self.disk.clone()), self.options.clone(), Arc::new(Named)).expect("it opens")
    }

    /// The objects that should be there, with their revisions.
    fn expected(&self) -> Objects {
        let mut objects = Objects::new();
        for (revision, made) in &self.made {
            let place = (made.resource.to_owned(), made.key.clone());
            match &made.json {
                Some(json) => drop(objects.insert(place, (*revision, json.clone()))),
                None => drop(objects.remove(&place)),
            }
        }
        objects
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        let file = self.disk.open(name).expect("it is there");
        let mut bytes = vec![0; file.len().expect("a length") as usize];
        file.read_at(&mut bytes, 0).expect("readable");
        bytes
    }

    fn manifest(&self) -> Manifest {
        Manifest::decode(&self.bytes("manifest")).expect("it is whole")
    }

    /// Where the record of each revision lies in which file.
    fn records(&self) -> BTreeMap<u64, (String, Range<usize>)> {
        let manifest = self.manifest();
        let mut records = BTreeMap::new();
        for entry in &manifest.segments {
            let name = format!("segment-{:010}", entry.number);
            let bytes = self.bytes(&name);
            let seed = Seed {
                store: manifest.store,
                segment: entry.number,
            };
            let mut visit = |record: flatkube_format::frame::Record<'_>| {
                if record.kind != Kind::Marker {
                    records.insert(record.revision, (name.clone(), record.offset..record.end()));
                }
            };
            match &entry.sealed {
                Some(sealed) => segment::scan_sealed(&bytes, sealed.end as usize, &seed, &mut visit),
                None => segment::scan(&bytes, &seed, &mut visit),
            }
            .expect("it is whole");
        }
        records
    }

    /// Damages files at random places that are in use; what was changed.
    fn damage(&self, random: &mut Rng, places: u32, may_hit: impl Fn(&str) -> bool) -> Vec<(String, Range<usize>)> {
        let files: Vec<(String, u64)> = self.disk.files().into_iter().collect();
        let files: Vec<_> = files
            .into_iter()
            .filter(|(name, _)| may_hit(name) && !(self.was_killed && name.starts_with("segment-")))
            .collect();
        let mut damage = Vec::new();
        for _ in 0..places {
            let Some((name, len)) = random.choice(&files) else {
                break;
            };
            let used = self
                .bytes(name)
                .iter()
                .rposition(|&byte| byte != 0)
                .map_or(0, |at| at + 1);
            if used == 0 || *len == 0 {
                continue;
            }
            let at = random.usize(0..used);
            let end = if random.bool() {
                at + 1
            } else {
                used.min(at + random.usize(1..600))
            };
            for at in at..end {
                let mask = if end - at == 1 {
                    1 << random.u8(0..8)
                } else {
                    random.u8(..)
                };
                self.disk.damage(name, at as u64, mask);
            }
            damage.push((name.clone(), at..end));
        }
        damage
    }

    fn examine(&self) -> Result<Diagnosis, RepairError> {
        examine(&self.disk, &Named, &|_| {})
    }

    fn repair(&self, diagnosis: &Diagnosis) {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        diagnosis
            .carry_out(&disk, &Named, self.options.part_bytes, &|_| {})
            .expect("it is carried out");
    }
}

fn store_keys(objects: &Objects) -> BTreeSet<(usize, String)> {
    let index = |resource: &str| {
        RESOURCES
            .iter()
            .position(|name| *name == resource)
            .expect("one of them")
    };
    objects
        .keys()
        .map(|(resource, key)| (index(resource), key.clone()))
        .collect()
}

fn objects(store: &Arc<Store>) -> Objects {
    let view = store.view();
    let mut objects = Objects::new();
    for resource in RESOURCES {
        let mut listing = view.list(resource, flatkube::store::Range::default(), &Selection::default());
        while let Some(run) = listing.next(9).expect("whole") {
            for object in run.objects() {
                object.sidecar().expect("whole");
                let json = String::from_utf8(object.json().expect("whole").to_vec()).expect("text");
                objects.insert(
                    (resource.to_owned(), object.key().to_owned()),
                    (object.revision(), json),
                );
            }
        }
    }
    objects
}

/// Whether a loss speaks of an object.
fn names(loss: &Loss, made: &BTreeMap<u64, Made>, (resource, key): &(String, String)) -> bool {
    match loss {
        Loss::Object {
            resource: lost,
            key: lost_key,
            ..
        } => (lost, lost_key) == (resource, key),
        Loss::Keys {
            resource: lost,
            first_key,
            last_key,
            ..
        } => lost == resource && first_key <= key && key <= last_key,
        Loss::Writes { from, to, .. } => made
            .range(from..=to)
            .any(|(_, made)| made.resource == *resource && made.key == *key),
    }
}

/// Repairs a damaged scene and holds the result against what was written. `None`: nothing could be done.
fn check(
    scene: &Scene,
    damage: &[(String, Range<usize>)],
    records: &BTreeMap<u64, (String, Range<usize>)>,
) -> Option<bool> {
    let expected = scene.expected();
    let last_revision = scene.made.keys().last().copied().unwrap_or(1);
    let diagnosis = match scene.examine() {
        Ok(diagnosis) => diagnosis,
        Err(RepairError::Hopeless(_)) => return None,
        Err(error) => panic!("{error}"),
    };
    let (losses, keeps_history) = (diagnosis.losses.clone(), diagnosis.keeps_history);

    // Nothing is named lost that was whole.
    let is_hit = |name: &str, range: &Range<usize>| {
        damage
            .iter()
            .any(|(hit, at)| hit == name && at.start < range.end && range.start < at.end)
    };
    for loss in &losses {
        match loss {
            Loss::Object { .. } | Loss::Keys { .. } => {
                assert!(
                    damage.iter().any(|(name, _)| name.starts_with("shelf-")),
                    "{loss} {damage:?}"
                );
            }
            Loss::Writes { from, to, .. } => {
                let is_tail = *to == u64::MAX && damage.iter().any(|(name, _)| name.starts_with("segment-"));
                assert!(is_tail || *to < u64::MAX, "no file was shortened: {loss}");
                let hit = records.range(from..=to).all(|(_, (name, range))| is_hit(name, range));
                assert!(hit, "{loss} was whole: {damage:?} {:?}", records.get(from));
                if let (true, Some(made)) = (from == to, scene.made.get(from)) {
                    // The next write of the object carries what this one wrote, and has taken its place.
                    let is_next = |(_, next): &(&u64, &Made)| next.resource == made.resource && next.key == made.key;
                    let next = scene.made.range(from + 1..).find(is_next);
                    let made_up_for = next
                        .filter(|(_, _)| made.json.is_some())
                        .and_then(|(next, _)| records.get(next));
                    let is_lost = made_up_for.is_none_or(|(name, range)| is_hit(name, range));
                    assert!(
                        is_lost,
                        "{loss} was overwritten by a write that is whole: {damage:?} {made_up_for:?}"
                    );
                }
            }
        }
    }
    assert!(keeps_history || !diagnosis.is_sound());

    scene.repair(&diagnosis);
    let again = scene.examine().expect("it is whole now");
    assert!(again.is_sound() && again.leftovers.is_empty(), "{:?}", again.damaged);
    drop(again);
    let store = scene.open();
    let found = objects(&store);
    for place in expected.keys().chain(found.keys()) {
        let (was, is) = (expected.get(place), found.get(place));
        if was == is {
            continue;
        }
        assert!(
            losses.iter().any(|loss| names(loss, &scene.made, place)),
            "{place:?} was {was:?}, is {is:?}, and was not named: {losses:?} {damage:?}"
        );
        if let Some((revision, json)) = is {
            let made = &scene.made[revision];
            let is_own = (made.resource, &made.key) == (place.0.as_str(), &place.1);
            assert!(is_own && made.json.as_ref() == Some(json), "{place:?} was never {json}");
        }
    }
    for loss in &losses {
        if let Loss::Object { resource, key, .. } = loss {
            assert!(!found.contains_key(&(resource.clone(), key.clone())), "{loss} is there");
        }
    }
    let revision = store.view().revision();
    if keeps_history {
        assert_eq!(revision, last_revision, "nothing is lost, nothing happens");
    } else {
        assert!(revision > last_revision + (1 << 31));
        for resource in RESOURCES {
            let past = store.view_at(resource, last_revision);
            assert!(
                matches!(past, Err(HistoryError::TooOld { .. })),
                "no client goes on from before"
            );
        }
    }
    store.scrub();
    assert_eq!(store.stats().damaged, []);
    // What was lost can be written again.
    let runtime = runtime();
    for (resource, key) in expected.keys().chain([&("pods".to_owned(), "ns-0/new".to_owned())]) {
        let write = put(resource, key, &format!("{key}=again"), Precondition::Any);
        let written = runtime.block_on(store.write(write)).expect("it is written");
        assert!(written.revision > revision);
    }
    store.maintain(true);
    store.close();
    drop(store);
    let store = scene.open();
    assert!(objects(&store).len() > expected.len());
    store.close();
    Some(keeps_history)
}

/// Repairs `count` scenes with damage in files that `may_hit` accepts: how many kept their history, how many did not, how many
/// were hopeless.
fn repair_many(seed: u64, count: u64, places: Range<u32>, may_hit: impl Fn(&str) -> bool) -> [u32; 3] {
    let mut outcomes = [0; 3];
    for seed in seed..seed + count {
        let mut random = Rng::with_seed(seed);
        let scene = Scene::new(&mut random);
        let records = scene.records();
        let places = random.u32(places.clone());
        let damage = scene.damage(&mut random, places, &may_hit);
        let check = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&scene, &damage, &records)));
        let outcome = match check.unwrap_or_else(|_| panic!("seed {seed}: {damage:?}")) {
            Some(true) => 0,
            Some(false) => 1,
            None => 2,
        };
        outcomes[outcome] += 1;
    }
    outcomes
}

fn count() -> u64 {
    std::env::var("REPAIR_SEEDS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(60)
}

#[test]
fn damaged_shelves_are_mended_from_the_log_or_what_is_lost_is_named() {
    let [kept, rebuilt, hopeless] = repair_many(1_000_000, count(), 1..4, |name| name.starts_with("shelf-"));
    assert!(kept > 0 && rebuilt > 0 && hopeless == 0, "{kept} {rebuilt} {hopeless}");
}

#[test]
fn a_damaged_log_gives_what_is_before_and_behind() {
    let [kept, rebuilt, hopeless] = repair_many(2_000_000, count(), 1..4, |name| name.starts_with("segment-"));
    assert!(kept > 0 && rebuilt > 0 && hopeless == 0, "{kept} {rebuilt} {hopeless}");
}

#[test]
fn a_damaged_manifest_is_put_right_or_made_anew() {
    let [kept, rebuilt, hopeless] = repair_many(3_000_000, count(), 1..3, |name| name == "manifest");
    assert!(kept > 0 && rebuilt > 0 && hopeless == 0, "{kept} {rebuilt} {hopeless}");
}

#[test]
fn damage_of_everything_at_once_is_repaired_or_refused() {
    let [kept, rebuilt, _] = repair_many(4_000_000, count(), 1..6, |_| true);
    assert!(kept > 0 && rebuilt > 0, "{kept} {rebuilt}");
}

#[test]
fn a_sound_directory_is_left_alone() {
    let scene = Scene::new(&mut Rng::with_seed(7));
    let before = scene.disk.files();
    let diagnosis = scene.examine().expect("it is whole");
    assert!(diagnosis.is_sound() && diagnosis.losses.is_empty());
    scene.repair(&diagnosis);
    assert_eq!(before, scene.disk.files());
}
