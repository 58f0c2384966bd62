//! Flags that say who is believed, by kube-apiserver's names.

use std::path::PathBuf;

use clap::ArgAction;

use crate::auth::{AuthenticationOptions, IssuerOptions, RequestHeaderOptions};
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
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    anonymous_auth: bool,

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
        }
    }
}
