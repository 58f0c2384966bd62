//! What a configuration declares: the set of its fields, and what is wrong with it.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::super::go_format;
use super::super::managed::fields::{Fields, push_element};
use super::super::managed::keys::item_key;
use super::super::managed::typed::{Form, Listed, Mapped, Member, Scalar, Typed};
use crate::schema::ListType;
use crate::tree::{Text, Value};

/// A place in a configuration and what is wrong there.
#[derive(Debug, Default)]
struct Fault {
    path: String,
    text: String,
}

/// Most faults of a configuration that are told.
const FAULTS_MAX: usize = 1000;

/// The fields of a configuration of that type: its values, elements of lists, keys of maps; structs, maps and lists count by
/// what is in them. Linear in its size.
///
/// # Errors
/// Upstream's text about values of a wrong type, fields that do not exist, elements that come twice.
pub(super) fn declared(typed: Typed<'_>, configuration: &Value) -> Result<Fields, String> {
    let mut walk = Walk::default();
    let mut set = Fields::default();
    walk.value(typed, configuration, Some(&mut set));
    match walk.faults.as_slice() {
        [] => Ok(set),
        [fault] => Err(fault.to_text()),
        faults => Err(faults.iter().fold("errors:".to_owned(), |mut text, fault| {
            let _ = write!(text, "\n  {}", fault.to_text());
            text
        })),
    }
}

impl Fault {
    fn to_text(&self) -> String {
        if self.path.is_empty() {
            self.text.clone()
        } else {
            format!("{}: {}", self.path, self.text)
        }
    }
}

#[derive(Default)]
struct Walk {
    faults: Vec<Fault>,
}

impl Walk {
    fn fault(&mut self, text: String) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(Fault {
                path: String::new(),
                text,
            });
        }
    }

    /// Looks at a value; what it declares goes into `set`, `None` inside of what is one value.
    fn value(&mut self, typed: Typed<'_>, value: &Value, set: Option<&mut Fields>) {
        match typed.form(Some(value)) {
            Form::Scalar(scalar) => {
                if let Some(text) = misfit(scalar, value) {
                    self.fault(text);
                }
                if let Some(set) = set {
                    set.join();
                }
            }
            Form::List(list) => self.list(list, value, set),
            Form::Map(map) => self.map(map, value, set),
        }
    }

    /// Looks at what lies at `name` of a value; what is wrong there is told with the name before it.
    fn below(&mut self, name: &str, typed: Typed<'_>, value: &Value, set: Option<&mut Fields>) {
        let before = self.faults.len();
        self.value(typed, value, set);
        self.lies_at(before, name);
    }

    fn lies_at(&mut self, before: usize, name: &str) {
        for fault in &mut self.faults[before..] {
            let mut path = String::new();
            push_element(&mut path, name);
            path.push_str(&fault.path);
            fault.path = path;
        }
    }

    fn list(&mut self, list: Listed<'_>, value: &Value, set: Option<&mut Fields>) {
        let items = match value {
            Value::Array(items) => items.as_slice(),
            Value::Null => &[],
            _ => return self.fault(format!("expected list, got &{{{}}}", go_format::value(value))),
        };
        if list.kind == ListType::Atomic {
            for (number, item) in items.iter().enumerate() {
                let before = self.faults.len();
                self.value(list.item, item, None);
                if self.faults.len() > before {
                    self.lies_at(before, &format!("i:{number}"));
                }
            }
            if let Some(set) = set {
                set.join();
            }
            return;
        }
        let mut seen: HashSet<Text> = HashSet::with_capacity(items.len());
        let mut parts = Vec::new();
        for (number, item) in items.iter().enumerate() {
            let name = match item_key(list, item) {
                Ok(name) => name,
                Err(text) => return self.fault(format!("element {number}: {text}")),
            };
            if !seen.insert(name.clone()) {
                let mut shown = String::new();
                push_element(&mut shown, &name);
                self.fault(format!("duplicate entries for key {shown}"));
            }
            let mut below = set.is_some().then(Fields::default);
            self.below(&name, list.item, item, below.as_mut());
            if let Some(mut below) = below {
                below.join();
                parts.push((name, below));
            }
        }
        if let Some(set) = set {
            set.put_all(parts);
        }
    }

    fn map(&mut self, map: Mapped<'_>, value: &Value, mut set: Option<&mut Fields>) {
        let fields = match value {
            Value::Object(fields) => Some(fields),
            Value::Null | Value::Raw(_) => None,
            _ => return self.fault(format!("expected map, got &{{{}}}", go_format::value(value))),
        };
        if map.atomic
            && let Some(set) = set.take()
        {
            set.join();
        }
        let mut cursor = 0;
        for (key, value) in fields.into_iter().flatten() {
            let mut name = Text::with_capacity(key.len() + 2);
            name.push_str("f:");
            name.push_str(key);
            let (typed, is_key) = match map.member(key, &mut cursor) {
                Member::Field(typed) => (typed, false),
                Member::Key(typed) => (typed, true),
                Member::Unknown => {
                    let before = self.faults.len();
                    self.fault("field not declared in schema".to_owned());
                    return self.lies_at(before, &name);
                }
            };
            let mut below = set.is_some().then(Fields::default);
            self.below(&name, typed, value, below.as_mut());
            if let (Some(set), Some(mut below)) = (&mut set, below) {
                let is_bare = value.is_null() || value.as_object().is_some_and(crate::tree::Map::is_empty);
                if is_key || is_bare {
                    below.join();
                }
                set.put(name, below);
            }
        }
    }
}

/// What is wrong with a scalar.
fn misfit(scalar: Scalar, value: &Value) -> Option<String> {
    let printed = || go_format::value(value);
    match (scalar, value) {
        (_, Value::Null)
        | (Scalar::Numeric, Value::Number(_))
        | (Scalar::String, Value::String(_))
        | (Scalar::Boolean, Value::Bool(_))
        | (Scalar::Untyped, Value::Bool(_) | Value::Number(_) | Value::String(_)) => None,
        (Scalar::Numeric, _) => {
            let got = go_format::type_name(value);
            Some(format!("expected numeric (int or float), got {got}"))
        }
        (Scalar::String, _) => {
            let got = go_format::syntax(value);
            Some(format!("expected string, got &value.valueUnstructured{{Value:{got}}}"))
        }
        (Scalar::Boolean, _) => Some(format!("expected boolean, got &{{{}}}", printed())),
        (Scalar::Untyped, _) => Some(format!("expected any scalar, got &{{{}}}", printed())),
    }
}
