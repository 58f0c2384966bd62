//! The group `admissionregistration.k8s.io`: webhooks and policies.

use std::collections::HashSet;

use super::FieldError;
use super::admission_expressions::{self as expressions, Gives};
use super::kind::{Kind, METADATA};
use super::lookup::text;
use super::names::{dns_1035_label, path_segment, qualified_name, subdomain};
use super::row::Row;
use super::validate::{At, label_selector};
use crate::cel::{self, Environment};
use crate::tree::Value;

pub(super) const KINDS: &[Kind] = &[
    Kind::new("mutatingadmissionpolicies.admissionregistration.k8s.io")
        .cells(|row| policies(row, "/spec/mutations"))
        .validate(|policy, errors| {
            let spec = At::root(policy).get("spec");
            let environment = check_policy(&spec, errors).with_objects();
            for mutation in spec.get("mutations").items() {
                check_mutation(&mutation, &environment, errors);
            }
        }),
    Kind::new("mutatingadmissionpolicybindings.admissionregistration.k8s.io")
        .cells(policy_bindings)
        .validate(|binding, errors| check_binding(&At::root(binding).get("spec"), errors)),
    Kind::new("mutatingwebhookconfigurations.admissionregistration.k8s.io")
        .cells(webhooks)
        .validate(check_webhooks),
    Kind::new("validatingadmissionpolicies.admissionregistration.k8s.io")
        .status_keeps(METADATA)
        .cells(|row| policies(row, "/spec/validations"))
        .validate(check_validating_policy),
    Kind::new("validatingadmissionpolicybindings.admissionregistration.k8s.io")
        .cells(policy_bindings)
        .validate(|binding, errors| {
            let spec = At::root(binding).get("spec");
            check_binding(&spec, errors);
            check_actions(&spec.get("validationActions"), errors);
        }),
    Kind::new("validatingwebhookconfigurations.admissionregistration.k8s.io")
        .cells(webhooks)
        .validate(check_webhooks),
];

fn policies(row: &mut Row<'_>, rules: &str) {
    let parameters = row.object.pointer("/spec/paramKind").filter(|kind| !kind.is_null());
    let parameters = parameters.map_or("<unset>".to_owned(), |kind: &Value| {
        format!("{}/{}", text(kind, "/apiVersion"), text(kind, "/kind"))
    });
    row.name().count_at(rules).text(parameters).age();
}

fn policy_bindings(row: &mut Row<'_>) {
    let parameters = row
        .object
        .pointer("/spec/paramRef")
        .filter(|parameters| !parameters.is_null());
    let parameters = parameters.map_or("<unset>".to_owned(), |reference: &Value| {
        match (text(reference, "/namespace"), text(reference, "/name")) {
            ("", "") => "*".to_owned(),
            ("", name) => name.to_owned(),
            (namespace, name) => format!("{namespace}/{name}"),
        }
    });
    row.name().text_at("/spec/policyName").text(parameters).age();
}

fn webhooks(row: &mut Row<'_>) {
    row.name().count_at("/webhooks").age();
}

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];
/// Most conditions of a webhook or a policy, and most audit annotations of a policy.
const CONDITIONS_MAX: usize = 64;
const ANNOTATIONS_MAX: usize = 20;
/// Longest expression of an audit annotation, in bytes.
const ANNOTATION_LEN_MAX: usize = 5 * 1024;

fn check_webhooks(configuration: &Value, errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for hook in At::root(configuration).get("webhooks").items() {
        let name = hook.get("name");
        let wrong = subdomain(name.text());
        if name.is_empty() {
            errors.push(name.required(""));
        } else if !wrong.is_empty() {
            name.check(wrong, errors);
        } else if name.text().split('.').count() < 3 {
            errors.push(name.invalid("should be a domain with at least three segments separated by dots"));
        }
        if !name.is_empty() && !names.insert(name.text()) {
            errors.push(name.duplicate());
        }
        check_review_versions(&hook.get("admissionReviewVersions"), errors);
        if !hook.get("sideEffects").present() {
            errors.push(
                hook.get("sideEffects")
                    .required("must specify one of None, NoneOnDryRun"),
            );
        }
        let client = hook.get("clientConfig");
        let (url, service) = (client.get("url"), client.get("service"));
        match (url.present(), service.present()) {
            (true, false) => check_url(&url, errors),
            (false, true) => check_service(&service, errors),
            _ => errors.push(client.required("exactly one of url or service is required")),
        }
        let timeout = hook.get("timeoutSeconds");
        if timeout
            .integer()
            .is_some_and(|timeout_s| !(1..=30).contains(&timeout_s))
        {
            errors.push(timeout.invalid("the timeout value must be between 1 and 30 seconds"));
        }
        for selector in ["namespaceSelector", "objectSelector"] {
            label_selector(&hook.get(selector), errors);
        }
        for rule in hook.get("rules").items() {
            check_rule(&rule, errors);
        }
        check_conditions(&hook.get("matchConditions"), &Environment::of_admission(false), errors);
    }
}

fn check_review_versions(versions: &At<'_>, errors: &mut Vec<FieldError>) {
    const VERSIONS: &[&str] = &["v1", "v1beta1"];
    let mut known = HashSet::new();
    for version in versions.items() {
        if known.insert(version.text()) {
            version.check(dns_1035_label(version.text()), errors);
        } else {
            errors.push(version.invalid("duplicate version"));
        }
    }
    // That there is one is in the table of rules.
    if !versions.is_empty() && !versions.items().any(|version| VERSIONS.contains(&version.text())) {
        errors.push(versions.invalid("must include at least one of v1, v1beta1"));
    }
}

pub(super) fn check_url(url: &At<'_>, errors: &mut Vec<FieldError>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut wrong = |part: &str, what: &str| {
        errors.push(FieldError::invalid_text(&url.field, part, format_args!("{what}{FORM}")));
    };
    let (rest, fragment) = url.text().split_once('#').unwrap_or((url.text(), ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    if scheme != "https" {
        wrong(scheme, "'https' is the only allowed URL scheme");
    }
    let authority = if scheme.is_empty() {
        ""
    } else {
        rest.split('/').next().unwrap_or("")
    };
    let (user, host) = authority
        .rsplit_once('@')
        .map_or((None, authority), |(user, host)| (Some(user), host));
    if host.is_empty() {
        wrong("", "host must be specified");
    }
    if let Some(user) = user {
        wrong(user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        wrong(fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        wrong(query, "query parameters are not permitted in the URL");
    }
}

pub(super) fn check_service(service: &At<'_>, errors: &mut Vec<FieldError>) {
    let (name, namespace, port) = (service.get("name"), service.get("namespace"), service.get("port"));
    if name.is_empty() {
        errors.push(name.required("service name is required"));
    }
    if namespace.is_empty() {
        errors.push(namespace.required("service namespace is required"));
    }
    if port.integer().is_some_and(|port| !(1..=65535).contains(&port)) {
        errors.push(port.invalid("port is not valid: must be between 1 and 65535, inclusive"));
    }
    let path = service.get("path");
    match path.text() {
        "" | "/" => {}
        "//" => errors.push(path.invalid("segment[0] may not be empty")),
        text => {
            if !text.starts_with('/') {
                errors.push(path.invalid("must start with a '/'"));
            }
            let steps = text.get(1..).unwrap_or("");
            let steps = steps.strip_suffix('/').unwrap_or(steps).split('/');
            for (i, step) in steps.enumerate() {
                if step.is_empty() {
                    errors.push(path.invalid(format_args!("segment[{i}] may not be empty")));
                    continue;
                }
                for what in subdomain(step) {
                    errors.push(path.invalid(format_args!("segment[{i}]: {what}")));
                }
            }
        }
    }
}

/// Which requests are looked at. (What must not be empty is in the table of rules.)
fn check_rule(rule: &At<'_>, errors: &mut Vec<FieldError>) {
    for (field, others) in [
        ("operations", "operations"),
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
    ] {
        let all = rule.get(field);
        if all.items().count() > 1 && all.items().any(|one| one.text() == "*") {
            errors.push(all.invalid(format_args!("if '*' is present, must not specify other {others}")));
        }
    }
    for operation in rule
        .get("operations")
        .items()
        .filter(|it| !OPERATIONS.contains(&it.text()))
    {
        errors.push(operation.not_supported(OPERATIONS));
    }
    for version in rule.get("apiVersions").items().filter(At::is_empty) {
        errors.push(version.required(""));
    }
    check_resources(&rule.get("resources"), errors);
    rule.get("scope").one_of(SCOPES, errors);
}

fn check_resources(resources: &At<'_>, errors: &mut Vec<FieldError>) {
    let (mut whole, mut subs) = (HashSet::new(), HashSet::new());
    let (mut all, mut everything, mut plain) = (false, false, false);
    for resource in resources.items() {
        let name = resource.text();
        if name.is_empty() {
            errors.push(resource.required(""));
        }
        everything |= name == "*/*";
        all |= name == "*";
        let Some((parent, sub)) = name.split_once('/') else {
            plain = name != "*";
            continue;
        };
        if whole.contains(parent) {
            errors.push(resource.invalid(format_args!("if '{parent}/*' is present, must not specify {name}")));
        }
        if subs.contains(sub) {
            errors.push(resource.invalid(format_args!("if '*/{sub}' is present, must not specify {name}")));
        }
        if sub == "*" {
            whole.insert(parent);
        }
        if parent == "*" {
            subs.insert(sub);
        }
    }
    if everything && resources.items().count() > 1 {
        errors.push(resources.invalid("if '*/*' is present, must not specify other resources"));
    }
    if all && plain {
        errors.push(resources.invalid("if '*' is present, must not specify other resources without subresources"));
    }
}

fn check_conditions(conditions: &At<'_>, environment: &Environment, errors: &mut Vec<FieldError>) {
    let count = conditions.items().count();
    if count > CONDITIONS_MAX {
        errors.push(FieldError::too_many(&conditions.field, count, CONDITIONS_MAX));
    }
    let mut names = HashSet::new();
    for condition in conditions.items() {
        let (name, expression) = (condition.get("name"), condition.get("expression"));
        if expression.text().trim().is_empty() {
            errors.push(expression.required(""));
        }
        expressions::check(&expression, environment, Gives::Bool, errors);
        if name.is_empty() {
            errors.push(name.required(""));
            continue;
        }
        name.check(qualified_name(name.text()), errors);
        if !names.insert(name.text()) {
            errors.push(name.duplicate());
        }
    }
}

/// What policies of both kinds have.
fn check_policy(spec: &At<'_>, errors: &mut Vec<FieldError>) -> Environment {
    let kind = spec.get("paramKind");
    if kind.present() {
        check_parameter_kind(&kind, errors);
    }
    let matches = spec.get("matchConstraints");
    if matches.present() {
        check_matches(&matches, errors);
        if matches.get("resourceRules").is_empty() {
            errors.push(matches.get("resourceRules").required(""));
        }
    } else {
        errors.push(matches.required(""));
    }
    let asked = Environment::of_admission(kind.present());
    check_conditions(&spec.get("matchConditions"), &asked, errors);
    for variable in spec.get("variables").items() {
        let (name, expression) = (variable.get("name"), variable.get("expression"));
        if name.text().trim().is_empty() {
            errors.push(name.required("name is not specified"));
        } else if !cel::is_identifier(name.text()) {
            errors.push(name.invalid("name is not a valid CEL identifier"));
        }
        if expression.text().trim().is_empty() {
            errors.push(expression.required("expression is not specified"));
        }
    }
    expressions::of_policy(spec, errors)
}

fn check_parameter_kind(parameters: &At<'_>, errors: &mut Vec<FieldError>) {
    let (version, kind) = (parameters.get("apiVersion"), parameters.get("kind"));
    let mut refuse = |shown: &str, wrong: Vec<String>| {
        if !wrong.is_empty() {
            errors.push(FieldError::invalid_text(&version.field, shown, wrong.join(",")));
        }
    };
    match version.text().split('/').collect::<Vec<_>>()[..] {
        [""] => errors.push(version.required("")),
        [name] => refuse(name, dns_1035_label(name)),
        [group, name] => {
            if !group.is_empty() {
                refuse(group, subdomain(group));
            }
            if name.is_empty() {
                errors.push(version.invalid("version must be specified"));
            } else {
                refuse(name, dns_1035_label(name));
            }
        }
        _ => errors.push(version.invalid(format_args!("unexpected GroupVersion string: {}", version.text()))),
    }
    if kind.is_empty() {
        errors.push(kind.required(""));
        return;
    }
    let wrong = dns_1035_label(&kind.text().to_lowercase());
    if !wrong.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
        errors.push(kind.invalid(detail));
    }
}

fn check_matches(matches: &At<'_>, errors: &mut Vec<FieldError>) {
    for selector in ["namespaceSelector", "objectSelector"] {
        label_selector(&matches.get(selector), errors);
    }
    for rules in ["resourceRules", "excludeResourceRules"] {
        for rule in matches.get(rules).items() {
            let mut known = HashSet::new();
            for name in rule.get("resourceNames").items() {
                name.check(path_segment(name.text(), false), errors);
                if !known.insert(name.text()) {
                    errors.push(name.duplicate());
                }
            }
            check_rule(&rule, errors);
        }
    }
}

fn check_validating_policy(policy: &Value, errors: &mut Vec<FieldError>) {
    const NOTHING: &str = "validations or auditAnnotations must contain at least one item";
    const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];
    let root = At::root(policy);
    let spec = root.get("spec");
    let environment = check_policy(&spec, errors);
    let (validations, annotations) = (spec.get("validations"), spec.get("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        errors.extend([validations.required(NOTHING), annotations.required(NOTHING)]);
    }
    for validation in validations.items() {
        let part = |name: &'static str| validation.get(name);
        let (expression, message, made) = (part("expression"), part("message"), part("messageExpression"));
        if expression.text().trim().is_empty() {
            errors.push(expression.required("expression is not specified"));
        }
        expressions::check(&expression, &environment, Gives::Bool, errors);
        if !made.is_empty() && made.text().trim().is_empty() {
            errors.push(made.invalid("must be non-empty if specified"));
        }
        expressions::check(&made, &environment, Gives::Text, errors);
        if !message.is_empty() && message.text().trim().is_empty() {
            errors.push(message.invalid("message must be non-empty if specified"));
        } else if message.text().trim().contains(['\n', '\r']) {
            errors.push(message.invalid("message must not contain line breaks"));
        }
        validation.get("reason").one_of(REASONS, errors);
    }
    if annotations.items().count() > ANNOTATIONS_MAX {
        let detail = format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations");
        errors.push(annotations.invalid(detail));
    }
    let name = root.get("metadata.name").text();
    let mut keys = HashSet::new();
    for annotation in annotations.items() {
        let (key, expression) = (annotation.get("key"), annotation.get("valueExpression"));
        let whole = format!("{name}/{}", key.text());
        let wrong = qualified_name(&whole).into_iter();
        errors.extend(wrong.map(|what| FieldError::invalid_text(&key.field, &whole, what)));
        let len = expression.text().trim().len();
        if len == 0 {
            errors.push(expression.required("valueExpression is not specified"));
        } else if len > ANNOTATION_LEN_MAX {
            let detail = format!("must not exceed {ANNOTATION_LEN_MAX} bytes in length");
            errors.push(expression.required(&detail));
        } else {
            expressions::check(&expression, &environment, Gives::TextOrNull, errors);
        }
        if !keys.insert(key.text()) {
            errors.push(key.duplicate());
        }
    }
}

/// A change by a configuration that is applied, or by a JSON patch.
fn check_mutation(mutation: &At<'_>, environment: &Environment, errors: &mut Vec<FieldError>) {
    const TYPES: &[&str] = &["ApplyConfiguration", "JSONPatch"];
    let kind = mutation.get("patchType");
    let (apply, patch) = (mutation.get("applyConfiguration"), mutation.get("jsonPatch"));
    let (own, other) = match kind.text() {
        "" => return errors.push(kind.required("")),
        "ApplyConfiguration" => (apply, patch),
        "JSONPatch" => (patch, apply),
        _ => return errors.push(kind.not_supported(TYPES)),
    };
    if !own.present() {
        errors.push(own.required(&format!("must be specified when patchType is {}", kind.text())));
    } else if own.get("expression").text().trim().is_empty() {
        errors.push(own.get("expression").required("expression is not specified"));
    } else {
        let gives = if kind.text() == "JSONPatch" {
            Gives::Patch
        } else {
            Gives::Object
        };
        expressions::check(&own.get("expression"), environment, gives, errors);
    }
    if other.present() {
        errors.push(other.invalid(format_args!("must not be specified when patchType is {}", kind.text())));
    }
}

/// What bindings of both kinds have.
fn check_binding(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    const BOTH: &str = "name and selector are mutually exclusive";
    let policy = spec.get("policyName");
    if policy.is_empty() {
        errors.push(policy.required(""));
    } else {
        policy.check(subdomain(policy.text()), errors);
    }
    let matches = spec.get("matchResources");
    if matches.present() {
        check_matches(&matches, errors);
    }
    let parameters = spec.get("paramRef");
    if !parameters.present() {
        return;
    }
    let (name, selector) = (parameters.get("name"), parameters.get("selector"));
    if !name.is_empty() {
        name.check(path_segment(name.text(), false), errors);
    }
    if selector.present() {
        label_selector(&selector, errors);
    }
    match (name.is_empty(), selector.present()) {
        (false, true) => errors.extend([name.forbidden(BOTH), selector.forbidden(BOTH)]),
        (true, false) => errors.push(parameters.required("one of name or selector must be specified")),
        _ => {}
    }
    let missing = parameters.get("parameterNotFoundAction");
    if missing.is_empty() {
        errors.push(missing.required(""));
    } else {
        missing.one_of(&["Deny", "Allow"], errors);
    }
}

fn check_actions(actions: &At<'_>, errors: &mut Vec<FieldError>) {
    const ACTIONS: &[&str] = &["Audit", "Deny", "Warn"];
    let mut known = HashSet::new();
    for action in actions.items() {
        if !ACTIONS.contains(&action.text()) {
            errors.push(action.not_supported(ACTIONS));
        }
        if !known.insert(action.text()) {
            errors.push(action.duplicate());
        }
    }
    if known.contains("Deny") && known.contains("Warn") {
        errors.push(actions.invalid(
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response \
             and headers serves no purpose)",
        ));
    }
    if known.is_empty() {
        errors.push(actions.required("at least one validation action is required"));
    }
}
