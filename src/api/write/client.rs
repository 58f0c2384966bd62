//! The API without HTTP, for parts of the program that write: controllers, the scheduler.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt as _;

use super::delete::{expire, remove};
use super::delete_options::DeleteOptions;
use super::manager::Manager;
use super::options::WriteOptions;
use super::quotas::Stillness;
use super::target::{Asker, Target};
use super::update::{self, Edited};
use super::{binding, create, object};
use crate::api::negotiate::Answer;
use crate::api::read::label_selector;
use crate::api::request::{Query, RequestInfo, Verb};
use crate::api::status::Status;
use crate::api::{Api, Stopping, aggregation};
use crate::auth::User;
use crate::auth::authorization::{Asked, Attributes, What};
use crate::resources::custom::Registry;
use crate::resources::{self, Propagation, ResourceRef, SubresourceRef};
use crate::schema::FieldValidation;
use crate::store::{Object, Selection, Store};
use crate::tree::{Value, json};

/// A client within the process. What it writes goes the way of a request: admission, defaults, validation, managers, the log. It
/// reads views of the store itself. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    api: Arc<Api>,
    user: Arc<User>,
    manager: &'static str,
}

/// What must hold of an object that is to be deleted, and what becomes of its dependents.
#[derive(Debug, Clone, Default)]
pub struct Delete {
    /// The UID that it must have.
    pub uid: Option<String>,
    /// The revision that it must be at.
    pub revision: Option<u64>,
    /// What becomes of its dependents; by default what the kind says.
    pub propagation: Option<Propagation>,
    /// Seconds that a Pod has to end; by default what the Pod says.
    pub grace_s: Option<i64>,
}

impl Client {
    pub(in crate::api) fn new(api: Arc<Api>, user: User, manager: &'static str) -> Self {
        Self {
            api,
            user: Arc::new(user),
            manager,
        }
    }

    /// The store: views, and the log to follow.
    pub fn store(&self) -> &Arc<Store> {
        &self.api.reader.store
    }

    /// The signal that the server is ending.
    pub fn stopping(&self) -> &Stopping {
        &self.api.reader.stopping
    }

    /// The custom resources that are served.
    pub fn custom(&self) -> &Registry {
        &self.api.custom
    }

    /// A stored object as a tree, in the shape that it is stored in, with `kind` and `apiVersion`. Parses it.
    ///
    /// # Errors
    /// 500 when its bytes are damaged.
    #[allow(clippy::unused_self, reason = "reads stand beside writes")]
    pub fn read(&self, resource: &ResourceRef, object: &Object) -> Result<Value, Status> {
        object::of_stored(object, resource)
    }

    /// Whether a user may do something, now.
    pub fn allows(&self, user: &User, verb: &str, asked: Asked<'_>) -> bool {
        let what = What::Resource(asked);
        let attributes = Attributes { user, verb, what };
        let decision = self.api.authorizer.decide(&self.api.reader.store.view(), &attributes);
        decision.is_allowed()
    }

    /// What a label selector selects, as queries have it (`a=1,b in (x,y)`); `None` when it is not valid.
    pub fn selection(selector: &str) -> Option<Selection> {
        let requirements = label_selector(selector).ok()?;
        Some(Selection { requirements })
    }

    /// Whether another server answers paths below this one (`/apis/GROUP/VERSION`).
    pub fn is_aggregated(&self, path: &str) -> bool {
        self.api.aggregation.find(path).is_some()
    }

    /// Asks the server of an aggregated API for a path, as this server itself: the code and the body. `None`: there is no such server.
    ///
    /// # Errors
    /// Inside, a sentence that says what failed. Takes five seconds at most.
    pub async fn ask_aggregated(&self, path: &str) -> Option<Result<(u16, Bytes), String>> {
        aggregation::ask(&self.api, path).await
    }

    /// Creates an object, and gives what was made of it. A name is made of `generateName` as for any client.
    ///
    /// # Errors
    /// What a client would be answered: 409 when it is there, 422 when it is not valid, 403 when its namespace is going.
    pub async fn create(
        &self,
        resource: &ResourceRef,
        namespace: Option<&str>,
        object: Value,
    ) -> Result<Value, Status> {
        let info = self.request(resource.clone(), namespace);
        let options = WriteOptions {
            dry_run: false,
            validation: FieldValidation::default(),
        };
        let manager = Manager::named(self.manager, resource.clone(), "");
        let created = create::insert(&self.api, &info, &options, &manager, object, Vec::new()).await?;
        let body = created.into_body().collect().await.map_err(Status::internal)?;
        serde_json::from_slice(&body.to_bytes()).map_err(Status::internal)
    }

    /// Assigns a Pod to a node.
    ///
    /// # Errors
    /// What a client would be answered: 404 when the Pod is gone, 409 when it is not the one with that UID, has a node, has gates, or
    /// is being deleted.
    pub async fn bind(&self, namespace: &str, name: &str, uid: &str, node: &str) -> Result<(), Status> {
        let pods = resources::find("", "v1", "pods").map(ResourceRef::from);
        let pods = pods.ok_or_else(Status::method_not_allowed)?;
        let info = RequestInfo {
            subresource: SubresourceRef::find(&pods, "binding"),
            name: Some(name.to_owned()),
            ..self.request(pods, Some(namespace))
        };
        let binding = json!({
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"kind": "Node", "name": node},
        });
        binding::place(&self.api, &info, false, binding, &mut Vec::new()).await
    }

    /// The request that a creation would be.
    fn request(&self, resource: ResourceRef, namespace: Option<&str>) -> RequestInfo {
        RequestInfo {
            verb: Verb::Create,
            resource,
            subresource: None,
            namespace: namespace.map(str::to_owned),
            name: None,
            query: Query::new(""),
            answer: Answer::default(),
            user: self.user.clone(),
            peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            audit: None,
            headers: HeaderMap::new(),
        }
    }

    /// Changes an object, or with `subresource` that part of it: `edit` gets it as it is, in the resource's version, and says how it
    /// should be; `None`: as it is. Begins anew when another writer was faster. A change that changes nothing is not written.
    ///
    /// # Errors
    /// What a client would be answered: 404 when it is gone, 409 when others were always faster, 422 when it is not valid.
    pub async fn change(
        &self,
        resource: &ResourceRef,
        subresource: Option<&'static str>,
        key: &str,
        edit: impl Fn(&Value) -> Option<Value>,
    ) -> Result<(), Status> {
        let target = Target {
            subresource,
            manager: Some(Manager::named(
                self.manager,
                resource.clone(),
                subresource.unwrap_or(""),
            )),
            asker: Some(Asker::own(self.user.clone())),
            ..Target::at(resource, key)
        };
        let edit = |old: &Value| {
            Ok(Edited {
                value: edit(old).unwrap_or_else(|| old.clone()),
                revision: None,
                warnings: Vec::new(),
            })
        };
        update::change(&self.api, &target, false, edit).await.map(drop)
    }

    /// Waits until all that quotas of a namespace were charged with is written or given up, and holds off new charges as long as the
    /// answer is kept: what is counted meanwhile is all that there is.
    pub async fn still(&self, namespace: &str) -> Stillness {
        self.api.quotas.still(namespace).await
    }

    /// Deletes an object whose time is over, as it is: nobody is asked, neither admission nor finalizers. One that was written meanwhile
    /// stays.
    ///
    /// # Errors
    /// When the store cannot write.
    pub async fn expire(&self, resource: &ResourceRef, object: &Object) -> Result<(), Status> {
        expire(&self.api, resource, object).await
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// What a client would be answered: 404 when it is gone, 409 when it is not the one that is meant.
    pub async fn delete(&self, resource: &ResourceRef, key: &str, delete: &Delete) -> Result<(), Status> {
        let options = DeleteOptions {
            grace_seconds: delete.grace_s,
            propagation: delete.propagation,
            uid: delete.uid.clone(),
            revision: delete.revision.map(|revision| revision.to_string()),
            ..DeleteOptions::default()
        };
        let target = Target {
            asker: Some(Asker::own(self.user.clone())),
            ..Target::at(resource, key)
        };
        remove(&self.api, &target, &options).await.map(drop)
    }
}
