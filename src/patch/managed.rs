//! Who manages which fields: `metadata.managedFields` after a create, an update or a patch.
//!
//! Rules are those of `sigs.k8s.io/structured-merge-diff` and of `k8s.io/apimachinery/pkg/util/managedfields`: what a request
//! adds or changes is its manager's; every other manager loses what was changed or removed. Fields of a list that is a map are
//! told apart by their keys, atomic lists and maps are one field. Applying (`operation: Apply`) is in `super::apply`; entries
//! of appliers lose fields like all others.

pub(super) mod compare;
pub(super) mod entry;
pub(super) mod fields;
pub(super) mod keys;
mod oldest;
mod sent;
pub(super) mod trail;
pub(super) mod typed;

use std::cmp::Ordering;

use crate::tree::{Map, Value};

use compare::{Changes, compare};
use fields::Fields;
use oldest::merge_oldest;
use sent::base;
use trail::Trail;
pub use typed::Typed;

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

/// The versions of a kind: sets of fields are in the version of the request that made them.
pub trait Versions {
    /// What an object of that version is, and `object`, which is in the version of the request, in it. `None` when the kind
    /// has no such version; who manages fields in one is forgotten.
    fn in_version(&self, object: &Value, api_version: &str) -> Option<(Typed<'_>, Value)>;

    /// Whether the kind has that version.
    fn has(&self, api_version: &str) -> bool;
}

/// For a kind of one version: every set is taken for one of it.
#[derive(Debug, Clone, Copy)]
pub struct OneVersion<'a>(pub Typed<'a>);

impl Versions for OneVersion<'_> {
    fn in_version(&self, object: &Value, _api_version: &str) -> Option<(Typed<'_>, Value)> {
        Some((self.0, object.clone()))
    }

    fn has(&self, _api_version: &str) -> bool {
        true
    }
}

/// [`update_among`] for a kind of one version.
pub fn update<'a>(typed: impl Into<Typed<'a>>, live: Option<&Value>, new: &mut Value, request: &Request<'_>) {
    let typed = typed.into();
    update_among(typed, &OneVersion(typed), live, new, request);
}

/// Sets `metadata.managedFields` of `new`, which is to replace `live` (`None`: is to be created). All are in the version of
/// the request, and `typed` is what they are.
///
/// What the client sent there counts if it is well-formed and the request is for the object itself; else it is dropped, unless
/// it is `[]` or `[{}]`, which forgets all managers.
///
/// The sets of other managers are taken apart only when this change takes something from them; new ones are written as text.
pub fn update_among(
    typed: Typed<'_>,
    versions: &dyn Versions,
    live: Option<&Value>,
    new: &mut Value,
    request: &Request<'_>,
) {
    let mut entries = base(live, new, request);
    entries.retain(|entry| request.is_in_version(entry) || versions.has(text(entry, "apiVersion")));
    // What has no managers gets none by changes, only by an apply (upstream's skip-non-applied manager).
    if live.is_some() && entries.is_empty() {
        if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        return;
    }
    let empty = Value::Object(Map::new());
    let old = live.unwrap_or(&empty);
    let changes = compare(typed, old, new, |path| request.counts(path));
    if !changes.taken.is_empty() || !changes.removed.is_empty() {
        for entry in &mut entries {
            if request.is_in_version(entry) {
                lose(entry, &changes, request);
            } else {
                lose_in_version(entry, versions, old, new, request);
            }
        }
        take(&mut entries, &changes.taken, request);
    }
    // Even when nothing changes: what the client sent may name managers of nothing, too many, and in any order.
    entries.retain(|entry| !is_empty(&entry["fieldsV1"]));
    merge_oldest(&mut entries);
    sort(&mut entries);
    set(new, entries);
}

/// What tells the managers of an object apart: manager, operation, apiVersion (of updates), subresource.
pub(super) fn identity(entry: &Value) -> [&str; 4] {
    let operation = text(entry, "operation");
    let version = if operation == "Apply" {
        ""
    } else {
        text(entry, "apiVersion")
    };
    [text(entry, "manager"), operation, version, text(entry, "subresource")]
}

pub(super) fn text<'v>(entry: &'v Value, field: &str) -> &'v str {
    entry[field].as_str().unwrap_or("")
}

/// Sets `metadata.managedFields`.
pub(super) fn set(object: &mut Value, entries: Vec<Value>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields", entries.into());
    }
}

/// Appliers first, then by age, as upstream orders them.
pub(super) fn sort(entries: &mut [Value]) {
    const ORDER: [&str; 5] = ["operation", "time", "manager", "apiVersion", "subresource"];
    entries.sort_by(|one, other| {
        ORDER
            .iter()
            .map(|field| text(one, field).cmp(text(other, field)))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    });
}

impl Request<'_> {
    /// Whether an entry is that of the request's manager, as one that updates.
    fn is_of(&self, entry: &Value) -> bool {
        entry["operation"] == "Update"
            && entry["manager"] == self.manager
            && entry["apiVersion"] == self.api_version
            && text(entry, "subresource") == self.subresource
    }

    pub(super) fn is_in_version(&self, entry: &Value) -> bool {
        entry["apiVersion"] == self.api_version
    }

    /// Whether a field of the object, or one of its metadata, is anybody's, and can be changed by a request like this.
    pub(super) fn counts(&self, path: &[&str]) -> bool {
        let status = self.subresource == "status";
        match path {
            ["apiVersion" | "kind"] => false,
            ["metadata"] => true,
            [field] => !self.is_reset(field),
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

    /// Whether a request like this cannot change that top-level field.
    pub(super) fn is_reset(&self, field: &str) -> bool {
        let head = matches!(field, "apiVersion" | "kind" | "metadata");
        self.subresource == "status" && field != "status" && !head || self.resets.contains(&field)
    }
}

/// Takes from an entry what changed or went.
pub(super) fn lose(entry: &mut Value, changes: &Changes<'_>, request: &Request<'_>) {
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

/// Takes from an entry what changed or went, whoever it is of.
pub(super) fn lose_all(entry: &mut Value, changes: &Changes<'_>) {
    let fields = &entry["fieldsV1"];
    let has_any = |json: &str| {
        [&changes.removed, &changes.taken]
            .iter()
            .any(|trail| entry::has_any(json, &trail.top()))
    };
    if matches!(fields, Value::Raw(json) if !has_any(json)) {
        return;
    }
    let mut set = Fields::of(fields);
    if set.remove_found(changes.taken.top()) | set.remove_found(changes.removed.top()) {
        entry["fieldsV1"] = set.write();
    }
}

/// [`lose`] for an entry of another version than that of the request.
fn lose_in_version(entry: &mut Value, versions: &dyn Versions, old: &Value, new: &Value, request: &Request<'_>) {
    let version = text(entry, "apiVersion");
    let (Some((typed, old)), Some((_, new))) = (versions.in_version(old, version), versions.in_version(new, version))
    else {
        return;
    };
    let changes = compare(typed, &old, &new, |path| request.counts(path));
    lose(entry, &changes, request);
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
        if request.subresource != "scale" {
            own["time"] = request.now.into();
        }
        return;
    }
    // (Upstream loses the time on the way from a Scale to its object.)
    let time = Some(request.now).filter(|_| request.subresource != "scale");
    entries.push(entry_of("Update", Value::Raw(taken.to_json()), time, request));
}

pub(super) fn entry_of(operation: &str, fields: Value, time: Option<&str>, request: &Request<'_>) -> Value {
    let mut entry = Map::with_capacity(7);
    entry.insert("apiVersion", request.api_version.into());
    entry.insert("fieldsType", "FieldsV1".into());
    entry.insert("fieldsV1", fields);
    entry.insert("manager", request.manager.into());
    entry.insert("operation", operation.into());
    if !request.subresource.is_empty() {
        entry.insert("subresource", request.subresource.into());
    }
    if let Some(time) = time {
        entry.insert("time", time.into());
    }
    Value::Object(entry)
}

/// Whether a set of fields has no members.
pub(super) fn is_empty(fields: &Value) -> bool {
    match fields {
        Value::Raw(json) => json == "{}",
        Value::Object(fields) => fields.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::oldest::{ANCIENT, UPDATERS_MAX};
    use super::*;
    use crate::schema::Schema;
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
    fn managers_that_are_sent_are_put_in_order_when_nothing_else_changes() {
        let mut live = json!({"metadata": {"name": "c"}, "data": {"a": "1"}});
        update(maps(), None, &mut live, &by("m"));
        let entry = |manager: &str, operation: &str, second: usize, fields: Value| {
            json!({"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields, "manager": manager,
                "operation": operation, "time": format!("2026-01-01T00:00:{second:02}Z")})
        };
        let manage = |sent: Vec<Value>| {
            let mut new = live.clone();
            new["metadata"]["managedFields"] = sent.into();
            update(maps(), Some(&live), &mut new, &by("m"));
            fields(&new).into_iter().map(|(manager, _)| manager).collect::<Vec<_>>()
        };
        let some = json!({"f:data": {"f:a": {}}});
        let sent = vec![
            entry("late", "Update", 2, some.clone()),
            entry("nobody", "Update", 1, json!({})),
            entry("nothing", "Apply", 1, Value::Null),
            entry("early", "Update", 1, some.clone()),
            entry("applier", "Apply", 3, some.clone()),
        ];
        assert_eq!(manage(sent), ["applier", "early", "late"]);
        assert!(manage(vec![entry("nobody", "Update", 1, json!({}))]).is_empty());
        let many = (0..30).map(|n| entry(&format!("m{n}"), "Update", n, some.clone()));
        assert_eq!(manage(many.collect()).len(), UPDATERS_MAX);
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
