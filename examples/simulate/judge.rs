//! The invariants: what is read is compared with the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use flatkube::store::{Damaged, Event, EventKind, Object, Range, Requirement, Selection, View};
use flatkube_format::sidecar::ArchivedSidecar;

use crate::chance::Chance;
use crate::model::{Body, Model, RESOURCES, State};

/// Whether the key lies in the namespace, or in any.
pub(crate) fn is_in(key: &str, namespace: Option<&str>) -> bool {
    namespace.is_none_or(|namespace| key.split_once('/').is_some_and(|(of, _)| of == namespace))
}

/// An object is byte for byte what was written, and its sidecar says what a fresh parse of the JSON says.
fn object(model: &Model, index: usize, found: &Object) -> Result<(), Damaged> {
    let done = model.done(index);
    assert_eq!(found.key(), done.key);
    assert_eq!(found.revision(), done.revision, "revision of {}", done.key);
    let json = found.json()?;
    let expected = done.body.json(&done.key, done.revision);
    assert!(
        json == expected.as_bytes(),
        "{} at {} is {}",
        done.key,
        done.revision,
        String::from_utf8_lossy(json)
    );
    sidecar(found.sidecar()?, json);
    Ok(())
}

fn sidecar(sidecar: &ArchivedSidecar, json: &[u8]) {
    let parsed: serde_json::Value = serde_json::from_slice(json).expect("JSON");
    let labels: BTreeMap<&str, &str> = parsed["metadata"]["labels"]
        .as_object()
        .expect("labels")
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str().expect("text")))
        .collect();
    let archived: BTreeMap<&str, &str> = sidecar
        .labels
        .iter()
        .map(|pair| (pair.name.as_str(), pair.value.as_str()))
        .collect();
    assert_eq!(archived, labels, "labels of the sidecar and of the JSON");
    assert_eq!(sidecar.field("spec.node"), parsed["spec"]["node"].as_str());
    assert_eq!(Some(sidecar.uid.as_str()), parsed["metadata"]["uid"].as_str());
}

/// Everything of a view is the model's state at its revision. `Err` only for what the store itself calls damaged.
pub(crate) fn view(model: &Model, view: &Arc<View>, only: Option<usize>, chance: &mut Chance) -> Result<(), Damaged> {
    for resource in (0..RESOURCES.len()).filter(|resource| only.is_none_or(|only| only == *resource)) {
        let state = model.at(resource, view.revision());
        let all = Selection::default();
        list(model, view, resource, Range::default(), &all, &state, chance)?;
        assert_eq!(view.count(RESOURCES[resource], None), state.len() as u64);

        let namespace = chance.namespace();
        let range = Range {
            namespace: namespace.map(str::to_owned),
            after: state.keys().nth(chance.below(state.len() + 1)).cloned(),
        };
        let (selection, selects) = chance_selection(chance);
        let selected: State = state
            .iter()
            .filter(|(key, _)| is_in(key, namespace))
            .filter(|(key, _)| range.after.as_ref().is_none_or(|after| *key > after))
            .filter(|(_, index)| selects(&model.done(**index).body))
            .map(|(key, index)| (key.clone(), *index))
            .collect();
        list(model, view, resource, range, &selection, &selected, chance)?;

        for key in [chance.key(), "none/none".to_owned()] {
            let found = view.get(RESOURCES[resource], &key)?;
            assert_eq!(found.is_some(), state.contains_key(&key), "get {key}");
            if let (Some(found), Some(index)) = (found, state.get(&key)) {
                object(model, *index, &found)?;
            }
        }
    }
    Ok(())
}

fn list(
    model: &Model,
    view: &Arc<View>,
    resource: usize,
    range: Range,
    selection: &Selection,
    expected: &State,
    chance: &mut Chance,
) -> Result<(), Damaged> {
    let what = format!(
        "{} in {range:?} by {selection:?} at {}",
        RESOURCES[resource],
        view.revision()
    );
    let mut listing = view.list(RESOURCES[resource], range, selection);
    let mut expected = expected.iter();
    while let Some(run) = listing.next(1 + chance.below(9))? {
        for found in run.objects() {
            let Some((key, index)) = expected.next() else {
                panic!("{} too much in {what}", found.key());
            };
            assert_eq!(found.key(), key, "{what}");
            object(model, *index, &found)?;
        }
    }
    assert_eq!(expected.next(), None, "missing in {what}");
    Ok(())
}

type Selects = Box<dyn Fn(&Body) -> bool>;

/// Requirements on labels and fields, and what they mean.
fn chance_selection(chance: &mut Chance) -> (Selection, Selects) {
    let (name, value, other) = (chance.label_name(), chance.label_value(), chance.label_value());
    let label = move |body: &Body| {
        let mut labels = body.labels.iter();
        labels.find(|(of, _)| *of == name).map(|(_, value)| value.clone())
    };
    let node = chance.node();
    let owned = name.to_owned();
    let (requirement, selects): (Requirement, Selects) = match chance.below(6) {
        0 => (
            Requirement::LabelIn {
                name: owned,
                values: vec![value.clone()],
            },
            Box::new(move |body| label(body).as_ref() == Some(&value)),
        ),
        1 => (
            Requirement::LabelIn {
                name: owned,
                values: vec![value.clone(), other.clone()],
            },
            Box::new(move |body| label(body).is_some_and(|label| label == value || label == other)),
        ),
        2 => (
            Requirement::LabelNotIn {
                name: owned,
                values: vec![value.clone()],
            },
            Box::new(move |body| label(body).as_ref() != Some(&value)),
        ),
        3 => (
            Requirement::LabelExists(owned),
            Box::new(move |body| label(body).is_some()),
        ),
        4 => (
            Requirement::LabelAbsent(owned),
            Box::new(move |body| label(body).is_none()),
        ),
        _ => (
            Requirement::FieldIs {
                name: "spec.node".into(),
                value: node.clone(),
            },
            Box::new(move |body| body.node == node),
        ),
    };
    let selection = Selection {
        requirements: vec![requirement],
    };
    (selection, selects)
}

/// An event tells of the write that the model made.
pub(crate) fn event(model: &Model, index: usize, event: &Event) -> Result<(), Damaged> {
    let done = model.done(index);
    assert_eq!(
        event.revision, done.revision,
        "the next event of {}",
        RESOURCES[done.resource]
    );
    let kind = match (done.deleted, done.previous) {
        (true, _) => EventKind::Deleted,
        (false, None) => EventKind::Created,
        (false, Some(_)) => EventKind::Updated,
    };
    assert_eq!(event.kind, kind, "{} at {}", done.key, done.revision);
    object(model, index, &event.object)?;
    assert_eq!(event.previous.is_some(), done.previous.is_some());
    if let (Some(previous), Some(index)) = (&event.previous, done.previous) {
        object(model, index, previous)?;
    }
    Ok(())
}
