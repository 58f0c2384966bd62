//! The group `flowcontrol.apiserver.k8s.io`.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use crate::tree::{Value, json};

use super::FieldError;
use super::edit::set_at;
use super::kind::Kind;
use super::lookup::{condition, integer, list, text};
use super::names::{label, subdomain};
use super::validate::{At, capitalized};

pub(super) const KINDS: &[Kind] = &[
    Kind::new("flowschemas.flowcontrol.apiserver.k8s.io")
        .cells(|row| {
            let dangling = condition(row.object, "Dangling").map_or("?", |condition| text(condition, "/status"));
            row.name()
                .text_at("/spec/priorityLevelConfiguration/name")
                .integer_at("/spec/matchingPrecedence")
                .text_or("/spec/distinguisherMethod/type", "<none>")
                .age()
                .text(dangling);
        })
        .defaults(|schema| unless_zero(schema, "/spec", &[("matchingPrecedence", 1000)]))
        .validate(check_flow_schema)
        .validate_status(|_, schema, errors| once_each(schema, errors)),
    Kind::new("prioritylevelconfigurations.flowcontrol.apiserver.k8s.io")
        .cells(|row| {
            let queuing = "/spec/limited/limitResponse/queuing";
            row.name()
                .text_at("/spec/type")
                .integer_or("/spec/limited/nominalConcurrencyShares", "<none>");
            for field in ["queues", "handSize", "queueLengthLimit"] {
                row.integer_or(&format!("{queuing}/{field}"), "<none>");
            }
            row.age();
        })
        .defaults(|level| {
            let sizes = &[("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)];
            unless_zero(level, "/spec/limited/limitResponse/queuing", sizes);
        })
        .validate(check_priority_level)
        .validate_status(|_, level, errors| once_each(level, errors)),
];

/// A zero counts as left out.
fn unless_zero(object: &mut Value, parent: &str, fields: &[(&'static str, i64)]) {
    for (field, value) in fields {
        if integer(object, &format!("{parent}/{field}")) == Some(0) {
            set_at(object, parent, field, *value);
        }
    }
}

const PRECEDENCE_MAX: i64 = 10_000;
const QUEUES_MAX: i64 = 10_000_000;
/// Bits of the hash by which a flow gets its hand of queues.
const HASH_BITS: f64 = 60.0;

fn check_flow_schema(schema: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(schema).get("spec");
    let name = text(schema, "/metadata/name");
    let precedence = spec.get("matchingPrecedence");
    match precedence.integer().unwrap_or(0) {
        ..=0 => errors.push(precedence.invalid("must be a positive value")),
        1 if name != "exempt" => {
            errors.push(precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1"));
        }
        number if number > PRECEDENCE_MAX => {
            errors.push(precedence.invalid(format_args!("must not be greater than {PRECEDENCE_MAX}")));
        }
        _ => {}
    }
    let method = spec.get("distinguisherMethod.type");
    if spec.get("distinguisherMethod").present() && !matches!(method.text(), "ByNamespace" | "ByUser") {
        let shown = json!({"Type": method.text()});
        errors.push(FieldError::not_supported(
            method.field,
            &shown,
            &["ByNamespace", "ByUser"],
        ));
    }
    for rule in spec.get("rules").items() {
        for subject in rule.get("subjects").items() {
            check_subject(&subject, errors);
        }
        let (resources, others) = (rule.get("resourceRules"), rule.get("nonResourceRules"));
        if resources.is_empty() && others.is_empty() {
            errors.push(rule.required("at least one of resourceRules and nonResourceRules has to be non-empty"));
        }
        for resource in resources.items() {
            check_resource_rule(&resource, errors);
        }
        for other in others.items() {
            check_verbs(&other.get("verbs"), errors);
            let paths = other.get("nonResourceURLs");
            if !check_wildcard(&paths, "non-resource URLs", errors) {
                for path in paths.items() {
                    errors.extend(wrong_path(path.text()).map(|what| path.invalid(what)));
                }
            }
        }
    }
    check_mandatory(schema, "flowschemas", errors);
}

fn check_subject(subject: &At<'_>, errors: &mut Vec<FieldError>) {
    const KINDS: &[(&str, &str)] = &[
        ("ServiceAccount", "serviceAccount"),
        ("User", "user"),
        ("Group", "group"),
    ];
    let kind = subject.get("kind");
    if !KINDS.iter().any(|(name, _)| *name == kind.text()) {
        // Any other is refused by the table of rules.
        if kind.is_empty() {
            let supported = &["Group", "ServiceAccount", "User"];
            errors.push(FieldError::not_supported(&kind.field, &Value::from(""), supported));
        }
        return;
    }
    for (name, field) in KINDS {
        let field = subject.get(*field);
        let (is, given) = (*name == kind.text(), field.present());
        let what = field.field.to_string();
        let what = what.rsplit('.').next().unwrap_or("");
        if is && !given {
            errors.push(field.required(&format!("{what} is required when subject kind is '{name}'")));
        } else if given && !is {
            errors.push(field.forbidden(&format!("{what} is forbidden when subject kind is not '{name}'")));
        }
    }
    let account = subject.get("serviceAccount");
    if kind.text() == "ServiceAccount" {
        let (name, namespace) = (account.get("name"), account.get("namespace"));
        if !name.is_empty() && name.text() != "*" {
            name.check(subdomain(name.text()), errors);
        }
        if !namespace.is_empty() {
            namespace.check(label(namespace.text()), errors);
        }
    }
}

fn check_resource_rule(rule: &At<'_>, errors: &mut Vec<FieldError>) {
    check_verbs(&rule.get("verbs"), errors);
    check_wildcard(&rule.get("apiGroups"), "api groups", errors);
    check_wildcard(&rule.get("resources"), "resources", errors);
    let namespaces = rule.get("namespaces");
    if namespaces.is_empty() && rule.get("clusterScope").value.as_bool() != Some(true) {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.push(namespaces.required(detail));
    } else if !check_wildcard(&namespaces, "namespaces", errors) {
        for namespace in namespaces.items() {
            for wrong in label(namespace.text()) {
                let detail = format!("each member of this list must be '*' or a DNS-1123 label; {wrong}");
                errors.push(namespace.invalid(detail));
            }
        }
    }
}

fn check_verbs(verbs: &At<'_>, errors: &mut Vec<FieldError>) {
    const VERBS: &[&str] = &[
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "proxy",
        "update",
        "watch",
    ];
    if !check_wildcard(verbs, "verbs", errors) && verbs.items().any(|verb| !VERBS.contains(&verb.text())) {
        errors.push(verbs.not_supported(VERBS));
    }
}

/// A list that says `*` says nothing else. Tells whether it says `*`.
fn check_wildcard(list: &At<'_>, others: &str, errors: &mut Vec<FieldError>) -> bool {
    let all = list.items().any(|item| item.text() == "*");
    if all && list.items().count() > 1 {
        errors.push(list.invalid(format_args!("if '*' is present, must not specify other {others}")));
    }
    all
}

fn wrong_path(path: &str) -> Option<&'static str> {
    let stars = path.matches('*').count();
    Some(match path {
        "" => "must not be empty",
        "/" => return None,
        _ if !path.starts_with('/') => "must start with slash",
        _ if path.contains(' ') => "must not contain white-space",
        _ if path.contains("//") => "must not contain double slash",
        _ if stars > 1 || stars == 1 && !path.ends_with("/*") => "wildcard can only do suffix matching",
        _ => return None,
    })
}

/// What the server made itself stays as it is, but for how much an exempt level lends.
fn check_mandatory(object: &Value, plural: &str, errors: &mut Vec<FieldError>) {
    static MANDATORY: OnceLock<HashMap<(String, String), Value>> = OnceLock::new();
    let mandatory = MANDATORY.get_or_init(|| {
        let lines = include_str!("facts/bootstrap.jsonl").lines();
        let objects = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let named = objects.filter_map(|line| {
            let (kind, object) = (text(&line, "/resource/2"), line.get("object")?);
            let name = text(object, "/metadata/name");
            let fixed =
                matches!(kind, "flowschemas" | "prioritylevelconfigurations") && matches!(name, "exempt" | "catch-all");
            fixed.then(|| Some(((kind.to_owned(), name.to_owned()), settled_spec(object)?)))?
        });
        named.collect()
    });
    let name = text(object, "/metadata/name");
    if !matches!(name, "exempt" | "catch-all") {
        return;
    }
    let Some(fixed) = mandatory.get(&(plural.to_owned(), name.to_owned())) else {
        return;
    };
    if settled_spec(object).as_ref() != Some(fixed) {
        let but = if plural == "prioritylevelconfigurations" && name == "exempt" {
            " except the 'spec.exempt' field"
        } else {
            ""
        };
        let spec = At::root(object).get("spec");
        let detail = format!("spec of '{name}'{but} must equal the fixed value");
        errors.push(FieldError::invalid(&spec.field, &capitalized(spec.value), detail));
    }
}

/// A spec without what may be changed in it.
fn settled_spec(object: &Value) -> Option<Value> {
    let mut spec = object.get("spec")?.clone();
    spec.as_object_mut()?.remove("exempt");
    Some(spec)
}

fn check_priority_level(level: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(level).get("spec");
    let kind = spec.get("type");
    let exempt_name = text(level, "/metadata/name") == "exempt";
    if exempt_name != (kind.text() == "Exempt") {
        let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.push(FieldError::invalid_text(&kind.field, kind.text(), detail));
    }
    let (limited, exempt) = (spec.get("limited"), spec.get("exempt"));
    match kind.text() {
        "Exempt" => {
            if limited.present() {
                errors.push(limited.forbidden("must be nil if the type is not Limited"));
            }
            check_shares(&exempt, errors);
        }
        "Limited" => {
            if exempt.present() {
                errors.push(exempt.forbidden("must be nil if the type is Limited"));
            }
            if limited.present() {
                check_limited(&limited, errors);
            } else {
                errors.push(limited.required("must not be empty when type is Limited"));
            }
        }
        _ => errors.push(FieldError::not_supported(
            kind.field.clone(),
            &json!(kind.text()),
            &["Exempt", "Limited"],
        )),
    }
    check_mandatory(level, "prioritylevelconfigurations", errors);
}

fn check_shares(level: &At<'_>, errors: &mut Vec<FieldError>) {
    let shares = level.get("nominalConcurrencyShares");
    if shares.integer().is_some_and(|shares| shares < 0) {
        errors.push(shares.invalid("must be a non-negative integer"));
    }
}

fn check_limited(limited: &At<'_>, errors: &mut Vec<FieldError>) {
    check_shares(limited, errors);
    let borrowed = limited.get("borrowingLimitPercent");
    if borrowed.integer().is_some_and(|percent| percent < 0) {
        errors.push(borrowed.invalid("if specified, must be a non-negative integer"));
    }
    let response = limited.get("limitResponse");
    let queuing = response.get("queuing");
    match response.get("type").text() {
        "Reject" if queuing.present() => {
            errors.push(queuing.forbidden("must be nil if limited.limitResponse.type is not Limited"));
        }
        "Reject" => {}
        "Queue" if queuing.present() => check_queuing(&queuing, errors),
        "Queue" => errors.push(queuing.required("must not be empty if limited.limitResponse.type is Limited")),
        other => {
            let field = response.get("type").field;
            errors.push(FieldError::not_supported(field, &json!(other), &["Queue", "Reject"]));
        }
    }
}

fn check_queuing(queuing: &At<'_>, errors: &mut Vec<FieldError>) {
    let [length, queues, hand] = ["queueLengthLimit", "queues", "handSize"].map(|field| queuing.get(field));
    for number in [&length, &queues, &hand] {
        if number.integer().unwrap_or(0) <= 0 {
            errors.push(number.invalid("must be positive"));
        }
    }
    let (count, size) = (queues.integer().unwrap_or(0), hand.integer().unwrap_or(0));
    if count > QUEUES_MAX {
        errors.push(queues.invalid(format_args!("must not be greater than {QUEUES_MAX}")));
    }
    let bits = ((count as f64).log2() * size as f64).ceil();
    if size > 0 && size > count {
        errors.push(hand.invalid(format_args!("should not be greater than queues ({count})")));
    } else if size > 0 && bits > HASH_BITS {
        errors.push(hand.invalid(format_args!(
            "required entropy bits of deckSize {count} and handSize {size} should not be greater than {HASH_BITS}"
        )));
    }
}

/// No two conditions of a status have one type.
fn once_each(object: &Value, errors: &mut Vec<FieldError>) {
    let mut known = HashSet::new();
    for (at, given) in list(object, "/status/conditions").iter().enumerate() {
        let kind = text(given, "/type");
        if !known.insert(kind) {
            errors.push(FieldError::duplicate(
                format!("status.conditions[{at}].type"),
                &kind.into(),
            ));
        }
    }
}
