//! What a node may do: what every node may, and of other objects those that its Pods use.
//!
//! What relates an object to a node is read from the view for each decision: the Pods of that node (by the posting of
//! `spec.nodeName`), those alone whose text has the object's name in it. Nothing is kept.
//!
//! Rules: <https://kubernetes.io/docs/reference/access-authn-authz/node/>.

use std::sync::Arc;

use super::{Asked, Attributes, Decision, Verdict, What, Why};
use crate::auth::User;
use crate::store::{Damaged, Object, Range, Requirement, Selection, View};
use crate::tree::Value;

/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 64;
/// The role whose rules every node has.
pub(super) const ROLE: &str = "system:node";
const LEASES: &str = "kube-node-lease";
/// What a Pod of the kubelet's own files is known by: it gives its node nothing.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The name of the node that asks; `None` for who is none.
pub(super) fn identity(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix("system:node:")?;
    user.groups.iter().any(|group| group == "system:nodes").then_some(name)
}

/// What is said of a request of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Allowed,
    /// Not by this authorizer, and why.
    Not(&'static str),
    /// The object must be one that the node has to do with.
    Related,
    /// What the rules of all nodes say.
    ByRules,
}

/// Judges a node's request; `by_rules` says whether the rules of all nodes allow it.
pub(super) fn decide(
    view: &Arc<View>,
    attributes: &Attributes<'_>,
    node: &str,
    by_rules: impl Fn() -> Result<bool, Damaged>,
) -> Result<Decision, Damaged> {
    let no = |why: String| Decision {
        verdict: Verdict::NoOpinion,
        why: if why.is_empty() { Why::Nothing } else { Why::Text(why) },
    };
    if node.is_empty() {
        return Ok(no(format!("unknown node for user {:?}", attributes.user.name)));
    }
    let said = match attributes.what {
        What::Path(_) => Said::ByRules,
        What::Resource(asked) => rule(attributes.verb, &asked, node),
    };
    match (said, attributes.what) {
        (Said::Allowed, _) => Ok(Decision::of(Verdict::Allow)),
        (Said::Not(why), _) => Ok(no(why.to_owned())),
        (Said::Related, What::Resource(asked)) if asked.name.is_empty() => Ok(no("No Object name found".to_owned())),
        (Said::Related, What::Resource(asked)) => Ok(if is_related(view, &asked, node)? {
            Decision::of(Verdict::Allow)
        } else {
            no(format!("no relationship found between node '{node}' and this object"))
        }),
        (Said::ByRules | Said::Related, _) => Ok(if by_rules()? {
            Decision::of(Verdict::Allow)
        } else {
            no(String::new())
        }),
    }
}

fn rule(verb: &str, asked: &Asked<'_>, node: &str) -> Said {
    let own = asked.name == node;
    let sub = asked.subresource;
    match (asked.group, asked.resource) {
        ("", "secrets" | "configmaps") => match verb {
            _ if !matches!(verb, "get" | "list" | "watch") => Said::Not("can only read resources of this type"),
            _ if !sub.is_empty() => Said::Not("cannot read subresource"),
            _ if asked.namespace.is_empty() => Said::Not("can only read namespaced object of this type"),
            _ => Said::Related,
        },
        ("", "persistentvolumeclaims") if sub == "status" => match verb {
            "get" | "update" | "patch" => Said::Related,
            _ => Said::Not("can only get/update/patch this type"),
        },
        ("", "persistentvolumeclaims" | "persistentvolumes")
        | ("resource.k8s.io", "resourceclaims")
        | ("storage.k8s.io", "volumeattachments") => get(verb, sub),
        ("", "serviceaccounts") => match (verb, sub) {
            ("create", "token") | ("get", "") => Said::Related,
            _ => Said::Not("can only create tokens for individual service accounts"),
        },
        ("coordination.k8s.io", "leases") => match verb {
            _ if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") => {
                Said::Not("can only get, create, update, patch, or delete a node lease")
            }
            _ if asked.namespace != LEASES => {
                Said::Not("can only access leases in the \"kube-node-lease\" system namespace")
            }
            _ if verb != "create" && !own => {
                Said::Not("can only access node lease with the same name as the requesting node")
            }
            _ => Said::Allowed,
        },
        ("storage.k8s.io", "csinodes") => match verb {
            _ if !sub.is_empty() => Said::Not("unauthorized access to CSINode"),
            _ if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") => {
                Said::Not("can only get, create, update, patch, or delete a CSINode")
            }
            _ if verb != "create" && !own => {
                Said::Not("can only access CSINode with the same name as the requesting node")
            }
            _ => Said::Allowed,
        },
        ("resource.k8s.io", "resourceslices") => match verb {
            _ if !sub.is_empty() => Said::Not("unauthorized access to ResourceSlice"),
            "create" => Said::Allowed,
            "get" | "update" | "patch" | "delete" => Said::Related,
            "list" | "watch" | "deletecollection" if selects(asked.fields, "spec.nodeName", node) => Said::Allowed,
            "list" | "watch" | "deletecollection" => {
                Said::Not("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => Said::Not(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, \
                            patch, delete, deletecollection",
            ),
        },
        ("", "nodes") => match (verb, sub) {
            ("get" | "list" | "watch", "") if !own => Said::Not("only its own Node object can be read by a node"),
            ("create" | "get" | "list" | "watch", "") | ("update" | "patch", "" | "status") => Said::Allowed,
            _ => Said::ByRules,
        },
        ("", "pods") => match (verb, sub) {
            ("get", "") => Said::Related,
            ("list" | "watch", "") if selects(asked.fields, "spec.nodeName", node) => Said::Allowed,
            ("list" | "watch", "") => Said::Not("can only list/watch pods with spec.nodeName field selector"),
            // Of which Pods is the admission's to judge.
            ("create" | "delete", "") | ("update" | "patch", "status") | ("create", "eviction") => Said::Allowed,
            _ => Said::ByRules,
        },
        _ => Said::ByRules,
    }
}

fn get(verb: &str, subresource: &str) -> Said {
    match (verb, subresource) {
        ("get", "") => Said::Related,
        ("get", _) => Said::Not("cannot get subresource"),
        _ => Said::Not("can only get individual resources of this type"),
    }
}

/// Whether a field selector leaves only what has this value.
fn selects(selector: &str, field: &str, value: &str) -> bool {
    selector.split(',').any(|term| {
        term.split_once('=').is_some_and(|(own, wanted)| {
            own.trim() == field && wanted.strip_prefix('=').unwrap_or(wanted).trim() == value
        })
    })
}

/// Whether an object is one that a node has to do with.
fn is_related(view: &Arc<View>, asked: &Asked<'_>, node: &str) -> Result<bool, Damaged> {
    let (namespace, name) = (asked.namespace, asked.name);
    match asked.resource {
        "pods" => {
            let pod = stored(view, "pods", &format!("{namespace}/{name}"))?;
            Ok(pod["spec"]["nodeName"] == *node)
        }
        "volumeattachments" => {
            let attachment = stored(view, "volumeattachments.storage.k8s.io", name)?;
            Ok(attachment["spec"]["nodeName"] == *node)
        }
        "resourceslices" => {
            let slice = stored(view, "resourceslices.resource.k8s.io", name)?;
            Ok(slice["spec"]["nodeName"] == *node)
        }
        "persistentvolumes" => uses_volume(view, &stored(view, "persistentvolumes", name)?, node),
        "secrets" => {
            if any_pod(view, namespace, node, name, |pod| uses(pod, "secrets", name))? {
                return Ok(true);
            }
            // Volumes that its Pods have claimed name Secrets, too.
            let quoted = format!("\"{name}\"");
            any(view, "persistentvolumes", None, &Selection::all(), |object| {
                if !contains(object.json()?, &quoted) {
                    return Ok(false);
                }
                let volume = parsed(object)?;
                Ok(volume_secrets(&volume, namespace, name) && uses_volume(view, &volume, node)?)
            })
        }
        // The name of a generic volume's claim is made of the Pod's.
        "persistentvolumeclaims" => any_pod(view, namespace, node, "", |pod| uses(pod, asked.resource, name)),
        _ => any_pod(view, namespace, node, name, |pod| uses(pod, asked.resource, name)),
    }
}

fn uses_volume(view: &Arc<View>, volume: &Value, node: &str) -> Result<bool, Damaged> {
    let claim = &volume["spec"]["claimRef"];
    let (namespace, name) = (text(claim, "namespace"), text(claim, "name"));
    if name.is_empty() {
        return Ok(false);
    }
    any_pod(view, namespace, node, "", |pod| {
        uses(pod, "persistentvolumeclaims", name)
    })
}

/// Whether a Pod uses an object of its namespace.
fn uses(pod: &Value, resource: &str, name: &str) -> bool {
    if pod["metadata"]["annotations"].get(MIRROR).is_some() {
        return false;
    }
    let spec = &pod["spec"];
    let mut volumes = items(&spec["volumes"]).iter();
    let containers = || {
        ["containers", "initContainers", "ephemeralContainers"]
            .into_iter()
            .flat_map(|list| items(&spec[list]))
    };
    let in_environment = |key: &str, from: &str| {
        containers().any(|container| {
            items(&container["env"])
                .iter()
                .any(|variable| text(&variable["valueFrom"][key], "name") == name)
                || items(&container["envFrom"])
                    .iter()
                    .any(|source| text(&source[from], "name") == name)
        })
    };
    let projected = |volume: &Value, kind: &str| {
        items(&volume["projected"]["sources"])
            .iter()
            .any(|source| text(&source[kind], "name") == name)
    };
    match resource {
        "serviceaccounts" => text(spec, "serviceAccountName") == name,
        "persistentvolumeclaims" => volumes.any(|volume| {
            let generic = || format!("{}-{}", text(&pod["metadata"], "name"), text(volume, "name"));
            text(&volume["persistentVolumeClaim"], "claimName") == name
                || !volume["ephemeral"].is_null() && generic() == name
        }),
        "configmaps" => {
            in_environment("configMapKeyRef", "configMapRef")
                || volumes.any(|volume| text(&volume["configMap"], "name") == name || projected(volume, "configMap"))
        }
        "secrets" => {
            in_environment("secretKeyRef", "secretRef")
                || items(&spec["imagePullSecrets"])
                    .iter()
                    .any(|secret| text(secret, "name") == name)
                || volumes.any(|volume| {
                    text(&volume["secret"], "secretName") == name
                        || projected(volume, "secret")
                        || sources_secrets(volume, name)
                })
        }
        "resourceclaims" => {
            items(&spec["resourceClaims"])
                .iter()
                .any(|claim| text(claim, "resourceClaimName") == name)
                || items(&pod["status"]["resourceClaimStatuses"])
                    .iter()
                    .any(|claim| text(claim, "resourceClaimName") == name)
        }
        _ => false,
    }
}

/// Whether a PersistentVolume names a Secret.
fn volume_secrets(volume: &Value, namespace: &str, name: &str) -> bool {
    let spec = &volume["spec"];
    let csi = &spec["csi"];
    let of_csi = [
        "nodePublishSecretRef",
        "nodeStageSecretRef",
        "nodeExpandSecretRef",
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
    ];
    of_csi
        .iter()
        .any(|field| text(&csi[*field], "name") == name && text(&csi[*field], "namespace") == namespace)
        || sources_secrets(spec, name)
            && (text(&spec["claimRef"], "namespace") == namespace || names_namespace(spec, namespace))
}

/// Whether the source of a volume names the namespace of its Secret itself.
fn names_namespace(source: &Value, namespace: &str) -> bool {
    text(&source["azureFile"], "secretNamespace") == namespace
        || ["cephfs", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"]
            .iter()
            .any(|kind| text(&source[*kind]["secretRef"], "namespace") == namespace)
}

/// Whether the source of a volume names a Secret.
fn sources_secrets(source: &Value, name: &str) -> bool {
    text(&source["azureFile"], "secretName") == name
        || text(&source["csi"]["nodePublishSecretRef"], "name") == name
        || ["cephfs", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"]
            .iter()
            .any(|kind| text(&source[*kind]["secretRef"], "name") == name)
}

/// Whether one of a node's Pods in a namespace is such; only those are parsed in whose text `hint` is a whole text.
fn any_pod(
    view: &Arc<View>,
    namespace: &str,
    node: &str,
    hint: &str,
    is_such: impl Fn(&Value) -> bool,
) -> Result<bool, Damaged> {
    if namespace.is_empty() {
        return Ok(false);
    }
    let on_node = Selection {
        requirements: vec![Requirement::FieldIs {
            name: "spec.nodeName".to_owned(),
            value: node.to_owned(),
        }],
    };
    let quoted = if hint.is_empty() {
        String::new()
    } else {
        format!("\"{hint}\"")
    };
    any(view, "pods", Some(namespace), &on_node, |object| {
        Ok(contains(object.json()?, &quoted) && is_such(&parsed(object)?))
    })
}

fn contains(json: &[u8], hint: &str) -> bool {
    std::str::from_utf8(json).is_ok_and(|json| json.contains(hint))
}

/// Whether one of the objects is such; what comes after it is not looked at.
fn any(
    view: &Arc<View>,
    storage: &str,
    namespace: Option<&str>,
    selection: &Selection,
    mut is_such: impl FnMut(&Object) -> Result<bool, Damaged>,
) -> Result<bool, Damaged> {
    let range = Range {
        namespace: namespace.map(str::to_owned),
        after: None,
    };
    let mut listing = view.list(storage, range, selection);
    while let Some(run) = listing.next(RUN_MAX)? {
        for object in run.objects() {
            if is_such(&object)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn stored(view: &Arc<View>, storage: &str, key: &str) -> Result<Value, Damaged> {
    match view.get(storage, key)? {
        Some(object) => parsed(&object),
        None => Ok(Value::Null),
    }
}

/// What is stored is JSON; `null` for what is not.
fn parsed(object: &Object) -> Result<Value, Damaged> {
    Ok(serde_json::from_slice(object.json()?).unwrap_or_default())
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], |list| list.as_slice())
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    fn asked<'a>(resource: &'a str, namespace: &'a str, name: &'a str) -> Asked<'a> {
        Asked {
            resource,
            namespace,
            name,
            ..Asked::default()
        }
    }

    #[test]
    fn a_pod_uses_what_its_containers_and_volumes_name() {
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {
                "serviceAccountName": "sa",
                "imagePullSecrets": [{"name": "pull"}],
                "initContainers": [{"envFrom": [{"secretRef": {"name": "from"}}]}],
                "containers": [{"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "map", "key": "a"}}}]}],
                "volumes": [
                    {"name": "v", "projected": {"sources": [{"secret": {"name": "projected"}}]}},
                    {"name": "w", "ephemeral": {}},
                    {"name": "x", "persistentVolumeClaim": {"claimName": "claim"}},
                ],
            },
        });
        for (resource, name) in [
            ("serviceaccounts", "sa"),
            ("secrets", "pull"),
            ("secrets", "from"),
            ("secrets", "projected"),
            ("configmaps", "map"),
            ("persistentvolumeclaims", "p-w"),
            ("persistentvolumeclaims", "claim"),
        ] {
            assert!(uses(&pod, resource, name), "{resource} {name}");
            assert!(!uses(&pod, resource, "another"), "{resource}");
        }
        assert!(!uses(&pod, "secrets", "map"));
        let mut mirror = pod;
        mirror["metadata"]["annotations"] = json!({MIRROR: "x"});
        assert!(!uses(&mirror, "secrets", "pull"));
    }

    #[test]
    fn a_node_has_its_own_lease_and_reads_only_its_own_pods() {
        let lease = |namespace, name| Asked {
            group: "coordination.k8s.io",
            ..asked("leases", namespace, name)
        };
        assert_eq!(rule("update", &lease(LEASES, "n"), "n"), Said::Allowed);
        assert!(matches!(rule("update", &lease(LEASES, "m"), "n"), Said::Not(_)));
        assert!(matches!(rule("update", &lease("default", "n"), "n"), Said::Not(_)));
        let pods = |fields| Asked {
            fields,
            ..asked("pods", "", "")
        };
        assert_eq!(rule("list", &pods("spec.nodeName=n"), "n"), Said::Allowed);
        assert!(matches!(rule("list", &pods("spec.nodeName=m"), "n"), Said::Not(_)));
        assert!(matches!(rule("list", &pods("spec.nodeName!=n"), "n"), Said::Not(_)));
        assert!(matches!(rule("list", &asked("secrets", "", ""), "n"), Said::Not(_)));
        assert_eq!(rule("get", &asked("secrets", "a", "s"), "n"), Said::Related);
    }
}
