//! Makes what the library embeds: the schemas of the built-in kinds, as one blob that is read in place
//! (`src/schema/blob/layout.rs`).
//!
//! Types, formats, required fields and descriptions come from the `k8s-openapi` crate; what it leaves out (list types,
//! merge keys, defaults, enums), the kinds and the paths come from the tables in `src/schema/data`.

#[path = "src/schema/blob/layout.rs"]
#[allow(dead_code)]
mod layout;
#[path = "src/schema/blob/roots.rs"]
mod roots;
#[path = "src/schema/blob/write.rs"]
mod write;

use layout::kind;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};
use write::{FieldSource, KindSource, PathSource, SchemaSource, Source, TypeSource};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/schema");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo names the package's directory"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names the directory for what is built"));
    let source = gather(&root.join("src/schema/data")).unwrap_or_else(|error| panic!("schema tables: {error}"));
    let blob = write::write(&source, deflate).unwrap_or_else(|error| panic!("schema blob: {error}"));
    fs::write(out.join("schemas.blob"), &blob).expect("OUT_DIR can be written");
    let stamp = stamp(&blob, &root.join("src/schema/openapi"));
    fs::write(out.join("openapi.stamp"), stamp.to_le_bytes()).expect("OUT_DIR can be written");
}

/// A number that changes whenever the OpenAPI documents may: with the schemas or with the code that renders them.
/// (FNV-1a; it tells versions apart, it does not protect.)
fn stamp(blob: &[u8], renderer: &Path) -> u64 {
    let mut files: Vec<PathBuf> = fs::read_dir(renderer)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut feed = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    feed(blob);
    for file in files {
        feed(&fs::read(file).unwrap_or_default());
    }
    hash
}

fn deflate(chunk: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(chunk).expect("a Vec takes all");
    encoder.finish().expect("a Vec takes all")
}

fn gather(data: &Path) -> Result<Source, String> {
    let read = |name: &str| fs::read_to_string(data.join(name)).map_err(|error| format!("{name}: {error}"));
    let mut generator = schemars::generate::SchemaSettings::default().into_generator();
    roots::generate(&mut generator);
    let mut schemas = BTreeMap::new();
    for (name, schema) in generator.take_definitions(false) {
        let source = schema_source(&schema).map_err(|error| format!("{name}: {error}"))?;
        schemas.insert(name, source);
    }
    let kinds = kinds(&read("kinds.tsv")?)?;
    for kind in &kinds {
        if !schemas.contains_key(&kind.schema) {
            let made = if kind.kind == "WatchEvent" {
                watch_event()
            } else {
                list(kind, &schemas)?
            };
            schemas.insert(kind.schema.clone(), made);
        }
    }
    marks(&read("marks.tsv")?, &mut schemas)?;
    numbers(&read("protobuf.tsv")?, &mut schemas)?;
    Ok(Source {
        schemas,
        kinds,
        paths: paths(&read("paths.tsv")?)?,
    })
}

fn lines(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

fn columns<const N: usize>(line: &str) -> Result<[&str; N], String> {
    let columns: Vec<&str> = line.split('\t').collect();
    columns.try_into().map_err(|_| format!("not {N} columns: {line}"))
}

fn group(column: &str) -> String {
    if column == "." {
        String::new()
    } else {
        column.to_owned()
    }
}

fn kinds(table: &str) -> Result<Vec<KindSource>, String> {
    lines(table)
        .map(|line| {
            let [g, version, kind, schema] = columns(line)?;
            Ok(KindSource {
                group: group(g),
                version: version.to_owned(),
                kind: kind.to_owned(),
                schema: schema.to_owned(),
            })
        })
        .collect()
}

fn paths(table: &str) -> Result<Vec<PathSource>, String> {
    lines(table)
        .map(|line| {
            let [path, actions, g, version, kind] = columns(line)?;
            Ok(PathSource {
                path: path.to_owned(),
                actions: actions.split(' ').map(str::to_owned).collect(),
                group: group(g),
                version: version.to_owned(),
                kind: kind.to_owned(),
            })
        })
        .collect()
}

fn marks(table: &str, schemas: &mut BTreeMap<String, SchemaSource>) -> Result<(), String> {
    let mut current = String::new();
    for line in lines(table) {
        if let Some(line) = line.strip_prefix('\t') {
            let [name, marks] = columns(line)?;
            let schema = schemas
                .get_mut(&current)
                .ok_or_else(|| format!("marks of an unknown schema {current}"))?;
            let field = schema
                .fields
                .get_mut(name)
                .ok_or_else(|| format!("{current} has no field {name}"))?;
            field.marks.extend(parse_marks(marks));
            if let Some(required) = field.marks.get("required") {
                field.required = required == "yes";
            }
        } else {
            let (name, marks) = line.split_once('\t').unwrap_or((line, ""));
            name.clone_into(&mut current);
            let schema = schemas
                .get_mut(&current)
                .ok_or_else(|| format!("marks of an unknown schema {current}"))?;
            schema.marks.extend(parse_marks(marks));
        }
    }
    Ok(())
}

fn numbers(table: &str, schemas: &mut BTreeMap<String, SchemaSource>) -> Result<(), String> {
    for line in lines(table) {
        let [name, numbers] = columns(line)?;
        let schema = schemas
            .get_mut(name)
            .ok_or_else(|| format!("numbers of an unknown schema {name}"))?;
        for (field, number) in numbers.split(' ').filter_map(|pair| pair.split_once('=')) {
            let field = schema
                .fields
                .get_mut(field)
                .ok_or_else(|| format!("{name} has no field {field}"))?;
            field.marks.insert("protobuf".to_owned(), number.to_owned());
        }
    }
    Ok(())
}

fn parse_marks(marks: &str) -> impl Iterator<Item = (String, String)> {
    marks
        .split(' ')
        .filter_map(|mark| mark.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.replace("%20", " ").replace("%25", "%")))
}

fn schema_source(schema: &Value) -> Result<SchemaSource, String> {
    let schema = schema.as_object().ok_or("not an object")?;
    let mut source = SchemaSource {
        description: description(schema),
        ..SchemaSource::default()
    };
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        source.ty = Some(type_source(schema)?);
        return Ok(source);
    };
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (name, property) in properties {
        let property = property.as_object().ok_or("a property that is not an object")?;
        let field = FieldSource {
            ty: type_source(property).map_err(|error| format!("{name}: {error}"))?,
            description: description(property),
            required: required.contains(&name.as_str()),
            marks: BTreeMap::new(),
        };
        source.fields.insert(name.clone(), field);
    }
    Ok(source)
}

fn description(schema: &Map<String, Value>) -> String {
    schema
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn type_source(schema: &Map<String, Value>) -> Result<TypeSource, String> {
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        return Ok(TypeSource::Schema(
            target.rsplit('/').next().unwrap_or(target).to_owned(),
        ));
    }
    let inner = |key: &str| -> Result<Option<Box<TypeSource>>, String> {
        let Some(inner) = schema.get(key).and_then(Value::as_object) else {
            return Ok(None);
        };
        Ok(Some(Box::new(type_source(inner)?)))
    };
    let format = schema
        .get("format")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let kind = match schema.get("type").and_then(Value::as_str) {
        Some("array") => return Ok(TypeSource::List(inner("items")?.ok_or("an array without items")?)),
        Some("object") => {
            if let Some(element) = inner("additionalProperties")? {
                return Ok(TypeSource::Map(element));
            }
            kind::OBJECT
        }
        Some("string") => kind::STRING,
        Some("integer") => kind::INTEGER,
        Some("number") => kind::NUMBER,
        Some("boolean") => kind::BOOLEAN,
        None => kind::ANY,
        Some(other) => return Err(format!("unknown type {other}")),
    };
    Ok(TypeSource::Scalar { kind, format })
}

fn reference(name: &str) -> TypeSource {
    TypeSource::Schema(name.to_owned())
}

fn field(ty: TypeSource, description: &str, required: bool) -> FieldSource {
    FieldSource {
        ty,
        description: description.to_owned(),
        required,
        marks: BTreeMap::new(),
    }
}

/// The list of a kind. The crate has one generic list type, so its lists are made here.
fn list(kind: &KindSource, schemas: &BTreeMap<String, SchemaSource>) -> Result<SchemaSource, String> {
    let item = kind.schema.strip_suffix("List").unwrap_or_default();
    let element = schemas
        .get(item)
        .ok_or_else(|| format!("{} is not the list of a known kind", kind.schema))?;
    let type_meta = |name: &str| {
        let known = element.fields.get(name).ok_or_else(|| format!("{item} has no {name}"));
        known.map(|known| (name.to_owned(), known.clone()))
    };
    let name = kind.kind.trim_end_matches("List");
    let metadata = "Metadata of the list: the resourceVersion of its snapshot and, when paged, where to continue.";
    Ok(SchemaSource {
        description: format!("{} is a list of {name} objects.", kind.kind),
        fields: BTreeMap::from([
            type_meta("apiVersion")?,
            type_meta("kind")?,
            (
                "items".to_owned(),
                field(
                    TypeSource::List(Box::new(reference(item))),
                    &format!("The {name} objects."),
                    true,
                ),
            ),
            (
                "metadata".to_owned(),
                field(
                    reference("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"),
                    metadata,
                    false,
                ),
            ),
        ]),
        ..SchemaSource::default()
    })
}

fn watch_event() -> SchemaSource {
    let object = "The object after the change (before it, for DELETED); a Status when the type is ERROR.";
    SchemaSource {
        description: "Event represents a single event to a watched resource.".to_owned(),
        fields: BTreeMap::from([
            (
                "object".to_owned(),
                field(reference("io.k8s.apimachinery.pkg.runtime.RawExtension"), object, true),
            ),
            (
                "type".to_owned(),
                field(
                    TypeSource::Scalar {
                        kind: kind::STRING,
                        format: String::new(),
                    },
                    "ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.",
                    true,
                ),
            ),
        ]),
        ..SchemaSource::default()
    }
}
