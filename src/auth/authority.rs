//! A certificate authority that signs what clients ask for (RFC 5280): keys and subjects are taken over byte for byte, so that it does
//! not matter of which kind they are.

use std::path::Path;

use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
use ring::rand::SecureRandom as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer as _, GeneralName, ParsedExtension, X509Certificate};
use yasna::models::{GeneralizedTime, ObjectIdentifier, UTCTime};
use yasna::{DERWriter, DERWriterSeq, Tag};

use super::pki::{self, PkiError};
use crate::resources::AlternativeNames;

/// An authority: its certificate, and the key that signs.
pub struct Authority {
    certificate: CertificateDer<'static>,
    key: KeyPair,
    /// Its subject, DER.
    name: Vec<u8>,
    /// How certificates that it signed name its key.
    key_id: Vec<u8>,
    /// When its own certificate ends, Unix seconds.
    ends_s: i64,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the key itself.
        formatter
            .debug_struct("Authority")
            .field("ends_s", &self.ends_s)
            .finish_non_exhaustive()
    }
}

/// A certificate that is to be made.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// Its subject, DER.
    pub subject: &'a [u8],
    /// Its SubjectPublicKeyInfo, DER.
    pub public_key: &'a [u8],
    /// Names beside the subject.
    pub names: &'a AlternativeNames,
    /// What it may be used for.
    pub usages: Usages,
    /// From when to when, Unix seconds. It never lasts longer than the authority.
    pub begins_s: i64,
    /// See `begins_s`.
    pub ends_s: i64,
}

/// What a certificate may be used for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usages {
    /// Bits of `keyUsage`, the first one is the highest.
    bits: u16,
    /// Identifiers of `extKeyUsage`, each once.
    extended: Vec<&'static [u64]>,
}

/// Bits of `keyUsage` (RFC 5280, 4.2.1.3) by the names of the certificates API.
const BITS: &[(&str, u16)] = &[
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

/// Identifiers of `extKeyUsage` by the names of the certificates API.
const EXTENDED: &[(&str, &[u64])] = &[
    ("any", &[2, 5, 29, 37, 0]),
    ("server auth", &[1, 3, 6, 1, 5, 5, 7, 3, 1]),
    ("client auth", &[1, 3, 6, 1, 5, 5, 7, 3, 2]),
    ("code signing", &[1, 3, 6, 1, 5, 5, 7, 3, 3]),
    ("email protection", &[1, 3, 6, 1, 5, 5, 7, 3, 4]),
    ("s/mime", &[1, 3, 6, 1, 5, 5, 7, 3, 4]),
    ("ipsec end system", &[1, 3, 6, 1, 5, 5, 7, 3, 5]),
    ("ipsec tunnel", &[1, 3, 6, 1, 5, 5, 7, 3, 6]),
    ("ipsec user", &[1, 3, 6, 1, 5, 5, 7, 3, 7]),
    ("timestamping", &[1, 3, 6, 1, 5, 5, 7, 3, 8]),
    ("ocsp signing", &[1, 3, 6, 1, 5, 5, 7, 3, 9]),
    ("microsoft sgc", &[1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
    ("netscape sgc", &[2, 16, 840, 1, 113_730, 4, 1]),
];

impl Usages {
    /// Those of these names; what is not known is given back.
    ///
    /// # Errors
    /// The name that is not one of the certificates API's.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut usages = Self::default();
        for name in names {
            if let Some((_, bit)) = BITS.iter().find(|(known, _)| *known == name) {
                usages.bits |= 1 << (15 - bit);
            } else if let Some((_, id)) = EXTENDED.iter().find(|(known, _)| *known == name) {
                if !usages.extended.contains(id) {
                    usages.extended.push(id);
                }
            } else {
                return Err(format!("unrecognized usage values: [{name:?}]"));
            }
        }
        // In the order of the table, whatever the order of names.
        let place = |id: &&[u64]| EXTENDED.iter().position(|(_, known)| known == id);
        usages.extended.sort_by_key(place);
        Ok(usages)
    }
}

impl Authority {
    /// The authority of a certificate and its key.
    ///
    /// # Errors
    /// When they do not belong together, or the key is of a kind that signs nothing here.
    pub(super) fn new(certificate: CertificateDer<'static>, key: KeyPair) -> Result<Self, String> {
        let (_, parsed) = X509Certificate::from_der(&certificate).map_err(|error| error.to_string())?;
        if parsed.public_key().subject_public_key.data.as_ref() != key.der_bytes() {
            return Err("the authority's certificate is not for its key".into());
        }
        algorithm(&key).ok_or("keys of the authority's kind sign no certificates here")?;
        let own_id = parsed
            .extensions()
            .iter()
            .find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
                _ => None,
            });
        let (name, ends_s) = (
            parsed.subject().as_raw().to_vec(),
            parsed.validity().not_after.timestamp(),
        );
        Ok(Self {
            key_id: own_id.unwrap_or_default(),
            name,
            ends_s,
            certificate,
            key,
        })
    }

    /// The authority of a data directory.
    ///
    /// # Errors
    /// When its files are not there or cannot be used.
    pub fn open(data_dir: &Path) -> Result<Self, PkiError> {
        let dir = data_dir.join("pki");
        let (certificate, key) = (dir.join("ca.crt"), dir.join("ca.key"));
        let read = |path: &Path| {
            let bytes = pki::read(path)?;
            bytes.ok_or_else(|| {
                pki::failed(
                    "cannot read",
                    path,
                    &"it is not there; it is made when the server starts first",
                )
            })
        };
        let der = CertificateDer::from_pem_slice(&read(&certificate)?)
            .map_err(|error| pki::failed("cannot use", &certificate, &format!("{error:?}")))?;
        let pair = KeyPair::from_pem(&String::from_utf8_lossy(&read(&key)?))
            .map_err(|error| pki::failed("cannot use", &key, &error))?;
        Self::new(der, pair).map_err(|error| pki::failed("cannot use", &certificate, &error))
    }

    /// Its own certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Makes a certificate. Costs a signature.
    ///
    /// # Errors
    /// When the system has no random bytes, or a time is beyond what certificates can say.
    pub fn sign(&self, wanted: &Wanted<'_>) -> Result<CertificateDer<'static>, String> {
        let mut serial = [0; 16];
        ring::rand::SystemRandom::new()
            .fill(&mut serial)
            .map_err(|_| "the system gives no random bytes".to_owned())?;
        // Positive, and never zero (RFC 5280, 4.1.2.2).
        serial[0] = serial[0] & 0x7f | 0x40;
        let begins = moment(wanted.begins_s)?;
        let ends = moment(wanted.ends_s.min(self.ends_s))?;
        let algorithm = algorithm(&self.key).ok_or("the authority's key signs no certificates")?;
        let body = yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                // Version 3.
                writer.next().write_tagged(Tag::context(0), |writer| writer.write_u8(2));
                writer.next().write_bigint_bytes(&serial, true);
                write_algorithm(writer.next(), &algorithm);
                writer.next().write_der(&self.name);
                writer.next().write_sequence(|writer| {
                    write_time(writer.next(), begins);
                    write_time(writer.next(), ends);
                });
                writer.next().write_der(wanted.subject);
                writer.next().write_der(wanted.public_key);
                writer.next().write_tagged(Tag::context(3), |writer| {
                    writer.write_sequence(|writer| self.write_extensions(writer, wanted));
                });
            });
        });
        let signature = self.key.sign(&body).map_err(|error| error.to_string())?;
        let whole = yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                writer.next().write_der(&body);
                write_algorithm(writer.next(), &algorithm);
                writer.next().write_bitvec_bytes(&signature, signature.len() * 8);
            });
        });
        Ok(CertificateDer::from(whole))
    }

    fn write_extensions(&self, writer: &mut DERWriterSeq<'_>, wanted: &Wanted<'_>) {
        let mut extension = |id: &[u64], is_critical: bool, value: Vec<u8>| {
            writer.next().write_sequence(|writer| {
                writer.next().write_oid(&ObjectIdentifier::from_slice(id));
                if is_critical {
                    writer.next().write_bool(true);
                }
                writer.next().write_bytes(&value);
            });
        };
        let Usages { bits, extended } = &wanted.usages;
        if *bits != 0 {
            // A list of named bits ends with one that is set (X.690, 11.2.2).
            let len = 16 - bits.trailing_zeros() as usize;
            let bytes = &bits.to_be_bytes()[..len.div_ceil(8)];
            let value = yasna::construct_der(|writer| writer.write_bitvec_bytes(bytes, len));
            extension(&[2, 5, 29, 15], true, value);
        }
        if !extended.is_empty() {
            let value = yasna::construct_der(|writer| {
                writer.write_sequence(|writer| {
                    for id in extended {
                        writer.next().write_oid(&ObjectIdentifier::from_slice(id));
                    }
                });
            });
            extension(&[2, 5, 29, 37], false, value);
        }
        // No authority itself: an empty sequence.
        extension(
            &[2, 5, 29, 19],
            true,
            yasna::construct_der(|writer| writer.write_sequence(|_| ())),
        );
        if !self.key_id.is_empty() {
            let value = yasna::construct_der(|writer| {
                writer.write_sequence(|writer| {
                    writer
                        .next()
                        .write_tagged_implicit(Tag::context(0), |writer| writer.write_bytes(&self.key_id));
                });
            });
            extension(&[2, 5, 29, 35], false, value);
        }
        if !wanted.names.is_empty() {
            let value =
                yasna::construct_der(|writer| writer.write_sequence(|writer| write_names(writer, wanted.names)));
            // Of a subject that says nothing they are all there is (RFC 5280, 4.1.2.6): `30 00`.
            extension(&[2, 5, 29, 17], wanted.subject.len() <= 2, value);
        }
    }
}

/// The names of a certificate beside its subject, of the kinds that are told to people.
pub fn names_of(certificate: &X509Certificate<'_>) -> Vec<String> {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map_or(&[][..], |names| &names.value.general_names);
    let told = names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes)
                .ok()
                .map(|bytes| std::net::Ipv4Addr::from(bytes).to_string()),
            16 => <[u8; 16]>::try_from(*bytes)
                .ok()
                .map(|bytes| std::net::Ipv6Addr::from(bytes).to_string()),
            _ => None,
        },
        _ => None,
    });
    told.collect()
}

/// The subject of a user, DER: its groups (`O`), then its name (`CN`). Texts are UTF-8.
pub fn subject_of_user(name: &str, groups: &[String]) -> Vec<u8> {
    let part = |writer: DERWriter<'_>, id: &[u64], text: &str| {
        writer.write_set(|writer| {
            writer.next().write_sequence(|writer| {
                writer.next().write_oid(&ObjectIdentifier::from_slice(id));
                writer.next().write_utf8_string(text);
            });
        });
    };
    yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            for group in groups {
                part(writer.next(), &[2, 5, 4, 10], group);
            }
            part(writer.next(), &[2, 5, 4, 3], name);
        });
    })
}

/// A request for a certificate of this subject (DER) for a key (PKCS #10, RFC 2986), DER.
///
/// # Errors
/// When the key signs nothing here.
pub fn signing_request(subject: &[u8], key: &KeyPair) -> Result<Vec<u8>, String> {
    let algorithm = algorithm(key).ok_or("keys of this kind sign no requests here")?;
    let body = yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_u8(0);
            writer.next().write_der(subject);
            writer.next().write_der(&key.subject_public_key_info());
            // No attributes.
            writer
                .next()
                .write_tagged_implicit(Tag::context(0), |writer| writer.write_set(|_| ()));
        });
    });
    let signature = key.sign(&body).map_err(|error| error.to_string())?;
    Ok(yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_der(&body);
            write_algorithm(writer.next(), &algorithm);
            writer.next().write_bitvec_bytes(&signature, signature.len() * 8);
        });
    }))
}

fn write_names(writer: &mut DERWriterSeq<'_>, names: &AlternativeNames) {
    let mut name = |tag: u64, bytes: &[u8]| {
        let writer = writer.next();
        writer.write_tagged_implicit(Tag::context(tag), |writer| writer.write_bytes(bytes));
    };
    names.dns.iter().for_each(|dns| name(2, dns.as_bytes()));
    names.emails.iter().for_each(|email| name(1, email.as_bytes()));
    names.addresses.iter().for_each(|address| name(7, address));
    names.uris.iter().for_each(|uri| name(6, uri.as_bytes()));
}

/// The algorithm that a key signs by, and whether its parameters are a NULL; `None` for one that is not known here.
fn algorithm(key: &KeyPair) -> Option<(ObjectIdentifier, bool)> {
    let of = |id: &[u64], has_null| Some((ObjectIdentifier::from_slice(id), has_null));
    let known = key.algorithm();
    if known == &rcgen::PKCS_ECDSA_P256_SHA256 {
        of(&[1, 2, 840, 10045, 4, 3, 2], false)
    } else if known == &rcgen::PKCS_ECDSA_P384_SHA384 {
        of(&[1, 2, 840, 10045, 4, 3, 3], false)
    } else if known == &rcgen::PKCS_ED25519 {
        of(&[1, 3, 101, 112], false)
    } else if known == &rcgen::PKCS_RSA_SHA256 {
        of(&[1, 2, 840, 113_549, 1, 1, 11], true)
    } else {
        None
    }
}

fn write_algorithm(writer: DERWriter<'_>, (id, has_null): &(ObjectIdentifier, bool)) {
    writer.write_sequence(|writer| {
        writer.next().write_oid(id);
        if *has_null {
            writer.next().write_null();
        }
    });
}

fn moment(at_s: i64) -> Result<OffsetDateTime, String> {
    // Certificates say years in four digits.
    OffsetDateTime::from_unix_timestamp(at_s)
        .ok()
        .filter(|at| (1950..10_000).contains(&at.year()))
        .ok_or_else(|| "a time that certificates cannot say".to_owned())
}

/// Years up to 2049 in two digits, later ones in four (RFC 5280, 4.1.2.5).
fn write_time(writer: DERWriter<'_>, at: OffsetDateTime) {
    if at.year() < 2050 {
        writer.write_utctime(&UTCTime::from_datetime(at));
    } else {
        writer.write_generalized_time(&GeneralizedTime::from_datetime(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_after = moment(4_000_000_000).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Authority::new(certificate.der().clone(), key).unwrap()
    }

    fn wanted<'a>(subject: &'a [u8], public_key: &'a [u8], names: &'a AlternativeNames) -> Wanted<'a> {
        Wanted {
            subject,
            public_key,
            names,
            usages: Usages::named(["digital signature", "client auth", "key encipherment", "client auth"]).unwrap(),
            begins_s: 1_700_000_000,
            ends_s: 3_000_000_000,
        }
    }

    #[test]
    fn what_is_signed_says_what_was_asked_for_and_is_by_the_authority() {
        let authority = authority();
        let key = KeyPair::generate().unwrap();
        let subject = subject_of_user("alice", &["a".to_owned(), "b".to_owned(), "ü".to_owned()]);
        let names = AlternativeNames {
            dns: vec!["n.example".into()],
            addresses: vec![vec![10, 0, 0, 1], vec![0; 16]],
            emails: vec!["a@b".into()],
            uris: vec!["u:1".into()],
        };
        let der = authority
            .sign(&wanted(&subject, &key.subject_public_key_info(), &names))
            .unwrap();
        let (rest, certificate) = X509Certificate::from_der(&der).unwrap();
        assert!(rest.is_empty());
        let (_, root) = X509Certificate::from_der(authority.certificate()).unwrap();
        certificate.verify_signature(Some(root.public_key())).unwrap();
        assert_eq!(certificate.issuer().as_raw(), root.subject().as_raw());
        let groups: Vec<&str> = certificate
            .subject()
            .iter_organization()
            .map(|o| o.as_str().unwrap())
            .collect();
        assert_eq!(groups, ["a", "b", "ü"]);
        assert_eq!(names_of(&certificate), ["n.example", "a@b", "10.0.0.1", "::", "u:1"]);
        assert_eq!(certificate.validity().not_before.timestamp(), 1_700_000_000);
        assert_eq!(certificate.validity().not_after.timestamp(), 3_000_000_000);
        let usage = certificate.key_usage().unwrap().unwrap();
        assert!(usage.critical && usage.value.digital_signature() && usage.value.key_encipherment());
        assert!(!usage.value.key_cert_sign());
        let extended = certificate.extended_key_usage().unwrap().unwrap().value;
        assert!(extended.client_auth && !extended.server_auth && !extended.any);
        assert!(!certificate.is_ca());
        let serial = certificate.raw_serial();
        assert!(serial.len() == 16 && serial[0] & 0x80 == 0, "{serial:?}");
    }

    #[test]
    fn a_request_is_one_that_is_read_again() {
        let key = KeyPair::generate().unwrap();
        let subject = subject_of_user("alice", &["a".to_owned(), "b".to_owned()]);
        let request = signing_request(&subject, &key).unwrap();
        let pem = pki::pem("CERTIFICATE REQUEST", &request);
        let read = crate::resources::SigningRequest::parse(pem.as_bytes()).unwrap();
        assert_eq!((read.common_name.as_str(), read.unproven), ("alice", None));
        assert_eq!(read.organizations, ["a", "b"]);
        assert_eq!(
            (read.subject, read.public_key),
            (subject, key.subject_public_key_info())
        );
    }

    #[test]
    fn of_two_common_names_the_last_one_counts_for_signer_and_server_alike() {
        let key = KeyPair::generate().unwrap();
        // A set of one attribute each, in one sequence.
        let parts = [
            subject_of_user("admin", &[]),
            subject_of_user("system:node:n1", &["system:nodes".to_owned()]),
        ];
        let inner: Vec<u8> = parts.iter().flat_map(|subject| subject[2..].to_vec()).collect();
        let subject = [&[0x30, u8::try_from(inner.len()).unwrap()][..], &inner].concat();
        let pem = pki::pem("CERTIFICATE REQUEST", &signing_request(&subject, &key).unwrap());
        let read = crate::resources::SigningRequest::parse(pem.as_bytes()).unwrap();
        assert_eq!(read.common_name, "system:node:n1");
        let names = AlternativeNames::default();
        let authority = authority();
        let spki = key.subject_public_key_info();
        let begins_s = jiff::Timestamp::now().as_second() - 60;
        let certificate = authority
            .sign(&Wanted {
                begins_s,
                ..wanted(&subject, &spki, &names)
            })
            .unwrap();
        let believed =
            crate::auth::ClientCertificates::new(std::slice::from_ref(authority.certificate()), None).unwrap();
        let presented = believed.present(&[certificate]);
        assert_eq!(presented.user(begins_s).unwrap().name, "system:node:n1");
    }

    #[test]
    fn nothing_lasts_longer_than_the_authority() {
        let authority = authority();
        let key = KeyPair::generate().unwrap();
        let (subject, spki) = (subject_of_user("a", &[]), key.subject_public_key_info());
        let names = AlternativeNames::default();
        let long = Wanted {
            ends_s: 9_000_000_000,
            ..wanted(&subject, &spki, &names)
        };
        let der = authority.sign(&long).unwrap();
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        assert_eq!(certificate.validity().not_after.timestamp(), 4_000_000_000);
    }

    #[test]
    fn a_certificate_of_another_key_is_no_authority() {
        let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let certificate = rcgen::CertificateParams::new(Vec::new())
            .unwrap()
            .self_signed(&one)
            .unwrap();
        assert!(Authority::new(certificate.der().clone(), other).is_err());
    }

    #[test]
    fn usages_are_known_by_name_in_one_order() {
        let one = Usages::named(["server auth", "any", "decipher only"]).unwrap();
        assert_eq!(one, Usages::named(["decipher only", "any", "server auth"]).unwrap());
        assert_eq!(one.extended.len(), 2);
        assert_eq!(
            Usages::named(["espionage"]).unwrap_err(),
            "unrecognized usage values: [\"espionage\"]"
        );
    }
}
