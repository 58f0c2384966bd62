//! Objects of custom resources: nothing but their metadata is of a shape that is known here.

use super::{
    Expected, FieldValidation, Outcome, Rejected, Syntax, Walker, Wording, api_version, cannot_be_handled, parse_error,
    read_json, read_yaml, unrecognized,
};
use crate::schema::{Schema, Type};
use crate::tree::{Map, Value};

/// The schema of metadata.
const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Reads an object of a custom resource: its metadata by the schema that all kinds share, everything else as it comes. With it
/// come findings about fields, in order: what comes twice, then unknown fields of metadata; none with
/// [`FieldValidation::Ignore`]. What becomes of them is for the caller to decide, who knows more of them.
///
/// # Errors
/// [`Rejected`], in kube-apiserver's words: not JSON, no object, no kind, another version, metadata of a wrong type.
pub fn decode_custom(
    body: &[u8],
    syntax: Syntax,
    expected: &Expected<'_>,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), Rejected> {
    let attentive = validation != FieldValidation::Ignore;
    let read = match syntax {
        Syntax::Json => read_json(body, Type::Any, attentive),
        Syntax::Yaml => read_yaml(body, Type::Any, attentive),
        Syntax::Protobuf => Outcome::Malformed("custom resources have no protobuf form".to_owned()),
    };
    let (mut value, mut findings) = match read {
        Outcome::Value(value, findings) => (value, findings),
        Outcome::WrongType(text) | Outcome::Malformed(text) => {
            return Err(unrecognized(expected, body, &parse_error(syntax, &text)));
        }
    };
    if value.as_object().is_none() {
        return Err(unrecognized(expected, body, "not an object"));
    }
    let said = |value: &Value, name: &str| value[name].as_str().unwrap_or("").to_owned();
    let (kind, version) = (said(&value, "kind"), said(&value, "apiVersion"));
    if kind.is_empty() {
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body));
        return Err(unrecognized(expected, body, &why));
    }
    let wanted = api_version(expected);
    if version != wanted {
        return Err(Rejected {
            message: format!(
                "the API version in the data ({version}) does not match the expected API version ({wanted})"
            ),
        });
    }
    let unknown =
        coerce(&mut value, attentive).map_err(|text| cannot_be_handled(expected, expected.version, &kind, &text))?;
    findings.extend(unknown);
    Ok((value, findings))
}

/// Brings the metadata of an object into its shape; unknown fields of it are told and go.
///
/// # Errors
/// Go's text for a value of a wrong type.
pub(crate) fn coerce(object: &mut Value, attentive: bool) -> Result<Vec<String>, String> {
    let Some(fields) = object.as_object_mut() else {
        return Err("not an object".to_owned());
    };
    let (Some(metadata), Some(schema)) = (fields.get_mut("metadata"), Schema::named(METADATA)) else {
        return Ok(Vec::new());
    };
    let walker = Walker::new(Wording::Json, attentive);
    match walker.run(Type::Schema(schema), metadata.take()) {
        Outcome::Value(Value::Null, _) => {
            *metadata = Value::Object(Map::new());
            Ok(Vec::new())
        }
        Outcome::Value(value, findings) => {
            *metadata = value;
            let below = |finding: String| match finding.split_once(" field \"") {
                Some((what, path)) => format!("{what} field \"metadata.{path}"),
                None => finding,
            };
            Ok(findings.into_iter().map(below).collect())
        }
        Outcome::WrongType(text) | Outcome::Malformed(text) => Err(text),
    }
}

/// The message of a 400 for an object whose fields were found fault with, with [`FieldValidation::Strict`].
pub fn refuse_findings(expected: &Expected<'_>, findings: &[String]) -> Rejected {
    let text = format!("strict decoding error: {}", findings.join(", "));
    cannot_be_handled(expected, expected.version, expected.kind, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    const WIDGET: Expected<'static> = Expected {
        group: "example.com",
        version: "v1",
        kind: "Widget",
    };

    fn decoded(body: &str) -> Result<(Value, Vec<String>), String> {
        decode_custom(body.as_bytes(), Syntax::Json, &WIDGET, FieldValidation::Warn)
            .map_err(|rejected| rejected.message)
    }

    #[test]
    fn metadata_has_its_shape_and_everything_else_is_kept() {
        let (value, findings) = decoded(
            r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","odd":1,"labels":{"a":"b"}},
                "spec":{"a":1,"a":2,"odd":null},"more":[1.0]}"#,
        )
        .unwrap();
        assert_eq!(value["metadata"], json!({"name": "w", "labels": {"a": "b"}}));
        assert_eq!(value["spec"], json!({"a": 2, "odd": null}));
        assert_eq!(
            findings,
            ["duplicate field \"spec.a\"", "unknown field \"metadata.odd\""]
        );
    }

    #[test]
    fn what_is_no_object_of_the_kind_is_refused_in_upstreams_words() {
        let message = |body: &str| decoded(body).unwrap_err();
        assert_eq!(
            message(r#"{"apiVersion":"example.com/v2","kind":"Widget"}"#),
            "the API version in the data (example.com/v2) does not match the expected API version (example.com/v1)"
        );
        assert!(message(r#"{"apiVersion":"example.com/v1"}"#).contains("Object 'Kind' is missing in '{"));
        assert_eq!(
            message(r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":{"a":1}}}"#),
            "Widget in version \"v1\" cannot be handled as a Widget: json: cannot unmarshal number into Go struct field \
             ObjectMeta.labels of type string"
        );
        for body in ["", "[]", "{", "null", "7"] {
            assert!(decoded(body).is_err(), "{body}");
        }
    }
}
