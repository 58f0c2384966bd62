//! Looking at the certificates of a data directory, and making them anew.

use std::path::{Path, PathBuf};

use rcgen::{KeyPair, PublicKeyData as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::names_of;
use super::pki::{self, PkiError};

/// Certificates that an authority of the directory signed, by the stems of their files.
const LEAVES: [&str; 4] = ["server", "admin", "apiserver-kubelet-client", "front-proxy-client"];
/// The authorities.
const AUTHORITIES: [&str; 2] = ["ca", "front-proxy-ca"];

/// What a certificate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Its file.
    pub path: PathBuf,
    /// Its subject, e.g. `O=system:masters, CN=kubernetes-admin`.
    pub subject: String,
    /// Names beside the subject.
    pub names: Vec<String>,
    /// When it ends, Unix seconds.
    pub ends_s: i64,
    /// Whether the key beside it is its own; `None` where there is none.
    pub has_its_key: Option<bool>,
}

/// Describes the first certificate of each file.
///
/// # Errors
/// When a file cannot be read or holds no certificate.
pub fn describe(paths: &[PathBuf]) -> Result<Vec<Described>, PkiError> {
    paths.iter().map(|path| described(path)).collect()
}

fn described(path: &Path) -> Result<Described, PkiError> {
    let unusable = |reason: &dyn std::fmt::Display| pki::failed("cannot use", path, reason);
    let bytes = std::fs::read(path).map_err(|error| pki::failed("cannot read", path, &error))?;
    let der = CertificateDer::from_pem_slice(&bytes).map_err(|_| unusable(&"there is no certificate in it"))?;
    let (_, certificate) = X509Certificate::from_der(&der).map_err(|error| unusable(&error))?;
    let key = path.with_extension("key");
    let has_its_key = pki::read(&key)?.map(|pem| {
        let pair = KeyPair::from_pem(&String::from_utf8_lossy(&pem));
        pair.is_ok_and(|pair| certificate.public_key().subject_public_key.data.as_ref() == pair.der_bytes())
    });
    Ok(Described {
        path: path.to_owned(),
        subject: certificate.subject().to_string(),
        names: names_of(&certificate),
        ends_s: certificate.validity().not_after.timestamp(),
        has_its_key,
    })
}

/// The certificates of a data directory, authorities first; those that are there.
pub fn certificate_files(data_dir: &Path) -> Vec<PathBuf> {
    let dir = data_dir.join("pki");
    let files = AUTHORITIES
        .iter()
        .chain(&LEAVES)
        .map(|stem| dir.join(format!("{stem}.crt")));
    files.filter(|path| path.exists()).collect()
}

/// Takes away the certificates of a data directory and their keys, the authorities' too if `with_authorities`: who opens it next makes
/// them anew. A server that runs does so soon; not so with authorities, which it takes up when it is started again.
///
/// # Errors
/// When a file cannot be removed. What was removed stays removed, which is as good as having removed all.
pub fn discard(data_dir: &Path, with_authorities: bool) -> Result<Vec<PathBuf>, PkiError> {
    let dir = data_dir.join("pki");
    let authorities = AUTHORITIES.iter().filter(|_| with_authorities);
    let mut removed = Vec::new();
    for stem in LEAVES.iter().chain(authorities) {
        for extension in ["crt", "key"] {
            let path = dir.join(format!("{stem}.{extension}"));
            match std::fs::remove_file(&path) {
                Ok(()) => removed.push(path),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(pki::failed("cannot remove", &path, &error)),
            }
        }
    }
    Ok(removed)
}
