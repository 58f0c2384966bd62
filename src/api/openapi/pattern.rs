//! The paths of a custom resource.
//!
//! What an operation takes and answers is the same for all kinds. It is taken from those of a built-in kind that has nothing of its own,
//! Leases, whose names are put right.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use super::custom::Names;
use crate::resources::Resource;
use crate::schema::openapi;

/// The document that operations are taken from, the path of its collection, and its kind.
const DOCUMENT: &str = "apis/coordination.k8s.io/v1";
const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases";
const SCHEMA: &str = "io.k8s.api.coordination.v1.Lease";
pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// The two versions of OpenAPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V2,
    V3,
}

impl Version {
    /// What references to schemas begin with.
    pub(super) fn base(self) -> &'static str {
        match self {
            Version::V2 => "#/definitions/",
            Version::V3 => "#/components/schemas/",
        }
    }
}

/// What all documents of a version have in common.
pub(super) struct Pattern {
    version: Version,
    collection: Value,
    item: Value,
    /// The collection in all namespaces.
    everywhere: Value,
    /// Schemas that the operations refer to; none in version 2, where they are in the same document.
    pub(super) schemas: Map<String, Value>,
}

impl Pattern {
    pub(super) fn of(version: Version) -> &'static Pattern {
        static PATTERNS: [OnceLock<Pattern>; 2] = [const { OnceLock::new() }; 2];
        PATTERNS[version as usize].get_or_init(|| match version {
            Version::V2 => Pattern::of_version_2(),
            Version::V3 => Pattern::of_version_3(),
        })
    }

    fn of_version_2() -> Pattern {
        let item = |path: &str| openapi::v2_path(path).unwrap_or_default();
        Pattern {
            version: Version::V2,
            collection: item(PATH),
            item: item(&format!("{PATH}/{{name}}")),
            everywhere: item(&PATH.replace("namespaces/{namespace}/", "")),
            schemas: Map::new(),
        }
    }

    fn of_version_3() -> Pattern {
        let read = |path: &str| -> Value {
            let document = openapi::v3(path).map(|document| document.plain()).unwrap_or_default();
            serde_json::from_slice(&document).unwrap_or_default()
        };
        let mut document = read(DOCUMENT);
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
            version: Version::V3,
            collection: paths[PATH].take(),
            item: paths[format!("{PATH}/{{name}}")].take(),
            everywhere: paths[PATH.replace("namespaces/{namespace}/", "")].take(),
            schemas,
        }
    }

    /// The paths of a resource.
    pub(super) fn paths(&self, resource: &Resource, names: &Names) -> Vec<(String, Value)> {
        let base = format!("/apis/{}/{}", resource.group, resource.version);
        let renamed = Renamed {
            resource,
            names,
            base: self.version.base(),
        };
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
    names: &'a Names,
    base: &'static str,
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
                fields.retain(|name, _| is_for_all(name));
                for (name, value) in fields.iter_mut() {
                    match value {
                        Value::String(text) if name == "$ref" => {
                            let schema = text.strip_prefix(self.base).unwrap_or("");
                            let own = match schema.strip_prefix(SCHEMA) {
                                Some("") if subresource == "scale" => SCALE,
                                Some("") => &self.names.schema,
                                Some("List") => &self.names.list,
                                _ => continue,
                            };
                            *text = format!("{}{own}", self.base);
                        }
                        value => self.rename(value, subresource),
                    }
                }
            }
            Value::Array(items) => {
                items.retain(|item| item.as_str().is_none_or(is_for_all));
                for item in items.iter_mut() {
                    self.rename(item, subresource);
                }
            }
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

/// Whether custom resources have a media type, too.
fn is_for_all(media_type: &str) -> bool {
    !media_type.contains("protobuf") && !media_type.contains("strategic-merge-patch")
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patterns_have_what_is_taken_from_them() {
        assert_eq!(capital("v1beta1"), "V1beta1");
        for version in [Version::V2, Version::V3] {
            let pattern = Pattern::of(version);
            for (path, methods) in [
                (&pattern.collection, &["get", "post", "delete"][..]),
                (&pattern.item, &["get", "put", "patch", "delete"]),
                (&pattern.everywhere, &["get"]),
            ] {
                for method in methods {
                    assert!(path[method]["x-kubernetes-action"].is_string(), "{method}");
                }
            }
        }
        let schemas = &Pattern::of(Version::V3).schemas;
        for name in ["ObjectMeta", "ListMeta", "DeleteOptions", "Status", "Patch"] {
            assert!(schemas.contains_key(&format!("{META}.{name}")), "{name}");
        }
        assert!(schemas[SCALE].is_object());
    }
}
