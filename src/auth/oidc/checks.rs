//! What an AuthenticationConfiguration has to be like, in kube-apiserver's words, and its expressions made ready.

use std::fmt::Debug;

use super::claims::{Expression, Extra, Plan, Rule, Source};
use super::configuration::{
    ClaimMappings, Configuration, ExtraMapping, IssuerSection, JwtAuthenticator, Mapping, UserValidationRule,
};
use crate::auth::certificates::certificates;
use crate::cel::{Environment, Program};
use crate::scalars::names;

/// Issuers of one configuration.
const ISSUERS_MAX: usize = 64;

/// What is wrong, by field.
#[derive(Debug, Default)]
struct Errors(Vec<String>);

impl Errors {
    fn invalid(&mut self, path: &str, value: impl Debug, why: &str) {
        self.0.push(format!("{path}: Invalid value: {value:?}: {why}"));
    }

    fn required(&mut self, path: &str, why: &str) {
        let colon = if why.is_empty() { "" } else { ": " };
        self.0.push(format!("{path}: Required value{colon}{why}"));
    }

    fn duplicate(&mut self, path: &str, value: &str) {
        self.0.push(format!("{path}: Duplicate value: {value:?}"));
    }
}

/// The plans of a configuration's issuers, in their order. `own`: issuers of service accounts' tokens, which no other may be.
///
/// # Errors
/// All that is wrong, in one sentence.
pub(super) fn plans(configuration: &Configuration, own: &[String]) -> Result<Vec<Plan>, String> {
    let mut errors = Errors::default();
    let jwt = &configuration.jwt;
    if jwt.len() > ISSUERS_MAX {
        let count = jwt.len();
        return Err(format!("jwt: Too many: {count}: must have at most {ISSUERS_MAX} items"));
    }
    let mut plans = Vec::new();
    for (at, authenticator) in jwt.iter().enumerate() {
        let path = format!("jwt[{at}]");
        plans.push(plan(authenticator, &path, own, &mut errors));
        let issuer = &authenticator.issuer;
        if jwt[..at].iter().any(|before| before.issuer.url == issuer.url) {
            errors.duplicate(&format!("{path}.issuer.url"), &issuer.url);
        }
        let discovery = &issuer.discovery_url;
        if !discovery.is_empty() && jwt[..at].iter().any(|before| before.issuer.discovery_url == *discovery) {
            errors.duplicate(&format!("{path}.issuer.discoveryURL"), discovery);
        }
    }
    if let Some(anonymous) = configuration.anonymous.as_ref()
        && !anonymous.enabled
        && !anonymous.conditions.is_empty()
    {
        let paths: Vec<&str> = anonymous.conditions.iter().map(|condition| &*condition.path).collect();
        let why = "enabled should be set to true when conditions are defined";
        errors.invalid("anonymous.conditions", paths, why);
    }
    match errors.0.as_slice() {
        [] => Ok(plans),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

fn plan(authenticator: &JwtAuthenticator, path: &str, own: &[String], errors: &mut Errors) -> Plan {
    let mut plan = Plan::default();
    issuer(&authenticator.issuer, &format!("{path}.issuer"), own, errors);
    let claims = Environment::of_claims();
    let rules = &authenticator.claim_validation_rules;
    for (at, rule) in rules.iter().enumerate() {
        let path = format!("{path}.claimValidationRules[{at}]");
        match (rule.claim.is_empty(), rule.expression.is_empty()) {
            (false, false) => errors.invalid(&path, &rule.claim, "claim and expression can't both be set"),
            (true, true) => errors.required(&path, "claim or expression is required"),
            (false, true) => {
                if !rule.message.is_empty() {
                    let why = "may not be specified when claim is set";
                    errors.invalid(&format!("{path}.message"), &rule.message, why);
                }
                if rules[..at].iter().any(|before| before.claim == rule.claim) {
                    errors.duplicate(&format!("{path}.claim"), &rule.claim);
                }
                plan.required.push((rule.claim.clone(), rule.required_value.clone()));
            }
            (true, false) => {
                if !rule.required_value.is_empty() {
                    let why = "may not be specified when expression is set";
                    errors.invalid(&format!("{path}.requiredValue"), &rule.required_value, why);
                }
                let path = format!("{path}.expression");
                if rules[..at].iter().any(|before| before.expression == rule.expression) {
                    errors.duplicate(&path, &rule.expression);
                } else if let Some(expression) = condition(&rule.expression, &claims, &path, errors) {
                    let message = rule.message.clone();
                    plan.rules.push(Rule { expression, message });
                }
            }
        }
    }
    mappings(
        &authenticator.claim_mappings,
        &format!("{path}.claimMappings"),
        &mut plan,
        errors,
    );
    let rules = &authenticator.user_validation_rules;
    users(rules, &format!("{path}.userValidationRules"), &mut plan, errors);
    plan
}

fn users(rules: &[UserValidationRule], path: &str, plan: &mut Plan, errors: &mut Errors) {
    let user = Environment::of_user();
    for (at, rule) in rules.iter().enumerate() {
        let path = format!("{path}[{at}].expression");
        if rule.expression.is_empty() {
            errors.required(&path, "");
        } else if rules[..at].iter().any(|before| before.expression == rule.expression) {
            errors.duplicate(&path, &rule.expression);
        } else if let Some(expression) = condition(&rule.expression, &user, &path, errors) {
            let message = rule.message.clone();
            plan.user_rules.push(Rule { expression, message });
        }
    }
}

fn issuer(issuer: &IssuerSection, path: &str, own: &[String], errors: &mut Errors) {
    let at = format!("{path}.url");
    if issuer.url.is_empty() {
        errors.required(&at, "");
    } else {
        if own.contains(&issuer.url) {
            let mut own = own.to_vec();
            own.sort();
            let why = format!("URL must not overlap with disallowed issuers: [{}]", own.join(" "));
            errors.invalid(&at, &issuer.url, &why);
        }
        url(&issuer.url, &at, errors);
    }
    let discovery = &issuer.discovery_url;
    if !discovery.is_empty() {
        let at = format!("{path}.discoveryURL");
        if !issuer.url.is_empty() && issuer.url.trim_end_matches('/') == discovery.trim_end_matches('/') {
            errors.invalid(&at, discovery, "discoveryURL must be different from URL");
        }
        url(discovery, &at, errors);
    }
    audiences(issuer, path, errors);
    if !issuer.certificate_authority.is_empty()
        && let Err(why) = certificates(issuer.certificate_authority.as_bytes())
    {
        errors.invalid(&format!("{path}.certificateAuthority"), "<omitted>", &why);
    }
    let egress = &issuer.egress_selector_type;
    if !egress.is_empty() {
        // Whoever asks for a way out by a proxy must not get one without it.
        let why = "egress selectors are not supported here: providers are reached directly";
        errors.invalid(&format!("{path}.egressSelectorType"), egress, why);
    }
}

fn audiences(issuer: &IssuerSection, path: &str, errors: &mut Errors) {
    let at = format!("{path}.audiences");
    let audiences = &issuer.audiences;
    if audiences.is_empty() {
        return errors.required(&at, &format!("at least one {at} is required"));
    }
    for (number, audience) in audiences.iter().enumerate() {
        let at = format!("{at}[{number}]");
        if audience.is_empty() {
            errors.required(&at, "");
        }
        if audiences[..number].contains(audience) {
            errors.duplicate(&at, audience);
        }
    }
    let policy = &issuer.audience_match_policy;
    let at = format!("{path}.audienceMatchPolicy");
    if audiences.len() > 1 && policy != "MatchAny" {
        errors.invalid(
            &at,
            policy,
            "audienceMatchPolicy must be MatchAny for multiple audiences",
        );
    }
    if audiences.len() == 1 && !matches!(policy.as_str(), "" | "MatchAny") {
        let why = "audienceMatchPolicy must be empty or MatchAny for single audience";
        errors.invalid(&at, policy, why);
    }
}

fn url(text: &str, path: &str, errors: &mut Errors) {
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    let authority = rest.split('/').next().unwrap_or("");
    for (is_wrong, why) in [
        (!scheme.eq_ignore_ascii_case("https"), "URL scheme must be https"),
        (authority.contains('@'), "URL must not contain a username or password"),
        (!query.is_empty(), "URL must not contain a query"),
        (!fragment.is_empty(), "URL must not contain a fragment"),
    ] {
        if is_wrong {
            errors.invalid(path, text, why);
        }
    }
    if scheme.eq_ignore_ascii_case("https") && text.parse::<http::Uri>().is_ok_and(|uri| uri.host().is_some()) {
        return;
    }
    if scheme.eq_ignore_ascii_case("https") {
        errors.invalid(path, text, &format!("parse {text:?}: no such address can be"));
    }
}

fn mappings(mappings: &ClaimMappings, path: &str, plan: &mut Plan, errors: &mut Errors) {
    let claims = Environment::of_claims();
    let at = format!("{path}.username");
    let username = source(&mappings.username, &at, true, errors);
    let groups = source(&mappings.groups, &format!("{path}.groups"), false, errors);
    let at = format!("{path}.uid");
    let uid = &mappings.uid;
    if !uid.claim.is_empty() && !uid.expression.is_empty() {
        errors.invalid(&at, "", "claim and expression can't both be set");
    } else if !uid.claim.is_empty() {
        plan.uid = Some(Source::Claim {
            name: uid.claim.clone(),
            prefix: String::new(),
        });
    } else if !uid.expression.is_empty() {
        let made = compile(&uid.expression, &claims, &format!("{at}.expression"), errors);
        plan.uid = made.map(Source::Expression);
    }
    for (at, mapping) in mappings.extra.iter().enumerate() {
        let path = format!("{path}.extra[{at}]");
        extra(mapping, &mappings.extra[..at], &path, plan, errors);
    }
    if let Some(Source::Expression(username)) = &username
        && username.program.reads("claims", "email")
    {
        let rules = plan.rules.iter().map(|rule| &rule.expression);
        let extras = plan.extra.iter().map(|extra| &extra.value);
        let mut all = rules.chain(extras).chain([username]);
        if !all.any(|expression| expression.program.reads("claims", "email_verified")) {
            errors.invalid(
                &format!("{path}.username.expression"),
                &mappings.username.expression,
                "claims.email_verified must be used in claimMappings.username.expression or \
                 claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in \
                 claimMappings.username.expression",
            );
        }
    }
    plan.username = username;
    plan.groups = groups;
}

fn source(mapping: &Mapping, path: &str, required: bool, errors: &mut Errors) -> Option<Source> {
    match (mapping.claim.is_empty(), mapping.expression.is_empty()) {
        (false, false) => errors.invalid(path, "", "claim and expression can't both be set"),
        (true, true) if required => errors.required(path, "claim or expression is required"),
        (true, true) => {}
        (true, false) => {
            if let Some(prefix) = &mapping.prefix {
                let why = "may not be specified when expression is set";
                errors.invalid(&format!("{path}.prefix"), prefix, why);
            }
            let path = format!("{path}.expression");
            return compile(&mapping.expression, &Environment::of_claims(), &path, errors).map(Source::Expression);
        }
        (false, true) => {
            let Some(prefix) = &mapping.prefix else {
                let why = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                errors.required(&format!("{path}.prefix"), why);
                return None;
            };
            return Some(Source::Claim {
                name: mapping.claim.clone(),
                prefix: prefix.clone(),
            });
        }
    }
    None
}

fn extra(mapping: &ExtraMapping, before: &[ExtraMapping], path: &str, plan: &mut Plan, errors: &mut Errors) {
    let (key, at) = (&mapping.key, format!("{path}.key"));
    match key.split_once('/') {
        _ if key.is_empty() => errors.required(&at, ""),
        None => errors.invalid(&at, key, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
        Some((domain, rest)) => {
            for why in names::subdomain(domain) {
                errors.invalid(&at, domain, &why);
            }
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/%".contains(c);
            if rest.is_empty() || !rest.chars().all(allowed) {
                errors.invalid(&at, rest, "Invalid path");
            }
            let reserved = |name: &str| domain == name || domain.ends_with(&format!(".{name}"));
            if reserved("kubernetes.io") || reserved("k8s.io") {
                let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
                errors.invalid(&at, key, why);
            }
        }
    }
    if *key != key.to_lowercase() {
        errors.invalid(&at, key, "must be lowercase");
    }
    if before.iter().any(|other| other.key == *key) {
        return errors.duplicate(&at, key);
    }
    let at = format!("{path}.valueExpression");
    if mapping.value_expression.is_empty() {
        return errors.required(&at, "");
    }
    if let Some(value) = compile(&mapping.value_expression, &Environment::of_claims(), &at, errors) {
        let key = key.clone();
        plan.extra.push(Extra { key, value });
    }
}

fn compile(source: &str, environment: &Environment, path: &str, errors: &mut Errors) -> Option<Expression> {
    match Program::compile(source, environment) {
        Ok(program) => Some(Expression {
            source: source.to_owned(),
            program,
        }),
        Err(error) => {
            errors.invalid(path, source, &format!("compilation failed: {error}"));
            None
        }
    }
}

fn condition(source: &str, environment: &Environment, path: &str, errors: &mut Errors) -> Option<Expression> {
    let expression = compile(source, environment, path, errors)?;
    if expression.program.gives() != "bool" {
        errors.invalid(path, source, "must evaluate to bool");
        return None;
    }
    Some(expression)
}

#[cfg(test)]
mod tests {
    use super::super::{Asking, Issuers};

    fn told(jwt: &str) -> String {
        let text = format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n{jwt}");
        let own = ["https://own.example".to_owned()];
        let read = Issuers::read(text.as_bytes(), &own, Asking::default(), None);
        read.map_or_else(|why| why, |_| String::new())
    }

    fn issuer(issuer: &str, rest: &str) -> String {
        told(&format!("jwt: [{{issuer: {{{issuer}}}, {rest}}}]"))
    }

    const GOOD: &str = "url: 'https://a.example', audiences: [x]";
    const NAMED: &str = "claimMappings: {username: {claim: sub, prefix: ''}}";

    #[test]
    fn what_is_wrong_with_an_issuer_is_told_by_field() {
        assert_eq!(issuer(GOOD, NAMED), "");
        assert_eq!(told("anonymous: {enabled: true, conditions: [{path: /healthz}]}"), "");
        assert_eq!(told("jwt: []"), "");
        for (told, why) in [
            (issuer("audiences: [x]", NAMED), "jwt[0].issuer.url: Required value"),
            (
                issuer("url: 'http://a.example', audiences: [x]", NAMED),
                "jwt[0].issuer.url: Invalid value: \"http://a.example\": URL scheme must be https",
            ),
            (
                issuer("url: 'https://u@a.example?q#f', audiences: [x]", NAMED),
                "[jwt[0].issuer.url: Invalid value: \"https://u@a.example?q#f\": URL must not contain a username or password, \
                 jwt[0].issuer.url: Invalid value: \"https://u@a.example?q#f\": URL must not contain a query, jwt[0].issuer.url: \
                 Invalid value: \"https://u@a.example?q#f\": URL must not contain a fragment]",
            ),
            (
                issuer("url: 'https://own.example', audiences: [x]", NAMED),
                "jwt[0].issuer.url: Invalid value: \"https://own.example\": URL must not overlap with disallowed issuers: \
                 [https://own.example]",
            ),
            (
                issuer("url: 'https://a.example'", NAMED),
                "jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required",
            ),
            (
                issuer("url: 'https://a.example', audiences: [x, y]", NAMED),
                "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for multiple audiences",
            ),
            (
                issuer(&format!("{GOOD}, discoveryURL: 'https://a.example/'"), NAMED),
                "jwt[0].issuer.discoveryURL: Invalid value: \"https://a.example/\": discoveryURL must be different from URL",
            ),
            (
                issuer(&format!("{GOOD}, certificateAuthority: x"), NAMED),
                "jwt[0].issuer.certificateAuthority: Invalid value: \"<omitted>\": there is no certificate in it",
            ),
            (
                issuer(&format!("{GOOD}, egressSelectorType: cluster"), NAMED),
                "jwt[0].issuer.egressSelectorType: Invalid value: \"cluster\": egress selectors are not supported here: \
                 providers are reached directly",
            ),
            (
                told(&format!(
                    "jwt: [{{issuer: {{{GOOD}}}, {NAMED}}}, {{issuer: {{{GOOD}}}, {NAMED}}}]"
                )),
                "jwt[1].issuer.url: Duplicate value: \"https://a.example\"",
            ),
            (
                told("anonymous: {enabled: false, conditions: [{path: /a}]}"),
                "anonymous.conditions: Invalid value: [\"/a\"]: enabled should be set to true when conditions are defined",
            ),
        ] {
            assert_eq!(told, why);
        }
        for wrong in ["jwt: [{isuer: {}}]", "kind: Other", "jwt: 7", "jwt: [", "a: b"] {
            assert_ne!(told(wrong), "", "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_with_mappings_and_rules_is_told_by_field() {
        let rule = |rule: &str| issuer(GOOD, &format!("{NAMED}, claimValidationRules: [{rule}]"));
        let mapping = |mapping: &str| issuer(GOOD, &format!("claimMappings: {{{mapping}}}"));
        for (told, why) in [
            (
                mapping(""),
                "jwt[0].claimMappings.username: Required value: claim or expression is required",
            ),
            (
                mapping("username: {claim: sub}"),
                "jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set. It can be set to an \
                 empty string to disable prefixing",
            ),
            (
                mapping("username: {claim: sub, prefix: '', expression: claims.sub}"),
                "jwt[0].claimMappings.username: Invalid value: \"\": claim and expression can't both be set",
            ),
            (
                mapping("username: {expression: claims.email}"),
                "jwt[0].claimMappings.username.expression: Invalid value: \"claims.email\": claims.email_verified must be used in \
                 claimMappings.username.expression or claimMappings.extra[*].valueExpression or \
                 claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression",
            ),
            (
                mapping("username: {claim: sub, prefix: ''}, extra: [{key: a.k8s.io/b, valueExpression: \"'a'\"}]"),
                "jwt[0].claimMappings.extra[0].key: Invalid value: \"a.k8s.io/b\": k8s.io, kubernetes.io and their subdomains are \
                 reserved for Kubernetes use",
            ),
            (
                mapping("username: {claim: sub, prefix: ''}, extra: [{key: a.b/C, valueExpression: \"'a'\"}]"),
                "jwt[0].claimMappings.extra[0].key: Invalid value: \"a.b/C\": must be lowercase",
            ),
            (
                rule("{}"),
                "jwt[0].claimValidationRules[0]: Required value: claim or expression is required",
            ),
            (
                rule("{expression: claims.sub}"),
                "jwt[0].claimValidationRules[0].expression: Invalid value: \"claims.sub\": must evaluate to bool",
            ),
            (
                rule("{claim: a, message: b}"),
                "jwt[0].claimValidationRules[0].message: Invalid value: \"b\": may not be specified when claim is set",
            ),
            (
                rule("{expression: 'true', requiredValue: b}"),
                "jwt[0].claimValidationRules[0].requiredValue: Invalid value: \"b\": may not be specified when expression is set",
            ),
            (
                issuer(GOOD, &format!("{NAMED}, userValidationRules: [{{}}]")),
                "jwt[0].userValidationRules[0].expression: Required value",
            ),
        ] {
            assert_eq!(told, why);
        }
        let told = rule("{expression: 'claims.'}");
        assert!(
            told.contains("claimValidationRules[0].expression: Invalid value: \"claims.\": compilation failed: "),
            "{told}"
        );
    }
}
