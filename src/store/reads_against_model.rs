//! The read side against a simple model: histories of writes, freezes, shelvings and rotations at random moments, and every
//! way of reading compared with a sorted map. Views that were taken early must answer as they did then.

use std::collections::BTreeMap;
use std::sync::Arc;

use flatkube_format::shelf::{PostingKind, posting_hash};
use proptest::prelude::*;

use super::fixture::{Fixture, object, owned};
use super::shelf_set::ShelfSet;
use super::{Listing, Range, Requirement, Run, Selection, View};

const RESOURCE: &str = "things";
/// `-` sorts before `/` and `0` behind it: neighbours of a namespace in the order of bytes.
const NAMESPACES: [&str; 4] = ["a", "a-b", "a0", "b"];
const NAMES: usize = 9;
const APPS: [&str; 3] = ["web", "db", ""];

#[derive(Clone, Debug, PartialEq)]
struct Thing {
    revision: u64,
    labels: BTreeMap<&'static str, String>,
    fields: BTreeMap<&'static str, String>,
    owners: &'static [&'static str],
    json: Vec<u8>,
}

type State = BTreeMap<String, Thing>;

#[derive(Clone, Debug)]
enum Step {
    Put {
        key: usize,
        app: usize,
        tier: usize,
        rank: i64,
        node: usize,
    },
    Delete {
        key: usize,
    },
    Freeze,
    /// Writes the frozen delta to a shelf, which is not used yet.
    Shelve {
        per_part: usize,
    },
    Install,
    Rotate,
    Remember,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let keys = NAMESPACES.len() * NAMES;
    let put = (0..keys, 0..APPS.len() + 1, 0..3usize, -2..6i64, 0..3usize).prop_map(|(key, app, tier, rank, node)| {
        Step::Put {
            key,
            app,
            tier,
            rank,
            node,
        }
    });
    let step = prop_oneof![
        12 => put,
        5 => (0..keys).prop_map(|key| Step::Delete { key }),
        1 => Just(Step::Freeze),
        2 => (1..7usize).prop_map(|per_part| Step::Shelve { per_part }),
        2 => Just(Step::Install),
        1 => Just(Step::Rotate),
        1 => Just(Step::Remember),
    ];
    prop::collection::vec(step, 1..160)
}

fn key_of(number: usize) -> String {
    format!("{}/n{}", NAMESPACES[number / NAMES], number % NAMES)
}

fn thing(step: &Step) -> (BTreeMap<&'static str, String>, BTreeMap<&'static str, String>) {
    let Step::Put {
        app, tier, rank, node, ..
    } = step
    else {
        unreachable!("only puts make things")
    };
    let mut labels = BTreeMap::new();
    if let Some(app) = APPS.get(*app) {
        labels.insert("app", (*app).to_owned());
    }
    if *tier > 0 {
        labels.insert("tier", format!("t{tier}"));
    }
    labels.insert(
        "rank",
        if *rank == 5 {
            "five".to_owned()
        } else {
            rank.to_string()
        },
    );
    let node = if *node == 0 {
        String::new()
    } else {
        format!("node-{node}")
    };
    let mut fields = BTreeMap::from([("spec.node", node)]);
    if *tier == 2 {
        fields.insert("status.phase", "Running".to_owned());
    }
    (labels, fields)
}

/// Owners of things on a node; some twice, some without a UID.
const OWNERS: [&[&str]; 3] = [&[], &["o1"], &["o2", "", "o1", "o2"]];

fn owners(step: &Step) -> &'static [&'static str] {
    let Step::Put { node, tier, .. } = step else {
        unreachable!("only puts make things")
    };
    OWNERS[(node + tier) % OWNERS.len()]
}

fn pairs<'a>(map: &'a BTreeMap<&'static str, String>) -> Vec<(&'a str, &'a str)> {
    map.iter().map(|(&name, value)| (name, value.as_str())).collect()
}

fn selections() -> Vec<Selection> {
    let texts = |values: &[&str]| values.iter().map(ToString::to_string).collect::<Vec<_>>();
    let is = |name: &str, values: &[&str]| Requirement::LabelIn {
        name: name.into(),
        values: texts(values),
    };
    let not = |name: &str, values: &[&str]| Requirement::LabelNotIn {
        name: name.into(),
        values: texts(values),
    };
    let field = |name: &str, value: &str| Requirement::FieldIs {
        name: name.into(),
        value: value.into(),
    };
    let field_not = |name: &str, value: &str| Requirement::FieldIsNot {
        name: name.into(),
        value: value.into(),
    };
    let name = |value: &str, is| Requirement::Name {
        value: value.into(),
        is,
    };
    let namespace = |value: &str, is| Requirement::Namespace {
        value: value.into(),
        is,
    };
    let all: Vec<Vec<Requirement>> = vec![
        vec![],
        vec![is("app", &["web"])],
        vec![is("app", &[""])],
        vec![is("app", &[])],
        vec![is("app", &["web", "db"])],
        vec![is("rank", &["1", "2", "3", "none"])],
        vec![is("app", &["web"]), is("tier", &["t1"])],
        vec![is("missing", &["x"])],
        vec![not("app", &["web"])],
        vec![not("app", &["web", "db", ""])],
        vec![Requirement::LabelExists("tier".into())],
        vec![Requirement::LabelAbsent("app".into())],
        vec![Requirement::LabelAbsent("app".into()), is("tier", &["t2"])],
        vec![Requirement::LabelAbove {
            name: "rank".into(),
            value: 1,
        }],
        vec![Requirement::LabelBelow {
            name: "rank".into(),
            value: 0,
        }],
        vec![field("spec.node", "node-1")],
        vec![field("spec.node", "")],
        vec![field_not("spec.node", "node-1")],
        vec![field("status.phase", "Running"), is("app", &["db"])],
        vec![field_not("status.phase", "Running")],
        vec![name("n3", true)],
        vec![name("n3", false), is("tier", &["t1"])],
        vec![namespace("a", true)],
        vec![namespace("a", true), name("n1", true)],
        vec![namespace("a", false)],
        vec![namespace("", true)],
        vec![Requirement::Owned],
        vec![Requirement::OwnedBy("o1".into())],
        vec![Requirement::OwnedBy("o2".into())],
        vec![Requirement::OwnedBy(String::new())],
        vec![Requirement::OwnedBy("o3".into())],
        vec![Requirement::OwnedBy("o2".into()), is("app", &["web", "db"])],
        vec![
            Requirement::OwnedBy("o1".into()),
            is("tier", &["t1"]),
            namespace("a", true),
        ],
    ];
    all.into_iter().map(|requirements| Selection { requirements }).collect()
}

/// The model's own idea of each operator.
fn holds(requirement: &Requirement, key: &str, thing: &Thing) -> bool {
    let (namespace, name) = key.split_once('/').unwrap();
    let label = |name: &str| thing.labels.get(name);
    let number = |name: &str| label(name).and_then(|value| value.parse::<i64>().ok());
    let field = |name: &str| thing.fields.get(name).cloned().unwrap_or_default();
    match requirement {
        Requirement::LabelIn { name, values } => label(name).is_some_and(|value| values.contains(value)),
        Requirement::LabelNotIn { name, values } => !label(name).is_some_and(|value| values.contains(value)),
        Requirement::LabelExists(name) => label(name).is_some(),
        Requirement::LabelAbsent(name) => label(name).is_none(),
        Requirement::LabelAbove { name, value } => number(name).is_some_and(|found| found > *value),
        Requirement::LabelBelow { name, value } => number(name).is_some_and(|found| found < *value),
        Requirement::FieldIs { name, value } => field(name) == *value,
        Requirement::FieldIsNot { name, value } => field(name) != *value,
        Requirement::Owned => !thing.owners.is_empty(),
        Requirement::OwnedBy(uid) => !uid.is_empty() && thing.owners.contains(&uid.as_str()),
        Requirement::Name { value, is } => (name == value) == *is,
        Requirement::Namespace { value, is } => (namespace == value) == *is,
    }
}

fn walk(
    mut listing: Listing,
    max: usize,
    state: &State,
    range: &Range,
    selection: &Selection,
) -> Vec<(String, u64, Vec<u8>)> {
    let mut found: Vec<(String, u64, Vec<u8>)> = Vec::new();
    // Requirements on the key narrow the range, and with it what is counted.
    let of_key = |one: &Requirement| matches!(one, Requirement::Name { .. } | Requirement::Namespace { .. });
    let counts = !selection.requirements.iter().any(of_key);
    loop {
        let last = found.last().map(|(key, ..)| key.clone());
        let after = |key: &str| last.as_deref().is_none_or(|last| key > last);
        let remaining = state.keys().filter(|key| in_range(key, range) && after(key)).count();
        if counts {
            assert_eq!(
                listing.remaining(),
                remaining as u64,
                "remaining after {last:?} of {range:?}"
            );
        }
        let Some(run) = listing.next(max).unwrap() else { break };
        assert!((1..=max).contains(&run.len()));
        let before = found.len();
        for object in run.objects() {
            found.push((
                object.key().to_owned(),
                object.revision(),
                object.json().unwrap().to_vec(),
            ));
        }
        assert_eq!(found.len() - before, run.len());
        assert_eq!(found.last().map(|(key, ..)| key.as_str()), Some(run.last_key()));
        if let Run::Shelved(run) = &run {
            let joined = found[before..]
                .iter()
                .map(|(_, _, json)| json.as_slice())
                .collect::<Vec<_>>()
                .join(&b","[..]);
            assert_eq!(run.json().unwrap(), joined);
            assert_eq!(run.json_len(), joined.len());
        }
    }
    assert!(listing.next(max).unwrap().is_none(), "the end stays the end");
    found
}

fn in_range(key: &str, range: &Range) -> bool {
    let namespace = key.split_once('/').unwrap().0;
    range.namespace.as_deref().is_none_or(|wanted| wanted == namespace)
        && range.after.as_deref().is_none_or(|after| key > after)
}

/// Compares every way of reading a view with the model.
fn check(view: &View, state: &State, selections: &[Selection]) {
    for number in 0..NAMESPACES.len() * NAMES {
        let key = key_of(number);
        let object = view.get(RESOURCE, &key).unwrap();
        let expected = state.get(&key);
        assert_eq!(
            object.as_ref().map(super::Object::revision),
            expected.map(|thing| thing.revision),
            "{key}"
        );
        let Some(object) = object else { continue };
        let expected = &expected.unwrap().json;
        assert_eq!(object.json().unwrap(), expected);
        assert_eq!(object.json_bytes().unwrap(), expected);
        assert_eq!(object.key(), key);
        assert_eq!(
            (object.namespace(), object.name()),
            key.split_once('/').map(|(a, b)| (Some(a), b)).unwrap()
        );
        let (before, behind) = object.json_around_revision().unwrap();
        assert_eq!(
            [before, object.revision().to_string().as_bytes(), behind].concat(),
            *expected
        );
        let metadata = object.metadata().unwrap();
        assert!(metadata.starts_with(b"{\"name\"") && metadata.ends_with(b"\"}"));
    }
    assert_eq!(view.count(RESOURCE, None), state.len() as u64);
    let view = Arc::new(view.clone());
    for namespace in [None, Some("a"), Some("a-b"), Some("b"), Some("none")] {
        let count = state
            .keys()
            .filter(|key| namespace.is_none_or(|wanted| key.split_once('/').unwrap().0 == wanted));
        if let Some(namespace) = namespace {
            assert_eq!(view.count(RESOURCE, Some(namespace)), count.count() as u64);
        }
        for after in [None, Some("a/n4"), Some("a-b/zz"), Some("zz")] {
            let range = Range {
                namespace: namespace.map(Into::into),
                after: after.map(Into::into),
            };
            for (number, selection) in selections.iter().enumerate() {
                let expected: Vec<_> = state
                    .iter()
                    .filter(|(key, _)| in_range(key, &range))
                    .filter(|(key, thing)| selection.requirements.iter().all(|one| holds(one, key, thing)))
                    .map(|(key, thing)| (key.clone(), thing.revision, thing.json.clone()))
                    .collect();
                let listing = view.list(RESOURCE, range.clone(), selection);
                let found = walk(listing, [usize::MAX, 1, 3][number % 3], state, &range, selection);
                assert_eq!(found, expected, "{range:?} {selection:?}");
            }
        }
    }
}

fn run(steps: &[Step]) {
    let mut fixture = Fixture::new(4096);
    let mut state = State::new();
    let mut history = vec![state.clone()];
    let mut remembered: Vec<(View, State)> = Vec::new();
    let mut frozen_at = None;
    let mut shelved: Option<ShelfSet> = None;
    for step in steps {
        match step {
            Step::Put { key, .. } => {
                let key = key_of(*key);
                let (labels, fields) = thing(step);
                let owners = owners(step);
                let prepared = owned(&key, &pairs(&labels), &pairs(&fields), owners, key.len());
                let revision = fixture.put(RESOURCE, &key, &prepared);
                let [before, behind] = prepared.halves().unwrap();
                let json = [before, revision.to_string().as_bytes(), behind].concat();
                state.insert(
                    key,
                    Thing {
                        revision,
                        labels,
                        fields,
                        owners,
                        json,
                    },
                );
                history.push(state.clone());
            }
            Step::Delete { key } => {
                if state.remove(&key_of(*key)).is_some() {
                    fixture.delete(RESOURCE, &key_of(*key));
                    history.push(state.clone());
                }
            }
            Step::Freeze => {
                if frozen_at.is_none() {
                    frozen_at = Some(fixture.view.revision);
                    fixture.view.resource_mut(RESOURCE).freeze();
                }
            }
            Step::Shelve { per_part } => {
                if frozen_at.is_some() && shelved.is_none() {
                    let mut set = fixture.shelve(RESOURCE, *per_part);
                    let view = &fixture.view;
                    set.shadowed_by(&view.log, &view.resource(RESOURCE).unwrap().active);
                    shelved = Some(set);
                }
            }
            Step::Install => {
                if let Some(set) = shelved.take() {
                    let log = fixture.view.log.clone();
                    let revision = frozen_at.take().unwrap();
                    fixture.view.resource_mut(RESOURCE).install(&log, set, revision);
                }
            }
            Step::Rotate => fixture.rotate(),
            Step::Remember => remembered.push((fixture.view.clone(), state.clone())),
        }
    }
    let selections = selections();
    check(&fixture.view, &state, &selections);
    for (view, state) in remembered.iter().take(2) {
        check(view, state, &selections);
    }
    let newest = history.len() - 1;
    for revision in [0, newest / 2, newest.saturating_sub(1), newest] {
        let past = fixture.past(RESOURCE, revision as u64);
        assert_eq!(past.revision(), revision as u64);
        check(&past, &history[revision], &selections);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_read_answers_as_a_sorted_map_would(steps in steps()) {
        run(&steps);
    }
}

#[test]
fn a_list_of_untouched_shelved_objects_is_one_run_and_a_write_cuts_it() {
    let mut fixture = Fixture::new(1 << 20);
    for number in 0..100 {
        let key = format!("a/n{number:02}");
        fixture.put(RESOURCE, &key, &object(&key, &[("app", "web")], &[], 10));
    }
    fixture.shelve_all(RESOURCE, 1000);
    let lengths = |view: &View, selection: &Selection| {
        let mut listing = Arc::new(view.clone()).list(RESOURCE, Range::default(), selection);
        std::iter::from_fn(|| listing.next(usize::MAX).unwrap())
            .map(|run| run.len())
            .collect::<Vec<_>>()
    };
    let web = Selection {
        requirements: vec![Requirement::LabelIn {
            name: "app".into(),
            values: vec!["web".into()],
        }],
    };
    assert_eq!(lengths(&fixture.view, &Selection::all()), [100]);
    assert_eq!(lengths(&fixture.view, &web), [100]);
    fixture.put(RESOURCE, "a/n40", &object("a/n40", &[], &[], 10));
    fixture.delete(RESOURCE, "a/n60");
    fixture.put(RESOURCE, "a/n80x", &object("a/n80x", &[], &[], 10));
    assert_eq!(lengths(&fixture.view, &Selection::all()), [40, 1, 19, 20, 1, 19]);
    assert_eq!(lengths(&fixture.view, &web), [40, 19, 39]);
}

#[test]
fn postings_that_are_longer_than_the_window_are_walked_to_their_end() {
    let mut fixture = Fixture::new(32 << 20);
    let web = |number: usize| number.is_multiple_of(3) || number.is_multiple_of(5);
    for number in 0..9_000usize {
        let key = format!("a/n{number:05}");
        let app = if number.is_multiple_of(3) {
            "three"
        } else if number.is_multiple_of(5) {
            "five"
        } else {
            "none"
        };
        fixture.put(RESOURCE, &key, &object(&key, &[("app", app)], &[], 0));
    }
    fixture.shelve_all(RESOURCE, 7_000);
    let values = vec!["three".to_owned(), "five".to_owned()];
    let selection = Selection {
        requirements: vec![Requirement::LabelIn {
            name: "app".into(),
            values,
        }],
    };
    let mut listing = Arc::new(fixture.view.clone()).list(RESOURCE, Range::default(), &selection);
    let mut found = Vec::new();
    while let Some(run) = listing.next(7).unwrap() {
        found.extend(run.objects().map(|object| object.key().to_owned()));
    }
    let expected: Vec<_> = (0..9_000)
        .filter(|&number| web(number))
        .map(|number| format!("a/n{number:05}"))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn a_flipped_bit_in_a_shelf_is_found_when_it_is_touched_and_not_before() {
    let mut fixture = Fixture::new(8 << 20);
    for number in 0..300 {
        let key = format!("a/n{number:03}");
        fixture.put(RESOURCE, &key, &object(&key, &[], &[], 1000));
    }
    fixture.shelve_all(RESOURCE, 1000);
    let resource = fixture.view.resource(RESOURCE).unwrap();
    let part = &resource.shelf.parts()[0];
    let mut bytes = part.map().bytes().to_vec();
    let json = part.entry(200).json;
    bytes[json.start + 20] ^= 4;
    let damaged = super::Part::open(part.manifest_entry().clone(), Arc::new(super::fixture::map_of(&bytes))).unwrap();
    let log = fixture.view.log.clone();
    fixture
        .view
        .resource_mut(RESOURCE)
        .install(&log, ShelfSet::from_parts(vec![Arc::new(damaged)]), 300);
    let first = fixture.view.get(RESOURCE, "a/n000").unwrap().unwrap();
    first.json().unwrap();
    let hit = fixture.view.get(RESOURCE, "a/n200").unwrap().unwrap();
    let error = hit.json().unwrap_err();
    assert_eq!(error.file, "part");
    assert!(
        json.contains(&(error.offset as usize)) || error.offset < json.start as u64,
        "{error}"
    );
    let mut listing = Arc::new(fixture.view.clone()).list(RESOURCE, Range::default(), &Selection::all());
    let Some(Run::Shelved(run)) = listing.next(usize::MAX).unwrap() else {
        panic!("one shelved run")
    };
    run.json().unwrap_err();
}

/// Two labels of one posting hash, made as somebody would who knows the function: a value of eight bytes that cancels the
/// state after the name.
fn labels_of_one_hash() -> [(String, String); 2] {
    let fold = |word: u64| {
        let product = u128::from(word ^ 0x7f4a_7c15_9e37_79b9) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        product as u64 ^ (product >> 64) as u64
    };
    let absorb = |state: u64, text: &str| {
        let words = text.as_bytes().chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        words.fold(fold(state ^ text.len() as u64), |state, word| fold(state ^ word))
    };
    let mut found = (0..).filter_map(|number: u32| {
        let name = format!("label-{number}");
        let before_value = fold(absorb(PostingKind::Label as u64, &name) ^ 8);
        let value = (before_value ^ 0x7f4a_7c15_9e37_79b9).to_le_bytes();
        Some((name, String::from_utf8(value.to_vec()).ok()?))
    });
    [found.next().unwrap(), found.next().unwrap()]
}

#[test]
fn labels_that_share_a_hash_are_told_apart() {
    let [sought, other] = labels_of_one_hash();
    let hash = |(name, value): &(String, String)| posting_hash(PostingKind::Label, name, value);
    assert_eq!(
        hash(&sought),
        hash(&other),
        "the function changed: change the attack, too"
    );
    let mut fixture = Fixture::new(1 << 20);
    // The first part has both, the second the other one alone.
    for number in 0..20 {
        let key = format!("a/n{number:02}");
        let (name, value) = if number < 10 && number % 2 == 0 {
            &sought
        } else {
            &other
        };
        fixture.put(RESOURCE, &key, &object(&key, &[(name, value)], &[], 0));
    }
    let (name, value) = sought;
    let selection = Selection {
        requirements: vec![Requirement::LabelIn {
            name,
            values: vec![value],
        }],
    };
    let found = |fixture: &Fixture| {
        let mut listing = Arc::new(fixture.view.clone()).list(RESOURCE, Range::default(), &selection);
        let runs = std::iter::from_fn(|| listing.next(3).unwrap());
        runs.map(|run| run.last_key().to_owned()).collect::<Vec<_>>()
    };
    let expected = ["a/n00", "a/n02", "a/n04", "a/n06", "a/n08"];
    assert_eq!(found(&fixture), expected, "in the delta");
    fixture.shelve_all(RESOURCE, 10);
    assert_eq!(fixture.view.resource(RESOURCE).unwrap().shelf.parts().len(), 2);
    assert_eq!(found(&fixture), expected, "on the shelf");
}

/// A repair may leave out records, and a hostile log says what it likes.
#[test]
fn a_log_that_does_not_follow_from_its_shelves_shows_nothing_twice() {
    let mut fixture = Fixture::new(1 << 16);
    for key in ["a/gone", "a/x"] {
        fixture.put(RESOURCE, key, &object(key, &[], &[], 0));
    }
    fixture.delete(RESOURCE, "a/gone");
    fixture.shelve_all(RESOURCE, 4);
    let log = fixture.view.log.clone();
    // The creation of what is on the shelf, and the deletion of what is not.
    for number in [1, 2] {
        let (_, _, at) = fixture.records[number];
        fixture.view.resource_mut(RESOURCE).replay(&log, at).unwrap();
    }
    let view = Arc::new(fixture.view.clone());
    assert_eq!(view.count(RESOURCE, None), 1);
    let range = Range {
        namespace: None,
        after: None,
    };
    let mut listing = Listing::new(&view, RESOURCE, range, &Selection::all());
    let mut keys = Vec::new();
    while let Some(run) = listing.next(usize::MAX).unwrap() {
        keys.extend(run.objects().map(|object| object.key().to_owned()));
    }
    assert_eq!(keys, ["a/x"]);
}
