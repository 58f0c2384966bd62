//! The OpenAPI documents of custom resources: one for each group-version, made of the schemas of its definitions.
//!
//! What an operation takes and answers is the same for all kinds. It is taken from the document of a built-in kind that has
//! nothing of its own, Leases, whose names are put right.

use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value, json};

use crate::api::Api;
use crate::resources::Resource;
use crate::schema::openapi::{self, Document};

/// The document that operations are taken from, the path of its collection, and its kind.
const PATTERN: &str = "apis/coordination.k8s.io/v1";
const PATTERN_PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases";
const PATTERN_SCHEMA: &str = "io.k8s.api.coordination.v1.Lease";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should \
    convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this \
    from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// The paths of all documents, with what names their content.
pub(super) fn index(api: &Api) -> Vec<(String, String)> {
    let served = api.custom.served();
    let mut index = Vec::new();
    for (group, versions) in served.groups() {
        for (version, resources) in versions {
            let named = resources.values().map(|resource| &**resource);
            index.push((format!("apis/{group}/{version}"), openapi::hash(&fingerprint(named))));
        }
    }
    index
}

/// What the content of a document depends on: the definitions as they are now.
fn fingerprint<'a>(resources: impl Iterator<Item = &'a Resource>) -> String {
    let mut text = String::from("custom");
    for resource in resources {
        if let Some(custom) = &resource.custom {
            text.push(' ');
            text.push_str(&resource.api_version());
            text.push(' ');
            text.push_str(&custom.fingerprint);
        }
    }
    text
}

/// The document at `/openapi/v3/{path}`; `None` when no custom resource is served there. Made anew at each call: clients fetch one
/// when its hash in the index changed.
pub(super) fn document(api: &Api, path: &str) -> Option<Document> {
    let (group, version) = path.strip_prefix("apis/")?.split_once('/')?;
    let served = api.custom.served();
    let resources = served.version(group, version)?;
    let pattern = pattern();
    let mut paths = Map::new();
    let mut schemas = pattern.schemas.clone();
    for resource in resources.values() {
        let name = schema_name(group, version, &resource.kind);
        let list = schema_name(group, version, resource.list_kind().0);
        let kind = json!([{"group": group, "kind": resource.kind, "version": version}]);
        let mut schema = stored_schema(api, resource).unwrap_or_else(|| json!({"type": "object"}));
        complete(&mut schema, kind);
        schemas.insert(list.clone(), list_schema(resource, &name));
        schemas.insert(name.clone(), schema);
        for (path, item) in pattern.paths(resource, &name, &list) {
            paths.insert(path, item);
        }
    }
    let text = json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    });
    let key = fingerprint(resources.values().map(|resource| &**resource));
    Some(Document::of_text(&key, text.to_string().as_bytes()))
}

/// The schema of a version, from its definition as it is stored.
fn stored_schema(api: &Api, resource: &Resource) -> Option<Value> {
    let view = api.reader.store.view();
    let definition = view.get(DEFINITIONS, &resource.storage).ok()??;
    let definition: Value = serde_json::from_slice(definition.json().ok()?).ok()?;
    let versions = definition["spec"]["versions"].as_array()?;
    let version = versions.iter().find(|version| version["name"] == *resource.version)?;
    Some(version["schema"]["openAPIV3Schema"].clone()).filter(Value::is_object)
}

/// Adds what the schema of every object has.
fn complete(schema: &mut Value, kind: Value) {
    let has_fields = schema["properties"].is_object();
    if has_fields || schema["x-kubernetes-preserve-unknown-fields"] != true {
        schema["properties"]["apiVersion"] = json!({"type": "string", "description": API_VERSION});
        schema["properties"]["kind"] = json!({"type": "string", "description": KIND});
        schema["properties"]["metadata"] = json!({
            "allOf": [{"$ref": format!("#/components/schemas/{META}.ObjectMeta")}],
            "description": "Standard object's metadata. More info: \
                https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
            "default": {},
        });
    }
    schema["x-kubernetes-group-version-kind"] = kind;
}

fn list_schema(resource: &Resource, item: &str) -> Value {
    let list_kind = resource.list_kind().0;
    json!({
        "description": format!("{list_kind} is a list of {}", resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": API_VERSION},
            "items": {
                "description": format!("List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md", resource.plural),
                "type": "array",
                "items": {"allOf": [{"$ref": format!("#/components/schemas/{item}")}], "default": {}},
            },
            "kind": {"type": "string", "description": KIND},
            "metadata": {
                "allOf": [{"$ref": format!("#/components/schemas/{META}.ListMeta")}],
                "description": "Standard list metadata.",
                "default": {},
            },
        },
        "x-kubernetes-group-version-kind": [{"group": resource.group, "kind": list_kind, "version": resource.version}],
    })
}

/// `com.example.v1.Widget` of `example.com/v1`.
fn schema_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{kind}", parts.join("."))
}

/// What all documents have in common.
struct Pattern {
    collection: Value,
    item: Value,
    /// The collection in all namespaces.
    everywhere: Value,
    schemas: Map<String, Value>,
}

fn pattern() -> &'static Pattern {
    static PATTERN_OF_ALL: OnceLock<Pattern> = OnceLock::new();
    PATTERN_OF_ALL.get_or_init(|| {
        let read = |path: &str| -> Value {
            let document = openapi::v3(path).map(|document| document.plain()).unwrap_or_default();
            serde_json::from_slice(&document).unwrap_or_default()
        };
        let mut document = read(PATTERN);
        let mut paths = document["paths"].take();
        let mut schemas = match document["components"]["schemas"].take() {
            Value::Object(schemas) => schemas,
            _ => Map::new(),
        };
        schemas.retain(|name, _| !name.starts_with("io.k8s.api.coordination."));
        let mut scalable = read("apis/apps/v1");
        for name in ["Scale", "ScaleSpec", "ScaleStatus"] {
            let name = format!("io.k8s.api.autoscaling.v1.{name}");
            schemas.insert(name.clone(), scalable["components"]["schemas"][&name].take());
        }
        Pattern {
            collection: paths[PATTERN_PATH].take(),
            item: paths[format!("{PATTERN_PATH}/{{name}}")].take(),
            everywhere: paths[PATTERN_PATH.replace("namespaces/{namespace}/", "")].take(),
            schemas,
        }
    })
}

impl Pattern {
    /// The paths of a resource.
    fn paths(&self, resource: &Resource, schema: &str, list: &str) -> Vec<(String, Value)> {
        let base = format!("/apis/{}/{}", resource.group, resource.version);
        let renamed = Renamed { resource, schema, list };
        let mut paths = Vec::new();
        let scope = if resource.namespaced {
            let all = renamed.path(&self.everywhere, "", true);
            paths.push((format!("{base}/{}", resource.plural), all));
            format!("{base}/namespaces/{{namespace}}/{}", resource.plural)
        } else {
            format!("{base}/{}", resource.plural)
        };
        paths.push((scope.clone(), renamed.path(&self.collection, "", false)));
        paths.push((format!("{scope}/{{name}}"), renamed.path(&self.item, "", false)));
        for subresource in &resource.subresources {
            let path = format!("{scope}/{{name}}/{}", subresource.name);
            paths.push((path, renamed.path(&self.item, subresource.name, false)));
        }
        paths
    }
}

struct Renamed<'a> {
    resource: &'a Resource,
    schema: &'a str,
    list: &'a str,
}

impl Renamed<'_> {
    /// One path with its operations; those of a subresource neither create nor delete.
    fn path(&self, pattern: &Value, subresource: &str, everywhere: bool) -> Value {
        let mut path = pattern.clone();
        self.rename(&mut path, subresource);
        let Some(operations) = path.as_object_mut() else {
            return path;
        };
        if !subresource.is_empty() {
            operations.retain(|method, _| !matches!(method.as_str(), "delete" | "post"));
        }
        if !self.resource.namespaced
            && let Some(parameters) = operations.get_mut("parameters").and_then(Value::as_array_mut)
        {
            parameters.retain(|parameter| parameter["name"] != "namespace");
        }
        for (method, operation) in operations.iter_mut().filter(|(method, _)| *method != "parameters") {
            let action = operation["x-kubernetes-action"].as_str().unwrap_or("").to_owned();
            operation["operationId"] = self.identifier(&action, method, subresource, everywhere).into();
            operation["tags"] = json!([self.tag()]);
            operation["description"] = self.description(&action, subresource).into();
            operation["x-kubernetes-group-version-kind"] = if subresource == "scale" {
                json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
            } else {
                json!({"group": self.resource.group, "version": self.resource.version, "kind": self.resource.kind})
            };
        }
        path
    }

    /// Puts references to schemas right, and leaves out media types that custom resources do not have.
    fn rename(&self, value: &mut Value, subresource: &str) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, _| !name.contains("protobuf") && !name.contains("strategic-merge-patch"));
                for (name, value) in fields.iter_mut() {
                    match value {
                        Value::String(text) if name == "$ref" => {
                            let schema = text.strip_prefix("#/components/schemas/").unwrap_or("");
                            let own = match schema.strip_prefix(PATTERN_SCHEMA) {
                                Some("") if subresource == "scale" => SCALE,
                                Some("") => self.schema,
                                Some("List") => self.list,
                                _ => continue,
                            };
                            *text = format!("#/components/schemas/{own}");
                        }
                        value => self.rename(value, subresource),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.rename(item, subresource)),
            _ => {}
        }
    }

    /// `readExampleComV1NamespacedWidgetStatus`
    fn identifier(&self, action: &str, method: &str, subresource: &str, everywhere: bool) -> String {
        let resource = self.resource;
        let mut id = String::from(match (action, method) {
            ("get", _) => "read",
            ("post", _) => "create",
            ("put", _) => "replace",
            ("deletecollection", _) => "delete",
            ("" | "connect", method) => method,
            (action, _) => action,
        });
        id.extend(resource.group.split(['.', '-']).map(capital));
        id.push_str(&capital(&resource.version));
        if action == "deletecollection" {
            id.push_str("Collection");
        }
        if resource.namespaced && !everywhere {
            id.push_str("Namespaced");
        }
        id.push_str(&resource.kind);
        id.push_str(&capital(subresource));
        if everywhere {
            id.push_str("ForAllNamespaces");
        }
        id
    }

    /// `exampleCom_v1`
    fn tag(&self) -> String {
        let mut parts = self.resource.group.split(['.', '-']);
        let mut tag = parts.next().unwrap_or("").to_owned();
        tag.extend(parts.map(capital));
        format!("{tag}_{}", self.resource.version)
    }

    fn description(&self, action: &str, subresource: &str) -> String {
        let kind = &self.resource.kind;
        let part = if subresource.is_empty() {
            String::new()
        } else {
            format!("{subresource} of ")
        };
        match action {
            "get" => format!("read {part}the specified {kind}"),
            "put" => format!("replace {part}the specified {kind}"),
            "patch" => format!("partially update {part}the specified {kind}"),
            "post" => format!("create a {kind}"),
            "delete" => format!("delete a {kind}"),
            "deletecollection" => format!("delete collection of {kind}"),
            _ => format!("list objects of kind {kind}"),
        }
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The index of all documents, those of built-in resources among them.
pub(super) fn whole_index(api: &Arc<Api>) -> bytes::Bytes {
    let custom = index(api);
    if custom.is_empty() {
        return openapi::v3_index();
    }
    let mut index: Value = serde_json::from_slice(&openapi::v3_index()).unwrap_or_default();
    for (path, hash) in custom {
        let url = format!("/openapi/v3/{path}?hash={hash}");
        let known = &mut index["paths"][&path];
        if known.is_null() {
            *known = json!({"serverRelativeURL": url});
        }
    }
    index.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_schemas_begin_with_the_group_the_other_way_round() {
        assert_eq!(schema_name("a.example.com", "v1", "Widget"), "com.example.a.v1.Widget");
        assert_eq!(capital("v1beta1"), "V1beta1");
    }

    #[test]
    fn the_pattern_has_what_is_taken_from_it() {
        let pattern = pattern();
        for (path, methods) in [
            (&pattern.collection, &["get", "post", "delete"][..]),
            (&pattern.item, &["get", "put", "patch", "delete"]),
            (&pattern.everywhere, &["get"]),
        ] {
            for method in methods {
                assert!(path[method]["x-kubernetes-action"].is_string(), "{method}");
            }
        }
        for name in ["ObjectMeta", "ListMeta", "DeleteOptions", "Status", "Patch"] {
            assert!(pattern.schemas.contains_key(&format!("{META}.{name}")), "{name}");
        }
        assert!(pattern.schemas[SCALE].is_object());
    }
}
