//! Groups that extend or run the API itself: admission, API services, custom resource definitions, leases, runtimes.

use serde_json::{Value, json};

use super::edit::{default_at, set_at};
use super::kind::Kind;
use super::lookup::{boolean, condition, list, text};
use super::row::Row;

pub(super) const KINDS: &[Kind] = &[
    Kind::new("apiservices.apiregistration.k8s.io").cells(api_services),
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
    Kind::new("leases.coordination.k8s.io").cells(|row| {
        row.name().text_at("/spec/holderIdentity").age();
    }),
    Kind::new("mutatingadmissionpolicies.admissionregistration.k8s.io").cells(|row| policies(row, "/spec/mutations")),
    Kind::new("mutatingadmissionpolicybindings.admissionregistration.k8s.io").cells(policy_bindings),
    Kind::new("mutatingwebhookconfigurations.admissionregistration.k8s.io").cells(webhooks),
    Kind::new("runtimeclasses.node.k8s.io").cells(|row| {
        row.name().text_at("/handler").age();
    }),
    Kind::new("validatingadmissionpolicies.admissionregistration.k8s.io")
        .cells(|row| policies(row, "/spec/validations")),
    Kind::new("validatingadmissionpolicybindings.admissionregistration.k8s.io").cells(policy_bindings),
    Kind::new("validatingwebhookconfigurations.admissionregistration.k8s.io").cells(webhooks),
];

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
