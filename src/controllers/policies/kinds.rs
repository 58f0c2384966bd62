//! The kinds that a policy is about, with their schemas.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::Client;
use crate::controllers::failure::Failure;
use crate::resources::{self, ResourceRef};
use crate::schema::{Schema, Shape, Type};
use crate::store::View;
use crate::tree::{Value, json};

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// Kinds that a rule is checked for; kube-controller-manager's number.
const KINDS_MAX: usize = 10;
/// How deep the schema of a kind is spelled out. Those of kinds that hold schemas have no end.
const DEPTH_MAX: usize = 48;
/// Parts of the schema of a kind that are spelled out. A Pod's has some 3,000; each takes about 200 bytes while a policy is looked at.
const PARTS_MAX: usize = 20_000;

/// A kind, and what its objects look like.
#[derive(Debug)]
pub(super) struct Described {
    /// `apps/v1, Kind=Deployment`
    pub(super) name: String,
    pub(super) kind: String,
    /// As a definition of custom resources has it.
    pub(super) schema: Value,
}

/// The kinds that the rules of a policy name; none for a rule that names all.
pub(super) fn of_policy(client: &Client, view: &Arc<View>, spec: &Value) -> Result<Vec<Described>, Failure> {
    let mut found: BTreeMap<(String, String, String), Described> = BTreeMap::new();
    for rule in spec["matchConstraints"]["resourceRules"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let names = |field: &str| -> Vec<String> {
            let names = rule[field].as_array().into_iter().flatten();
            let mut names: Vec<String> = names.filter_map(|name| Some(name.as_str()?.to_owned())).collect();
            names.sort();
            names
        };
        let (groups, versions) = (names("apiGroups"), names("apiVersions"));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        let mut count = 0;
        for group in &groups {
            for version in &versions {
                for plural in names("resources").iter().filter(|name| !name.contains(['*', '/'])) {
                    let Some(resource) = served(client, group, version, plural) else {
                        continue;
                    };
                    if count == KINDS_MAX {
                        return Ok(found.into_values().collect());
                    }
                    count += 1;
                    let key = (group.clone(), version.clone(), resource.kind.to_string());
                    if !found.contains_key(&key)
                        && let Some(described) = describe(client, view, &resource)?
                    {
                        found.insert(key, described);
                    }
                }
            }
        }
    }
    Ok(found.into_values().collect())
}

/// A kind by its name.
pub(super) fn of_kind(
    client: &Client,
    view: &Arc<View>,
    api_version: &str,
    kind: &str,
) -> Result<Option<Described>, Failure> {
    match crate::controllers::kinds::resource_of(client, api_version, kind) {
        Some(resource) => describe(client, view, &resource),
        None => Ok(None),
    }
}

fn served(client: &Client, group: &str, version: &str, plural: &str) -> Option<ResourceRef> {
    resources::find(group, version, plural)
        .map(ResourceRef::from)
        .or_else(|| {
            let served = client.custom().served();
            served.version(group, version)?.get(plural).cloned()
        })
}

fn describe(client: &Client, view: &Arc<View>, resource: &ResourceRef) -> Result<Option<Described>, Failure> {
    let schema = match Schema::of(&resource.group, &resource.version, &resource.kind) {
        Some(schema) => Some(of_schema(schema, DEPTH_MAX, &mut 0)),
        None => of_definition(client, view, resource)?,
    };
    let group_version = resource.api_version();
    // As Go writes the kind of a group; the legacy one has no name before the slash.
    let shown = if resource.group.is_empty() {
        format!("/{group_version}")
    } else {
        group_version
    };
    Ok(schema.map(|schema| Described {
        name: format!("{shown}, Kind={}", resource.kind),
        kind: resource.kind.to_string(),
        schema,
    }))
}

/// What the definition of a custom resource says of one version.
fn of_definition(client: &Client, view: &Arc<View>, resource: &ResourceRef) -> Result<Option<Value>, Failure> {
    let Some(definitions) = resources::stored(DEFINITIONS).map(ResourceRef::from) else {
        return Ok(None);
    };
    let name = format!("{}.{}", resource.plural, resource.group);
    let Some(object) = view.get(DEFINITIONS, &name)? else {
        return Ok(None);
    };
    let definition = client.read(&definitions, &object)?;
    let versions = definition["spec"]["versions"].as_array();
    let version = versions
        .into_iter()
        .flatten()
        .find(|version| version["name"] == *resource.version);
    Ok(version
        .map(|version| version["schema"]["openAPIV3Schema"].clone())
        .filter(Value::is_object))
}

/// A built-in schema spelled out. Parts that lie too deep are left open.
fn of_schema(schema: Schema<'_>, depth: usize, parts: &mut usize) -> Value {
    *parts += 1;
    match schema.shape() {
        Shape::Struct if depth > 0 && *parts < PARTS_MAX => {
            let mut spelled = json!({"type": "object"});
            let mut required = Vec::new();
            for field in schema.fields() {
                spelled["properties"][field.name()] = of_type(field.ty(), depth - 1, parts);
                if field.required() {
                    required.push(Value::from(field.name()));
                }
            }
            if spelled["properties"].is_null() {
                return of_type(schema.ty(), depth - 1, parts);
            }
            spelled["required"] = required.into();
            spelled
        }
        Shape::Quantity | Shape::IntOrString => json!({"x-kubernetes-int-or-string": true}),
        Shape::Time | Shape::MicroTime => json!({"type": "string", "format": "date-time"}),
        _ => open(),
    }
}

fn of_type(of: Type<'_>, depth: usize, parts: &mut usize) -> Value {
    *parts += 1;
    if depth == 0 || *parts >= PARTS_MAX {
        return open();
    }
    match of {
        Type::Any => open(),
        Type::Boolean => json!({"type": "boolean"}),
        Type::Integer(_) => json!({"type": "integer"}),
        Type::Number(_) => json!({"type": "number"}),
        Type::String(format @ ("byte" | "date-time")) => json!({"type": "string", "format": format}),
        Type::String(_) => json!({"type": "string"}),
        Type::Object => json!({"type": "object"}),
        Type::List(element) => {
            let mut list = json!({"type": "array"});
            list["items"] = of_type(element.ty(), depth - 1, parts);
            list
        }
        Type::Map(element) => {
            let mut map = json!({"type": "object"});
            map["additionalProperties"] = of_type(element.ty(), depth - 1, parts);
            map
        }
        Type::Schema(schema) => of_schema(schema, depth - 1, parts),
    }
}

/// Of which nothing is known.
fn open() -> Value {
    json!({"x-kubernetes-preserve-unknown-fields": true})
}
