//! What clients look for in the documents.

use super::*;
use serde_json::{Value, json};

fn v3_value(path: &str) -> Value {
    serde_json::from_slice(&v3(path).unwrap().plain()).unwrap()
}

#[test]
fn the_index_names_every_document_by_its_hash() {
    let index: Value = serde_json::from_slice(&v3_index()).unwrap();
    for key in [
        "api",
        "api/v1",
        "apis",
        "apis/apps",
        "apis/apps/v1",
        "apis/batch/v1",
        "version",
        "openid/v1/jwks",
    ] {
        let url = index["paths"][key]["serverRelativeURL"].as_str().unwrap();
        assert_eq!(url, format!("/openapi/v3/{key}?hash={}", v3(key).unwrap().hash));
    }
    assert!(v3("apis/none/v1").is_none());
    assert_ne!(v3("api/v1").unwrap().hash, v3("apis/apps/v1").unwrap().hash);
}

/// kubectl looks here to see whether the server validates fields.
#[test]
fn patch_operations_take_field_validation() {
    let document = v3_value("apis/apps/v1");
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(patch["operationId"], "patchAppsV1NamespacedDeployment");
    assert_eq!(patch["x-kubernetes-action"], "patch");
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "version": "v1", "kind": "Deployment"})
    );
    let names: Vec<&Value> = patch["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|parameter| &parameter["name"])
        .collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
}

#[test]
fn every_reference_of_every_document_leads_somewhere() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => object.iter().for_each(|(key, value)| match value.as_str() {
                Some(target) if key == "$ref" => found.push(target.to_owned()),
                _ => references(value, found),
            }),
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let mut documents: Vec<(String, Value)> = operations::documents()
        .into_iter()
        .map(|(key, paths)| {
            let mut text = Vec::new();
            render::v3(&paths, &mut text).unwrap();
            (key, serde_json::from_slice(&text).unwrap())
        })
        .collect();
    documents.push(("v2".to_owned(), serde_json::from_slice(&v2_json().plain()).unwrap()));
    for (key, document) in documents {
        let mut found = Vec::new();
        references(&document, &mut found);
        for target in found {
            let pointer = target.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{key}: {target}");
        }
    }
}

#[test]
fn schemas_carry_what_apply_and_explain_need() {
    let document = v3_value("api/v1");
    let schemas = &document["components"]["schemas"];
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(containers["x-kubernetes-list-type"], "map");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(
        containers["items"],
        json!({"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}], "default": {}})
    );
    assert!(containers["description"].as_str().unwrap().len() > 20);
    let pod = &schemas["io.k8s.api.core.v1.Pod"];
    assert_eq!(
        pod["x-kubernetes-group-version-kind"],
        json!([{"group": "", "version": "v1", "kind": "Pod"}])
    );
    assert_eq!(
        pod["properties"]["spec"]["allOf"],
        json!([{"$ref": "#/components/schemas/io.k8s.api.core.v1.PodSpec"}])
    );
    let port = &schemas["io.k8s.api.core.v1.ContainerPort"];
    assert_eq!(port["required"], json!(["containerPort"]));
    assert_eq!(port["properties"]["containerPort"]["format"], "int32");
    assert_eq!(port["properties"]["protocol"]["enum"], json!(["SCTP", "TCP", "UDP"]));
}

#[test]
fn version_2_has_every_operation_once() {
    let document: Value = serde_json::from_slice(&v2_json().plain()).unwrap();
    let mut ids: Vec<String> = document["paths"]
        .as_object()
        .unwrap()
        .values()
        .flat_map(|item| item.as_object().unwrap().values())
        .filter_map(|operation| operation.get("operationId")?.as_str().map(str::to_owned))
        .collect();
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), count), (814, 814));
    assert_eq!(
        document["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]["spec"]["$ref"],
        "#/definitions/io.k8s.api.core.v1.PodSpec"
    );
}

#[test]
fn operations_are_called_by_their_place() {
    let document: Value = serde_json::from_slice(&v2_json().plain()).unwrap();
    for (method, path, id) in [
        ("get", "/api/v1/pods", "listCoreV1PodForAllNamespaces"),
        ("delete", "/api/v1/nodes", "deleteCoreV1CollectionNode"),
        ("get", "/api/v1/namespaces/{name}", "readCoreV1Namespace"),
        (
            "get",
            "/apis/apps/v1/watch/namespaces/{namespace}/deployments",
            "watchAppsV1NamespacedDeploymentList",
        ),
        (
            "put",
            "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale",
            "replaceAppsV1NamespacedDeploymentScale",
        ),
        (
            "head",
            "/api/v1/nodes/{name}/proxy/{path}",
            "connectCoreV1HeadNodeProxyWithPath",
        ),
        (
            "get",
            "/apis/rbac.authorization.k8s.io/",
            "getRbacAuthorizationAPIGroup",
        ),
        (
            "get",
            "/apis/flowcontrol.apiserver.k8s.io/v1/",
            "getFlowcontrolApiserverV1APIResources",
        ),
    ] {
        assert_eq!(document["paths"][path][method]["operationId"], id, "{method} {path}");
    }
}

/// What a server keeps once kubectl of every age has asked for everything.
#[test]
fn cached_documents_are_small() {
    let kept = v2_json().gzip.len() + v2_protobuf().gzip.len();
    assert!(kept < 600_000, "{kept} bytes of version 2");
    let kept = v3("api/v1").map_or(0, |document| document.gzip.len());
    assert!((50_000..150_000).contains(&kept), "{kept} bytes of api/v1");
}
