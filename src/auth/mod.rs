//! Who is calling, and what may be done.

mod authenticator;
pub mod authorization;
mod certificates;
mod pki;
mod tokens;
mod user;

pub use authenticator::{Authenticator, AuthenticatorConfig, Certified, Unauthenticated};
pub use certificates::ClientCertificates;
pub(crate) use pki::FRONT_PROXY_NAME;
pub use pki::{Identity, Pki, PkiError};
pub use tokens::{TokenFileError, Tokens};
pub use user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};
