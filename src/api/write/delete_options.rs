//! Options of DELETE: from the body if there is one, else from the query.

use std::num::IntErrorKind;

use super::object;
use super::options::{cause, dry_run};
use crate::api::request::{Query, RequestInfo};
use crate::api::status::{Cause, Status};
use crate::resources::{DeleteRequest, Propagation};
use crate::schema::{self, FieldValidation, Schema, Syntax};
use crate::tree::{Value, json};

/// Options that hold.
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

/// Options as they were sent.
#[derive(Debug, Default)]
struct Sent {
    dry_run: Vec<String>,
    grace_seconds: Option<i64>,
    policy: Option<String>,
    orphan: Option<bool>,
    ignores_read_errors: bool,
    /// UID and revision.
    preconditions: Option<(Option<String>, Option<String>)>,
}

impl DeleteOptions {
    /// Reads them of a request.
    ///
    /// # Errors
    /// 400 when they cannot be read, 422 when they have no valid values.
    pub(super) fn read(info: &RequestInfo, body: &[u8], syntax: Syntax) -> Result<Self, Status> {
        let sent = if body.is_empty() {
            Sent::of_query(&info.query)?
        } else {
            Sent::of_value(&of_body(body, syntax)?)
        };
        sent.checked()
    }

    /// The options that an object carries (`deleteOptions` of an Eviction), which is of its kind.
    ///
    /// # Errors
    /// 422 when they have no valid values.
    pub(super) fn of_value(value: &Value) -> Result<Self, Status> {
        Sent::of_value(value).checked()
    }

    /// The options as an object, as admission is told of them.
    pub(super) fn to_value(&self) -> Value {
        let mut value = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        if let Some(grace_s) = self.grace_seconds {
            value["gracePeriodSeconds"] = grace_s.into();
        }
        if let Some(orphan) = self.orphan {
            value["orphanDependents"] = orphan.into();
        }
        if let Some(propagation) = self.propagation {
            value["propagationPolicy"] = match propagation {
                Propagation::Orphan => "Orphan",
                Propagation::Background => "Background",
                Propagation::Foreground => "Foreground",
            }
            .into();
        }
        for (field, text) in [("uid", &self.uid), ("resourceVersion", &self.revision)] {
            if let Some(text) = text {
                value["preconditions"][field] = text.as_str().into();
            }
        }
        if self.dry_run {
            value["dryRun"] = json!(["All"]);
        }
        value
    }

    /// What decides about the object.
    pub(super) fn request(&self) -> DeleteRequest {
        DeleteRequest {
            grace_s: self.grace_seconds,
            propagation: self.propagation,
            orphan: self.orphan,
        }
    }
}

impl Sent {
    fn of_query(query: &Query) -> Result<Self, Status> {
        let grace_seconds = match query.get("gracePeriodSeconds") {
            None => None,
            Some(text) => Some(parse_int(&text).map_err(Status::bad_request)?),
        };
        let uid = query.get("uid").filter(|uid| !uid.is_empty()).map(String::from);
        Ok(Self {
            dry_run: query.all("dryRun").map(String::from).collect(),
            grace_seconds,
            policy: query.get("propagationPolicy").map(String::from),
            orphan: query.get("orphanDependents").map(|_| query.flag("orphanDependents")),
            ignores_read_errors: query.flag(IGNORES_READ_ERRORS),
            preconditions: uid.map(|uid| (Some(uid), None)),
        })
    }

    fn of_value(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let conditions = &value["preconditions"];
        let dry_run = value["dryRun"].as_array().into_iter().flatten();
        Self {
            dry_run: dry_run.map(|value| value.as_str().unwrap_or("").to_owned()).collect(),
            grace_seconds: value["gracePeriodSeconds"].as_i64(),
            policy: text(&value["propagationPolicy"]),
            orphan: value["orphanDependents"].as_bool(),
            ignores_read_errors: value[IGNORES_READ_ERRORS] == true,
            preconditions: conditions
                .is_object()
                .then(|| (text(&conditions["uid"]), text(&conditions["resourceVersion"]))),
        }
    }

    fn checked(self) -> Result<DeleteOptions, Status> {
        let mut causes = Vec::new();
        if let (Some(_), Some(policy)) = (self.orphan, &self.policy) {
            let text = format!(
                "Invalid value: {}: orphanDependents and deletionPropagation cannot be both set",
                object::quoted(policy)
            );
            causes.push(cause("FieldValueInvalid", "propagationPolicy", text));
        }
        let propagation = match self.policy.as_deref() {
            None => None,
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                let text = format!(
                    "Unsupported value: {}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
                    object::quoted(other)
                );
                causes.push(cause("FieldValueNotSupported", "propagationPolicy", text));
                None
            }
        };
        let is_dry_run = dry_run(&self.dry_run, &mut causes);
        if self.ignores_read_errors {
            self.check_alone(&mut causes);
        }
        if !causes.is_empty() {
            return Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", causes));
        }
        let (uid, revision) = self.preconditions.unwrap_or_default();
        Ok(DeleteOptions {
            dry_run: is_dry_run,
            grace_seconds: self.grace_seconds,
            propagation,
            orphan: self.orphan,
            uid,
            revision,
        })
    }

    /// An object that cannot be read can be deleted only without anything that depends on what it says. (Damaged objects are
    /// mended by other means here; the option changes nothing about objects that can be read.)
    fn check_alone(&self, causes: &mut Vec<Cause>) {
        for (is_set, field) in [
            (!self.dry_run.is_empty(), "dryRun"),
            (self.policy.is_some(), "propagationPolicy"),
            (self.orphan.is_some(), "orphanDependents"),
            (self.grace_seconds.is_some(), "gracePeriodSeconds"),
            (self.preconditions.is_some(), "preconditions"),
        ] {
            if is_set {
                let text = format!("Invalid value: true: cannot be set together with .{field}");
                causes.push(cause("FieldValueInvalid", IGNORES_READ_ERRORS, text));
            }
        }
    }
}

pub(super) const IGNORES_READ_ERRORS: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// The options in a body. Clients of old send them in any group and version.
fn of_body(body: &[u8], syntax: Syntax) -> Result<Value, Status> {
    let malformed = |text: String| {
        let text = match syntax {
            Syntax::Json => format!("couldn't get version/kind; json parse error: {text}"),
            Syntax::Yaml => format!("error converting YAML to JSON: {text}"),
            Syntax::Protobuf => text,
        };
        Status::bad_request(text)
    };
    let mut value = match syntax {
        Syntax::Json => schema::decode_value(body).map(|(value, _)| value).map_err(malformed)?,
        Syntax::Yaml => std::str::from_utf8(body)
            .map_err(|error| malformed(error.to_string()))
            .and_then(|text| {
                let options = schema::yaml_options(text.len(), serde_saphyr::DuplicateKeyPolicy::Error);
                serde_saphyr::from_str_with_options(text, options)
                    .map_err(|error| malformed(schema::yaml_fault(&error)))
            })?,
        Syntax::Protobuf => schema::protobuf_to_json(body).map_err(|error| malformed(error.to_string()))?,
    };
    if value.is_null() {
        value = Value::Object(crate::tree::Map::new());
    }
    let found = schema::go_word(&value);
    let Some(fields) = value.as_object_mut() else {
        return Err(Status::bad_request(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct \
             {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        )));
    };
    let mut head = |name: &'static str, own: &'static str| match fields.insert(name, own.into()) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.to_string()),
        Some(other) => Err(Status::bad_request(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{name} of \
             type string",
            schema::go_word(&other)
        ))),
    };
    let (version, kind) = (head("apiVersion", "v1")?, head("kind", "DeleteOptions")?);
    if version.matches('/').count() > 1 {
        return Err(Status::bad_request(format!(
            "unexpected GroupVersion string: {version}"
        )));
    }
    if !matches!(kind.as_str(), "" | "DeleteOptions") {
        return Err(Status::bad_request(format!(
            "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"flatkube/schema\""
        )));
    }
    let schema = Schema::of("", "v1", "DeleteOptions").ok_or_else(Status::method_not_allowed)?;
    let checked = schema::check(value, schema, FieldValidation::Ignore, false);
    checked
        .map(|decoded| decoded.value)
        .map_err(|misfit| Status::bad_request(misfit.to_string()))
}

/// A number in a query, and what Go says of what is none.
fn parse_int(text: &str) -> Result<i64, String> {
    text.parse::<i64>().map_err(|error| {
        let why = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.ParseInt: parsing {}: {why}", object::quoted(text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(options: Result<DeleteOptions, Status>) -> String {
        match options {
            Ok(options) => format!("{options:?}"),
            Err(status) => {
                let causes = status.details.map(|details| details.causes).unwrap_or_default();
                let causes: Vec<String> = causes
                    .iter()
                    .map(|cause| format!("{}: {}", cause.field, cause.message))
                    .collect();
                format!("{} {} {}", status.code, status.message, causes.join("; "))
            }
        }
    }

    fn of_query(query: &str) -> Result<DeleteOptions, Status> {
        Sent::of_query(&Query::new(query))?.checked()
    }

    fn of_json(body: &str) -> Result<DeleteOptions, Status> {
        DeleteOptions::of_value(&super::of_body(body.as_bytes(), Syntax::Json)?)
    }

    #[test]
    fn the_query_says_what_a_body_may_say() {
        let options = of_query("gracePeriodSeconds=5&propagationPolicy=Orphan&dryRun=All&uid=u-1").unwrap();
        assert_eq!(options.grace_seconds, Some(5));
        assert_eq!(options.propagation, Some(Propagation::Orphan));
        assert_eq!(options.uid.as_deref(), Some("u-1"));
        assert!(options.dry_run);
        assert_eq!(of_query("orphanDependents=").unwrap().orphan, Some(true));
        assert_eq!(of_query("orphanDependents=0").unwrap().orphan, Some(false));
        assert_eq!(of_query("orphanDependents=False").unwrap().orphan, Some(false));
        for (query, why) in [
            ("gracePeriodSeconds=", "\"\": invalid syntax"),
            ("gracePeriodSeconds=1.5", "\"1.5\": invalid syntax"),
            (
                "gracePeriodSeconds=9223372036854775808",
                "\"9223372036854775808\": value out of range",
            ),
        ] {
            let text = format!("400 strconv.ParseInt: parsing {why} ");
            assert_eq!(told(of_query(query)), text, "{query}");
        }
    }

    #[test]
    fn a_body_may_have_any_group_but_not_any_kind() {
        for body in [
            "{}",
            "null",
            r#"{"kind":"DeleteOptions"}"#,
            r#"{"kind":"DeleteOptions","apiVersion":"apps/v1"}"#,
            r#"{"apiVersion":"meta.k8s.io/v1","unknown":1}"#,
        ] {
            assert!(of_json(body).is_ok(), "{body}: {}", told(of_json(body)));
        }
        for (body, why) in [
            (
                r#"{"kind":"Pod","apiVersion":"v1"}"#,
                "no kind \"Pod\" is registered for version \"v1\" in scheme \"flatkube/schema\"",
            ),
            (r#"{"apiVersion":"a/b/c"}"#, "unexpected GroupVersion string: a/b/c"),
            (
                "[]",
                "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { \
                 APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
            ),
            (
                r#"{"kind":1}"#,
                "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of \
                 type string",
            ),
            (
                r#"{"gracePeriodSeconds":"1"}"#,
                "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
            ),
            (
                "{nope",
                "couldn't get version/kind; json parse error: invalid character 'n' looking for beginning of object key \
                 string",
            ),
        ] {
            assert_eq!(told(of_json(body)), format!("400 {why} "), "{body}");
        }
    }

    #[test]
    fn options_that_exclude_each_other_are_all_told() {
        let both = of_json(r#"{"orphanDependents":true,"propagationPolicy":"Maybe","dryRun":["Some"]}"#);
        let status = both.unwrap_err();
        let causes: Vec<String> = status.details.unwrap().causes.into_iter().map(|c| c.message).collect();
        assert_eq!(
            causes,
            [
                "Invalid value: \"Maybe\": orphanDependents and deletionPropagation cannot be both set",
                "Unsupported value: \"Maybe\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
                "Unsupported value: [\"Some\"]: supported values: \"All\"",
            ]
        );
        let alone = format!("{IGNORES_READ_ERRORS}=true");
        assert!(of_query(&alone).is_ok());
        let with = of_query(&format!(
            "{alone}&dryRun=All&propagationPolicy=Orphan&gracePeriodSeconds=0&uid=u"
        ));
        let causes = with.unwrap_err().details.unwrap().causes;
        let fields: Vec<&str> = causes.iter().filter_map(|c| c.message.rsplit('.').next()).collect();
        assert_eq!(
            fields,
            ["dryRun", "propagationPolicy", "gracePeriodSeconds", "preconditions"]
        );
        assert!(causes.iter().all(|cause| cause.field == IGNORES_READ_ERRORS));
        let off = format!("{IGNORES_READ_ERRORS}=false&dryRun=All");
        assert!(of_query(&off).is_ok());
    }
}
