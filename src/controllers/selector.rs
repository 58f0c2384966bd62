//! Label selectors of objects (`LabelSelector`), as selections of the store.

use crate::resources::selector_text;
use crate::store::{Requirement, Selection};
use crate::tree::Value;

/// The selection that a `LabelSelector` means: `None` for none, and for one that is not valid, which both select nothing.
pub(super) fn selection(selector: &Value) -> Option<Selection> {
    let selector = selector.as_object()?;
    let mut requirements = match selector.get("matchLabels") {
        None => Vec::new(),
        Some(labels) => equalities(labels)?,
    };
    for expression in selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let name = expression["key"].as_str()?.to_owned();
        let values = || -> Option<Vec<String>> {
            let values = expression["values"].as_array()?;
            values.iter().map(|value| Some(value.as_str()?.to_owned())).collect()
        };
        requirements.push(match expression["operator"].as_str()? {
            "In" => Requirement::LabelIn {
                name,
                values: values()?,
            },
            "NotIn" => Requirement::LabelNotIn {
                name,
                values: values()?,
            },
            "Exists" => Requirement::LabelExists(name),
            "DoesNotExist" => Requirement::LabelAbsent(name),
            _ => return None,
        });
    }
    Some(Selection { requirements })
}

/// The selection of a plain map of labels; an empty one selects nothing here, as in the selectors of Services and replication
/// controllers.
pub(super) fn selection_of_labels(labels: &Value) -> Option<Selection> {
    let requirements = equalities(labels)?;
    (!requirements.is_empty()).then_some(Selection { requirements })
}

fn equalities(labels: &Value) -> Option<Vec<Requirement>> {
    let labels = labels.as_object()?.iter().map(|(name, value)| {
        Some(Requirement::LabelIn {
            name: name.to_string(),
            values: vec![value.as_str()?.to_owned()],
        })
    });
    labels.collect()
}

/// A label selector in the form in which kube-controller-manager's texts have it.
pub(super) fn go_text(selector: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let labels = selector["matchLabels"].as_object();
    let labels: Vec<String> = labels
        .into_iter()
        .flat_map(|labels| labels.iter())
        .map(|(name, value)| format!("{}: {},", name.as_str(), text(value)))
        .collect();
    let expressions = selector["matchExpressions"].as_array();
    let expressions: Vec<String> = expressions
        .into_iter()
        .flatten()
        .map(|expression| {
            let values = expression["values"].as_array();
            let values: Vec<String> = values.into_iter().flatten().map(text).collect();
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
                text(&expression["key"]),
                text(&expression["operator"]),
                values.join(" ")
            )
        })
        .collect();
    let (labels, expressions) = (labels.concat(), expressions.concat());
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

/// A label selector as queries have it; `""` for one that selects everything.
pub(super) fn query(selector: &Value) -> String {
    let text = selector_text(Some(selector).filter(|selector| !selector.is_null()));
    if text == "<none>" { String::new() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    #[test]
    fn selectors_become_requirements_and_what_is_none_selects_nothing() {
        let selector = json!({"matchLabels": {"a": "1"}, "matchExpressions": [
            {"key": "b", "operator": "In", "values": ["x", "y"]}, {"key": "c", "operator": "DoesNotExist"}]});
        let Selection { requirements } = selection(&selector).unwrap();
        assert_eq!(requirements.len(), 3);
        assert_eq!(requirements[2], Requirement::LabelAbsent("c".into()));
        assert!(selection(&json!({})).unwrap().is_everything());
        for bad in [
            json!(null),
            json!({"matchExpressions": [{"key": "b", "operator": "Near"}]}),
            json!("a=b"),
        ] {
            assert_eq!(selection(&bad), None, "{bad}");
        }
        assert_eq!(selection_of_labels(&json!({})), None);
        assert_eq!(selection_of_labels(&json!({"a": "1"})).unwrap().requirements.len(), 1);
    }

    #[test]
    fn selectors_are_written_as_people_know_them() {
        let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}]});
        assert_eq!(
            go_text(&selector),
            "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{\
             LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}"
        );
        assert_eq!(query(&selector), "a=b,k in (x,y)");
        assert_eq!(query(&Value::Null), "");
    }
}
