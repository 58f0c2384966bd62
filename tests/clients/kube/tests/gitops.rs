//! A GitOps loop brings a cluster to what a repository says, and then rests: no difference, no write, no revision.

use flatkube_clients::gitops::{Cluster, TRACKED, manifests};
use flatkube_clients::server::{Server, namespace, revision};
use flatkube_clients::soon;
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::discovery::{Discovery, verbs};
use kube::{Client, ResourceExt};
use serde_json::json;

const NAMESPACE: &str = "shop";

/// Kinds of the fixtures that have no namespace.
const OF_THE_CLUSTER: [&str; 11] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "CSIDriver",
    "CustomResourceDefinition",
    "IngressClass",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PriorityClass",
    "RuntimeClass",
    "StorageClass",
];

fn repository() -> Vec<DynamicObject> {
    [
        include_str!("../../../fixtures/access.yaml"),
        include_str!("../../../fixtures/batch.yaml"),
        include_str!("../../../fixtures/database.yaml"),
        include_str!("../../../fixtures/monitoring.yaml"),
        include_str!("../../../fixtures/platform.yaml"),
        include_str!("../../../fixtures/pods.yaml"),
        include_str!("../../../fixtures/shop.yaml"),
    ]
    .iter()
    .flat_map(|text| manifests(text, NAMESPACE, &OF_THE_CLUSTER))
    .collect()
}

/// One round: compare, and carry out. Returns the names of what was applied and how many were pruned.
async fn round(cluster: &mut Cluster, wanted: &[DynamicObject]) -> (Vec<String>, usize) {
    let plan = soon("a comparison", cluster.compare("shop", wanted))
        .await
        .expect("compared");
    soon("what was applied", cluster.sync(&plan)).await.expect("applied");
    (plan.applied(), plan.prune.len())
}

/// Two more rounds find nothing to do, and nothing was written in between, by anyone.
async fn at_rest(cluster: &mut Cluster, client: &Client, wanted: &[DynamicObject]) {
    let before = revision(client).await;
    for _ in 0..2 {
        assert_eq!(round(cluster, wanted).await, (Vec::new(), 0));
    }
    // What was compared as equal is equal: applied all the same, it is not written.
    for object in wanted {
        let mut object = object.clone();
        object.labels_mut().insert(TRACKED.to_owned(), "shop".to_owned());
        cluster.apply(&object).await.expect("applied once more");
    }
    assert_eq!(revision(client).await, before, "something was written");
}

#[tokio::test]
async fn a_repository_comes_to_rest_and_stays_at_rest() {
    let server = Server::start();
    let client = server.client().await;
    namespace(&client, NAMESPACE).await;
    let mut cluster = soon("all lists", Cluster::observe(client.clone()))
        .await
        .expect("observed");
    let mut wanted = repository();

    let (applied, pruned) = round(&mut cluster, &wanted).await;
    assert_eq!((applied.len(), pruned), (wanted.len(), 0));
    at_rest(&mut cluster, &client, &wanted).await;

    // One object changes, one is new, one is taken out.
    let image = "/spec/template/spec/containers/0/image";
    let frontend = wanted
        .iter_mut()
        .find(|object| object.name_any() == "frontend" && object.data.pointer(image).is_some())
        .expect("a Deployment");
    *frontend.data.pointer_mut(image).expect("found above") = json!("registry.example.com/shop/frontend:next");
    let out = wanted
        .iter()
        .position(|object| object.name_any() == "shop-config")
        .expect("a ConfigMap");
    wanted.remove(out);
    wanted.extend(manifests(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fresh}\ndata: {a: b}\n",
        NAMESPACE,
        &[],
    ));
    assert_eq!(
        round(&mut cluster, &wanted).await,
        (vec!["ConfigMap/fresh".to_owned(), "Deployment/frontend".to_owned()], 1)
    );
    at_rest(&mut cluster, &client, &wanted).await;

    // Drift: somebody changes what the repository decides, and something that it does not.
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let drift = json!({"spec": {"template": {"spec": {"containers": [{"name": "cart", "image": "elsewhere:1"}]}}}});
    let by_hand = PatchParams {
        field_manager: Some("hand".to_owned()),
        ..PatchParams::default()
    };
    deployments
        .patch("cart", &by_hand, &Patch::Strategic(drift))
        .await
        .expect("patched");
    let note = json!({"metadata": {"annotations": {"example.com/note": "mine"}}});
    let noted = deployments
        .patch("frontend", &by_hand, &Patch::Merge(note))
        .await
        .expect("patched");
    let version = noted.resource_version().expect("one");
    soon(
        "the watch",
        cluster.until(|live| {
            live.values()
                .any(|object| object.resource_version().as_ref() == Some(&version))
        }),
    )
    .await;
    assert_eq!(
        round(&mut cluster, &wanted).await,
        (vec!["Deployment/cart".to_owned()], 0)
    );
    at_rest(&mut cluster, &client, &wanted).await;
    let frontend = deployments.get("frontend").await.expect("there");
    assert_eq!(
        frontend.annotations()["example.com/note"],
        "mine",
        "another's field stays"
    );

    // Nothing is wanted any more: all goes that the loop has made, and nothing else.
    let others = cluster.live(|_, object| !object.labels().contains_key(TRACKED)).len();
    let (applied, pruned) = round(&mut cluster, &[]).await;
    assert!(applied.is_empty());
    assert_eq!(pruned, wanted.len());
    assert_eq!(
        cluster.live(|_, object| !object.labels().contains_key(TRACKED)).len(),
        others
    );
    assert_eq!(round(&mut cluster, &[]).await, (Vec::new(), 0));
}

#[tokio::test]
async fn definitions_come_with_their_objects() {
    let server = Server::start();
    let client = server.client().await;
    namespace(&client, NAMESPACE).await;
    let mut cluster = soon("all lists", Cluster::observe(client.clone()))
        .await
        .expect("observed");
    let before = cluster.kinds();
    let definition = include_str!("../../../fixtures/widgets.yaml").replace("GROUP", "gitops.example.com");
    let widget = "apiVersion: gitops.example.com/v1\nkind: Widget\nmetadata: {name: one}\nspec: {size: 3}\n";
    let mut wanted = manifests(&definition, NAMESPACE, &OF_THE_CLUSTER);
    wanted.extend(manifests(widget, NAMESPACE, &[]));
    let (applied, _) = round(&mut cluster, &wanted).await;
    assert_eq!(
        applied,
        ["CustomResourceDefinition/widgets.gitops.example.com", "Widget/one"]
    );
    assert_eq!(cluster.kinds(), before + 1);
    // Its defaults, and the definition's own status, are no differences.
    at_rest(&mut cluster, &client, &wanted).await;

    // The kind goes with its object.
    let (_, pruned) = round(&mut cluster, &[]).await;
    assert_eq!(pruned, 2);
    soon(
        "the definition's end",
        cluster.until(|live| {
            !live
                .keys()
                .any(|(_, kind, _, _)| kind == "Widget" || kind == "CustomResourceDefinition")
        }),
    )
    .await;
}

#[tokio::test]
async fn long_lists_are_read_in_pages() {
    const OBJECTS: usize = 1_234;
    let server = Server::start();
    let client = server.client().await;
    namespace(&client, NAMESPACE).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    stream::iter(0..OBJECTS)
        .map(|number| {
            let map = ConfigMap {
                metadata: ObjectMeta {
                    name: Some(format!("m-{number}")),
                    ..ObjectMeta::default()
                },
                ..ConfigMap::default()
            };
            let maps = maps.clone();
            async move { maps.create(&PostParams::default(), &map).await }
        })
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await
        .expect("created");

    let mut names = Vec::new();
    let mut sizes = Vec::new();
    let mut options = ListParams::default().limit(500);
    loop {
        let page = maps.list(&options).await.expect("a page");
        sizes.push(page.items.len());
        names.extend(page.items.iter().map(ResourceExt::name_any));
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => options = options.continue_token(&token),
            _ => break,
        }
    }
    assert_eq!(sizes[..2], [500, 500]);
    names.sort();
    names.dedup();
    assert!(names.len() >= OBJECTS, "{}", names.len());

    let cluster = soon("all lists", Cluster::observe(client.clone()))
        .await
        .expect("observed");
    let seen = cluster.live(|(_, kind, namespace, _), _| kind == "ConfigMap" && namespace == NAMESPACE);
    assert_eq!(seen.len(), names.len());
}

#[tokio::test]
async fn both_ways_of_discovery_find_the_same_and_all_of_it_can_be_listed() {
    let server = Server::start();
    let client = server.client().await;
    let names = |discovery: &Discovery| {
        let mut names: Vec<String> = discovery
            .groups()
            .flat_map(|group| {
                group
                    .versions()
                    .flat_map(|version| group.versioned_resources(version))
                    .map(|(resource, capabilities)| {
                        format!(
                            "{}/{} {} {:?}",
                            resource.group, resource.version, resource.plural, capabilities.operations
                        )
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
        names.sort();
        names
    };
    let aggregated = Discovery::new(client.clone())
        .run_aggregated()
        .await
        .expect("discovered");
    let plain = Discovery::new(client.clone()).run().await.expect("discovered");
    assert_eq!(names(&aggregated), names(&plain));

    let mut listed = 0;
    for group in aggregated.groups() {
        for version in group.versions() {
            for (resource, capabilities) in group.versioned_resources(version) {
                if capabilities.supports_operation(verbs::LIST) {
                    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
                    let list = api.list(&ListParams::default().limit(500)).await;
                    let list = list.unwrap_or_else(|error| panic!("{resource:?}: {error}"));
                    assert!(list.metadata.resource_version.is_some(), "{resource:?}");
                    api.list_metadata(&ListParams::default().limit(500))
                        .await
                        .unwrap_or_else(|error| panic!("{resource:?}: {error}"));
                    listed += 1;
                }
            }
        }
    }
    assert!(listed >= 60, "{listed} kinds");
}
