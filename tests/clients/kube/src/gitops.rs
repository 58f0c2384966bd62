//! A GitOps loop in the style of Argo CD: it watches everything that can be listed, compares what is wanted with what is
//! there by a dry run of server-side apply, applies what differs, and deletes what it once applied and is wanted no more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{StreamExt, TryStreamExt, stream};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiCapabilities, Discovery, Scope, verbs};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The manager of the fields that the loop applies.
const MANAGER: &str = "gitops";

/// The label of objects that an application has applied; its value is the application's name.
pub const TRACKED: &str = "gitops.example.com/application";

/// Objects of one page of a list: what Argo CD and client-go ask for.
const PAGE: u32 = 500;

/// Comparisons that run at a time.
const SIDE_BY_SIDE: usize = 8;

/// Group, kind, namespace ("" for none), name.
pub type Key = (String, String, String, String);

/// One kind that can be listed.
type Kind = (ApiResource, ApiCapabilities);

/// A picture of everything in the cluster, kept up by a watch of each kind.
pub struct Cluster {
    client: Client,
    /// By group and kind, in the version that discovery prefers.
    kinds: BTreeMap<(String, String), Kind>,
    live: Arc<Mutex<BTreeMap<Key, DynamicObject>>>,
    /// Raised with each event.
    changed: watch::Sender<u64>,
    watches: Vec<JoinHandle<()>>,
}

/// What it takes to make the cluster as it is wanted.
#[derive(Debug, Default)]
pub struct Plan {
    /// Objects whose application would change something, or make them.
    pub apply: Vec<DynamicObject>,
    /// Objects of the application that are wanted no more.
    pub prune: Vec<Key>,
}

impl Plan {
    /// Whether the cluster is as it is wanted.
    pub fn is_empty(&self) -> bool {
        self.apply.is_empty() && self.prune.is_empty()
    }

    /// The names of what would be applied, sorted.
    pub fn applied(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .apply
            .iter()
            .map(|object| format!("{}/{}", kind_of(object).kind, object.name_any()))
            .collect();
        names.sort();
        names
    }
}

fn kind_of(object: &DynamicObject) -> GroupVersionKind {
    let types = object.types.as_ref().expect("manifests name their kind");
    GroupVersionKind::try_from(types).expect("a group and a version")
}

fn key(resource: &ApiResource, object: &DynamicObject) -> Key {
    (
        resource.group.clone(),
        resource.kind.clone(),
        object.namespace().unwrap_or_default(),
        object.name_any(),
    )
}

/// What is compared: everything but who wrote which field when.
fn comparable(object: &DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).expect("JSON");
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    value
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// Discovers what there is and watches all of it; returns when each list has been read to its end.
    pub async fn observe(client: Client) -> Result<Self, kube::Error> {
        let mut cluster = Cluster {
            client,
            kinds: BTreeMap::new(),
            live: Arc::default(),
            changed: watch::Sender::new(0),
            watches: Vec::new(),
        };
        cluster.discover().await?;
        Ok(cluster)
    }

    /// Looks for kinds that are new, and watches them, too. Returns how many there were.
    pub async fn discover(&mut self) -> Result<usize, kube::Error> {
        let discovery = Discovery::new(self.client.clone()).run_aggregated().await?;
        let mut lists = Vec::new();
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                let name = (resource.group.clone(), resource.kind.clone());
                if !capabilities.supports_operation(verbs::LIST)
                    || !capabilities.supports_operation(verbs::WATCH)
                    || self.kinds.contains_key(&name)
                {
                    continue;
                }
                lists.push(self.watch(resource.clone()));
                self.kinds.insert(name, (resource, capabilities));
            }
        }
        let found = lists.len();
        for mut listed in lists {
            listed.wait_for(|done| *done).await.expect("the watch goes on");
        }
        Ok(found)
    }

    /// Lists and watches a kind from now on; what is returned becomes true when the list has been read.
    fn watch(&mut self, resource: ApiResource) -> watch::Receiver<bool> {
        let (done, listed) = watch::channel(false);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let (live, changed) = (Arc::clone(&self.live), self.changed.clone());
        self.watches.push(tokio::spawn(async move {
            let mut events = watcher(api, watcher::Config::default().page_size(PAGE)).boxed();
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(object) | Event::InitApply(object)) => {
                        lock(&live).insert(key(&resource, &object), object);
                    }
                    Ok(Event::Delete(object)) => {
                        lock(&live).remove(&key(&resource, &object));
                    }
                    Ok(Event::Init) => {}
                    Ok(Event::InitDone) => {
                        done.send_replace(true);
                    }
                    // The kind is gone; whatever else breaks is found when nothing more arrives.
                    Err(_) => break,
                }
                changed.send_modify(|events| *events += 1);
            }
        }));
        listed
    }

    /// How many kinds are watched.
    pub fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// The objects that are there, of which `chosen` is true.
    pub fn live(&self, chosen: impl Fn(&Key, &DynamicObject) -> bool) -> BTreeMap<Key, DynamicObject> {
        lock(&self.live)
            .iter()
            .filter(|(key, object)| chosen(key, object))
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect()
    }

    /// Returns when `seen` holds of what is there.
    pub async fn until(&self, seen: impl Fn(&BTreeMap<Key, DynamicObject>) -> bool) {
        let mut changes = self.changed.subscribe();
        while !seen(&lock(&self.live)) {
            changes.changed().await.expect("watched by us");
        }
    }

    fn api(&self, object: &DynamicObject) -> Option<(Key, Api<DynamicObject>)> {
        let wanted = kind_of(object);
        let (resource, capabilities) = self.kinds.get(&(wanted.group.clone(), wanted.kind.clone()))?;
        // In the manifest's own version.
        let resource = &ApiResource::from_gvk_with_plural(&wanted, &resource.plural);
        let api = match (&capabilities.scope, object.namespace()) {
            (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(self.client.clone(), &namespace, resource),
            (Scope::Namespaced, None) => Api::default_namespaced_with(self.client.clone(), resource),
            (Scope::Cluster, _) => Api::all_with(self.client.clone(), resource),
        };
        Some((key(resource, object), api))
    }

    /// Applies one object, without asking whether it differs.
    pub async fn apply(&self, object: &DynamicObject) -> Result<DynamicObject, kube::Error> {
        let (_, api) = self.api(object).expect("its kind is served");
        let options = PatchParams::apply(MANAGER).force();
        api.patch(&object.name_any(), &options, &Patch::Apply(object)).await
    }

    /// Compares: a dry run for each object that is there already, all else is new.
    ///
    /// # Errors
    /// What the server says of a dry run: an object that it refuses is no difference.
    pub async fn compare(&self, application: &str, wanted: &[DynamicObject]) -> Result<Plan, kube::Error> {
        let wanted: Vec<DynamicObject> = wanted
            .iter()
            .map(|object| {
                let mut object = object.clone();
                object.labels_mut().insert(TRACKED.to_owned(), application.to_owned());
                object
            })
            .collect();
        let compared: Vec<(Option<Key>, Option<DynamicObject>)> = stream::iter(wanted)
            .map(|object| async {
                // A kind that is not served yet: its definition stands before it.
                let Some((key, api)) = self.api(&object) else {
                    return Ok((None, Some(object)));
                };
                let live = lock(&self.live).get(&key).cloned();
                let Some(mut live) = live else {
                    return Ok((Some(key), Some(object)));
                };
                if live.types != object.types {
                    live = api.get(&object.name_any()).await?;
                }
                let options = PatchParams::apply(MANAGER).force().dry_run();
                let predicted = api.patch(&object.name_any(), &options, &Patch::Apply(&object)).await?;
                let differs = comparable(&predicted) != comparable(&live);
                Ok::<_, kube::Error>((Some(key), differs.then_some(object)))
            })
            .buffered(SIDE_BY_SIDE)
            .try_collect()
            .await?;
        let kept: BTreeSet<Key> = compared.iter().filter_map(|(key, _)| key.clone()).collect();
        let own = |object: &DynamicObject| object.labels().get(TRACKED).is_some_and(|name| name == application);
        let going = |object: &DynamicObject| object.metadata.deletion_timestamp.is_some();
        let prune = self
            .live(|key, object| own(object) && !going(object) && !kept.contains(key))
            .into_keys()
            .collect();
        Ok(Plan {
            apply: compared.into_iter().filter_map(|(_, object)| object).collect(),
            prune,
        })
    }

    /// Carries a plan out, in waves: namespaces, definitions of kinds, all else; then what is pruned. Returns when its own
    /// watches have seen all that was written.
    pub async fn sync(&mut self, plan: &Plan) -> Result<(), kube::Error> {
        let wave = |object: &DynamicObject| match kind_of(object).kind.as_str() {
            "Namespace" => 0,
            "CustomResourceDefinition" => 1,
            _ => 2,
        };
        for number in 0..3 {
            let objects: Vec<&DynamicObject> = plan.apply.iter().filter(|object| wave(object) == number).collect();
            let written: Vec<(Key, String)> = stream::iter(&objects)
                .map(|object| async {
                    let (key, _) = self
                        .api(object)
                        .unwrap_or_else(|| panic!("not served: {:?}", kind_of(object)));
                    let applied = self.apply(object).await?;
                    Ok::<_, kube::Error>((key, applied.resource_version().unwrap_or_default()))
                })
                .buffered(SIDE_BY_SIDE)
                .try_collect()
                .await?;
            self.until(|live| {
                written.iter().all(|(key, version)| {
                    live.get(key)
                        .is_some_and(|object| newer_or_same(&object.resource_version().unwrap_or_default(), version))
                })
            })
            .await;
            if number == 1 && !objects.is_empty() {
                let established = |object: &DynamicObject| {
                    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
                    conditions.is_some_and(|all| {
                        all.iter()
                            .any(|one| one["type"] == "Established" && one["status"] == "True")
                    })
                };
                self.until(|live| written.iter().all(|(key, _)| live.get(key).is_some_and(established)))
                    .await;
                self.discover().await?;
            }
        }
        for (group, kind, namespace, name) in &plan.prune {
            let (resource, capabilities) = self.kinds.get(&(group.clone(), kind.clone())).expect("it was listed");
            let api: Api<DynamicObject> = match capabilities.scope {
                Scope::Namespaced => Api::namespaced_with(self.client.clone(), namespace, resource),
                Scope::Cluster => Api::all_with(self.client.clone(), resource),
            };
            match api.delete(name, &DeleteParams::background()).await {
                // Gone with its definition.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => {
                    other?;
                }
            }
        }
        self.until(|live| {
            plan.prune.iter().all(|key| {
                live.get(key)
                    .is_none_or(|object| object.metadata.deletion_timestamp.is_some())
            })
        })
        .await;
        Ok(())
    }
}

fn newer_or_same(version: &str, than: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    number(version) >= number(than)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for watch in &self.watches {
            watch.abort();
        }
    }
}

/// The objects of a YAML file, lists opened, in `namespace` where they name none and are not `kinds_of_the_cluster`.
pub fn manifests(text: &str, namespace: &str, kinds_of_the_cluster: &[&str]) -> Vec<DynamicObject> {
    let object = |value: Value| {
        let mut object: DynamicObject =
            serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"));
        if object.metadata.namespace.is_none() && !kinds_of_the_cluster.contains(&kind_of(&object).kind.as_str()) {
            object.metadata.namespace = Some(namespace.to_owned());
        }
        object
    };
    text.split("\n---\n")
        .filter(|document| document.lines().any(|line| line.starts_with("kind:")))
        .flat_map(|document| {
            let mut value: Value =
                serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{error}: {document}"));
            match value.get_mut("items").map(Value::take) {
                Some(Value::Array(items)) => items,
                _ => vec![value],
            }
        })
        .map(object)
        .collect()
}
