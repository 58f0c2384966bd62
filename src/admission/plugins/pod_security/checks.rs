//! The checks of the Pod Security Standards, by the version of the standards that each holds from.
//!
//! Rules: <https://kubernetes.io/docs/concepts/security/pod-security-standards/>. The words are kube-apiserver's.

use std::collections::BTreeSet;

use super::Level;
use crate::tree::{List, Value};

/// What a Pod does that a standard forbids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    /// In a few words.
    pub reason: String,
    /// Who does it, and what should be.
    pub detail: String,
}

/// A Pod that is checked.
pub(super) struct Pod<'a> {
    pub metadata: &'a Value,
    pub spec: &'a Value,
}

/// From which minor version on a Pod is looked at so.
type Since = (u32, fn(&Pod<'_>) -> Option<Violation>);

/// A check. Of several with one name the newest that a version knows counts; a check of `restricted` takes the place of the one of
/// `baseline` that it names.
struct Check {
    name: &'static str,
    level: Level,
    replaces: &'static str,
    /// The newest first.
    since: &'static [Since],
}

const fn baseline(name: &'static str, since: &'static [Since]) -> Check {
    Check {
        name,
        level: Level::Baseline,
        replaces: "",
        since,
    }
}

const fn restricted(name: &'static str, replaces: &'static str, since: &'static [Since]) -> Check {
    Check {
        name,
        level: Level::Restricted,
        replaces,
        since,
    }
}

/// All checks, in the order in which violations are told.
const CHECKS: &[Check] = &[
    baseline("appArmorProfile", &[(0, app_armor)]),
    baseline("capabilities_baseline", &[(0, capabilities)]),
    baseline("hostNamespaces", &[(0, host_namespaces)]),
    baseline("hostPathVolumes", &[(0, host_paths)]),
    baseline("hostPorts", &[(0, host_ports)]),
    baseline("hostProbesAndHostLifecycle", &[(34, hosts_of_probes)]),
    baseline("privileged", &[(0, privileged)]),
    baseline(
        "procMount_baseline",
        &[(35, unless_user_namespace::<ProcMount>), (0, proc_mount)],
    ),
    baseline("seLinuxOptions", &[(31, se_linux_31), (0, se_linux)]),
    baseline(
        "seccompProfile_baseline",
        &[(19, seccomp_fields), (0, seccomp_annotations)],
    ),
    baseline(
        "sysctls",
        &[(32, sysctls_32), (29, sysctls_29), (27, sysctls_27), (0, sysctls)],
    ),
    baseline("windowsHostProcess", &[(0, host_process)]),
    restricted(
        "allowPrivilegeEscalation",
        "",
        &[(25, unless_windows::<Escalation>), (8, escalation)],
    ),
    restricted(
        "capabilities_restricted",
        "capabilities_baseline",
        &[(25, unless_windows::<Dropped>), (22, dropped_capabilities)],
    ),
    restricted("procMount_restricted", "procMount_baseline", &[(35, proc_mount)]),
    restricted("restrictedVolumes", "hostPathVolumes", &[(0, volumes)]),
    restricted(
        "runAsNonRoot",
        "",
        &[(35, unless_user_namespace::<NonRoot>), (0, non_root)],
    ),
    restricted(
        "runAsUser",
        "",
        &[(35, unless_user_namespace::<RootUser>), (23, root_user)],
    ),
    restricted(
        "seccompProfile_restricted",
        "seccompProfile_baseline",
        &[(25, unless_windows::<Seccomp>), (19, seccomp_required)],
    ),
];

/// What a Pod violates of a level as it was in minor version `minor`. Looks at each container a few times.
pub(super) fn violations(level: Level, minor: u32, pod: &Pod<'_>) -> Vec<Violation> {
    let known = |check: &'static Check| {
        check
            .since
            .iter()
            .find(|(since, _)| *since <= minor)
            .map(|(_, run)| run)
    };
    let counts = |check: &&Check| match (level, check.level) {
        (Level::Privileged, _) | (Level::Baseline, Level::Restricted) => false,
        (Level::Baseline, _) => true,
        (Level::Restricted, _) => !CHECKS
            .iter()
            .any(|other| other.replaces == check.name && known(other).is_some()),
    };
    let run = |check: &'static Check| known(check).and_then(|run| run(pod));
    CHECKS.iter().filter(counts).filter_map(run).collect()
}

#[allow(clippy::unnecessary_wraps, reason = "it is what checks answer")]
fn found(reason: &str, detail: String) -> Option<Violation> {
    Some(Violation {
        reason: reason.to_owned(),
        detail,
    })
}

fn quoted<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("\"{}\"", name.as_ref())).collect();
    names.join(", ")
}

fn one_or_more<'a>(one: &'a str, more: &'a str, count: usize) -> &'a str {
    if count == 1 { one } else { more }
}

/// `container "a"` or `containers "a", "b"`.
fn containers_named(names: &[&str]) -> String {
    let word = one_or_more("container", "containers", names.len());
    format!("{word} {}", quoted(names))
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().map_or(&[] as &[Value], List::as_slice).iter()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

impl<'a> Pod<'a> {
    /// All containers: those that start the Pod, those of it, those to look into it.
    fn containers(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(move |list| items(&spec[list]))
    }

    /// The names of the containers that are such.
    fn named(&self, is_such: impl Fn(&Value) -> bool) -> Vec<&'a str> {
        let such = self.containers().filter(|container| is_such(container));
        such.map(|container| text(&container["name"])).collect()
    }

    /// Who is such: `pod`, its containers, or both.
    fn setters(&self, is_such: impl Fn(&Value) -> bool) -> Vec<String> {
        let mut setters = Vec::new();
        if is_such(&self.spec["securityContext"]) {
            setters.push("pod".to_owned());
        }
        let containers = self.named(|container| is_such(&container["securityContext"]));
        if !containers.is_empty() {
            setters.push(containers_named(&containers));
        }
        setters
    }

    /// The values at a place of the security contexts, of the Pod and of its containers.
    fn values(&self, at: &str) -> impl Iterator<Item = &'a Value> {
        let contexts = self.containers().map(|container| &container["securityContext"]);
        let contexts = std::iter::once(&self.spec["securityContext"]).chain(contexts);
        contexts.filter_map(move |context| context.pointer(at).filter(|value| !value.is_null()))
    }
}

/// A check as a type, for those that hold on conditions.
trait Rule {
    fn run(pod: &Pod<'_>) -> Option<Violation>;
}

macro_rules! rule {
    ($($name:ident = $run:ident),+) => {$(
        struct $name;
        impl Rule for $name {
            fn run(pod: &Pod<'_>) -> Option<Violation> {
                $run(pod)
            }
        }
    )+};
}

rule!(
    ProcMount = proc_mount,
    Escalation = escalation,
    Dropped = dropped_capabilities,
    NonRoot = non_root,
    RootUser = root_user,
    Seccomp = seccomp_required
);

/// Root within a user namespace is nobody outside of it.
fn unless_user_namespace<R: Rule>(pod: &Pod<'_>) -> Option<Violation> {
    if pod.spec["hostUsers"] == false {
        None
    } else {
        R::run(pod)
    }
}

/// What Linux alone has is not asked of Windows.
fn unless_windows<R: Rule>(pod: &Pod<'_>) -> Option<Violation> {
    if pod.spec["os"]["name"] == "windows" {
        None
    } else {
        R::run(pod)
    }
}

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    const KEYS: &str = "container.apparmor.security.beta.kubernetes.io/";
    let at = "/appArmorProfile/type";
    let is_bad = |kind: &Value| !matches!(text(kind), "RuntimeDefault" | "Localhost");
    let sets_bad =
        |context: &Value| context["appArmorProfile"].is_object() && is_bad(&context["appArmorProfile"]["type"]);
    let mut setters = pod.setters(sets_bad);
    let bad: BTreeSet<String> = pod
        .values(at)
        .filter(|kind| is_bad(kind))
        .map(|kind| text(kind).to_owned())
        .collect();
    let mut values: Vec<String> = bad.into_iter().collect();
    let annotations = pod.metadata["annotations"].as_object().into_iter().flatten();
    let mut forbidden: Vec<String> = annotations
        .filter(|(key, _)| key.starts_with(KEYS))
        .map(|(key, value)| (key, text(value)))
        .filter(|(_, value)| !value.is_empty() && *value != "runtime/default" && !value.starts_with("localhost/"))
        .map(|(key, value)| format!("{}={value:?}", key.as_str()))
        .collect();
    if !forbidden.is_empty() {
        forbidden.sort();
        setters.push(one_or_more("annotation", "annotations", forbidden.len()).to_owned());
        values.extend(forbidden);
    }
    if setters.is_empty() {
        return None;
    }
    let reason = one_or_more(
        "forbidden AppArmor profile",
        "forbidden AppArmor profiles",
        values.len(),
    );
    let setters = setters.join(" and ");
    found(
        reason,
        format!("{setters} must not set AppArmor profile type to {}", quoted(values)),
    )
}

const DEFAULT_CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Who adds capabilities that are not allowed, and which.
fn added<'a>(pod: &Pod<'a>, allowed: &[&str]) -> (Vec<&'a str>, BTreeSet<&'a str>) {
    let forbidden = |container: &'a Value| {
        items(&container["securityContext"]["capabilities"]["add"])
            .map(text)
            .filter(|name| !allowed.contains(name))
    };
    let mut names = Vec::new();
    let mut all = BTreeSet::new();
    for container in pod.containers() {
        let own: Vec<&str> = forbidden(container).collect();
        if !own.is_empty() {
            names.push(text(&container["name"]));
            all.extend(own);
        }
    }
    (names, all)
}

fn must_not_add(names: &[&str], capabilities: &BTreeSet<&str>) -> String {
    let who = containers_named(names);
    format!(
        "{who} must not include {} in securityContext.capabilities.add",
        quoted(capabilities)
    )
}

fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let (names, capabilities) = added(pod, DEFAULT_CAPABILITIES);
    if names.is_empty() {
        return None;
    }
    found("non-default capabilities", must_not_add(&names, &capabilities))
}

fn dropped_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let mut details = Vec::new();
    let keeps = |container: &Value| {
        let mut dropped = items(&container["securityContext"]["capabilities"]["drop"]);
        !dropped.any(|name| name == "ALL")
    };
    let missing = pod.named(keeps);
    if !missing.is_empty() {
        let who = containers_named(&missing);
        details.push(format!("{who} must set securityContext.capabilities.drop=[\"ALL\"]"));
    }
    let (names, capabilities) = added(pod, &["NET_BIND_SERVICE"]);
    if !names.is_empty() {
        details.push(must_not_add(&names, &capabilities));
    }
    if details.is_empty() {
        return None;
    }
    found("unrestricted capabilities", details.join("; "))
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let used = ["hostNetwork", "hostPID", "hostIPC"].into_iter();
    let used: Vec<String> = used
        .filter(|field| pod.spec[*field] == true)
        .map(|field| format!("{field}=true"))
        .collect();
    if used.is_empty() {
        return None;
    }
    found("host namespaces", used.join(", "))
}

fn host_paths(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = items(&pod.spec["volumes"]).filter(|volume| volume["hostPath"].is_object());
    let names: Vec<&str> = volumes.map(|volume| text(&volume["name"])).collect();
    if names.is_empty() {
        return None;
    }
    let word = one_or_more("volume", "volumes", names.len());
    found("hostPath volumes", format!("{word} {}", quoted(names)))
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let ports_of = |container: &Value| -> Vec<String> {
        let ports = items(&container["ports"]).filter_map(|port| port["hostPort"].as_i64());
        ports.filter(|port| *port != 0).map(|port| port.to_string()).collect()
    };
    let names = pod.named(|container| !ports_of(container).is_empty());
    if names.is_empty() {
        return None;
    }
    let ports: BTreeSet<String> = pod.containers().flat_map(ports_of).collect();
    let detail = format!(
        "{} {} {} {}",
        containers_named(&names),
        one_or_more("uses", "use", names.len()),
        one_or_more("hostPort", "hostPorts", ports.len()),
        ports.into_iter().collect::<Vec<_>>().join(", ")
    );
    found("hostPort", detail)
}

/// Hosts that probes and hooks of containers talk to.
fn hosts_of_probes(pod: &Pod<'_>) -> Option<Violation> {
    const HANDLERS: [&str; 5] = [
        "/livenessProbe",
        "/readinessProbe",
        "/startupProbe",
        "/lifecycle/postStart",
        "/lifecycle/preStop",
    ];
    let (mut names, mut hosts) = (BTreeSet::new(), BTreeSet::new());
    for container in pod.containers() {
        for handler in HANDLERS.iter().filter_map(|at| container.pointer(at)) {
            for action in ["httpGet", "tcpSocket"] {
                let host = text(&handler[action]["host"]);
                if !host.is_empty() {
                    names.insert(text(&container["name"]));
                    hosts.insert(host);
                }
            }
        }
    }
    if names.is_empty() {
        return None;
    }
    let (names, count): (Vec<&str>, usize) = (names.into_iter().collect(), hosts.len());
    let reason = "probe or lifecycle host";
    let detail = format!(
        "{} {} {} {}",
        containers_named(&names),
        one_or_more("uses", "use", names.len()),
        one_or_more(reason, "probe or lifecycle hosts", count),
        quoted(hosts)
    );
    found(reason, detail)
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let names = pod.named(|container| container["securityContext"]["privileged"] == true);
    if names.is_empty() {
        return None;
    }
    let who = containers_named(&names);
    found(
        "privileged",
        format!("{who} must not set securityContext.privileged=true"),
    )
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let mount = |container: &Value| -> Option<String> {
        let mount = container["securityContext"]["procMount"].as_str()?;
        (mount != "Default").then(|| mount.to_owned())
    };
    let names = pod.named(|container| mount(container).is_some());
    if names.is_empty() {
        return None;
    }
    let mounts: BTreeSet<String> = pod.containers().filter_map(mount).collect();
    let who = containers_named(&names);
    found(
        "procMount",
        format!("{who} must not set securityContext.procMount to {}", quoted(mounts)),
    )
}

fn se_linux(pod: &Pod<'_>) -> Option<Violation> {
    se_linux_of(pod, &["", "container_t", "container_init_t", "container_kvm_t"])
}

fn se_linux_31(pod: &Pod<'_>) -> Option<Violation> {
    let types = [
        "",
        "container_t",
        "container_init_t",
        "container_kvm_t",
        "container_engine_t",
    ];
    se_linux_of(pod, &types)
}

fn se_linux_of(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let sets = |options: &Value, field: &str| !text(&options[field]).is_empty();
    let is_bad = |context: &Value| {
        let options = &context["seLinuxOptions"];
        !allowed.contains(&text(&options["type"])) || sets(options, "user") || sets(options, "role")
    };
    let setters = pod.setters(is_bad);
    if setters.is_empty() {
        return None;
    }
    let types = pod.values("/seLinuxOptions/type").map(text);
    let types: BTreeSet<&str> = types.filter(|kind| !allowed.contains(kind)).collect();
    let mut wrong = Vec::new();
    if !types.is_empty() {
        wrong.push(format!(
            "{} {}",
            one_or_more("type", "types", types.len()),
            quoted(types)
        ));
    }
    for field in ["user", "role"] {
        let mut set = pod.values("/seLinuxOptions");
        if set.any(|options| sets(options, field)) {
            wrong.push(format!("{field} may not be set"));
        }
    }
    let (who, what) = (setters.join(" and "), wrong.join("; "));
    found(
        "seLinuxOptions",
        format!("{who} set forbidden securityContext.seLinuxOptions: {what}"),
    )
}

fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let annotations = &pod.metadata["annotations"];
    let keys = pod.containers().map(|container| {
        format!(
            "container.seccomp.security.alpha.kubernetes.io/{}",
            text(&container["name"])
        )
    });
    let keys = keys.chain(["seccomp.security.alpha.kubernetes.io/pod".to_owned()]);
    let is_good =
        |value: &str| matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
    let bad = keys.filter_map(|key| {
        let value = annotations[&key].as_str().filter(|value| !is_good(value))?;
        Some(format!("{key}={value:?}"))
    });
    let bad: BTreeSet<String> = bad.collect();
    if bad.is_empty() {
        return None;
    }
    let word = one_or_more("annotation", "annotations", bad.len());
    let bad: Vec<String> = bad.into_iter().collect();
    found("seccompProfile", format!("forbidden {word} {}", bad.join(", ")))
}

/// Whether a security context names a profile of its own, and whether that is a good one.
fn seccomp_of(context: &Value) -> Option<bool> {
    let profile = &context["seccompProfile"];
    profile
        .is_object()
        .then(|| matches!(text(&profile["type"]), "RuntimeDefault" | "Localhost"))
}

fn seccomp_fields(pod: &Pod<'_>) -> Option<Violation> {
    let setters = pod.setters(|context| seccomp_of(context) == Some(false));
    if setters.is_empty() {
        return None;
    }
    let kinds = pod.values("/seccompProfile/type").map(text);
    let kinds: BTreeSet<&str> = kinds
        .filter(|kind| !matches!(*kind, "RuntimeDefault" | "Localhost"))
        .collect();
    let who = setters.join(" and ");
    let detail = format!(
        "{who} must not set securityContext.seccompProfile.type to {}",
        quoted(kinds)
    );
    found("seccompProfile", detail)
}

fn seccomp_required(pod: &Pod<'_>) -> Option<Violation> {
    if let Some(violation) = seccomp_fields(pod) {
        return Some(violation);
    }
    let is_set = seccomp_of(&pod.spec["securityContext"]) == Some(true);
    let missing = pod.named(|container| !is_set && seccomp_of(&container["securityContext"]).is_none());
    if missing.is_empty() {
        return None;
    }
    let who = containers_named(&missing);
    let profiles = "\"RuntimeDefault\" or \"Localhost\"";
    found(
        "seccompProfile",
        format!("pod or {who} must set securityContext.seccompProfile.type to {profiles}"),
    )
}

/// Sysctls that are safe, and since when.
const SYSCTLS: &[(u32, &str)] = &[
    (0, "kernel.shm_rmid_forced"),
    (0, "net.ipv4.ip_local_port_range"),
    (0, "net.ipv4.tcp_syncookies"),
    (0, "net.ipv4.ping_group_range"),
    (0, "net.ipv4.ip_unprivileged_port_start"),
    (27, "net.ipv4.ip_local_reserved_ports"),
    (29, "net.ipv4.tcp_keepalive_time"),
    (29, "net.ipv4.tcp_fin_timeout"),
    (29, "net.ipv4.tcp_keepalive_intvl"),
    (29, "net.ipv4.tcp_keepalive_probes"),
    (32, "net.ipv4.tcp_rmem"),
    (32, "net.ipv4.tcp_wmem"),
];

fn sysctls_of(pod: &Pod<'_>, minor: u32) -> Option<Violation> {
    let is_safe = |name: &str| SYSCTLS.iter().any(|(since, safe)| *since <= minor && *safe == name);
    let names = items(&pod.spec["securityContext"]["sysctls"]).map(|sysctl| text(&sysctl["name"]));
    let names: Vec<&str> = names.filter(|name| !is_safe(name)).collect();
    if names.is_empty() {
        return None;
    }
    found("forbidden sysctls", names.join(", "))
}

fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    sysctls_of(pod, 0)
}

fn sysctls_27(pod: &Pod<'_>) -> Option<Violation> {
    sysctls_of(pod, 27)
}

fn sysctls_29(pod: &Pod<'_>) -> Option<Violation> {
    sysctls_of(pod, 29)
}

fn sysctls_32(pod: &Pod<'_>) -> Option<Violation> {
    sysctls_of(pod, 32)
}

fn host_process(pod: &Pod<'_>) -> Option<Violation> {
    let setters = pod.setters(|context| context["windowsOptions"]["hostProcess"] == true);
    if setters.is_empty() {
        return None;
    }
    let who = setters.join(" and ");
    found(
        "hostProcess",
        format!("{who} must not set securityContext.windowsOptions.hostProcess=true"),
    )
}

fn escalation(pod: &Pod<'_>) -> Option<Violation> {
    let names = pod.named(|container| container["securityContext"]["allowPrivilegeEscalation"] != false);
    if names.is_empty() {
        return None;
    }
    let who = containers_named(&names);
    found(
        "allowPrivilegeEscalation != false",
        format!("{who} must set securityContext.allowPrivilegeEscalation=false"),
    )
}

/// Sources of volumes that say where their data are on a machine or in a network.
const RESTRICTED_VOLUMES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];
const FREE_VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

fn volumes(pod: &Pod<'_>) -> Option<Violation> {
    let (mut names, mut kinds) = (Vec::new(), BTreeSet::new());
    for volume in items(&pod.spec["volumes"]) {
        let has = |kind: &&&str| volume[**kind].is_object();
        if FREE_VOLUMES.iter().any(|kind| has(&kind)) {
            continue;
        }
        names.push(text(&volume["name"]));
        kinds.insert(*RESTRICTED_VOLUMES.iter().find(has).unwrap_or(&"unknown"));
    }
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {} {}",
        one_or_more("volume", "volumes", names.len()),
        quoted(&names),
        one_or_more("uses", "use", names.len()),
        one_or_more("restricted volume type", "restricted volume types", kinds.len()),
        quoted(kinds)
    );
    found("restricted volume types", detail)
}

fn non_root(pod: &Pod<'_>) -> Option<Violation> {
    let reason = "runAsNonRoot != true";
    let setters = pod.setters(|context| context["runAsNonRoot"] == false);
    if !setters.is_empty() {
        let who = setters.join(" and ");
        return found(reason, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let is_set = pod.spec["securityContext"]["runAsNonRoot"] == true;
    let missing = pod.named(|container| !is_set && container["securityContext"]["runAsNonRoot"].is_null());
    if missing.is_empty() {
        return None;
    }
    let who = containers_named(&missing);
    found(
        reason,
        format!("pod or {who} must set securityContext.runAsNonRoot=true"),
    )
}

fn root_user(pod: &Pod<'_>) -> Option<Violation> {
    let setters = pod.setters(|context| context["runAsUser"].as_i64() == Some(0));
    if setters.is_empty() {
        return None;
    }
    found(
        "runAsUser=0",
        format!("{} must not set runAsUser=0", setters.join(" and ")),
    )
}
