//! The status of policies: whether their expressions fit what they are about.

use serde_json::{Value, json};

use crate::{Answer, Cluster};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";

fn policy(name: &str, rule: &Value, validation: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}})
}

fn rule(group: &str, version: &str, resource: &str) -> Value {
    json!({"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE"], "resources": [resource]})
}

fn is_checked(answer: &Answer) -> bool {
    answer.body["status"]["observedGeneration"] == answer.body["metadata"]["generation"]
}

#[tokio::test]
async fn expressions_that_do_not_fit_their_types_are_told_of() {
    let cluster = Cluster::start().await;
    let deployments = rule("apps", "v1", "deployments");
    let wrong = json!({"expression": "object.spec.replicas > '1'", "messageExpression": "'wants replicas > 1, got ' + object.spec.replicas"});
    cluster.made(POLICIES, &policy("wrong", &deployments, &wrong)).await;
    let checked = cluster.until(&format!("{POLICIES}/wrong"), is_checked).await.body;
    let warnings = checked["status"]["typeChecking"]["expressionWarnings"]
        .as_array()
        .unwrap();
    assert_eq!(warnings.len(), 2, "{checked}");
    assert_eq!(warnings[0]["fieldRef"], "spec.validations[0].expression");
    let text = warnings[0]["warning"].as_str().unwrap();
    assert!(
        text.starts_with("apps/v1, Kind=Deployment: ERROR: <input>:1:22: "),
        "{text}"
    );
    assert!(
        text.contains("found no matching overload for '_>_' applied to '(int, string)'"),
        "{text}"
    );
    assert_eq!(warnings[1]["fieldRef"], "spec.validations[0].messageExpression");
    let text = warnings[1]["warning"].as_str().unwrap();
    assert!(
        text.contains("found no matching overload for '_+_' applied to '(string, int)'"),
        "{text}"
    );
    let right =
        json!({"expression": "object.spec.replicas > 1 && object.spec.template.spec.containers.all(c, c.image != '')"});
    cluster.made(POLICIES, &policy("right", &deployments, &right)).await;
    let checked = cluster.until(&format!("{POLICIES}/right"), is_checked).await.body;
    assert_eq!(checked["status"]["typeChecking"], json!({}));
}

#[tokio::test]
async fn expressions_about_custom_resources_are_checked_too() {
    let cluster = Cluster::start().await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"host": {"type": "string"}}}}});
    let definition = json!({"metadata": {"name": "crontabs.stable.example.com"}, "spec": {"group": "stable.example.com", "scope": "Namespaced",
        "names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    cluster
        .made("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)
        .await;
    cluster
        .until("/apis/stable.example.com/v1/crontabs", |answer| answer.code == 200)
        .await;
    let wrong = json!({"expression": "object.spec.host != '' && object.spec.hots == ''"});
    cluster
        .made(
            POLICIES,
            &policy("custom", &rule("stable.example.com", "v1", "crontabs"), &wrong),
        )
        .await;
    let checked = cluster.until(&format!("{POLICIES}/custom"), is_checked).await.body;
    let warnings = checked["status"]["typeChecking"]["expressionWarnings"]
        .as_array()
        .unwrap();
    let text = warnings[0]["warning"].as_str().unwrap();
    assert!(
        text.contains("stable.example.com/v1, Kind=CronTab: ") && text.contains("undefined field 'hots'"),
        "{text}"
    );
}
