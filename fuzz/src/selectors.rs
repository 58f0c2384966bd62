//! Selectors and continue tokens: parsed, and then used on a store, against what a plain reading of the objects says.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flatkube::api::attack;
use flatkube::resources;
use flatkube::store::disk::sim::SimDisk;
use flatkube::store::{Object, Range, Requirement, Selection, Store, View};

use super::input::Input;
use super::written;

/// A store that is only read.
fn view() -> Arc<View> {
    thread_local! {
        static STORE: OnceCell<Arc<Store>> = const { OnceCell::new() };
    }
    STORE.with(|store| {
        store
            .get_or_init(|| written::story(&SimDisk::new(), written::options(&Arc::new(AtomicBool::new(false)))))
            .view()
    })
}

/// A label selector: it is refused, or it selects what its requirements say of the objects' own JSON.
pub fn label_selector(data: &[u8]) {
    let Some(text) = Input::new(data).text() else { return };
    if let Ok(requirements) = attack::labels(text) {
        select("configmaps", requirements);
    }
}

/// A field selector on the resource that the first byte names.
pub fn field_selector(data: &[u8]) {
    let mut input = Input::new(data);
    let resource = &resources::all()[input.choice(resources::all().len())];
    let Some(text) = input.text() else { return };
    let Ok(requirements) = attack::fields(text, resource) else {
        return;
    };
    select(&resource.storage, requirements);
}

fn select(resource: &str, requirements: Vec<Requirement>) {
    let view = view();
    let selection = Selection { requirements };
    let all = list(&view, resource, Range::default(), &Selection::all());
    let expected: Vec<String> = all
        .iter()
        .filter(|object| {
            selection
                .requirements
                .iter()
                .all(|requirement| holds(requirement, object))
        })
        .map(|object| object.key().to_owned())
        .collect();
    let found: Vec<String> = list(&view, resource, Range::default(), &selection)
        .iter()
        .map(|object| object.key().to_owned())
        .collect();
    assert_eq!(found, expected, "{selection:?}");
}

fn list(view: &Arc<View>, resource: &str, range: Range, selection: &Selection) -> Vec<Object> {
    let mut listing = view.list(resource, range, selection);
    let mut objects = Vec::new();
    while let Some(run) = listing.next(3).expect("nothing is damaged") {
        objects.extend(run.objects());
    }
    objects
}

/// Whether a requirement holds, by the object's JSON; fields by the sidecar, which `stored_object` compares with the JSON.
fn holds(requirement: &Requirement, object: &Object) -> bool {
    let json: serde_json::Value = serde_json::from_slice(object.json().expect("sound")).expect("JSON");
    let label = |name: &str| json["metadata"]["labels"][name].as_str();
    let integer = |name: &str| label(name).and_then(|value| value.parse::<i64>().ok());
    let field = |name: &str| {
        let sidecar = object.sidecar().expect("sound");
        sidecar.field(name).unwrap_or_default().to_owned()
    };
    let owners = json["metadata"]["ownerReferences"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    match requirement {
        Requirement::Owned => !owners.is_empty(),
        Requirement::OwnedBy(uid) => !uid.is_empty() && owners.iter().any(|owner| owner["uid"] == uid.as_str()),
        Requirement::LabelIn { name, values } => label(name).is_some_and(|value| values.iter().any(|v| v == value)),
        Requirement::LabelNotIn { name, values } => !label(name).is_some_and(|value| values.iter().any(|v| v == value)),
        Requirement::LabelExists(name) => label(name).is_some(),
        Requirement::LabelAbsent(name) => label(name).is_none(),
        Requirement::LabelAbove { name, value } => integer(name).is_some_and(|found| found > *value),
        Requirement::LabelBelow { name, value } => integer(name).is_some_and(|found| found < *value),
        Requirement::FieldIs { name, value } => field(name) == *value,
        Requirement::FieldIsNot { name, value } => field(name) != *value,
        Requirement::Name { value, is } => (object.name() == value) == *is,
        Requirement::Namespace { value, is } => (object.namespace().unwrap_or("") == value) == *is,
    }
}

/// A continue token: what was made of a position leads back there and nowhere else, any change of it leads nowhere; a list
/// goes on behind any key.
pub fn continue_token(data: &[u8]) {
    let mut input = Input::new(data);
    let resource = ["configmaps", "pods", "", "events"][input.choice(4)];
    if let Some(text) = input.text() {
        assert_eq!(attack::token_position(resource, text), None, "nobody made it");
    }
    let revision = (input.short() as u64) << (input.byte() % 48);
    let (at, change) = (input.short(), input.byte());
    let Some(after) = input.text() else { return };
    let token = attack::token(resource, Some(revision), after);
    let position = attack::token_position(resource, &token);
    if token.len() > 2048 {
        assert_eq!(position, None, "too long to be ours");
    } else {
        let revision = (revision != 0).then_some(revision);
        assert_eq!(position, Some((revision, after.to_owned())));
    }
    assert_eq!(
        attack::token_position("nodes", &token),
        None,
        "it is another resource's"
    );
    let mut changed = token.into_bytes();
    if change != 0 {
        let at = at % changed.len();
        changed[at] ^= change;
        if let Ok(changed) = std::str::from_utf8(&changed) {
            assert_eq!(attack::token_position(resource, changed), None, "it was changed");
        }
    }
    let view = view();
    let range = Range {
        namespace: None,
        after: Some(after.to_owned()),
    };
    let rest = list(&view, "configmaps", range, &Selection::all());
    let all = list(&view, "configmaps", Range::default(), &Selection::all());
    let expected = all.iter().filter(|object| object.key() > after).count();
    assert_eq!(rest.len(), expected);
    assert!(rest.iter().all(|object| object.key() > after));
}
