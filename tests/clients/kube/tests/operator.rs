//! An operator as people write them with kube-rs: a kind derived from a struct, a controller that makes what an object asks
//! for, keeps it so, reports in the status, and cleans up before the object goes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use flatkube_clients::server::{Server, namespace, revision};
use flatkube_clients::soon;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{self, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher;
use kube::{Client, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const NAMESPACE: &str = "greetings";
const MANAGER: &str = "greeter-operator";
const FINALIZER: &str = "greeters.operator.example.com/cleanup";

/// Asks for ConfigMaps with a greeting.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "operator.example.com",
    version = "v1",
    kind = "Greeter",
    namespaced,
    status = "GreeterStatus",
    shortname = "gr",
    selectable = ".spec.language",
    scale(spec_replicas_path = ".spec.copies", status_replicas_path = ".status.copies"),
    printcolumn(name = "Message", type_ = "string", json_path = ".spec.message"),
    printcolumn(name = "Copies", type_ = "integer", json_path = ".status.copies"),
    validation = Rule::new("self.spec.copies < 5 || self.spec.message != 'spam'").message("no spam in bulk")
)]
#[serde(rename_all = "camelCase")]
struct GreeterSpec {
    /// What is said.
    #[schemars(length(min = 1, max = 100))]
    message: String,
    /// How often.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 10))]
    copies: i32,
    #[serde(default)]
    language: Language,
    /// Added to each greeting.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    more: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
enum Language {
    #[default]
    English,
    German,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
struct GreeterStatus {
    observed_generation: i64,
    copies: i32,
}

fn one() -> i32 {
    1
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Finalizer(#[source] Box<finalizer::Error<kube::Error>>),
}

struct Context {
    client: Client,
    cleaned: AtomicU32,
}

/// The children of an object by their names, as they are to be.
fn children(greeter: &Greeter) -> BTreeMap<String, ConfigMap> {
    let owner: OwnerReference = greeter.controller_owner_ref(&()).expect("an object of the server");
    (0..greeter.spec.copies)
        .map(|number| {
            let name = format!("{}-{number}", greeter.name_any());
            let mut data = greeter.spec.more.clone();
            data.insert("message".to_owned(), greeter.spec.message.clone());
            let child = ConfigMap {
                metadata: ObjectMeta {
                    name: Some(name.clone()),
                    namespace: greeter.namespace(),
                    labels: Some(BTreeMap::from([("greeter".to_owned(), greeter.name_any())])),
                    owner_references: Some(vec![owner.clone()]),
                    ..ObjectMeta::default()
                },
                data: Some(data),
                ..ConfigMap::default()
            };
            (name, child)
        })
        .collect()
}

async fn apply(greeter: &Greeter, context: &Context) -> Result<Action, kube::Error> {
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), NAMESPACE);
    let wanted = children(greeter);
    let options = PatchParams::apply(MANAGER).force();
    for (name, child) in &wanted {
        maps.patch(name, &options, &Patch::Apply(child)).await?;
    }
    let own = ListParams::default().labels(&format!("greeter={}", greeter.name_any()));
    for child in maps.list_metadata(&own).await? {
        if !wanted.contains_key(&child.name_any()) {
            gone(maps.delete(&child.name_any(), &DeleteParams::default()).await)?;
        }
    }
    let greeters: Api<Greeter> = Api::namespaced(context.client.clone(), NAMESPACE);
    let status = json!({
        "apiVersion": Greeter::api_version(&()),
        "kind": Greeter::kind(&()),
        "status": GreeterStatus {
            observed_generation: greeter.metadata.generation.unwrap_or_default(),
            copies: greeter.spec.copies,
        },
    });
    greeters
        .patch_status(&greeter.name_any(), &options, &Patch::Apply(status))
        .await?;
    Ok(Action::await_change())
}

/// Deleted, or gone before.
fn gone<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}

async fn cleanup(greeter: &Greeter, context: &Context) -> Result<Action, kube::Error> {
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), NAMESPACE);
    let own = ListParams::default().labels(&format!("greeter={}", greeter.name_any()));
    maps.delete_collection(&DeleteParams::default(), &own).await?;
    context.cleaned.fetch_add(1, Ordering::SeqCst);
    Ok(Action::await_change())
}

async fn reconcile(greeter: Arc<Greeter>, context: Arc<Context>) -> Result<Action, Failure> {
    let api: Api<Greeter> = Api::namespaced(context.client.clone(), NAMESPACE);
    finalizer(&api, FINALIZER, greeter, |event| async {
        match event {
            finalizer::Event::Apply(greeter) => apply(&greeter, &context).await,
            finalizer::Event::Cleanup(greeter) => cleanup(&greeter, &context).await,
        }
    })
    .await
    .map_err(|error| Failure::Finalizer(Box::new(error)))
}

/// A running operator.
struct Operator {
    context: Arc<Context>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<u32>,
    reconciled: tokio::sync::watch::Receiver<BTreeMap<String, u32>>,
}

impl Operator {
    fn start(client: &Client) -> Self {
        let context = Arc::new(Context {
            client: client.clone(),
            cleaned: AtomicU32::new(0),
        });
        let (stop, stopped) = oneshot::channel();
        let (done, reconciled) = tokio::sync::watch::channel(BTreeMap::new());
        let greeters: Api<Greeter> = Api::namespaced(client.clone(), NAMESPACE);
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
        let results = Controller::new(greeters, watcher::Config::default())
            .owns(maps, watcher::Config::default())
            .graceful_shutdown_on(async {
                let _ = stopped.await;
            })
            .run(
                reconcile,
                |_, _, _| Action::requeue(Duration::from_millis(100)),
                Arc::clone(&context),
            );
        let running = tokio::spawn(async move {
            let mut failures = 0;
            let mut results = std::pin::pin!(results);
            while let Some(result) = results.next().await {
                match result {
                    Ok((object, _)) => done.send_modify(|counts| *counts.entry(object.name).or_default() += 1),
                    Err(error) => {
                        eprintln!("reconciling: {error}");
                        failures += 1;
                    }
                }
            }
            failures
        });
        Operator {
            context,
            stop,
            running,
            reconciled,
        }
    }

    /// Stops it; how often a reconciliation failed.
    async fn end(self) -> u32 {
        drop(self.stop);
        soon("the controller's end", self.running).await.expect("it ends")
    }
}

fn greeter(name: &str, message: &str, copies: i32) -> Greeter {
    Greeter::new(
        name,
        GreeterSpec {
            message: message.to_owned(),
            copies,
            language: Language::English,
            more: BTreeMap::new(),
        },
    )
}

/// The object once its status is that of its newest generation, with so many copies.
async fn settled(api: &Api<Greeter>, name: &str, copies: i32) -> Greeter {
    let condition = move |object: Option<&Greeter>| {
        object.is_some_and(|greeter| {
            greeter.status.as_ref().is_some_and(|status| {
                Some(status.observed_generation) == greeter.metadata.generation && status.copies == copies
            })
        })
    };
    soon("the status", await_condition(api.clone(), name, condition))
        .await
        .expect("watched")
        .expect("there")
}

async fn messages(maps: &Api<ConfigMap>, name: &str) -> Vec<String> {
    let list = maps
        .list(&ListParams::default().labels(&format!("greeter={name}")))
        .await
        .expect("a list");
    list.items
        .iter()
        .map(|map| map.data.as_ref().expect("data")["message"].clone())
        .collect()
}

async fn install(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = Greeter::crd();
    definitions
        .patch(
            &definition.name_any(),
            &PatchParams::apply(MANAGER),
            &Patch::Apply(&definition),
        )
        .await
        .expect("a definition that kube-rs derives is accepted");
    soon(
        "the definition",
        await_condition(definitions, &definition.name_any(), conditions::is_crd_established()),
    )
    .await
    .expect("established");
}

#[tokio::test]
async fn an_operator_reconciles() {
    let server = Server::start();
    let client = server.client().await;
    namespace(&client, NAMESPACE).await;
    install(&client).await;
    let greeters: Api<Greeter> = Api::namespaced(client.clone(), NAMESPACE);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let operator = Operator::start(&client);

    // Made.
    for (name, copies) in [("a", 1), ("b", 3), ("c", 0)] {
        greeters
            .create(&PostParams::default(), &greeter(name, "hello", copies))
            .await
            .expect("created");
    }
    for (name, copies) in [("a", 1), ("b", 3), ("c", 0)] {
        let object = settled(&greeters, name, copies).await;
        assert_eq!(object.finalizers(), [FINALIZER]);
        assert_eq!(object.metadata.generation, Some(1), "a status is no change of the spec");
        let said = messages(&maps, name).await;
        assert_eq!(said.len(), usize::try_from(copies).expect("not negative"));
        assert!(said.iter().all(|message| message == "hello"), "{said:?}");
    }
    let child = maps.get("b-2").await.expect("there");
    assert_eq!(child.owner_references()[0].kind, "Greeter");
    assert_eq!(child.owner_references()[0].controller, Some(true));

    // Changed: fewer copies that say something else.
    let change = json!({"spec": {"message": "bye", "copies": 2}});
    greeters
        .patch("b", &PatchParams::default(), &Patch::Merge(change))
        .await
        .expect("patched");
    assert_eq!(settled(&greeters, "b", 2).await.metadata.generation, Some(2));
    assert_eq!(messages(&maps, "b").await, ["bye", "bye"]);
    // Through the scale subresource, as an autoscaler does.
    greeters
        .patch_scale(
            "b",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"replicas": 4}})),
        )
        .await
        .expect("scaled");
    settled(&greeters, "b", 4).await;
    assert_eq!(
        greeters
            .get_scale("b")
            .await
            .expect("a scale")
            .status
            .expect("one")
            .replicas,
        4
    );

    // Kept so: a child that is deleted comes back, one that is changed is changed back.
    let uid = maps.get("b-0").await.expect("there").uid();
    maps.delete("b-0", &DeleteParams::default()).await.expect("deleted");
    soon(
        "the child",
        await_condition(maps.clone(), "b-0", move |map: Option<&ConfigMap>| {
            map.is_some_and(|map| map.uid() != uid)
        }),
    )
    .await
    .expect("watched");
    maps.patch(
        "b-1",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"message": "tampered", "theirs": "kept"}})),
    )
    .await
    .expect("patched");
    soon(
        "the child",
        await_condition(maps.clone(), "b-1", |map: Option<&ConfigMap>| {
            map.and_then(|map| map.data.as_ref())
                .is_some_and(|data| data["message"] == "bye" && data["theirs"] == "kept")
        }),
    )
    .await
    .expect("watched");

    // Cleaned up.
    greeters.delete("b", &DeleteParams::default()).await.expect("deleted");
    soon(
        "the object's end",
        await_condition(greeters.clone(), "b", |object: Option<&Greeter>| object.is_none()),
    )
    .await
    .expect("watched");
    assert_eq!(messages(&maps, "b").await, Vec::<String>::new());
    assert_eq!(operator.context.cleaned.load(Ordering::SeqCst), 1);
    operator.end().await;

    // A new one takes over, finds everything in order, and writes nothing.
    let before = revision(&client).await;
    let mut operator = Operator::start(&client);
    soon(
        "a reconciliation of each",
        operator
            .reconciled
            .wait_for(|counts| ["a", "c"].iter().all(|name| counts.contains_key(*name))),
    )
    .await
    .expect("it goes on");
    assert_eq!(operator.end().await, 0, "failures");
    assert_eq!(revision(&client).await, before, "something was written");
}

#[tokio::test]
async fn what_the_derived_schema_forbids_is_refused() {
    let server = Server::start();
    let client = server.client().await;
    namespace(&client, NAMESPACE).await;
    install(&client).await;
    let greeters: Api<Greeter> = Api::namespaced(client.clone(), NAMESPACE);
    let refused = |object: Greeter| {
        let greeters = greeters.clone();
        async move {
            match greeters.create(&PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) => (status.code, status.message),
                other => panic!("{other:?}"),
            }
        }
    };
    let (code, message) = refused(greeter("x", "", 1)).await;
    assert_eq!(code, 422);
    assert!(message.contains("spec.message"), "{message}");
    let (_, message) = refused(greeter("x", "hello", 11)).await;
    assert!(message.contains("spec.copies"), "{message}");
    let (_, message) = refused(greeter("x", "spam", 9)).await;
    assert!(message.contains("no spam in bulk"), "{message}");

    let raw: Greeter = serde_json::from_value(json!({
        "apiVersion": "operator.example.com/v1", "kind": "Greeter",
        "metadata": {"name": "x"}, "spec": {"message": "hello"},
    }))
    .expect("a Greeter");
    let made = greeters.create(&PostParams::default(), &raw).await.expect("created");
    assert_eq!((made.spec.copies, made.spec.language), (1, Language::English));
    let chosen = |language: &str| ListParams::default().fields(&format!("spec.language={language}"));
    assert_eq!(greeters.list(&chosen("English")).await.expect("a list").items.len(), 1);
    assert_eq!(greeters.list(&chosen("German")).await.expect("a list").items.len(), 0);
}
