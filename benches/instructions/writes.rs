//! The steps of a write, and the log.

use flatkube::patch::apply;
use flatkube::patch::managed::{self, OneVersion, Request, Typed};
use flatkube::patch::{self, PatchKind};
use flatkube::resources::{self, Context, Resource};
use flatkube::schema::{self, Expected, FieldValidation, Schema, Syntax};
use flatkube::store::{Durability, Write};
use flatkube::tree::Value;
use serde_json::json;

use crate::fixtures::{Data, Fixtures, LOGGED};
use crate::region::{counted, counted_once};
use crate::stored::{self, CREATED_S, config_maps, pods};
use crate::{Scenario, opened, protobuf};

const NOW: &str = "2026-01-02T03:04:05Z";

pub(crate) fn scenarios() -> Vec<Scenario> {
    let scenario = |name, data, rounds, run| Scenario {
        name,
        rounds,
        data,
        run,
    };
    vec![
        scenario("create_pod", Data::Nothing, 10, |_, rounds| {
            create(pods(), Syntax::Json, &stored::pod_body(7), rounds);
        }),
        scenario("create_pod_protobuf", Data::Nothing, 10, |_, rounds| {
            let sent = serde_json::from_slice(&stored::pod_body(7)).expect("JSON");
            create(pods(), Syntax::Protobuf, &protobuf::body(&sent), rounds);
        }),
        scenario("create_configmap", Data::Nothing, 50, |_, rounds| {
            create(config_maps(), Syntax::Json, &stored::config_map_body(7), rounds);
        }),
        scenario("status_patch_pod", Data::Nothing, 10, status_patch),
        scenario("patch_deployment", Data::Nothing, 10, |_, rounds| {
            change_deployment(rounds, |old, body| {
                let schema = Schema::of("apps", "v1", "Deployment").expect("a built-in kind");
                let patched = patch::apply(PatchKind::Strategic, old, body, schema, FieldValidation::Warn);
                patched.expect("it applies").value
            });
        }),
        scenario("apply_deployment", Data::Nothing, 10, |_, rounds| {
            change_deployment(rounds, |old, body| {
                let schema = Schema::of("apps", "v1", "Deployment").expect("a built-in kind");
                let typed = Typed::from(schema);
                let configuration: Value = serde_json::from_slice(body).expect("JSON");
                let request = deployer("2026-01-02T04:00:00Z");
                let applied = apply::apply(typed, &OneVersion(typed), Some(old), &configuration, &request, false);
                let applied = applied.expect("nobody has other values");
                applied.decoded(schema, old).expect("a valid object")
            });
        }),
        scenario("sidecar_from_json", Data::Nothing, 50, sidecar),
        scenario("recover_1000_records", Data::Delta, 1, |fixtures, _| {
            counted_once(|| {
                let store = opened::open(&fixtures.delta_folder(), Durability::Os);
                assert_eq!(store.view().count("pods", None), LOGGED as u64);
            });
        }),
        scenario("shelve_1000", Data::Delta, 1, |fixtures, _| {
            let store = fixtures.delta();
            counted_once(|| store.maintain(true));
            assert_eq!(store.stats().resources[0].delta_entries, 0);
        }),
        scenario("commit_1", Data::Delta, 200, |fixtures, rounds| {
            commit(fixtures, rounds, 1);
        }),
        scenario("commit_64", Data::Delta, 10, |fixtures, rounds| {
            commit(fixtures, rounds, 64);
        }),
    ]
}

/// Decoding, defaults and validation, `managedFields`, encoding: all that a create does before the store.
fn create(resource: &'static Resource, syntax: Syntax, body: &[u8], rounds: u64) {
    let expected = Expected {
        group: &resource.group,
        version: &resource.version,
        kind: &resource.kind,
    };
    let sent = schema::decode(body, syntax, &expected, FieldValidation::Warn).expect("a valid object");
    let namespace = sent.value["metadata"]["namespace"].as_str().map(str::to_owned);
    let context = Context {
        now_s: CREATED_S,
        namespace: namespace.as_deref(),
        name: None,
        asked: None,
    };
    counted(rounds, || {
        let decoded = schema::decode(body, syntax, &expected, FieldValidation::Warn);
        let mut object = decoded.expect("a valid object").value;
        resources::begin_create(resource, &mut object, &context).expect("a valid object");
        note(resource, None, &mut object, "");
        resources::finish_create(resource, &mut object, &context).expect("a valid object");
        resources::encode(resource, &object).expect("an object");
    });
}

fn note(resource: &Resource, live: Option<&Value>, object: &mut Value, subresource: &str) {
    let schema = Schema::of(&resource.group, &resource.version, &resource.kind).expect("a built-in kind");
    let request = Request {
        manager: "kubelet",
        api_version: "v1",
        subresource,
        now: NOW,
        resets: if subresource.is_empty() { &["status"] } else { &[] },
    };
    managed::update(schema, live, object, &request);
}

/// A kubelet's merge patch of `status`: parsing what is stored, patching, preparing, encoding.
fn status_patch(_: &Fixtures, rounds: u64) {
    let resource = pods();
    let schema = Schema::of("", "v1", "Pod").expect("a built-in kind");
    let mut pod = stored::pod(7, false);
    pod["status"] = json!({ "phase": "Pending", "qosClass": "Burstable" }).into();
    let stored = resources::encode(resource, &pod).expect("an object").json;
    let patch = stored::pod_status(7);
    let context = Context {
        now_s: CREATED_S,
        namespace: pod["metadata"]["namespace"].as_str(),
        name: pod["metadata"]["name"].as_str(),
        asked: None,
    };
    counted(rounds, || {
        let mut old = schema::read_stored(&stored, schema).expect("stored JSON");
        old["kind"] = "Pod".into();
        old["apiVersion"] = "v1".into();
        let patched = patch::apply(PatchKind::Merge, &old, &patch, schema, FieldValidation::Warn);
        let mut new = patched.expect("it applies").value;
        let status = Some("status");
        let begun = resources::begin_update(resource, status, &old, &mut new, &context).expect("a valid object");
        note(resource, Some(&old), &mut new, "status");
        resources::finish_update(&begun, resource, status, &old, &mut new, &context).expect("a valid object");
        resources::encode(resource, &new).expect("an object");
    });
}

/// What a pipeline applies, `{}` in it being the number of its run.
const DEPLOYMENT: &str = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","labels":{"app":"web","team":"shop"}},"spec":{"replicas":3,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"registry.example.com/shop/web:{}","ports":[{"name":"http","containerPort":8080}],"env":[{"name":"LOG_LEVEL","value":"info"},{"name":"CACHE","value":"redis:6379"}],"resources":{"requests":{"cpu":"250m","memory":"256Mi"},"limits":{"memory":"512Mi"}},"livenessProbe":{"httpGet":{"path":"/healthz","port":"http"},"periodSeconds":10},"volumeMounts":[{"name":"config","mountPath":"/etc/web"}]},{"name":"proxy","image":"registry.example.com/proxy:1.2","args":["--port=9090"]}],"volumes":[{"name":"config","configMap":{"name":"web"}}]}}}}"#;

fn deployer(now: &str) -> Request<'_> {
    Request {
        manager: "pipeline",
        api_version: "apps/v1",
        subresource: "",
        now,
        resets: &["status"],
    }
}

/// A pipeline rolls another image out: parsing what is stored, what `change` does of it, preparing, encoding. The Deployment was
/// applied, and its controller has written its status.
fn change_deployment(rounds: u64, change: impl Fn(&Value, &[u8]) -> Value) {
    let resource = resources::find("apps", "v1", "deployments").expect("a built-in kind");
    let schema = Schema::of("apps", "v1", "Deployment").expect("a built-in kind");
    let typed = Typed::from(schema);
    let configuration: Value = serde_json::from_str(&DEPLOYMENT.replace("{}", "1")).expect("JSON");
    let first = apply::apply(typed, &OneVersion(typed), None, &configuration, &deployer(NOW), false);
    let mut deployment = first.expect("valid").decoded(schema, &Value::Null).expect("valid");
    let context = Context {
        now_s: CREATED_S,
        namespace: Some("shop"),
        name: None,
        asked: None,
    };
    resources::prepare_create(resource, &mut deployment, &context).expect("a valid object");
    let created = deployment.clone();
    deployment["status"] = json!({"replicas": 3, "readyReplicas": 3, "observedGeneration": 1, "conditions": [
        {"type": "Available", "status": "True", "lastUpdateTime": NOW, "lastTransitionTime": NOW, "reason": "R", "message": "m"}]})
    .into();
    let controller = Request {
        manager: "kube-controller-manager",
        subresource: "status",
        resets: &[],
        ..deployer(NOW)
    };
    managed::update(schema, Some(&created), &mut deployment, &controller);
    let stored = resources::encode(resource, &deployment).expect("an object").json;
    let body = DEPLOYMENT.replace("{}", "2");
    counted(rounds, || {
        let mut old = schema::read_stored(&stored, schema).expect("stored JSON");
        old["kind"] = "Deployment".into();
        old["apiVersion"] = "apps/v1".into();
        let mut new = change(&old, body.as_bytes());
        let begun = resources::begin_update(resource, None, &old, &mut new, &context).expect("a valid object");
        apply::keep_times(&old, &mut new);
        resources::finish_update(&begun, resource, None, &old, &mut new, &context).expect("a valid object");
        resources::encode(resource, &new).expect("an object");
    });
}

fn sidecar(_: &Fixtures, rounds: u64) {
    let prepared = stored::prepared(pods(), &stored::pod(7, false));
    let [before, after] = prepared.halves().expect("a place for the revision");
    let json = [before, b"1234567", after].concat();
    counted(rounds, || {
        resources::archive("pods", &json).expect("stored JSON");
    });
}

/// Creates from the queue to the answer, so many in a batch: precondition, record, append, publication. The committer has no
/// thread of its own here.
fn commit(fixtures: &Fixtures, rounds: u64, together: usize) {
    let (store, runtime) = (opened::open_by_hand(&fixtures.delta_folder()), opened::runtime());
    let prepared = stored::prepared(pods(), &stored::pod(7, false));
    // Made before, and one batch more for the round that is not counted.
    let mut batches: Vec<Vec<Write>> = (0..=rounds as usize)
        .map(|round| {
            let numbers = round * together..(round + 1) * together;
            numbers
                .map(|number| stored::create(pods(), format!("namespace/created-{number:06}"), &prepared))
                .collect()
        })
        .collect();
    counted(rounds, || {
        let batch = batches.pop().expect("one for each round");
        opened::commit(&runtime, &store, batch);
    });
}
