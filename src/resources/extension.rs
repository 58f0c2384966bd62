//! Groups that extend or run the API itself: API services, custom resource definitions, leases, runtimes.

use crate::tree::{Value, json};

use super::FieldError;
use super::definition_rules;
use super::edit::{default_at, set_at};
use super::kind::Kind;
use super::lookup::{boolean, condition, list, text};
use super::names::{dns_1035_label, qualified_name};
use super::row::Row;
use super::storage_rules;
use super::validate::{At, immutable};

pub(super) const KINDS: &[Kind] = &[
    Kind::new("apiservices.apiregistration.k8s.io")
        .cells(api_services)
        .validate(check_api_service),
    Kind::new("customresourcedefinitions.apiextensions.k8s.io")
        .defaults(|definition| {
            let kind = text(definition, "/spec/names/kind").to_owned();
            if !kind.is_empty() {
                default_at(definition, "/spec/names", "singular", kind.to_lowercase());
                default_at(definition, "/spec/names", "listKind", format!("{kind}List"));
            }
        })
        .prepare_create(|definition, _| {
            let names: Vec<&str> = storage_version(definition).into_iter().collect();
            let status = json!({
                "conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": names
            });
            set_at(definition, "", "status", status);
        })
        .prepare_update(|_, definition, _, _| {
            let Some(name) = storage_version(definition).map(str::to_owned) else {
                return;
            };
            let stored = list(definition, "/status/storedVersions");
            if !stored.contains(&Value::from(name.as_str())) {
                let stored: Value = stored.iter().cloned().chain([name.into()]).collect();
                set_at(definition, "/status", "storedVersions", stored);
            }
        })
        .validate_create(definition_rules::check_create)
        .validate_update(|old, new, _, errors| definition_rules::check_update(old, new, errors))
        .validate_status(|_, new, errors| definition_rules::check_status(new, errors))
        .warnings_create(definition_rules::warnings),
    Kind::new("leases.coordination.k8s.io")
        .cells(|row| {
            row.name().text_at("/spec/holderIdentity").age();
        })
        .validate(check_lease),
    Kind::new("runtimeclasses.node.k8s.io")
        .cells(|row| {
            row.name().text_at("/handler").age();
        })
        .validate(storage_rules::runtime_class)
        .validate_update(|old, new, _, errors| immutable(old, new, "handler", errors)),
];

/// The version that objects of a definition are stored in.
fn storage_version(definition: &Value) -> Option<&str> {
    let mut versions = list(definition, "/spec/versions").iter();
    let stored = versions.find(|version| boolean(version, "/storage") == Some(true))?;
    Some(text(stored, "/name"))
}

fn check_lease(lease: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(lease).get("spec");
    let duration = spec.get("leaseDurationSeconds");
    if duration.integer().is_some_and(|seconds| seconds <= 0) {
        errors.push(duration.invalid("must be greater than 0"));
    }
    spec.get("leaseTransitions").not_negative(errors);
    let (strategy, preferred) = (spec.get("strategy"), spec.get("preferredHolder"));
    if !strategy.is_empty() {
        strategy.check(qualified_name(strategy.text()), errors);
    }
    if !preferred.is_empty() && strategy.is_empty() {
        errors.push(preferred.forbidden("may only be specified when `strategy` is defined"));
    }
}

fn api_services(row: &mut Row<'_>) {
    let service = match (
        text(row.object, "/spec/service/namespace"),
        text(row.object, "/spec/service/name"),
    ) {
        ("", "") => "Local".to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    let available = match condition(row.object, "Available").map(|c| (text(c, "/status"), text(c, "/reason"))) {
        None => "Unknown".to_owned(),
        Some(("True", _)) => "True".to_owned(),
        Some((status, reason)) => format!("{status} ({reason})"),
    };
    row.name().text(service).text(available).age();
}

fn check_api_service(service: &Value, errors: &mut Vec<FieldError>) {
    let root = At::root(service);
    let (name, spec) = (root.get("metadata.name"), root.get("spec"));
    let (group, version) = (spec.get("group"), spec.get("version"));
    let required = format!("{}.{}", version.text(), group.text());
    if name.text() != required {
        errors.push(name.invalid(format_args!("must be `spec.version+\".\"+spec.group`: \"{required}\"")));
    }
    if group.is_empty() && version.text() != "v1" {
        errors.push(group.required("only v1 may have an empty group and it better be legacy kube"));
    }
    version.check(dns_1035_label(version.text()), errors);
    for (field, max) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
        let priority = spec.get(field);
        let number = priority.integer().unwrap_or(0);
        if number <= 0 || number > max {
            let detail = format!("must be positive and less than {max}");
            errors.push(FieldError::invalid(&priority.field, &number.into(), detail));
        }
    }
    let skip = spec.get("insecureSkipTLSVerify");
    if skip.value.as_bool() == Some(true) && !spec.get("caBundle").is_empty() {
        errors.push(skip.invalid("may not be true if caBundle is present"));
    }
}
