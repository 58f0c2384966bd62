//! The objects that are measured with: those of `flatkube seed`, as the API stores them. Each is a function of its number,
//! byte for byte, so that counts of instructions repeat.

use std::sync::OnceLock;

use flatkube::patch::managed::{self, Request};
use flatkube::resources::{self, Context, Resource};
use flatkube::schema::Schema;
use flatkube::store::{Change, Precondition, Prepared, Write};
use flatkube::tree::Value;

#[path = "../../src/cli/seed/objects.rs"]
#[allow(dead_code, unused_imports, reason = "the seed command and its tests use more of it")]
mod objects;

/// Namespaces that objects are spread over.
pub(crate) const NAMESPACES: u32 = 20;
/// 2026-01-02T03:04:05Z: when the first objects were created; the Pods of each ReplicaSet a minute later than those before.
pub(crate) const CREATED_S: i64 = 1_767_323_045;

pub(crate) fn pods() -> &'static Resource {
    resources::find("", "v1", "pods").expect("a built-in resource")
}

pub(crate) fn config_maps() -> &'static Resource {
    resources::find("", "v1", "configmaps").expect("a built-in resource")
}

/// What a client sends to create the Pod with the number `number`.
pub(crate) fn pod_body(number: usize) -> Vec<u8> {
    objects::pod(number as u64, NAMESPACES).body.to_vec()
}

/// The merge patch of `status` that makes it a running Pod.
pub(crate) fn pod_status(number: usize) -> Vec<u8> {
    objects::pod(number as u64, NAMESPACES).status.to_vec()
}

/// What a client sends to create the ConfigMap with the number `number`.
pub(crate) fn config_map_body(number: usize) -> Vec<u8> {
    objects::config_map(number as u64, NAMESPACES).body.to_vec()
}

/// Namespace and name of the Pod with the number `number`.
pub(crate) fn pod_place(number: usize) -> (String, String) {
    let pod = objects::pod(number as u64, NAMESPACES);
    (pod.namespace, pod.name)
}

/// The running Pod with the number `number`, about 5 KB. `picked` gives it the label `pick=yes`.
pub(crate) fn pod(number: usize, picked: bool) -> Value {
    static MANAGED: OnceLock<Value> = OnceLock::new();
    let mut pod = bare_pod(number, picked);
    // The managers of one Pod are those of all: to work them out for each would take most of the time.
    pod["metadata"]["managedFields"] = MANAGED.get_or_init(|| managed(&bare_pod(0, false), "Pod")).clone();
    pod
}

/// The ConfigMap with the number `number`, about 1.8 KB.
pub(crate) fn config_map(number: usize) -> Value {
    let body = serde_json::from_slice(&config_map_body(number)).expect("JSON");
    let mut object = created(config_maps(), body, number);
    object["metadata"]["managedFields"] = managed(&object, "ConfigMap");
    object
}

/// Such an object as the store takes it.
pub(crate) fn prepared(resource: &'static Resource, object: &Value) -> Prepared {
    resources::encode(resource, object).expect("a valid object")
}

/// A write of an object whatever was there.
pub(crate) fn put(resource: &'static Resource, object: &Value) -> Write {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().expect("a name");
    Write {
        resource: (*resource.storage).into(),
        key: resource.key(metadata["namespace"].as_str(), name),
        precondition: Precondition::Any,
        uid: None,
        change: Change::Put(prepared(resource, object)),
    }
}

/// A write that creates an object with that key.
pub(crate) fn create(resource: &'static Resource, key: String, prepared: &Prepared) -> Write {
    Write {
        resource: (*resource.storage).into(),
        key,
        precondition: Precondition::Absent,
        uid: None,
        change: Change::Put(prepared.clone()),
    }
}

fn bare_pod(number: usize, picked: bool) -> Value {
    let mut body: Value = serde_json::from_slice(&pod_body(number)).expect("JSON");
    if picked {
        body["metadata"]["labels"]["pick"] = "yes".into();
    }
    let mut pod = created(pods(), body, number);
    let mut status: Value = serde_json::from_slice(&pod_status(number)).expect("JSON");
    pod["status"] = status["status"].take();
    resources::canonicalize(pods(), &mut pod);
    pod
}

fn created(resource: &'static Resource, mut object: Value, number: usize) -> Value {
    let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
    let context = Context {
        now_s: CREATED_S + number as i64 / 25 * 60,
        namespace: namespace.as_deref(),
        name: None,
        asked: None,
    };
    resources::prepare_create(resource, &mut object, &context).expect("a valid object");
    object["metadata"]["uid"] = format!("{number:08x}-0000-4000-8000-000000000000").into();
    object
}

/// `managedFields` of an object that one manager created.
fn managed(object: &Value, kind: &str) -> Value {
    let mut object = object.clone();
    let schema = Schema::of("", "v1", kind).expect("a built-in kind");
    let request = Request {
        manager: "flatkube-seed",
        api_version: "v1",
        subresource: "",
        now: "2026-01-02T03:04:05Z",
        resets: &[],
    };
    managed::update(schema, None, &mut object, &request);
    object["metadata"]["managedFields"].take()
}
