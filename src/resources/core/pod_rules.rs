//! Rules of a Pod's spec that look at several fields, in a Pod or in a template.

use std::collections::HashSet;

use crate::tree::Value;

use super::pod_placement::check_placement;
use super::pod_spec::CONTAINER_LISTS;
use crate::resources::FieldError;
use crate::resources::lookup::boolean;
use crate::resources::names::{qualified_name, subdomain};
use crate::resources::quantity::Quantity;
use crate::resources::validate::{At, FieldPath};

const ENV_NAME_RULE: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";
const INIT_ONLY: &str = "may not be set for init containers without restartPolicy=Always";

/// Checks the spec of a Pod.
pub(in crate::resources) fn check_pod_spec(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    let mut taken = HashSet::new();
    let volumes: HashSet<&str> = spec
        .get("volumes")
        .items()
        .map(|volume| volume.get("name").text())
        .collect();
    // Containers have their names before init containers, and those before ephemeral ones.
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in spec.get(list).items() {
            let name = container.get("name");
            if !name.is_empty() && !taken.insert(name.text()) {
                errors.push(name.duplicate());
            }
            let image = container.get("image");
            if image.text().trim() != image.text() {
                errors.push(image.invalid("must not have leading or trailing whitespace"));
            }
            by_sort(list, &container, errors);
            environment(&container, errors);
            resources(&container.get("resources"), errors);
            mounts(&container, &volumes, errors);
            security(&container.get("securityContext"), errors);
        }
    }
    ports(spec, errors);
    check_volumes(&spec.get("volumes"), errors);
    check_placement(spec, errors);
    host_and_security(spec, errors);
}

fn by_sort(list: &str, container: &At<'_>, errors: &mut Vec<FieldError>) {
    let (fields, detail): (&[&str], _) = match list {
        "initContainers" if container.get("restartPolicy").text() != "Always" => (
            &["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"],
            INIT_ONLY,
        ),
        "ephemeralContainers" => (
            &["ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"],
            "cannot be set for an Ephemeral Container",
        ),
        _ => return,
    };
    for field in fields {
        let field = container.get(*field);
        if !field.is_empty() {
            errors.push(field.forbidden(detail));
        }
    }
}

fn ports(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    let host_network = boolean(spec.value, "/hostNetwork") == Some(true);
    let mut host_ports = HashSet::new();
    for list in CONTAINER_LISTS {
        for container in spec.get(*list).items() {
            let mut names = HashSet::new();
            for port in container.get("ports").items() {
                let name = port.get("name");
                if !name.is_empty() {
                    let wrong = port_name(name.text());
                    if wrong.is_empty() && !names.insert(name.text()) {
                        errors.push(name.duplicate());
                    }
                    name.check(wrong, errors);
                }
                let host_port = port.get("hostPort");
                let Some(number) = host_port.integer() else { continue };
                if host_network && port.get("containerPort").integer() != Some(number) {
                    errors.push(host_port.invalid("must match `containerPort` when `hostNetwork` is true"));
                }
                let key = format!("{}/{}/{number}", port.get("protocol").text(), port.get("hostIP").text());
                if *list == "containers" && !host_ports.insert(key.clone()) {
                    errors.push(FieldError::duplicate(host_port.field, &key.into()));
                }
            }
        }
    }
}

/// What is wrong with the name of a port (RFC 6335, small letters only).
pub(in crate::resources) fn port_name(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut unless = |fine: bool, what: &str| {
        if !fine {
            wrong.push(what.to_owned());
        }
    };
    unless(name.len() <= 15, "must be no more than 15 characters");
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    unless(
        name.bytes().all(known),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    unless(
        name.bytes().any(|byte| byte.is_ascii_lowercase()),
        "must contain at least one letter (a-z)",
    );
    unless(!name.contains("--"), "must not contain consecutive hyphens");
    unless(
        !name.starts_with('-') && !name.ends_with('-'),
        "must not begin or end with a hyphen",
    );
    wrong
}

fn is_env_name(name: &str) -> bool {
    name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
}

fn environment(container: &At<'_>, errors: &mut Vec<FieldError>) {
    const SOURCES: &[&str] = &[
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fileKeyRef",
    ];
    for variable in container.get("env").items() {
        let name = variable.get("name");
        if !is_env_name(name.text()) {
            errors.push(name.invalid(ENV_NAME_RULE));
        }
        let source = variable.get("valueFrom");
        if !source.present() {
            continue;
        }
        let count = SOURCES.iter().filter(|name| source.get(**name).present()).count();
        let wrong = match count {
            0 => Some(
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
            ),
            _ if !variable.get("value").is_empty() => Some("may not be specified when `value` is not empty"),
            1 => None,
            _ => Some("may not have more than one field specified at a time"),
        };
        errors.extend(wrong.map(|what| FieldError::invalid_text(&source.field, "", what)));
        field_reference(&source.get("fieldRef"), errors);
        let resource = source.get("resourceFieldRef.resource");
        if resource.present() {
            resource_reference(&resource, errors);
        }
        for reference in ["configMapKeyRef", "secretKeyRef"] {
            let reference = source.get(reference);
            if reference.present() {
                let name = reference.get("name").text();
                let wrong = subdomain(name).into_iter();
                let field = format!("{}.name", reference.field);
                errors.extend(wrong.map(|what| FieldError::invalid_text(&field, name, what)));
            }
        }
    }
    let all = container.get("envFrom");
    for source in all.items() {
        let prefix = source.get("prefix");
        if !prefix.is_empty() && !is_env_name(prefix.text()) {
            errors.push(prefix.invalid(ENV_NAME_RULE));
        }
        let wrong = match (source.get("configMapRef").present(), source.get("secretRef").present()) {
            (false, false) => "must specify one of: `configMapRef` or `secretRef`",
            (true, true) => "may not have more than one field specified at a time",
            _ => continue,
        };
        errors.push(FieldError::invalid_text(&all.field, "", wrong));
    }
}

fn field_reference(reference: &At<'_>, errors: &mut Vec<FieldError>) {
    if !reference.present() {
        return;
    }
    let path = reference.get("fieldPath");
    if path.is_empty() {
        errors.push(path.required(""));
        return;
    }
    let known = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.annotations",
        "metadata.labels",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    let entry = ["metadata.annotations['", "metadata.labels['"]
        .iter()
        .any(|map| path.text().starts_with(map));
    if !known.contains(&path.text()) && !entry {
        errors.push(path.invalid(format_args!(
            "error converting fieldPath: field label not supported: {}",
            path.text()
        )));
    }
}

fn resource_reference(resource: &At<'_>, errors: &mut Vec<FieldError>) {
    const KNOWN: &[&str] = &[
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    let huge = ["limits.hugepages-", "requests.hugepages-"]
        .iter()
        .any(|pages| resource.text().starts_with(pages));
    if !huge {
        resource.one_of(KNOWN, errors);
    }
}

/// Amounts of resources of one container.
fn resources(resources: &At<'_>, errors: &mut Vec<FieldError>) {
    let amount = |at: &At<'_>| Quantity::parse(at.text());
    let mut huge_pages = false;
    let mut basic = false;
    for part in ["limits", "requests"] {
        for (name, entry) in resources.get(part).entries() {
            resource_name(name, &entry.field, errors);
            huge_pages |= name.starts_with("hugepages-");
            basic |= matches!(name, "cpu" | "memory");
            let Some(quantity) = amount(&entry) else { continue };
            if quantity.nanos() < 0 {
                errors.push(entry.invalid("must be greater than or equal to 0"));
            }
            if name.contains('/') && quantity.nanos() % 1_000_000_000 != 0 {
                errors.push(entry.invalid("must be an integer"));
            }
            if let Some(page) = name.strip_prefix("hugepages-").and_then(Quantity::parse)
                && (quantity.nanos() <= 0 || page.nanos() <= 0 || quantity.nanos() % page.nanos() != 0)
            {
                let detail = format!("{} is not positive integer multiple of {name}", entry.text());
                errors.push(entry.invalid(detail));
            }
        }
    }
    if huge_pages && !basic {
        errors.push(resources.forbidden("HugePages require cpu or memory"));
    }
    let (requests, limits) = (resources.get("requests"), resources.get("limits"));
    for (name, request) in requests.entries() {
        let limit = limits
            .entries()
            .find(|(other, _)| *other == name)
            .map(|(_, limit)| limit);
        let overcommits = !name.contains('/') && !name.starts_with("hugepages-");
        match limit {
            None if !overcommits => {
                errors.push(limits.required("Limit must be set for non overcommitable resources"));
            }
            Some(limit) => {
                let (Some(asked), Some(most)) = (amount(&request), amount(&limit)) else {
                    continue;
                };
                let wrong = if overcommits {
                    (asked.nanos() > most.nanos()).then_some("less than or equal to")
                } else {
                    (asked.nanos() != most.nanos()).then_some("equal to")
                };
                errors.extend(wrong.map(|how| {
                    let detail = format!("must be {how} {name} limit of {}", limit.text());
                    FieldError::invalid_text(&requests.field, request.text(), detail)
                }));
            }
            None => {}
        }
    }
}

fn resource_name(name: &str, field: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let wrong = qualified_name(name);
    if !wrong.is_empty() {
        errors.extend(
            wrong
                .into_iter()
                .map(|what| FieldError::invalid_text(field, name, what)),
        );
    } else if !name.contains('/')
        && !matches!(name, "cpu" | "memory" | "ephemeral-storage")
        && !name.starts_with("hugepages-")
    {
        for what in [
            "must be a standard resource type or fully qualified",
            "must be a standard resource for containers",
        ] {
            errors.push(FieldError::invalid_text(field, name, what));
        }
    }
}

fn mounts(container: &At<'_>, volumes: &HashSet<&str>, errors: &mut Vec<FieldError>) {
    let all = container.get("volumeMounts");
    let mut paths = HashSet::new();
    for mount in all.items() {
        let (name, path, sub_path) = (mount.get("name"), mount.get("mountPath"), mount.get("subPath"));
        if !name.is_empty() && !volumes.contains(name.text()) {
            errors.push(FieldError::not_found(&name.field, name.value));
        }
        if !path.is_empty() && !paths.insert(path.text()) {
            errors.push(path.invalid("must be unique"));
        }
        if sub_path.text().split('/').any(|step| step == "..") {
            // The index is missing in kube-apiserver's answer.
            let field = format!("{}.subPath", all.field);
            errors.push(FieldError::invalid(field, sub_path.value, "must not contain '..'"));
        }
        if sub_path.text().starts_with('/') {
            let field = format!("{}.subPath", all.field);
            errors.push(FieldError::invalid(field, sub_path.value, "must be a relative path"));
        }
    }
}

/// Every source of a volume, in the order in which they are looked at.
const VOLUME_SOURCES: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flexVolume",
    "configMap",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "flocker",
    "downwardAPI",
    "fc",
    "azureDisk",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "scaleIO",
    "storageos",
    "projected",
    "csi",
    "ephemeral",
    "image",
];

fn check_volumes(volumes: &At<'_>, errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for volume in volumes.items() {
        let name = volume.get("name");
        if !name.is_empty() && !names.insert(name.text()) {
            errors.push(name.duplicate());
        }
        for more in VOLUME_SOURCES
            .iter()
            .filter(|source| volume.get(**source).present())
            .skip(1)
        {
            errors.push(volume.get(*more).forbidden("may not specify more than 1 volume type"));
        }
    }
}

fn security(context: &At<'_>, errors: &mut Vec<FieldError>) {
    if boolean(context.value, "/allowPrivilegeEscalation") == Some(false)
        && boolean(context.value, "/privileged") == Some(true)
    {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.push(FieldError::invalid(&context.field, &capitalized(context.value), detail));
    }
    seccomp(context, errors);
}

fn seccomp(context: &At<'_>, errors: &mut Vec<FieldError>) {
    let profile = context.get("seccompProfile");
    let local = profile.get("localhostProfile");
    if profile.get("type").text() == "Localhost" && local.is_empty() {
        errors.push(local.required("must be set when seccomp type is Localhost"));
    }
}

fn host_and_security(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    if boolean(spec.value, "/hostUsers") == Some(false) {
        for shared in ["hostNetwork", "hostPID", "hostIPC"] {
            let shared = spec.get(shared);
            if shared.value.as_bool() == Some(true) {
                errors.push(shared.forbidden("when `hostUsers` is false"));
            }
        }
    }
    let system = spec.get("os.name");
    if !system.is_empty() && !matches!(system.text(), "linux" | "windows") {
        errors.push(FieldError::not_supported(
            spec.get("os").field,
            system.value,
            &["linux", "windows"],
        ));
    }
    let context = spec.get("securityContext");
    seccomp(&context, errors);
    let mut names = HashSet::new();
    for setting in context.get("sysctls").items() {
        let name = setting.get("name");
        if name.is_empty() {
            errors.push(name.required(""));
        } else if !is_sysctl(name.text()) {
            let rule = "must have at most 253 characters and match regex \
                        ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.push(name.invalid(rule));
        } else if !names.insert(name.text()) {
            errors.push(name.duplicate());
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let part = |part: &str| {
        let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        edge(part.bytes().next())
            && edge(part.bytes().next_back())
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'))
    };
    name.len() <= 253 && name.split(['.', '/']).all(part)
}

/// An object as kube-apiserver's inner types show it: with capitals.
pub(in crate::resources) fn capitalized(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| {
                let mut letters = name.chars();
                let first = letters.next().map(|first| first.to_ascii_uppercase());
                (first.into_iter().chain(letters).collect::<String>(), capitalized(value))
            });
            Value::Object(fields.collect())
        }
        Value::Array(list) => list.iter().map(capitalized).collect(),
        other => other.clone(),
    }
}
