//! What a definition is refused for about its rules.

use std::sync::Arc;

use super::super::cost::{self, Range};
use super::super::program::Program;
use super::super::shape::{REQUEST_LEN_MAX, Shape, escaped};
use super::super::types::Type;
use super::compiled::{environment, has_rules, own_rules};
use super::field_path::normalized;
use super::{Broken, Reason};
use crate::tree::Value;

/// Most that one rule may be estimated to cost for one object; kube-apiserver's number.
const RULE_COST_MAX: u64 = 10_000_000;
/// Most that all rules of a schema may be estimated to cost for one object; kube-apiserver's number.
const SCHEMA_COST_MAX: u64 = 100_000_000;
/// How many of the dearest rules are named when all together are too dear.
const DEAREST_MAX: usize = 4;
/// Deepest schema that is walked.
const DEPTH_MAX: usize = 128;
const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// What is wrong with how rules are written, wherever they stand in a schema. `path` is where the schema stands.
pub fn check_form(schema: &Value, path: &str) -> Vec<Broken> {
    let mut broken = Vec::new();
    form(schema, path, DEPTH_MAX, &mut broken);
    broken
}

/// What is wrong with what rules say: types, costs, `oldSelf` where there can be none. For a schema that is right otherwise.
pub fn check_rules(schema: &Value, path: &str) -> Vec<Broken> {
    if !has_rules(schema) {
        return Vec::new();
    }
    let mut check = Check {
        broken: Vec::new(),
        total: 0,
        dearest: Vec::new(),
    };
    let place = Place {
        shape: Shape::of_schema(schema, true),
        times_max: Some(1),
        apart: None,
    };
    check.node(schema, path, &place, DEPTH_MAX);
    if check.total > SCHEMA_COST_MAX {
        for (_, path) in std::mem::take(&mut check.dearest) {
            let detail = "contributed to estimated rule & messageExpression cost total exceeding cost limit for entire \
                          OpenAPIv3 schema";
            check.forbid(path, detail.to_owned());
        }
        let name = "x-kubernetes-validations estimated rule & messageExpression cost total for entire OpenAPIv3 schema";
        check.forbid(path.to_owned(), too_dear(name, check.total, SCHEMA_COST_MAX));
    }
    check.broken
}

/// The schemas below one, and what their paths go on with.
fn below(schema: &Value) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    for name in ["properties", "patternProperties", "definitions"] {
        let properties = schema[name].as_object().into_iter().flat_map(|map| map.iter());
        found.extend(properties.map(|(key, property)| (format!(".{name}[{key}]"), property)));
    }
    for name in ["items", "additionalProperties", "not"] {
        let one = schema.get(name).filter(|below| below.is_object());
        found.extend(one.map(|below| (format!(".{name}"), below)));
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        let parts = schema[name].as_array().into_iter().flat_map(|parts| parts.iter());
        found.extend(parts.enumerate().map(|(at, part)| (format!(".{name}[{at}]"), part)));
    }
    found
}

fn form(schema: &Value, path: &str, depth: usize, broken: &mut Vec<Broken>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    for (more, below) in below(schema) {
        form(below, &format!("{path}{more}"), depth, broken);
    }
    for (at, rule) in own_rules(schema).iter().enumerate() {
        let text = |name: &str| rule[name].as_str().unwrap_or("");
        let mut tell = |name: &str, reason: Reason, detail: &str| {
            let shown = (reason != Reason::Required).then(|| rule[name].to_json());
            broken.push(Broken {
                path: format!("{path}.x-kubernetes-validations[{at}].{name}"),
                reason,
                shown,
                detail: detail.to_owned(),
            });
        };
        let lines = |text: &str| text.contains(['\n', '\r']);
        let (expression, message) = (text("rule").trim(), text("message"));
        if expression.is_empty() {
            tell("rule", Reason::Required, "rule is not specified");
        } else if !message.is_empty() && message.trim().is_empty() {
            tell("message", Reason::Invalid, "message must be non-empty if specified");
        } else if lines(message.trim()) {
            tell("message", Reason::Invalid, "message must not contain line breaks");
        } else if lines(expression) && message.trim().is_empty() {
            tell(
                "message",
                Reason::Required,
                "message must be specified if rule contains line breaks",
            );
        }
        if !text("messageExpression").is_empty() && text("messageExpression").trim().is_empty() {
            tell(
                "messageExpression",
                Reason::Required,
                "messageExpression must be non-empty if specified",
            );
        }
        if rule["reason"].as_str().is_some_and(|reason| !REASONS.contains(&reason)) {
            let supported: Vec<String> = REASONS.iter().map(|reason| format!("\"{reason}\"")).collect();
            tell(
                "reason",
                Reason::NotSupported,
                &format!("supported values: {}", supported.join(", ")),
            );
        }
        let field = text("fieldPath");
        if field.is_empty() {
            continue;
        }
        if field.trim().is_empty() {
            tell("fieldPath", Reason::Invalid, "fieldPath must be non-empty if specified");
        }
        if lines(field) {
            tell("fieldPath", Reason::Invalid, "fieldPath must not contain line breaks");
        }
        if normalized(field, schema).is_err() {
            tell("fieldPath", Reason::Invalid, "fieldPath must be a valid path");
        }
    }
}

/// Where a node of the schema is.
struct Place {
    shape: Option<Arc<Shape>>,
    /// How often the node can be in one object; `None` when the schema does not say.
    times_max: Option<u64>,
    /// The part of the schema around it in which old and new cannot be told to belong together.
    apart: Option<String>,
}

struct Check {
    broken: Vec<Broken>,
    total: u64,
    /// The dearest rules, the dearest first.
    dearest: Vec<(u64, String)>,
}

impl Check {
    fn forbid(&mut self, path: String, detail: String) {
        self.broken.push(Broken {
            path,
            reason: Reason::Forbidden,
            shown: None,
            detail,
        });
    }

    fn invalid(&mut self, path: String, shown: String, detail: String) {
        self.broken.push(Broken {
            path,
            reason: Reason::Invalid,
            shown: Some(shown),
            detail,
        });
    }

    fn node(&mut self, schema: &Value, path: &str, place: &Place, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        if !has_rules(schema) {
            return;
        }
        let apart = |above: bool| place.apart.clone().or_else(|| above.then(|| path.to_owned()));
        let times = |name: &str| {
            let most = schema[name].as_i64().map(|most| most.max(0) as u64);
            place
                .times_max
                .zip(most)
                .map(|(times, most)| times.saturating_mul(most))
        };
        let maps_apart = !matches!(
            schema["x-kubernetes-map-type"].as_str(),
            None | Some("granular" | "atomic")
        );
        for (name, property) in schema["properties"].as_object().into_iter().flat_map(|map| map.iter()) {
            let embedded = property["x-kubernetes-embedded-resource"].as_bool() == Some(true);
            let shape = match escaped(name) {
                Some(escaped) => {
                    let field = place.shape.as_ref().and_then(|shape| shape.field(&escaped));
                    field.map(|field| field.shape.clone())
                }
                None => Shape::of_schema(property, embedded),
            };
            let below = Place {
                shape,
                times_max: place.times_max,
                apart: apart(maps_apart),
            };
            self.node(property, &format!("{path}.properties[{name}]"), &below, depth);
        }
        let element = || place.shape.as_ref().and_then(|shape| shape.element()).cloned();
        if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
            let below = Place {
                shape: element(),
                times_max: times("maxItems"),
                apart: apart(schema["x-kubernetes-list-type"] != "map"),
            };
            self.node(items, &format!("{path}.items"), &below, depth);
        }
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            let below = Place {
                shape: element(),
                times_max: times("maxProperties"),
                apart: place.apart.clone(),
            };
            self.node(values, &format!("{path}.additionalProperties"), &below, depth);
        }
        for (at, rule) in own_rules(schema).iter().enumerate() {
            self.rule(rule, &format!("{path}.x-kubernetes-validations[{at}]"), place, schema);
        }
    }

    fn rule(&mut self, rule: &Value, path: &str, place: &Place, schema: &Value) {
        let text = |name: &str| rule[name].as_str().unwrap_or("");
        let expression = text("rule");
        if expression.trim().is_empty() {
            return;
        }
        let Some(shape) = &place.shape else {
            self.broken.push(Broken {
                path: path.rsplit_once('[').map_or(path, |(path, _)| path).to_owned(),
                reason: Reason::Internal,
                shown: None,
                detail: format!(
                    "rule declared on schema that does not support validation rules type: '{}' \
                     x-kubernetes-preserve-unknown-fields: '{}'",
                    schema["type"].as_str().unwrap_or(""),
                    schema["x-kubernetes-preserve-unknown-fields"].as_bool() == Some(true)
                ),
            });
            return;
        };
        let environment = environment(shape, rule["optionalOldSelf"].as_bool() == Some(true));
        let at_rule = format!("{path}.rule");
        let program = match Program::compile(expression, &environment) {
            Ok(program) if *program.result() == Type::Bool => program,
            Ok(_) => return self.invalid(at_rule, shown(rule), "must evaluate to a bool".into()),
            Err(wrong) => return self.invalid(at_rule, shown(rule), format!("compilation failed: {wrong}")),
        };
        let cost = cost::estimate(&program.checked, shape);
        // Where the schema does not say how often, as often as the smallest value fits into a request.
        let times = place.times_max.unwrap_or(REQUEST_LEN_MAX / (shape.len_min + 1));
        self.observe(at_rule.clone(), "estimated rule cost", cost, times);
        if !text("messageExpression").is_empty() {
            self.message(rule, path, shape, &environment);
        }
        if program.uses(&environment, "oldSelf") {
            if let Some(apart) = &place.apart {
                let detail =
                    format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {apart}");
                self.invalid(at_rule, rule["rule"].to_json(), detail);
            }
        } else if !rule["optionalOldSelf"].is_null() {
            self.invalid(
                format!("{path}.optionalOldSelf"),
                rule["optionalOldSelf"].to_json(),
                "may not be set if oldSelf is not used in rule".into(),
            );
        }
    }

    fn message(
        &mut self,
        rule: &Value,
        path: &str,
        shape: &Arc<Shape>,
        environment: &super::super::environment::Environment,
    ) {
        let at = format!("{path}.messageExpression");
        let text = rule["messageExpression"].as_str().unwrap_or("");
        match Program::compile(text, environment) {
            Ok(program) if *program.result() == Type::String => {
                let cost = cost::estimate(&program.checked, shape);
                self.observe(at, "estimated messageExpression cost", cost, 1);
            }
            Ok(_) => self.invalid(at, shown(rule), "messageExpression must evaluate to a string".into()),
            Err(wrong) => {
                let detail = format!("messageExpression compilation failed: {wrong}");
                self.invalid(at, shown(rule), detail);
            }
        }
    }

    fn observe(&mut self, path: String, name: &str, cost: Range, times: u64) {
        let cost = cost.max.saturating_mul(times);
        if cost > RULE_COST_MAX {
            self.forbid(path.clone(), too_dear(name, cost, RULE_COST_MAX));
        }
        self.total = self.total.saturating_add(cost);
        if cost < SCHEMA_COST_MAX / 100 {
            return;
        }
        let at = self.dearest.partition_point(|(other, _)| *other >= cost);
        self.dearest.insert(at, (cost, path));
        self.dearest.truncate(DEAREST_MAX);
    }
}

/// How much dearer than allowed something is.
fn too_dear(name: &str, cost: u64, max: u64) -> String {
    let factor = cost as f64 / max as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// A rule as kube-apiserver shows it: under the names of its own program.
fn shown(rule: &Value) -> String {
    let names = [
        ("Rule", "rule", true),
        ("Message", "message", true),
        ("MessageExpression", "messageExpression", true),
        ("Reason", "reason", false),
        ("FieldPath", "fieldPath", true),
        ("OptionalOldSelf", "optionalOldSelf", false),
    ];
    let parts: Vec<String> = names
        .into_iter()
        .map(|(shown, name, is_text)| match &rule[name] {
            Value::Null if is_text => format!("\"{shown}\":\"\""),
            value => format!("\"{shown}\":{}", value.to_json()),
        })
        .collect();
    format!("{{{}}}", parts.join(","))
}
