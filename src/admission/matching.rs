//! Which requests a policy, a binding or a webhook is about.

use super::{Attributes, Operation, Request};
use crate::resources::{self, Resource};
use crate::tree::Value;

/// The version in which a policy or a binding with these constraints (a `MatchResources`) sees the request; `None` when it is not
/// about it.
pub(super) fn matches<'a>(constraints: &Value, attributes: &Attributes<'a>) -> Option<&'a Resource> {
    if !selects_both(constraints, attributes) {
        return None;
    }
    let exact = constraints["matchPolicy"] != "Equivalent";
    let named = |rules: &str| version_of(&constraints[rules], exact, attributes);
    if named("excludeResourceRules").is_some() {
        return None;
    }
    let rules = constraints["resourceRules"].as_array();
    if rules.is_none_or(|rules| rules.is_empty()) {
        return Some(attributes.request.resource);
    }
    named("resourceRules")
}

/// The version in which a webhook sees the request; `None` when it is not about it.
pub(super) fn calls<'a>(webhook: &Value, attributes: &Attributes<'a>) -> Option<&'a Resource> {
    if !selects_both(webhook, attributes) {
        return None;
    }
    version_of(&webhook["rules"], webhook["matchPolicy"] == "Exact", attributes)
}

/// Whether the selectors take the namespace and one of the objects.
fn selects_both(constraints: &Value, attributes: &Attributes<'_>) -> bool {
    let (by_namespace, by_object) = (&constraints["namespaceSelector"], &constraints["objectSelector"]);
    takes_namespace(by_namespace, attributes)
        && (is_empty(by_object)
            || [attributes.object, attributes.old]
                .into_iter()
                .any(|object| object["metadata"].is_object() && selects(by_object, &object["metadata"]["labels"])))
}

fn is_empty(selector: &Value) -> bool {
    selector
        .as_object()
        .is_none_or(|selector| selector.iter().next().is_none())
}

/// What lies in no namespace is taken by every selector, but for namespaces: they are selected by their own labels, which are
/// those that they are to have.
fn takes_namespace(selector: &Value, attributes: &Attributes<'_>) -> bool {
    if is_empty(selector) {
        return true;
    }
    let request = &attributes.request;
    let is_changed = matches!(request.operation, Operation::Create | Operation::Update);
    let namespace = match (is_namespace(request.resource), request.subresource) {
        (true, "") if is_changed => attributes.object,
        (true, "") => attributes.old,
        (false, _) if request.namespace.is_none() => return true,
        _ => attributes.namespace,
    };
    selects(selector, &namespace["metadata"]["labels"])
}

pub(super) fn is_namespace(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "namespaces"
}

/// The version in which one of the rules names the request: its own if any does, else one that shows the same objects.
fn version_of<'a>(rules: &Value, exact: bool, attributes: &Attributes<'a>) -> Option<&'a Resource> {
    let rules = || rules.as_array().into_iter().flatten();
    let request = &attributes.request;
    if rules().any(|rule| names(rule, request, request.resource)) {
        return Some(request.resource);
    }
    if exact {
        return None;
    }
    rules().find_map(|rule| {
        let mut others = attributes.equivalents.iter();
        others.find(|other| names(rule, request, other)).map(|other| &**other)
    })
}

/// Whether a rule names the request, taken as one for this version: group, version, resource, operation, scope, name.
fn names(rule: &Value, request: &Request<'_>, resource: &Resource) -> bool {
    let among = |field: &str, value: &str| {
        let all = rule[field].as_array();
        all.is_some_and(|all| all.iter().any(|one| one == "*" || one == value))
    };
    let is_named = |one: &Value| {
        let one = one.as_str().unwrap_or("");
        let (parent, sub) = one.split_once('/').unwrap_or((one, ""));
        (parent == "*" || *parent == *resource.plural) && (sub == "*" || sub == request.subresource)
    };
    let in_scope = match rule["scope"].as_str() {
        Some("Cluster") => !resource.namespaced,
        Some("Namespaced") => resource.namespaced,
        _ => true,
    };
    let object_names = rule["resourceNames"].as_array();
    in_scope
        && among("operations", request.operation.as_str())
        && among("apiGroups", &resource.group)
        && among("apiVersions", &resource.version)
        && rule["resources"].as_array().is_some_and(|all| all.iter().any(is_named))
        && object_names.is_none_or(|names| names.is_empty() || names.iter().any(|name| name == request.name))
}

/// Whether a label selector takes these labels; one that says nothing takes all.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    resources::selects(selector, labels) == Some(true)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{calls, matches, names, selects};
    use crate::admission::{Attributes, Caller, Operation, Request};
    use crate::resources::find;
    use crate::tree::{Value, json};

    static NONE: BTreeMap<String, Vec<String>> = BTreeMap::new();

    fn request<'a>(plural: &str, subresource: &'a str) -> Request<'a> {
        Request {
            resource: find("", "v1", plural).expect("a resource"),
            subresource,
            operation: Operation::Create,
            namespace: Some("n"),
            name: "a",
            user: Caller {
                name: "u",
                uid: "",
                groups: &[],
                extra: &NONE,
            },
            dry_run: false,
        }
    }

    fn write<'a>(object: &'a Value, namespace: &'a Value, plural: &str) -> Attributes<'a> {
        let request = request(plural, "");
        Attributes {
            request,
            resource: request.resource,
            equivalents: &[],
            options: &Value::Null,
            object,
            old: &Value::Null,
            namespace,
        }
    }

    #[test]
    fn rules_name_writes() {
        let rule = |resources: Value| {
            let mut rule = json!({"apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE"]});
            rule["resources"] = resources;
            rule
        };
        for (resources, subresource, wanted) in [
            (json!(["pods"]), "", true),
            (json!(["pods"]), "status", false),
            (json!(["pods/status"]), "status", true),
            (json!(["pods/*"]), "status", true),
            (json!(["pods/*"]), "", true),
            (json!(["*/status"]), "status", true),
            (json!(["*"]), "", true),
            (json!(["*"]), "status", false),
            (json!(["*/*"]), "status", true),
            (json!(["services"]), "", false),
        ] {
            let request = request("pods", subresource);
            let found = names(&rule(resources.clone()), &request, request.resource);
            assert_eq!(found, wanted, "{resources} {subresource}");
        }
        let request = request("pods", "");
        let mut scoped = rule(json!(["*"]));
        scoped["scope"] = json!("Cluster");
        assert!(!names(&scoped, &request, request.resource));
        let mut named = rule(json!(["*"]));
        named["resourceNames"] = json!(["b"]);
        assert!(!names(&named, &request, request.resource));
    }

    #[test]
    fn selectors_take_objects_and_namespaces() {
        let labels = json!({"a": "1"});
        assert!(selects(&json!({}), &Value::Null) && selects(&Value::Null, &labels));
        assert!(selects(&json!({"matchLabels": {"a": "1"}}), &labels));
        assert!(!selects(&json!({"matchLabels": {"a": "2"}}), &labels));
        assert!(selects(
            &json!({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}),
            &labels
        ));
        assert!(!selects(
            &json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}),
            &labels
        ));
        let object = json!({"metadata": {"labels": {"a": "1"}}});
        let namespace = json!({"metadata": {"labels": {"env": "prod"}}});
        let of = |constraints: Value| matches(&constraints, &write(&object, &namespace, "pods")).is_some();
        assert!(of(json!({"namespaceSelector": {"matchLabels": {"env": "prod"}}})));
        assert!(!of(json!({"namespaceSelector": {"matchLabels": {"env": "dev"}}})));
        assert!(!of(json!({"objectSelector": {"matchLabels": {"a": "2"}}})));
        let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["pods"]}]);
        assert!(!of(json!({"excludeResourceRules": rules})));
    }

    #[test]
    fn what_has_no_labels_is_taken_by_empty_selectors_alone() {
        let options = json!({"kind": "PodExecOptions"});
        let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]);
        let absent = json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]});
        let namespace = Value::Null;
        let attributes = write(&options, &namespace, "pods");
        let called =
            |selector: Value| calls(&json!({"rules": rules, "objectSelector": selector}), &attributes).is_some();
        assert!(called(json!({})));
        assert!(!called(absent));
    }

    #[test]
    fn rules_about_another_version_of_the_same_objects_take_a_request_unless_they_are_exact() {
        let object = json!({"metadata": {}});
        let own = find("autoscaling", "v2", "horizontalpodautoscalers").expect("a resource");
        let other = find("autoscaling", "v1", "horizontalpodautoscalers").expect("a resource");
        let equivalents = [other.into()];
        let mut attributes = write(&object, &Value::Null, "pods");
        attributes.request.resource = own;
        attributes.equivalents = &equivalents;
        let rules = |versions: Value| {
            json!([{"apiGroups": ["autoscaling"], "apiVersions": versions, "operations": ["*"],
                    "resources": ["horizontalpodautoscalers"]}])
        };
        let version = |hook: Value| calls(&hook, &attributes).map(|resource| resource.version.to_string());
        assert_eq!(version(json!({"rules": rules(json!(["v1"]))})).as_deref(), Some("v1"));
        assert_eq!(
            version(json!({"rules": rules(json!(["v1", "v2"]))})).as_deref(),
            Some("v2")
        );
        assert_eq!(
            version(json!({"rules": rules(json!(["v1"])), "matchPolicy": "Exact"})),
            None
        );
    }
}
