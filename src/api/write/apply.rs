//! PATCH by server-side apply: creating what is not there, changing what is, also by `status` and `scale`.

use bytes::Bytes;

use super::manager::{KindVersions, Manager, typed};
use super::options::WriteOptions;
use super::preconditions::check_versioned;
use super::target::Target;
use super::update::{self, Edited};
use super::{create, custom, object, scale};
use crate::api::Api;
use crate::api::authorize::may_create;
use crate::api::body::Response;
use crate::api::request::RequestInfo;
use crate::api::status::{Cause, Details, Status};
use crate::patch::apply::{self, Applied, ApplyError, Conflicts, group_version_kind};
use crate::schema::{self, FieldValidation, Schema, decode_value, go_word};
use crate::tree::{Map, Value};

/// How often an object that comes and goes meanwhile is tried to be created and to be changed.
const ATTEMPTS_MAX: usize = 16;

/// Answers an apply.
///
/// # Errors
/// The Status of whatever is wrong with the configuration, of conflicts with other managers, or of the write.
pub(super) async fn apply(
    api: &Api,
    info: &RequestInfo,
    options: &WriteOptions,
    body: &Bytes,
) -> Result<Response, Status> {
    let configuration = Configuration::read(body, options.validation);
    if info.subresource_name() == "scale" {
        return scale::apply(api, info, options, configuration).await;
    }
    let resource = &info.resource;
    for _ in 0..ATTEMPTS_MAX {
        let view = api.reader.store.view();
        let found = view.get(&resource.storage, &info.key()).map_err(Status::internal)?;
        drop(view);
        if found.is_none() && info.subresource.is_none() {
            match create_new(api, info, options, configuration.clone()?).await {
                // Somebody else was faster.
                Err(status) if status.reason == "AlreadyExists" => continue,
                answer => return answer,
            }
        }
        let target = Target {
            manager: Some(Manager::applying(info)),
            ..Target::of(info)
        };
        let edit = |old: &Value| {
            let configuration = configuration.clone()?;
            let mut value = configuration.apply(info, Some(old))?;
            let mut warnings = configuration.warnings;
            create::check_place(info, &mut value)?;
            update::check_name(info, &value)?;
            object::dedup_owners(&mut value, true, &mut warnings);
            let asked = update::revision_of(&value)?;
            check_versioned(&target, asked)?;
            Ok(Edited {
                revision: if asked == update::revision_of(old)? {
                    None
                } else {
                    asked
                },
                value,
                warnings,
            })
        };
        match update::change(api, &target, options.dry_run, edit).await {
            // Somebody has deleted it.
            Err(status) if status.reason == "NotFound" && found.is_some() && info.subresource.is_none() => {}
            Err(status) => return Err(status),
            Ok((changed, warnings)) => return update::answer(info, changed, &warnings),
        }
    }
    Err(Target::of(info).modified())
}

async fn create_new(
    api: &Api,
    info: &RequestInfo,
    options: &WriteOptions,
    configuration: Configuration,
) -> Result<Response, Status> {
    let resource = &info.resource;
    let name = info.name.as_deref().unwrap_or("");
    let mut value = configuration.apply(info, None)?;
    let mut warnings = configuration.warnings;
    let uid = object::meta(&value, "uid");
    if !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(Status::conflict(&resource.group, &resource.plural, name, &why));
    }
    object::metadata_mut(&mut value).remove("resourceVersion");
    create::check_place(info, &mut value)?;
    update::check_name(info, &value)?;
    object::dedup_owners(&mut value, true, &mut warnings);
    may_create(api, info)?;
    create::insert(api, info, options, &Manager::applying(info), value, warnings).await
}

/// What is applied.
#[derive(Debug, Clone)]
pub(super) struct Configuration {
    pub value: Value,
    pub warnings: Vec<String>,
    /// The refusal of keys that come twice, which is given when there is nothing else to refuse.
    refusal: Option<Status>,
}

impl Configuration {
    /// Reads a body: YAML, of which JSON is a part.
    ///
    /// # Errors
    /// 400 for what is neither, or no object.
    fn read(body: &[u8], validation: FieldValidation) -> Result<Self, Status> {
        let refused = |text: String| Status::bad_request(format!("error decoding YAML: {text}"));
        let is_json = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        let json = if is_json { decode_value(body).ok() } else { None };
        let (value, has_doubles) = match json {
            Some((value, findings)) => (value, !findings.is_empty()),
            None => (read_yaml(body).map_err(|text| refused(yaml_fault(body, &text)))?, true),
        };
        let value = match value {
            Value::Object(_) => value,
            Value::Null => Value::Object(Map::new()),
            other => {
                return Err(refused(format!(
                    "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type \
                     map[string]interface {{}}",
                    go_word(&other)
                )));
            }
        };
        let doubles = if has_doubles && validation != FieldValidation::Ignore {
            doubles(body)
        } else {
            None
        };
        let strict = validation == FieldValidation::Strict;
        Ok(Self {
            value,
            refusal: doubles
                .as_ref()
                .filter(|_| strict)
                .map(|text| Status::bad_request(format!("error strict decoding YAML: {text}"))),
            warnings: doubles.filter(|_| !strict).into_iter().collect(),
        })
    }

    /// The object after it is applied to `live`, in the version of the request, with its `managedFields`.
    fn apply(&self, info: &RequestInfo, live: Option<&Value>) -> Result<Value, Status> {
        let resource = &info.resource;
        let schema = Schema::of(&resource.group, &resource.version, &resource.kind);
        let typed = typed(resource).ok_or_else(Status::method_not_allowed)?;
        self.check_kind(&resource.api_version(), &resource.kind)?;
        let applied = Manager::applying(info).with_request(&resource.api_version(), |request| {
            let force = info.query.flag("force");
            apply::apply(typed, &KindVersions(resource), live, &self.value, request, force)
        });
        let value = self.finish(applied, schema, live)?;
        if resource.custom.is_some() {
            return custom::applied(resource, value);
        }
        Ok(value)
    }

    /// Refuses a configuration of another kind.
    pub(super) fn check_kind(&self, api_version: &str, kind: &str) -> Result<(), Status> {
        if self.value["apiVersion"] == api_version && self.value["kind"] == kind {
            return Ok(());
        }
        let kind = group_version_kind(&self.value);
        Err(Status::bad_request(format!("invalid object type: {kind}")))
    }

    /// What came out of an apply, decoded.
    pub(super) fn finish(
        &self,
        applied: Result<Applied, ApplyError>,
        schema: Option<Schema<'static>>,
        live: Option<&Value>,
    ) -> Result<Value, Status> {
        let applied = applied.map_err(refused)?;
        let value = match schema {
            Some(schema) => applied.decoded(schema, live.unwrap_or(&Value::Null)).map_err(refused)?,
            None => applied.managed(),
        };
        match &self.refusal {
            Some(status) => Err(status.clone()),
            None => Ok(value),
        }
    }
}

/// What a refused apply is to a client.
fn refused(error: ApplyError) -> Status {
    match error {
        ApplyError::BadRequest(text) => Status::bad_request(text),
        ApplyError::Internal(text) => Status::plain(500, text),
        ApplyError::Conflicts(conflicts) => conflict(&conflicts),
    }
}

fn conflict(conflicts: &Conflicts) -> Status {
    let causes = conflicts.told.iter().map(|conflict| Cause {
        reason: "FieldManagerConflict".into(),
        message: format!("conflict with {}", conflict.manager),
        field: conflict.path.clone(),
    });
    let mut status = Status::plain(409, conflicts.to_string());
    status.reason = "Conflict";
    status.details = Some(Box::new(Details {
        causes: causes.collect(),
        ..Details::default()
    }));
    status
}

/// Go's text about YAML that is none, as far as our parser's says what is wrong.
fn yaml_fault(body: &[u8], text: &str) -> String {
    let text = text.strip_prefix("yaml: ").unwrap_or(text);
    let what = text.split(" at line ").next().unwrap_or(text);
    let what = what.rsplit_once(", ").map_or(what, |(_, what)| what);
    let what = match what {
        _ if what.contains("unclosed bracket '{'") => "did not find expected ',' or '}'",
        _ if what.contains("unclosed bracket '['") => "did not find expected ',' or ']'",
        "expected ',' or ']'" => "did not find expected ',' or ']'",
        what => what,
    };
    // Go counts lines from the end of the one before, and the end of a text stands on a line of its own.
    let told = text.split("line ").nth(1).and_then(|rest| {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse::<usize>().ok()
    });
    let lines = body.split(|byte| *byte == b'\n').count();
    let line = match told {
        Some(line) if line >= lines && !body.ends_with(b"\n") => lines,
        Some(line) => line.saturating_sub(1),
        None => 0,
    };
    let place = if line > 0 {
        format!("line {line}: ")
    } else {
        String::new()
    };
    format!("error converting YAML to JSON: yaml: {place}{what}")
}

/// One document of YAML. Of keys that come twice the last one counts.
fn read_yaml(body: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(body).map_err(|_| "invalid leading UTF-8 octet".to_owned())?;
    let options = schema::yaml_options(text.len(), serde_saphyr::DuplicateKeyPolicy::PassThrough);
    serde_saphyr::from_str_with_options(text, options).map_err(|error| schema::yaml_fault(&error))
}

/// Go's text about keys of a mapping that come twice, of the first of them; `None` when there are none.
fn doubles(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let options = schema::yaml_options(text.len(), serde_saphyr::DuplicateKeyPolicy::Error);
    let read: Result<serde::de::IgnoredAny, _> = serde_saphyr::from_str_with_options(&text, options);
    let fault = read.err()?.to_string();
    let (_, key) = fault.split_once("duplicate mapping key: ")?;
    let key = key.split(", set ").next().unwrap_or(key);
    let line = fault.split(" at line ").nth(1)?;
    let line = line.split(|letter: char| !letter.is_ascii_digit()).next()?;
    Some(format!(
        "error converting YAML to JSON: yaml: unmarshal errors:\n  line {line}: key \"{key}\" already set in map"
    ))
}
