//! The group `rbac.authorization.k8s.io`.

use crate::tree::Value;

use super::FieldError;
use super::edit::{default_at, items_mut};
use super::kind::Kind;
use super::lookup::{list, text};
use super::names::{path_segment, subdomain};
use super::row::Row;
use super::validate::{At, capitalized, label_selector};

pub(super) const KINDS: &[Kind] = &[
    Kind::new("clusterrolebindings.rbac.authorization.k8s.io")
        .cells(bindings)
        .defaults(binding_defaults)
        .validate(|binding, errors| check_binding(binding, &["ClusterRole"], errors))
        .validate_update(role_stays),
    Kind::new("clusterroles.rbac.authorization.k8s.io").validate(|role, errors| check_rules(role, false, errors)),
    Kind::new("rolebindings.rbac.authorization.k8s.io")
        .cells(bindings)
        .defaults(binding_defaults)
        .validate(|binding, errors| check_binding(binding, &["Role", "ClusterRole"], errors))
        .validate_update(role_stays),
    Kind::new("roles.rbac.authorization.k8s.io").validate(|role, errors| check_rules(role, true, errors)),
];

fn bindings(row: &mut Row<'_>) {
    let binding = row.object;
    let subjects = |kind: &str| {
        let subjects = list(binding, "/subjects")
            .iter()
            .filter(|subject| text(subject, "/kind") == kind);
        let names = subjects.map(|subject| match (kind, text(subject, "/name")) {
            ("ServiceAccount", name) => format!("{}/{name}", text(subject, "/namespace")),
            (_, name) => name.to_owned(),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let role = format!("{}/{}", text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
    row.name().text(role).age();
    row.text(subjects("User"))
        .text(subjects("Group"))
        .text(subjects("ServiceAccount"));
}

fn binding_defaults(binding: &mut Value) {
    for subject in items_mut(binding, "/subjects") {
        if matches!(text(subject, "/kind"), "User" | "Group") {
            default_at(subject, "", "apiGroup", "rbac.authorization.k8s.io");
        }
    }
}

fn check_rules(role: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    for selector in At::root(role).get("aggregationRule.clusterRoleSelectors").items() {
        label_selector(&selector, errors);
    }
    for rule in At::root(role).get("rules").items() {
        let (urls, groups, resources) = (
            rule.get("nonResourceURLs"),
            rule.get("apiGroups"),
            rule.get("resources"),
        );
        if !urls.is_empty() {
            if namespaced {
                errors.push(urls.invalid("namespaced rules cannot apply to non-resource URLs"));
            }
            if !groups.is_empty() || !resources.is_empty() || !rule.get("resourceNames").is_empty() {
                errors.push(urls.invalid("rules cannot apply to both regular resources and non-resource URLs"));
            }
            continue;
        }
        if groups.is_empty() {
            errors.push(groups.required("resource rules must supply at least one api group"));
        }
        if resources.is_empty() {
            errors.push(resources.required("resource rules must supply at least one resource"));
        }
    }
}

fn check_binding(binding: &Value, roles: &[&str], errors: &mut Vec<FieldError>) {
    let root = At::root(binding);
    let kind = root.get("roleRef.kind");
    if !roles.contains(&kind.text()) {
        errors.push(kind.not_supported(roles));
    }
    let name = root.get("roleRef.name");
    name.check(path_segment(name.text(), false), errors);
    for subject in root.get("subjects").items() {
        let group = subject.get("apiGroup");
        match subject.get("kind").text() {
            "ServiceAccount" => {
                let name = subject.get("name");
                if !name.is_empty() {
                    name.check(subdomain(name.text()), errors);
                }
                if !group.is_empty() {
                    errors.push(group.not_supported(&[""]));
                }
                let namespace = subject.get("namespace");
                if namespace.is_empty() && roles == ["ClusterRole"] {
                    errors.push(namespace.required(""));
                }
            }
            "User" | "Group" if group.text() != "rbac.authorization.k8s.io" => {
                errors.push(group.not_supported(&["rbac.authorization.k8s.io"]));
            }
            _ => {}
        }
    }
}

fn role_stays(old: &Value, new: &Value, _: Option<&str>, errors: &mut Vec<FieldError>) {
    if old.get("roleRef") != new.get("roleRef") {
        let shown = capitalized(new.get("roleRef").unwrap_or(&Value::Null));
        errors.push(FieldError::invalid("roleRef", &shown, "cannot change roleRef"));
    }
}
