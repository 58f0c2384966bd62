//! When a request is forgotten.

use super::requests::{conditions, has, has_certificate};
use crate::controllers::pod::seconds;
use crate::resources;
use crate::tree::Value;

/// How long a request stays that was answered with a certificate or denied.
const JUDGED_S: i64 = 3600;
/// How long one stays of which nobody said anything.
const PENDING_S: i64 = 24 * 3600;

/// Seconds until a request is to be deleted; `None`: it stays.
pub(super) fn wait_s(request: &Value, now_s: i64) -> Option<u64> {
    let judged = |kind: &str| {
        let of_kind = conditions(request).iter().filter(|condition| condition["type"] == kind);
        of_kind
            .filter_map(|condition| seconds(&condition["lastUpdateTime"]))
            .min()
            .map(|at_s| at_s + JUDGED_S)
    };
    let mut ends_s = judged("Denied");
    if has_certificate(request) && has(request, "Approved") {
        // A second after its end it is over.
        let over_s = resources::issued_until_s(request).map(|until_s| until_s + 1);
        ends_s = [ends_s, judged("Approved"), over_s].into_iter().flatten().min();
    }
    if conditions(request).is_empty() {
        let made_s = seconds(&request["metadata"]["creationTimestamp"]);
        ends_s = [ends_s, made_s.map(|made_s| made_s + PENDING_S)]
            .into_iter()
            .flatten()
            .min();
    }
    Some(u64::try_from(ends_s?.saturating_sub(now_s)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    fn request(conditions: &[(&str, &str)], certificate: &str) -> Value {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, at)| json!({"type": *kind, "status": "True", "lastUpdateTime": *at}))
            .collect();
        json!({
            "metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"},
            "status": {"conditions": Value::from(conditions), "certificate": certificate},
        })
    }

    #[test]
    fn what_was_judged_stays_an_hour_and_what_was_not_a_day() {
        let at = "1970-01-01T01:00:00Z";
        assert_eq!(wait_s(&request(&[], ""), 0), Some(24 * 3600));
        assert_eq!(wait_s(&request(&[], ""), 25 * 3600), Some(0));
        assert_eq!(wait_s(&request(&[("Denied", at)], ""), 3600), Some(3600));
        assert_eq!(wait_s(&request(&[("Denied", at)], ""), 7200), Some(0));
        assert_eq!(wait_s(&request(&[("Approved", at)], "eA=="), 3601), Some(3599));
        // Approved, and not signed yet.
        assert_eq!(wait_s(&request(&[("Approved", at)], ""), 100_000), None);
        assert_eq!(wait_s(&request(&[("Approved", at), ("Failed", at)], ""), 100_000), None);
    }
}
