//! The ServiceAccount of a Pod: it exists, its token is mounted, its secrets for pulling images are used. (Upstream's admission
//! plugin ServiceAccount.)
//!
//! Rules: <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#serviceaccount-admission-controller>.

use super::{Refused, Request, forbidden, items, read, text};
use crate::resources::generate_name;
use crate::store::View;
use crate::tree::{Map, Value, json};

const RESOURCE: &str = "serviceaccounts";
/// Where the token of a Pod's account lies in its containers.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// What the name of the volume with it begins with.
const TOKEN_VOLUME: &str = "kube-api-access-";
/// How long the token is good, in seconds; the seven tell it from one that somebody asked for.
const TOKEN_S: i64 = 60 * 60 + 7;
/// Makes a Pod a picture of one that a kubelet runs by itself.
const MIRROR: &str = "kubernetes.io/config.mirror";

fn is_mirror(pod: &Value) -> bool {
    !pod["metadata"]["annotations"][MIRROR].is_null()
}

/// Names the account of a new Pod, and gives it what comes with the account.
///
/// # Errors
/// 403 when there is no such account.
pub(super) fn mutate(view: &View, request: &Request<'_>, pod: &mut Value) -> Result<(), Refused> {
    if is_mirror(pod) {
        return validate(view, request, pod);
    }
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
        return Ok(());
    };
    let named = spec.get("serviceAccountName").map_or("", text);
    let named = if named.is_empty() {
        spec.get("serviceAccount").map_or("", text)
    } else {
        named
    };
    let name = if named.is_empty() { "default" } else { named }.to_owned();
    for field in ["serviceAccountName", "serviceAccount"] {
        if spec.get(field).is_none_or(|value| text(value).is_empty()) {
            spec.insert(field, name.as_str().into());
        }
    }
    let account = account(view, request, &name)?;
    let automount = [
        spec.get("automountServiceAccountToken"),
        account.get("automountServiceAccountToken"),
    ];
    if automount.into_iter().flatten().find_map(Value::as_bool).unwrap_or(true) {
        mount_token(spec);
    }
    if spec
        .get("imagePullSecrets")
        .is_none_or(|secrets| items(secrets).len() == 0)
    {
        let secrets: Vec<Value> = items(&account["imagePullSecrets"]).cloned().collect();
        if !secrets.is_empty() {
            spec.insert("imagePullSecrets", secrets.into());
        }
    }
    check_secrets(&account, pod, &["initContainers", "containers"], true)
}

/// The account that a Pod names.
fn account(view: &View, request: &Request<'_>, name: &str) -> Result<Value, Refused> {
    let namespace = request.namespace.unwrap_or("");
    match view.get(RESOURCE, &format!("{namespace}/{name}"))? {
        Some(account) => Ok(read(&account)?),
        None => Err(forbidden(format!(
            "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
        ))),
    }
}

/// Mounts a token of the account, the server's authority and the name of the namespace where nothing else is mounted.
fn mount_token(spec: &mut Map) {
    let volumes = spec.get("volumes").cloned().unwrap_or_default();
    let present = items(&volumes).find(|volume| text(&volume["name"]).starts_with(TOKEN_VOLUME));
    let name = present.map_or_else(
        || generate_name(TOKEN_VOLUME),
        |volume| text(&volume["name"]).to_owned(),
    );
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        for container in containers {
            if items(&container["volumeMounts"]).any(|mount| mount["mountPath"] == TOKEN_PATH) {
                continue;
            }
            needed = true;
            let mount = json!({"name": name, "readOnly": true, "mountPath": TOKEN_PATH});
            push(container, "volumeMounts", mount);
        }
    }
    if needed && present.is_none() {
        let volume = json!({"name": name, "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_S, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                ]}},
            ],
        }});
        let volumes = spec.entry("volumes").or_insert(Value::Null);
        match volumes {
            Value::Array(volumes) => volumes.push(volume),
            other => *other = vec![volume].into(),
        }
    }
}

fn push(object: &mut Value, field: &str, item: Value) {
    match object.get_mut(field) {
        Some(Value::Array(list)) => list.push(item),
        _ => {
            if let Some(object) = object.as_object_mut() {
                object.insert(field.to_owned(), vec![item].into());
            }
        }
    }
}

/// What must hold of a Pod and its account.
///
/// # Errors
/// 403.
pub(super) fn validate(view: &View, request: &Request<'_>, pod: &Value) -> Result<(), Refused> {
    let spec = &pod["spec"];
    let named = text(&spec["serviceAccountName"]);
    if is_mirror(pod) {
        if !named.is_empty() {
            return Err(forbidden("a mirror pod may not reference service accounts"));
        }
        if names_secrets(spec) {
            return Err(forbidden("a mirror pod may not reference secrets"));
        }
        let mut sources = items(&spec["volumes"]).flat_map(|volume| items(&volume["projected"]["sources"]));
        if sources.any(|source| source["serviceAccountToken"].is_object()) {
            return Err(forbidden(
                "a mirror pod may not use ServiceAccountToken volume projections",
            ));
        }
        return Ok(());
    }
    if request.subresource == "ephemeralcontainers" {
        let account = account(view, request, named)?;
        return check_secrets(&account, pod, &["ephemeralContainers"], false);
    }
    let account = account(view, request, named)?;
    check_secrets(&account, pod, &["initContainers", "containers"], true)
}

/// Whether anything of a Pod is taken from a Secret.
fn names_secrets(spec: &Value) -> bool {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let mut containers = lists.iter().flat_map(|list| items(&spec[*list]));
    items(&spec["imagePullSecrets"]).len() > 0
        || items(&spec["volumes"]).any(|volume| {
            volume["secret"].is_object()
                || items(&volume["projected"]["sources"]).any(|source| source["secret"].is_object())
        })
        || containers.any(|container| {
            items(&container["envFrom"]).any(|from| from["secretRef"].is_object())
                || items(&container["env"]).any(|variable| variable["valueFrom"]["secretKeyRef"].is_object())
        })
}

/// Where an account says so, its Pods may use only Secrets that it lists.
fn check_secrets(account: &Value, pod: &Value, lists: &[&str], whole: bool) -> Result<(), Refused> {
    const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
    let enforced = text(&account["metadata"]["annotations"][ENFORCE]);
    if !matches!(enforced, "1" | "t" | "T" | "true" | "TRUE" | "True") {
        return Ok(());
    }
    let spec = &pod["spec"];
    let has = |field: &str, secret: &str| items(&account[field]).any(|listed| listed["name"] == *secret);
    let owner = text(&account["metadata"]["name"]);
    let not_listed = |who: String, secret: &str| {
        let rest = format!("secret.secretName=\"{secret}\" is not allowed because service account {owner}");
        forbidden(format!("{who} {rest} does not reference that secret"))
    };
    if whole {
        for volume in items(&spec["volumes"]) {
            let secret = text(&volume["secret"]["secretName"]);
            if volume["secret"].is_object() && !has("secrets", secret) {
                return Err(not_listed("volume with".to_owned(), secret));
            }
        }
    }
    for list in lists {
        let kind = match *list {
            "initContainers" => "init container",
            "ephemeralContainers" => "ephemeral container",
            _ => "container",
        };
        for container in items(&spec[*list]) {
            let name = text(&container["name"]);
            for variable in items(&container["env"]) {
                let from = &variable["valueFrom"]["secretKeyRef"];
                if from.is_object() && !has("secrets", text(&from["name"])) {
                    let who = format!("{kind} {name} with envVar {} referencing", text(&variable["name"]));
                    return Err(not_listed(who, text(&from["name"])));
                }
            }
            for from in items(&container["envFrom"]) {
                let from = &from["secretRef"];
                if from.is_object() && !has("secrets", text(&from["name"])) {
                    let who = format!("{kind} {name} with envFrom referencing");
                    return Err(not_listed(who, text(&from["name"])));
                }
            }
        }
    }
    if whole {
        for secret in items(&spec["imagePullSecrets"]).map(|secret| text(&secret["name"])) {
            if !has("imagePullSecrets", secret) {
                return Err(forbidden(format!(
                    "imagePullSecrets[0].name=\"{secret}\" is not allowed because service account {owner} does not reference \
                     that imagePullSecret"
                )));
            }
        }
    }
    Ok(())
}
