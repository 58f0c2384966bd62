//! Objects and stores that are sound: what the targets change, patch, select from and serve.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flatkube::resources::{self, KindArchiver, Resource};
use flatkube::store::disk::Disk;
use flatkube::store::disk::sim::SimDisk;
use flatkube::store::{Change, OpenError, Options, Precondition, Prepared, Store, Write, WriteError, Written};
use flatkube::tree::Value;

/// When all targets run, Unix seconds.
pub(super) const NOW_S: i64 = 1_800_000_000;

/// Objects of several kinds as clients send them: group, version, plural and JSON.
const SENT: [(&str, &str, &str, &str); 9] = [
    (
        "",
        "v1",
        "configmaps",
        r#"{"metadata":{"name":"settings","namespace":"default","labels":{"app":"web","tier":"1"},"annotations":{"note":"\u00e9"},"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"web-0","uid":"u-1"}],"finalizers":["example.com/keep"]},"data":{"a":"1","b":"2"},"binaryData":{"c":"AAEC"}}"#,
    ),
    (
        "",
        "v1",
        "pods",
        r#"{"metadata":{"name":"web-0","namespace":"default","labels":{"app":"web"}},"spec":{"nodeName":"node-1","containers":[{"name":"main","image":"nginx:1.27","ports":[{"containerPort":80,"name":"http"}],"env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],"resources":{"requests":{"cpu":"100m","memory":"64Mi"}},"volumeMounts":[{"name":"data","mountPath":"/data"}]},{"name":"side","image":"busybox"}],"volumes":[{"name":"data","emptyDir":{}}],"tolerations":[{"key":"a","operator":"Exists"}]}}"#,
    ),
    (
        "apps",
        "v1",
        "deployments",
        r#"{"metadata":{"name":"web","namespace":"default","labels":{"app":"web"}},"spec":{"replicas":3,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"main","image":"nginx"}]}},"strategy":{"rollingUpdate":{"maxSurge":"25%","maxUnavailable":1}}}}"#,
    ),
    (
        "",
        "v1",
        "services",
        r#"{"metadata":{"name":"web","namespace":"default"},"spec":{"selector":{"app":"web"},"ports":[{"name":"http","port":80,"targetPort":"http"},{"name":"https","port":443,"protocol":"TCP"}]}}"#,
    ),
    (
        "",
        "v1",
        "nodes",
        r#"{"metadata":{"name":"node-1","labels":{"kubernetes.io/os":"linux"}},"spec":{"podCIDR":"10.0.0.0/24","taints":[{"key":"k","effect":"NoSchedule"}]},"status":{"capacity":{"cpu":"4","memory":"8Gi"},"conditions":[{"type":"Ready","status":"True"}],"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}"#,
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "clusterroles",
        r#"{"metadata":{"name":"reader"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get","list"]}]}"#,
    ),
    (
        "",
        "v1",
        "events",
        r#"{"metadata":{"name":"web-0.1","namespace":"default"},"involvedObject":{"kind":"Pod","namespace":"default","name":"web-0"},"reason":"Started","message":"Started container","type":"Normal","count":3,"firstTimestamp":"2026-01-02T03:04:05Z","lastTimestamp":"2026-01-02T03:05:05Z"}"#,
    ),
    (
        "batch",
        "v1",
        "jobs",
        r#"{"metadata":{"name":"once","namespace":"default"},"spec":{"completions":2,"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"busybox","command":["true"]}]}}}}"#,
    ),
    (
        "",
        "v1",
        "secrets",
        r#"{"metadata":{"name":"token","namespace":"kube-system"},"type":"Opaque","data":{"k":"dg=="}}"#,
    ),
];

/// An object as it is stored, in its stored shape.
#[derive(Clone)]
pub(super) struct Object {
    pub(super) resource: &'static Resource,
    pub(super) value: Value,
}

/// A few objects of different kinds, ready for the store, with all that a create fills in.
pub(super) fn objects() -> Vec<Object> {
    let prepared = SENT.iter().map(|(group, version, plural, json)| {
        let resource = resources::find(group, version, plural).expect("a kind of this server");
        let mut value: Value = serde_json::from_str(json).expect("JSON");
        let fields = value.as_object_mut().expect("an object");
        fields.insert("apiVersion", resource.api_version().into());
        fields.insert("kind", resource.kind.clone().into());
        let namespace = value["metadata"]["namespace"].as_str().map(str::to_owned);
        let context = resources::Context {
            now_s: NOW_S,
            namespace: namespace.as_deref(),
            name: None,
            asked: None,
        };
        let prepared = resources::prepare_create_with(resource, &mut value, &context, |object| {
            super::patches::note(resource, "", None, object);
        });
        prepared.unwrap_or_else(|refusal| panic!("{plural}: {refusal:?}"));
        // Always the same bytes.
        value["metadata"]["uid"] = format!("uid-of-{plural}").into();
        Object { resource, value }
    });
    prepared.collect()
}

/// The key of an object in the store.
pub(super) fn key_of(resource: &Resource, value: &Value) -> String {
    let text = |field: &str| value["metadata"][field].as_str();
    resource.key(text("namespace"), text("name").unwrap_or_default())
}

/// Settings of a store that does nothing on its own, with files so small that they fill up. `is_failed` is set when the
/// disk fails in a way that would end a server.
pub(super) fn options(is_failed: &Arc<AtomicBool>) -> Options {
    let is_failed = is_failed.clone();
    Options {
        segment_bytes_first: 32 << 10,
        segment_bytes: 64 << 10,
        part_bytes: 8 << 10,
        shelve_min_bytes: 4 << 10,
        shelve_step_bytes: 4 << 10,
        shelve_pause: Duration::ZERO,
        history_age: Duration::ZERO,
        history_bytes_min: 32 << 10,
        background: false,
        committer_thread: false,
        on_fatal: Arc::new(move |_| is_failed.store(true, Ordering::SeqCst)),
        ..Options::default()
    }
}

/// Opens the store on `disk`.
pub(super) fn open(disk: &SimDisk, options: Options) -> Result<Arc<Store>, OpenError> {
    Store::open(Arc::new(disk.clone()), options, Arc::new(KindArchiver::default()))
}

/// Makes one write and commits it.
pub(super) fn write(
    store: &Arc<Store>,
    resource: &str,
    key: &str,
    precondition: Precondition,
    change: Change,
) -> Result<Written, WriteError> {
    let write = Write {
        resource: Arc::from(resource),
        key: key.to_owned(),
        precondition,
        uid: None,
        change,
    };
    let mut written = pin!(store.write(write));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..100 {
        if let Poll::Ready(result) = written.as_mut().poll(&mut context) {
            return result;
        }
        store.commit();
    }
    panic!("a write is never answered");
}

/// Writes `value`.
pub(super) fn put(store: &Arc<Store>, resource: &Resource, value: &Value) -> Result<Written, WriteError> {
    let prepared: Prepared = resources::encode(resource, value).expect("an object");
    let key = key_of(resource, value);
    write(store, &resource.storage, &key, Precondition::Any, Change::Put(prepared))
}

/// Puts a file on a disk: `bytes`, then zeroes up to `len`.
pub(super) fn put_file(disk: &SimDisk, name: &str, bytes: &[u8], len: usize) {
    let Ok(file) = disk.create(name) else { return };
    file.allocate(len.max(bytes.len()) as u64).expect("there is no limit");
    file.write_at(bytes, 0).expect("nothing is published");
    file.sync_data().expect("no fault was planned");
    disk.sync_dir().expect("no fault was planned");
}

/// The whole file.
pub(super) fn file(disk: &SimDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name).expect("it was listed");
    let mut bytes = vec![0; file.len().expect("it is open") as usize];
    file.read_at(&mut bytes, 0).expect("it is open");
    bytes
}

/// A store of the objects above and some more: half of them shelved, some changed since, one deleted.
pub(super) fn story(disk: &SimDisk, options: Options) -> Arc<Store> {
    let store = open(disk, options).expect("a new store");
    let objects = objects();
    for Object { resource, value } in &objects {
        put(&store, resource, value).expect("room");
    }
    let numbered = |number: usize| {
        let mut value = objects[0].value.clone();
        value["metadata"]["name"] = format!("settings-{number}").into();
        value["metadata"]["namespace"] = ["default", "kube-system"][number % 2].into();
        let app = ["web", "db", ""][number % 3];
        value["metadata"]["labels"] = Value::from(serde_json::json!({"app": app, "number": number.to_string()}));
        if let Some(metadata) = value["metadata"].as_object_mut().filter(|_| number.is_multiple_of(2)) {
            metadata.remove("managedFields");
        }
        value
    };
    for number in 0..6 {
        put(&store, objects[0].resource, &numbered(number)).expect("room");
    }
    store.maintain(true);
    for number in 4..9 {
        put(&store, objects[0].resource, &numbered(number)).expect("room");
    }
    let gone = numbered(1);
    let prepared = resources::encode(objects[0].resource, &gone).expect("an object");
    let key = key_of(objects[0].resource, &gone);
    write(
        &store,
        "configmaps",
        &key,
        Precondition::Exists,
        Change::Delete(prepared),
    )
    .expect("it is there");
    store
}
