//! Pods.

mod annotations;
pub(in crate::resources::core) mod changes;
pub(in crate::resources) mod containers;
mod environment;
pub(in crate::resources) mod host_ports;
mod mounts;
mod network;
pub(in crate::resources) mod placement;
pub(in crate::resources) mod resources;
pub(in crate::resources) mod rules;
mod security;
pub(in crate::resources) mod spec;
pub(in crate::resources::core) mod status;
pub(in crate::resources) mod volumes;
pub(in crate::resources) mod warnings;

use std::collections::HashMap;

use crate::tree::{List, Value};

use crate::resources::cell::Cell;
use crate::resources::edit::{default_at, default_in, items_mut, set_at};
use crate::resources::lookup::{boolean, condition_true, count, integer, list, map, present, text, texts, time_s};
use crate::resources::names::label;
use crate::resources::row::Row;
use crate::resources::validate::At;
use crate::resources::{Context, FieldError, Refusal};
use annotations::{APP_ARMOR, check_annotations, check_profiles_match};
use resources::{default_pod_requests, quality_of_service};
use rules::check_spec;
use spec::{CONTAINER_LISTS, default_host_ports, default_pod_spec, default_requests};
use warnings::warn_pod;

const SUCCEEDED: &str =
    r#"[{"type":"Completed","status":"True","reason":"Succeeded","message":"The pod has completed successfully."}]"#;
const FAILED: &str = r#"[{"type":"Completed","status":"True","reason":"Failed","message":"The pod failed."}]"#;

pub(super) fn cells(row: &mut Row<'_>) {
    let pod = row.object;
    let summary = Summary::of(pod);
    let restarts = match summary.last_restart_s {
        Some(at) if summary.restarts != 0 => Cell::TextAge {
            before: format!("{} (", summary.restarts),
            at,
            after: " ago)".to_owned(),
        },
        _ => Cell::Text(summary.restarts.to_string()),
    };
    row.name()
        .text(format!("{}/{}", summary.ready, summary.containers))
        .text(summary.status)
        .cell(restarts)
        .age()
        .text_or("/status/podIPs/0/ip", "<none>")
        .text_or("/spec/nodeName", "<none>")
        .text_or("/status/nominatedNodeName", "<none>")
        .text(readiness_gates(pod));
    match text(pod, "/status/phase") {
        "Succeeded" => row.conditions(SUCCEEDED),
        "Failed" => row.conditions(FAILED),
        _ => row,
    };
}

/// What the state of a Pod's containers comes to in one line.
struct Summary {
    status: String,
    ready: i64,
    containers: i64,
    restarts: i64,
    /// Unix seconds at which a container that was started again had ended, the latest.
    last_restart_s: Option<i64>,
}

impl Summary {
    fn of(pod: &Value) -> Summary {
        let phase = text(pod, "/status/phase");
        let mut summary = Summary {
            status: first_of(text(pod, "/status/reason"), phase).to_owned(),
            ready: 0,
            containers: count(pod, "/spec/containers")
                + list(pod, "/spec/initContainers")
                    .iter()
                    .filter(|c| is_sidecar(c))
                    .count() as i64,
            restarts: 0,
            last_restart_s: None,
        };
        let gated = |c: &Value| text(c, "/type") == "PodScheduled" && text(c, "/reason") == "SchedulingGated";
        if list(pod, "/status/conditions").iter().any(gated) {
            "SchedulingGated".clone_into(&mut summary.status);
        }
        // Sidecars go on counting while the main containers run; other init containers are over by then.
        let sidecars = summary.look_at_init_containers(pod);
        if let Some(sidecars) = sidecars {
            summary.restarts = sidecars.restarts;
            summary.last_restart_s = sidecars.last_restart_s;
            summary.look_at_containers(pod);
        }
        let deleted = present(pod, "/metadata/deletionTimestamp");
        if deleted && text(pod, "/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut summary.status);
        } else if deleted && !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut summary.status);
        }
        summary
    }

    /// Goes through the init containers up to the one that holds the Pod back; the restarts of the sidecars come back
    /// when the main containers are to be looked at.
    fn look_at_init_containers(&mut self, pod: &Value) -> Option<Restarts> {
        let declared = list(pod, "/spec/initContainers");
        let mut sidecars = Restarts::default();
        let mut initializing = false;
        for (i, container) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            let restarts = Restarts::of(container);
            self.count(restarts);
            let sidecar = declared
                .iter()
                .any(|c| text(c, "/name") == text(container, "/name") && is_sidecar(c));
            if sidecar {
                sidecars.add(restarts);
            }
            let terminated = container.pointer("/state/terminated").filter(|state| !state.is_null());
            let waiting = text(container, "/state/waiting/reason");
            match terminated {
                Some(state) if integer(state, "/exitCode").unwrap_or(0) == 0 => continue,
                None if sidecar && boolean(container, "/started") == Some(true) => {
                    self.ready += i64::from(boolean(container, "/ready") == Some(true));
                    continue;
                }
                Some(state) => self.status = format!("Init:{}", how_it_ended(state)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => self.status = format!("Init:{waiting}"),
                None => self.status = format!("Init:{i}/{}", declared.len()),
            }
            initializing = true;
            break;
        }
        (!initializing || condition_true(pod, "Initialized")).then_some(sidecars)
    }

    fn look_at_containers(&mut self, pod: &Value) {
        let mut running = false;
        for container in list(pod, "/status/containerStatuses").iter().rev() {
            self.count(Restarts::of(container));
            let waiting = text(container, "/state/waiting/reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.status);
            } else if let Some(state) = container.pointer("/state/terminated").filter(|state| !state.is_null()) {
                self.status = how_it_ended(state);
            } else if boolean(container, "/ready") == Some(true) && present(container, "/state/running") {
                running = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" && running {
            let status = if condition_true(pod, "Ready") {
                "Running"
            } else {
                "NotReady"
            };
            status.clone_into(&mut self.status);
        }
    }

    fn count(&mut self, restarts: Restarts) {
        self.restarts += restarts.restarts;
        self.last_restart_s = self.last_restart_s.max(restarts.last_restart_s);
    }
}

#[derive(Clone, Copy, Default)]
struct Restarts {
    restarts: i64,
    last_restart_s: Option<i64>,
}

impl Restarts {
    fn of(container: &Value) -> Restarts {
        Restarts {
            restarts: integer(container, "/restartCount").unwrap_or(0),
            last_restart_s: time_s(container, "/lastState/terminated/finishedAt"),
        }
    }

    fn add(&mut self, other: Restarts) {
        self.restarts += other.restarts;
        self.last_restart_s = self.last_restart_s.max(other.last_restart_s);
    }
}

/// An init container that stays: it is restarted for the life of the Pod.
fn is_sidecar(container: &Value) -> bool {
    text(container, "/restartPolicy") == "Always"
}

fn how_it_ended(terminated: &Value) -> String {
    match (text(terminated, "/reason"), integer(terminated, "/signal").unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", integer(terminated, "/exitCode").unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = gates
        .iter()
        .filter(|gate| condition_true(pod, text(gate, "/conditionType")))
        .count();
    format!("{open}/{}", gates.len())
}

fn first_of<'a>(first: &'a str, second: &'a str) -> &'a str {
    if first.is_empty() { second } else { first }
}

pub(super) fn defaults(pod: &mut Value) {
    default_pod_spec(pod, "/spec");
    default_requests(pod, "/spec");
    default_pod_requests(pod);
    default_host_ports(pod);
    default_at(pod, "/spec", "enableServiceLinks", true);
}

/// The priority of a class that every cluster has (none: 0); `None` for others.
fn priority_of(class: &str) -> Option<i64> {
    match class {
        "" => Some(0),
        "system-node-critical" => Some(2_000_001_000),
        "system-cluster-critical" => Some(2_000_000_000),
        _ => None,
    }
}

/// A Pod does not say its priority itself; its class does.
pub(super) fn admit(pod: &Value) -> Result<(), Refusal> {
    let Some(computed) = priority_of(text(pod, "/spec/priorityClassName")) else {
        return Ok(());
    };
    let (kind, name, given, computed) = match (integer(pod, "/spec/priority"), text(pod, "/spec/preemptionPolicy")) {
        (Some(given), _) if given != computed => ("integer", "priority", given.to_string(), computed.to_string()),
        (_, given) if !given.is_empty() && given != PREEMPTS => {
            ("string", "PreemptionPolicy", given.to_owned(), PREEMPTS.to_owned())
        }
        _ => return Ok(()),
    };
    Err(Refusal::Forbidden(format!(
        "the {kind} value of {name} ({given}) must not be provided in pod spec; priority admission controller computed \
         {computed} from the given PriorityClass name"
    )))
}

const PREEMPTS: &str = "PreemptLowerPriority";

/// The first status, and what the API server's own admission fills in: the service account `default`, priority 0 (or
/// that of a system class), five minutes of tolerance for a node that is not ready or out of reach.
pub(super) fn prepare_create(pod: &mut Value, context: &Context<'_>) {
    let status = [
        ("phase", "Pending".into()),
        ("qosClass", quality_of_service(pod).into()),
    ];
    set_at(pod, "", "status", Value::Object(status.into_iter().collect()));
    if count(pod, "/spec/schedulingGates") > 0 {
        let condition = [
            ("lastProbeTime", Value::Null),
            ("lastTransitionTime", context.now().into()),
            (
                "message",
                "Scheduling is blocked due to non-empty scheduling gates".into(),
            ),
            ("reason", "SchedulingGated".into()),
            ("status", "False".into()),
            ("type", "PodScheduled".into()),
        ];
        let condition = Value::Object(condition.into_iter().collect());
        set_at(pod, "/status", "conditions", Value::from_iter([condition]));
    }
    merge_label_keys(pod);
    take_app_armor(pod);
    let priority = priority_of(text(pod, "/spec/priorityClassName"));
    if let Some(priority) = priority {
        default_at(pod, "/spec", "priority", priority);
        default_at(pod, "/spec", "preemptionPolicy", PREEMPTS);
    }
    default_at(pod, "/spec", "serviceAccountName", "default");
    default_at(pod, "/spec", "serviceAccount", "default");
    tolerate_failing_nodes(pod);
}

/// A Pod stays for five minutes on a node that is not ready or out of reach, unless it says otherwise. (Upstream's admission plugin
/// DefaultTolerationSeconds.)
pub fn tolerate_failing_nodes(pod: &mut Value) {
    let Some(spec) = pod.pointer_mut("/spec").and_then(Value::as_object_mut) else {
        return;
    };
    default_in(spec, "tolerations", List::new());
    let Some(Value::Array(tolerations)) = spec.get_mut("tolerations") else {
        return;
    };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = tolerations.iter().any(|toleration| {
            (text(toleration, "/key").is_empty() || text(toleration, "/key") == key)
                && matches!(text(toleration, "/effect"), "" | "NoExecute")
        });
        if !tolerated {
            let toleration = [
                ("effect", "NoExecute".into()),
                ("key", key.into()),
                ("operator", "Exists".into()),
                ("tolerationSeconds", 300.into()),
            ];
            tolerations.push(Value::Object(toleration.into_iter().collect()));
        }
    }
}

/// Adds the Pod's own values of the labels that selectors name by key only.
fn merge_label_keys(pod: &mut Value) {
    let spread = count(pod, "/spec/topologySpreadConstraints") > 0;
    if !spread && !present(pod, "/spec/affinity") {
        return;
    }
    let labels = pod.pointer("/metadata/labels").cloned().unwrap_or(Value::Null);
    let merge = |term: &mut Value| {
        for (keys, operator) in [("/matchLabelKeys", "In"), ("/mismatchLabelKeys", "NotIn")] {
            let keys: Vec<String> = texts(term, keys).into_iter().map(str::to_owned).collect();
            let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut) else {
                return;
            };
            for key in keys {
                let Some(value) = labels.get(&key) else { continue };
                let expression = [
                    ("key", key.into()),
                    ("operator", operator.into()),
                    ("values", Value::from_iter([value.clone()])),
                ];
                default_in(selector, "matchExpressions", List::new());
                if let Some(Value::Array(all)) = selector.get_mut("matchExpressions") {
                    all.push(Value::Object(expression.into_iter().collect()));
                }
            }
        }
    };
    items_mut(pod, "/spec/topologySpreadConstraints").for_each(merge);
    for pods in ["podAffinity", "podAntiAffinity"] {
        let path = format!("/spec/affinity/{pods}/requiredDuringSchedulingIgnoredDuringExecution");
        items_mut(pod, &path).for_each(merge);
        let path = format!("/spec/affinity/{pods}/preferredDuringSchedulingIgnoredDuringExecution");
        for term in items_mut(pod, &path) {
            if let Some(term) = term.get_mut("podAffinityTerm") {
                merge(term);
            }
        }
    }
}

/// Fields of AppArmor for the annotations that were there before them.
fn take_app_armor(pod: &mut Value) {
    let annotations: Vec<(String, String)> = map(pod, "/metadata/annotations")
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.strip_prefix(APP_ARMOR)?.to_owned(), value.as_str()?.to_owned())))
        .collect();
    if annotations.is_empty() || text(pod, "/spec/os/name") == "windows" {
        return;
    }
    let of_pod = pod.pointer("/spec/securityContext/appArmorProfile").cloned();
    let mut profiles: HashMap<String, Value> = HashMap::new();
    for (container, said) in annotations {
        let profile: Vec<(&str, Value)> = match &said[..] {
            "unconfined" => vec![("type", "Unconfined".into())],
            "runtime/default" => vec![("type", "RuntimeDefault".into())],
            said => match said
                .strip_prefix("localhost/")
                .filter(|path| !path.is_empty() && path.trim() == *path)
            {
                Some(path) => vec![("localhostProfile", path.into()), ("type", "Localhost".into())],
                None => continue,
            },
        };
        let profile = Value::Object(profile.into_iter().collect());
        if of_pod.as_ref() != Some(&profile) {
            profiles.insert(container, profile);
        }
    }
    for list in CONTAINER_LISTS {
        for container in items_mut(pod, &format!("/spec/{list}")) {
            if let Some(profile) = profiles.get(text(container, "/name"))
                && !present(container, "/securityContext/appArmorProfile")
            {
                let profile = profile.clone();
                set_at(container, "/securityContext", "appArmorProfile", profile);
            }
        }
    }
}

pub(super) fn validate(pod: &Value, errors: &mut Vec<FieldError>) {
    check_spec(&At::root(pod).get("spec"), Some(text(pod, "/metadata/name")), errors);
}

pub(super) fn validate_create(pod: &Value, errors: &mut Vec<FieldError>) {
    let root = At::root(pod);
    let ephemeral = root.get("spec.ephemeralContainers");
    if !ephemeral.is_empty() {
        errors.push(ephemeral.forbidden("cannot be set on create"));
    }
    let node = root.get("spec.nodeName");
    if !node.is_empty() && count(pod, "/spec/schedulingGates") > 0 {
        errors.push(node.forbidden("cannot be set until all schedulingGates have been cleared"));
    }
    let annotations = root.get("metadata.annotations");
    if !annotations.is_empty() {
        check_annotations(&annotations, &root.get("spec"), errors);
        check_profiles_match(pod, errors);
    }
}

pub(super) fn warnings(pod: &Value) -> Vec<String> {
    let mut warnings = warn_pod(pod);
    let wrong = label(text(pod, "/metadata/name"));
    if !wrong.is_empty() {
        warnings.insert(0, format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is \
             recommended: [{}]",
            wrong.join(" ")
        ));
    }
    warnings
}
