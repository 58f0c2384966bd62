//! Rules about single fields, from `facts/rules.tsv`, applied along the schema.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::OnceLock;

use crate::tree::{Map, Value};

use super::{At, FieldPath};
use crate::resources::declaration::rows;
use crate::resources::{FieldError, Resource, names};
use crate::schema::{self, Schema, Shape, Type};

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
    let Some(schema) = Schema::of(&resource.group, &resource.version, &resource.kind) else {
        return;
    };
    let Some(fields) = object.as_object() else { return };
    let mut walk = Walk {
        path: Vec::new(),
        errors,
    };
    walk.structure(schema, fields, 0, &|name| {
        part.map_or(!matches!(name, "status" | "metadata"), |part| part == name)
    });
}

/// What is looked at in the objects of one schema.
struct Plan {
    /// The fields with rules, and those that may lead to some, by name.
    fields: Vec<PlanField>,
    /// For every field of the schema its place among those above; [`NOWHERE`] for the others.
    places: Vec<u16>,
    /// The places of those whose absence may break a rule.
    required: Vec<u16>,
}

/// The place of a field that is not looked at.
const NOWHERE: u16 = u16::MAX;

struct PlanField {
    name: &'static str,
    ty: Type<'static>,
    rules: &'static [Rule],
}

/// The plan of a schema; it is made when the schema is first met.
fn plan(schema: Schema<'static>) -> &'static Plan {
    static PLANS: OnceLock<Box<[OnceLock<Plan>]>> = OnceLock::new();
    let plans = PLANS.get_or_init(|| Schema::all().map(|_| OnceLock::new()).collect());
    plans[schema.number as usize].get_or_init(|| {
        let known = rules(schema.name());
        let mut plan = Plan {
            fields: Vec::new(),
            places: Vec::new(),
            required: Vec::new(),
        };
        for field in schema.fields() {
            let (name, ty) = (field.name(), field.ty());
            let rules = known.and_then(|rules| rules.get(name)).map_or(&[][..], Vec::as_slice);
            if rules.is_empty() && !leads_on(ty) {
                plan.places.push(NOWHERE);
                continue;
            }
            let place = plan.fields.len() as u16;
            plan.places.push(place);
            if rules.iter().any(|rule| !rule.allows(&Value::Null)) {
                plan.required.push(place);
            }
            plan.fields.push(PlanField { name, ty, rules });
        }
        plan
    })
}

/// Whether there are fields below.
fn leads_on(ty: Type<'_>) -> bool {
    match ty {
        Type::Schema(schema) => schema.shape() == Shape::Struct,
        Type::List(element) => leads_on(element.ty()),
        _ => false,
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
    /// A relative path without `..`.
    DescendingPath,
    /// A relative path without `..`, and not named like the links that the kubelet keeps beside the files.
    LocalPath,
    /// An IP address.
    Address,
}

impl Rule {
    /// Whether a value surely breaks nothing, told without words.
    fn allows(&self, value: &Value) -> bool {
        match (self, value) {
            (Rule::Required(_), Value::String(text)) => !text.is_empty(),
            (Rule::Required(_), Value::Array(list)) => !list.is_empty(),
            (Rule::Required(_), Value::Object(map)) => !map.is_empty(),
            (Rule::Required(_), Value::Number(number)) => number.as_i64() != Some(0),
            (Rule::Present(_), value) => !value.is_null(),
            (Rule::OneOf(supported), Value::String(text)) => text.is_empty() || supported.contains(&text.as_str()),
            (Rule::AtLeast(least), Value::Number(number)) => number.as_i64().is_some_and(|integer| integer >= *least),
            (Rule::Between(low, high), Value::Number(number)) => number
                .as_i64()
                .is_some_and(|integer| integer >= *low && integer <= *high),
            (Rule::Mode, Value::Number(number)) => number.as_i64().is_some_and(|mode| (0..=0o777).contains(&mode)),
            (Rule::Label, Value::String(text)) => text.is_empty() || names::label(text).is_empty(),
            (Rule::Subdomain, Value::String(text)) => text.is_empty() || names::subdomain(text).is_empty(),
            (Rule::QualifiedName, Value::String(text)) => names::qualified_name(text).is_empty(),
            (Rule::NoBackStep, Value::String(text)) => !super::steps_back(text),
            (Rule::DescendingPath, Value::String(text)) => !text.starts_with('/') && !super::steps_back(text),
            (Rule::LocalPath, Value::String(text)) => {
                !text.starts_with('/') && !text.starts_with("..") && !super::steps_back(text)
            }
            (Rule::Address, Value::String(text)) => text.is_empty() || super::ip(text).is_none(),
            (Rule::Required(_), Value::Null) => false,
            (_, Value::Null) => true,
            _ => false,
        }
    }
}

/// A step of the path to a value.
#[derive(Clone, Copy)]
enum Place {
    Field(&'static str),
    Index(usize),
}

struct Walk<'e> {
    path: Vec<Place>,
    errors: &'e mut Vec<FieldError>,
}

impl Walk<'_> {
    /// Both the fields of an object and those of a schema are in the order of their names, and so are the errors.
    fn structure(&mut self, schema: Schema<'static>, fields: &Map, depth: usize, wanted: &dyn Fn(&str) -> bool) {
        if depth > DEPTH_MAX {
            return;
        }
        let (plan, names) = (plan(schema), schema::Plan::of(schema));
        let mut required = plan.required.iter().copied().peekable();
        let mut cursor = 0;
        for (name, value) in fields {
            let Some(number) = names.find_key(name, &mut cursor) else {
                continue;
            };
            let place = plan.places[number];
            if place == NOWHERE {
                continue;
            }
            while let Some(absent) = required.next_if(|required| *required < place) {
                self.field(&plan.fields[usize::from(absent)], &Value::Null, depth, wanted);
            }
            required.next_if_eq(&place);
            self.field(&plan.fields[usize::from(place)], value, depth, wanted);
        }
        for absent in required {
            self.field(&plan.fields[usize::from(absent)], &Value::Null, depth, wanted);
        }
    }

    fn field(&mut self, field: &PlanField, value: &Value, depth: usize, wanted: &dyn Fn(&str) -> bool) {
        if value.is_null() && field.rules.is_empty() || !wanted(field.name) {
            return;
        }
        self.path.push(Place::Field(field.name));
        // Of a value that is not there, nothing else can be said.
        let known = self.errors.len();
        for rule in field.rules {
            self.apply(rule, value);
            if matches!(rule, Rule::Required(_)) && self.errors.len() > known {
                break;
            }
        }
        self.value(field.ty, value, depth);
        self.path.pop();
    }

    fn value(&mut self, ty: Type<'static>, value: &Value, depth: usize) {
        match (ty, value) {
            (Type::Schema(schema), Value::Object(fields)) if schema.shape() == Shape::Struct => {
                self.structure(schema, fields, depth + 1, &|_| true);
            }
            (Type::List(element), Value::Array(list)) => {
                if let Type::Schema(_) = element.ty() {
                    for (i, item) in list.iter().enumerate() {
                        self.path.push(Place::Index(i));
                        self.value(element.ty(), item, depth + 1);
                        self.path.pop();
                    }
                }
            }
            _ => {}
        }
    }

    fn apply(&mut self, rule: &Rule, value: &Value) {
        if !rule.allows(value) {
            let field = FieldPath::made(self.path_text());
            check(rule, &At { value, field }, self.errors);
        }
    }

    fn path_text(&self) -> String {
        let mut text = String::new();
        for place in &self.path {
            let _ = match place {
                Place::Field(name) if text.is_empty() => write!(text, "{name}"),
                Place::Field(name) => write!(text, ".{name}"),
                Place::Index(index) => write!(text, "[{index}]"),
            };
        }
        text
    }
}

/// Words what a value that may break a rule breaks.
fn check(rule: &Rule, at: &At<'_>, errors: &mut Vec<FieldError>) {
    let integer = at.integer();
    match (rule, at.value) {
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
            for item in at.items().filter(|item| !rule.allows(item.value)) {
                check(rule, &item, errors);
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
        (Rule::DescendingPath, Value::String(_)) => super::descending_path(at, errors),
        (Rule::LocalPath, Value::String(_)) => super::local_path(at, errors),
        (Rule::Address, Value::String(text)) if !text.is_empty() => {
            errors.extend(super::ip(text).map(|what| at.invalid(what)));
        }
        _ => {}
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
        "descending_path" => Rule::DescendingPath,
        "local_path" => Rule::LocalPath,
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
