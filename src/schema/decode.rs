//! From the bytes of a request to an object of a known kind, with kube-apiserver's findings and refusals.

pub(crate) mod custom;

use super::json_syntax;
use super::protobuf::{protobuf_head, protobuf_to_json};
use super::shape::{Schema, Type};
use super::walk::{Outcome, Walker, Wording};
use super::yaml::{yaml_fault, yaml_options};
use crate::tree::{Map, Value};
use std::borrow::Cow;
use std::fmt::Write as _;

/// The query parameter `fieldValidation`: what is done about unknown and duplicate fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FieldValidation {
    /// Dropped silently.
    Ignore,
    /// Dropped, each with a Warning header. The default of the API.
    #[default]
    Warn,
    /// Refused.
    Strict,
}

impl FieldValidation {
    /// Of the query parameter's value; "" is the default. None: not a value that the API knows.
    pub fn parse(value: &str) -> Option<FieldValidation> {
        match value {
            "Ignore" => Some(FieldValidation::Ignore),
            "" | "Warn" => Some(FieldValidation::Warn),
            "Strict" => Some(FieldValidation::Strict),
            _ => None,
        }
    }
}

/// How a body is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syntax {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

/// The kind that a path takes. `group` is "" for the legacy group.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// API group.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Kind.
    pub kind: &'a str,
}

/// An object of the expected kind: `apiVersion` and `kind` set, unknown fields gone, nulls resolved.
#[derive(Clone, PartialEq, Debug)]
pub struct Decoded {
    /// The object.
    pub value: Value,
    /// Texts for Warning headers (`299 - "…"`), in order; empty unless the validation is `Warn`.
    pub warnings: Vec<String>,
}

/// Why a body is refused: the message of a 400 `BadRequest` Status.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Rejected {
    /// The Status' message, whole.
    pub message: String,
}

/// Decodes `body` as an object of the kind that `expected` names. An empty `kind` or `apiVersion` is filled in.
///
/// One pass over the body; a second one only to word a refusal.
///
/// # Errors
/// [`Rejected`], with the message that kube-apiserver gives: not JSON, another kind, a value of the wrong type, and with
/// [`FieldValidation::Strict`] unknown and duplicate fields.
pub fn decode(
    body: &[u8],
    syntax: Syntax,
    expected: &Expected<'_>,
    validation: FieldValidation,
) -> Result<Decoded, Rejected> {
    let Some(schema) = Schema::of(expected.group, expected.version, expected.kind) else {
        return Err(Rejected {
            message: format!("no schema of {} is known", expected.kind),
        });
    };
    decode_as(body, syntax, expected, schema, validation)
}

/// [`decode`] by a schema that is at hand.
pub fn decode_as(
    body: &[u8],
    syntax: Syntax,
    expected: &Expected<'_>,
    schema: Schema<'_>,
    validation: FieldValidation,
) -> Result<Decoded, Rejected> {
    if syntax == Syntax::Protobuf
        && let Ok((version, kind)) = protobuf_head(body)
        && !is_headed(expected, &version, &kind)
    {
        // Another kind has other fields: it cannot be read by this schema.
        return Err(foreign(body, syntax, expected, &version, &kind).reject(body, expected));
    }
    let attentive = validation != FieldValidation::Ignore;
    let (mut value, findings) = match read(body, syntax, schema, attentive) {
        Outcome::Value(Value::Null, findings) => (Value::Object(Map::new()), findings),
        Outcome::Value(value, findings) => (value, findings),
        Outcome::WrongType(text) => return Err(refuse(body, syntax, expected, &text)),
        Outcome::Malformed(text) => return Err(unrecognized(expected, body, &parse_error(syntax, &text))),
    };
    let api_version = api_version(expected);
    let object = value
        .as_object_mut()
        .ok_or_else(|| unrecognized(expected, body, "not an object"))?;
    let kind = fill(object, "kind", expected.kind);
    let version = fill(object, "apiVersion", &api_version);
    if kind != expected.kind || version != api_version {
        return Err(foreign(body, syntax, expected, &version, &kind).reject(body, expected));
    }
    if validation == FieldValidation::Strict && !findings.is_empty() {
        let text = format!("strict decoding error: {}", findings.join(", "));
        return Err(cannot_be_handled(expected, expected.version, expected.kind, &text));
    }
    Ok(Decoded {
        value,
        warnings: if validation == FieldValidation::Warn {
            findings
        } else {
            Vec::new()
        },
    })
}

/// What [`check`] says of an object that is not one of its kind.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misfit(pub String);

/// Checks an object that is already a value, the result of a patch, by its schema; drops unknown fields, resolves nulls.
///
/// `from_maps`: wrong types are worded as the converter from untyped maps words them (strategic merge), otherwise as Go's
/// JSON decoder does.
///
/// # Errors
/// The text for the detail of a Status: a wrong type, or with [`FieldValidation::Strict`] unknown fields.
pub fn check(
    value: Value,
    schema: Schema<'_>,
    validation: FieldValidation,
    from_maps: bool,
) -> Result<Decoded, Misfit> {
    let wording = if from_maps { Wording::Converter } else { Wording::Json };
    let walker = Walker::new(wording, validation != FieldValidation::Ignore);
    let head = |value: &Value, name| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, version) = (head(&value, "kind"), head(&value, "apiVersion"));
    let expected = schema
        .kinds()
        .next()
        .map(|(group, version, kind)| Expected { group, version, kind });
    if let Some(expected) = expected.filter(|expected| !from_maps && !is_headed(expected, &version, &kind)) {
        // Decoded by its own head, as if it had been sent so.
        let body = value.to_string();
        return Err(Misfit(
            foreign(body.as_bytes(), Syntax::Json, &expected, &version, &kind).why(),
        ));
    }
    let (mut value, findings) = match walker.run(Type::Schema(schema), value) {
        Outcome::Value(Value::Null, findings) => (Value::Object(Map::new()), findings),
        Outcome::Value(value, findings) => (value, findings),
        Outcome::WrongType(text) | Outcome::Malformed(text) => return Err(Misfit(text)),
    };
    // Whatever the head said, the object is of this kind now.
    if let (Some(expected), Some(object)) = (expected, value.as_object_mut()) {
        for (name, text) in [
            ("kind", expected.kind.to_owned()),
            ("apiVersion", api_version(&expected)),
        ] {
            if object.contains_key(name) {
                object.insert(name.to_owned(), Value::from(text));
            }
        }
    }
    if validation == FieldValidation::Strict && !findings.is_empty() {
        return Err(Misfit(format!("strict decoding error: {}", findings.join(", "))));
    }
    Ok(Decoded {
        value,
        warnings: if validation == FieldValidation::Warn {
            findings
        } else {
            Vec::new()
        },
    })
}

/// Metadata as it is read from an object, without what is empty, and the paths of unknown fields below it.
///
/// # Errors
/// Go's text for what cannot be metadata.
pub(crate) fn metadata_of(metadata: &Value) -> Result<(Value, Vec<String>), String> {
    const NAME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    let ty = Schema::named(NAME).map_or(Type::Any, Type::Schema);
    match Walker::new(Wording::Json, true).run(ty, metadata.clone()) {
        Outcome::Value(mut value, findings) => {
            if let Some(fields) = value.as_object_mut() {
                fields.retain(|_, value| match value {
                    Value::Null => false,
                    Value::String(text) => !text.is_empty(),
                    Value::Array(list) => !list.is_empty(),
                    Value::Object(map) => !map.is_empty(),
                    _ => true,
                });
            }
            let path = |finding: String| {
                let path = finding.split_once('"').and_then(|(_, path)| path.strip_suffix('"'));
                path.unwrap_or_default().to_owned()
            };
            let value = if value.is_null() {
                Value::Object(Map::new())
            } else {
                value
            };
            Ok((value, findings.into_iter().map(path).collect()))
        }
        Outcome::WrongType(text) | Outcome::Malformed(text) => Err(text),
    }
}

/// Decodes JSON of no known kind (the body of a patch), with findings about keys that come twice.
///
/// # Errors
/// Go's text for what is not JSON.
pub(crate) fn decode_value(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    match read_json(body, Type::Any, true) {
        Outcome::Value(value, findings) => Ok((value, findings)),
        Outcome::WrongType(text) | Outcome::Malformed(text) => Err(text),
    }
}

/// [`decode_value`], of an object: `map[string]interface {}`. Null is an empty one.
///
/// # Errors
/// Go's text for what is not JSON, or not an object.
pub(crate) fn decode_object(body: &[u8]) -> Result<(Map, Vec<String>), String> {
    match decode_value(body)? {
        (Value::Object(object), findings) => Ok((object, findings)),
        (Value::Null, findings) => Ok((Map::new(), findings)),
        (other, _) => Err(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go_word(&other)
        )),
    }
}

/// Go's word for the kind of a JSON value.
pub(crate) fn go_word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) | Value::Raw(_) => "object",
    }
}

fn read(body: &[u8], syntax: Syntax, schema: Schema<'_>, attentive: bool) -> Outcome {
    match syntax {
        Syntax::Json => read_json(body, Type::Schema(schema), attentive),
        Syntax::Yaml => read_yaml(body, Type::Schema(schema), attentive),
        Syntax::Protobuf => read_protobuf(body, schema),
    }
}

/// Reads protobuf. Its values pass by the schema too, which checks numbers, texts and times as those of JSON.
fn read_protobuf(body: &[u8], schema: Schema<'_>) -> Outcome {
    match protobuf_to_json(body) {
        Ok(value) => Walker::new(Wording::Json, false).run(Type::Schema(schema), value),
        Err(error) => Outcome::Malformed(error.to_string()),
    }
}

/// Reads JSON. Text that is not UTF-8 is read as Go reads it, with replacement characters.
fn read_json(body: &[u8], ty: Type<'_>, attentive: bool) -> Outcome {
    let first = read_json_once(body, ty, attentive);
    let Outcome::Malformed(text) = first else { return first };
    if let Some(fault) = json_syntax::fault(body) {
        return Outcome::Malformed(fault);
    }
    match String::from_utf8_lossy(body) {
        Cow::Owned(repaired) => read_json_once(repaired.as_bytes(), ty, attentive),
        Cow::Borrowed(_) => Outcome::Malformed(text),
    }
}

fn read_json_once(body: &[u8], ty: Type<'_>, attentive: bool) -> Outcome {
    let mut source = serde_json::Deserializer::from_slice(body);
    let mut walker = Walker::new(Wording::Json, attentive);
    let result = walker
        .start(ty, &mut source)
        .and_then(|value| source.end().map(|()| value));
    walker.finish(result.map_err(|error| error.to_string()))
}

/// Reads one YAML document. Keys that come twice reach the pass as such.
fn read_yaml(body: &[u8], ty: Type<'_>, attentive: bool) -> Outcome {
    let mut walker = Walker::new(Wording::Json, attentive);
    let Ok(text) = std::str::from_utf8(body) else {
        return Outcome::Malformed("yaml: invalid UTF-8".to_owned());
    };
    let options = yaml_options(text.len(), serde_saphyr::DuplicateKeyPolicy::PassThrough);
    let result =
        serde_saphyr::with_deserializer_from_str_with_options(text, options, |source| walker.start(ty, source));
    walker.finish(result.map_err(|error| yaml_fault(&error)))
}

fn parse_error(syntax: Syntax, text: &str) -> String {
    match syntax {
        Syntax::Json => format!("couldn't get version/kind; json parse error: {text}"),
        Syntax::Yaml => format!("error converting YAML to JSON: {text}"),
        Syntax::Protobuf => text.to_owned(),
    }
}

/// The value of a field of the type's head; filled in when it is missing or empty.
fn fill(object: &mut Map, name: &str, default: &str) -> String {
    match object.get(name).and_then(Value::as_str) {
        None | Some("") => {
            object.insert(name.to_owned(), Value::from(default.to_owned()));
            default.to_owned()
        }
        Some(value) => value.to_owned(),
    }
}

fn api_version(expected: &Expected<'_>) -> String {
    match expected.group {
        "" => expected.version.to_owned(),
        group => format!("{group}/{}", expected.version),
    }
}

fn cannot_be_handled(expected: &Expected<'_>, version: &str, kind: &str, why: &str) -> Rejected {
    Rejected {
        message: format!(
            "{kind} in version \"{version}\" cannot be handled as a {}: {why}",
            expected.kind
        ),
    }
}

fn unrecognized(expected: &Expected<'_>, body: &[u8], why: &str) -> Rejected {
    const SHOWN: usize = 30;
    let cut = &body[..body.len().min(SHOWN)];
    let dots = if body.len() > SHOWN { " ..." } else { "" };
    let summary = match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{dots}", String::from_utf8_lossy(cut)),
        Some(_) => {
            cut.iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            }) + dots
        }
    };
    Rejected {
        message: format!(
            "the object provided is unrecognized (must be of type {}): {why} ({summary})",
            expected.kind
        ),
    }
}

/// A wrong type was found; says so, unless what is wrong is the head of the object.
fn refuse(body: &[u8], syntax: Syntax, expected: &Expected<'_>, text: &str) -> Rejected {
    const HEAD: &str =
        r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let Outcome::Value(value, _) = (match syntax {
        Syntax::Json => read_json(body, Type::Any, false),
        Syntax::Yaml => read_yaml(body, Type::Any, false),
        Syntax::Protobuf => Outcome::Malformed(String::new()),
    }) else {
        return cannot_be_handled(expected, expected.version, expected.kind, text);
    };
    let Some(object) = value.as_object() else {
        let why = format!(
            "json: cannot unmarshal {} into Go value of type {HEAD}",
            go_word(&value)
        );
        return unrecognized(expected, body, &parse_error(Syntax::Json, &why));
    };
    for name in ["apiVersion", "kind"] {
        if let Some(other) = object.get(name).filter(|value| !value.is_string() && !value.is_null()) {
            let why = format!(
                "json: cannot unmarshal {} into Go struct field .{name} of type string",
                go_word(other)
            );
            return unrecognized(expected, body, &parse_error(Syntax::Json, &why));
        }
    }
    let said = |name: &str| object.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let api_version = api_version(expected);
    let (version, kind) = (
        said("apiVersion").unwrap_or(&api_version),
        said("kind").unwrap_or(expected.kind),
    );
    if version == api_version && kind == expected.kind {
        return cannot_be_handled(expected, expected.version, expected.kind, text);
    }
    foreign(body, syntax, expected, version, kind).reject(body, expected)
}

/// Whether the head of an object is the one expected; what is empty is filled in.
fn is_headed(expected: &Expected<'_>, version: &str, kind: &str) -> bool {
    (kind.is_empty() || kind == expected.kind) && (version.is_empty() || version == api_version(expected))
}

/// Why an object of another kind or version than the path takes is refused.
enum Foreign {
    /// Its `apiVersion` is not one.
    Unrecognized(String),
    /// It cannot become what the path takes: version, kind, and why.
    CannotBeHandled(String, String, String),
    /// It could, but in this version the path does not take it: the whole message.
    OtherVersion(String),
}

impl Foreign {
    fn why(self) -> String {
        match self {
            Foreign::Unrecognized(why) | Foreign::CannotBeHandled(_, _, why) | Foreign::OtherVersion(why) => why,
        }
    }

    fn reject(self, body: &[u8], expected: &Expected<'_>) -> Rejected {
        match self {
            Foreign::Unrecognized(why) => unrecognized(expected, body, &why),
            Foreign::CannotBeHandled(version, kind, why) => cannot_be_handled(expected, &version, &kind, &why),
            Foreign::OtherVersion(message) => Rejected { message },
        }
    }
}

/// The body is of another kind or version than the path takes: why that is refused.
fn foreign(body: &[u8], syntax: Syntax, expected: &Expected<'_>, api_version: &str, kind: &str) -> Foreign {
    let api_version = if api_version.is_empty() {
        self::api_version(expected)
    } else {
        api_version.to_owned()
    };
    let kind = if kind.is_empty() { expected.kind } else { kind };
    let (group, version) = match api_version.split_once('/') {
        None => ("", api_version.as_str()),
        Some((_, version)) if version.contains('/') => {
            return Foreign::Unrecognized(format!("unexpected GroupVersion string: {api_version}"));
        }
        Some(parts) => parts,
    };
    let cannot = |why| Foreign::CannotBeHandled(version.to_owned(), kind.to_owned(), why);
    let schema = Schema::of(group, version, kind);
    if let Some(schema) = schema
        && let Outcome::WrongType(text) = read(body, syntax, schema, false)
    {
        return cannot(text);
    }
    if schema.is_none() && !registered(group, version, kind) {
        return cannot(format!(
            "no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"flatkube/schema\""
        ));
    }
    if kind == expected.kind && family(group, kind) == family(expected.group, kind) {
        return Foreign::OtherVersion(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            self::api_version(expected)
        ));
    }
    let (family, wanted) = (family(expected.group, expected.kind), expected.kind);
    cannot(format!(
        "converting ({version}.{kind}) to ({family}.{wanted}): unknown conversion"
    ))
}

/// The package of the internal types of a kind: versions of one family convert into each other.
fn family<'g>(group: &'g str, kind: &str) -> &'g str {
    match (group, kind) {
        ("", _) | ("events.k8s.io", "Event") => "core",
        ("extensions", "Deployment" | "DaemonSet" | "ReplicaSet") => "apps",
        ("extensions", "Ingress" | "NetworkPolicy") => "networking",
        ("rbac.authorization.k8s.io", _) => "rbac",
        (group, _) => group.split('.').next().unwrap_or(group),
    }
}

/// Kinds that kube-apiserver still knows how to decode in versions that it serves no longer.
fn registered(group: &str, version: &str, kind: &str) -> bool {
    const OLD: [(&str, &str, &[&str]); 12] = [
        (
            "extensions",
            "v1beta1",
            &["Deployment", "DaemonSet", "ReplicaSet", "Ingress", "NetworkPolicy"],
        ),
        ("apps", "v1beta1", &["Deployment", "StatefulSet", "ControllerRevision"]),
        (
            "apps",
            "v1beta2",
            &[
                "Deployment",
                "DaemonSet",
                "ReplicaSet",
                "StatefulSet",
                "ControllerRevision",
            ],
        ),
        ("batch", "v1beta1", &["CronJob"]),
        ("policy", "v1beta1", &["PodDisruptionBudget", "Eviction"]),
        (
            "networking.k8s.io",
            "v1beta1",
            &["Ingress", "IngressClass", "IPAddress", "ServiceCIDR"],
        ),
        (
            "rbac.authorization.k8s.io",
            "v1beta1",
            &["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"],
        ),
        (
            "storage.k8s.io",
            "v1beta1",
            &["StorageClass", "CSIDriver", "CSINode", "VolumeAttachment"],
        ),
        ("discovery.k8s.io", "v1beta1", &["EndpointSlice"]),
        ("events.k8s.io", "v1beta1", &["Event"]),
        ("coordination.k8s.io", "v1beta1", &["Lease"]),
        ("scheduling.k8s.io", "v1beta1", &["PriorityClass"]),
    ];
    OLD.iter()
        .any(|(g, v, kinds)| *g == group && *v == version && kinds.contains(&kind))
}

#[cfg(test)]
mod tests;
