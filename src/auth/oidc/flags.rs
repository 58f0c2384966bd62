//! `--oidc-…`: one issuer by flags.

use std::path::PathBuf;

use super::configuration::{ClaimValidationRule, Configuration, IssuerSection, JwtAuthenticator, Mapping};
use super::{ALGORITHMS, Asking, Issuers};

/// One issuer of tokens, in kube-apiserver's flags.
#[derive(Debug, Clone, Default)]
pub struct OidcFlags {
    /// Its URL.
    pub issuer_url: String,
    /// The audience that tokens have to be for.
    pub client_id: String,
    /// Its authorities; none: those that the system knows.
    pub ca_file: Option<PathBuf>,
    /// The claim that is the user's name; empty: `sub`.
    pub username_claim: String,
    /// What is put before it; empty: the issuer's URL and `#`, but nothing before `email`; `-`: nothing.
    pub username_prefix: String,
    /// The claim that is the groups.
    pub groups_claim: String,
    /// What is put before each.
    pub groups_prefix: String,
    /// Claims that have to have a value.
    pub required_claims: Vec<(String, String)>,
    /// Algorithms that tokens may be signed by; none: RS256.
    pub signing_algs: Vec<String>,
}

impl OidcFlags {
    /// Whether flags fit each other.
    pub(in crate::auth) fn check(&self, wrong: &mut Vec<String>) {
        if self.issuer_url.is_empty() || self.client_id.is_empty() {
            wrong.push(
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set".into(),
            );
        }
        for algorithm in &self.signing_algs {
            if !ALGORITHMS.contains(&algorithm.as_str()) {
                wrong.push(format!("oidc: unsupported signing alg: {algorithm:?}"));
            }
        }
    }

    /// The issuer. `authorities`: what the file of authorities holds. `own`: issuers of service accounts' tokens.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(in crate::auth) fn issuers(
        &self,
        authorities: &str,
        own: &[String],
        asking: Asking,
    ) -> Result<Issuers, String> {
        let claim = match self.username_claim.as_str() {
            "" => "sub",
            claim => claim,
        };
        let prefix = match self.username_prefix.as_str() {
            "" if claim == "email" => String::new(),
            "" => format!("{}#", self.issuer_url),
            "-" => String::new(),
            prefix => prefix.to_owned(),
        };
        let mut authenticator = JwtAuthenticator {
            issuer: IssuerSection {
                url: self.issuer_url.clone(),
                audiences: vec![self.client_id.clone()],
                certificate_authority: authorities.to_owned(),
                ..IssuerSection::default()
            },
            ..JwtAuthenticator::default()
        };
        let mappings = &mut authenticator.claim_mappings;
        mappings.username = Mapping {
            claim: claim.to_owned(),
            prefix: Some(prefix),
            expression: String::new(),
        };
        if !self.groups_claim.is_empty() {
            mappings.groups = Mapping {
                claim: self.groups_claim.clone(),
                prefix: Some(self.groups_prefix.clone()),
                expression: String::new(),
            };
        }
        let rules = self.required_claims.iter().map(|(claim, value)| ClaimValidationRule {
            claim: claim.clone(),
            required_value: value.clone(),
            ..ClaimValidationRule::default()
        });
        authenticator.claim_validation_rules = rules.collect();
        let configuration = Configuration {
            jwt: vec![authenticator],
            ..Configuration::default()
        };
        let algorithms = match self.signing_algs.as_slice() {
            [] => vec!["RS256".to_owned()],
            some => some.to_vec(),
        };
        Issuers::new(&configuration, &algorithms, own, asking, None)
    }
}
