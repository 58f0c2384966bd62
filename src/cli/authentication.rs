//! Flags that say who is believed, by kube-apiserver's names.

use std::path::PathBuf;
use std::time::Duration;

use clap::ArgAction;

use crate::auth::{AuthenticationOptions, IssuerOptions, OidcFlags, RequestHeaderOptions, WebhookOptions};
use crate::scalars::go_duration;

/// Flags of `flatkube server` about authentication.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Authentication")]
pub(super) struct Authentication {
    /// Bearer tokens, in kube-apiserver's form: token,user,uid,"group1,group2"
    #[arg(long, value_name = "CSV")]
    token_auth_file: Option<PathBuf>,

    /// Authorities whose client certificates are believed, beside this server's own (PEM): CN is the user, each O a group
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,

    /// Whether requests without credentials are those of system:anonymous; else they are refused
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    anonymous_auth: Option<bool>,

    /// Whether machines may join with the tokens of Secrets of type bootstrap.kubernetes.io/token
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_bootstrap_token_auth: bool,

    /// Authorities of proxies that say in headers who asks (PEM); without it no header is believed
    #[arg(long, value_name = "FILE")]
    requestheader_client_ca_file: Option<PathBuf>,

    /// Common names of those proxies' certificates; without it all that the authorities signed are believed
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "requestheader_client_ca_file"
    )]
    requestheader_allowed_names: Vec<String>,

    /// Headers that name the user; the first that is there counts
    #[arg(long, value_name = "HEADERS", value_delimiter = ',', default_value = "X-Remote-User")]
    requestheader_username_headers: Vec<String>,

    /// Headers that name the user's groups
    #[arg(
        long,
        value_name = "HEADERS",
        value_delimiter = ',',
        default_value = "X-Remote-Group"
    )]
    requestheader_group_headers: Vec<String>,

    /// Headers of the user's uid; the first that is there counts
    #[arg(long, value_name = "HEADERS", value_delimiter = ',', default_value = "X-Remote-Uid")]
    requestheader_uid_headers: Vec<String>,

    /// What names of headers begin with that tell more of the user
    #[arg(
        long,
        value_name = "PREFIXES",
        value_delimiter = ',',
        default_value = "X-Remote-Extra-"
    )]
    requestheader_extra_headers_prefix: Vec<String>,

    /// Who signs tokens of service accounts; may be given several times: new tokens name the first, all are believed
    #[arg(long, value_name = "URL", default_value = crate::auth::ISSUER)]
    service_account_issuer: Vec<String>,

    /// Keys that tokens of service accounts may be signed with beside the one that signs (PEM; public or private, RSA or
    /// ECDSA); may be given several times
    #[arg(long, value_name = "FILE")]
    service_account_key_file: Vec<PathBuf>,

    /// The key that signs tokens of service accounts (PEM; RSA, P-256 or P-384), in place of pki/service-account.key
    #[arg(long, value_name = "FILE")]
    service_account_signing_key_file: Option<PathBuf>,

    /// Where others are told to find the keys of service accounts, in place of the issuer's /openid/v1/jwks
    #[arg(long, value_name = "URL")]
    service_account_jwks_uri: Option<String>,

    /// The longest life of a token of a service account, such as 24h; longer ones are shortened
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    service_account_max_token_expiration: Option<i64>,

    /// Whether tokens of Pods live on for a year, for clients that read them once
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    service_account_extend_token_expiration: bool,

    /// For whom tokens have to be to be good here; without it, the issuers of service accounts
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    api_audiences: Vec<String>,

    /// More issuers whose tokens are believed, what is made of their claims, and where nobody in particular gets in: an
    /// AuthenticationConfiguration of apiserver.config.k8s.io/v1; taken up anew when the file changes
    #[arg(long, value_name = "FILE")]
    authentication_config: Option<PathBuf>,

    /// An OpenID Connect issuer whose tokens are believed; its keys are fetched from URL/.well-known/openid-configuration
    #[arg(long, value_name = "URL")]
    oidc_issuer_url: Option<String>,

    /// The audience that its tokens have to be for
    #[arg(long, value_name = "ID")]
    oidc_client_id: Option<String>,

    /// The authority that signed the issuer's certificate (PEM); without it, those that the system knows
    #[arg(long, value_name = "FILE")]
    oidc_ca_file: Option<PathBuf>,

    /// The claim that is the user's name, sub without the flag
    #[arg(long, value_name = "CLAIM")]
    oidc_username_claim: Option<String>,

    /// What is put before the user's name; without it URL#, but nothing before the claim email; '-': nothing
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    oidc_username_prefix: Option<String>,

    /// The claim that holds the user's groups, a text or a list
    #[arg(long, value_name = "CLAIM")]
    oidc_groups_claim: Option<String>,

    /// What is put before each group
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    oidc_groups_prefix: Option<String>,

    /// A claim that has to have a value; may be given several times
    #[arg(long, value_name = "CLAIM=VALUE", value_parser = pair)]
    oidc_required_claim: Vec<(String, String)>,

    /// Algorithms that its tokens may be signed by, RS256 without the flag: RS, PS, ES with 256, 384, RS and PS with 512
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    oidc_signing_algs: Vec<String>,

    /// The kubeconfig of a webhook that is asked whom tokens stand for that nobody here knows
    #[arg(long, value_name = "KUBECONFIG")]
    authentication_token_webhook_config_file: Option<PathBuf>,

    /// The version of TokenReview that the webhook speaks: v1 or v1beta1
    #[arg(long, value_name = "VERSION", default_value = "v1beta1")]
    authentication_token_webhook_version: String,

    /// How long answers of the webhook are remembered
    #[arg(long, value_name = "DURATION", value_parser = seconds, default_value = "2m")]
    authentication_token_webhook_cache_ttl: i64,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (claim, value) = text.split_once('=').ok_or("not of the form CLAIM=VALUE")?;
    Ok((claim.trim().to_owned(), value.to_owned()))
}

fn seconds(text: &str) -> Result<i64, String> {
    Ok((go_duration::nanoseconds(text)? / 1e9) as i64)
}

impl Authentication {
    /// What they come to.
    pub(super) fn options(&self) -> AuthenticationOptions {
        let request_header = self
            .requestheader_client_ca_file
            .clone()
            .map(|client_ca_file| RequestHeaderOptions {
                client_ca_file,
                allowed_names: self.requestheader_allowed_names.clone(),
                username_headers: self.requestheader_username_headers.clone(),
                uid_headers: self.requestheader_uid_headers.clone(),
                group_headers: self.requestheader_group_headers.clone(),
                extra_prefixes: self.requestheader_extra_headers_prefix.clone(),
            });
        AuthenticationOptions {
            token_auth_file: self.token_auth_file.clone(),
            client_ca_file: self.client_ca_file.clone(),
            request_header,
            accounts: IssuerOptions {
                issuers: self.service_account_issuer.clone(),
                key_files: self.service_account_key_file.clone(),
                signing_key_file: self.service_account_signing_key_file.clone(),
                audiences: self.api_audiences.clone(),
                jwks_uri: self.service_account_jwks_uri.clone(),
                life_s_max: self.service_account_max_token_expiration,
                extends: self.service_account_extend_token_expiration,
            },
            anonymous: self.anonymous_auth,
            bootstrap_tokens: self.enable_bootstrap_token_auth,
            oidc: self.oidc(),
            config_file: self.authentication_config.clone(),
            webhook: self
                .authentication_token_webhook_config_file
                .clone()
                .map(|config_file| WebhookOptions {
                    config_file,
                    version: self.authentication_token_webhook_version.clone(),
                    cache_ttl: Duration::from_secs(self.authentication_token_webhook_cache_ttl.unsigned_abs()),
                }),
            ..AuthenticationOptions::default()
        }
    }

    /// The issuer by flags, if there is any such flag.
    fn oidc(&self) -> Option<OidcFlags> {
        let texts = [
            &self.oidc_issuer_url,
            &self.oidc_client_id,
            &self.oidc_username_claim,
            &self.oidc_username_prefix,
            &self.oidc_groups_claim,
            &self.oidc_groups_prefix,
        ];
        let lists = self.oidc_required_claim.is_empty() && self.oidc_signing_algs.is_empty();
        if texts.iter().all(|text| text.is_none()) && lists && self.oidc_ca_file.is_none() {
            return None;
        }
        let [
            issuer_url,
            client_id,
            username_claim,
            username_prefix,
            groups_claim,
            groups_prefix,
        ] = texts.map(|text| text.clone().unwrap_or_default());
        Some(OidcFlags {
            issuer_url,
            client_id,
            ca_file: self.oidc_ca_file.clone(),
            username_claim,
            username_prefix,
            groups_claim,
            groups_prefix,
            required_claims: self.oidc_required_claim.clone(),
            signing_algs: self.oidc_signing_algs.clone(),
        })
    }
}
