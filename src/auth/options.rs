//! Who is believed, as flags say it, and the files that they name.

use std::path::{Path, PathBuf};

use http::HeaderName;
use rustls::pki_types::CertificateDer;

use super::certificates::certificates;
use super::issuer::IssuerOptions;
use super::oidc::{Asking, Issuers, OidcFlags};
use super::pki::{self, PkiError};
use super::tokens::TokenFileError;
use super::webhook::{Webhook, WebhookOptions};
use super::{FrontProxy, Tokens};

/// Lifes of tokens that `--service-account-max-token-expiration` may ask for, seconds.
const LIFE_S: std::ops::RangeInclusive<i64> = 3600..=1 << 32;

/// Who is believed, in kube-apiserver's flags.
#[derive(Debug, Clone)]
pub struct AuthenticationOptions {
    /// Static tokens: CSV of `token,user,uid,"group1,group2"` (`--token-auth-file`).
    pub token_auth_file: Option<PathBuf>,
    /// Authorities of clients' certificates beside the server's own (`--client-ca-file`).
    pub client_ca_file: Option<PathBuf>,
    /// The proxy that says who asks.
    pub request_header: Option<RequestHeaderOptions>,
    /// Tokens of service accounts.
    pub accounts: IssuerOptions,
    /// Whether who shows nothing is `system:anonymous` (`--anonymous-auth`); else such a request is refused. Not said: it is,
    /// unless the file says something else.
    pub anonymous: Option<bool>,
    /// Whether machines may join with bootstrap tokens (`--enable-bootstrap-token-auth`).
    pub bootstrap_tokens: bool,
    /// An issuer of tokens (`--oidc-…`).
    pub oidc: Option<OidcFlags>,
    /// A file that says more of whose tokens are believed (`--authentication-config`); taken up anew when it changes.
    pub config_file: Option<PathBuf>,
    /// How long providers of keys are waited for.
    pub asking: Asking,
    /// A webhook that knows tokens.
    pub webhook: Option<WebhookOptions>,
}

impl Default for AuthenticationOptions {
    fn default() -> Self {
        Self {
            token_auth_file: None,
            client_ca_file: None,
            request_header: None,
            accounts: IssuerOptions::default(),
            anonymous: None,
            bootstrap_tokens: true,
            oidc: None,
            config_file: None,
            asking: Asking::default(),
            webhook: None,
        }
    }
}

/// A proxy in front that authenticates (`--requestheader-…`).
#[derive(Debug, Clone)]
pub struct RequestHeaderOptions {
    /// Authorities of proxies' certificates.
    pub client_ca_file: PathBuf,
    /// Common names that are believed; none: all that the authorities signed.
    pub allowed_names: Vec<String>,
    /// Headers of the user's name, of which the first counts that is there.
    pub username_headers: Vec<String>,
    /// Headers of the user's uid.
    pub uid_headers: Vec<String>,
    /// Headers of groups.
    pub group_headers: Vec<String>,
    /// What names of headers of extras begin with.
    pub extra_prefixes: Vec<String>,
}

/// Flags that cannot be meant, each as a sentence that names the flag.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct FlagErrors(pub Vec<String>);

/// A file, and what was in it when it was read.
pub(super) type ReadFile = (PathBuf, Vec<u8>);

/// What the files of [`AuthenticationOptions`] hold.
#[derive(Debug)]
pub struct Opened {
    /// Static tokens.
    pub tokens: Tokens,
    /// Authorities of clients' certificates beside the server's own.
    pub client_authorities: Vec<CertificateDer<'static>>,
    /// The file that they are from, PEM.
    pub client_ca_pem: String,
    /// The proxy that is believed.
    pub front_proxy: Option<FrontProxy>,
    /// Others whose tokens are believed.
    pub issuers: Issuers,
    /// A webhook that knows tokens.
    pub webhook: Option<Webhook>,
    /// The file that says whose tokens are believed, and what it holds.
    pub config: Option<ReadFile>,
}

impl AuthenticationOptions {
    /// Whether flags fit each other.
    ///
    /// # Errors
    /// Everything that does not, in kube-apiserver's words where it has some.
    pub fn check(&self) -> Result<(), FlagErrors> {
        let mut wrong = Vec::new();
        self.accounts.check(&mut wrong);
        if let Some(proxy) = &self.request_header {
            proxy.check(&mut wrong);
        }
        if let Some(webhook) = &self.webhook
            && !matches!(webhook.version.as_str(), "v1" | "v1beta1")
        {
            let version = &webhook.version;
            wrong.push(format!(
                "authentication-token-webhook-version: {version:?} is neither v1 nor v1beta1"
            ));
        }
        if let Some(oidc) = &self.oidc {
            if self.config_file.is_some() {
                wrong.push("authentication-config file and oidc-* flags are mutually exclusive".into());
            } else {
                oidc.check(&mut wrong);
            }
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(FlagErrors(wrong))
        }
    }

    /// Reads the files, those of service accounts excepted.
    ///
    /// # Errors
    /// The file that cannot be used, and why.
    pub fn open(&self) -> Result<Opened, OpenFilesError> {
        let tokens = match &self.token_auth_file {
            Some(path) => Tokens::read(path)?,
            None => Tokens::default(),
        };
        let (mut client_authorities, mut client_ca_pem) = (Vec::new(), String::new());
        if let Some(path) = &self.client_ca_file {
            let (pem, found) = authorities(path)?;
            client_authorities = found;
            client_ca_pem = String::from_utf8_lossy(&pem).into_owned();
        }
        let front_proxy = match &self.request_header {
            Some(proxy) => Some(proxy.open()?),
            None => None,
        };
        let (issuers, config) = self.issuers()?;
        let webhook = match &self.webhook {
            Some(webhook) => {
                let opened = Webhook::new(webhook);
                Some(opened.map_err(|why| pki::failed("cannot use", &webhook.config_file, &why))?)
            }
            None => None,
        };
        Ok(Opened {
            tokens,
            client_authorities,
            client_ca_pem,
            front_proxy,
            issuers,
            webhook,
            config,
        })
    }

    /// Others whose tokens are believed, and the file that says so.
    fn issuers(&self) -> Result<(Issuers, Option<ReadFile>), OpenFilesError> {
        let own = self.accounts.urls();
        if let Some(path) = &self.config_file {
            let text = std::fs::read(path).map_err(|error| pki::failed("cannot read", path, &error))?;
            let issuers = Issuers::read(&text, &own, self.asking, None);
            let issuers = issuers.map_err(|why| pki::failed("cannot use", path, &why))?;
            issuers.fit(self.anonymous).map_err(|why| FlagErrors(vec![why]))?;
            return Ok((issuers, Some((path.clone(), text))));
        }
        let Some(oidc) = &self.oidc else {
            return Ok((Issuers::default(), None));
        };
        let pem = match &oidc.ca_file {
            Some(path) => String::from_utf8_lossy(&authorities(path)?.0).into_owned(),
            None => String::new(),
        };
        let issuers = oidc.issuers(&pem, &own, self.asking);
        Ok((issuers.map_err(|why| FlagErrors(vec![why]))?, None))
    }
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenFilesError {
    /// That of static tokens.
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    /// Another one.
    #[error(transparent)]
    File(#[from] PkiError),
    /// None: it is the flags.
    #[error(transparent)]
    Flags(#[from] FlagErrors),
}

/// The authorities in a PEM file, and its text.
fn authorities(path: &Path) -> Result<(Vec<u8>, Vec<CertificateDer<'static>>), PkiError> {
    let pem = std::fs::read(path).map_err(|error| pki::failed("cannot read", path, &error))?;
    let found = certificates(&pem).map_err(|why| pki::failed("cannot use", path, &why))?;
    Ok((pem, found))
}

impl IssuerOptions {
    fn check(&self, wrong: &mut Vec<String>) {
        for (at, issuer) in self.issuers.iter().enumerate() {
            if issuer.is_empty() {
                wrong.push("service-account-issuer should not be an empty string".into());
            }
            if self.issuers[..at].contains(issuer) {
                wrong.push(format!("service-account-issuer {issuer:?} is already specified"));
            }
            if issuer.contains(':') && issuer.parse::<http::Uri>().is_err() {
                wrong.push(format!(
                    "service-account-issuer {issuer:?} contained a ':' but was not a valid URL"
                ));
            }
        }
        if let Some(uri) = &self.jwks_uri {
            match uri.parse::<http::Uri>() {
                Err(error) => wrong.push(format!("service-account-jwks-uri must be a valid URL: {error}")),
                Ok(parsed) if parsed.scheme_str() != Some("https") => {
                    wrong.push(format!(
                        "service-account-jwks-uri requires https scheme, parsed as: {uri}"
                    ));
                }
                Ok(_) => {}
            }
        }
        if self.life_s_max.is_some_and(|max| !LIFE_S.contains(&max)) {
            wrong.push("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds".into());
        }
    }
}

impl RequestHeaderOptions {
    fn check(&self, wrong: &mut Vec<String>) {
        for (flag, values) in [
            ("requestheader-username-headers", &self.username_headers),
            ("requestheader-uid-headers", &self.uid_headers),
            ("requestheader-group-headers", &self.group_headers),
            ("requestheader-extra-headers-prefix", &self.extra_prefixes),
        ] {
            for value in values {
                if value.trim().is_empty() {
                    wrong.push(format!("empty value in {flag:?}"));
                } else if HeaderName::from_bytes(value.as_bytes()).is_err() {
                    wrong.push(format!("--{flag}: {value:?} is no name of a header"));
                } else if matches!(value.to_ascii_lowercase().as_str(), "authorization" | "host") {
                    wrong.push(format!("--{flag}: {value:?} says something else already"));
                }
            }
        }
        if self.allowed_names.iter().any(|name| name.trim().is_empty()) {
            wrong.push("empty value in \"requestheader-allowed-names\"".into());
        }
        if self.username_headers.is_empty() {
            wrong.push("--requestheader-username-headers: a proxy has to say who asks".into());
        }
    }

    fn open(&self) -> Result<FrontProxy, PkiError> {
        let lower = |names: &[String]| names.iter().map(|name| name.to_ascii_lowercase()).collect();
        let (pem, _) = authorities(&self.client_ca_file)?;
        Ok(FrontProxy {
            authorities: pem,
            allowed_names: self.allowed_names.clone(),
            username_headers: lower(&self.username_headers),
            uid_headers: lower(&self.uid_headers),
            group_headers: lower(&self.group_headers),
            extra_prefixes: lower(&self.extra_prefixes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_cannot_be_meant_are_told_all_at_once() {
        let mut options = AuthenticationOptions::default();
        options.check().unwrap();
        options.accounts = IssuerOptions {
            issuers: vec!["a".into(), "a".into(), String::new()],
            jwks_uri: Some("http://example.com/keys".into()),
            life_s_max: Some(60),
            ..IssuerOptions::default()
        };
        options.request_header = Some(RequestHeaderOptions {
            client_ca_file: "ca.crt".into(),
            allowed_names: vec![" ".into()],
            username_headers: Vec::new(),
            uid_headers: vec!["authorization".into()],
            group_headers: vec!["a b".into()],
            extra_prefixes: vec![String::new()],
        });
        let FlagErrors(told) = options.check().unwrap_err();
        assert_eq!(
            told,
            [
                "service-account-issuer \"a\" is already specified",
                "service-account-issuer should not be an empty string",
                "service-account-jwks-uri requires https scheme, parsed as: http://example.com/keys",
                "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds",
                "--requestheader-uid-headers: \"authorization\" says something else already",
                "--requestheader-group-headers: \"a b\" is no name of a header",
                "empty value in \"requestheader-extra-headers-prefix\"",
                "empty value in \"requestheader-allowed-names\"",
                "--requestheader-username-headers: a proxy has to say who asks",
            ]
        );
    }

    #[test]
    fn a_file_that_is_missing_or_holds_no_certificate_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.crt");
        let options = AuthenticationOptions {
            client_ca_file: Some(path.clone()),
            ..AuthenticationOptions::default()
        };
        let told = options.open().unwrap_err().to_string();
        assert!(told.starts_with("cannot read ") && told.contains("ca.crt"), "{told}");
        std::fs::write(&path, "nothing").unwrap();
        let told = options.open().unwrap_err().to_string();
        assert!(told.ends_with("ca.crt: there is no certificate in it"), "{told}");
    }
}
