//! Requests for certificates (PKCS #10, RFC 2986): what one asks for, taken apart.

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::error::X509Error;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// A request for a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningRequest {
    /// Its subject, DER.
    pub subject: Vec<u8>,
    /// Its SubjectPublicKeyInfo, DER.
    pub public_key: Vec<u8>,
    /// The last common name of the subject; may be empty.
    pub common_name: String,
    /// The organizations of the subject: groups of users.
    pub organizations: Vec<String>,
    /// The names beside the subject (`subjectAltName`) of the four kinds that certificates of Kubernetes may have.
    pub names: AlternativeNames,
    /// Why its signature does not prove that who asks has the key, in Go's words where it has some; `None`: it does.
    pub unproven: Option<&'static str>,
}

/// Names beside the subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlternativeNames {
    /// Host names.
    pub dns: Vec<String>,
    /// Addresses: 4 or 16 bytes each.
    pub addresses: Vec<Vec<u8>>,
    /// Addresses of mail.
    pub emails: Vec<String>,
    /// URIs.
    pub uris: Vec<String>,
}

impl AlternativeNames {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.dns.is_empty() && self.addresses.is_empty() && self.emails.is_empty() && self.uris.is_empty()
    }
}

impl SigningRequest {
    /// Takes a request in PEM apart. Costs the proof of a signature.
    ///
    /// # Errors
    /// What is wrong with it, in the words of Go where it has some of its own.
    pub fn parse(pem: &[u8]) -> Result<Self, &'static str> {
        let block = Pem::iter_from_buffer(pem).next().and_then(Result::ok);
        let Some(block) = block.filter(|block| block.label == "CERTIFICATE REQUEST") else {
            return Err("PEM block type must be CERTIFICATE REQUEST");
        };
        let (rest, request) = X509CertificationRequest::from_der(&block.contents)
            .map_err(|_| "asn1: structure error: not a certificate request")?;
        if !rest.is_empty() {
            return Err("asn1: syntax error: trailing data");
        }
        let unproven = match request.verify_signature() {
            Ok(()) => None,
            Err(X509Error::SignatureUnsupportedAlgorithm) => Some(UNKNOWN_ALGORITHM),
            Err(_) => Some("crypto/rsa: verification error"),
        };
        let info = &request.certification_request_info;
        let mut names = AlternativeNames::default();
        for extension in request.requested_extensions().into_iter().flatten() {
            if let ParsedExtension::SubjectAlternativeName(asked) = extension {
                for name in &asked.general_names {
                    match name {
                        GeneralName::DNSName(name) => names.dns.push((*name).to_owned()),
                        GeneralName::IPAddress(bytes) => names.addresses.push(bytes.to_vec()),
                        GeneralName::RFC822Name(name) => names.emails.push((*name).to_owned()),
                        GeneralName::URI(name) => names.uris.push((*name).to_owned()),
                        _ => {}
                    }
                }
            }
        }
        Ok(Self {
            subject: info.subject.as_raw().to_vec(),
            public_key: info.subject_pki.raw.to_vec(),
            common_name: common_name(&info.subject),
            organizations: info.subject.iter_organization().map(text_of).collect(),
            names,
            unproven,
        })
    }
}

/// Of a key or signature of a kind that is not known here.
pub(super) const UNKNOWN_ALGORITHM: &str = "x509: cannot verify signature: algorithm unimplemented";

/// The common name that a subject stands for: the last one, as in Go. Whoever reads another one is told something else than the signer
/// was.
pub fn common_name(subject: &X509Name<'_>) -> String {
    subject.iter_common_name().last().map(text_of).unwrap_or_default()
}

/// The text of a part of a subject. Texts of letters of two or four bytes, and of a byte, are read too: signers read them.
fn text_of(part: &AttributeTypeAndValue<'_>) -> String {
    match part.as_str() {
        Ok(text) => text.to_owned(),
        Err(_) => String::from_utf8_lossy(part.as_slice()).replace('\0', ""),
    }
}
