//! What the store must be, said simply: a list of writes in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use flatkube::store::{
    EventKind, HistoryError, Object, Precondition, Range, Selection, Store, View, Write, WriteError,
};

use super::{delete, put};

/// One write to come: of `value`, or a deletion.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) resource: &'static str,
    pub(crate) key: String,
    pub(crate) value: Option<String>,
    pub(crate) precondition: Precondition,
}

impl Step {
    pub(crate) fn write(&self) -> Write {
        match &self.value {
            Some(value) => put(self.resource, &self.key, value, self.precondition),
            None => delete(self.resource, &self.key, "deleted", self.precondition),
        }
    }
}

#[derive(Debug, Clone)]
struct Done {
    revision: u64,
    step: Step,
    previous: Option<u64>,
}

/// All writes that were made, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    first: u64,
    done: Vec<Done>,
}

type State = BTreeMap<String, (u64, String)>;

impl Model {
    pub(crate) fn new(first: u64) -> Model {
        Model {
            first,
            done: Vec::new(),
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.done.last().map_or(self.first, |done| done.revision)
    }

    /// Number of live objects.
    pub(crate) fn count(&self, resource: &str) -> usize {
        self.state(resource, u64::MAX).len()
    }

    /// State of a resource at a revision.
    fn state(&self, resource: &str, revision: u64) -> State {
        let mut state = State::new();
        for done in self
            .done
            .iter()
            .filter(|done| done.step.resource == resource && done.revision <= revision)
        {
            match &done.step.value {
                Some(value) => drop(state.insert(done.step.key.clone(), (done.revision, value.clone()))),
                None => drop(state.remove(&done.step.key)),
            }
        }
        state
    }

    /// Whether the write passes its precondition; if so it is made.
    pub(crate) fn apply(&mut self, step: &Step) -> bool {
        let current = self
            .state(step.resource, u64::MAX)
            .get(&step.key)
            .map(|(revision, _)| *revision);
        let holds = match step.precondition {
            Precondition::Absent => current.is_none(),
            Precondition::Exists => current.is_some(),
            Precondition::Revision(revision) => current == Some(revision),
            Precondition::Any => true,
        };
        if !holds || (step.value.is_none() && current.is_none()) {
            return false;
        }
        self.done.push(Done {
            revision: self.revision() + 1,
            step: step.clone(),
            previous: current,
        });
        true
    }

    /// Checks an answer against the model, and takes the write in.
    pub(crate) fn answered(&mut self, step: &Step, result: &Result<flatkube::store::Written, WriteError>) {
        let before = self
            .state(step.resource, u64::MAX)
            .get(&step.key)
            .map(|(revision, _)| *revision);
        let made = self.apply(step);
        match result {
            Ok(written) => {
                assert!(made, "{step:?} was made against its precondition");
                assert_eq!(written.revision, self.revision());
                assert_eq!(written.object.revision(), written.revision);
                assert_eq!(written.object.key(), step.key);
            }
            Err(WriteError::Conflict { current }) => {
                assert!(!made, "{step:?} was refused");
                assert_eq!(current.as_ref().map(|object| object.revision()), before);
            }
            Err(error) => panic!("{step:?}: {error}"),
        }
    }

    /// Compares everything that can be read: the present, some of the past, and all history.
    pub(crate) fn check(&self, store: &Arc<Store>, resources: &[&str]) {
        let view = store.view();
        assert_eq!(view.revision(), self.revision());
        for resource in resources {
            let state = self.state(resource, u64::MAX);
            assert_eq!(read(&view, resource), state, "{resource} now");
            for (key, (revision, _)) in &state {
                assert_eq!(view.get(resource, key).unwrap().unwrap().revision(), *revision);
            }
            assert_eq!(
                view.get(resource, "none/none").unwrap().map(|object| object.revision()),
                None
            );
            self.check_history(store, resource);
        }
    }

    fn check_history(&self, store: &Arc<Store>, resource: &str) {
        let stats = store.stats();
        let floor = stats
            .resources
            .iter()
            .find(|stats| stats.name == resource)
            .map_or(0, |stats| stats.floor);
        if floor > self.first {
            let expected = HistoryError::TooOld {
                floor,
                current: self.revision(),
            };
            assert_eq!(store.follow(resource, None, floor - 1).unwrap_err(), expected);
            assert_eq!(store.view_at(resource, floor - 1).unwrap_err(), expected);
        }
        let from = floor.max(self.first);
        for namespace in [None, Some("a"), Some("ab")] {
            let mut follower = store.follow(resource, namespace, from).unwrap();
            let expected = self.done.iter().filter(|done| {
                done.step.resource == resource
                    && done.revision > from
                    && namespace
                        .is_none_or(|namespace| done.step.key.split_once('/').is_some_and(|(n, _)| n == namespace))
            });
            for done in expected {
                let event = follower.next().unwrap().expect("history is complete");
                let kind = match (&done.step.value, done.previous) {
                    (None, _) => EventKind::Deleted,
                    (Some(_), None) => EventKind::Created,
                    (Some(_), Some(_)) => EventKind::Updated,
                };
                assert_eq!((event.revision, event.kind), (done.revision, kind));
                assert_eq!(event.object.key(), done.step.key);
                let value = done.step.value.as_deref().unwrap_or("deleted");
                assert_eq!(value_of(event.object.json().unwrap(), done.revision), value);
                assert_eq!(event.previous.as_ref().map(Object::revision), done.previous);
                if let (Some(previous), Some(revision)) = (event.previous, done.previous) {
                    let before = self.done.iter().find(|done| done.revision == revision).unwrap();
                    let value = before.step.value.as_deref().unwrap();
                    assert_eq!(value_of(previous.json().unwrap(), revision), value);
                    assert!(previous.sidecar().unwrap().uid.as_str().ends_with(&done.step.key));
                }
            }
            assert!(
                follower.next().unwrap().is_none(),
                "history has a write that was never made"
            );
            assert_eq!(follower.position(), self.revision());
        }
        let span = self.revision() - from;
        for part in 0..=6 {
            let revision = from + span * part / 6;
            let past = store.view_at(resource, revision).unwrap();
            assert_eq!(
                read(&past, resource),
                self.state(resource, revision),
                "{resource} at {revision}"
            );
        }
    }
}

fn value_of(json: &[u8], revision: u64) -> String {
    let json = std::str::from_utf8(json).unwrap();
    let head = format!(r#"{{"metadata":{{"resourceVersion":"{revision}"}},"value":""#);
    json.strip_prefix(&head)
        .unwrap_or_else(|| panic!("{json} @ {revision}"))
        .strip_suffix(r#""}"#)
        .unwrap()
        .to_owned()
}

/// A resource as a list gives it.
pub(crate) fn read(view: &Arc<View>, resource: &str) -> State {
    let mut listing = view.list(resource, Range::default(), &Selection::default());
    let mut state = State::new();
    let mut count = 0;
    while let Some(run) = listing.next(5).unwrap() {
        for object in run.objects() {
            assert!(
                state
                    .last_key_value()
                    .is_none_or(|(last, _)| last.as_str() < object.key()),
                "list order"
            );
            let value = value_of(object.json().unwrap(), object.revision());
            assert!(object.sidecar().unwrap().uid.as_str().ends_with(object.key()));
            state.insert(object.key().to_owned(), (object.revision(), value));
            count += 1;
        }
    }
    assert_eq!(count, view.count(resource, None));
    state
}
