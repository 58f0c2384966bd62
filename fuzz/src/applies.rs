//! Server-side applies, one after another, to objects of several kinds.

use std::cell::OnceCell;

use flatkube::patch::apply::{self, ApplyError, beyond, unmet};
use flatkube::patch::managed::{OneVersion, Request, Typed};
use flatkube::resources::{self, Context, Resource};
use flatkube::schema::Schema;
use flatkube::tree::Value;

use super::input::Input;
use super::objects;
use super::patches::{note, plain};
use super::written::{self, NOW_S, Object};

/// Configurations of an input that are looked at.
const STEPS_MAX: usize = 8;

/// The first byte names an object of several kinds; what follows are configurations in JSON, one a line, each after a byte that
/// says who applies or updates it, and how. Lines that are no object are the value of `metadata.managedFields` of the object.
///
/// After an apply that is not refused, the object has every value that the configuration names, and whoever applied has no
/// field that is not there. The same configuration again changes nothing, nor does the object that comes out of it as an
/// update. What is refused when forced is refused for what it is, not for who manages what.
pub fn apply(data: &[u8]) {
    thread_local! {
        static OBJECTS: OnceCell<Vec<Object>> = const { OnceCell::new() };
    }
    let mut input = Input::new(data);
    let choice = usize::from(input.byte());
    let (resource, mut live) = OBJECTS.with(|objects| {
        let objects = objects.get_or_init(written::objects);
        let Object { resource, value } = &objects[choice % objects.len()];
        (*resource, objects::read_back(resource, value))
    });
    let schema = Schema::of(&resource.group, &resource.version, &resource.kind).expect("a built-in kind has one");
    // Whether somebody wrote managers into what is stored: no client can, and what is wrong with them goes with the next write.
    let mut lies = false;
    for line in input.rest().split(|byte| *byte == b'\n').take(STEPS_MAX) {
        let Some((&how, json)) = line.split_first() else {
            continue;
        };
        let Ok(value) = serde_json::from_slice::<Value>(json) else {
            continue;
        };
        if value.is_object() {
            step(resource, schema, &mut live, value, how, lies);
        } else if value.is_array() {
            live["metadata"]["managedFields"] = value;
            lies = true;
        }
    }
}

fn step(
    resource: &'static Resource,
    schema: Schema<'static>,
    live: &mut Value,
    mut configuration: Value,
    how: u8,
    lies: bool,
) {
    let typed = Typed::from(schema);
    for field in ["apiVersion", "kind"] {
        configuration[field] = live[field].clone();
    }
    // Nothing is applied that does not name its object.
    if matches!(configuration["metadata"], Value::Null | Value::Object(_)) {
        configuration["metadata"]["name"] = live["metadata"]["name"].clone();
    }
    let subresource = if how & 4 != 0 && resource.subresource("status").is_some() {
        "status"
    } else {
        ""
    };
    if how & 16 != 0 {
        // An update between applies: what it says, and nothing else.
        let mut new = configuration;
        if update(resource, subresource, live, &mut new, true).is_ok() {
            *live = objects::read_back(resource, &new);
        }
        return;
    }
    let (api_version, manager) = (
        resource.api_version(),
        ["one", "two", "kubectl", "four"][usize::from(how & 3)],
    );
    let request = |now: &'static str| Request {
        manager,
        api_version: &api_version,
        subresource,
        now,
        resets: if subresource.is_empty() && resource.subresource("status").is_some() {
            &["status"]
        } else {
            &[]
        },
    };
    let apply = |live: &Value, now: &'static str, force: bool| {
        apply::apply(
            typed,
            &OneVersion(typed),
            Some(live),
            &configuration,
            &request(now),
            force,
        )
    };
    let forced = how & 8 != 0;
    let applied = match apply(live, "2027-01-15T08:00:00Z", forced) {
        Ok(applied) => applied,
        Err(ApplyError::Conflicts(conflicts)) => {
            assert!(
                !forced && conflicts.count > 0 && !conflicts.told.is_empty(),
                "{conflicts}"
            );
            return;
        }
        Err(_) => return,
    };
    // (Who migrates rewrites an annotation that the configuration may name, too.)
    if how & 3 != 2 {
        assert_eq!(unmet(typed, Some(&applied.object), &configuration), None);
    }
    let own = |entry: &&Value| entry["operation"] == "Apply" && entry["manager"] == manager;
    for entry in applied.managers.iter().filter(own) {
        if entry["subresource"].as_str().unwrap_or("") == subresource {
            assert_eq!(beyond(typed, &applied.object, entry), None, "{entry}");
        }
    }
    let Ok(mut new) = applied.decoded(schema, live) else {
        return;
    };
    if update(resource, subresource, live, &mut new, false).is_err() {
        return;
    }
    objects::encoded(resource, &new);
    let new = objects::read_back(resource, &new);
    let again = apply(&new, "2027-01-15T09:00:00Z", true);
    let again = again.unwrap_or_else(|error| panic!("{error}: {}", new.to_json()));
    let mut again = again.decoded(schema, &new).unwrap_or_else(|error| panic!("{error}"));
    let done = update(resource, subresource, &new, &mut again, false);
    done.unwrap_or_else(|refusal| panic!("{refusal:?}: {}", again.to_json()));
    if !lies {
        assert_eq!(
            plain(&again),
            plain(&new),
            "the same configuration again changes nothing"
        );
    }
    *live = new;
}

/// Prepares an update; of an apply the managers are known.
fn update(
    resource: &'static Resource,
    subresource: &str,
    old: &Value,
    new: &mut Value,
    notes: bool,
) -> Result<(), resources::Refusal> {
    let context = Context {
        now_s: NOW_S + 60,
        namespace: old["metadata"]["namespace"].as_str(),
        name: old["metadata"]["name"].as_str(),
        asked: None,
    };
    let sub = (!subresource.is_empty()).then_some(subresource);
    resources::prepare_update_with(resource, sub, old, new, &context, |new| {
        if notes {
            note(resource, subresource, Some(old), new);
        } else {
            apply::keep_times(old, new);
        }
    })
    .map(|_| ())
}
