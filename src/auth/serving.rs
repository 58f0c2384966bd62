//! Which certificates this server shows: its own, and those that an operator gave it, by the name that a client asks for. They are
//! replaced while the server runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::Pki;
use super::pki::{self, Identity, PkiError};

/// Certificates and keys in files of an operator's, PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateFiles {
    /// What is shown in place of the server's own certificate: certificate and key.
    pub default: Option<(PathBuf, PathBuf)>,
    /// What is shown to clients that ask for certain names.
    pub by_name: Vec<NamedCertificate>,
}

/// A certificate for clients that ask for certain names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedCertificate {
    /// The file of the certificate and of those that lead to its authority.
    pub certificate: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
    /// The names, `*.` in front for all of a domain; without any those of the certificate.
    pub names: Vec<String>,
}

/// The most bytes of a file of certificates or of a key.
const FILE_MAX: u64 = 1 << 20;

/// The certificates that are shown now.
#[derive(Debug)]
pub struct Serving {
    files: CertificateFiles,
    shown: ArcSwap<Shown>,
}

#[derive(Debug)]
struct Shown {
    /// In the order in which they are looked at.
    by_name: Vec<Entry>,
    /// What is shown when no name fits.
    default: Arc<CertifiedKey>,
    /// PEM of the authorities of certificates from files, as far as the files have them.
    authorities: String,
    /// What the files were when they were read.
    stamps: Vec<Stamp>,
}

#[derive(Debug)]
struct Entry {
    /// In lower case.
    names: Vec<String>,
    key: Arc<CertifiedKey>,
}

/// What tells that a file is another one.
type Stamp = Option<(std::time::SystemTime, u64, u64)>;

impl Serving {
    /// Reads the files.
    ///
    /// # Errors
    /// When one can not be read, or holds no certificate, or a key that is not the certificate's.
    pub fn open(pki: &Pki, files: CertificateFiles) -> Result<Self, PkiError> {
        let shown = Shown::read(pki, &files)?;
        Ok(Self {
            files,
            shown: ArcSwap::from_pointee(shown),
        })
    }

    /// Reads the files again and takes the server's own certificate anew. What is shown stays as it is when that fails.
    ///
    /// # Errors
    /// See [`Serving::open`].
    pub fn renew(&self, pki: &Pki) -> Result<(), PkiError> {
        self.shown.store(Arc::new(Shown::read(pki, &self.files)?));
        Ok(())
    }

    /// Whether a file is another one than when it was read. Costs a question to the file system for each.
    pub fn is_outdated(&self) -> bool {
        stamps(&self.files) != self.shown.load().stamps
    }

    /// Whether this server shows this certificate to its clients.
    pub fn shows(&self, certificate: &CertificateDer<'_>) -> bool {
        let shown = self.shown.load();
        let first = |key: &CertifiedKey| key.cert.first().is_some_and(|own| own == certificate);
        first(&shown.default) || shown.by_name.iter().any(|entry| first(&entry.key))
    }

    /// PEM of the authorities by which certificates from files are known, as far as the files have them.
    pub fn authorities(&self) -> String {
        self.shown.load().authorities.clone()
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let shown = self.shown.load();
        let name = hello.server_name().map(str::to_ascii_lowercase);
        Some(shown.of(name.as_deref()))
    }
}

impl Shown {
    fn read(pki: &Pki, files: &CertificateFiles) -> Result<Self, PkiError> {
        // Before the files are read: what changes meanwhile is read once more.
        let stamps = stamps(files);
        let own = certified(pki.chain.clone(), pki.key.clone_key())
            .map_err(|reason| pki::failed("cannot use", Path::new("pki/server.crt"), &reason))?;
        let own = Arc::new(own);
        let mut authorities = String::new();
        let mut read = |certificate: &Path, key: &Path| {
            let (key, authority) = from_files(certificate, key)?;
            authorities.push_str(&authority);
            Ok::<_, PkiError>(Arc::new(key))
        };
        let mut by_name = Vec::new();
        for named in &files.by_name {
            let key = read(&named.certificate, &named.key)?;
            let names = if named.names.is_empty() {
                names_of(&key)
            } else {
                named.names.iter().map(|name| name.to_ascii_lowercase()).collect()
            };
            by_name.push(Entry { names, key });
        }
        let default = match &files.default {
            None => own.clone(),
            Some((certificate, key)) => {
                let key = read(certificate, key)?;
                // Names that it does not have and the server's own certificate does: Pods and the administrator's kubeconfig ask so.
                by_name.push(Entry {
                    names: names_of(&key),
                    key: key.clone(),
                });
                key
            }
        };
        by_name.push(Entry {
            names: names_of(&own),
            key: own,
        });
        Ok(Self {
            by_name,
            default,
            authorities,
            stamps,
        })
    }

    /// What is shown to who asks for a name: a certificate of that name, else one of its domain.
    fn of(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let Some(name) = name else {
            return self.default.clone();
        };
        let fits = |wanted: &str| {
            self.by_name
                .iter()
                .find(|entry| entry.names.iter().any(|own| own == wanted))
        };
        let found = fits(name).or_else(|| {
            let (_, domain) = name.split_once('.')?;
            fits(&format!("*.{domain}"))
        });
        found.map_or_else(|| self.default.clone(), |entry| entry.key.clone())
    }
}

fn stamps(files: &CertificateFiles) -> Vec<Stamp> {
    use std::os::unix::fs::MetadataExt as _;
    let stamp = |path: &PathBuf| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
    };
    let named = files.by_name.iter().flat_map(|named| [&named.certificate, &named.key]);
    let default = files.default.iter().flat_map(|(certificate, key)| [certificate, key]);
    default.chain(named).map(stamp).collect()
}

/// A certificate and its key, and PEM of what signed it if that is in the file.
fn from_files(certificate: &Path, key: &Path) -> Result<(CertifiedKey, String), PkiError> {
    let unusable = |path: &Path, reason: &str| pki::failed("cannot use", path, &reason);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bounded(certificate)?).collect();
    let chain = chain.map_err(|_| unusable(certificate, "there is a certificate in it that is damaged"))?;
    let Some(last) = chain.last() else {
        return Err(unusable(certificate, "there is no certificate in it"));
    };
    let parsed = X509Certificate::from_der(last).ok().map(|(_, parsed)| parsed);
    let is_authority = parsed.is_some_and(|parsed| chain.len() > 1 || parsed.subject() == parsed.issuer());
    let authority = if is_authority {
        pki::pem("CERTIFICATE", last)
    } else {
        String::new()
    };
    let secret =
        PrivateKeyDer::from_pem_slice(&bounded(key)?).map_err(|_| unusable(key, "there is no private key in it"))?;
    let certified = certified(chain, secret).map_err(|reason| unusable(key, &reason))?;
    Ok((certified, authority))
}

fn bounded(path: &Path) -> Result<Vec<u8>, PkiError> {
    let length = std::fs::metadata(path)
        .map_err(|error| pki::failed("cannot read", path, &error))?
        .len();
    if length > FILE_MAX {
        return Err(pki::failed("cannot use", path, &"it is larger than 1 MiB"));
    }
    std::fs::read(path).map_err(|error| pki::failed("cannot read", path, &error))
}

/// A chain with its key, which have to belong together.
fn certified(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<CertifiedKey, String> {
    let provider: CryptoProvider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map_err(|error| error.to_string())
}

/// The host names of a certificate, in lower case.
fn names_of(key: &CertifiedKey) -> Vec<String> {
    let parsed = key.cert.first().and_then(|first| X509Certificate::from_der(first).ok());
    let Some((_, certificate)) = parsed else {
        return Vec::new();
    };
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map_or(&[][..], |names| &names.value.general_names);
    let hosts = names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    hosts.collect()
}

/// Who this server is towards others: a client certificate that is replaced while the server runs.
#[derive(Debug)]
pub struct ClientIdentity(ArcSwap<CertifiedKey>);

impl ClientIdentity {
    /// That of a certificate and its key.
    ///
    /// # Errors
    /// When they do not belong together.
    pub fn new(identity: &Identity) -> Result<Self, String> {
        Ok(Self(ArcSwap::from_pointee(of_identity(identity)?)))
    }

    /// Takes another one from the next connection on.
    ///
    /// # Errors
    /// When certificate and key do not belong together; it stays as it is.
    pub fn renew(&self, identity: &Identity) -> Result<(), String> {
        self.0.store(Arc::new(of_identity(identity)?));
        Ok(())
    }
}

fn of_identity(identity: &Identity) -> Result<CertifiedKey, String> {
    certified(identity.chain.clone(), identity.key.clone_key())
}

impl ResolvesClientCert for ClientIdentity {
    fn resolve(&self, _: &[&[u8]], schemes: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let current = self.0.load_full();
        current.key.choose_scheme(schemes).is_some().then_some(current)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(names: &[&str]) -> Entry {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate =
            rcgen::CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let der = certificate.unwrap().self_signed(&key).unwrap().der().clone();
        let key = Arc::new(certified(vec![der], PrivateKeyDer::try_from(key.serialize_der()).unwrap()).unwrap());
        Entry {
            names: names_of(&key),
            key,
        }
    }

    #[test]
    fn a_name_is_answered_with_its_own_certificate_then_with_its_domains_then_with_the_default() {
        let entries = [
            entry(&["*.example.com"]),
            entry(&["a.example.com", "B.example.com"]),
            entry(&["own"]),
        ];
        let default = entry(&["default"]).key;
        let [domain, name, own] = [0, 1, 2].map(|at| entries[at].key.clone());
        let shown = Shown {
            by_name: entries.into(),
            default: default.clone(),
            authorities: String::new(),
            stamps: Vec::new(),
        };
        for (asked, wanted) in [
            (Some("a.example.com"), &name),
            (Some("b.example.com"), &name),
            (Some("c.example.com"), &domain),
            (Some("d.c.example.com"), &default),
            (Some("own"), &own),
            (Some("example.com"), &default),
            (None, &default),
        ] {
            assert!(Arc::ptr_eq(&shown.of(asked), wanted), "{asked:?}");
        }
    }
}
