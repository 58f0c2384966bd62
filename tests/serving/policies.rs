//! Admission policies: what is changed and judged, and by which version of an object.

use serde_json::{Value, json};

use crate::Started;
use crate::client::Client;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn make(admin: &Client, path: &str, object: &Value) {
    let answer = admin.post(path, object).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
}

/// A mutating policy with these mutations, bound to everything.
async fn mutates(admin: &Client, name: &str, resources: Value, more: Value) {
    let mut spec = json!({
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [
            {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": resources}]},
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    make(
        admin,
        &format!("{GROUP}/mutatingadmissionpolicies"),
        &json!({"metadata": {"name": name}, "spec": spec}),
    )
    .await;
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
    make(admin, &format!("{GROUP}/mutatingadmissionpolicybindings"), &binding).await;
}

/// A validating policy, bound to everything.
async fn validates(admin: &Client, name: &str, spec: Value) {
    make(
        admin,
        &format!("{GROUP}/validatingadmissionpolicies"),
        &json!({"metadata": {"name": name}, "spec": spec}),
    )
    .await;
    let spec = json!({"policyName": name, "validationActions": ["Deny"]});
    let binding = json!({"metadata": {"name": name}, "spec": spec});
    make(admin, &format!("{GROUP}/validatingadmissionpolicybindings"), &binding).await;
}

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

#[tokio::test]
async fn mutating_policies_apply_and_patch_in_order_and_run_again_where_they_want_it() {
    let started = Started::usual().await;
    let admin = started.admin();
    let first = json!({
        "reinvocationPolicy": "IfNeeded",
        "variables": [{"name": "team", "expression": "'shop'"}],
        "matchConditions": [{"name": "wanted", "expression": "object.metadata.name != 'spared'"}],
        "mutations": [
            apply("Object{metadata: Object.metadata{labels: {'team': variables.team}}}"),
            patch("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), \
                   value: string(size(object.metadata.labels))}]"),
        ],
    });
    mutates(&admin, "a", json!(["configmaps"]), first).await;
    let second = json!({"mutations": [apply("Object{data: {'seen': object.metadata.labels['a/b']}}")],
                        "matchConditions": [{"name": "wanted", "expression": "object.metadata.name != 'spared'"}]});
    mutates(&admin, "b", json!(["configmaps"]), second).await;
    let answer = admin
        .post(MAPS, &json!({"metadata": {"name": "m"}, "data": {"own": "x"}}))
        .await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    // The first ran once more after the second had changed the object: there were two labels then.
    assert_eq!(answer.body["metadata"]["labels"], json!({"team": "shop", "a/b": "2"}));
    assert_eq!(answer.body["data"], json!({"own": "x", "seen": "1"}));
    let managed = answer.body["metadata"]["managedFields"].to_string();
    assert!(!managed.contains("f:team"), "{managed}");
    let spared = admin
        .post(MAPS, &json!({"metadata": {"name": "spared"}, "data": {"own": "x"}}))
        .await;
    assert_eq!(spared.body["data"], json!({"own": "x"}));
    // A list whose items are told apart is merged; one that is not may not be named.
    let sidecar = "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{\
                   containers: [Object.spec.template.spec.containers{name: 'sidecar', image: 'proxy:1'}]}}}}";
    mutates(
        &admin,
        "c",
        json!(["deployments"]),
        json!({"mutations": [apply(sidecar)]}),
    )
    .await;
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}}}});
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let answer = admin.post(path, &deployment).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    let containers = &answer.body["spec"]["template"]["spec"]["containers"];
    let names: Vec<_> = containers
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["main", "sidecar"]);
    // Defaults come after.
    assert_eq!(containers[1]["terminationMessagePolicy"], "File");
    let atomic = "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{\
                  containers: [Object.spec.template.spec.containers{name: 'main', command: ['x']}]}}}}";
    mutates(
        &admin,
        "d",
        json!(["deployments"]),
        json!({"mutations": [apply(atomic)]}),
    )
    .await;
    let answer = admin
        .merge(&format!("{path}/d"), &json!({"spec": {"replicas": 2}}))
        .await;
    assert_eq!(answer.code, 422, "{}", answer.body);
    let message = answer.body["message"].as_str().unwrap();
    assert!(
        message.starts_with("deployments.apps \"d\" is forbidden: policy 'd' with binding 'd' denied request: "),
        "{message}"
    );
    assert!(
        message.contains("may not mutate atomic arrays, maps or structs: "),
        "{message}"
    );
}

#[tokio::test]
async fn results_of_policies_are_bounded() {
    let started = Started::usual().await;
    let admin = started.admin();
    let doubled = "[0].map(a, [a, a]).map(a, [a, a, a, a]).map(a, a + a + a + a + a + a + a + a)";
    let mut list = doubled.to_owned();
    for _ in 0..16 {
        list = format!("[{list}].map(l, l + l)[0]");
    }
    let bomb = json!({"failurePolicy": "Fail", "mutations": [patch(&format!(
        "[JSONPatch{{op: 'add', path: '/data', value: {list}}}]"))]});
    mutates(&admin, "bomb", json!(["configmaps"]), bomb).await;
    let answer = admin.post(MAPS, &json!({"metadata": {"name": "m"}})).await;
    assert_eq!(answer.code, 422, "{}", answer.body);
}

#[tokio::test]
async fn validating_policies_judge_deletions_connections_and_other_versions() {
    let started = Started::usual().await;
    let admin = started.admin();
    make(&admin, MAPS, &json!({"metadata": {"name": "kept"}})).await;
    let rule = |group: &str, version: &str, operation: &str, resource: &str| {
        json!({"resourceRules": [{"apiGroups": [group], "apiVersions": [version], "operations": [operation],
                                   "resources": [resource]}]})
    };
    let spec = json!({"matchConstraints": rule("", "v1", "DELETE", "configmaps"),
                      "validations": [{"expression": "oldObject.metadata.name != 'kept' && object == null",
                                       "messageExpression": "'never ' + request.operation"}]});
    validates(&admin, "deletions", spec).await;
    let denied = "configmaps \"kept\" is forbidden: ValidatingAdmissionPolicy 'deletions' with binding 'deletions' denied \
                  request: never DELETE";
    let answer = admin.send("DELETE", &format!("{MAPS}/kept"), "", "".into()).await;
    assert_eq!(
        (answer.code.as_u16(), answer.body["message"].as_str()),
        (422, Some(denied))
    );
    let spec = json!({"matchConstraints": rule("", "v1", "CONNECT", "pods/exec"),
                      "validations": [{"expression": "!('rm' in object.command)", "message": "not here",
                                       "reason": "Forbidden"}]});
    validates(&admin, "connections", spec).await;
    let exec = "/api/v1/namespaces/default/pods/p/exec?command=rm&command=-rf";
    let answer = admin.send("POST", exec, "", "".into()).await;
    assert_eq!(answer.code, 403, "{}", answer.body);
    // It is another kind of autoscaler that the policy speaks of; the request's is shown in that version.
    let mut constraints = rule("autoscaling", "v1", "CREATE", "horizontalpodautoscalers");
    constraints["matchPolicy"] = json!("Equivalent");
    let spec = json!({"matchConstraints": constraints, "validations": [
        {"expression": "object.spec.targetCPUUtilizationPercentage < 80 && request.requestKind.version == 'v2' \
                        && request.kind.version == 'v1'", "message": "too hot"}]});
    validates(&admin, "versions", spec).await;
    let autoscaler = |percent: i64| {
        json!({"metadata": {"name": format!("h{percent}")}, "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 3,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}}]}})
    };
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let answer = admin.post(path, &autoscaler(90)).await;
    assert_eq!(answer.code, 422, "{}", answer.body);
    assert!(
        answer.body["message"].as_str().unwrap().ends_with("too hot"),
        "{}",
        answer.body
    );
    let answer = admin.post(path, &autoscaler(70)).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
}
