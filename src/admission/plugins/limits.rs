//! Ranges of amounts in a namespace: what containers get that say nothing, and what is too little or too much. (Upstream's admission
//! plugin LimitRanger.)
//!
//! Rules: <https://kubernetes.io/docs/concepts/policy/limit-range/>.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Refused, all_in, forbidden, items, text};
use crate::resources::quantity::Quantity;
use crate::resources::{PodAmounts, pod_amounts};
use crate::store::{Damaged, View};
use crate::tree::{Key, Map, Value};

const RESOURCE: &str = "limitranges";
/// Says in a Pod what came from ranges.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// The ranges of a namespace; none costs one look.
fn ranges(view: &Arc<View>, namespace: &str) -> Result<Vec<Value>, Damaged> {
    if view.count(RESOURCE, None) == 0 {
        return Ok(Vec::new());
    }
    all_in(view, RESOURCE, Some(namespace))
}

fn limits_of<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    items(&range["spec"]["limits"]).filter(move |limit| limit["type"] == kind)
}

/// Gives containers what they do not say themselves.
///
/// # Errors
/// When ranges cannot be read.
pub(super) fn mutate(view: &Arc<View>, namespace: &str, pod: &mut Value) -> Result<(), Refused> {
    for range in ranges(view, namespace)? {
        let gather = |field: &str| -> BTreeMap<Key, Value> {
            let parts = limits_of(&range, "Container").filter_map(|limit| limit[field].as_object());
            parts
                .flatten()
                .map(|(name, amount)| (name.clone(), amount.clone()))
                .collect()
        };
        let (requests, limits) = (gather("defaultRequest"), gather("default"));
        if requests.is_empty() && limits.is_empty() {
            continue;
        }
        let mut told = Vec::new();
        for (list, word) in [("containers", "container"), ("initContainers", "init container")] {
            let Some(containers) = pod["spec"].get_mut(list).and_then(Value::as_array_mut) else {
                continue;
            };
            for container in containers {
                let set_requests = fill(container, "requests", &requests);
                let set_limits = fill(container, "limits", &limits);
                let name = text(&container["name"]);
                for (set, what) in [(set_requests, "request"), (set_limits, "limit")] {
                    if !set.is_empty() {
                        told.push(format!("{} {what} for {word} {name}", set.join(", ")));
                    }
                }
            }
        }
        if !told.is_empty()
            && let Some(metadata) = pod["metadata"].as_object_mut()
        {
            let annotations = metadata.entry("annotations").or_insert(Value::Null);
            if !annotations.is_object() {
                *annotations = Value::Object(Map::new());
            }
            if let Some(annotations) = annotations.as_object_mut() {
                let text = format!("LimitRanger plugin set: {}", told.join("; "));
                annotations.insert(ANNOTATION, text.into());
            }
        }
    }
    Ok(())
}

/// Sets amounts that are not set; their names come back, sorted.
fn fill(container: &mut Value, field: &'static str, amounts: &BTreeMap<Key, Value>) -> Vec<String> {
    let present = &container["resources"][field];
    let missing: Vec<&Key> = amounts.keys().filter(|name| present[name.as_str()].is_null()).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let mut all = present.as_object().cloned().unwrap_or_default();
    for name in &missing {
        all.insert((*name).clone(), amounts[*name].clone());
    }
    if !container["resources"].is_object() {
        container["resources"] = Value::Object(Map::new());
    }
    container["resources"][field] = Value::Object(all);
    missing.into_iter().map(|name| name.as_str().to_owned()).collect()
}

/// Judges what a Pod asks for.
///
/// # Errors
/// 403.
pub(super) fn validate_pod(view: &Arc<View>, namespace: &str, pod: &Value) -> Result<(), Refused> {
    for range in ranges(view, namespace)? {
        let mut wrong = Vec::new();
        for limit in items(&range["spec"]["limits"]) {
            match text(&limit["type"]) {
                "Container" => {
                    for list in ["containers", "initContainers"] {
                        for container in items(&pod["spec"][list]) {
                            let amounts = |field: &str| amounts(&container["resources"][field]);
                            check(limit, &amounts("requests"), &amounts("limits"), &mut wrong);
                        }
                    }
                }
                "Pod" => {
                    let PodAmounts { requests, limits } = pod_amounts(pod);
                    check(limit, &requests, &limits, &mut wrong);
                }
                _ => {}
            }
        }
        refuse(wrong)?;
    }
    Ok(())
}

/// Judges what a claim asks for.
///
/// # Errors
/// 403.
pub(super) fn validate_claim(view: &Arc<View>, namespace: &str, claim: &Value) -> Result<(), Refused> {
    for range in ranges(view, namespace)? {
        let mut wrong = Vec::new();
        let requests = amounts(&claim["spec"]["resources"]["requests"]);
        for limit in limits_of(&range, "PersistentVolumeClaim") {
            each(&limit["min"], |name, bound| {
                minimum(limit, name, bound, &requests, None, &mut wrong);
            });
            each(&limit["max"], |name, bound| {
                let told = Told::new(limit, name, bound);
                match requests.get(name) {
                    None => wrong.push(told.missing("maximum", "request")),
                    Some(request) if milli(*request) > milli(bound) => {
                        wrong.push(told.but("maximum", "request", *request));
                    }
                    Some(_) => {}
                }
            });
        }
        refuse(wrong)?;
    }
    Ok(())
}

/// One fault as it is, several in brackets, each once.
fn refuse(wrong: Vec<String>) -> Result<(), Refused> {
    let mut told: Vec<String> = Vec::new();
    for fault in wrong {
        if !told.contains(&fault) {
            told.push(fault);
        }
    }
    match &told[..] {
        [] => Ok(()),
        [fault] => Err(forbidden(fault.clone())),
        faults => Err(forbidden(format!("[{}]", faults.join(", ")))),
    }
}

type Amounts = BTreeMap<String, Quantity>;

fn amounts(map: &Value) -> Amounts {
    let amounts = map.as_object().into_iter().flatten();
    amounts
        .filter_map(|(name, amount)| Some((name.as_str().to_owned(), Quantity::parse(amount.as_str()?)?)))
        .collect()
}

fn each(bounds: &Value, mut check: impl FnMut(&str, Quantity)) {
    for (name, bound) in amounts(bounds) {
        check(&name, bound);
    }
}

fn milli(quantity: Quantity) -> i128 {
    quantity.to_millis().nanos()
}

/// What is said of a bound.
struct Told<'a> {
    name: &'a str,
    kind: &'a str,
    bound: String,
}

impl<'a> Told<'a> {
    fn new(limit: &'a Value, name: &'a str, bound: Quantity) -> Self {
        Self {
            name,
            kind: text(&limit["type"]),
            bound: bound.canonical(),
        }
    }

    fn missing(&self, which: &str, what: &str) -> String {
        let Told { name, kind, bound } = self;
        format!("{which} {name} usage per {kind} is {bound}.  No {what} is specified")
    }

    fn but(&self, which: &str, what: &str, amount: Quantity) -> String {
        let Told { name, kind, bound } = self;
        format!(
            "{which} {name} usage per {kind} is {bound}, but {what} is {}",
            amount.canonical()
        )
    }

    fn ratio(&self, but: &str) -> String {
        let Told { name, kind, bound } = self;
        format!("{name} max limit to request ratio per {kind} is {bound}, but {but}")
    }
}

fn check(limit: &Value, requests: &Amounts, limits: &Amounts, wrong: &mut Vec<String>) {
    each(&limit["min"], |name, bound| {
        minimum(limit, name, bound, requests, Some(limits), wrong);
    });
    each(&limit["max"], |name, bound| {
        let told = Told::new(limit, name, bound);
        match (requests.get(name), limits.get(name)) {
            (_, None) => wrong.push(told.missing("maximum", "limit")),
            (_, Some(most)) if milli(*most) > milli(bound) => wrong.push(told.but("maximum", "limit", *most)),
            (Some(request), _) if milli(*request) > milli(bound) => {
                wrong.push(told.but("maximum", "request", *request));
            }
            _ => {}
        }
    });
    each(&limit["maxLimitRequestRatio"], |name, bound| {
        let told = Told::new(limit, name, bound);
        let amount = |amounts: &Amounts| amounts.get(name).map_or(0, |amount| milli(*amount));
        match (amount(requests), amount(limits)) {
            (0, _) => wrong.push(told.ratio("no request is specified or request is 0")),
            (_, 0) => wrong.push(told.ratio("no limit is specified or limit is 0")),
            (request, most) => {
                // kube-apiserver tells thousandths of the ratio where it compares thousandths.
                let ratio = most as f64 / request as f64;
                if ratio > bound.nanos() as f64 / 1e9 {
                    wrong.push(told.ratio(&format!("provided ratio is {ratio:.6}")));
                }
            }
        }
    });
}

fn minimum(
    limit: &Value,
    name: &str,
    bound: Quantity,
    requests: &Amounts,
    limits: Option<&Amounts>,
    wrong: &mut Vec<String>,
) {
    let told = Told::new(limit, name, bound);
    match (requests.get(name), limits.and_then(|limits| limits.get(name))) {
        (None, _) => wrong.push(told.missing("minimum", "request")),
        (Some(request), _) if milli(*request) < milli(bound) => {
            wrong.push(told.but("minimum", "request", *request));
        }
        (_, Some(most)) if milli(*most) < milli(bound) => wrong.push(told.but("minimum", "limit", *most)),
        _ => {}
    }
}
