//! Rules of amounts of resources: of containers, of the whole Pod, of what runs beside it.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use crate::tree::{Map, Value};

use super::rules::Whole;
use crate::resources::FieldError;
use crate::resources::lookup::{list, map, text};
use crate::resources::names::{label, qualified_name};
use crate::resources::quantity::Quantity;
use crate::resources::validate::{At, FieldPath};

fn amount(at: &At<'_>) -> Option<Quantity> {
    Quantity::parse(at.text())
}

/// Whether a resource is Kubernetes' own.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether more of it may be promised than there is.
pub(in crate::resources::core) fn overcommits(name: &str) -> bool {
    is_native(name) && !name.starts_with("hugepages-")
}

pub(in crate::resources) fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && qualified_name(&format!("requests.{name}")).is_empty()
}

/// Amounts of resources of one container.
pub(super) fn check_resources(resources: &At<'_>, whole: &Whole<'_>, errors: &mut Vec<FieldError>) {
    let Some(fields) = resources.value.as_object() else {
        return;
    };
    if fields.is_empty() {
        return;
    }
    check_amounts(resources, container_resource, errors);
    if fields.contains_key("claims") {
        check_claims(&resources.get("claims"), &whole.claims, errors);
    }
}

fn check_amounts(
    resources: &At<'_>,
    check_name: fn(&str, &FieldPath<'_>, &mut Vec<FieldError>),
    errors: &mut Vec<FieldError>,
) {
    let mut huge_pages = false;
    let mut basic = false;
    for part in ["limits", "requests"] {
        for (name, entry) in resources.get(part).entries() {
            check_name(name, &entry.field, errors);
            huge_pages |= name.starts_with("hugepages-");
            basic |= matches!(name, "cpu" | "memory");
            let Some(quantity) = amount(&entry) else { continue };
            if quantity.nanos() < 0 {
                errors.push(entry.invalid("must be greater than or equal to 0"));
            }
            if quantity.nanos() % 1_000_000_000 != 0 && is_extended(name) {
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
        let limit = limits.value.get(name).and_then(Value::as_str);
        match limit {
            None if !overcommits(name) => {
                errors.push(limits.required("Limit must be set for non overcommitable resources"));
            }
            Some(limit) => {
                let (Some(asked), Some(most)) = (amount(&request), Quantity::parse(limit)) else {
                    continue;
                };
                let wrong = if overcommits(name) {
                    (asked.nanos() > most.nanos()).then_some("less than or equal to")
                } else {
                    (asked.nanos() != most.nanos()).then_some("equal to")
                };
                errors.extend(wrong.map(|how| {
                    let detail = format!("must be {how} {name} limit of {limit}");
                    FieldError::invalid_text(&requests.field, request.text(), detail)
                }));
            }
            None => {}
        }
    }
}

/// What a name without a slash may be.
pub(in crate::resources::core) const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// Whether it is a name of huge pages, or of what is asked for of them.
pub(in crate::resources::core) fn is_huge_pages(name: &str) -> bool {
    name.strip_prefix("requests.").unwrap_or(name).starts_with("hugepages-")
}

/// Whether the name is one of a resource.
pub(in crate::resources::core) fn resource_name(
    name: &str,
    field: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) -> bool {
    if matches!(name, "cpu" | "memory") {
        return true;
    }
    let wrong = qualified_name(name);
    if !wrong.is_empty() {
        let wrong = wrong.into_iter();
        errors.extend(wrong.map(|what| FieldError::invalid_text(field, name, what)));
        return false;
    }
    if !name.contains('/') && !STANDARD.contains(&name) && !is_huge_pages(name) {
        let detail = "must be a standard resource type or fully qualified";
        errors.push(FieldError::invalid_text(field, name, detail));
    }
    true
}

pub(in crate::resources::core) fn container_resource(name: &str, field: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    resource_name(name, field, errors);
    let detail = if name.contains('/') {
        (!is_native(name) && !is_extended(name)).then_some("doesn't follow extended resource name standard")
    } else {
        let known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        (!known).then_some("must be a standard resource for containers")
    };
    errors.extend(detail.map(|detail| FieldError::invalid_text(field, name, detail)));
}

fn is_pod_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn pod_resource(name: &str, field: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    resource_name(name, field, errors);
    if !is_pod_resource(name) {
        let supported = ["cpu", "hugepages-", "memory"];
        errors.push(FieldError::not_supported(field, &name.into(), &supported));
    }
}

/// After so many errors they no longer list what there would be.
const LISTING_ERRORS_MAX: usize = 100;

/// Claims of devices that a container uses; `known`: those of the Pod.
fn check_claims(claims: &At<'_>, known: &HashSet<&str>, errors: &mut Vec<FieldError>) {
    let mut seen: HashSet<(&str, &str)> = HashSet::new();
    let mut requested: HashSet<&str> = HashSet::new();
    for claim in claims.items() {
        let (name, request) = (text(claim.value, "/name"), text(claim.value, "/request"));
        if name.is_empty() {
            errors.push(claim.required(""));
            continue;
        }
        let whole = seen.contains(&(name, ""));
        if !whole && !request.is_empty() {
            claim.get("request").check(label(request), errors);
        }
        if whole || request.is_empty() && requested.contains(name) {
            errors.push(FieldError::duplicate(&claim.field, &name.into()));
        } else if seen.contains(&(name, request)) {
            errors.push(FieldError::duplicate(&claim.field, &format!("{name}/{request}").into()));
        }
        seen.insert((name, request));
        requested.insert(name);
        if !known.contains(name) {
            let mut error = FieldError::not_found(&claim.field, &name.into());
            error
                .message
                .push_str(": must be one of the names in pod.spec.resourceClaims");
            if known.is_empty() {
                error.message.push_str(" which is empty");
            } else if errors.len() < LISTING_ERRORS_MAX {
                let mut known: Vec<&str> = known.iter().copied().collect();
                known.sort_unstable();
                let _ = write!(error.message, ": {}", known.join(", "));
            }
            errors.push(error);
        }
    }
}

/// Resources of the Pod as a whole, and its overhead.
pub(super) fn check_pod_resources(whole: &Whole<'_>, errors: &mut Vec<FieldError>) {
    if whole.spec.value.get("overhead").is_some() {
        let overhead = whole.spec.get("overhead");
        for (name, entry) in overhead.named(&overhead, "limits").entries() {
            container_resource(name, &entry.field, errors);
            if amount(&entry).is_some_and(|quantity| quantity.nanos() < 0) {
                errors.push(entry.invalid("must be greater than or equal to 0"));
            }
        }
    }
    if whole.spec.value.get("resources").is_none_or(Value::is_null) {
        return;
    }
    let resources = whole.spec.get("resources");
    if resources.get("claims").present() {
        let detail = "claims cannot be set for Resources at pod-level";
        errors.push(resources.get("claims").forbidden(detail));
    }
    check_amounts(&resources, pod_resource, errors);
    for (name, needed) in container_requests(whole.spec.value) {
        let given = text_of(map(resources.value, "/requests"), &name);
        let given_nanos = Quantity::parse(given).map_or(0, Quantity::nanos);
        if needed.nanos() > given_nanos {
            let field = format!("{}.requests[{name}]", resources.field);
            let shown = if given.is_empty() { "0" } else { given };
            let detail = format!(
                "must be greater than or equal to aggregate container requests of {}",
                needed.canonical()
            );
            errors.push(FieldError::invalid_text(field, shown, detail));
        }
    }
    for (i, container) in list(whole.spec.value, "/containers").iter().enumerate() {
        for (name, limit) in map(container, "/resources/limits").into_iter().flatten() {
            let most = text_of(map(resources.value, "/limits"), name);
            let limit = limit.as_str().unwrap_or("");
            let (Some(own), Some(all)) = (Quantity::parse(limit), Quantity::parse(most)) else {
                continue;
            };
            if own.nanos() > all.nanos() {
                let field = format!("{}.containers[{i}][{name}].limits", resources.field);
                let detail = format!("must be less than or equal to pod limits of {most}");
                errors.push(FieldError::invalid_text(field, limit, detail));
            }
        }
    }
}

fn text_of<'a>(map: Option<&'a Map>, name: &str) -> &'a str {
    map.and_then(|map| map.get(name)).and_then(Value::as_str).unwrap_or("")
}

/// Amounts by the names of resources.
pub type Amounts = BTreeMap<String, Quantity>;

/// What a Pod takes, by the names of resources.
#[derive(Debug, Clone, Default)]
pub struct PodAmounts {
    /// What is set aside for it.
    pub requests: Amounts,
    /// What it may use at most; only of what has limits.
    pub limits: Amounts,
}

/// What a Pod takes as a whole: its containers, or what it says itself, and what its runtime takes besides.
pub fn pod_amounts(pod: &Value) -> PodAmounts {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let mut amounts = PodAmounts {
        requests: container_requests(spec),
        limits: together(spec, "/resources/limits"),
    };
    for (own, all) in [
        ("/resources/requests", &mut amounts.requests),
        ("/resources/limits", &mut amounts.limits),
    ] {
        for (name, amount) in read(spec, own) {
            if is_pod_resource(&name) {
                all.insert(name, amount);
            }
        }
    }
    let overhead = read(spec, "/overhead");
    add(&mut amounts.requests, &overhead);
    for (name, more) in overhead {
        if let Some(limit) = amounts.limits.get_mut(&name) {
            *limit = limit.plus(more);
        }
    }
    amounts
}

fn read(object: &Value, at: &str) -> Amounts {
    let amounts = map(object, at).into_iter().flatten();
    amounts
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), Quantity::parse(value.as_str()?)?)))
        .collect()
}

/// What the containers of a spec request together: all that run side by side, or the most that starting takes.
pub(super) fn container_requests(spec: &Value) -> Amounts {
    together(spec, "/resources/requests")
}

fn together(spec: &Value, field: &str) -> Amounts {
    let mut running = Amounts::new();
    let mut starting = Amounts::new();
    let mut sidecars = Amounts::new();
    let requests = |container: &Value| -> Amounts {
        let requests = map(container, field).into_iter().flatten();
        let requests =
            requests.filter_map(|(name, value)| Some((name.as_str().to_owned(), Quantity::parse(value.as_str()?)?)));
        requests.collect()
    };
    for container in list(spec, "/containers") {
        add(&mut running, &requests(container));
    }
    for container in list(spec, "/initContainers") {
        let own = requests(container);
        if text(container, "/restartPolicy") == "Always" {
            add(&mut running, &own);
            add(&mut sidecars, &own);
            continue;
        }
        for (name, quantity) in own {
            let beside = sidecars
                .get(&name)
                .map_or(quantity, |sidecars| quantity.plus(*sidecars));
            most(&mut starting, name, beside);
        }
    }
    for (name, quantity) in starting {
        most(&mut running, name, quantity);
    }
    running
}

fn add(all: &mut Amounts, more: &Amounts) {
    for (name, quantity) in more {
        let sum = all.get(name).map_or(*quantity, |sum| sum.plus(*quantity));
        all.insert(name.clone(), sum);
    }
}

fn most(all: &mut Amounts, name: String, quantity: Quantity) {
    let largest = all.entry(name).or_insert(quantity);
    if largest.nanos() < quantity.nanos() {
        *largest = quantity;
    }
}

/// Fills in what a Pod as a whole requests when it has limits: what its containers request, or else the limits.
pub(super) fn default_pod_requests(pod: &mut Value) {
    if map(pod, "/spec/resources/limits").is_none_or(Map::is_empty) {
        return;
    }
    let Some(spec) = pod.get("spec") else { return };
    let mut requests = map(spec, "/resources/requests").cloned().unwrap_or_default();
    for (name, quantity) in container_requests(spec) {
        if is_pod_resource(&name) && overcommits(&name) && !requests.contains_key(&name) {
            requests.insert(name, quantity.canonical().into());
        }
    }
    for (name, limit) in map(spec, "/resources/limits").into_iter().flatten() {
        if is_pod_resource(name) && !requests.contains_key(name) {
            requests.insert(name.clone(), limit.clone());
        }
    }
    if !requests.is_empty() {
        crate::resources::edit::set_at(pod, "/spec/resources", "requests", Value::Object(requests));
    }
}

/// `Guaranteed` when every container has limits of processor and memory and requests no less, `BestEffort` when none asks
/// for anything, `Burstable` otherwise. Resources of the whole Pod stand for those of its containers.
pub fn quality_of_service(pod: &Value) -> &'static str {
    let whole = pod.pointer("/spec/resources").filter(|resources| {
        ["/requests", "/limits"]
            .iter()
            .any(|part| map(resources, part).is_some_and(|amounts| !amounts.is_empty()))
    });
    let (mut any, mut guaranteed) = (false, true);
    let mut look_at = |resources: Option<&Value>| {
        for name in ["cpu", "memory"] {
            let amount = |part: &str| {
                let quantity = Quantity::parse(resources?.get(part)?.get(name)?.as_str()?)?;
                Some(quantity.nanos()).filter(|&nanos| nanos > 0)
            };
            let (request, limit) = (amount("requests"), amount("limits"));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    };
    if whole.is_some() {
        look_at(whole);
    } else {
        let containers = list(pod, "/spec/containers").iter();
        for container in containers.chain(list(pod, "/spec/initContainers")) {
            look_at(container.get("resources"));
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
