//! Roles and bindings that every server has, brought up to date: what is missing of them is added, what was added to them stays.
//!
//! Rule: <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#auto-reconciliation>.

use crate::auth::authorization::{Rule, missing};
use crate::tree::{Value, json};

/// Whether a role or binding is brought up to date; `"false"` says that somebody wants it as it is.
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// What becomes of `present`, a role or binding that should be like `expected`; `None`: it stays.
pub(super) fn mended(expected: &Value, mut present: Value) -> Option<Value> {
    if present["metadata"]["annotations"][AUTO_UPDATE] == "false" {
        return None;
    }
    let mut changed = false;
    for kind in ["labels", "annotations"] {
        for (key, value) in expected["metadata"][kind]
            .as_object()
            .into_iter()
            .flat_map(|map| map.iter())
        {
            if present["metadata"][kind].get(key).is_none() {
                if !present["metadata"][kind].is_object() {
                    present["metadata"][kind] = json!({});
                }
                present["metadata"][kind][key] = value.clone();
                changed = true;
            }
        }
    }
    if let Some(role) = expected.get("roleRef") {
        if present.get("roleRef") != Some(role) {
            present["roleRef"] = role.clone();
            changed = true;
        }
        changed |= add(&mut present, expected, "subjects", <[Value]>::contains);
    } else if let Some(rule) = expected.get("aggregationRule") {
        // Its rules are gathered by the controller.
        if present.get("aggregationRule") != Some(rule) {
            present["aggregationRule"] = rule.clone();
            changed = true;
        }
    } else {
        changed |= add(&mut present, expected, "rules", covers);
    }
    changed.then_some(present)
}

/// Adds items of a list that `has` does not find.
fn add(present: &mut Value, expected: &Value, field: &str, has: impl Fn(&[Value], &Value) -> bool) -> bool {
    let held = list(present, field).to_vec();
    let lacking: Vec<Value> = list(expected, field)
        .iter()
        .filter(|wanted| !has(&held, wanted))
        .cloned()
        .collect();
    if lacking.is_empty() {
        return false;
    }
    present[field] = Value::from(held.into_iter().chain(lacking).collect::<Vec<_>>());
    true
}

fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object[field].as_array().map_or(&[], |list| list.as_slice())
}

fn covers(held: &[Value], wanted: &Value) -> bool {
    let read = |value: &Value| serde_json::from_str::<Rule>(&value.to_string()).unwrap_or_default();
    let held: Vec<Rule> = held.iter().map(read).collect();
    missing(&held, &[read(wanted)]).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "values are written where they are used")]
    fn role(rules: Value, annotation: &str) -> Value {
        json!({"metadata": {"name": "r", "labels": {"a": "b"}, "annotations": {AUTO_UPDATE: annotation}}, "rules": rules})
    }

    #[test]
    fn what_is_missing_is_added_and_what_was_added_stays() {
        let pods = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        let more = json!({"verbs": ["get", "list"], "apiGroups": ["", "apps"], "resources": ["pods"]});
        let nodes = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]});
        let expected = role(json!([pods.clone(), nodes.clone()]), "true");
        let mended = |present| mended(&expected, present);
        assert_eq!(mended(expected.clone()), None);
        let found = mended(role(json!([more.clone()]), "true")).unwrap();
        assert_eq!(found["rules"], json!([more.clone(), nodes.clone()]));
        assert_eq!(mended(role(json!([]), "false")), None);
        assert_eq!(mended(role(json!([more, nodes]), "true")), None);
    }

    #[test]
    fn subjects_that_were_taken_away_come_back() {
        let binding = |subjects: Value| json!({"metadata": {}, "roleRef": {"name": "r"}, "subjects": subjects});
        let expected = binding(json!([{"kind": "Group", "name": "g"}]));
        let found = mended(&expected, binding(json!([{"kind": "User", "name": "u"}]))).unwrap();
        assert_eq!(found["subjects"].as_array().map(|list| list.len()), Some(2));
        assert_eq!(mended(&expected, found), None);
    }
}
