//! Which certificates the server shows, and how TLS is spoken, in kube-apiserver's flags.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::ValueEnum;

use crate::api::server::{TlsOptions, TlsVersion};
use crate::auth::{CertificateFiles, NamedCertificate};

/// Flags about TLS.
#[derive(Debug, clap::Args)]
pub(super) struct TlsFlags {
    /// A host name or address for the server's own certificate besides those that it has anyhow; may be given several times
    #[arg(long = "tls-san", value_name = "NAME", value_parser = subject_name, value_delimiter = ',', help_heading = "TLS")]
    names: Vec<String>,

    /// The certificate to show clients (PEM, followed by those that lead to its authority) in place of the server's own; read
    /// again when it changes
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file", help_heading = "TLS")]
    tls_cert_file: Option<PathBuf>,

    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert_file", help_heading = "TLS")]
    tls_private_key_file: Option<PathBuf>,

    /// A certificate and key for clients that ask for certain names, by default those of the certificate; *.DOMAIN stands for
    /// all of a domain; may be given several times; the files are read again when they change
    #[arg(long, value_name = "CERT,KEY[:NAME,…]", value_parser = named, help_heading = "TLS")]
    tls_sni_cert_key: Vec<NamedCertificate>,

    /// The oldest version of TLS that is spoken
    #[arg(
        long,
        value_name = "VERSION",
        value_enum,
        default_value_t = Version::Tls12,
        help_heading = "TLS"
    )]
    tls_min_version: Version,

    /// The cipher suites of TLS 1.2 that are spoken, by their names in Go, in order of preference; those of TLS 1.3 are always
    /// there. Default: all safe ones
    #[arg(long, value_name = "SUITES", value_delimiter = ',', value_parser = suite, help_heading = "TLS")]
    tls_cipher_suites: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Version {
    /// TLS 1.2 and 1.3
    #[value(name = "VersionTLS12")]
    Tls12,
    /// TLS 1.3 alone
    #[value(name = "VersionTLS13")]
    Tls13,
}

impl TlsFlags {
    pub(super) fn options(&self) -> TlsOptions {
        TlsOptions {
            names: self.names.clone(),
            files: CertificateFiles {
                default: self.tls_cert_file.clone().zip(self.tls_private_key_file.clone()),
                by_name: self.tls_sni_cert_key.clone(),
            },
            min_version: match self.tls_min_version {
                Version::Tls12 => TlsVersion::Tls12,
                Version::Tls13 => TlsVersion::Tls13,
            },
            suites: self.tls_cipher_suites.clone(),
        }
    }
}

/// An address, or a host name, `*.` in front for all of a domain.
fn subject_name(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("*.").unwrap_or(text);
    let is_part = |part: &str| {
        (1..=63).contains(&part.len())
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if text.parse::<IpAddr>().is_ok() || (text.len() <= 253 && host.split('.').all(is_part)) {
        return Ok(text.to_owned());
    }
    Err("not an address or a host name".into())
}

fn named(text: &str) -> Result<NamedCertificate, String> {
    let (files, names) = text.split_once(':').unwrap_or((text, ""));
    let (certificate, key) = files
        .split_once(',')
        .filter(|(certificate, key)| !certificate.is_empty() && !key.is_empty() && !key.contains(','))
        .ok_or("expected CERTIFICATE,KEY or CERTIFICATE,KEY:NAME,NAME")?;
    let names = names.split(',').filter(|name| !name.is_empty()).map(subject_name);
    Ok(NamedCertificate {
        certificate: certificate.into(),
        key: key.into(),
        names: names.collect::<Result<_, _>>()?,
    })
}

fn suite(text: &str) -> Result<String, String> {
    TlsOptions::check_suite(text)?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_addresses_and_hosts() {
        for good in ["10.0.0.1", "::1", "kube.example.com", "*.example.com", "localhost"] {
            assert_eq!(subject_name(good).as_deref(), Ok(good));
        }
        for bad in ["", "a b", "a..b", "https://a", "*.*.a", "a:1"] {
            subject_name(bad).unwrap_err();
        }
    }

    #[test]
    fn a_certificate_for_names_is_two_files_and_perhaps_names() {
        let one = named("a.crt,a.key:*.foo.com,foo.com").unwrap();
        assert_eq!((one.certificate, one.key), ("a.crt".into(), "a.key".into()));
        assert_eq!(one.names, ["*.foo.com", "foo.com"]);
        assert!(named("a.crt,a.key").unwrap().names.is_empty());
        for bad in ["", "a.crt", "a.crt,", ",a.key", "a,b,c", "a,b:c d"] {
            named(bad).unwrap_err();
        }
    }

    #[test]
    fn suites_are_known_and_safe() {
        suite("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256").unwrap();
        suite("TLS_AES_128_GCM_SHA256").unwrap();
        for bad in ["TLS_RSA_WITH_RC4_128_SHA", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "x"] {
            suite(bad).unwrap_err();
        }
    }
}
