//! Label selectors of objects (`LabelSelector`), asked of labels.

use super::lookup;
use crate::tree::Value;

/// Whether a label selector selects these labels; one that says nothing, and none, select all. `None` when it is not valid.
pub fn selects(selector: &Value, labels: &Value) -> Option<bool> {
    let label = |name: &str| labels.get(name).and_then(Value::as_str);
    let equal = lookup::map(selector, "/matchLabels").into_iter().flatten();
    let mut all = equal.fold(true, |all, (name, value)| all && label(name) == value.as_str());
    for expression in lookup::list(selector, "/matchExpressions") {
        let value = label(lookup::text(expression, "/key"));
        let values = lookup::texts(expression, "/values");
        let among = value.is_some_and(|value| values.contains(&value));
        all &= match lookup::text(expression, "/operator") {
            "In" if !values.is_empty() => among,
            "NotIn" if !values.is_empty() => !among,
            "Exists" if values.is_empty() => value.is_some(),
            "DoesNotExist" if values.is_empty() => value.is_none(),
            _ => return None,
        };
    }
    Some(all)
}
