//! Documents of version 2 and 3 as JSON, written piece by piece, so that no whole document stands in memory uncompressed.

use super::Extra;
use super::operations::{Answer, Operation, Path};
use super::schemas::{Version, reachable, schema};
use super::{parameters, protobuf};
use crate::schema::Schema;
use crate::schema::blob::BUILT_IN;
use crate::schema::describe::Descriptions;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Version 3: one group-version, or one other document.
pub(super) fn v3(paths: &[Path], out: &mut impl Write) -> io::Result<()> {
    let mut texts = Descriptions::new(BUILT_IN);
    let info = json!({"title": "Kubernetes", "version": crate::schema::openapi::LEVEL});
    write!(out, "{{\"components\":{{\"schemas\":")?;
    let schemas = reachable(paths.iter().flat_map(|path| &path.operations).flat_map(referred));
    object(
        out,
        schemas
            .iter()
            .map(|item| (item.name(), schema(*item, Version::V3, &mut texts))),
    )?;
    let security = json!({"BearerToken":
        {"type": "apiKey", "description": "A bearer token.", "name": "authorization", "in": "header"}});
    write!(
        out,
        ",\"securitySchemes\":{security}}},\"info\":{info},\"openapi\":\"3.0.0\",\"paths\":"
    )?;
    object(
        out,
        paths
            .iter()
            .map(|path| (path.template.as_str(), item(path, Version::V3))),
    )?;
    write!(out, "}}")
}

/// Version 2, everything.
pub(super) fn v2(paths: &[Path], extra: &Extra, out: &mut impl Write) -> io::Result<()> {
    let mut texts = Descriptions::new(BUILT_IN);
    write!(out, "{{\"definitions\":")?;
    let own = definitions().map(|item| (item.name(), schema(item, Version::V2, &mut texts)));
    object(out, own.chain(more(&extra.definitions)))?;
    write!(out, ",\"info\":{},\"paths\":", info())?;
    let own = paths.iter().map(|path| (path.template.as_str(), v2_item(path)));
    object(out, own.chain(more(&extra.paths)))?;
    write!(
        out,
        ",\"security\":[{{\"BearerToken\":[]}}],\"securityDefinitions\":{},\"swagger\":\"2.0\"}}",
        security()
    )
}

fn more(entries: &[(String, Value)]) -> impl Iterator<Item = (&str, Value)> {
    entries.iter().map(|(name, value)| (name.as_str(), value.clone()))
}

/// One path of version 2.
pub(super) fn v2_item(path: &Path) -> Value {
    item(path, Version::V2)
}

/// Version 2 in the protobuf form that client-go asks for.
pub(super) fn v2_protobuf(paths: &[Path], extra: &Extra) -> Vec<u8> {
    let mut texts = Descriptions::new(BUILT_IN);
    let mut document = protobuf::Document::new(&info(), &security());
    for path in paths {
        document.path(&path.template, &v2_item(path));
    }
    for (path, item) in &extra.paths {
        document.path(path, item);
    }
    for definition in definitions() {
        document.definition(definition.name(), &schema(definition, Version::V2, &mut texts));
    }
    for (name, schema) in &extra.definitions {
        document.definition(name, schema);
    }
    document.finish()
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": super::LEVEL})
}

fn security() -> Value {
    json!({"BearerToken": {"type": "apiKey", "description": "A bearer token.", "name": "authorization", "in": "header"}})
}

/// Every schema that some path leads to is built in, so all of them are definitions.
fn definitions() -> impl Iterator<Item = Schema<'static>> {
    Schema::all()
}

fn referred(operation: &Operation) -> Vec<Schema<'static>> {
    let answer = match operation.answer {
        Answer::Schema(schema) => Some(schema),
        Answer::Text => None,
    };
    answer
        .into_iter()
        .chain(operation.body.map(|(schema, ..)| schema))
        .collect()
}

fn object<'k>(out: &mut impl Write, entries: impl Iterator<Item = (&'k str, Value)>) -> io::Result<()> {
    write!(out, "{{")?;
    for (number, (key, value)) in entries.enumerate() {
        if number > 0 {
            write!(out, ",")?;
        }
        serde_json::to_writer(&mut *out, key)?;
        write!(out, ":")?;
        serde_json::to_writer(&mut *out, &value)?;
    }
    write!(out, "}}")
}

/// One path with its operations.
fn item(path: &Path, version: Version) -> Value {
    let v3 = version == Version::V3;
    let mut item = Map::new();
    for operation in &path.operations {
        item.insert(operation.method.to_owned(), self::operation(operation, version));
    }
    let mut parameters: Vec<Value> = path
        .names
        .iter()
        .map(|name| parameters::path(name, path.kind, v3))
        .collect();
    if path.pretty && path.operations.iter().all(|operation| !operation.action.is_empty()) {
        parameters.push(parameters::query("pretty", v3));
    }
    if !parameters.is_empty() {
        item.insert("parameters".to_owned(), parameters.into());
    }
    Value::Object(item)
}

fn operation(operation: &Operation, version: Version) -> Value {
    let v3 = version == Version::V3;
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| out.insert(key.to_owned(), value);
    put("tags", json!([operation.tag]));
    put("description", operation.description.clone().into());
    put("operationId", operation.id.clone().into());
    let mut parameters: Vec<Value> = operation.query.iter().map(|name| parameters::query(name, v3)).collect();
    if let Some((schema, required, media)) = operation.body {
        let schema = version.reference(schema);
        if v3 {
            let content: Map<String, Value> = media
                .iter()
                .map(|media| ((*media).to_owned(), json!({"schema": schema})))
                .collect();
            put(
                "requestBody",
                if required {
                    json!({"content": content, "required": true})
                } else {
                    json!({"content": content})
                },
            );
        } else {
            let mut body = json!({"name": "body", "in": "body", "schema": schema});
            if required {
                body["required"] = true.into();
            }
            parameters.insert(0, body);
            put("consumes", json!(media));
        }
    } else if !v3 {
        put(
            "consumes",
            if operation.action.is_empty() {
                json!(operation.produces)
            } else {
                json!(["*/*"])
            },
        );
    }
    if !parameters.is_empty() {
        put("parameters", parameters.into());
    }
    let answer = match operation.answer {
        Answer::Schema(schema) => version.reference(schema),
        Answer::Text => json!({"type": "string"}),
    };
    let mut responses = Map::new();
    for code in operation.codes {
        let said = match *code {
            "201" => "Created",
            "202" => "Accepted",
            _ => "OK",
        };
        let response = if v3 {
            let content: Map<String, Value> = operation
                .produces
                .iter()
                .map(|media| ((*media).to_owned(), json!({"schema": answer})))
                .collect();
            json!({"description": said, "content": content})
        } else {
            json!({"description": said, "schema": answer})
        };
        responses.insert((*code).to_owned(), response);
    }
    responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    put("responses", responses.into());
    if !v3 {
        put("produces", json!(operation.produces));
        put("schemes", json!(["https"]));
    }
    if !operation.action.is_empty() {
        put("x-kubernetes-action", operation.action.into());
    }
    if let Some((group, version, kind)) = operation.kind {
        put(
            "x-kubernetes-group-version-kind",
            json!({"group": group, "version": version, "kind": kind}),
        );
    }
    Value::Object(out)
}
