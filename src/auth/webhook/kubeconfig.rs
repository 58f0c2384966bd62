//! The kubeconfig that says where a webhook is, how it is trusted, and who this server is towards it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use serde_saphyr::DuplicateKeyPolicy;

use crate::auth::certificates::certificates;
use crate::remote::system_roots;
use crate::schema::{yaml_fault, yaml_options};

/// What is needed of a kubeconfig to reach its server.
pub(super) struct Place {
    /// The server's address.
    pub(super) url: http::Uri,
    pub(super) tls: ClientConfig,
    /// What the header `Authorization` says.
    pub(super) authorization: Option<HeaderValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Kubeconfig {
    clusters: Vec<Named>,
    users: Vec<Named>,
    contexts: Vec<Named>,
    #[serde(rename = "current-context")]
    current_context: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
    cluster: Cluster,
    user: User,
    context: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: String,
    certificate_authority_data: String,
    insecure_skip_tls_verify: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct User {
    client_certificate: String,
    client_certificate_data: String,
    client_key: String,
    client_key_data: String,
    token: String,
    #[serde(rename = "tokenFile")]
    token_file: String,
}

impl Place {
    /// Reads the kubeconfig at `path`; files that it names lie beside it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let options = yaml_options(text.len(), DuplicateKeyPolicy::Error);
        let read = serde_saphyr::from_str_with_options::<Kubeconfig>(&text, options);
        let read = read.map_err(|error| yaml_fault(&error))?;
        let beside = Beside(path.parent().unwrap_or(Path::new("")));
        read.place(&beside)
    }
}

struct Beside<'a>(&'a Path);

impl Beside<'_> {
    /// What stands in the file as base64, or in the file that it names; `None` where neither does.
    fn bytes(&self, data: &str, file: &str, what: &str) -> Result<Option<Vec<u8>>, String> {
        if !data.is_empty() {
            let decoded = STANDARD.decode(data).map_err(|error| format!("{what}-data: {error}"));
            return decoded.map(Some);
        }
        if file.is_empty() {
            return Ok(None);
        }
        let path: PathBuf = self.0.join(file);
        let read = std::fs::read(&path).map_err(|error| format!("{what}: cannot read {}: {error}", path.display()));
        read.map(Some)
    }
}

fn named<'a>(all: &'a [Named], name: &str, what: &str) -> Result<&'a Named, String> {
    let found = all.iter().find(|one| one.name == name);
    found.ok_or_else(|| format!("there is no {what} {name:?} in it"))
}

impl Kubeconfig {
    fn place(&self, beside: &Beside<'_>) -> Result<Place, String> {
        let context = match (self.current_context.as_str(), self.contexts.as_slice()) {
            ("", [only]) => only,
            (name, all) => named(all, name, "context")?,
        };
        let part = |name: &str| context.context.get(name).map_or("", String::as_str);
        let cluster = &named(&self.clusters, part("cluster"), "cluster")?.cluster;
        let nobody = User::default();
        let user = match part("user") {
            "" => &nobody,
            name => &named(&self.users, name, "user")?.user,
        };
        let url: http::Uri = cluster.server.parse().map_err(|error| format!("server: {error}"))?;
        if url.scheme_str() != Some("https") || url.host().is_none() {
            return Err(format!("server: {:?} is no address of HTTPS", cluster.server));
        }
        if cluster.insecure_skip_tls_verify {
            return Err("insecure-skip-tls-verify: whoever answers would say who anybody is".into());
        }
        let authority = &cluster.certificate_authority;
        let roots = match beside.bytes(&cluster.certificate_authority_data, authority, "certificate-authority")? {
            Some(pem) => certificates(&pem).map_err(|why| format!("certificate-authority: {why}"))?,
            None => system_roots(),
        };
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots);
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(store);
        let certificate = beside.bytes(
            &user.client_certificate_data,
            &user.client_certificate,
            "client-certificate",
        )?;
        let key = beside.bytes(&user.client_key_data, &user.client_key, "client-key")?;
        let tls = match (certificate, key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let chain: Vec<CertificateDer<'static>> =
                    certificates(&certificate).map_err(|why| format!("client-certificate: {why}"))?;
                let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| format!("client-key: {error:?}"))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| error.to_string())?
            }
            _ => return Err("client-certificate and client-key go together".into()),
        };
        let token = match beside.bytes("", &user.token_file, "tokenFile")? {
            Some(bytes) => String::from_utf8_lossy(&bytes).trim().to_owned(),
            None => user.token.clone(),
        };
        let authorization = match token.as_str() {
            "" => None,
            token => {
                let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                    .map_err(|_| "the token holds control characters".to_owned())?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Place {
            url,
            tls,
            authorization,
        })
    }
}
