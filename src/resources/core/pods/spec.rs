//! Defaults of a Pod's spec, in a Pod or in a template.

use crate::tree::{Value, json};

use crate::resources::edit::{default_at, default_in, items_mut, remove_at};
use crate::resources::lookup::{boolean, text};

/// The lists of containers in a Pod's spec.
pub(in crate::resources) const CONTAINER_LISTS: &[&str] = &["initContainers", "containers", "ephemeralContainers"];

/// Fills in what depends on other fields of the Pod's spec at `pointer`; constants are in `facts/defaults.tsv`.
pub(in crate::resources) fn default_pod_spec(object: &mut Value, pointer: &str) {
    let Some(spec) = object.pointer_mut(pointer).filter(|spec| spec.is_object()) else {
        return;
    };
    for volume in items_mut(spec, "/volumes") {
        let sourceless = volume
            .as_object()
            .is_some_and(|fields| fields.keys().all(|name| name == "name"));
        if sourceless {
            default_at(volume, "", "emptyDir", json!({}));
        }
        if volume.get("image").is_some() {
            let policy = pull_policy(text(volume, "/image/reference"));
            default_at(volume, "/image", "pullPolicy", policy);
        }
        // Features that are off by default.
        for source in items_mut(volume, "/projected/sources") {
            if let Some(source) = source.as_object_mut() {
                source.remove("clusterTrustBundle");
                source.remove("podCertificate");
            }
        }
    }
    remove_at(spec, "", "schedulingGroup");
    for containers in CONTAINER_LISTS {
        for container in items_mut(spec, &format!("/{containers}")) {
            let policy = pull_policy(text(container, "/image"));
            default_at(container, "", "imagePullPolicy", policy);
        }
    }
    // `serviceAccount` is the old name of the same field; both are always written.
    if let Some(fields) = spec.as_object_mut() {
        let given = |name: &str| fields.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(account) = given("serviceAccountName")
            .or_else(|| given("serviceAccount"))
            .map(str::to_owned)
        {
            fields.insert("serviceAccount", account.as_str().into());
            fields.insert("serviceAccountName", account.into());
        }
    }
}

fn pull_policy(image: &str) -> &'static str {
    if is_latest(image) { "Always" } else { "IfNotPresent" }
}

/// Ports of a Pod on its host's network are the host's; in templates they are left open.
pub(super) fn default_host_ports(pod: &mut Value) {
    if boolean(pod, "/spec/hostNetwork") != Some(true) {
        return;
    }
    for list in ["/spec/containers", "/spec/initContainers"] {
        for container in items_mut(pod, list) {
            for port in items_mut(container, "/ports") {
                let number = port.get("containerPort").cloned();
                default_at(port, "", "hostPort", number.unwrap_or(Value::Null));
            }
        }
    }
}

/// Whether an image is named by the tag `latest`, or by neither tag nor digest.
fn is_latest(image: &str) -> bool {
    let (name, digest) = image
        .split_once('@')
        .map_or((image, None), |(name, digest)| (name, Some(digest)));
    // A colon before the last slash is that of a registry's port.
    let name = name.rsplit('/').next().unwrap_or(name);
    match name.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => digest.is_none(),
    }
}

/// Requests that are not given are the limits.
pub(in crate::resources) fn default_requests(object: &mut Value, pointer: &str) {
    let Some(spec) = object.pointer_mut(pointer).filter(|spec| spec.is_object()) else {
        return;
    };
    for containers in CONTAINER_LISTS {
        for container in items_mut(spec, &format!("/{containers}")) {
            let Some(resources) = container.pointer_mut("/resources").and_then(Value::as_object_mut) else {
                continue;
            };
            let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
                continue;
            };
            default_in(resources, "requests", json!({}));
            if let Some(Value::Object(requests)) = resources.get_mut("requests") {
                for (name, limit) in limits {
                    default_in(requests, &name, limit);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_latest;

    #[test]
    fn an_image_without_a_tag_is_the_latest() {
        for latest in [
            "app",
            "app:latest",
            "host:5000/app",
            "host/app:latest",
            "app:latest@sha256:00",
            "",
        ] {
            assert!(is_latest(latest), "{latest}");
        }
        for fixed in ["app:1", "host:5000/app:1", "app@sha256:00", "app:1@sha256:00"] {
            assert!(!is_latest(fixed), "{fixed}");
        }
    }
}
