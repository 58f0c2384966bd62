//! Conditions of the API conventions' one form (`meta/v1` Condition).

use crate::resources::time_text;
use crate::tree::{Value, json};

/// Sets the condition of a type in `status.conditions`, where `what` is its state and reason. Its time is when it came to this state.
/// `generation`: the one that was looked at, or `Null`.
pub(super) fn set(status: &mut Value, kind: &str, what: (&str, &str), message: &str, generation: &Value, now_s: i64) {
    let (state, reason) = what;
    let mut new = json!({"type": kind, "status": state, "reason": reason, "message": message});
    if !generation.is_null() {
        new["observedGeneration"] = generation.clone();
    }
    let time = Value::from(time_text(now_s).as_str());
    let mut conditions = status["conditions"]
        .as_array()
        .map_or_else(Vec::new, |list| list.to_vec());
    if let Some(old) = conditions.iter_mut().find(|condition| condition["type"] == kind) {
        let is_in_state = old["status"] == state && !old["lastTransitionTime"].is_null();
        new["lastTransitionTime"] = if is_in_state {
            old["lastTransitionTime"].clone()
        } else {
            time
        };
        *old = new;
    } else {
        new["lastTransitionTime"] = time;
        conditions.push(new);
    }
    status["conditions"] = conditions.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_last_change_of_state() {
        let mut status = json!({});
        set(&mut status, "A", ("True", "X"), "", &Value::Null, 1);
        set(&mut status, "A", ("True", "Y"), "more", &2.into(), 100);
        let first = status["conditions"][0].clone();
        assert_eq!(first["lastTransitionTime"], "1970-01-01T00:00:01Z");
        assert_eq!(
            (&first["reason"], &first["observedGeneration"]),
            (&"Y".into(), &2.into())
        );
        set(&mut status, "A", ("False", "Y"), "", &Value::Null, 100);
        assert_eq!(status["conditions"][0]["lastTransitionTime"], "1970-01-01T00:01:40Z");
    }
}
