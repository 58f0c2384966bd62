//! Who manages which fields: `metadata.managedFields` after a create, an update or a patch.
//!
//! Rules are those of `sigs.k8s.io/structured-merge-diff`: what a request adds or changes is its manager's; every other
//! manager loses what was changed or removed. Fields of a list that is a map are told apart by their keys, atomic lists
//! and maps are one field. Applying (`operation: Apply`) is not here; entries of appliers lose fields like all others.

mod fields;

use serde_json::{Map, Value, json};

use crate::schema::{Element, Field, ListType, Schema, Shape, Type};
use fields::{Fields, element_key, field_key, value_key};

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
/// there is dropped, unless it sent `[{}]`, which forgets all managers.
pub fn update(schema: Schema<'_>, live: Option<&Value>, new: &mut Value, request: &Request<'_>) {
    let resets = |list: &Value| {
        list.as_array()
            .is_some_and(|list| list.len() == 1 && list[0] == json!({}))
    };
    let reset = resets(&new["metadata"]["managedFields"]);
    let kept = if reset {
        None
    } else {
        live.and_then(|live| live["metadata"]["managedFields"].as_array())
    };
    let mut entries: Vec<Value> = kept.cloned().unwrap_or_default();

    let empty = Value::Object(Map::new());
    let mut changes = Changes::default();
    compare_struct(
        schema,
        Some(live.unwrap_or(&empty)),
        Some(new),
        &mut Path::Root,
        &mut changes,
    );
    for set in [&mut changes.taken, &mut changes.removed] {
        strip(set, request);
    }
    if !changes.taken.is_empty() || !changes.removed.is_empty() {
        for entry in &mut entries {
            let mut set = Fields::read(&entry["fieldsV1"]);
            if set.remove(&changes.taken) | set.remove(&changes.removed) {
                entry["fieldsV1"] = set.write();
            }
        }
        take(&mut entries, changes.taken, request);
        entries.retain(|entry| entry["fieldsV1"].as_object().is_some_and(|fields| !fields.is_empty()));
        merge_oldest(&mut entries);
        // Appliers first, then by age, as upstream orders them.
        entries.sort_by_cached_key(|entry| {
            let text = |field: &str| entry[field].as_str().unwrap_or("").to_owned();
            (text("operation") != "Apply", text("time"), text("manager"))
        });
    }
    let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), entries.into());
    }
}

/// The entry of a manager that creates an object by applying `configuration`, its own fields only: they are its, and
/// nothing that is defaulted.
pub fn applied(schema: Schema<'_>, configuration: &Value, request: &Request<'_>) -> Value {
    let empty = Value::Object(Map::new());
    let mut changes = Changes {
        leaves_only: true,
        ..Changes::default()
    };
    compare_struct(schema, Some(&empty), Some(configuration), &mut Path::Root, &mut changes);
    strip(&mut changes.taken, request);
    entry_of("Apply", &changes.taken, request)
}

/// Gives the fields to the request's manager.
fn take(entries: &mut Vec<Value>, taken: Fields, request: &Request<'_>) {
    if taken.is_empty() {
        return;
    }
    let own = entries.iter_mut().find(|entry| {
        entry["operation"] == "Update"
            && entry["manager"] == request.manager
            && entry["apiVersion"] == request.api_version
            && entry["subresource"].as_str().unwrap_or("") == request.subresource
    });
    if let Some(own) = own {
        let mut set = Fields::read(&own["fieldsV1"]);
        set.add(taken);
        own["fieldsV1"] = set.write();
        own["time"] = request.now.into();
        return;
    }
    entries.push(entry_of("Update", &taken, request));
}

fn entry_of(operation: &str, fields: &Fields, request: &Request<'_>) -> Value {
    let mut entry = json!({
        "manager": request.manager,
        "operation": operation,
        "apiVersion": request.api_version,
        "time": request.now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields.write(),
    });
    if !request.subresource.is_empty() {
        entry["subresource"] = request.subresource.into();
    }
    entry
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
        set.add(Fields::read(&entries[at]["fieldsV1"]));
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

/// Takes out what nobody manages, and what this request cannot change.
fn strip(set: &mut Fields, request: &Request<'_>) {
    for field in ["f:apiVersion", "f:kind"] {
        set.take(field);
    }
    if let Some(metadata) = set.child("f:metadata") {
        metadata.leave();
        for field in [
            "f:name",
            "f:namespace",
            "f:creationTimestamp",
            "f:selfLink",
            "f:uid",
            "f:generation",
            "f:managedFields",
            "f:resourceVersion",
        ] {
            metadata.take(field);
        }
        if request.subresource == "status" {
            metadata.take("f:labels");
        }
    }
    if request.subresource == "status" {
        set.keep_only(&["f:status", "f:metadata"]);
    }
    for field in request.resets {
        set.take(&field_key(field));
    }
    set.prune();
}

/// What differs between two states.
#[derive(Debug, Default)]
struct Changes {
    /// Added or with another value.
    taken: Fields,
    removed: Fields,
    /// Take only values, and elements of lists, not the structs, maps and lists around them.
    leaves_only: bool,
}

/// Where the comparison is, as a list that grows on the stack.
enum Path<'a> {
    Root,
    Below(&'a Path<'a>, &'a str),
}

impl Path<'_> {
    fn insert(&self, set: &mut Fields) {
        self.node(set).enter();
    }

    fn node<'s>(&self, set: &'s mut Fields) -> &'s mut Fields {
        match self {
            Path::Root => set,
            Path::Below(above, key) => above.node(set).descend(key),
        }
    }
}

fn note(lhs: Option<&Value>, rhs: Option<&Value>, path: &Path<'_>, changes: &mut Changes) {
    match (lhs, rhs) {
        (Some(_), None) => path.insert(&mut changes.removed),
        (None, Some(_)) => path.insert(&mut changes.taken),
        (Some(lhs), Some(rhs)) if lhs != rhs => path.insert(&mut changes.taken),
        _ => {}
    }
}

fn is_hollow(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        _ => false,
    }
}

/// How a value is taken: by the type, and by what its field says about lists and maps.
#[derive(Clone, Copy, Default)]
struct Rule {
    list: Option<ListType>,
    atomic: bool,
    /// Taken apart although its schema is one value.
    granular: bool,
}

fn compare(
    ty: Type<'_>,
    rule: Rule,
    field: Option<Field<'_>>,
    lhs: Option<&Value>,
    rhs: Option<&Value>,
    path: &mut Path<'_>,
    changes: &mut Changes,
) {
    let whole = rule.atomic || is_hollow(lhs) && is_hollow(rhs);
    match ty {
        Type::Schema(schema)
            if !whole && schema.shape() == Shape::Struct && (rule.granular || !schema.map_atomic()) =>
        {
            compare_struct(schema, lhs, rhs, path, changes);
        }
        Type::Map(element) if !whole => compare_map(element, lhs, rhs, path, changes),
        Type::List(element) if !whole => match (rule.list, field) {
            (Some(ListType::Set), _) => compare_set(lhs, rhs, path, changes),
            (Some(ListType::Map), Some(field)) => compare_list(element, field, lhs, rhs, path, changes),
            _ => return note(lhs, rhs, path, changes),
        },
        _ => return note(lhs, rhs, path, changes),
    }
    // What came or went whole is a field of its own beside those in it.
    if !changes.leaves_only && (lhs.is_none() || rhs.is_none()) {
        note(lhs, rhs, path, changes);
    }
}

fn fields_of(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn compare_struct(
    schema: Schema<'_>,
    lhs: Option<&Value>,
    rhs: Option<&Value>,
    path: &mut Path<'_>,
    changes: &mut Changes,
) {
    let (left, right) = (fields_of(lhs), fields_of(rhs));
    let only_left = left
        .into_iter()
        .flatten()
        .filter(|(name, _)| right.is_none_or(|right| !right.contains_key(*name)));
    let names = right
        .into_iter()
        .flatten()
        .map(|(name, _)| name)
        .chain(only_left.map(|(name, _)| name));
    for name in names {
        let Some(field) = schema.field(name) else { continue };
        let rule = Rule {
            list: field.list_type(),
            atomic: field.map_atomic(),
            granular: field.map_granular(),
        };
        let (left, right) = (
            left.and_then(|left| left.get(name)),
            right.and_then(|right| right.get(name)),
        );
        // A part that is a value, not a pointer, is always there, if only as an empty one; so are a list that must be and a
        // text that is written even when it is empty.
        let hollow = match field.ty() {
            Type::Schema(_) if field.default_json() == Some("{}") => Some(Value::Object(Map::new())),
            Type::List(_) if field.required() => Some(Value::Null),
            Type::String(_) if field.default_json() == Some("\"\"") => Some(Value::String(String::new())),
            _ => None,
        };
        let left = left.or(hollow.as_ref().filter(|_| lhs.is_some()));
        let right = right.or(hollow.as_ref().filter(|_| rhs.is_some()));
        // A field that is always written, as null when it is unset, is there in the empty object, too.
        if right == Some(&Value::Null) && left.is_none() && lhs.is_some() && !changes.leaves_only {
            continue;
        }
        let key = field_key(name);
        compare(
            field.ty(),
            rule,
            Some(field),
            left,
            right,
            &mut Path::Below(path, &key),
            changes,
        );
    }
}

fn compare_map(
    element: Element<'_>,
    lhs: Option<&Value>,
    rhs: Option<&Value>,
    path: &mut Path<'_>,
    changes: &mut Changes,
) {
    let (left, right) = (fields_of(lhs), fields_of(rhs));
    let only_left = left
        .into_iter()
        .flatten()
        .filter(|(name, _)| right.is_none_or(|right| !right.contains_key(*name)));
    let names = right
        .into_iter()
        .flatten()
        .map(|(name, _)| name)
        .chain(only_left.map(|(name, _)| name));
    for name in names {
        let (left, right) = (
            left.and_then(|left| left.get(name)),
            right.and_then(|right| right.get(name)),
        );
        let key = field_key(name);
        compare(
            element.ty(),
            Rule::default(),
            None,
            left,
            right,
            &mut Path::Below(path, &key),
            changes,
        );
    }
}

fn items_of(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn compare_set(lhs: Option<&Value>, rhs: Option<&Value>, path: &mut Path<'_>, changes: &mut Changes) {
    let (left, right) = (items_of(lhs), items_of(rhs));
    for item in right.iter().filter(|item| !left.contains(item)) {
        let key = value_key(item);
        Path::Below(path, &key).insert(&mut changes.taken);
    }
    for item in left.iter().filter(|item| !right.contains(item)) {
        let key = value_key(item);
        Path::Below(path, &key).insert(&mut changes.removed);
    }
}

fn compare_list(
    element: Element<'_>,
    field: Field<'_>,
    lhs: Option<&Value>,
    rhs: Option<&Value>,
    path: &mut Path<'_>,
    changes: &mut Changes,
) {
    let keyed = |value: Option<&Value>| -> Vec<(String, usize)> {
        items_of(value)
            .iter()
            .enumerate()
            .map(|(at, item)| (element_key(field, element, item), at))
            .collect()
    };
    let (left, right) = (keyed(lhs), keyed(rhs));
    let find = |list: &[(String, usize)], key: &str| list.iter().find(|(other, _)| other == key).map(|(_, at)| *at);
    for (key, at) in &right {
        let item = find(&left, key).and_then(|at| items_of(lhs).get(at));
        let path = &mut Path::Below(path, key);
        if changes.leaves_only {
            path.insert(&mut changes.taken);
        }
        compare(
            element.ty(),
            Rule::default(),
            None,
            item,
            items_of(rhs).get(*at),
            path,
            changes,
        );
    }
    for (key, at) in left.iter().filter(|(key, _)| find(&right, key).is_none()) {
        let path = &mut Path::Below(path, key);
        compare(
            element.ty(),
            Rule::default(),
            None,
            items_of(lhs).get(*at),
            None,
            path,
            changes,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn fields(object: &Value) -> Vec<(String, Value)> {
        let entries = object["metadata"]["managedFields"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        entries
            .into_iter()
            .map(|e| (e["manager"].as_str().unwrap().to_owned(), e["fieldsV1"].clone()))
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
            entry["fieldsV1"],
            json!({"f:metadata": {"f:labels": {"f:a": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}}}}})
        );
    }

    #[test]
    fn the_number_of_updaters_is_bounded() {
        let mut object = json!({"metadata": {"name": "c"}, "data": {}});
        for n in 0..30 {
            let live = object.clone();
            object["data"][format!("k{n}")] = "v".into();
            let now = format!("2026-01-01T00:00:{n:02}Z");
            update(
                maps(),
                Some(&live),
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
