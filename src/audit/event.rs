//! An event: what is told of a request at one of its stages, as `audit.k8s.io/v1` has it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

use super::{Level, Stage};
use crate::auth::User;

/// What is known of a request.
#[derive(Debug, Clone)]
pub struct Event {
    /// How much is told.
    pub level: Level,
    /// The request's own id.
    pub id: String,
    /// Path and query.
    pub uri: String,
    /// The verb.
    pub verb: String,
    /// Who asked; nobody of a request whose credentials are not believed.
    pub user: Person,
    /// For whom it counted.
    pub impersonated: Option<Person>,
    /// From where.
    pub source_ips: Vec<String>,
    /// With which program.
    pub user_agent: String,
    /// What it was about; `None` for paths of no resource.
    pub object: Option<Object>,
    /// What came of it.
    pub status: Option<Outcome>,
    /// JSON that was sent.
    pub sent: Option<Box<RawValue>>,
    /// JSON that was answered.
    pub answered: Option<Box<RawValue>>,
    /// When it came.
    pub received: jiff::Timestamp,
    /// What those had to say who decided.
    pub annotations: BTreeMap<Cow<'static, str>, String>,
}

/// A user.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Person {
    #[serde(skip_serializing_if = "String::is_empty")]
    username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: BTreeMap<String, Vec<String>>,
}

impl From<&User> for Person {
    fn from(user: &User) -> Self {
        Self {
            username: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
        }
    }
}

/// An object that a request is about. Empty texts are not told.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields of ObjectReference")]
pub struct Object {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

/// What came of a request: of a Status its bounded fields, of everything else the code.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Outcome {
    /// Always `{}`.
    pub metadata: Nothing,
    /// `Success` or `Failure`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub status: Cow<'static, str>,
    /// A sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// A word.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<RawValue>>,
    /// The code of HTTP.
    pub code: u16,
}

/// `{}`.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Nothing {}

impl Outcome {
    /// What is told of a connection that ended before there was an answer, as upstream does.
    pub fn closed_early() -> Self {
        Self {
            status: "Success".into(),
            message: "Connection closed early".into(),
            code: 200,
            ..Self::default()
        }
    }

    /// What is told when the server failed in the middle.
    pub fn panic() -> Self {
        Self {
            status: "Failure".into(),
            message: "APIServer panic'd".into(),
            reason: "InternalError".into(),
            code: 500,
            ..Self::default()
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    kind: &'static str,
    api_version: &'static str,
    level: Level,
    #[serde(rename = "auditID")]
    id: &'a str,
    stage: Stage,
    #[serde(rename = "requestURI")]
    uri: &'a str,
    verb: &'a str,
    user: &'a Person,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<&'a Person>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[String]>::is_empty")]
    source_ips: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<&'a Object>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<&'a Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_object: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_object: Option<&'a RawValue>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<Cow<'static, str>, String>,
}

impl Event {
    /// Notes something; what was noted first stays.
    pub fn annotate(&mut self, key: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        self.annotations.entry(key.into()).or_insert_with(|| value.into());
    }

    /// The objects are taken out, and that is noted.
    pub fn truncate(&mut self) {
        self.sent = None;
        self.answered = None;
        self.annotate("audit.k8s.io/truncated", "true");
    }

    /// The event of a stage, as JSON without an end of line.
    pub fn told(&self, stage: Stage) -> Vec<u8> {
        let now = match stage {
            Stage::RequestReceived => self.received,
            _ => jiff::Timestamp::now(),
        };
        let told = Told {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: self.level,
            id: &self.id,
            stage,
            uri: &self.uri,
            verb: &self.verb,
            user: &self.user,
            impersonated_user: self.impersonated.as_ref(),
            source_ips: &self.source_ips,
            user_agent: &self.user_agent,
            object_ref: self.object.as_ref(),
            response_status: self.status.as_ref(),
            request_object: self.sent.as_deref(),
            response_object: self.answered.as_deref(),
            request_received_timestamp: format!("{:.6}", self.received),
            stage_timestamp: format!("{now:.6}"),
            annotations: &self.annotations,
        };
        // Texts, numbers and JSON that was read before: it cannot fail.
        serde_json::to_vec(&told).unwrap_or_default()
    }
}
