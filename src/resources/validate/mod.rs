//! Validation: what every kind's rules are written with.
//!
//! Rules about one field at a time are in `facts/rules.tsv` and hold wherever a schema is used ([`by_rules`]); rules that
//! look at several fields are code, written with [`At`].

mod network;
mod rules;
mod shown;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;
use std::rc::Rc;

use crate::tree::{List, Value};

pub(super) use network::{cidr, ip, port_name};
pub(super) use rules::by_rules;
pub(super) use shown::capitalized;

use super::FieldError;

/// A value and the path of its field.
#[derive(Clone)]
pub(super) struct At<'a> {
    /// The value, null when it is absent.
    pub(super) value: &'a Value,
    /// Its path: `spec.containers[0].name`.
    pub(super) field: FieldPath<'a>,
}

/// The path of a field, put into words only for an error: most objects have none.
#[derive(Clone, Default)]
pub(super) struct FieldPath<'a> {
    before: Option<Rc<FieldPath<'a>>>,
    step: Option<Step<'a>>,
    /// This path, once others begin with it.
    shared: OnceCell<Rc<FieldPath<'a>>>,
}

#[derive(Clone)]
enum Step<'a> {
    /// Names with dots between them.
    Field(Cow<'static, str>),
    Index(usize),
    Key(&'a str),
    /// All that comes before.
    Made(String),
}

impl<'a> FieldPath<'a> {
    /// A path in words.
    pub(super) fn made(path: String) -> FieldPath<'a> {
        FieldPath::default().then(Step::Made(path))
    }

    fn then(&self, step: Step<'a>) -> FieldPath<'a> {
        let before = self.step.is_some().then(|| {
            let shared = self.shared.get_or_init(|| {
                Rc::new(FieldPath {
                    before: self.before.clone(),
                    step: self.step.clone(),
                    shared: OnceCell::new(),
                })
            });
            shared.clone()
        });
        FieldPath {
            before,
            step: Some(step),
            shared: OnceCell::new(),
        }
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(step) = &self.step else {
            return Ok(());
        };
        if let Some(before) = &self.before {
            before.fmt(f)?;
        }
        match step {
            Step::Field(names) if self.before.is_some() => write!(f, ".{names}"),
            Step::Field(names) => f.write_str(names),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
            Step::Made(path) => f.write_str(path),
        }
    }
}

impl From<&FieldPath<'_>> for String {
    fn from(path: &FieldPath<'_>) -> String {
        path.to_string()
    }
}

impl From<FieldPath<'_>> for String {
    fn from(path: FieldPath<'_>) -> String {
        path.to_string()
    }
}

static ABSENT: Value = Value::Null;

impl<'a> At<'a> {
    /// The object itself.
    pub(super) fn root(object: &'a Value) -> At<'a> {
        At {
            value: object,
            field: FieldPath::default(),
        }
    }

    /// A field of an object; nested ones with dots: `spec.template`.
    pub(super) fn get(&self, path: impl Into<Cow<'static, str>>) -> At<'a> {
        let path = path.into();
        let value = if path.as_bytes().contains(&b'.') {
            path.split('.').try_fold(self.value, |value, name| value.get(name))
        } else {
            self.value.get(&*path)
        };
        At {
            value: value.unwrap_or(&ABSENT),
            field: self.field.then(Step::Field(path)),
        }
    }

    /// The items of a list.
    pub(super) fn items(&self) -> impl Iterator<Item = At<'a>> + use<'a> {
        let field = self.field.clone();
        let items = self.value.as_array().map_or(&[][..], List::as_slice).iter().enumerate();
        items.map(move |(i, value)| At {
            value,
            field: field.then(Step::Index(i)),
        })
    }

    /// The entries of a map, as `field[key]`.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, At<'a>)> + use<'a> {
        let field = self.field.clone();
        let entries = self.value.as_object().into_iter().flatten();
        entries.map(move |(key, value)| {
            let field = field.then(Step::Key(key));
            (key.as_str(), At { value, field })
        })
    }

    /// The same value under the path of a field of `parent`: where kube-apiserver names another field than the wrong one.
    pub(super) fn named(&self, parent: &At<'a>, name: &'static str) -> At<'a> {
        At {
            value: self.value,
            field: parent.field.then(Step::Field(Cow::Borrowed(name))),
        }
    }

    pub(super) fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or("")
    }

    pub(super) fn is_true(&self) -> bool {
        self.value.as_bool() == Some(true)
    }

    pub(super) fn integer(&self) -> Option<i64> {
        self.value.as_i64()
    }

    pub(super) fn present(&self) -> bool {
        !self.value.is_null()
    }

    /// Absent, or an empty text, list or map.
    pub(super) fn is_empty(&self) -> bool {
        match self.value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        }
    }

    pub(super) fn required(&self, detail: &str) -> FieldError {
        FieldError::required(&self.field, detail)
    }

    pub(super) fn invalid(&self, detail: impl std::fmt::Display) -> FieldError {
        FieldError::invalid(&self.field, self.value, detail)
    }

    pub(super) fn forbidden(&self, detail: &str) -> FieldError {
        FieldError::forbidden(&self.field, detail)
    }

    pub(super) fn duplicate(&self) -> FieldError {
        FieldError::duplicate(&self.field, self.value)
    }

    pub(super) fn not_supported(&self, supported: &[&str]) -> FieldError {
        FieldError::not_supported(&self.field, self.value, supported)
    }

    /// Pushes what a check of names found.
    pub(super) fn check(&self, wrong: Vec<String>, errors: &mut Vec<FieldError>) {
        let wrong = wrong.into_iter();
        errors.extend(wrong.map(|what| FieldError::invalid_text(&self.field, self.text(), what)));
    }

    /// A text that is there must be one of these.
    pub(super) fn one_of(&self, supported: &[&str], errors: &mut Vec<FieldError>) {
        if !self.is_empty() && !supported.contains(&self.text()) {
            errors.push(self.not_supported(supported));
        }
    }

    /// A number that is there must not be negative.
    pub(super) fn not_negative(&self, errors: &mut Vec<FieldError>) {
        if self.integer().is_some_and(|integer| integer < 0) {
            errors.push(self.invalid(NOT_NEGATIVE));
        }
    }
}

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// A field that a change may not touch.
pub(super) fn immutable(old: &Value, new: &Value, path: impl Into<Cow<'static, str>>, errors: &mut Vec<FieldError>) {
    let path = path.into();
    let (old, new) = (At::root(old).get(path.clone()), At::root(new).get(path));
    if old.value != new.value {
        errors.push(new.invalid("field is immutable"));
    }
}

/// As [`immutable`], of a field whose value kube-apiserver shows as its inner types have it.
pub(super) fn immutable_struct(old: &Value, new: &Value, path: &'static str, errors: &mut Vec<FieldError>) {
    let (old, new) = (At::root(old).get(path), At::root(new).get(path));
    if old.value != new.value {
        let shown = capitalized(new.value);
        errors.push(FieldError::invalid(&new.field, &shown, "field is immutable"));
    }
}

/// What is wrong with a label selector.
pub(super) fn label_selector(selector: &At<'_>, errors: &mut Vec<FieldError>) {
    super::metadata::labels(
        Some(selector.get("matchLabels").value),
        &format_args!("{}.matchLabels", selector.field),
        errors,
    );
    for expression in selector.get("matchExpressions").items() {
        let values = expression.get("values");
        match expression.get("operator").text() {
            "In" | "NotIn" => {
                if values.is_empty() {
                    errors.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    errors.push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
                }
            }
            _ => errors.push(expression.get("operator").invalid("not a valid selector operator")),
        }
        let key = expression.get("key");
        key.check(super::names::qualified_name(key.text()), errors);
        label_values(&values, errors);
    }
}

/// Values that labels are compared with are values that labels can have.
pub(super) fn label_values(values: &At<'_>, errors: &mut Vec<FieldError>) {
    for value in values.items() {
        value.check(super::names::label_value(value.text()), errors);
    }
}

/// Longest reason of a condition, in bytes.
const REASON_LEN_MAX: usize = 1024;
/// Longest message of a condition, in bytes.
const MESSAGE_LEN_MAX: usize = 32 * 1024;

/// What is wrong with a list of conditions (`metav1.Condition`).
pub(super) fn conditions(conditions: &At<'_>, errors: &mut Vec<FieldError>) {
    const REASON_RULE: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
         alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or \
         'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is \
         '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
    let is_reason = |reason: &str| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"_,:".contains(&byte);
        reason.starts_with(|first: char| first.is_ascii_alphabetic())
            && !reason.ends_with([',', ':'])
            && reason.bytes().all(known)
    };
    let mut kinds = Vec::new();
    for condition in conditions.items() {
        let [kind, status, observed, since, reason, message] = [
            "type",
            "status",
            "observedGeneration",
            "lastTransitionTime",
            "reason",
            "message",
        ]
        .map(|field| condition.get(field));
        if kinds.contains(&kind.text()) {
            errors.push(kind.duplicate());
        }
        kinds.push(kind.text());
        kind.check(super::names::qualified_name(kind.text()), errors);
        if !matches!(status.text(), "True" | "False" | "Unknown") {
            let shown = Value::from(status.text());
            errors.push(FieldError::not_supported(
                &status.field,
                &shown,
                &["False", "True", "Unknown"],
            ));
        }
        if observed.integer().is_some_and(|generation| generation < 0) {
            errors.push(observed.invalid("must be greater than or equal to zero"));
        }
        if since.is_empty() {
            errors.push(since.required("must be set"));
        }
        if reason.is_empty() {
            errors.push(reason.required("must be set"));
        } else if !is_reason(reason.text()) {
            errors.push(reason.invalid(REASON_RULE));
        }
        for (text, len_max) in [(reason, REASON_LEN_MAX), (message, MESSAGE_LEN_MAX)] {
            if text.text().len() > len_max {
                errors.push(FieldError::too_long(&text.field, len_max));
            }
        }
    }
}

/// A path must be relative and stay below where it starts.
pub(super) fn descending_path(path: &At<'_>, errors: &mut Vec<FieldError>) {
    if path.text().starts_with('/') {
        errors.push(path.invalid("must be a relative path"));
    }
    if steps_back(path.text()) {
        errors.push(path.invalid("must not contain '..'"));
    }
}

/// As [`descending_path`]; it may not begin with two dots either, as the kubelet's own links do.
pub(super) fn local_path(path: &At<'_>, errors: &mut Vec<FieldError>) {
    descending_path(path, errors);
    if path.text().starts_with("..") && !path.text().starts_with("../") {
        errors.push(path.invalid("must not start with '..'"));
    }
}

/// Whether a path has a step `..`.
pub(super) fn steps_back(path: &str) -> bool {
    path.split('/').any(|step| step == "..")
}
