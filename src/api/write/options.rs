//! Options of writes: from the query and, for deletions, from the body.

use crate::tree::Value;

use super::object;
use crate::api::request::{Query, RequestInfo};
use crate::api::status::{Cause, Status};
use crate::resources::{DeleteRequest, Propagation};
use crate::schema::{FieldValidation, Syntax, protobuf_to_json};

/// Options of POST, PUT and PATCH.
#[derive(Debug, Clone)]
pub(super) struct WriteOptions {
    /// Answer as if it were done, keep nothing.
    pub dry_run: bool,
    /// What is done about unknown and duplicate fields.
    pub validation: FieldValidation,
}

/// Longest name of a field manager, bytes.
const MANAGER_MAX: usize = 128;

impl WriteOptions {
    /// Reads the query. `kind` is the options' kind for messages: `CreateOptions`, `UpdateOptions`, `PatchOptions`.
    ///
    /// # Errors
    /// 422 with a cause for each option that has no valid value.
    pub(super) fn read(query: &Query, kind: &'static str, apply: bool) -> Result<Self, Status> {
        let mut causes = Vec::new();
        let dry_run = dry_run(&query.all("dryRun").map(Into::into).collect::<Vec<_>>(), &mut causes);
        let manager = query.get("fieldManager").unwrap_or_default();
        if manager.len() > MANAGER_MAX {
            causes.push(cause(
                "FieldValueTooLong",
                "fieldManager",
                format!("Too long: may not be more than {MANAGER_MAX} bytes"),
            ));
        } else if manager.chars().any(char::is_control) {
            let text = format!(
                "Invalid value: {}: should only contain printable characters",
                object::quoted(&manager)
            );
            causes.push(cause("FieldValueInvalid", "fieldManager", text));
        } else if apply && manager.is_empty() {
            causes.push(cause(
                "FieldValueRequired",
                "fieldManager",
                "Required value: is required for apply patch".into(),
            ));
        }
        if kind == "PatchOptions" && !apply && query.get("force").is_some() {
            causes.push(cause(
                "FieldValueForbidden",
                "force",
                "Forbidden: may not be specified for non-apply patch".into(),
            ));
        }
        let asked = query.get("fieldValidation").unwrap_or_default();
        let validation = FieldValidation::parse(&asked);
        if validation.is_none() {
            let text = format!(
                "Unsupported value: {}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
                object::quoted(&asked)
            );
            causes.push(cause("FieldValueNotSupported", "fieldValidation", text));
        }
        if causes.is_empty() {
            Ok(Self {
                dry_run,
                validation: validation.unwrap_or_default(),
            })
        } else {
            Err(Status::invalid("meta.k8s.io", kind, "", causes))
        }
    }
}

fn cause(reason: &'static str, field: &str, message: String) -> Cause {
    Cause {
        reason: reason.into(),
        field: field.into(),
        message,
    }
}

fn dry_run(values: &[String], causes: &mut Vec<Cause>) -> bool {
    if values.iter().any(|value| value != "All") {
        let listed: Vec<String> = values.iter().map(|value| object::quoted(value)).collect();
        let text = format!("Unsupported value: [{}]: supported values: \"All\"", listed.join(","));
        causes.push(cause("FieldValueNotSupported", "dryRun", text));
    }
    !values.is_empty()
}

/// Options of DELETE.
#[derive(Debug, Clone, Default)]
pub(super) struct DeleteOptions {
    pub dry_run: bool,
    pub grace_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    /// The older form of `propagation`.
    pub orphan: Option<bool>,
    pub uid: Option<String>,
    pub revision: Option<String>,
}

impl DeleteOptions {
    /// What of the options decides about the object.
    pub(super) fn request(&self) -> DeleteRequest {
        let propagation = match self.orphan {
            Some(true) => Some(Propagation::Orphan),
            Some(false) => Some(Propagation::Background),
            None => self.propagation,
        };
        DeleteRequest {
            grace_s: self.grace_seconds,
            propagation,
        }
    }

    /// Reads options from the body if there is one, else from the query.
    ///
    /// # Errors
    /// 400 when they cannot be read, 422 when they have no valid values.
    pub(super) fn read(info: &RequestInfo, body: &[u8], syntax: Syntax) -> Result<Self, Status> {
        let mut causes = Vec::new();
        let (options, policy) = if body.is_empty() {
            Self::of_query(&info.query, &mut causes)?
        } else {
            Self::of_body(body, syntax, &mut causes)?
        };
        let mut options = options;
        match policy.as_deref() {
            None => {}
            Some("Orphan") => options.propagation = Some(Propagation::Orphan),
            Some("Background") => options.propagation = Some(Propagation::Background),
            Some("Foreground") => options.propagation = Some(Propagation::Foreground),
            Some(other) => {
                let text = format!(
                    "Unsupported value: {}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
                    object::quoted(other)
                );
                causes.push(cause("FieldValueNotSupported", "propagationPolicy", text));
            }
        }
        if let (Some(_), Some(policy)) = (options.orphan, policy) {
            let text = format!(
                "Invalid value: {}: orphanDependents and deletionPropagation cannot be both set",
                object::quoted(&policy)
            );
            causes.push(cause("FieldValueInvalid", "propagationPolicy", text));
        }
        if causes.is_empty() {
            Ok(options)
        } else {
            Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", causes))
        }
    }

    fn of_query(query: &Query, causes: &mut Vec<Cause>) -> Result<(Self, Option<String>), Status> {
        let grace_seconds = match query.get("gracePeriodSeconds").filter(|text| !text.is_empty()) {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| {
                Status::bad_request(format!(
                    "strconv.ParseInt: parsing {}: invalid syntax",
                    object::quoted(&text)
                ))
            })?),
        };
        let orphan = query.get("orphanDependents").map(|_| query.flag("orphanDependents"));
        let dry_run = dry_run(&query.all("dryRun").map(Into::into).collect::<Vec<_>>(), causes);
        let policy = query.get("propagationPolicy").map(String::from);
        Ok((
            Self {
                dry_run,
                grace_seconds,
                orphan,
                ..Self::default()
            },
            policy,
        ))
    }

    fn of_body(body: &[u8], syntax: Syntax, causes: &mut Vec<Cause>) -> Result<(Self, Option<String>), Status> {
        let malformed =
            |text: String| Status::bad_request(format!("couldn't get version/kind; json parse error: {text}"));
        let value: Value = match syntax {
            Syntax::Json => serde_json::from_slice(body).map_err(|error| malformed(go_syntax_error(body, &error)))?,
            Syntax::Yaml => std::str::from_utf8(body)
                .map_err(|error| malformed(error.to_string()))
                .and_then(|text| serde_saphyr::from_str(text).map_err(|error| malformed(error.to_string())))?,
            Syntax::Protobuf => protobuf_to_json(body).map_err(|error| Status::bad_request(error.to_string()))?,
        };
        let kind = value["kind"].as_str().unwrap_or("");
        let version = value["apiVersion"].as_str().unwrap_or("");
        if !kind.is_empty() && kind != "DeleteOptions" {
            return Err(Status::bad_request(format!(
                "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"k8s.io/apimachinery/pkg/runtime/scheme.go\"",
            )));
        }
        let integer = |value: &Value| value.as_i64();
        let conditions = &value["preconditions"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let asked = value["dryRun"].as_array().map_or_else(Vec::new, |values| {
            values
                .iter()
                .map(|value| value.as_str().unwrap_or("").to_owned())
                .collect()
        });
        let options = Self {
            dry_run: dry_run(&asked, causes),
            grace_seconds: integer(&value["gracePeriodSeconds"]),
            propagation: None,
            orphan: value["orphanDependents"].as_bool(),
            uid: text(&conditions["uid"]),
            revision: text(&conditions["resourceVersion"]),
        };
        Ok((options, text(&value["propagationPolicy"])))
    }
}

/// Go's text for JSON that is none, as far as serde tells what is wrong.
fn go_syntax_error(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".into();
    }
    let line_start: usize = body
        .split_inclusive(|byte| *byte == b'\n')
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    let place = line_start + error.column().saturating_sub(1);
    let found = body.get(place).map_or('?', |byte| char::from(*byte));
    let wanted = if error.to_string().starts_with("key must be a string") {
        "looking for beginning of object key string"
    } else {
        "looking for beginning of value"
    };
    format!("invalid character '{found}' {wanted}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bad_option_is_a_cause() {
        let query = Query::new("dryRun=Yes&fieldValidation=Sometimes");
        let status = WriteOptions::read(&query, "CreateOptions", false).unwrap_err();
        assert_eq!(status.code, 422);
        let fields: Vec<_> = status
            .details
            .unwrap()
            .causes
            .into_iter()
            .map(|cause| cause.field)
            .collect();
        assert_eq!(fields, ["dryRun", "fieldValidation"]);
    }

    #[test]
    fn syntax_errors_are_told_in_gos_words() {
        let told = |body: &str| {
            let error = serde_json::from_str::<Value>(body).unwrap_err();
            go_syntax_error(body.as_bytes(), &error)
        };
        assert_eq!(
            told("{nope"),
            "invalid character 'n' looking for beginning of object key string"
        );
        assert_eq!(told("{"), "unexpected end of JSON input");
        assert_eq!(told("x"), "invalid character 'x' looking for beginning of value");
    }
}
