//! Whom an endpoint is meant for, by the Service's `trafficDistribution` (KEP-4444, KEP-3015).

use crate::tree::{Value, json};

/// How traffic is to be distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distribution {
    /// To any endpoint.
    Anywhere,
    /// To those of the client's zone.
    SameZone,
    /// To those of the client's node, else of its zone.
    SameNode,
}

impl Distribution {
    pub(super) fn of(service: &Value) -> Self {
        let annotations = &service["metadata"]["annotations"];
        let mode = [
            "service.kubernetes.io/topology-aware-hints",
            "service.kubernetes.io/topology-mode",
        ]
        .iter()
        .find_map(|name| annotations[*name].as_str());
        // An annotation that asks for hints in proportion to zones takes precedence; those are not made here.
        if matches!(mode, Some("Auto" | "auto")) {
            return Distribution::Anywhere;
        }
        match service["spec"]["trafficDistribution"].as_str() {
            Some("PreferClose" | "PreferSameZone") => Distribution::SameZone,
            Some("PreferSameNode") => Distribution::SameNode,
            _ => Distribution::Anywhere,
        }
    }

    /// The hints of an endpoint; `Null` for none. One that is not ready keeps what it has.
    pub(super) fn hints(self, endpoint: &Value) -> Value {
        if self == Distribution::Anywhere {
            return Value::Null;
        }
        if endpoint["conditions"]["ready"] != true {
            return endpoint["hints"].clone();
        }
        let mut hints = Value::Null;
        if let Some(zone) = endpoint["zone"].as_str() {
            hints["forZones"] = json!([{"name": zone}]);
        }
        if let Some(node) = endpoint["nodeName"].as_str().filter(|_| self == Distribution::SameNode) {
            hints["forNodes"] = json!([{"name": node}]);
        }
        hints
    }

    /// Gives an endpoint its hints. Whether they are other ones than before.
    pub(super) fn apply(self, endpoint: &mut Value) -> bool {
        let hints = self.hints(endpoint);
        if endpoint["hints"] == hints {
            return false;
        }
        if hints.is_null() {
            if let Some(fields) = endpoint.as_object_mut() {
                fields.remove("hints");
            }
        } else {
            endpoint["hints"] = hints;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_given_to_ready_endpoints_and_taken_back() {
        let service = |distribution: &str| json!({"spec": {"trafficDistribution": distribution}});
        let mut endpoint = json!({"zone": "a", "nodeName": "n", "conditions": {"ready": true}});
        assert!(Distribution::of(&service("PreferClose")).apply(&mut endpoint));
        assert_eq!(endpoint["hints"], json!({"forZones": [{"name": "a"}]}));
        assert!(!Distribution::of(&service("PreferSameZone")).apply(&mut endpoint));
        assert!(Distribution::of(&service("PreferSameNode")).apply(&mut endpoint));
        assert_eq!(endpoint["hints"]["forNodes"], json!([{"name": "n"}]));
        endpoint["conditions"]["ready"] = false.into();
        assert!(!Distribution::SameZone.apply(&mut endpoint));
        let mut annotated = service("PreferClose");
        annotated["metadata"]["annotations"]["service.kubernetes.io/topology-mode"] = "Auto".into();
        assert!(Distribution::of(&annotated).apply(&mut endpoint));
        assert!(endpoint["hints"].is_null());
    }
}
