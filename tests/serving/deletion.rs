//! What is deleted when, what holds it, and what a change of an object may not touch.

use std::time::Duration;

use flatkube::api::server::Limits;
use serde_json::{Value, json};

use crate::Started;
use crate::client::{Answer, Client};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NAMESPACES: &str = "/api/v1/namespaces";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

fn message(answer: &Answer) -> (u16, &str) {
    (answer.code.as_u16(), answer.body["message"].as_str().unwrap_or(""))
}

async fn made(admin: &Client, path: &str, body: &Value) -> Value {
    let answer = admin.post(path, body).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    answer.body
}

/// Asks until the answer is what is waited for.
async fn until(admin: &Client, path: &str, is: impl Fn(&Answer) -> bool) -> Answer {
    let found = async {
        loop {
            let answer = admin.get(path).await;
            if is(&answer) {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), found)
        .await
        .expect("what is waited for does not come")
}

#[tokio::test]
async fn a_name_that_is_still_going_is_told_so() {
    let started = Started::usual().await;
    let admin = started.admin();
    let mut held = map("a");
    held["metadata"]["finalizers"] = json!(["example.com/one"]);
    made(&admin, MAPS, &held).await;
    let kept = admin.delete(&format!("{MAPS}/a?orphanDependents=false")).await;
    assert_eq!(kept.code, 202, "the older option tells that the object stays");
    let again = admin.post(MAPS, &map("a")).await;
    assert_eq!(
        message(&again),
        (409, "object is being deleted: configmaps \"a\" already exists")
    );
    let mut named = map("a");
    named["metadata"]["generateName"] = "b-".into();
    let again = admin.post(&format!("{MAPS}?dryRun=All"), &named).await;
    assert_eq!(
        message(&again),
        (
            409,
            "object is being deleted: configmaps \"a\" already exists, the server was not able to generate a unique name \
             for the object"
        )
    );
    assert_eq!(again.headers["retry-after"], "1");
}

#[tokio::test]
async fn a_deletion_is_not_begun_or_changed_by_an_update() {
    let started = Started::usual().await;
    let admin = started.admin();
    let created = made(&admin, MAPS, &map("a")).await;
    let patch = |field: &str, value: Value| json!({"metadata": {field: value}});
    let path = format!("{MAPS}/a");
    for (field, value) in [
        ("deletionTimestamp", json!("2020-01-01T00:00:00Z")),
        ("deletionGracePeriodSeconds", json!(5)),
    ] {
        let refused = admin.merge(&path, &patch(field, value.clone())).await;
        let cause = json!({
            "reason": "FieldValueInvalid",
            "message": format!("Invalid value: {value}: field is immutable"),
            "field": format!("metadata.{field}"),
        });
        assert_eq!(
            refused.body["details"]["causes"],
            json!([cause, cause]),
            "two layers tell"
        );
    }
    for (field, value) in [
        ("creationTimestamp", json!("2020-01-01T00:00:00Z")),
        ("generation", json!(7)),
        ("selfLink", json!("/x")),
    ] {
        let same = admin.merge(&path, &patch(field, value)).await;
        assert_eq!(same.body, created, "{field} is nobody's to set");
    }
}

#[tokio::test]
async fn a_precondition_names_the_object_or_its_revision() {
    let started = Started::usual().await;
    let admin = started.admin();
    let created = made(&admin, NAMESPACES, &json!({"metadata": {"name": "n"}})).await;
    let (uid, revision) = (&created["metadata"]["uid"], &created["metadata"]["resourceVersion"]);
    let with = |conditions: Value| json!({"preconditions": conditions});
    let path = format!("{NAMESPACES}/n");
    let refused = admin.delete_with(&path, &with(json!({"uid": "other"}))).await;
    let text = format!(
        "Operation cannot be fulfilled on namespaces \"n\": Precondition failed: UID in precondition: other, UID in object \
         meta: {}",
        uid.as_str().unwrap()
    );
    assert_eq!(message(&refused), (409, text.as_str()));
    let refused = admin.delete_with(&path, &with(json!({"resourceVersion": "1"}))).await;
    let text = format!(
        "Operation cannot be fulfilled on namespaces \"n\": Precondition failed: ResourceVersion in precondition: 1, \
         ResourceVersion in object meta: {}",
        revision.as_str().unwrap()
    );
    assert_eq!(message(&refused), (409, text.as_str()));
    let taken = admin
        .delete_with(&path, &with(json!({"uid": uid, "resourceVersion": revision})))
        .await;
    assert_eq!(taken.body["status"]["phase"], "Terminating");

    made(&admin, MAPS, &map("a")).await;
    let refused = admin.delete(&format!("{MAPS}/a?uid=other")).await;
    assert_eq!(refused.code, 409, "{}", refused.body);
}

#[tokio::test]
async fn what_is_created_names_no_revision_and_its_owners_once() {
    let started = Started::usual().await;
    let admin = started.admin();
    let mut odd = map("a");
    odd["metadata"]["resourceVersion"] = "7".into();
    let refused = admin.post(MAPS, &odd).await;
    assert_eq!(
        message(&refused),
        (500, "resourceVersion should not be set on objects to be created")
    );
    odd["metadata"]["resourceVersion"] = "0".into();
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u-1"});
    odd["metadata"]["ownerReferences"] = json!([owner, owner]);
    let created = admin.post(MAPS, &odd).await;
    assert_eq!(created.body["metadata"]["ownerReferences"], json!([owner]));
    assert_eq!(
        created.headers["warning"],
        "299 - \".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and \
         may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: u-1\""
    );
    let patched = admin
        .merge(
            &format!("{MAPS}/a"),
            &json!({"metadata": {"ownerReferences": [owner, owner]}}),
        )
        .await;
    assert_eq!(patched.body, created.body);
    assert!(
        patched.headers["warning"]
            .to_str()
            .unwrap()
            .contains("after mutating admission")
    );
}

#[tokio::test]
async fn kinds_say_whether_an_update_names_its_revision_and_may_create() {
    let started = Started::usual().await;
    let admin = started.admin();
    let classes = "/apis/node.k8s.io/v1/runtimeclasses";
    let class = json!({"metadata": {"name": "r"}, "handler": "h"});
    assert_eq!(admin.put(&format!("{classes}/r"), &class).await.code, 201);
    let refused = admin.put(&format!("{classes}/r"), &class).await;
    assert_eq!(
        message(&refused),
        (
            422,
            "runtimeclasses.node.k8s.io \"r\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified \
             for an update"
        )
    );
    let refused = admin
        .merge(&format!("{classes}/r"), &json!({"metadata": {"resourceVersion": null}}))
        .await;
    assert_eq!(refused.code, 422, "a patch may not take it out either");
    let mut odd = map("a");
    odd["metadata"]["uid"] = "other".into();
    let lease = json!({"metadata": {"name": "l", "uid": "other"}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let refused = admin.put(path, &lease).await;
    assert!(
        message(&refused).1.ends_with("UID in object meta: "),
        "{}",
        refused.body
    );
}

#[tokio::test]
async fn a_namespace_tells_what_holds_it() {
    let started = Started::with(Limits::default(), true).await;
    let admin = started.admin();
    made(&admin, NAMESPACES, &json!({"metadata": {"name": "n"}})).await;
    let maps = format!("{NAMESPACES}/n/configmaps");
    made(&admin, &maps, &map("free")).await;
    let mut held = map("held");
    held["metadata"]["finalizers"] = json!(["example.com/one"]);
    made(&admin, &maps, &held).await;
    // By itself a Job would leave its dependents behind, and wait for somebody to see to that.
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
    }}}});
    made(&admin, "/apis/batch/v1/namespaces/n/jobs", &job).await;
    let pods = format!("{NAMESPACES}/n/pods");
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"nodeName": "x", "containers": [{"name": "c", "image": "i"}]}});
    made(&admin, &pods, &pod).await;

    let path = format!("{NAMESPACES}/n");
    assert_eq!(admin.delete(&path).await.code, 200);
    let told = |answer: &Answer, kind: &str, field: &str| {
        let conditions = answer.body["status"]["conditions"].as_array();
        let found = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == kind);
        found.map(|condition| condition[field].as_str().unwrap_or("").to_owned())
    };
    let remaining = |text: &'static str| {
        move |answer: &Answer| told(answer, "NamespaceContentRemaining", "message").as_deref() == Some(text)
    };
    // Pods go first, and this one has a kubelet to wait for.
    until(
        &admin,
        &path,
        remaining("Some resources are remaining: pods. has 1 resource instances"),
    )
    .await;
    assert_eq!(
        admin.get(&format!("{maps}/free")).await.code,
        200,
        "what a Pod uses is there"
    );
    assert_eq!(admin.delete(&format!("{pods}/p?gracePeriodSeconds=0")).await.code, 200);
    let held = until(
        &admin,
        &path,
        remaining("Some resources are remaining: configmaps. has 1 resource instances"),
    )
    .await;
    assert_eq!(
        told(&held, "NamespaceFinalizersRemaining", "message").as_deref(),
        Some("Some finalizers are remaining: example.com/one in 1 resource instances")
    );
    let freed = admin
        .merge(&format!("{maps}/held"), &json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!(freed.code, 200);
    until(&admin, &path, |answer| answer.code == 404).await;
}

#[tokio::test]
async fn an_object_of_the_cluster_lies_in_no_namespace() {
    let started = Started::usual().await;
    let admin = started.admin();
    let class = json!({"metadata": {"name": "s", "namespace": "x"}, "provisioner": "e.com/p"});
    let created = made(&admin, "/apis/storage.k8s.io/v1/storageclasses", &class).await;
    assert_eq!(created["metadata"]["namespace"], Value::Null);
    let mut elsewhere = map("a");
    elsewhere["metadata"]["namespace"] = "other".into();
    assert_eq!(admin.post(MAPS, &elsewhere).await.code, 400);
}

#[tokio::test]
async fn a_token_is_refused_in_the_words_of_upstream_or_good_as_long_as_its_account_lives() {
    let started = Started::usual().await;
    let admin = started.admin();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    made(&admin, accounts, &json!({"metadata": {"name": "s"}})).await;
    let ask = async |account: &str, spec: Value| {
        let path = format!("{accounts}/{account}/token");
        let answer = admin.post(&path, &json!({"spec": spec})).await;
        (
            answer.code.as_u16(),
            answer.body["message"].as_str().unwrap_or("").to_owned(),
        )
    };
    let bound = |kind: &str, name: &str| json!({"audiences": [], "boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}});
    for (account, spec, code, text) in [
        (
            "none",
            json!({"audiences": []}),
            404,
            "serviceaccounts \"none\" not found",
        ),
        (
            "s",
            json!({"audiences": [], "expirationSeconds": 599}),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: may not \
             specify a duration less than 10 minutes",
        ),
        ("s", bound("Pod", "p"), 404, "pods \"p\" not found"),
        (
            "s",
            bound("ConfigMap", "c"),
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
    ] {
        assert_eq!(ask(account, spec).await, (code, text.to_owned()));
    }
    let given = admin
        .post(&format!("{accounts}/s/token"), &json!({"spec": {"audiences": []}}))
        .await;
    assert_eq!(given.code, 201, "{}", given.body);
    let token = given.body["status"]["token"].as_str().unwrap().to_owned();
    let review = async |token: &str| {
        let question = json!({"spec": {"token": token}});
        admin
            .post("/apis/authentication.k8s.io/v1/tokenreviews", &question)
            .await
            .body["status"]
            .clone()
    };
    let told = review(&token).await;
    assert_eq!(told["user"]["username"], "system:serviceaccount:default:s", "{told}");
    // A letter of its signature is another one.
    let last = if token.ends_with('A') { "Q" } else { "A" };
    let forged = format!("{}{last}", &token[..token.len() - 1]);
    assert_ne!(review(&forged).await["authenticated"], true);
    // Whoever comes back under its name is somebody else.
    assert_eq!(admin.delete(&format!("{accounts}/s")).await.code, 200);
    made(&admin, accounts, &json!({"metadata": {"name": "s"}})).await;
    assert_ne!(review(&token).await["authenticated"], true);
}
