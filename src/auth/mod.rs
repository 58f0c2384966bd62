//! Who is calling (certificates, tokens, proxies, and the keys that prove them), and what may be done.

mod authenticator;
mod authority;
pub mod authorization;
mod bootstrap_tokens;
mod certificates;
mod front_proxy;
mod issuer;
mod jws;
mod kubeconfig;
mod legacy_uses;
mod options;
mod pki;
mod rotation;
mod service_accounts;
mod serving;
mod signing;
mod tokens;
mod user;
mod verified;

pub use authenticator::{Authenticator, AuthenticatorConfig, Identified, Unauthenticated};
pub use authority::{Authority, Usages, Wanted, names_of, signing_request, subject_of_user};
pub use bootstrap_tokens::{BOOTSTRAP_TOKEN_TYPE, parts_of_bootstrap_token};
pub use certificates::{ClientCertificates, Presented};
pub use front_proxy::{FrontProxy, extra_key};
pub use issuer::{Bound, Claims, ISSUER, Issuer, IssuerOptions, Named, rotate_issuer_key};
pub use kubeconfig::{Credential, kubeconfig_text};
pub use legacy_uses::LegacyUses;
pub use options::{AuthenticationOptions, FlagErrors, OpenFilesError, RequestHeaderOptions};
pub(crate) use pki::FRONT_PROXY_NAME;
pub use pki::{Identity, Pki, PkiError, pem};
pub use rotation::{Described, certificate_files, describe, discard};
pub use serving::{CertificateFiles, ClientIdentity, NamedCertificate, Serving};
pub use tokens::{TokenFileError, Tokens};
pub use user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};
