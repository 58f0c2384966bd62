//! Groups that extend or run the API itself: admission, API services, custom resource definitions, leases, runtimes.

use crate::tree::{Value, json};

use super::FieldError;
use super::edit::{default_at, set_at};
use super::kind::Kind;
use super::lookup::{boolean, condition, list, text};
use super::names::{label, qualified_name, subdomain};
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
            let stored = list(definition, "/spec/versions").iter();
            let stored = stored.filter(|version| boolean(version, "/storage") == Some(true));
            let names: Vec<&str> = stored.map(|version| text(version, "/name")).collect();
            let status = json!({
                "conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": names
            });
            set_at(definition, "", "status", status);
        }),
    Kind::new("leases.coordination.k8s.io")
        .cells(|row| {
            row.name().text_at("/spec/holderIdentity").age();
        })
        .validate(check_lease),
    Kind::new("mutatingadmissionpolicies.admissionregistration.k8s.io").cells(|row| policies(row, "/spec/mutations")),
    Kind::new("mutatingadmissionpolicybindings.admissionregistration.k8s.io").cells(policy_bindings),
    Kind::new("mutatingwebhookconfigurations.admissionregistration.k8s.io")
        .cells(webhooks)
        .validate(check_webhooks),
    Kind::new("runtimeclasses.node.k8s.io")
        .cells(|row| {
            row.name().text_at("/handler").age();
        })
        .validate(storage_rules::runtime_class)
        .validate_update(|old, new, _, errors| immutable(old, new, "handler", errors)),
    Kind::new("validatingadmissionpolicies.admissionregistration.k8s.io")
        .cells(|row| policies(row, "/spec/validations")),
    Kind::new("validatingadmissionpolicybindings.admissionregistration.k8s.io").cells(policy_bindings),
    Kind::new("validatingwebhookconfigurations.admissionregistration.k8s.io")
        .cells(webhooks)
        .validate(check_webhooks),
];

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

fn policies(row: &mut Row<'_>, rules: &str) {
    let parameters = row.object.pointer("/spec/paramKind").filter(|kind| !kind.is_null());
    let parameters = parameters.map_or("<unset>".to_owned(), |kind: &Value| {
        format!("{}/{}", text(kind, "/apiVersion"), text(kind, "/kind"))
    });
    row.name().count_at(rules).text(parameters).age();
}

fn policy_bindings(row: &mut Row<'_>) {
    let parameters = row
        .object
        .pointer("/spec/paramRef")
        .filter(|parameters| !parameters.is_null());
    let parameters = parameters.map_or("<unset>".to_owned(), |reference: &Value| {
        match (text(reference, "/namespace"), text(reference, "/name")) {
            ("", "") => "*".to_owned(),
            ("", name) => name.to_owned(),
            (namespace, name) => format!("{namespace}/{name}"),
        }
    });
    row.name().text_at("/spec/policyName").text(parameters).age();
}

fn webhooks(row: &mut Row<'_>) {
    row.name().count_at("/webhooks").age();
}

fn check_webhooks(configuration: &Value, errors: &mut Vec<FieldError>) {
    const VERSIONS: &[&str] = &["v1", "v1beta1"];
    const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    for hook in At::root(configuration).get("webhooks").items() {
        let name = hook.get("name");
        let wrong = subdomain(name.text());
        if !wrong.is_empty() {
            name.check(wrong, errors);
        } else if name.text().split('.').count() < 3 {
            errors.push(name.invalid("should be a domain with at least three segments separated by dots"));
        }
        let versions = hook.get("admissionReviewVersions");
        if !versions.is_empty() && !versions.items().any(|version| VERSIONS.contains(&version.text())) {
            errors.push(versions.invalid("must include at least one of v1, v1beta1"));
        }
        let client = hook.get("clientConfig");
        if client.get("url").present() == client.get("service").present() {
            errors.push(client.required("exactly one of url or service is required"));
        }
        let timeout = hook.get("timeoutSeconds");
        if timeout
            .integer()
            .is_some_and(|timeout_s| !(1..=30).contains(&timeout_s))
        {
            errors.push(timeout.invalid("the timeout value must be between 1 and 30 seconds"));
        }
        for rule in hook.get("rules").items() {
            for operation in rule.get("operations").items() {
                operation.one_of(OPERATIONS, errors);
            }
        }
    }
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
    let first = version.text().bytes().next();
    if !label(version.text()).is_empty() || !first.is_some_and(|byte| byte.is_ascii_lowercase()) {
        let rule = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
            character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation \
            is '[a-z]([-a-z0-9]*[a-z0-9])?')";
        errors.push(FieldError::invalid_text(&version.field, version.text(), rule));
    }
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
