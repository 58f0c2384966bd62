//! Rules about single fields, from `facts/rules.tsv`, applied along the schema.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::OnceLock;

use serde_json::{Map, Value};

use super::At;
use crate::resources::declaration::rows;
use crate::resources::{FieldError, Resource, names};
use crate::schema::{Schema, Shape, Type};

/// Deepest nesting that is followed.
const DEPTH_MAX: usize = 48;

/// Checks an object (in canonical form) by the rules of its schema and of those in it. `part` is the only top-level field
/// to look at (`status`), or all but status.
pub(in crate::resources) fn by_rules(
    resource: &Resource,
    object: &Value,
    part: Option<&str>,
    errors: &mut Vec<FieldError>,
) {
    let Some(schema) = Schema::of(resource.group, resource.version, resource.kind) else {
        return;
    };
    let Some(fields) = object.as_object() else { return };
    let mut walk = Walk {
        path: String::new(),
        errors,
    };
    let rules = rules(schema.name());
    for field in schema.fields() {
        let name = field.name();
        let wanted = part.map_or(!matches!(name, "status" | "metadata"), |part| part == name);
        if wanted {
            let value = fields.get(name).unwrap_or(&Value::Null);
            walk.field(name, field.ty(), value, rules.and_then(|rules| rules.get(name)), 0);
        }
    }
}

#[derive(Clone)]
enum Rule {
    /// Absent or empty is refused, with that detail.
    Required(&'static str),
    /// Absent is refused, with that detail.
    Present(&'static str),
    /// A text must be one of these.
    OneOf(Vec<&'static str>),
    /// A number must be at least this.
    AtLeast(i64),
    /// A number must be in this range, both ends included.
    Between(i64, i64),
    /// Permission bits.
    Mode,
    /// An RFC 1123 label.
    Label,
    /// An RFC 1123 subdomain.
    Subdomain,
    /// The key of a label.
    QualifiedName,
    /// A path without `..`.
    NoBackStep,
    /// An IP address.
    Address,
}

struct Walk<'e> {
    path: String,
    errors: &'e mut Vec<FieldError>,
}

impl Walk<'_> {
    fn structure(&mut self, schema: Schema<'_>, fields: &Map<String, Value>, depth: usize) {
        if depth > DEPTH_MAX {
            return;
        }
        let rules = rules(schema.name());
        for field in schema.fields() {
            let name = field.name();
            let value = fields.get(name).unwrap_or(&Value::Null);
            let rules = rules.and_then(|rules| rules.get(name));
            if rules.is_some() || matches!(value, Value::Object(_) | Value::Array(_)) {
                self.field(name, field.ty(), value, rules, depth);
            }
        }
    }

    fn field(&mut self, name: &str, ty: Type<'_>, value: &Value, rules: Option<&'static Vec<Rule>>, depth: usize) {
        let len = self.path.len();
        if len > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        // Of a value that is not there, nothing else can be said.
        let known = self.errors.len();
        for rule in rules.into_iter().flatten() {
            self.apply(rule, value);
            if matches!(rule, Rule::Required(_)) && self.errors.len() > known {
                break;
            }
        }
        self.value(ty, value, depth);
        self.path.truncate(len);
    }

    fn value(&mut self, ty: Type<'_>, value: &Value, depth: usize) {
        match (ty, value) {
            (Type::Schema(schema), Value::Object(fields)) if schema.shape() == Shape::Struct => {
                self.structure(schema, fields, depth + 1);
            }
            (Type::List(element), Value::Array(list)) => {
                if let Type::Schema(_) = element.ty() {
                    for (i, item) in list.iter().enumerate() {
                        let len = self.path.len();
                        let _ = write!(self.path, "[{i}]");
                        self.value(element.ty(), item, depth + 1);
                        self.path.truncate(len);
                    }
                }
            }
            _ => {}
        }
    }

    fn apply(&mut self, rule: &Rule, value: &Value) {
        let at = At {
            value,
            field: self.path.clone(),
        };
        let errors = &mut *self.errors;
        let integer = at.integer();
        match (rule, value) {
            (Rule::Required(detail), _) if at.is_empty() || integer == Some(0) => errors.push(at.required(detail)),
            (Rule::Present(detail), Value::Null) => errors.push(at.required(detail)),
            (Rule::OneOf(supported), _) => at.one_of(supported, errors),
            (Rule::AtLeast(least), _) if integer.is_some_and(|integer| integer < *least) => {
                errors.push(at.invalid(format_args!("must be greater than or equal to {least}")));
            }
            (Rule::Between(low, high), _) if integer.is_some_and(|integer| !(*low..=*high).contains(&integer)) => {
                errors.push(at.invalid(format_args!("must be between {low} and {high}, inclusive")));
            }
            (Rule::Between(..), Value::Array(_)) => {
                for item in at.items() {
                    Walk {
                        path: item.field.clone(),
                        errors,
                    }
                    .apply(rule, item.value);
                }
            }
            (Rule::Mode, _) if integer.is_some_and(|mode| !(0..=0o777).contains(&mode)) => {
                errors.push(at.invalid("must be a number between 0 and 0777 (octal), both inclusive"));
            }
            (Rule::Label, Value::String(text)) if !text.is_empty() => at.check(names::label(text), errors),
            (Rule::Subdomain, Value::String(text)) if !text.is_empty() => at.check(names::subdomain(text), errors),
            (Rule::QualifiedName, Value::String(text)) => at.check(names::qualified_name(text), errors),
            (Rule::NoBackStep, Value::String(text)) if text.split('/').any(|step| step == "..") => {
                errors.push(at.invalid("must not contain '..'"));
            }
            (Rule::Address, Value::String(text)) if !text.is_empty() => {
                errors.extend(super::ip(text).map(|what| at.invalid(what)));
            }
            _ => {}
        }
    }
}

type Rules = HashMap<&'static str, HashMap<&'static str, Vec<Rule>>>;

fn rules(schema: &str) -> Option<&'static HashMap<&'static str, Vec<Rule>>> {
    static RULES: OnceLock<Rules> = OnceLock::new();
    let all = RULES.get_or_init(|| {
        let mut all = Rules::new();
        for row in rows(include_str!("../facts/rules.tsv")) {
            if let Some(rule) = read(row[2], row[3]) {
                for field in row[1].split(' ') {
                    all.entry(row[0])
                        .or_default()
                        .entry(field)
                        .or_default()
                        .push(rule.clone());
                }
            }
        }
        all
    });
    all.get(schema)
}

fn read(rule: &str, argument: &'static str) -> Option<Rule> {
    Some(match rule {
        "required" => Rule::Required(argument),
        "present" => Rule::Present(argument),
        "one_of" => Rule::OneOf(argument.split(',').collect()),
        "at_least" => Rule::AtLeast(argument.parse().ok()?),
        "between" => {
            let (low, high) = argument.split_once(' ')?;
            Rule::Between(low.parse().ok()?, high.parse().ok()?)
        }
        "mode" => Rule::Mode,
        "label" => Rule::Label,
        "subdomain" => Rule::Subdomain,
        "qualified_name" => Rule::QualifiedName,
        "no_back_step" => Rule::NoBackStep,
        "address" => Rule::Address,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_fields_that_exist_and_rules_that_are_known() {
        for row in rows(include_str!("../facts/rules.tsv")) {
            let schema = Schema::named(row[0]).unwrap_or_else(|| panic!("no schema {}", row[0]));
            assert!(read(row[2], row[3]).is_some(), "{row:?}");
            for field in row[1].split(' ') {
                assert!(schema.field(field).is_some(), "{} has no field {field}", row[0]);
            }
        }
    }
}
