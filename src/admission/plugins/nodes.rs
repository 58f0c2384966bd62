//! What kubelets may change: themselves, and the Pods that run on them. And what Pods learn of where they run. (Upstream's admission
//! plugins NodeRestriction and PodTopologyLabels.)
//!
//! Rules: <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction>.

use std::collections::BTreeSet;

use super::{Operation, Refused, Request, forbidden, items, read, text};
use crate::store::View;
use crate::tree::Value;

/// The node that asks, if it is one; `""` when its name is none.
fn identity<'a>(request: &Request<'a>) -> Option<&'a str> {
    let is_node = request.user.groups.iter().any(|group| group == "system:nodes");
    let name = request.user.name.strip_prefix("system:node:")?;
    is_node.then_some(name)
}

/// The node that asks, if it is one.
///
/// # Errors
/// 403 for a node without a name.
pub(super) fn who<'a>(request: &Request<'a>) -> Result<Option<&'a str>, Refused> {
    match identity(request) {
        Some("") => Err(forbidden(format!(
            "could not determine node from user {:?}",
            request.user.name
        ))),
        node => Ok(node),
    }
}

/// Judges what a kubelet asks for.
///
/// # Errors
/// 403 for what is not its own.
pub(super) fn restrict(
    view: &View,
    request: &Request<'_>,
    node: &str,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Refused> {
    let none = Value::Null;
    let (new, stored) = (object.unwrap_or(&none), old.unwrap_or(&none));
    match (&*request.resource.storage, request.subresource) {
        ("pods", "") => match request.operation {
            Operation::Create => create_pod(view, node, new),
            Operation::Delete if is_on(stored, node) => Ok(()),
            Operation::Delete => Err(forbidden(format!(
                "node {node:?} can only delete pods with spec.nodeName set to itself"
            ))),
            other => Err(forbidden(format!(
                "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
                other.as_str()
            ))),
        },
        ("pods", "status") => {
            if request.operation != Operation::Update {
                return Err(unexpected(request));
            }
            if !is_on(stored, node) {
                return Err(forbidden(format!(
                    "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
                )));
            }
            if !same(&new["metadata"]["labels"], &stored["metadata"]["labels"]) {
                return Err(forbidden(format!(
                    "node {node:?} cannot update labels through pod status"
                )));
            }
            let claims = |pod: &Value| pod["status"]["resourceClaimStatuses"].clone();
            if !same(&claims(new), &claims(stored)) {
                return Err(forbidden(format!("node {node:?} cannot update resource claim statues")));
            }
            Ok(())
        }
        ("pods", "eviction") => {
            if request.operation != Operation::Create {
                return Err(unexpected(request));
            }
            let pod = pod_of(view, request, request.name)?;
            if is_on(&pod, node) {
                return Ok(());
            }
            Err(forbidden(format!(
                "node {node} can only evict pods with spec.nodeName set to itself"
            )))
        }
        ("pods", other) => Err(forbidden(format!(
            "unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"
        ))),
        ("nodes", _) => change_node(request, node, new, stored),
        ("persistentvolumeclaims", "status") => change_claim(request, node, new, stored),
        ("persistentvolumeclaims", _) => Err(forbidden("may only update PVC status")),
        ("serviceaccounts", "token") if request.operation == Operation::Create => take_token(view, request, node, new),
        ("leases.coordination.k8s.io", _) => {
            if request.namespace != Some("kube-node-lease") {
                return Err(forbidden(
                    "can only access leases in the \"kube-node-lease\" system namespace",
                ));
            }
            named_as(request, node, new, "node lease")
        }
        ("csinodes.storage.k8s.io", _) => named_as(request, node, new, "CSINode"),
        ("resourceslices.resource.k8s.io", _) => {
            let slice = if request.operation == Operation::Create {
                new
            } else {
                stored
            };
            if slice["spec"]["nodeName"] == *node {
                return Ok(());
            }
            Err(forbidden(match request.operation {
                Operation::Create => "can only create ResourceSlice with the same NodeName as the requesting node",
                _ => "can only access ResourceSlice with the same NodeName as the requesting node",
            }))
        }
        _ => Ok(()),
    }
}

fn unexpected(request: &Request<'_>) -> Refused {
    forbidden(format!("unexpected operation {:?}", request.operation.as_str()))
}

fn is_on(pod: &Value, node: &str) -> bool {
    pod["spec"]["nodeName"] == *node
}

/// Whether two values are the same, nothing being as good as empty.
fn same(one: &Value, other: &Value) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    one == other || is_empty(one) && is_empty(other)
}

fn pod_of(view: &View, request: &Request<'_>, name: &str) -> Result<Value, Refused> {
    let namespace = request.namespace.unwrap_or("");
    match view.get("pods", &format!("{namespace}/{name}"))? {
        Some(found) => Ok(read(&found)?),
        None => Err(Refused::Told {
            code: 404,
            reason: "NotFound",
            message: format!("pods \"{name}\" not found"),
        }),
    }
}

fn create_pod(view: &View, node: &str, pod: &Value) -> Result<(), Refused> {
    const MIRROR: &str = "kubernetes.io/config.mirror";
    let refuse = |why: &str| Err(forbidden(format!("node {node:?} {why}")));
    if pod["metadata"]["annotations"][MIRROR].is_null() {
        return Err(forbidden(format!(
            "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
        )));
    }
    if !is_on(pod, node) {
        return refuse("can only create pods with spec.nodeName set to itself");
    }
    let owners = &pod["metadata"]["ownerReferences"];
    let Some(owner) = items(owners).next() else {
        return refuse("can only create pods with an owner reference set to itself");
    };
    if items(owners).len() > 1 {
        return refuse("can only create pods with a single owner reference set to itself");
    }
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != *node {
        return refuse("can only create pods with an owner reference set to itself");
    }
    if owner["controller"] != true {
        return refuse("can only create pods with a controller owner reference set to itself");
    }
    if owner["blockOwnerDeletion"] == true {
        return refuse("must not set blockOwnerDeletion on an owner reference");
    }
    let Some(found) = view.get("nodes", node)? else {
        return Err(Refused::Told {
            code: 404,
            reason: "NotFound",
            message: format!("node \"{node}\" not found"),
        });
    };
    let uid = read(&found)?["metadata"]["uid"].clone();
    if owner["uid"] != uid {
        let (expected, got) = (text(&owner["uid"]), text(&uid));
        return Err(forbidden(format!(
            "node {node} UID mismatch: expected {expected} got {got}"
        )));
    }
    let spec = &pod["spec"];
    if !text(&spec["serviceAccountName"]).is_empty() {
        return refuse("can not create pods that reference a service account");
    }
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let of_containers = |field: &str, key: &str| {
        lists.iter().flat_map(|list| items(&spec[*list])).any(|container| {
            items(&container["envFrom"]).any(|from| from[field].is_object())
                || items(&container["env"]).any(|variable| variable["valueFrom"][key].is_object())
        })
    };
    let of_volumes = |field: &str| items(&spec["volumes"]).any(|volume| volume[field].is_object());
    let of_projections = |field: &str| {
        let mut sources = items(&spec["volumes"]).flat_map(|volume| items(&volume["projected"]["sources"]));
        sources.any(|source| source[field].is_object())
    };
    if of_containers("secretRef", "secretKeyRef")
        || of_volumes("secret")
        || of_projections("secret")
        || items(&spec["imagePullSecrets"]).len() > 0
    {
        return refuse("can not create pods that reference secrets");
    }
    if of_containers("configMapRef", "configMapKeyRef") || of_volumes("configMap") || of_projections("configMap") {
        return refuse("can not create pods that reference configmaps");
    }
    if of_projections("clusterTrustBundle") {
        return refuse("can not create pods that reference clustertrustbundles");
    }
    if of_projections("podCertificate") {
        return refuse("can not create pods that reference podcertificates");
    }
    if of_volumes("persistentVolumeClaim") {
        return refuse("can not create pods that reference persistentvolumeclaims");
    }
    if items(&spec["resourceClaims"]).len() > 0 {
        return refuse("can not create pods that reference resourceclaims");
    }
    Ok(())
}

/// Labels of the project that kubelets may set, beside those of `kubelet.kubernetes.io` and `node.kubernetes.io`.
const KUBELET_LABELS: &[&str] = &[
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

fn is_or_is_under(domain: &str, of: &str) -> bool {
    domain == of || domain.strip_suffix(of).is_some_and(|before| before.ends_with('.'))
}

/// Labels that differ and that a kubelet may not change, sorted.
fn forbidden_labels<'a>(new: &'a Value, old: &'a Value) -> BTreeSet<&'a str> {
    let keys = |labels: &'a Value| labels.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    let changed = keys(new).chain(keys(old)).filter(|key| new[*key] != old[*key]);
    changed.filter(|key| !may_set_label(key)).collect()
}

/// Whether a kubelet may set this label on its node.
pub fn may_set_label(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let of_project = is_or_is_under(domain, "kubernetes.io") || is_or_is_under(domain, "k8s.io");
    let of_kubelet = KUBELET_LABELS.contains(&key)
        || is_or_is_under(domain, "kubelet.kubernetes.io")
        || is_or_is_under(domain, "node.kubernetes.io");
    !is_or_is_under(domain, "node-restriction.kubernetes.io") && (!of_project || of_kubelet)
}

fn change_node(request: &Request<'_>, node: &str, new: &Value, old: &Value) -> Result<(), Refused> {
    let name = match request.name {
        "" => text(&new["metadata"]["name"]),
        name => name,
    };
    if name != node {
        return Err(forbidden(format!(
            "node {node:?} is not allowed to modify node {name:?}"
        )));
    }
    let told = |labels: BTreeSet<&str>| labels.into_iter().collect::<Vec<_>>().join(", ");
    match request.operation {
        Operation::Create => {
            let labels = forbidden_labels(&new["metadata"]["labels"], old);
            if labels.is_empty() {
                return Ok(());
            }
            Err(forbidden(format!(
                "node {node:?} is not allowed to set the following labels: {}",
                told(labels)
            )))
        }
        Operation::Update => {
            if !same(&new["spec"]["taints"], &old["spec"]["taints"]) {
                return Err(forbidden(format!("node {node:?} is not allowed to modify taints")));
            }
            // A Node whose owner is not there is collected, and comes back without what it may not change.
            if !same(&new["metadata"]["ownerReferences"], &old["metadata"]["ownerReferences"]) {
                return Err(forbidden(format!(
                    "node {node:?} is not allowed to modify ownerReferences"
                )));
            }
            let labels = forbidden_labels(&new["metadata"]["labels"], &old["metadata"]["labels"]);
            if labels.is_empty() {
                return Ok(());
            }
            Err(forbidden(format!("is not allowed to modify labels: {}", told(labels))))
        }
        _ => Ok(()),
    }
}

fn change_claim(request: &Request<'_>, node: &str, new: &Value, old: &Value) -> Result<(), Refused> {
    if request.operation != Operation::Update {
        return Err(unexpected(request));
    }
    let bare = |claim: &Value| {
        let mut claim = claim.clone();
        for (part, fields) in [
            ("metadata", &["resourceVersion", "managedFields"][..]),
            (
                "status",
                &[
                    "capacity",
                    "conditions",
                    "allocatedResources",
                    "allocatedResourceStatuses",
                ],
            ),
        ] {
            if let Some(part) = claim.get_mut(part).and_then(Value::as_object_mut) {
                for field in fields {
                    part.remove(field);
                }
            }
        }
        claim
    };
    if bare(new) == bare(old) {
        return Ok(());
    }
    Err(forbidden(format!(
        "node {node:?} is not allowed to update fields other than status.quantity and status.conditions"
    )))
}

fn take_token(view: &View, request: &Request<'_>, node: &str, asked: &Value) -> Result<(), Refused> {
    let bound = &asked["spec"]["boundObjectRef"];
    let name = text(&bound["name"]);
    if bound["apiVersion"] != "v1" || bound["kind"] != "Pod" || name.is_empty() {
        return Err(forbidden("node requested token not bound to a pod"));
    }
    let uid = text(&bound["uid"]);
    if uid.is_empty() {
        return Err(forbidden("node requested token with a pod binding without a uid"));
    }
    let pod = pod_of(view, request, name)?;
    if pod["metadata"]["uid"] != *uid {
        return Err(forbidden(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted \
             and then recreated"
        )));
    }
    if is_on(&pod, node) {
        return Ok(());
    }
    Err(forbidden(
        "node requested token bound to a pod scheduled on a different node",
    ))
}

fn named_as(request: &Request<'_>, node: &str, new: &Value, what: &str) -> Result<(), Refused> {
    let name = match request.operation {
        Operation::Create => text(&new["metadata"]["name"]),
        _ => request.name,
    };
    if name == node {
        return Ok(());
    }
    Err(forbidden(format!(
        "can only access {what} with the same name as the requesting node"
    )))
}

/// Labels of nodes that Pods get.
const TOPOLOGY: &[&str] = &["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Gives a Pod that is on a node, or the Binding that puts it there, the labels that say where the node is.
///
/// # Errors
/// When the node cannot be read.
pub(super) fn copy_topology(view: &View, node: &str, object: &mut Value) -> Result<(), Refused> {
    if node.is_empty() {
        return Ok(());
    }
    let Some(found) = view.get("nodes", node)? else {
        return Ok(());
    };
    let sidecar = found.sidecar()?;
    for label in TOPOLOGY {
        if let Some(value) = sidecar.label(label)
            && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        {
            let labels = metadata.entry("labels").or_insert(Value::Null);
            labels[*label] = value.into();
        }
    }
    Ok(())
}
