//! Groups that steer other objects: `policy`, `autoscaling`, `scheduling.k8s.io`, `flowcontrol.apiserver.k8s.io`.

use serde_json::{Value, json};

use super::edit::{default_at, default_in, object_at};
use super::kind::Kind;
use super::lookup::{condition, integer, integer_or_text, list, present, text};
use super::row::Row;

pub(super) const KINDS: &[Kind] = &[
    Kind::new("flowschemas.flowcontrol.apiserver.k8s.io").cells(|row| {
        let dangling = condition(row.object, "Dangling").map_or("?", |condition| text(condition, "/status"));
        row.name()
            .text_at("/spec/priorityLevelConfiguration/name")
            .integer_at("/spec/matchingPrecedence")
            .text_or("/spec/distinguisherMethod/type", "<none>")
            .age()
            .text(dangling);
    }),
    Kind::new("horizontalpodautoscalers.autoscaling")
        .cells(autoscalers)
        .defaults(autoscaler_defaults),
    Kind::new("poddisruptionbudgets.policy").cells(|row| {
        let bound = |pointer| integer_or_text(row.object, pointer).unwrap_or_else(|| "N/A".to_owned());
        let (least, most) = (bound("/spec/minAvailable"), bound("/spec/maxUnavailable"));
        row.name()
            .text(least)
            .text(most)
            .integer_at("/status/disruptionsAllowed")
            .age();
    }),
    Kind::new("priorityclasses.scheduling.k8s.io").cells(|row| {
        row.name()
            .integer_at("/value")
            .boolean_at("/globalDefault", false)
            .age()
            .text_at("/preemptionPolicy");
    }),
    Kind::new("prioritylevelconfigurations.flowcontrol.apiserver.k8s.io").cells(|row| {
        let queuing = "/spec/limited/limitResponse/queuing";
        row.name()
            .text_at("/spec/type")
            .integer_or("/spec/limited/nominalConcurrencyShares", "<none>");
        for field in ["queues", "handSize", "queueLengthLimit"] {
            row.integer_or(&format!("{queuing}/{field}"), "<none>");
        }
        row.age();
    }),
];

fn autoscalers(row: &mut Row<'_>) {
    let scaler = row.object;
    let reference = format!(
        "{}/{}",
        text(scaler, "/spec/scaleTargetRef/kind"),
        text(scaler, "/spec/scaleTargetRef/name")
    );
    let least = integer(scaler, "/spec/minReplicas").map_or("<unset>".to_owned(), |replicas| replicas.to_string());
    row.name()
        .text(reference)
        .text(metrics(scaler))
        .text(least)
        .integer_at("/spec/maxReplicas")
        .integer_at("/status/currentReplicas")
        .age();
}

/// Current and target value of the first two metrics.
fn metrics(scaler: &Value) -> String {
    let current = list(scaler, "/status/currentMetrics");
    let metrics = list(scaler, "/spec/metrics").iter().enumerate();
    let shown: Vec<String> = metrics.map(|(i, spec)| metric(spec, current.get(i))).collect();
    match shown.len() {
        0 => "<none>".to_owned(),
        1..=2 => shown.join(", "),
        _ => format!("{} + {} more...", shown[..2].join(", "), shown.len() - 2),
    }
}

fn metric(spec: &Value, status: Option<&Value>) -> String {
    let source = match text(spec, "/type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let Some(metric) = spec.get(source) else {
        return "<unknown type>".to_owned();
    };
    let average = present(metric, "/target/averageValue");
    let current = |field: &str| {
        let value = status.and_then(|status| status.pointer(&format!("/{source}/current/{field}")));
        value.and_then(Value::as_str).unwrap_or("<unknown>")
    };
    match source {
        "pods" => format!("{}/{}", current("averageValue"), text(metric, "/target/averageValue")),
        "external" | "object" if average => {
            format!(
                "{}/{} (avg)",
                current("averageValue"),
                text(metric, "/target/averageValue")
            )
        }
        "external" | "object" => format!("{}/{}", current("value"), text(metric, "/target/value")),
        _ if average => format!(
            "{}: {}/{}",
            text(metric, "/name"),
            current("averageValue"),
            text(metric, "/target/averageValue")
        ),
        _ => {
            let now = status.and_then(|status| integer(status, &format!("/{source}/current/averageUtilization")));
            let now = now.map_or("<unknown>".to_owned(), |percent| format!("{percent}%"));
            let target = integer(metric, "/target/averageUtilization");
            let target = target.map_or("<auto>".to_owned(), |percent| format!("{percent}%"));
            format!("{}: {now}/{target}", text(metric, "/name"))
        }
    }
}

fn autoscaler_defaults(scaler: &mut Value) {
    let processor = json!([{
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    }]);
    default_at(scaler, "/spec", "metrics", processor);
    if !present(scaler, "/spec/behavior") {
        return;
    }
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    if let Some(up) = object_at(scaler, "/spec/behavior/scaleUp") {
        default_in(up, "stabilizationWindowSeconds", 0);
        default_in(up, "selectPolicy", "Max");
        default_in(up, "policies", json!([pods, percent]));
    }
    if let Some(down) = object_at(scaler, "/spec/behavior/scaleDown") {
        default_in(down, "selectPolicy", "Max");
        default_in(down, "policies", json!([percent]));
    }
}
