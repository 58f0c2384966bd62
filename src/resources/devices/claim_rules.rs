//! Rules of what is asked for of devices: claims, what claims are made of, classes.

use std::collections::HashMap;

use crate::cel::{Environment, Program};
use crate::tree::Value;

use super::names::{fully_qualified, toleration};
use super::{is_too_long, refuse_repeated};
use crate::resources::core::pods::resources::is_extended;
use crate::resources::names::{label, subdomain};
use crate::resources::storage_rules::driver_name;
use crate::resources::validate::At;
use crate::resources::{FieldError, metadata};

/// Most requests, constraints, configurations and selectors of one claim or class, and most alternatives of a request.
const MANY: usize = 32;
const ALTERNATIVES_MAX: usize = 8;
/// Longest expression of a selector, and longest parameters for a driver, in bytes.
const EXPRESSION_LEN_MAX: usize = 10 * 1024;
/// Most that an expression may be estimated to cost for one device; kube-apiserver's number.
const EXPRESSION_COST_MAX: u64 = 1_000_000;
pub(super) const PARAMETERS_LEN_MAX: usize = 10 * 1024;

/// A class of devices.
pub(super) fn class(class: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(class).get("spec");
    selectors(&spec.get("selectors"), errors);
    let configurations = spec.get("config");
    if !is_too_long(&configurations, MANY, errors) {
        for configuration in configurations.items() {
            opaque(&configuration, errors);
        }
    }
    let name = spec.get("extendedResourceName");
    if name.present() && !is_extended(name.text()) {
        errors.push(name.invalid("must be a valid extended resource name"));
    }
}

/// What claims are made of.
pub(super) fn template(template: &Value, errors: &mut Vec<FieldError>) {
    let meta = At::root(template).get("spec.metadata");
    let annotations = meta.get("annotations");
    metadata::annotations(annotations.value.as_object(), &annotations.field, errors);
    let labels = meta.get("labels");
    metadata::labels(Some(labels.value), &labels.field, errors);
    for (name, field) in meta.entries() {
        if !matches!(name, "annotations" | "labels") && !field.value.is_null() {
            let field = format!("{}.{name}", meta.field);
            errors.push(FieldError::forbidden(field, "cannot be set"));
        }
    }
    claim(template, "spec.spec", errors);
}

/// A claim, whose spec is there.
pub(super) fn claim(object: &Value, spec: &'static str, errors: &mut Vec<FieldError>) {
    let devices = At::root(object).get(spec).get("devices");
    let names = Requests::of(&devices);
    let requests = devices.get("requests");
    if !is_too_long(&requests, MANY, errors) {
        for request in requests.items() {
            check_request(&request, errors);
        }
        refuse_repeated(&requests, |request| request.get("name").text(), errors);
    }
    let constraints = devices.get("constraints");
    if !is_too_long(&constraints, MANY, errors) {
        for constraint in constraints.items() {
            names.check_list(&constraint.get("requests"), errors);
            check_constraint(&constraint, errors);
        }
    }
    let configurations = devices.get("config");
    if !is_too_long(&configurations, MANY, errors) {
        for configuration in configurations.items() {
            names.check_list(&configuration.get("requests"), errors);
            opaque(&configuration, errors);
        }
    }
}

/// The names of a claim's requests and of their alternatives.
pub(super) struct Requests<'a>(HashMap<&'a str, Vec<&'a str>>);

impl<'a> Requests<'a> {
    pub(super) fn of(devices: &At<'a>) -> Self {
        let name = |request: &At<'a>| request.get("name").text();
        let requests = devices.get("requests");
        let requests = requests.items().map(|request| {
            let alternatives = request.get("firstAvailable");
            (
                name(&request),
                alternatives.items().map(|alternative| name(&alternative)).collect(),
            )
        });
        Self(requests.collect())
    }

    fn has(&self, reference: &str) -> bool {
        match reference.split_once('/') {
            None => self.0.contains_key(reference),
            Some((request, alternative)) => self
                .0
                .get(request)
                .is_some_and(|alternatives| alternatives.contains(&alternative)),
        }
    }

    /// A reference to a request or to one of its alternatives.
    pub(super) fn check(&self, reference: &At<'_>, errors: &mut Vec<FieldError>) {
        const RULE: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated \
            by '/'";
        let parts: Vec<&str> = reference.text().split('/').collect();
        if parts.len() <= 2 {
            for part in &parts {
                let wrong = label(part).into_iter();
                errors.extend(wrong.map(|what| FieldError::invalid_text(&reference.field, part, what)));
            }
        }
        if !self.has(reference.text()) {
            errors.push(FieldError::invalid_text(&reference.field, reference.text(), RULE));
        }
    }

    pub(super) fn check_list(&self, references: &At<'_>, errors: &mut Vec<FieldError>) {
        if is_too_long(references, MANY, errors) {
            return;
        }
        for reference in references.items() {
            self.check(&reference, errors);
        }
        refuse_repeated(references, At::text, errors);
    }
}

fn check_request(request: &At<'_>, errors: &mut Vec<FieldError>) {
    const RULE: &str = "exactly one of `exactly` or `firstAvailable` is required";
    let name = request.get("name");
    name.check(label(name.text()), errors);
    let (exactly, alternatives) = (request.get("exactly"), request.get("firstAvailable"));
    match (exactly.present(), !alternatives.is_empty()) {
        (false, false) => errors.push(request.required(RULE)),
        (true, true) => {
            let detail = format!("{RULE}, but multiple fields are set");
            errors.push(FieldError::invalid(&request.field, &Value::Null, detail));
        }
        (true, false) => check_wish(&exactly, errors),
        (false, true) => {
            if is_too_long(&alternatives, ALTERNATIVES_MAX, errors) {
                return;
            }
            for alternative in alternatives.items() {
                let name = alternative.get("name");
                name.check(label(name.text()), errors);
                check_wish(&alternative, errors);
            }
            refuse_repeated(&alternatives, |alternative| alternative.get("name").text(), errors);
        }
    }
}

/// Which devices, and how many of them.
fn check_wish(wish: &At<'_>, errors: &mut Vec<FieldError>) {
    let class = wish.get("deviceClassName");
    if class.is_empty() {
        errors.push(class.required(""));
    } else {
        class.check(subdomain(class.text()), errors);
    }
    selectors(&wish.get("selectors"), errors);
    let (mode, count) = (wish.get("allocationMode"), wish.get("count"));
    let number = count.integer().unwrap_or(0);
    let refused = match mode.text() {
        "All" if number != 0 => Some("must not be specified when allocationMode is 'All'"),
        "ExactCount" if number <= 0 => Some("must be greater than zero"),
        "All" | "ExactCount" => None,
        _ => {
            errors.push(FieldError::not_supported(
                &mode.field,
                &mode.text().into(),
                &["All", "ExactCount"],
            ));
            None
        }
    };
    errors.extend(refused.map(|detail| FieldError::invalid(&count.field, &number.into(), detail)));
    for tolerated in wish.get("tolerations").items() {
        toleration(&tolerated, errors);
    }
}

fn selectors(selectors: &At<'_>, errors: &mut Vec<FieldError>) {
    if is_too_long(selectors, MANY, errors) {
        return;
    }
    for selector in selectors.items() {
        let cel = selector.get("cel");
        if cel.present() {
            check_expression(&selector.get("cel.expression"), errors);
        } else {
            errors.push(cel.required(""));
        }
    }
}

/// An expression that selects devices.
fn check_expression(expression: &At<'_>, errors: &mut Vec<FieldError>) {
    if expression.text().len() > EXPRESSION_LEN_MAX {
        errors.push(FieldError::too_long(&expression.field, EXPRESSION_LEN_MAX));
        return;
    }
    match Program::compile(expression.text(), &Environment::of_device()) {
        Err(wrong) => errors.push(FieldError::invalid_text(
            &expression.field,
            expression.text(),
            format_args!("compilation failed: {wrong}"),
        )),
        Ok(program) if !program.gives_bool() => {
            // What messages call the type of attributes.
            let gives = program.gives().replace("(string, dyn)", "(string, any)");
            let detail = format!("must evaluate to bool or the unknown type, not {gives}");
            errors.push(FieldError::invalid_text(&expression.field, expression.text(), detail));
        }
        Ok(program) if program.device_cost_max() > EXPRESSION_COST_MAX => {
            errors.push(expression.forbidden("too complex, exceeds cost limit"));
        }
        Ok(_) => {}
    }
}

fn check_constraint(constraint: &At<'_>, errors: &mut Vec<FieldError>) {
    let (equal, distinct) = (constraint.get("matchAttribute"), constraint.get("distinctAttribute"));
    if equal.present() {
        fully_qualified(&equal, errors);
    } else if distinct.present() {
        fully_qualified(&distinct, errors);
    } else {
        let detail =
            "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
        errors.push(constraint.required(detail));
    }
}

/// What a driver is told, and nobody else understands.
pub(super) fn opaque(configuration: &At<'_>, errors: &mut Vec<FieldError>) {
    let opaque = configuration.get("opaque");
    if !opaque.present() {
        errors.push(opaque.required(""));
        return;
    }
    driver_name(&opaque.get("driver"), errors);
    raw(&opaque.get("parameters"), errors);
}

/// An object that is not too long.
pub(super) fn raw(parameters: &At<'_>, errors: &mut Vec<FieldError>) {
    if !parameters.present() {
        errors.push(parameters.required(""));
    } else if parameters.value.to_string().len() > PARAMETERS_LEN_MAX {
        errors.push(FieldError::too_long(&parameters.field, PARAMETERS_LEN_MAX));
    } else if !parameters.value.is_object() {
        errors.push(FieldError::invalid_text(
            &parameters.field,
            "<value omitted>",
            "must be a valid JSON object",
        ));
    }
}
