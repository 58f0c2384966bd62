//! AuthenticationConfiguration files (`apiserver.config.k8s.io/v1`; v1beta1 and v1alpha1 say the same).

use serde::Deserialize;
use serde_saphyr::DuplicateKeyPolicy;

use crate::schema::{yaml_fault, yaml_options};

/// The longest file that is read, bytes.
const LENGTH_MAX: usize = 1024 * 1024;

/// The file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Configuration {
    pub(super) api_version: String,
    pub(super) kind: String,
    /// Issuers whose tokens are believed.
    pub(super) jwt: Vec<JwtAuthenticator>,
    /// Who shows nothing; without it, a flag says so.
    pub(crate) anonymous: Option<Anonymous>,
}

/// Whether who shows nothing gets in, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Anonymous {
    pub(crate) enabled: bool,
    /// Where; nowhere said: everywhere.
    pub(crate) conditions: Vec<AnonymousCondition>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AnonymousCondition {
    pub(crate) path: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct JwtAuthenticator {
    pub(super) issuer: IssuerSection,
    pub(super) claim_validation_rules: Vec<ClaimValidationRule>,
    pub(super) claim_mappings: ClaimMappings,
    pub(super) user_validation_rules: Vec<UserValidationRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct IssuerSection {
    pub(super) url: String,
    #[serde(rename = "discoveryURL")]
    pub(super) discovery_url: String,
    pub(super) certificate_authority: String,
    pub(super) audiences: Vec<String>,
    pub(super) audience_match_policy: String,
    pub(super) egress_selector_type: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ClaimValidationRule {
    pub(super) claim: String,
    pub(super) required_value: String,
    pub(super) expression: String,
    pub(super) message: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ClaimMappings {
    pub(super) username: Mapping,
    pub(super) groups: Mapping,
    pub(super) uid: Unprefixed,
    pub(super) extra: Vec<ExtraMapping>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Mapping {
    pub(super) claim: String,
    pub(super) prefix: Option<String>,
    pub(super) expression: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Unprefixed {
    pub(super) claim: String,
    pub(super) expression: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ExtraMapping {
    pub(super) key: String,
    pub(super) value_expression: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct UserValidationRule {
    pub(super) expression: String,
    pub(super) message: String,
}

impl Configuration {
    /// Reads a file's text, YAML or JSON. Fields that are not known are refused.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        const VERSIONS: [&str; 3] = [
            "apiserver.config.k8s.io/v1",
            "apiserver.config.k8s.io/v1beta1",
            "apiserver.config.k8s.io/v1alpha1",
        ];
        if text.is_empty() {
            return Err("empty config data".into());
        }
        if text.len() > LENGTH_MAX {
            return Err(format!("longer than {LENGTH_MAX} bytes"));
        }
        let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
        let options = yaml_options(text.len(), DuplicateKeyPolicy::Error);
        let read: Self = serde_saphyr::from_str_with_options(text, options).map_err(|error| yaml_fault(&error))?;
        if read.kind != "AuthenticationConfiguration" || !VERSIONS.contains(&read.api_version.as_str()) {
            return Err(format!(
                "expected AuthenticationConfiguration of apiserver.config.k8s.io/v1, got {:?} of {:?}",
                read.kind, read.api_version
            ));
        }
        Ok(read)
    }
}
