//! What Pods of a namespace may do, by its labels: the standards `privileged`, `baseline` and `restricted`, each in the version of a
//! release, enforced, warned of or audited. (Upstream's admission plugin PodSecurity; nothing is exempt.)
//!
//! Rules: <https://kubernetes.io/docs/concepts/security/pod-security-admission/>.

mod checks;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Refused, Request, read};
use crate::admission::Operation;
use crate::resources::FieldError;
use crate::store::{Damaged, Range, Selection, View};
use crate::tree::Value;
use checks::{Pod, Violation, violations};

/// A standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

/// A standard as it was in a minor version; `None` is the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standard {
    level: Level,
    minor: Option<u32>,
}

impl Standard {
    const FREE: Standard = Standard {
        level: Level::Privileged,
        minor: None,
    };

    fn violations(self, pod: &Pod<'_>) -> Vec<Violation> {
        violations(self.level, self.minor.unwrap_or(u32::MAX), pod)
    }
}

impl std::fmt::Display for Standard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let level = self.level.name();
        match self.minor {
            None => write!(f, "{level}:latest"),
            Some(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

/// What a namespace asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Policy {
    enforce: Standard,
    audit: Standard,
    warn: Standard,
    faults: Vec<FieldError>,
}

/// What labels of this prefix mean.
const PREFIX: &str = "pod-security.kubernetes.io/";

impl Policy {
    /// Reads the labels of a namespace. Levels that are none are the strictest for what is enforced, and none for the rest.
    fn of<'a>(label: impl Fn(&str) -> Option<&'a str>) -> Policy {
        let mut faults = Vec::new();
        let mut standard = |mode: &str| {
            let mut standard = Standard::FREE;
            let mut fault = |key: &str, value: &str, why: &str| {
                faults.push(FieldError::invalid_text(format!("metadata.labels[{key}]"), value, why));
            };
            let key = format!("{PREFIX}{mode}");
            if let Some(level) = label(&key) {
                let known = [Level::Privileged, Level::Baseline, Level::Restricted];
                let found = known.into_iter().find(|known| known.name() == level);
                standard.level = found.unwrap_or_else(|| {
                    fault(&key, level, "must be one of privileged, baseline, restricted");
                    if mode == "enforce" {
                        Level::Restricted
                    } else {
                        Level::Privileged
                    }
                });
            }
            let key = format!("{PREFIX}{mode}-version");
            if let Some(version) = label(&key).filter(|version| *version != "latest") {
                standard.minor = minor_of(version);
                if standard.minor.is_none() {
                    fault(&key, version, "must be \"latest\" or \"v1.x\"");
                }
            }
            standard
        };
        let (enforce, audit, warn) = (standard("enforce"), standard("audit"), standard("warn"));
        Policy {
            enforce,
            audit,
            warn,
            faults,
        }
    }

    fn of_namespace(namespace: &Value) -> Policy {
        let labels = &namespace["metadata"]["labels"];
        Policy::of(|key| labels[key].as_str())
    }
}

/// The N of `v1.N`.
fn minor_of(version: &str) -> Option<u32> {
    let digits = version.strip_prefix("v1.")?;
    let plain = digits == "0" || !digits.starts_with('0');
    let is_number = plain && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// Judges a Pod, what makes Pods, or the labels of a namespace. Costs a look at the labels of the namespace where it asks for
/// nothing.
///
/// # Errors
/// 403 for a Pod that its namespace forbids; 422 for labels that mean nothing.
pub(super) fn validate(
    view: &Arc<View>,
    request: &Request<'_>,
    object: &Value,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), Refused> {
    let storage = &*request.resource.storage;
    if storage == "namespaces" {
        return namespace(view, request, object, old, warnings);
    }
    let is_pod = storage == "pods";
    if is_pod {
        let other = [
            "exec",
            "attach",
            "binding",
            "eviction",
            "log",
            "portforward",
            "proxy",
            "status",
        ];
        if other.contains(&request.subresource) {
            return Ok(());
        }
    } else if !request.subresource.is_empty() {
        return Ok(());
    }
    let Some(template) = template(storage, object) else {
        return Ok(());
    };
    let Some(policy) = policy_of(view, request.namespace.unwrap_or(""))? else {
        return Ok(());
    };
    if is_pod && old.is_some_and(|old| !matters(object, old)) {
        return Ok(());
    }
    let pod = Pod {
        metadata: &template["metadata"],
        spec: &template["spec"],
    };
    if is_pod {
        let found = policy.enforce.violations(&pod);
        if !found.is_empty() {
            let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, told(&found));
            return Err(Refused::Forbidden(why));
        }
    }
    let found = policy.warn.violations(&pod);
    if !found.is_empty() {
        warnings.push(format!(
            "would violate PodSecurity \"{}\": {}",
            policy.warn,
            told(&found)
        ));
    }
    Ok(())
}

/// What the audit log is told of a Pod, or of what makes Pods: which standard is enforced, and how what is only noted is violated.
pub(super) fn for_audit(
    view: &View,
    request: &Request<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<Vec<(&'static str, String)>, Damaged> {
    let storage = &*request.resource.storage;
    let is_pod = storage == "pods";
    let is_looked_at = match request.subresource {
        "" => true,
        "ephemeralcontainers" | "resize" => is_pod,
        _ => false,
    };
    let Some(template) = template(storage, object).filter(|_| is_looked_at) else {
        return Ok(Vec::new());
    };
    if is_pod && old.is_some_and(|old| !matters(object, old)) {
        return Ok(Vec::new());
    }
    let policy = policy_of(view, request.namespace.unwrap_or(""))?;
    let (enforce, audit) = policy.map_or((Standard::FREE, Standard::FREE), |policy| {
        (policy.enforce, policy.audit)
    });
    let mut told = Vec::new();
    if is_pod {
        told.push(("pod-security.kubernetes.io/enforce-policy", enforce.to_string()));
    }
    let pod = Pod {
        metadata: &template["metadata"],
        spec: &template["spec"],
    };
    let found = audit.violations(&pod);
    if !found.is_empty() {
        let why = format!("would violate PodSecurity \"{audit}\": {}", self::told(&found));
        told.push(("pod-security.kubernetes.io/audit-violations", why));
    }
    Ok(told)
}

fn told(violations: &[Violation]) -> String {
    let each = violations.iter().map(|violation| {
        if violation.detail.is_empty() {
            violation.reason.clone()
        } else {
            format!("{} ({})", violation.reason, violation.detail)
        }
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Where an object describes Pods; itself, for a Pod.
fn template<'a>(storage: &str, object: &'a Value) -> Option<&'a Value> {
    let template = match storage {
        "pods" => object,
        "podtemplates" => &object["template"],
        "replicationcontrollers"
        | "replicasets.apps"
        | "deployments.apps"
        | "statefulsets.apps"
        | "daemonsets.apps"
        | "jobs.batch" => &object["spec"]["template"],
        "cronjobs.batch" => &object["spec"]["jobTemplate"]["spec"]["template"],
        _ => return None,
    };
    template.is_object().then_some(template)
}

/// What a namespace asks for; `None` when it asks for nothing.
fn policy_of(view: &View, namespace: &str) -> Result<Option<Policy>, Damaged> {
    let Some(found) = view.get("namespaces", namespace)? else {
        return Ok(None);
    };
    let sidecar = found.sidecar()?;
    if !sidecar
        .labels
        .iter()
        .any(|label| label.name.as_str().starts_with(PREFIX))
    {
        return Ok(None);
    }
    Ok(Some(Policy::of(|key| sidecar.label(key))))
}

/// Whether a change of a Pod can make it violate what it did not: another image, another profile in an annotation, another
/// container.
fn matters(new: &Value, old: &Value) -> bool {
    let (annotations, before) = (&new["metadata"]["annotations"], &old["metadata"]["annotations"]);
    let differs = |key: &str| annotations[key] != before[key];
    if differs("seccomp.security.alpha.kubernetes.io/pod") {
        return true;
    }
    let list = |pod: &Value, name: &str| pod["spec"][name].as_array().cloned().unwrap_or_default();
    let changed = |new: &Value, old: &Value| {
        let name = new["name"].as_str().unwrap_or("");
        new["image"] != old["image"] || differs(&format!("container.seccomp.security.alpha.kubernetes.io/{name}"))
    };
    for name in ["containers", "initContainers"] {
        let (new, old) = (list(new, name), list(old, name));
        if new.len() != old.len() || new.iter().zip(old.iter()).any(|(new, old)| changed(new, old)) {
            return true;
        }
    }
    let known = list(old, "ephemeralContainers");
    list(new, "ephemeralContainers")
        .iter()
        .any(|new| match known.iter().find(|old| old["name"] == new["name"]) {
            Some(old) => changed(new, old),
            None => true,
        })
}

fn namespace(
    view: &Arc<View>,
    request: &Request<'_>,
    namespace: &Value,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), Refused> {
    if !request.subresource.is_empty() || !matches!(request.operation, Operation::Create | Operation::Update) {
        return Ok(());
    }
    if old.is_some_and(|old| old["metadata"]["labels"] == namespace["metadata"]["labels"]) {
        return Ok(());
    }
    let policy = Policy::of_namespace(namespace);
    let before = old.map(Policy::of_namespace);
    let known = before.as_ref().is_some_and(|before| before.faults == policy.faults);
    if !policy.faults.is_empty() && !known {
        return Err(Refused::Invalid(policy.faults));
    }
    let Some(before) = before else {
        return Ok(());
    };
    let (enforce, before) = (policy.enforce, before.enforce);
    let stricter = enforce.minor != before.minor || enforce.level > before.level;
    if enforce != before && enforce.level != Level::Privileged && stricter {
        let name = namespace["metadata"]["name"].as_str().unwrap_or("");
        warnings.extend(warn_of_pods(view, name, enforce)?);
    }
    Ok(())
}

/// Most Pods of a namespace that are looked at when it asks for more, and how long.
const PODS_MAX: usize = 3000;
const TIME_MAX: Duration = Duration::from_secs(1);

/// Tells of Pods that are there already and would not be let in any more.
fn warn_of_pods(view: &Arc<View>, namespace: &str, enforce: Standard) -> Result<Vec<String>, Damaged> {
    let began = Instant::now();
    let total = view.count("pods", Some(namespace));
    let range = Range {
        namespace: Some(namespace.to_owned()),
        after: None,
    };
    let mut listing = view.list("pods", range, &Selection::all());
    let mut checked = 0;
    // Reasons, the first Pod by name, and how many Pods.
    let mut found: BTreeMap<String, (String, usize)> = BTreeMap::new();
    'pods: while let Some(run) = listing.next(64)? {
        for object in run.objects() {
            if checked == PODS_MAX || began.elapsed() > TIME_MAX {
                break 'pods;
            }
            checked += 1;
            let pod = read(&object)?;
            let pod = Pod {
                metadata: &pod["metadata"],
                spec: &pod["spec"],
            };
            let reasons: Vec<String> = enforce.violations(&pod).into_iter().map(|found| found.reason).collect();
            if !reasons.is_empty() {
                let entry = found.entry(reasons.join(", "));
                entry.or_insert_with(|| (object.name().to_owned(), 0)).1 += 1;
            }
        }
    }
    let mut warnings = Vec::new();
    if (checked as u64) < total {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
        ));
    }
    if !found.is_empty() {
        warnings.push(format!(
            "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{enforce}\""
        ));
    }
    let each = found.into_iter().map(|(reasons, (first, count))| match count {
        1 => format!("{first}: {reasons}"),
        2 => format!("{first} (and 1 other pod): {reasons}"),
        _ => format!("{first} (and {} other pods): {reasons}", count - 1),
    });
    let mut each: Vec<String> = each.collect();
    each.sort();
    warnings.extend(each);
    Ok(warnings)
}
