//! Rules of quotas, and of ranges of amounts.

use std::collections::HashSet;

use crate::tree::Value;

use super::pods::resources::{STANDARD, container_resource, is_extended, is_huge_pages, overcommits, resource_name};
use crate::resources::FieldError;
use crate::resources::names::qualified_name;
use crate::resources::quantity::Quantity;
use crate::resources::validate::At;

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];
/// Scopes that no object is in both of.
const CONFLICTS: &[[&str; 2]] = &[["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
/// What is counted in whole numbers.
const COUNTED: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Most bytes of scopes, or of a selector of them, that are looked at one by one: each fault shows all of them.
const SHOWN_LEN_MAX: usize = 4 * 1024;

/// What is wrong with a quota.
pub(super) fn quota(quota: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(quota).get("spec");
    let hard = spec.get("hard");
    check_quotas(&hard, errors);
    let scopes = spec.get("scopes");
    let named: Vec<&str> = scopes.items().map(|scope| scope.text()).collect();
    if is_endless(&scopes, errors) {
        return;
    }
    for scope in &named {
        if !SCOPES.contains(scope) {
            errors.push(scopes.invalid("unsupported scope"));
        }
        unfit(scope, &hard, &scopes, &scopes, errors);
    }
    conflicts(&named, &scopes, &scopes, errors);
    let selector = spec.get("scopeSelector");
    if selector.present() && !is_endless(&selector, errors) {
        check_selector(&selector, &hard, &scopes, errors);
    }
}

/// Refuses what is longer than all that there is to say in it.
fn is_endless(scopes: &At<'_>, errors: &mut Vec<FieldError>) -> bool {
    let is_endless = scopes.value.to_string().len() > SHOWN_LEN_MAX;
    if is_endless {
        errors.push(FieldError::too_long(&scopes.field, SHOWN_LEN_MAX));
    }
    is_endless
}

/// Names and amounts of a quota.
fn check_quotas(hard: &At<'_>, errors: &mut Vec<FieldError>) {
    for (name, amount) in hard.entries() {
        // What is claimed is counted by its requests.
        let is_counted = name != "storage" && STANDARD.contains(&name) || is_huge_pages(name);
        if resource_name(name, &amount.field, errors) && !name.contains('/') && !is_counted {
            let detail = "must be a standard resource for quota";
            errors.push(FieldError::invalid_text(&amount.field, name, detail));
        }
        check_amount(name, &amount, errors);
    }
}

/// An amount of a resource is not negative, and of some it is a whole number.
pub(super) fn check_amount(name: &str, amount: &At<'_>, errors: &mut Vec<FieldError>) {
    let Some(quantity) = Quantity::parse(amount.text()) else {
        return;
    };
    if quantity.nanos() < 0 {
        errors.push(amount.invalid("must be greater than or equal to 0"));
    }
    if quantity.to_millis().nanos() % 1_000_000_000 != 0 && (COUNTED.contains(&name) || is_extended(name)) {
        errors.push(amount.invalid("must be an integer"));
    }
}

/// Scopes select Pods or claims: resources of others cannot be counted by them.
fn unfit(scope: &str, hard: &At<'_>, field: &At<'_>, shown: &At<'_>, errors: &mut Vec<FieldError>) {
    let fits = |name: &str| {
        let compute = matches!(
            name,
            "cpu" | "memory" | "limits.cpu" | "limits.memory" | "requests.cpu" | "requests.memory"
        );
        match scope {
            "BestEffort" => name == "pods",
            "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
            known if SCOPES.contains(&known) => name == "pods" || compute,
            _ => true,
        }
    };
    for (name, _) in hard.entries() {
        let is_standard = name != "storage" && STANDARD.contains(&name) || is_huge_pages(name);
        if is_standard && !fits(name) {
            let detail = "unsupported scope applied to resource";
            errors.push(FieldError::invalid(&field.field, shown.value, detail));
        }
    }
}

fn conflicts(named: &[&str], field: &At<'_>, shown: &At<'_>, errors: &mut Vec<FieldError>) {
    for pair in CONFLICTS {
        if pair.iter().all(|scope| named.contains(scope)) {
            errors.push(FieldError::invalid(&field.field, shown.value, "conflicting scopes"));
        }
    }
}

/// A selector of scopes. kube-apiserver names the list, not its items.
fn check_selector(selector: &At<'_>, hard: &At<'_>, scopes: &At<'_>, errors: &mut Vec<FieldError>) {
    let expressions = selector.get("matchExpressions");
    let mut named = Vec::new();
    for expression in expressions.items() {
        let part = |name: &'static str| expression.get(name).named(&expressions, name);
        let (scope, operator, values) = (part("scopeName"), part("operator"), part("values"));
        let shown = Value::from(scope.text());
        if !SCOPES.contains(&scope.text()) {
            errors.push(FieldError::invalid(&scope.field, &shown, "unsupported scope"));
        }
        unfit(scope.text(), hard, &expressions, selector, errors);
        let exists = [
            "BestEffort",
            "NotBestEffort",
            "Terminating",
            "NotTerminating",
            "CrossNamespacePodAffinity",
        ];
        let is_operator = |detail: &str| FieldError::invalid_text(&operator.field, operator.text(), detail);
        if exists.contains(&scope.text()) && operator.text() != "Exists" {
            errors.push(is_operator(
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                 ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
            ));
        }
        match operator.text() {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.push(values.required(detail));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.push(values.invalid(detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(is_operator("not a valid selector operator")),
        }
        named.push(scope.text());
    }
    conflicts(&named, &expressions, scopes, errors);
}

/// The scopes of a quota stay.
pub(super) fn quota_change(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let scopes = |quota| At::root(quota).get("spec.scopes");
    let set = |quota| scopes(quota).items().map(|scope| scope.text()).collect::<HashSet<_>>();
    if set(old) != set(new) {
        errors.push(scopes(new).invalid("field is immutable"));
    }
}

/// What is counted has names and amounts as what is allowed.
pub(super) fn quota_status(new: &Value, errors: &mut Vec<FieldError>) {
    for part in ["status.hard", "status.used"] {
        check_quotas(&At::root(new).get(part), errors);
    }
}

/// A quota of requests that is no smaller than that of limits.
pub(super) fn quota_warnings(quota: &Value) -> Vec<String> {
    let hard = |name: &str| {
        let text = At::root(quota).get("spec.hard").value.get(name)?.as_str()?;
        Some((text, Quantity::parse(text)?.nanos()))
    };
    let pairs = ["cpu", "memory", "ephemeral-storage"].into_iter();
    let warnings = pairs.filter_map(|name| {
        let (request, limit) = (hard(&format!("requests.{name}"))?, hard(&format!("limits.{name}"))?);
        let warning = format!(
            "ResourceQuota requests.{name} ({}) should be less than limits.{name} ({})",
            request.0, limit.0
        );
        (request.1 > limit.1).then_some(warning)
    });
    warnings.collect()
}

/// What is wrong with a range.
pub(super) fn limit_range(range: &Value, errors: &mut Vec<FieldError>) {
    let mut types = HashSet::new();
    for item in At::root(range).get("spec.limits").items() {
        let kind = item.get("type");
        let wrong = qualified_name(kind.text());
        let is_standard = matches!(kind.text(), "Container" | "Pod" | "PersistentVolumeClaim");
        if wrong.is_empty() && !is_standard && !kind.text().contains('/') {
            errors.push(kind.invalid("must be a standard limit type or fully qualified"));
        }
        kind.check(wrong, errors);
        if !types.insert(kind.text()) {
            errors.push(kind.duplicate());
        }
        let mut parts = vec!["max", "min"];
        for field in ["default", "defaultRequest"] {
            if kind.text() != "Pod" {
                parts.push(field);
            } else if !item.get(field).is_empty() {
                let detail = "may not be specified when `type` is 'Pod'";
                errors.push(item.get(field).forbidden(detail));
            }
        }
        parts.push("maxLimitRequestRatio");
        for part in &parts {
            for (name, amount) in item.get(*part).entries() {
                if matches!(kind.text(), "Pod" | "Container") {
                    container_resource(name, &amount.field, errors);
                } else {
                    resource_name(name, &amount.field, errors);
                }
            }
        }
        let has_storage = |part: &'static str| item.get(part).value.get("storage").is_some();
        if kind.text() == "PersistentVolumeClaim" && !has_storage("min") && !has_storage("max") {
            let detail = "either minimum or maximum storage value is required, but neither was provided";
            errors.push(item.get("limits").required(detail));
        }
        bounds(&item, &parts, errors);
    }
}

/// The bounds of one item must be in order, whichever of them are given.
fn bounds(item: &At<'_>, parts: &[&'static str], errors: &mut Vec<FieldError>) {
    let mut names: Vec<&str> = parts
        .iter()
        .flat_map(|part| item.get(*part).entries().map(|(name, _)| name).collect::<Vec<_>>())
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let amount = |part: &str| {
            let text = item
                .value
                .get(part)
                .filter(|_| parts.contains(&part))?
                .get(name)?
                .as_str()?;
            Some((text, Quantity::parse(text)?.nanos()))
        };
        let mut refuse = |part: &str, shown: &str, detail: String| {
            let field = format!("{}.{part}[{name}]", item.field);
            errors.push(FieldError::invalid_text(field, shown, detail));
        };
        // Field, which of the two the message shows, the two that are compared, and how they are called.
        let mut in_order = |field: &str, shows_high: bool, low: (&str, &str), high: (&str, &str)| {
            if let (Some((low_text, low_nanos)), Some((high_text, high_nanos))) = (amount(low.0), amount(high.0))
                && low_nanos > high_nanos
            {
                let shown = if shows_high { high_text } else { low_text };
                let detail = format!("{} {low_text} is greater than {} {high_text}", low.1, high.1);
                refuse(field, shown, detail);
            }
        };
        let (min, max) = (("min", "min value"), ("max", "max value"));
        let request = ("defaultRequest", "default request value");
        in_order("min", false, min, max);
        in_order("defaultRequest", true, min, request);
        in_order("defaultRequest", false, request, max);
        in_order("defaultRequest", false, request, ("default", "default limit value"));
        in_order("default", false, min, ("default", "default value"));
        in_order("default", true, ("default", "default value"), max);
        if let Some((text, nanos)) = amount("maxLimitRequestRatio") {
            if nanos < 1_000_000_000 {
                refuse("maxLimitRequestRatio", text, format!("ratio {text} is less than 1"));
            }
            if let (Some((_, min)), Some((_, max))) = (amount("min"), amount("max")) {
                let most = max as f64 / min as f64;
                if nanos as f64 / 1e9 > most {
                    let detail = format!("ratio {text} is greater than max/min = {most:.6}");
                    refuse("maxLimitRequestRatio", text, detail);
                }
            }
        }
        if let (Some((limit, limit_nanos)), Some((request, request_nanos))) =
            (amount("default"), amount("defaultRequest"))
            && limit_nanos != request_nanos
            && !overcommits(name)
        {
            let detail = format!("default value {limit} must equal to defaultRequest value {request} in {name}");
            refuse("defaultRequest", request, detail);
        }
    }
}
