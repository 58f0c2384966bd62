//! Classes of which one may be the default: one PriorityClass and one IngressClass at most; of storage classes the newest.
//!
//! (Upstream's admission plugins Priority, DefaultStorageClass and DefaultIngressClass.)

use std::sync::Arc;

use super::object;
use super::pods::Fill;
use crate::api::status::Status;
use crate::resources::Resource;
use crate::store::{Range, Selection, View};
use crate::tree::Value;

pub(super) const PRIORITY_CLASSES: &str = "priorityclasses.scheduling.k8s.io";
const STORAGE_CLASSES: &str = "storageclasses.storage.k8s.io";
const INGRESS_CLASSES: &str = "ingressclasses.networking.k8s.io";
/// Names the storage class of a claim in an old way.
const CLAIM_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// What a new claim or Ingress without a class gets.
///
/// # Errors
/// 403 for an Ingress when several classes are the default, 500 when a class cannot be read.
pub(super) fn admit(view: &Arc<View>, shape: &Resource, new: &Value) -> Result<Vec<Fill>, Status> {
    let is_open = |field: &str| new["spec"][field].is_null();
    let annotation = |name: &str| !new["metadata"]["annotations"][name].is_null();
    let (classes, mark, field) = match &*shape.storage {
        "persistentvolumeclaims" if is_open("storageClassName") && !annotation(CLAIM_ANNOTATION) => (
            STORAGE_CLASSES,
            "storageclass.kubernetes.io/is-default-class",
            "storageClassName",
        ),
        "ingresses.networking.k8s.io" if is_open("ingressClassName") && !annotation("kubernetes.io/ingress.class") => (
            INGRESS_CLASSES,
            "ingressclass.kubernetes.io/is-default-class",
            "ingressClassName",
        ),
        _ => return Ok(Vec::new()),
    };
    let mut defaults = all(view, classes)?;
    defaults.retain(|class| class["metadata"]["annotations"][mark] == "true");
    if classes == INGRESS_CLASSES && defaults.len() > 1 {
        let why = format!("{} default IngressClasses were found, only 1 allowed", defaults.len());
        return Err(Status::forbidden(
            &shape.group,
            &shape.plural,
            object::admission_name(new),
            &why,
        ));
    }
    // The newest; of several of one second the first by name.
    let newest = defaults.into_iter().max_by(|one, other| {
        let age = |class: &Value| object::meta(class, "creationTimestamp").to_owned();
        let by_name = object::meta(other, "name").cmp(object::meta(one, "name"));
        age(one).cmp(&age(other)).then(by_name)
    });
    let fill = |class: Value| Fill {
        field,
        value: class["metadata"]["name"].clone(),
    };
    Ok(newest.map(fill).into_iter().collect())
}

/// Refuses a second PriorityClass that is the default. Does nothing for other kinds.
///
/// # Errors
/// 403.
pub(super) fn check_only_default(view: &Arc<View>, shape: &Resource, new: &Value) -> Result<(), Status> {
    if shape.storage != PRIORITY_CLASSES || new["globalDefault"] != true {
        return Ok(());
    }
    let name = object::meta(new, "name");
    match default_priority(view)? {
        Some(class) if object::meta(&class, "name") != name => {
            let why = format!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                object::meta(&class, "name")
            );
            Err(Status::forbidden(&shape.group, &shape.plural, name, &why))
        }
        _ => Ok(()),
    }
}

/// The PriorityClass that Pods without one get: the one marked as global default, of several the lowest.
///
/// # Errors
/// 500 when a class cannot be read.
pub(super) fn default_priority(view: &Arc<View>) -> Result<Option<Value>, Status> {
    /// Classes that every server has; none of them is the default.
    const BUILT_IN: u64 = 2;
    if view.count(PRIORITY_CLASSES, None) <= BUILT_IN {
        return Ok(None);
    }
    let mut classes = all(view, PRIORITY_CLASSES)?;
    classes.retain(|class| class["globalDefault"] == true);
    Ok(classes.into_iter().min_by_key(|class| class["value"].as_i64()))
}

/// All objects of a resource of which there are few.
pub(in crate::api) fn all(view: &Arc<View>, classes: &str) -> Result<Vec<Value>, Status> {
    all_in(view, classes, None)
}

/// All objects of a resource of which there are few, in one namespace or in all.
pub(super) fn all_in(view: &Arc<View>, classes: &str, namespace: Option<&str>) -> Result<Vec<Value>, Status> {
    let range = Range {
        namespace: namespace.map(str::to_owned),
        after: None,
    };
    let mut listing = view.list(classes, range, &Selection::all());
    let mut all = Vec::new();
    while let Some(run) = listing.next(64).map_err(Status::internal)? {
        for object in run.objects() {
            all.push(read(&object)?);
        }
    }
    Ok(all)
}

/// Names and revisions of all objects of a resource of which there are few.
///
/// # Errors
/// 500 when they cannot be read.
pub(in crate::api) fn revisions(view: &Arc<View>, classes: &str) -> Result<Vec<(String, u64)>, Status> {
    let range = Range {
        namespace: None,
        after: None,
    };
    let mut listing = view.list(classes, range, &Selection::all());
    let mut all = Vec::new();
    while let Some(run) = listing.next(64).map_err(Status::internal)? {
        all.extend(run.objects().map(|object| (object.key().to_owned(), object.revision())));
    }
    Ok(all)
}

/// A stored class.
///
/// # Errors
/// 500 when it cannot be read.
pub(super) fn read(class: &crate::store::Object) -> Result<Value, Status> {
    serde_json::from_slice(class.json().map_err(Status::internal)?).map_err(Status::internal)
}
