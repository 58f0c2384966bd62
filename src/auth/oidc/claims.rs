//! From what a token says to a user, in kube-apiserver's order and words.

use std::collections::BTreeMap;

use crate::auth::User;
use crate::cel::Program;
use crate::cel::run::{Budget, Input};
use crate::tree::{Value, json};

/// What all expressions about one token may cost together, in kube-apiserver's units.
const COST_MAX: u64 = 10_000_000;
/// Groups that a user may be in, and values of an extra; a token is bounded, what an expression makes of it is not.
const TEXTS_MAX: usize = 10_000;

/// How tokens of one issuer become users.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Always there in a plan without errors.
    pub(super) username: Option<Source>,
    pub(super) groups: Option<Source>,
    pub(super) uid: Option<Source>,
    pub(super) extra: Vec<Extra>,
    /// Claims that have to have a value.
    pub(super) required: Vec<(String, String)>,
    pub(super) rules: Vec<Rule>,
    pub(super) user_rules: Vec<Rule>,
}

/// Where a value is from.
#[derive(Debug)]
pub(super) enum Source {
    Claim { name: String, prefix: String },
    Expression(Expression),
}

#[derive(Debug)]
pub(super) struct Expression {
    pub(super) source: String,
    pub(super) program: Program,
}

#[derive(Debug)]
pub(super) struct Extra {
    pub(super) key: String,
    pub(super) value: Expression,
}

/// A condition, and what is told when it does not hold.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) expression: Expression,
    pub(super) message: String,
}

impl Expression {
    fn run(&self, of: &Value, budget: &mut Budget) -> Result<Value, String> {
        let made = self.program.run_to_tree(&[Input::Value(of)], budget);
        made.map_err(|error| format!("expression '{}' resulted in error: {error}", self.source))
    }
}

impl Plan {
    /// The user that claims stand for. Takes the time of the expressions, which is bounded.
    ///
    /// # Errors
    /// Why they stand for none.
    pub(super) fn user(&self, claims: &Value) -> Result<User, String> {
        let budget = &mut Budget::of(COST_MAX);
        let groups = self.groups(claims, budget);
        let mut user = User {
            name: self.username(claims, budget)?,
            groups: groups?,
            uid: self.uid(claims, budget)?,
            extra: self.extra(claims, budget)?,
        };
        for (claim, wanted) in &self.required {
            let Some(_) = claims.get(claim.as_str()) else {
                return Err(format!("oidc: required claim {claim} not present in ID token"));
            };
            let found = text(claims, claim).map_err(|why| format!("oidc: parse claim {claim}: {why}"))?;
            if found != wanted {
                return Err(format!(
                    "oidc: required claim {claim} value does not match. Got = {found}, want = {wanted}"
                ));
            }
        }
        for rule in &self.rules {
            let held = rule.holds(claims, budget);
            held.map_err(|why| format!("oidc: error evaluating claim validation expression: {why}"))?;
        }
        if !self.user_rules.is_empty() {
            let shown = json!({"username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra});
            for rule in &self.user_rules {
                let held = rule.holds(&shown, budget);
                held.map_err(|why| format!("oidc: error evaluating user info validation rule: {why}"))?;
            }
        }
        user = user.known_or_not();
        Ok(user)
    }

    fn username(&self, claims: &Value, budget: &mut Budget) -> Result<String, String> {
        let name = match &self.username {
            None => return Err("oidc: nothing says what the user is called".into()),
            Some(Source::Expression(expression)) => {
                let failed = |why: String| format!("oidc: error evaluating username claim expression: {why}");
                let made = expression.run(claims, budget).map_err(failed)?;
                let made = made.as_str().map(str::to_owned);
                made.ok_or_else(|| failed("username claim expression must return a string".into()))?
            }
            Some(Source::Claim { name, prefix }) => {
                let failed = |why: String| format!("oidc: parse username claims {name:?}: {why}");
                let username = text(claims, name).map_err(failed)?;
                if name == "email" {
                    match claims.get("email_verified") {
                        None | Some(Value::Bool(true)) => {}
                        Some(Value::Bool(false) | Value::Null) => return Err("oidc: email not verified".into()),
                        Some(other) => {
                            let why = mismatch(other, "bool");
                            return Err(format!("oidc: parse 'email_verified' claim: {why}"));
                        }
                    }
                }
                if username.is_empty() {
                    return Err(failed("the claim is empty".into()));
                }
                format!("{prefix}{username}")
            }
        };
        // A user without a name is nobody, and no rule can be about him.
        if name.is_empty() {
            return Err("oidc: the user's name is empty".into());
        }
        Ok(name)
    }

    fn groups(&self, claims: &Value, budget: &mut Budget) -> Result<Vec<String>, String> {
        match &self.groups {
            None => Ok(Vec::new()),
            Some(Source::Expression(expression)) => {
                let made = expression.run(claims, budget).and_then(|made| texts(&made));
                made.map_err(|why| format!("oidc: error evaluating group claim expression: {why}"))
            }
            Some(Source::Claim { name, prefix }) => {
                let Some(found) = claims.get(name.as_str()) else {
                    return Ok(Vec::new());
                };
                let failed =
                    |other: &Value| format!("oidc: parse groups claim {name:?}: {}", mismatch(other, "string"));
                let one = |value: &Value| match value {
                    Value::Null => Ok(prefix.clone()),
                    value => value
                        .as_str()
                        .map(|group| format!("{prefix}{group}"))
                        .ok_or_else(|| failed(value)),
                };
                match found.as_array() {
                    Some(groups) if groups.len() > TEXTS_MAX => Err(format!("oidc: more than {TEXTS_MAX} groups")),
                    Some(groups) => groups.iter().map(one).collect(),
                    None if found.is_null() => Ok(Vec::new()),
                    None => Ok(vec![one(found)?]),
                }
            }
        }
    }

    fn uid(&self, claims: &Value, budget: &mut Budget) -> Result<String, String> {
        match &self.uid {
            None => Ok(String::new()),
            Some(Source::Claim { name, .. }) => {
                let found = text(claims, name);
                found
                    .map(str::to_owned)
                    .map_err(|why| format!("oidc: parse uid claim {name:?}: {why}"))
            }
            Some(Source::Expression(expression)) => {
                let failed = |why: String| format!("oidc: error evaluating uid claim expression: {why}");
                let made = expression.run(claims, budget).map_err(failed)?;
                let made = made.as_str().map(str::to_owned);
                made.ok_or_else(|| failed("uid claim expression must return a string".into()))
            }
        }
    }

    fn extra(&self, claims: &Value, budget: &mut Budget) -> Result<BTreeMap<String, Vec<String>>, String> {
        let mut extra = BTreeMap::new();
        if let Some(id) = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            extra.insert(super::CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        for Extra { key, value } in &self.extra {
            let made = value.run(claims, budget)?;
            let made = texts(&made)
                .map_err(|why| format!("oidc: error evaluating extra claim expression: {}: {why}", value.source))?;
            if !made.is_empty() {
                extra.insert(key.clone(), made);
            }
        }
        Ok(extra)
    }
}

impl Rule {
    fn holds(&self, of: &Value, budget: &mut Budget) -> Result<(), String> {
        match self.expression.run(of, budget)? {
            Value::Bool(true) => Ok(()),
            Value::Bool(false) => Err(format!(
                "validation expression '{}' failed: {}",
                self.expression.source, self.message
            )),
            _ => Err("validation expression must return a boolean".into()),
        }
    }
}

/// A claim that is a text.
fn text<'a>(claims: &'a Value, name: &str) -> Result<&'a str, String> {
    match claims.get(name) {
        None => Err("claim not present".into()),
        Some(Value::Null) => Ok(""),
        Some(value) => value.as_str().ok_or_else(|| mismatch(value, "string")),
    }
}

/// Go's words for a value of another type.
fn mismatch(value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        value if value.is_string() => "string",
        value if value.is_array() => "array",
        value if value.is_object() => "object",
        _ => "number",
    };
    format!("json: cannot unmarshal {found} into Go value of type {wanted}")
}

/// One text or a list of them, without those that are empty.
fn texts(value: &Value) -> Result<Vec<String>, String> {
    let wrong = || "expression must return a string or a list of strings".to_owned();
    let mut found = Vec::new();
    match value.as_array() {
        Some(list) if list.len() > TEXTS_MAX => return Err(format!("more than {TEXTS_MAX} texts")),
        Some(list) => {
            for item in list {
                found.push(item.as_str().ok_or_else(wrong)?.to_owned());
            }
        }
        None if value.is_null() => {}
        None => found.push(value.as_str().ok_or_else(wrong)?.to_owned()),
    }
    found.retain(|text| !text.is_empty());
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::{Asking, Issuers};
    use super::*;

    fn user(mappings: &str, claims: &str) -> Result<User, String> {
        let text = format!(
            "{{\"apiVersion\": \"apiserver.config.k8s.io/v1\", \"kind\": \"AuthenticationConfiguration\", \"jwt\": [{{\"issuer\": \
             {{\"url\": \"https://a.example\", \"audiences\": [\"x\"]}}, {mappings}}}]}}"
        );
        let issuers = Issuers::read(text.as_bytes(), &[], Asking::default(), None).unwrap();
        issuers.issuers[0].plan.user(&serde_json::from_str(claims).unwrap())
    }

    #[test]
    fn claims_become_a_user_by_their_names_and_prefixes() {
        let mappings = r#""claimMappings": {"username": {"claim": "sub", "prefix": "a:"},
            "groups": {"claim": "groups", "prefix": "g:"}, "uid": {"claim": "id"}}"#;
        let made = user(
            mappings,
            r#"{"sub": "jane", "groups": ["x", "y"], "id": "7", "jti": "j"}"#,
        )
        .unwrap();
        assert_eq!((made.name.as_str(), made.uid.as_str()), ("a:jane", "7"));
        assert_eq!(made.groups, ["g:x", "g:y", "system:authenticated"]);
        assert_eq!(made.extra[crate::auth::oidc::CREDENTIAL_ID], ["JTI=j"]);
        assert_eq!(
            user(mappings, r#"{"sub": "jane", "groups": "x", "id": ""}"#)
                .unwrap()
                .groups[0],
            "g:x"
        );
        for (claims, why) in [
            (
                r#"{"id": "7"}"#,
                "oidc: parse username claims \"sub\": claim not present",
            ),
            (
                r#"{"sub": 1, "id": "7"}"#,
                "oidc: parse username claims \"sub\": json: cannot unmarshal number into Go value of type string",
            ),
            (
                r#"{"sub": "", "id": "7"}"#,
                "oidc: parse username claims \"sub\": the claim is empty",
            ),
            (r#"{"sub": "a"}"#, "oidc: parse uid claim \"id\": claim not present"),
            (
                r#"{"sub": "a", "groups": [1], "id": ""}"#,
                "oidc: parse groups claim \"groups\": json: cannot unmarshal number into Go value of type string",
            ),
        ] {
            assert_eq!(user(mappings, claims).unwrap_err(), why);
        }
    }

    #[test]
    fn an_address_counts_only_when_it_is_not_said_to_be_unproven() {
        let mappings = r#""claimMappings": {"username": {"claim": "email", "prefix": ""}}"#;
        assert_eq!(user(mappings, r#"{"email": "a@b"}"#).unwrap().name, "a@b");
        user(mappings, r#"{"email": "a@b", "email_verified": true}"#).unwrap();
        for verified in ["false", "null", "\"true\""] {
            user(
                mappings,
                &format!(r#"{{"email": "a@b", "email_verified": {verified}}}"#),
            )
            .unwrap_err();
        }
    }

    #[test]
    fn expressions_make_users_and_refuse_them() {
        let mappings = r#""claimMappings": {"username": {"expression": "claims.sub + '@a'"},
            "groups": {"expression": "claims.roles.split(',')"}, "uid": {"expression": "claims.id"},
            "extra": [{"key": "example.com/tenant", "valueExpression": "claims.?tenant.orValue('')"},
                {"key": "example.com/all", "valueExpression": "['a', '', 'b']"}]},
            "claimValidationRules": [{"claim": "hd", "requiredValue": "b"},
                {"expression": "claims.exp - claims.nbf <= 86400", "message": "too long a life"}],
            "userValidationRules": [{"expression": "!user.username.startsWith('system:')", "message": "reserved"},
                {"expression": "user.groups.all(group, group != 'system:masters')", "message": "no master"}]"#;
        let claims = r#"{"sub": "jane", "roles": "x,,y", "id": "7", "hd": "b", "exp": 10, "nbf": 0}"#;
        let made = user(mappings, claims).unwrap();
        assert_eq!(made.name, "jane@a");
        assert_eq!(made.groups, ["x", "y", "system:authenticated"]);
        assert_eq!(made.extra["example.com/all"], ["a", "b"]);
        assert!(!made.extra.contains_key("example.com/tenant"));
        for (from, to, why) in [
            (
                "\"hd\": \"b\"",
                "\"hd\": \"c\"",
                "oidc: required claim hd value does not match. Got = c, want = b",
            ),
            (
                "\"hd\": \"b\"",
                "\"h\": 1",
                "oidc: required claim hd not present in ID token",
            ),
            ("\"exp\": 10", "\"exp\": 100000", "too long a life"),
            ("\"jane\"", "\"system:jane\"", "reserved"),
            ("x,,y", "x,system:masters", "no master"),
            ("\"jane\"", "7", "oidc: error evaluating username claim expression: "),
            (
                "\"id\": \"7\"",
                "\"id\": 7",
                "uid claim expression must return a string",
            ),
            (
                "\"roles\"",
                "\"rules\"",
                "oidc: error evaluating group claim expression: ",
            ),
        ] {
            let told = user(mappings, &claims.replace(from, to)).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }
}
