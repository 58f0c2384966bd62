//! The server's own certificates: a CA, a server certificate, a client certificate for the administrator, and the
//! kubeconfig that carries them. Made at the first start and kept; leaf certificates are made anew from the same CA when
//! they near their end or when the server listens on an address that they do not name.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::{Authority, Credential, kubeconfig_text};

/// Why a certificate, a key or the kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{what} {}: {reason}", path.display())]
pub struct PkiError {
    /// What was tried, e.g. `cannot read`.
    pub what: &'static str,
    /// The file.
    pub path: PathBuf,
    /// What is wrong and, where known, what to do.
    pub reason: String,
}

/// A certificate to show others, and its key.
#[derive(Debug)]
pub struct Identity {
    /// The certificate, then those that lead to the CA.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its key.
    pub key: PrivateKeyDer<'static>,
}

/// What the server needs of its certificates.
#[derive(Debug)]
pub struct Pki {
    /// The CA that signs client certificates and the server's.
    pub ca: CertificateDer<'static>,
    /// The same, as who signs what clients ask for.
    pub authority: Arc<Authority>,
    /// The same as PEM.
    pub ca_pem: String,
    /// The server's chain: certificate and CA.
    pub chain: Vec<CertificateDer<'static>>,
    /// The server's key.
    pub key: PrivateKeyDer<'static>,
    /// Who this server is towards kubelets.
    pub kubelet_client: Identity,
    /// The CA that signs `front_proxy_client`, as PEM. It signs nothing else: aggregated API servers believe whatever
    /// a bearer of such a certificate says of users.
    pub front_proxy_ca: String,
    /// Who this server is towards aggregated API servers.
    pub front_proxy_client: Identity,
    /// Secret for continue tokens.
    pub continue_key: [u8; 32],
    /// Where the administrator's kubeconfig lies.
    pub kubeconfig: PathBuf,
}

/// The name by which aggregated API servers know this server.
pub(crate) const FRONT_PROXY_NAME: &str = "front-proxy-client";

const CA_DAYS: i64 = 3650;
const LEAF_DAYS: i64 = 365;
/// A leaf that ends sooner than this is made anew at start.
const RENEW_DAYS: i64 = 30;

/// Names under which the API server is reached from inside a cluster, and from this machine.
const DNS_NAMES: &[&str] = &[
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    LOOPBACK_NAME,
];
/// The name that this server's own certificate is asked for by where it shows others, as kube-apiserver calls it.
const LOOPBACK_NAME: &str = "apiserver-loopback-client";
/// The first address of the Service range: the `kubernetes` Service.
const SERVICE_ADDRESS: &str = "10.96.0.1";

impl Pki {
    /// Reads what is kept under `data_dir/pki`, makes what is missing. `address` is the TLS address that is listened
    /// on, with the actual port; it goes into the server certificate and the kubeconfig.
    ///
    /// `more_names`: host names and addresses that the server certificate names besides those that it has anyhow. `is_external`: whether
    /// the server shows another certificate, so that the administrator's kubeconfig has to ask for this one by name.
    ///
    /// # Errors
    /// When a file can be neither read nor made, or does not hold what its name says.
    pub fn open(
        data_dir: &Path,
        address: SocketAddr,
        more_names: &[String],
        is_external: bool,
    ) -> Result<Self, PkiError> {
        let dir = data_dir.join("pki");
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(|error| failed("cannot create", &dir, &error))?;
        let (ca, issuer) = authority(&dir, "ca", "flatkube-ca")?;

        let (hosts, addresses) = names(address, more_names);
        let server_path = dir.join("server.crt");
        let server_key = key_pair(&dir.join("server.key"))?;
        let server = leaf(
            &server_path,
            &server_key,
            &issuer,
            |certificate| certificate.is_some_and(|certificate| covers(certificate, &hosts, &addresses)),
            || server_params(&hosts, &addresses),
        )?;

        let admin_path = dir.join("admin.crt");
        let admin_key = key_pair(&dir.join("admin.key"))?;
        let admin = leaf(
            &admin_path,
            &admin_key,
            &issuer,
            |certificate| certificate.is_some(),
            || client_params("kubernetes-admin", Some("system:masters")),
        )?;

        let kubelet_client = client(
            &dir,
            &issuer,
            "apiserver-kubelet-client",
            ("kube-apiserver-kubelet-client", Some("system:masters")),
        )?;
        let (front_proxy_ca, front_proxy_issuer) = authority(&dir, "front-proxy-ca", "flatkube-front-proxy-ca")?;
        let front_proxy_client = client(
            &dir,
            &front_proxy_issuer,
            "front-proxy-client",
            (FRONT_PROXY_NAME, None),
        )?;

        let kubeconfig = data_dir.join("admin.kubeconfig");
        let ca_pem = pem("CERTIFICATE", &ca);
        let credential = Credential::Certificate {
            certificate: &pem("CERTIFICATE", &admin),
            key: &admin_key.serialize_pem(),
        };
        let name = is_external.then_some(LOOPBACK_NAME);
        let text = kubeconfig_text(&url(address), &ca_pem, "kubernetes-admin", &credential, name);
        if fs::read(&kubeconfig).ok().as_deref() != Some(text.as_bytes()) {
            write(&kubeconfig, text.as_bytes(), 0o600)?;
        }
        let key = PrivateKeyDer::try_from(server_key.serialize_der())
            .map_err(|error| failed("cannot use", &dir.join("server.key"), &error))?;
        let continue_key = continue_key(&dir.join("continue.key"))?;
        let authority = Authority::new(ca.clone(), key_pair(&dir.join("ca.key"))?)
            .map_err(|error| failed("cannot use", &dir.join("ca.crt"), &error))?;
        Ok(Self {
            authority: Arc::new(authority),
            chain: vec![server, ca.clone()],
            ca_pem,
            ca,
            key,
            kubelet_client,
            front_proxy_ca: pem("CERTIFICATE", &front_proxy_ca),
            front_proxy_client,
            continue_key,
            kubeconfig,
        })
    }
}

pub(super) fn failed(what: &'static str, path: &Path, reason: &dyn std::fmt::Display) -> PkiError {
    PkiError {
        what,
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, PkiError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("cannot read", path, &error)),
    }
}

/// Replaces a file whole: a crash leaves the old one or the new one.
pub(super) fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), PkiError> {
    let mut next = path.as_os_str().to_owned();
    next.push(".new");
    let next = PathBuf::from(next);
    let written = fs::remove_file(&next)
        .or_else(|error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                Ok(())
            } else {
                Err(error)
            }
        })
        .and_then(|()| {
            fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(&next)
        })
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&next, path));
    written.map_err(|error| failed("cannot write", path, &error))
}

pub(super) fn key_pair(path: &Path) -> Result<KeyPair, PkiError> {
    if let Some(pem) = read(path)? {
        let hint = |error: &dyn std::fmt::Display| {
            failed(
                "cannot use",
                path,
                &format!("{error}; remove the pki directory to have new certificates made"),
            )
        };
        let text = String::from_utf8(pem).map_err(|error| hint(&error))?;
        return KeyPair::from_pem(&text).map_err(|error| hint(&error));
    }
    let key = KeyPair::generate().map_err(|error| failed("cannot make", path, &error))?;
    write(path, key.serialize_pem().as_bytes(), 0o600)?;
    Ok(key)
}

/// The CA kept under `stem`; a new one called `name` if there is none.
fn authority(
    dir: &Path,
    stem: &str,
    name: &str,
) -> Result<(CertificateDer<'static>, Issuer<'static, KeyPair>), PkiError> {
    let (key_path, path) = (dir.join(format!("{stem}.key")), dir.join(format!("{stem}.crt")));
    // A new key would be another authority under the old one's certificate.
    if read(&path)?.is_some() && read(&key_path)?.is_none() {
        let reason = "the key of the authority beside it is not there; put it back, or have new authorities made \
                      ('flatkube certs rotate --ca')";
        return Err(failed("cannot use", &path, &reason));
    }
    let key = key_pair(&key_path)?;
    let params = ca_params(name).map_err(|error| failed("cannot make", &path, &error))?;
    let certificate = if let Some(certificate) = read_certificate(&path)? {
        certificate
    } else {
        let made = params
            .self_signed(&key)
            .map_err(|error| failed("cannot make", &path, &error))?;
        write(&path, made.pem().as_bytes(), 0o644)?;
        made.der().clone()
    };
    Ok((certificate, Issuer::new(params, key)))
}

/// The certificate of a client kept under `stem`; a new one of `subject` (name and group) if there is none that lasts.
fn client(
    dir: &Path,
    issuer: &Issuer<'_, KeyPair>,
    stem: &str,
    subject: (&str, Option<&str>),
) -> Result<Identity, PkiError> {
    let key_path = dir.join(format!("{stem}.key"));
    let key = key_pair(&key_path)?;
    let certificate = leaf(
        &dir.join(format!("{stem}.crt")),
        &key,
        issuer,
        |certificate| certificate.is_some(),
        || client_params(subject.0, subject.1),
    )?;
    Ok(Identity {
        chain: vec![certificate],
        key: PrivateKeyDer::try_from(key.serialize_der()).map_err(|error| failed("cannot use", &key_path, &error))?,
    })
}

fn read_certificate(path: &Path) -> Result<Option<CertificateDer<'static>>, PkiError> {
    let Some(pem) = read(path)? else { return Ok(None) };
    CertificateDer::from_pem_slice(&pem).map(Some).map_err(|error| {
        failed(
            "cannot use",
            path,
            &format!("{error:?}; remove the pki directory to have new certificates made"),
        )
    })
}

/// The kept leaf certificate if it fits (is for this key, does not end soon, and `fits` says so), a new one otherwise.
fn leaf(
    path: &Path,
    key: &KeyPair,
    issuer: &Issuer<'_, KeyPair>,
    fits: impl Fn(Option<&X509Certificate<'_>>) -> bool,
    params: impl Fn() -> Result<CertificateParams, rcgen::Error>,
) -> Result<CertificateDer<'static>, PkiError> {
    if let Some(kept) = read_certificate(path)? {
        let parsed = X509Certificate::from_der(&kept)
            .ok()
            .map(|(_, certificate)| certificate);
        let fresh = parsed.as_ref().is_some_and(|certificate| {
            let renew = (OffsetDateTime::now_utc() + Duration::days(RENEW_DAYS)).unix_timestamp();
            certificate.validity().not_after.timestamp() > renew
                && certificate.public_key().subject_public_key.data.as_ref() == key.public_key_raw()
        });
        if fresh && fits(parsed.as_ref()) {
            return Ok(kept);
        }
    }
    let made = params()
        .and_then(|params| params.signed_by(key, issuer))
        .map_err(|error| failed("cannot make", path, &error))?;
    write(path, made.pem().as_bytes(), 0o644)?;
    Ok(made.der().clone())
}

fn dated(mut params: CertificateParams, days: i64) -> CertificateParams {
    let now = OffsetDateTime::now_utc();
    // A day back, for clients whose clock is behind.
    params.not_before = now - Duration::DAY;
    params.not_after = now + Duration::days(days);
    params
}

fn ca_params(name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = dated(CertificateParams::new(Vec::new())?, CA_DAYS);
    params.distinguished_name = subject(name, None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    Ok(params)
}

fn server_params(hosts: &[String], addresses: &[IpAddr]) -> Result<CertificateParams, rcgen::Error> {
    let names: Vec<String> = hosts
        .iter()
        .cloned()
        .chain(addresses.iter().map(ToString::to_string))
        .collect();
    let mut params = dated(CertificateParams::new(names)?, LEAF_DAYS);
    params.distinguished_name = subject("kube-apiserver", None);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn client_params(name: &str, group: Option<&str>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = dated(CertificateParams::new(Vec::new())?, LEAF_DAYS);
    params.distinguished_name = subject(name, group);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn subject(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    subject.push(DnType::CommonName, name);
    subject
}

/// Host names and addresses that the server certificate names.
fn names(address: SocketAddr, more: &[String]) -> (Vec<String>, Vec<IpAddr>) {
    let mut hosts: Vec<String> = DNS_NAMES.iter().map(|name| (*name).to_owned()).collect();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let is_dns_name = !host.is_empty()
        && host.len() <= 253
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
        && host.parse::<IpAddr>().is_err();
    if is_dns_name && !hosts.contains(&host) {
        hosts.push(host);
    }
    let mut addresses: Vec<IpAddr> = ["127.0.0.1", "::1", SERVICE_ADDRESS]
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect();
    if !address.ip().is_unspecified() && !addresses.contains(&address.ip()) {
        addresses.push(address.ip());
    }
    for name in more {
        match name.parse() {
            Ok(address) if !addresses.contains(&address) => addresses.push(address),
            Err(_) if !hosts.contains(name) => hosts.push(name.clone()),
            _ => {}
        }
    }
    (hosts, addresses)
}

fn covers(certificate: &X509Certificate<'_>, hosts: &[String], addresses: &[IpAddr]) -> bool {
    let Ok(Some(names)) = certificate.subject_alternative_name() else {
        return false;
    };
    let names = &names.value.general_names;
    let has_host = |host: &String| {
        names
            .iter()
            .any(|name| matches!(name, GeneralName::DNSName(dns) if dns == host))
    };
    let has_address = |address: &IpAddr| {
        let octets = match address {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        names
            .iter()
            .any(|name| matches!(name, GeneralName::IPAddress(bytes) if *bytes == octets.as_slice()))
    };
    hosts.iter().all(has_host) && addresses.iter().all(has_address)
}

fn continue_key(path: &Path) -> Result<[u8; 32], PkiError> {
    if let Some(kept) = read(path)?
        && let Ok(key) = kept.try_into()
    {
        return Ok(key);
    }
    let mut key = [0; 32];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut key)
        .map_err(|_| failed("cannot make", path, &"the system gives no random bytes"))?;
    write(path, &key, 0o600)?;
    Ok(key)
}

/// The URL of a server that listens on `address`. A client cannot connect to "any address"; it reaches such a server on loopback.
fn url(address: SocketAddr) -> String {
    let address = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from(([127, 0, 0, 1], address.port())),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], address.port())),
        _ => address,
    };
    format!("https://{address}")
}

/// A document in PEM (RFC 7468).
pub fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = tail;
    }
    pem.push_str("-----END ");
    pem.push_str(label);
    pem.push_str("-----\n");
    pem
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn certificates_are_kept_and_the_server_certificate_follows_the_address() {
        let dir = tempfile::tempdir().unwrap();
        let local: SocketAddr = "127.0.0.1:6443".parse().unwrap();
        let first = Pki::open(dir.path(), local, &[], false).unwrap();
        let again = Pki::open(dir.path(), local, &[], false).unwrap();
        assert_eq!(first.chain, again.chain);
        assert_eq!(first.continue_key, again.continue_key);
        let kubeconfig = fs::read_to_string(&first.kubeconfig).unwrap();
        assert!(kubeconfig.contains("server: https://127.0.0.1:6443\n"));

        let moved = Pki::open(dir.path(), "192.0.2.7:443".parse().unwrap(), &[], false).unwrap();
        assert_eq!(moved.ca, first.ca);
        assert_ne!(moved.chain, first.chain);
    }

    #[test]
    fn keys_are_readable_by_their_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path(), "127.0.0.1:6443".parse().unwrap(), &[], false).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for key in ["ca.key", "server.key", "admin.key", "continue.key"] {
            assert_eq!(mode(&dir.path().join("pki").join(key)), 0o600, "{key}");
        }
        assert_eq!(mode(&pki.kubeconfig), 0o600);
    }

    #[test]
    fn an_authority_whose_key_is_gone_is_not_given_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let address = "127.0.0.1:6443".parse().unwrap();
        Pki::open(dir.path(), address, &[], false).unwrap();
        let key = dir.path().join("pki/ca.key");
        fs::remove_file(&key).unwrap();
        let error = Pki::open(dir.path(), address, &[], false).unwrap_err().to_string();
        assert!(error.contains("pki/ca.crt") && error.contains("put it back"), "{error}");
        assert!(!key.exists());
    }

    #[test]
    fn a_file_that_is_no_key_is_named_in_the_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("pki")).unwrap();
        fs::write(dir.path().join("pki/ca.key"), "rubbish").unwrap();
        let error = Pki::open(dir.path(), "127.0.0.1:6443".parse().unwrap(), &[], false)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("pki/ca.key") && error.contains("remove the pki directory"),
            "{error}"
        );
    }
}
