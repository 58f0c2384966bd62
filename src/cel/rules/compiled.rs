//! The rules of a schema, made ready, as a tree of those of its nodes that have some or lead to some.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::environment::Environment;
use super::super::program::Program;
use super::super::shape::{Shape, escaped};
use super::Reason;
use super::field_path::normalized;
use crate::tree::Value;

/// Up to so many items of a list are looked through one by one.
const LOOKED_THROUGH_MAX: usize = 16;

/// Deepest schema that is walked. Deeper ones are not accepted by the parser of requests.
const DEPTH_MAX: usize = 128;

/// A node of the schema.
#[derive(Debug)]
pub(super) struct Node {
    /// `None` where expressions see nothing.
    pub(super) shape: Option<Arc<Shape>>,
    pub(super) rules: Vec<Rule>,
    pub(super) fields: Vec<(Box<str>, Node)>,
    pub(super) items: Option<Box<Node>>,
    pub(super) values: Option<Box<Node>>,
    pub(super) all_of: Vec<Node>,
    /// `x-kubernetes-list-type`
    pub(super) list_type: Option<Box<str>>,
    list_keys: Vec<Box<str>>,
    /// Whether values of the same name belong together.
    pub(super) map_correlates: bool,
}

/// A rule.
#[derive(Debug)]
pub(super) struct Rule {
    /// The expression, or why there is none.
    pub(super) program: Result<Program, String>,
    pub(super) message_program: Option<Program>,
    pub(super) expression: Box<str>,
    pub(super) message: Box<str>,
    pub(super) message_expression: Box<str>,
    pub(super) reason: Reason,
    /// Where it is told, from the node on: `.spec.a`.
    pub(super) path: Box<str>,
    pub(super) uses_old: bool,
    pub(super) old_is_optional: bool,
}

impl Rule {
    /// How messages about the rule call it.
    pub(super) fn shown(&self) -> &str {
        if self.message.is_empty() {
            self.expression.trim()
        } else {
            self.message.trim()
        }
    }

    pub(super) fn default_message(&self) -> String {
        if self.message.is_empty() {
            format!("failed rule: {}", self.shown())
        } else {
            self.message.trim().to_owned()
        }
    }
}

impl Node {
    /// Whether two items of the list have the same keys.
    fn same_keys(&self, one: &Value, other: &Value) -> bool {
        one.is_object() && other.is_object() && self.list_keys.iter().all(|key| one[&**key] == other[&**key])
    }

    /// The keys of an item of the list as one text; none of what is no object.
    fn key_of(&self, item: &Value) -> Option<String> {
        item.is_object().then(|| {
            let keys = self.list_keys.iter().map(|key| item[&**key].to_json());
            keys.collect::<Vec<_>>().join(",")
        })
    }
}

/// What a list with keys was before, to be found by what its items are now.
pub(super) struct OldItems<'o> {
    node: &'o Node,
    old: &'o [Value],
    by_key: Option<HashMap<String, usize>>,
}

impl<'o> OldItems<'o> {
    /// None of lists without keys. Goes through the list once.
    pub(super) fn of(node: &'o Node, old: Option<&'o Value>) -> Option<OldItems<'o>> {
        if node.list_type.as_deref() != Some("map") {
            return None;
        }
        let old = old?.as_array()?.as_slice();
        let by_key = (old.len() > LOOKED_THROUGH_MAX).then(|| {
            let mut by_key = HashMap::with_capacity(old.len());
            for (at, item) in old.iter().enumerate() {
                if let Some(key) = node.key_of(item) {
                    by_key.entry(key).or_insert(at);
                }
            }
            by_key
        });
        Some(OldItems { node, old, by_key })
    }

    /// The first old item with the keys of a new one.
    pub(super) fn of_new(&self, item: &Value) -> Option<&'o Value> {
        match &self.by_key {
            Some(by_key) => self.old.get(*by_key.get(&self.node.key_of(item)?)?),
            None => self.old.iter().find(|old| self.node.same_keys(old, item)),
        }
    }
}

/// The rules that stand at a node of a schema.
pub(super) fn own_rules(schema: &Value) -> &[Value] {
    let rules = schema["x-kubernetes-validations"].as_array();
    rules.map_or(&[], |rules| rules.as_slice())
}

/// Whether a schema has rules anywhere.
pub(super) fn has_rules(schema: &Value) -> bool {
    within(schema, DEPTH_MAX)
}

fn within(schema: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else {
        return false;
    };
    !own_rules(schema).is_empty()
        || schema["properties"]
            .as_object()
            .is_some_and(|properties| properties.values().any(|property| within(property, depth)))
        || ["items", "additionalProperties"]
            .into_iter()
            .filter_map(|name| schema.get(name))
            .any(|below| below.is_object() && within(below, depth))
        || schema["allOf"]
            .as_array()
            .is_some_and(|parts| parts.iter().any(|part| within(part, depth)))
}

/// The variables of a rule at a node of that shape.
pub(super) fn environment(shape: &Arc<Shape>, old_is_optional: bool) -> Environment {
    Environment::new()
        .with_shape("self", shape, false)
        .with_shape("oldSelf", shape, old_is_optional)
}

/// The node of a schema and what is below it; `None` if there is no rule.
pub(super) fn node(schema: &Value, shape: Option<Arc<Shape>>, depth: usize) -> Option<Node> {
    if depth > DEPTH_MAX || !within(schema, DEPTH_MAX - depth.min(DEPTH_MAX)) {
        return None;
    }
    let rules = own_rules(schema)
        .iter()
        .filter(|rule| !rule["rule"].as_str().unwrap_or("").trim().is_empty())
        .map(|rule| compile(rule, schema, shape.as_ref()))
        .collect();
    let mut fields = Vec::new();
    for (name, property) in schema["properties"].as_object().into_iter().flat_map(|map| map.iter()) {
        let below = match escaped(name) {
            Some(escaped) => {
                let field = shape.as_ref().and_then(|shape| shape.field(&escaped));
                match field {
                    Some(field) => field.shape.clone(),
                    // What has no type is left out altogether.
                    None => continue,
                }
            }
            None => match Shape::of_schema(property, property["x-kubernetes-embedded-resource"] == true) {
                Some(shape) => shape,
                None => continue,
            },
        };
        if let Some(below) = node(property, Some(below), depth + 1) {
            fields.push((name.as_str().into(), below));
        }
    }
    let element = || shape.as_ref().and_then(|shape| shape.element()).cloned();
    let below = |name: &str| {
        let schema = schema.get(name).filter(|schema| schema.is_object())?;
        node(schema, element(), depth + 1).map(Box::new)
    };
    let (items, values) = (below("items"), below("additionalProperties"));
    let parts = schema["allOf"].as_array();
    let all_of = parts
        .into_iter()
        .flat_map(|parts| parts.iter())
        .filter_map(|part| node(part, shape.clone(), depth + 1))
        .collect();
    Some(Node {
        rules,
        fields,
        items,
        values,
        all_of,
        list_type: schema["x-kubernetes-list-type"].as_str().map(Into::into),
        list_keys: schema["x-kubernetes-list-map-keys"]
            .as_array()
            .into_iter()
            .flat_map(|keys| keys.iter())
            .filter_map(|key| key.as_str().map(Into::into))
            .collect(),
        map_correlates: matches!(
            schema["x-kubernetes-map-type"].as_str(),
            None | Some("granular" | "atomic")
        ),
        shape,
    })
}

fn compile(rule: &Value, schema: &Value, shape: Option<&Arc<Shape>>) -> Rule {
    let text = |name: &str| rule[name].as_str().unwrap_or("");
    let old_is_optional = rule["optionalOldSelf"].as_bool() == Some(true);
    let environment = shape.map(|shape| environment(shape, old_is_optional));
    let (mut program, mut message_program) = (Err("the schema has no type".to_owned()), None);
    if let Some(environment) = &environment {
        program = Program::compile(text("rule"), environment)
            .map_err(|wrong| format!("compilation failed: {wrong}"))
            .and_then(|program| {
                if program.gives_bool() {
                    Ok(program)
                } else {
                    Err("must evaluate to a bool".to_owned())
                }
            });
        if !text("messageExpression").is_empty() {
            message_program = Program::compile(text("messageExpression"), environment).ok();
        }
    }
    let uses_old = |program: &Program| {
        environment
            .as_ref()
            .is_some_and(|environment| program.uses(environment, "oldSelf"))
    };
    Rule {
        uses_old: program.as_ref().is_ok_and(uses_old),
        expression: text("rule").into(),
        message: text("message").into(),
        message_expression: text("messageExpression").into(),
        reason: match text("reason") {
            "FieldValueForbidden" => Reason::Forbidden,
            "FieldValueRequired" => Reason::Required,
            "FieldValueDuplicate" => Reason::Duplicate,
            _ => Reason::Invalid,
        },
        path: normalized(text("fieldPath"), schema).unwrap_or_default().into(),
        old_is_optional,
        program,
        message_program,
    }
}
