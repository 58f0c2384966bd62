//! Custom resources in OpenAPI: a document of version 3 for each group-version, and their part of that of version 2.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};

use super::downgrade;
use super::pattern::{META, Pattern, Version};
use crate::api::Api;
use crate::resources::Resource;
use crate::resources::custom::Served;
use crate::schema::openapi::{self, Document, Extra};

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
    let pattern = Pattern::of(Version::V3);
    let mut paths = Map::new();
    let mut schemas = pattern.schemas.clone();
    for resource in resources.values() {
        let names = Names::of(resource);
        let mut schema = stored_schema(api, resource).unwrap_or_else(|| json!({"type": "object"}));
        complete(&mut schema, resource);
        schemas.insert(names.list.clone(), list_schema(resource, &names.schema));
        schemas.insert(names.schema.clone(), schema);
        paths.extend(pattern.paths(resource, &names));
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
fn complete(schema: &mut Value, resource: &Resource) {
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
    schema["x-kubernetes-group-version-kind"] =
        json!([{"group": resource.group, "kind": resource.kind, "version": resource.version}]);
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

/// What the schemas of a resource are called.
pub(super) struct Names {
    /// That of its objects.
    pub(super) schema: String,
    /// That of its lists.
    pub(super) list: String,
}

impl Names {
    fn of(resource: &Resource) -> Self {
        let name = |kind: &str| schema_name(&resource.group, &resource.version, kind);
        Self {
            schema: name(&resource.kind),
            list: name(resource.list_kind().0),
        }
    }
}

/// `com.example.v1.Widget` of `example.com/v1`.
fn schema_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{kind}", parts.join("."))
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

/// The document of version 2 with the custom resources that are served. It is as large as all built-in ones together, so the last one of
/// each form is kept, compressed (some 500 KB without custom resources).
#[derive(Debug, Default)]
pub(in crate::api) struct WholeCache {
    json: Mutex<Option<(String, Document)>>,
    protobuf: Mutex<Option<(String, Document)>>,
}

/// The document at `/openapi/v2` as JSON.
pub(super) fn whole_json(api: &Api) -> Document {
    whole(api, &api.openapi.json, openapi::v2_json, openapi::v2_json_with)
}

/// The document at `/openapi/v2` as protobuf.
pub(super) fn whole_protobuf(api: &Api) -> Document {
    whole(
        api,
        &api.openapi.protobuf,
        openapi::v2_protobuf,
        openapi::v2_protobuf_with,
    )
}

fn whole(
    api: &Api,
    cache: &Mutex<Option<(String, Document)>>,
    built_in: fn() -> Document,
    with: fn(&str, &Extra) -> Document,
) -> Document {
    let served = api.custom.served();
    let resources = || all(&served);
    if resources().next().is_none() {
        return built_in();
    }
    let key = fingerprint(resources());
    // Held while it is made: others who ask wait for it instead of making it too.
    let mut cached = cache.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, document)) = cached.as_ref().filter(|(known, _)| *known == key) {
        return document.clone();
    }
    let pattern = Pattern::of(Version::V2);
    let mut extra = Extra::default();
    for resource in resources() {
        let names = Names::of(resource);
        let mut schema = stored_schema(api, resource).unwrap_or_else(|| json!({"type": "object"}));
        downgrade::structural(&mut schema);
        complete(&mut schema, resource);
        for (name, mut schema) in [
            (names.schema.clone(), schema),
            (names.list.clone(), list_schema(resource, &names.schema)),
        ] {
            downgrade::references(&mut schema);
            extra.definitions.push((name, schema));
        }
        extra.paths.extend(pattern.paths(resource, &names));
    }
    let document = with(&key, &extra);
    *cached = Some((key, document.clone()));
    document
}

fn all(served: &Served) -> impl Iterator<Item = &Resource> {
    let versions = served.groups().flat_map(|(_, versions)| versions);
    versions.flat_map(|(_, resources)| resources.values().map(|resource| &**resource))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_schemas_begin_with_the_group_the_other_way_round() {
        assert_eq!(schema_name("a.example.com", "v1", "Widget"), "com.example.a.v1.Widget");
    }
}
