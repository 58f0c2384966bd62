//! Garbage collection: what goes, what stays, and in which order.

use serde_json::{Value, json};

use crate::Cluster;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn path(name: &str) -> String {
    format!("{MAPS}/{name}")
}

/// A ConfigMap with these owners.
fn map(name: &str, owners: &[Value]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

/// A reference to a ConfigMap that was made.
fn owner(made: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": made["metadata"]["name"], "uid": made["metadata"]["uid"]})
}

fn blocking(made: &Value) -> Value {
    let mut owner = owner(made);
    owner["blockOwnerDeletion"] = true.into();
    owner
}

fn lost(kind: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "name": "lost", "uid": uid})
}

/// What was written before has been looked at: later garbage is gone.
async fn settled(cluster: &Cluster, name: &str) {
    cluster.made(MAPS, &map(name, &[lost("ConfigMap", "nobody")])).await;
    cluster.gone(&path(name)).await;
}

async fn delete(cluster: &Cluster, name: &str, policy: &str) {
    let answer = cluster
        .admin
        .delete(&format!("{}?propagationPolicy={policy}", path(name)))
        .await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

#[tokio::test]
async fn dependents_of_dependents_go_after_their_owner() {
    let cluster = Cluster::start().await;
    let one = cluster.made(MAPS, &map("one", &[])).await;
    let two = cluster.made(MAPS, &map("two", &[owner(&one)])).await;
    cluster.made(MAPS, &map("three", &[owner(&two)])).await;
    cluster.made(MAPS, &map("other", &[])).await;
    delete(&cluster, "one", "Background").await;
    cluster.gone(&path("three")).await;
    cluster.gone(&path("two")).await;
    assert_eq!(cluster.admin.get(&path("other")).await.code, 200);
}

#[tokio::test]
async fn who_has_an_owner_left_stays_and_forgets_the_one_that_went() {
    let cluster = Cluster::start().await;
    let one = cluster.made(MAPS, &map("one", &[])).await;
    let two = cluster.made(MAPS, &map("two", &[])).await;
    cluster.made(MAPS, &map("both", &[owner(&one), owner(&two)])).await;
    delete(&cluster, "one", "Background").await;
    let forgot = |answer: &crate::Answer| answer.body["metadata"]["ownerReferences"] == json!([owner(&two)]);
    cluster.until(&path("both"), forgot).await;
}

#[tokio::test]
async fn in_the_foreground_an_owner_waits_for_those_that_block_it() {
    let cluster = Cluster::start().await;
    let one = cluster.made(MAPS, &map("one", &[])).await;
    let mut held = map("held", &[blocking(&one)]);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.made(MAPS, &held).await;
    cluster.made(MAPS, &map("free", &[owner(&one)])).await;
    delete(&cluster, "one", "Foreground").await;
    let deleting = |answer: &crate::Answer| answer.body["metadata"]["deletionTimestamp"].is_string();
    cluster.until(&path("held"), deleting).await;
    settled(&cluster, "later").await;
    assert_eq!(
        cluster.admin.get(&path("one")).await.body["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    let freed = cluster
        .admin
        .merge(&path("held"), &json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!(freed.code, 200, "{}", freed.body);
    cluster.gone(&path("one")).await;
    cluster.gone(&path("held")).await;
    // What does not block goes afterwards.
    cluster.gone(&path("free")).await;
}

#[tokio::test]
async fn orphans_stay_without_their_owner() {
    let cluster = Cluster::start().await;
    let one = cluster.made(MAPS, &map("one", &[])).await;
    for number in 0..40 {
        cluster
            .made(MAPS, &map(&format!("orphan-{number}"), &[owner(&one)]))
            .await;
    }
    delete(&cluster, "one", "Orphan").await;
    cluster.gone(&path("one")).await;
    settled(&cluster, "later").await;
    for number in 0..40 {
        let orphan = cluster.admin.get(&path(&format!("orphan-{number}"))).await;
        assert_eq!(
            (orphan.code.as_u16(), &orphan.body["metadata"]["ownerReferences"]),
            (200, &Value::Null)
        );
    }
}

#[tokio::test]
async fn only_who_is_known_to_have_no_owner_goes() {
    let cluster = Cluster::start().await;
    let one = cluster.made(MAPS, &map("one", &[])).await;
    cluster
        .made(
            MAPS,
            &map(
                "unknown-kind",
                &[json!({"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "u"})],
            ),
        )
        .await;
    // A namespaced owner of an object without a namespace is a mistake that nothing is deleted for.
    let role = json!({"metadata": {"name": "wide", "ownerReferences": [owner(&one)]}});
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    cluster.made(roles, &role).await;
    // One that has the name, but is another one.
    let mut other = owner(&one);
    other["uid"] = "another".into();
    cluster.made(MAPS, &map("of-another", &[other])).await;
    cluster.gone(&path("of-another")).await;
    cluster.made(MAPS, &map("of-a-node", &[lost("Node", "no-node")])).await;
    cluster.gone(&path("of-a-node")).await;
    settled(&cluster, "later").await;
    assert_eq!(cluster.admin.get(&path("unknown-kind")).await.code, 200);
    assert_eq!(cluster.admin.get(&format!("{roles}/wide")).await.code, 200);
}

#[tokio::test]
async fn owners_that_wait_for_each_other_do_not_wait_for_ever() {
    let cluster = Cluster::start().await;
    let one = cluster.made(MAPS, &map("one", &[])).await;
    let two = cluster.made(MAPS, &map("two", &[blocking(&one)])).await;
    let circle = json!({"metadata": {"ownerReferences": [blocking(&two)]}});
    assert_eq!(cluster.admin.merge(&path("one"), &circle).await.code, 200);
    delete(&cluster, "one", "Foreground").await;
    cluster.gone(&path("one")).await;
    cluster.gone(&path("two")).await;
}

#[tokio::test]
async fn a_circle_of_many_does_not_wait_for_ever() {
    let cluster = Cluster::start().await;
    let first = cluster.made(MAPS, &map("first", &[])).await;
    let mut last = first;
    let names = ["second", "third", "fourth"];
    for name in names {
        last = cluster.made(MAPS, &map(name, &[blocking(&last)])).await;
    }
    let circle = json!({"metadata": {"ownerReferences": [blocking(&last)]}});
    assert_eq!(cluster.admin.merge(&path("first"), &circle).await.code, 200);
    delete(&cluster, "first", "Foreground").await;
    for name in ["first"].into_iter().chain(names) {
        cluster.gone(&path(name)).await;
    }
}

#[tokio::test]
async fn what_happened_while_nobody_collected_is_made_up_for() {
    let cluster = Cluster::without_controllers().await;
    let one = cluster.made(MAPS, &map("one", &[])).await;
    let two = cluster.made(MAPS, &map("two", &[])).await;
    let three = cluster.made(MAPS, &map("three", &[])).await;
    cluster.made(MAPS, &map("of-one", &[owner(&one)])).await;
    cluster.made(MAPS, &map("of-two", &[blocking(&two)])).await;
    cluster.made(MAPS, &map("of-three", &[owner(&three)])).await;
    delete(&cluster, "one", "Background").await;
    delete(&cluster, "two", "Foreground").await;
    delete(&cluster, "three", "Orphan").await;
    let mut cluster = cluster.restarted().await;
    cluster.start_controllers();
    for name in ["of-one", "of-two", "two", "three"] {
        cluster.gone(&path(name)).await;
    }
    assert_eq!(cluster.admin.get(&path("of-three")).await.code, 200);
}

#[tokio::test]
async fn thousands_of_dependents_go_with_one_owner() {
    let cluster = Cluster::start().await;
    let one = cluster.made(MAPS, &map("one", &[])).await;
    let count = 2000;
    for batch in 0..count / 50 {
        let maps = (0..50).map(|number| map(&format!("m-{batch}-{number}"), &[blocking(&one)]));
        let made = maps.map(|map| {
            let admin = cluster.admin.clone();
            tokio::spawn(async move { admin.post(MAPS, &map).await.code })
        });
        for made in made.collect::<Vec<_>>() {
            assert_eq!(made.await.unwrap(), 201);
        }
    }
    delete(&cluster, "one", "Foreground").await;
    cluster.gone(&path("one")).await;
    // Roots of the cluster's certificates are there by themselves.
    let left = cluster.admin.get(MAPS).await.body["items"].as_array().unwrap().len();
    assert!(left < 10, "{left} are left");
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// Defines widgets, and makes one.
async fn widget(cluster: &Cluster) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    cluster.made(DEFINITIONS, &definition).await;
    cluster.until(WIDGETS, |answer| answer.code == 200).await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    cluster.made(WIDGETS, &widget).await
}

fn of_widget(widget: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": widget["metadata"]["uid"], "blockOwnerDeletion": true})
}

#[tokio::test]
async fn what_custom_objects_own_goes_with_them_however_soon_they_go() {
    let cluster = Cluster::start().await;
    let widget = widget(&cluster).await;
    cluster.made(MAPS, &map("owned", &[of_widget(&widget)])).await;
    assert_eq!(cluster.admin.delete(&format!("{WIDGETS}/w")).await.code, 200);
    cluster.gone(&path("owned")).await;
}

#[tokio::test]
async fn what_custom_objects_own_goes_when_their_definition_goes() {
    let cluster = Cluster::start().await;
    let widget = widget(&cluster).await;
    for number in 0..20 {
        cluster
            .made(MAPS, &map(&format!("owned-{number}"), &[of_widget(&widget)]))
            .await;
    }
    let deleted = cluster
        .admin
        .delete(&format!("{DEFINITIONS}/widgets.example.com"))
        .await;
    assert_eq!(deleted.code, 200, "{}", deleted.body);
    for number in 0..20 {
        cluster.gone(&path(&format!("owned-{number}"))).await;
    }
}

#[tokio::test]
async fn orphans_of_an_owner_that_was_being_deleted_at_the_end_stay_after_a_restart() {
    for _ in 0..3 {
        let cluster = Cluster::without_controllers().await;
        let set = json!({"metadata": {"name": "web"}, "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        let sets = "/apis/apps/v1/namespaces/default/replicasets";
        let set = cluster.made(sets, &set).await;
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": set["metadata"]["uid"], "controller": true});
        let pod = json!({"metadata": {"name": "p", "labels": {"app": "web"}, "ownerReferences": [owner]},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let pods = "/api/v1/namespaces/default/pods";
        cluster.made(pods, &pod).await;
        cluster
            .admin
            .delete(&format!("{sets}/web?propagationPolicy=Orphan"))
            .await;
        let mut cluster = cluster.restarted().await;
        cluster.start_controllers();
        cluster.gone(&format!("{sets}/web")).await;
        settled(&cluster, "later").await;
        let pod = cluster.admin.get(&format!("{pods}/p")).await;
        assert_eq!(
            (pod.code.as_u16(), &pod.body["metadata"]["ownerReferences"]),
            (200, &Value::Null)
        );
    }
}

#[tokio::test]
async fn an_owner_that_is_named_by_another_name_is_none() {
    let cluster = Cluster::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let owner = cluster.made(maps, &json!({"metadata": {"name": "owner"}})).await;
    let owned = |name: &str, kind: &str, by: &str| {
        json!({"metadata": {"name": name, "ownerReferences": [
            {"apiVersion": "v1", "kind": kind, "name": by, "uid": owner["metadata"]["uid"]}]}})
    };
    // The owner is seen first by one that names it rightly.
    cluster.made(maps, &owned("right", "ConfigMap", "owner")).await;
    cluster.made(maps, &owned("other-kind", "Secret", "owner")).await;
    cluster.made(maps, &owned("other-name", "ConfigMap", "master")).await;
    cluster
        .made("/api/v1/namespaces", &json!({"metadata": {"name": "far"}}))
        .await;
    cluster
        .made("/api/v1/namespaces/far/configmaps", &owned("far", "ConfigMap", "owner"))
        .await;
    cluster.gone(&format!("{maps}/other-kind")).await;
    cluster.gone(&format!("{maps}/other-name")).await;
    cluster.gone("/api/v1/namespaces/far/configmaps/far").await;
    assert_eq!(cluster.admin.get(&format!("{maps}/right")).await.code, 200);
}
