//! Pods.

use crate::tree::{List, Value};

use super::pod_rules::check_pod_spec;
use super::pod_spec::{default_pod_spec, default_requests};
use super::pod_warnings::warn_pod_spec;
use crate::resources::cell::Cell;
use crate::resources::edit::{default_at, default_in, items_mut, remove_at, set_at};
use crate::resources::lookup;
use crate::resources::lookup::{boolean, condition_true, count, integer, list, map, present, text, time_s};
use crate::resources::names::{label, qualified_name, subdomain};
use crate::resources::quantity::Quantity;
use crate::resources::row::Row;
use crate::resources::strategy::keep;
use crate::resources::validate::{self, At};
use crate::resources::{Context, FieldError, Refusal};

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
pub(super) fn prepare_create(pod: &mut Value, _: &Context<'_>) {
    let status = [
        ("phase", "Pending".into()),
        ("qosClass", quality_of_service(pod).into()),
    ];
    set_at(pod, "", "status", Value::Object(status.into_iter().collect()));
    let priority = priority_of(text(pod, "/spec/priorityClassName"));
    if let Some(priority) = priority {
        default_at(pod, "/spec", "priority", priority);
        default_at(pod, "/spec", "preemptionPolicy", PREEMPTS);
    }
    default_at(pod, "/spec", "serviceAccountName", "default");
    default_at(pod, "/spec", "serviceAccount", "default");
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

/// `Guaranteed` when every container has limits of processor and memory and requests no less, `BestEffort` when none asks
/// for anything, `Burstable` otherwise.
fn quality_of_service(pod: &Value) -> &'static str {
    let containers = list(pod, "/spec/containers")
        .iter()
        .chain(list(pod, "/spec/initContainers"));
    let (mut any, mut guaranteed) = (false, true);
    for container in containers {
        for name in ["cpu", "memory"] {
            let amount = |part: &str| {
                let quantity = Quantity::parse(container["resources"][part][name].as_str()?)?;
                Some(quantity.nanos()).filter(|&nanos| nanos > 0)
            };
            let (request, limit) = (amount("requests"), amount("limits"));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

pub(super) fn validate(pod: &Value, errors: &mut Vec<FieldError>) {
    check_pod_spec(&At::root(pod).get("spec"), errors);
}

pub(super) fn validate_create(pod: &Value, errors: &mut Vec<FieldError>) {
    let ephemeral = At::root(pod).get("spec.ephemeralContainers");
    if !ephemeral.is_empty() {
        errors.push(ephemeral.forbidden("cannot be set on create"));
    }
}

/// A subresource changes its own part of the spec only.
pub(super) fn prepare_update(old: &Value, new: &mut Value, subresource: Option<&str>, _: &Context<'_>) {
    match subresource {
        Some("ephemeralcontainers") => {
            let containers = new.pointer("/spec/ephemeralContainers").cloned();
            keep(old, new, "spec");
            match containers {
                Some(containers) => set_at(new, "/spec", "ephemeralContainers", containers),
                None => {
                    remove_at(new, "/spec", "ephemeralContainers");
                }
            }
        }
        Some("resize") => {
            let wanted = new.get("spec").cloned().unwrap_or(Value::Null);
            keep(old, new, "spec");
            for list in ["/containers", "/initContainers"] {
                let named = |name: &str| lookup::list(&wanted, list).iter().find(|c| text(c, "/name") == name);
                for container in items_mut(new, &format!("/spec{list}")) {
                    let Some(wanted) = named(text(container, "/name")) else {
                        continue;
                    };
                    for field in ["resources", "resizePolicy"] {
                        match wanted.get(field) {
                            Some(value) => set_at(container, "", field, value.clone()),
                            None => {
                                remove_at(container, "", field);
                            }
                        }
                    }
                }
            }
        }
        Some("status") if text(new, "/status/qosClass").is_empty() => {
            let class = old.pointer("/status/qosClass").cloned().unwrap_or(Value::Null);
            set_at(new, "/status", "qosClass", class);
        }
        _ => {}
    }
}

const ONLY_THESE_CHANGE: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
    additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
    previously negative)";

pub(super) fn validate_update(old: &Value, new: &Value, subresource: Option<&str>, errors: &mut Vec<FieldError>) {
    let (before, after) = (At::root(old).get("spec"), At::root(new).get("spec"));
    match subresource {
        Some("ephemeralcontainers") => {
            let kept: Vec<&Value> = list(new, "/spec/ephemeralContainers").iter().collect();
            for container in list(old, "/spec/ephemeralContainers") {
                let name = text(container, "/name");
                let detail = match kept.iter().find(|other| text(other, "/name") == name) {
                    None => format!("existing ephemeral containers \"{name}\" may not be removed\n"),
                    Some(other) if *other != container => {
                        format!("existing ephemeral containers \"{name}\" may not be changed\n")
                    }
                    Some(_) => continue,
                };
                errors.push(FieldError::forbidden("spec.ephemeralContainers", detail));
            }
        }
        None if after.value.shares(before.value) => {}
        None => {
            for list in ["containers", "initContainers"] {
                if count(old, &format!("/spec/{list}")) != count(new, &format!("/spec/{list}")) {
                    let detail = format!(
                        "pod updates may not add or remove {}",
                        if list == "containers" { list } else { "init containers" }
                    );
                    errors.push(after.get(list).forbidden(&detail));
                    return;
                }
            }
            deadline(
                &before.get("activeDeadlineSeconds"),
                &after.get("activeDeadlineSeconds"),
                errors,
            );
            let before = list(old, "/spec/tolerations");
            let after_all = list(new, "/spec/tolerations");
            if !before
                .iter()
                .all(|toleration| after_all.iter().any(|other| same_toleration(toleration, other)))
            {
                let detail = "existing toleration can not be modified except its tolerationSeconds";
                errors.push(after.get("tolerations").forbidden(detail));
            }
            if without_what_may_change(old, new) != without_what_may_change(old, old) {
                errors.push(FieldError::forbidden("spec", ONLY_THESE_CHANGE));
            }
        }
        Some(_) => {}
    }
}

/// The same but for how long it holds.
fn same_toleration(one: &Value, other: &Value) -> bool {
    ["/key", "/operator", "/value", "/effect"]
        .iter()
        .all(|field| text(one, field) == text(other, field))
}

/// A deadline may be set, or brought forward.
fn deadline(before: &At<'_>, after: &At<'_>, errors: &mut Vec<FieldError>) {
    let Some(old_s) = before.integer() else { return };
    match after.integer() {
        None => errors.push(after.invalid("must not update from a positive integer to nil value")),
        Some(new_s) if new_s > old_s => {
            let detail = format!("must be less than or equal to previous value {old_s}");
            errors.push(after.invalid(detail));
        }
        Some(_) => {}
    }
}

/// The spec of a Pod without the parts that may change, where they changed as they may.
fn without_what_may_change(old: &Value, pod: &Value) -> Value {
    let mut spec = pod.get("spec").cloned().unwrap_or(Value::Null);
    for list in ["/containers", "/initContainers"] {
        for container in items_mut(&mut spec, list) {
            remove_at(container, "", "image");
        }
    }
    remove_at(&mut spec, "", "activeDeadlineSeconds");
    // They have a rule and a message of their own.
    remove_at(&mut spec, "", "tolerations");
    // A gate may be taken away, and while there are any, the Pod is not bound to where it may run.
    let gates = list(old, "/spec/schedulingGates");
    if list(pod, "/spec/schedulingGates")
        .iter()
        .all(|gate| gates.contains(gate))
    {
        remove_at(&mut spec, "", "schedulingGates");
    }
    if !gates.is_empty() {
        remove_at(&mut spec, "", "nodeSelector");
        remove_at(&mut spec, "/affinity", "nodeAffinity");
    }
    if integer(old, "/spec/terminationGracePeriodSeconds").is_some_and(|grace_s| grace_s < 0) {
        remove_at(&mut spec, "", "terminationGracePeriodSeconds");
    }
    spec
}

pub(super) fn validate_status(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let status = At::root(new).get("status");
    for ip in status.get("podIPs").items() {
        if let Some(what) = validate::ip(ip.get("ip").text()) {
            errors.push(FieldError::invalid(
                ip.field,
                ip.value.get("ip").unwrap_or(&Value::Null),
                what,
            ));
        }
    }
    for condition in status.get("conditions").items() {
        let kind = condition.get("type").text();
        let wrong = qualified_name(kind).into_iter();
        let field = format!("{}.Type", condition.field);
        errors.extend(wrong.map(|what| FieldError::invalid_text(&field, kind, what)));
    }
    let nominated = status.get("nominatedNodeName");
    if !nominated.is_empty() {
        nominated.check(subdomain(nominated.text()), errors);
    }
    if text(old, "/status/qosClass") != text(new, "/status/qosClass") {
        errors.push(status.get("qosClass").invalid("field is immutable"));
    }
}

pub(super) fn warnings(pod: &Value) -> Vec<String> {
    let mut warnings = warn_pod_spec(&At::root(pod).get("spec"));
    let name = "seccomp.security.alpha.kubernetes.io/pod";
    if map(pod, "/metadata/annotations").is_some_and(|annotations| annotations.contains_key(name)) {
        warnings.insert(
            0,
            format!("metadata.annotations[{name}]: non-functional in v1.27+; use the \"seccompProfile\" field instead"),
        );
    }
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
