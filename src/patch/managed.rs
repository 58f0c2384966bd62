//! Who manages which fields: `metadata.managedFields` after a create, an update or a patch.
//!
//! Rules are those of `sigs.k8s.io/structured-merge-diff`: what a request adds or changes is its manager's; every other
//! manager loses what was changed or removed. Fields of a list that is a map are told apart by their keys, atomic lists
//! and maps are one field. Applying (`operation: Apply`) is not here; entries of appliers lose fields like all others.

mod compare;
mod entry;
mod fields;
mod trail;

use crate::tree::{Map, Value};

use crate::schema::Schema;
use compare::{Changes, Mode, compare};
use fields::Fields;
use trail::Trail;

/// Most entries of updates that an object keeps; the oldest are merged into one of the name `ancient-changes`.
const UPDATERS_MAX: usize = 10;
const ANCIENT: &str = "ancient-changes";

/// A request that changes an object.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Name of the field manager.
    pub manager: &'a str,
    /// Version of the request: `v1`, `apps/v1`.
    pub api_version: &'a str,
    /// The subresource, `""` for the object itself.
    pub subresource: &'a str,
    /// Now, as metadata writes times.
    pub now: &'a str,
    /// Top-level fields that a request like this cannot change: `status` of most kinds, but for its subresource.
    pub resets: &'a [&'a str],
}

/// Sets `metadata.managedFields` of `new`, which is to replace `live` (`None`: is to be created). What the client sent
/// there is dropped, unless it sent `[]` or `[{}]`, which forgets all managers.
///
/// The sets of other managers are taken apart only when this change takes something from them; new ones are written as text.
pub fn update(schema: Schema<'static>, live: Option<&Value>, new: &mut Value, request: &Request<'_>) {
    let resets = |list: &Value| {
        list.as_array().is_some_and(|list| match list.as_slice() {
            [] => true,
            [entry] => entry.as_object().is_some_and(Map::is_empty),
            _ => false,
        })
    };
    let reset = resets(&new["metadata"]["managedFields"]);
    let kept = if reset {
        None
    } else {
        live.and_then(|live| live["metadata"]["managedFields"].as_array())
    };
    let mut entries: Vec<Value> = kept.map(|kept| kept.to_vec()).unwrap_or_default();
    // What has no managers gets none by changes, only by an apply (upstream's skip-non-applied manager).
    if live.is_some() && entries.is_empty() {
        if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        return;
    }

    let empty = Value::Object(Map::new());
    let counts = |path: &[&str]| request.counts(path);
    let changes = compare(Mode::Update, schema, Some(live.unwrap_or(&empty)), Some(new), counts);
    if !changes.taken.is_empty() || !changes.removed.is_empty() {
        for entry in &mut entries {
            lose(entry, &changes, request);
        }
        take(&mut entries, &changes.taken, request);
        entries.retain(|entry| !is_empty(&entry["fieldsV1"]));
        merge_oldest(&mut entries);
        // Appliers first, then by age, as upstream orders them.
        let rank = |entry: &Value, field: &str| entry[field].as_str().unwrap_or("").to_owned();
        if entries.len() > 1 {
            entries.sort_by_cached_key(|entry| {
                let applied = entry["operation"] == "Apply";
                (!applied, rank(entry, "time"), rank(entry, "manager"))
            });
        }
    }
    let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields", entries.into());
    }
}

/// The entry of a manager that creates an object by applying `configuration`, its own fields only: they are its, and
/// nothing that is defaulted.
pub fn applied(schema: Schema<'static>, configuration: &Value, request: &Request<'_>) -> Value {
    let empty = Value::Object(Map::new());
    let counts = |path: &[&str]| request.counts(path);
    let changes = compare(Mode::Apply, schema, Some(&empty), Some(configuration), counts);
    entry_of("Apply", &changes.taken, request)
}

impl Request<'_> {
    /// Whether an entry is that of the request's manager.
    fn is_of(&self, entry: &Value) -> bool {
        entry["operation"] == "Update"
            && entry["manager"] == self.manager
            && entry["apiVersion"] == self.api_version
            && entry["subresource"].as_str().unwrap_or("") == self.subresource
    }

    /// Whether a field of the object, or one of its metadata, is anybody's, and can be changed by a request like this.
    fn counts(&self, path: &[&str]) -> bool {
        let status = self.subresource == "status";
        match path {
            ["apiVersion" | "kind"] => false,
            ["metadata"] => true,
            [field] => (!status || *field == "status") && !self.resets.contains(field),
            ["metadata", "labels"] => !status,
            ["metadata", field] => !matches!(
                *field,
                "name"
                    | "namespace"
                    | "creationTimestamp"
                    | "selfLink"
                    | "uid"
                    | "generation"
                    | "managedFields"
                    | "resourceVersion"
            ),
            _ => true,
        }
    }
}

/// Takes from an entry what changed or went.
fn lose(entry: &mut Value, changes: &Changes<'_>, request: &Request<'_>) {
    let fields = &entry["fieldsV1"];
    if let Value::Raw(json) = fields
        && !entry::has_any(json, &changes.removed.top())
        // What changed would come back to its own manager at once.
        && (request.is_of(entry) || !entry::has_any(json, &changes.taken.top()))
    {
        return;
    }
    let mut set = Fields::of(fields);
    if set.remove_found(changes.taken.top()) | set.remove_found(changes.removed.top()) {
        entry["fieldsV1"] = set.write();
    }
}

/// Gives the fields to the request's manager.
fn take(entries: &mut Vec<Value>, taken: &Trail<'_>, request: &Request<'_>) {
    if taken.is_empty() {
        return;
    }
    if let Some(own) = entries.iter_mut().find(|entry| request.is_of(entry)) {
        let fields = &own["fieldsV1"];
        if !matches!(fields, Value::Raw(json) if entry::has_all(json, taken.top())) {
            let mut set = Fields::of(fields);
            set.add_found(taken.top());
            own["fieldsV1"] = set.write();
        }
        own["time"] = request.now.into();
        return;
    }
    entries.push(entry_of("Update", taken, request));
}

fn entry_of(operation: &str, fields: &Trail<'_>, request: &Request<'_>) -> Value {
    let mut entry = Map::with_capacity(7);
    entry.insert("apiVersion", request.api_version.into());
    entry.insert("fieldsType", "FieldsV1".into());
    entry.insert("fieldsV1", Value::Raw(fields.to_json()));
    entry.insert("manager", request.manager.into());
    entry.insert("operation", operation.into());
    if !request.subresource.is_empty() {
        entry.insert("subresource", request.subresource.into());
    }
    entry.insert("time", request.now.into());
    Value::Object(entry)
}

/// Whether a set of fields has no members.
fn is_empty(fields: &Value) -> bool {
    match fields {
        Value::Raw(json) => json == "{}",
        Value::Object(fields) => fields.is_empty(),
        _ => true,
    }
}

/// Keeps the number of entries bounded.
fn merge_oldest(entries: &mut Vec<Value>) {
    let mut updaters: Vec<usize> = (0..entries.len())
        .filter(|&at| entries[at]["operation"] == "Update")
        .collect();
    if updaters.len() <= UPDATERS_MAX {
        return;
    }
    updaters.sort_by_key(|&at| entries[at]["time"].as_str().unwrap_or("").to_owned());
    let merged: Vec<usize> = updaters[..=updaters.len() - UPDATERS_MAX].to_vec();
    let mut set = Fields::default();
    for &at in &merged {
        set.add(Fields::of(&entries[at]["fieldsV1"]));
    }
    let mut entry = entries[*merged.last().unwrap_or(&0)].clone();
    entry["manager"] = ANCIENT.into();
    entry["fieldsV1"] = set.write();
    if let Some(fields) = entry.as_object_mut() {
        fields.remove("subresource");
    }
    let mut at = 0;
    entries.retain(|_| {
        at += 1;
        !merged.contains(&(at - 1))
    });
    entries.push(entry);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn by(manager: &str) -> Request<'_> {
        Request {
            manager,
            api_version: "v1",
            subresource: "",
            now: NOW,
            resets: &[],
        }
    }

    /// Raw JSON taken apart.
    fn plain(fields: &Value) -> Value {
        serde_json::from_str(&fields.to_json()).unwrap()
    }

    fn fields(object: &Value) -> Vec<(String, Value)> {
        let entries = object["metadata"]["managedFields"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        entries
            .into_iter()
            .map(|e| (e["manager"].as_str().unwrap().to_owned(), plain(&e["fieldsV1"])))
            .collect()
    }

    fn maps() -> Schema<'static> {
        Schema::of("", "v1", "ConfigMap").unwrap()
    }

    #[test]
    fn a_manager_has_what_it_added_and_loses_what_another_changed() {
        let mut one = json!({"metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}});
        update(maps(), None, &mut one, &by("one"));
        assert_eq!(
            fields(&one),
            [("one".into(), json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}}))]
        );
        let mut two = one.clone();
        two["data"]["a"] = "7".into();
        update(maps(), Some(&one), &mut two, &by("two"));
        assert_eq!(
            fields(&two),
            [
                ("one".into(), json!({"f:data": {".": {}, "f:b": {}}})),
                ("two".into(), json!({"f:data": {"f:a": {}}}))
            ]
        );
        let mut three = two.clone();
        three["data"] = json!({"a": "7"});
        update(maps(), Some(&two), &mut three, &by("three"));
        assert_eq!(fields(&three)[0], ("one".into(), json!({"f:data": {}})));
    }

    #[test]
    fn a_change_that_changes_nothing_leaves_all_as_it_was() {
        let mut one = json!({"metadata": {"name": "c"}, "data": {"a": "1"}});
        update(maps(), None, &mut one, &by("one"));
        let mut again = one.clone();
        again["metadata"].as_object_mut().unwrap().remove("managedFields");
        update(
            maps(),
            Some(&one),
            &mut again,
            &Request {
                now: "2030-01-01T00:00:00Z",
                ..by("two")
            },
        );
        assert_eq!(again, one);
    }

    #[test]
    fn lists_are_told_apart_by_their_keys_and_parts_that_are_always_there_are_nobodys() {
        let schema = Schema::of("apps", "v1", "Deployment").unwrap();
        let mut deployment = json!({"metadata": {"name": "d", "finalizers": ["e.com/a"]}, "spec": {"template": {"spec": {"containers": [
            {"name": "c", "image": "i", "resources": {}, "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}}}, "status": {}});
        update(
            schema,
            None,
            &mut deployment,
            &Request {
                resets: &["status"],
                ..by("m")
            },
        );
        assert_eq!(
            fields(&deployment)[0].1,
            json!({
                "f:metadata": {"f:finalizers": {".": {}, "v:\"e.com/a\"": {}}},
                "f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                    ".": {}, "f:image": {}, "f:name": {}, "f:resources": {},
                    "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                        ".": {}, "f:containerPort": {}, "f:protocol": {}}},
                }}}}},
            })
        );
    }

    #[test]
    fn an_applier_has_the_values_it_named_and_the_elements_of_lists_they_are_in() {
        let schema = Schema::of("", "v1", "Pod").unwrap();
        let pod = json!({"metadata": {"name": "p", "labels": {"a": "1"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let entry = applied(schema, &pod, &by("m"));
        assert_eq!(entry["operation"], "Apply");
        assert_eq!(
            plain(&entry["fieldsV1"]),
            json!({"f:metadata": {"f:labels": {"f:a": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}}}}})
        );
    }

    #[test]
    fn what_has_no_managers_gets_none_by_changes() {
        let live = json!({"metadata": {"name": "c"}, "data": {"a": "1"}});
        let mut new = json!({"metadata": {"name": "c"}, "data": {"a": "2"}});
        update(maps(), Some(&live), &mut new, &by("m"));
        assert_eq!(new["metadata"].get("managedFields"), None);
        let mut made = live.clone();
        update(maps(), None, &mut made, &by("m"));
        for forgets in [json!([]), json!([{}])] {
            let mut new = made.clone();
            new["data"]["a"] = "2".into();
            new["metadata"]["managedFields"] = forgets;
            update(maps(), Some(&made), &mut new, &by("n"));
            assert_eq!(new["metadata"].get("managedFields"), None);
        }
    }

    #[test]
    fn the_number_of_updaters_is_bounded() {
        let mut object = json!({"metadata": {"name": "c"}, "data": {}});
        for n in 0..30 {
            let live = (n > 0).then(|| object.clone());
            object["data"][format!("k{n}")] = "v".into();
            let now = format!("2026-01-01T00:00:{n:02}Z");
            update(
                maps(),
                live.as_ref(),
                &mut object,
                &Request {
                    now: &now,
                    ..by(&format!("m{n}"))
                },
            );
        }
        let entries = fields(&object);
        assert_eq!(entries.len(), UPDATERS_MAX);
        assert!(
            entries
                .iter()
                .any(|(manager, set)| manager == ANCIENT && set["f:data"]["f:k0"] == json!({}))
        );
    }
}
