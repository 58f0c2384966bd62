//! Which writes a policy or a binding is about (`matchConstraints`, `matchResources`).

use super::Attributes;
use crate::resources;
use crate::tree::Value;

/// Whether `resources` (a `MatchResources`) has the write. `namespace` is the object of its namespace.
pub(super) fn matches(resources: &Value, attributes: &Attributes<'_>, namespace: &Value) -> bool {
    let object_matches = [attributes.object, attributes.old]
        .into_iter()
        .filter(|object| !object.is_null())
        .any(|object| selects(&resources["objectSelector"], &object["metadata"]["labels"]));
    let namespace_labels =
        if attributes.request.resource.kind == "Namespace" && attributes.request.resource.group.is_empty() {
            let own = if attributes.object.is_null() {
                attributes.old
            } else {
                attributes.object
            };
            Some(&own["metadata"]["labels"])
        } else {
            attributes.request.namespace.map(|_| &namespace["metadata"]["labels"])
        };
    let namespace_matches = namespace_labels.is_none_or(|labels| selects(&resources["namespaceSelector"], labels));
    let any = |rules: &str| {
        let rules = resources[rules].as_array();
        rules.is_some_and(|rules| rules.iter().any(|rule| names(rule, attributes)))
    };
    let everything = resources["resourceRules"]
        .as_array()
        .is_none_or(|rules| rules.is_empty());
    namespace_matches && object_matches && (everything || any("resourceRules")) && !any("excludeResourceRules")
}

/// Whether a rule names the write: group, version, resource, operation, scope, name.
fn names(rule: &Value, attributes: &Attributes<'_>) -> bool {
    let resource = attributes.request.resource;
    let among = |field: &str, value: &str| {
        let all = rule[field].as_array();
        all.is_some_and(|all| all.iter().any(|one| one == "*" || one == value))
    };
    let wanted = if attributes.request.subresource.is_empty() {
        resource.plural.to_string()
    } else {
        format!("{}/{}", resource.plural, attributes.request.subresource)
    };
    let is_named = |one: &Value| {
        let one = one.as_str().unwrap_or("");
        match (one.split_once('/'), attributes.request.subresource) {
            (None, "") => one == "*" || one == wanted,
            (Some((parent, sub)), own) => {
                (parent == "*" || *parent == *resource.plural) && (sub == "*" || sub == own && !own.is_empty())
            }
            (None, _) => false,
        }
    };
    let in_scope = match rule["scope"].as_str() {
        Some("Cluster") => !resource.namespaced,
        Some("Namespaced") => resource.namespaced,
        _ => true,
    };
    let object_names = rule["resourceNames"].as_array();
    in_scope
        && among("operations", attributes.request.operation.as_str())
        && among("apiGroups", &resource.group)
        && among("apiVersions", &resource.version)
        && rule["resources"].as_array().is_some_and(|all| all.iter().any(is_named))
        && object_names.is_none_or(|names| names.is_empty() || names.iter().any(|name| name == attributes.request.name))
}

/// Whether a label selector takes these labels; one that says nothing takes all.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    resources::selects(selector, labels) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::{matches, names, selects};
    use crate::admission::{Attributes, Caller, Operation, Request};
    use crate::resources::find;
    use crate::tree::{Value, json};

    fn write<'a>(object: &'a Value, plural: &str, subresource: &'a str) -> Attributes<'a> {
        Attributes {
            request: Request {
                resource: find("", "v1", plural).expect("a resource"),
                subresource,
                operation: Operation::Create,
                namespace: Some("n"),
                name: "a",
                user: Caller {
                    name: "u",
                    uid: "",
                    groups: &[],
                },
                dry_run: false,
            },
            options: &Value::Null,
            object,
            old: &Value::Null,
        }
    }

    #[test]
    fn rules_name_writes() {
        let object = json!({});
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
            let found = names(&rule(resources.clone()), &write(&object, "pods", subresource));
            assert_eq!(found, wanted, "{resources} {subresource}");
        }
        let mut scoped = rule(json!(["*"]));
        scoped["scope"] = json!("Cluster");
        assert!(!names(&scoped, &write(&object, "pods", "")));
        let mut named = rule(json!(["*"]));
        named["resourceNames"] = json!(["b"]);
        assert!(!names(&named, &write(&object, "pods", "")));
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
        let of = |constraints: Value| matches(&constraints, &write(&object, "pods", ""), &namespace);
        assert!(of(json!({"namespaceSelector": {"matchLabels": {"env": "prod"}}})));
        assert!(!of(json!({"namespaceSelector": {"matchLabels": {"env": "dev"}}})));
        assert!(!of(json!({"objectSelector": {"matchLabels": {"a": "2"}}})));
        let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["pods"]}]);
        assert!(!of(json!({"excludeResourceRules": rules})));
    }
}
