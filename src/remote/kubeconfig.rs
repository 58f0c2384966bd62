//! Reading a kubeconfig, as a client does: where a server is, and who is asking.
//!
//! Of the format (client-go's `clientcmd/api/v1`) only what our own server writes and what people put beside it is understood:
//! certificates inline or as files, bearer tokens. Exec plugins and auth providers are not.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use serde::Deserialize;

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// A file cannot be read: itself, or one that it names.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It says nothing that can be used.
    #[error("{path}: {reason}")]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// Where a server is and who is asking: one context of a kubeconfig, with files read in.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Connection {
    /// The server's URL, without a trailing slash.
    pub server: String,
    /// PEM of the certificate authority; `None` for plain HTTP, and for the authorities that the system knows.
    pub authority: Option<Vec<u8>>,
    /// PEM of the client certificate and of its key.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// The bearer token.
    pub token: Option<String>,
    /// The name that the server's certificate is asked for by, where that is not in the URL.
    pub server_name: Option<String>,
}

impl std::fmt::Debug for Connection {
    /// Without what is secret.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Connection")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    current_context: String,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    tls_server_name: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

/// Reads a context, or the current one, of the kubeconfig at `path`. Paths in it are relative to the file, as in client-go.
///
/// # Errors
/// When a file cannot be read, or does not say where and who.
pub fn read(path: &Path, context: Option<&str>) -> Result<Connection, KubeconfigError> {
    let failed = |path: &Path, source| KubeconfigError::Read {
        path: path.to_owned(),
        source,
    };
    let wrong = |reason: String| KubeconfigError::Wrong {
        path: path.to_owned(),
        reason,
    };
    let text = fs::read_to_string(path).map_err(|error| failed(path, error))?;
    let file: File = serde_saphyr::from_str(&text).map_err(|error| wrong(format!("not a kubeconfig: {error}")))?;
    let name = context.unwrap_or(&file.current_context);
    let found = file.contexts.iter().find(|context| context.name == name);
    let context = found.ok_or_else(|| {
        let which = if context.is_none() { ", the current one" } else { "" };
        wrong(format!("no context is named {name:?}{which}"))
    })?;
    let cluster = file
        .clusters
        .iter()
        .find(|cluster| cluster.name == context.context.cluster)
        .ok_or_else(|| wrong(format!("no cluster is named {:?}", context.context.cluster)))?;
    let nobody = User::default();
    let user = file
        .users
        .iter()
        .find(|user| user.name == context.context.user)
        .map_or(&nobody, |user| &user.user);

    let folder = path.parent().unwrap_or(Path::new("."));
    let material = |inline: &Option<String>, file: &Option<PathBuf>| -> Result<Option<Vec<u8>>, KubeconfigError> {
        if let Some(text) = inline {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(text.trim())
                .map_err(|error| wrong(format!("certificate data is not base64: {error}")))?;
            return Ok(Some(bytes));
        }
        let Some(file) = file else { return Ok(None) };
        let file = folder.join(file);
        fs::read(&file).map(Some).map_err(|error| failed(&file, error))
    };
    let certificate = match (
        material(&user.client_certificate_data, &user.client_certificate)?,
        material(&user.client_key_data, &user.client_key)?,
    ) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err(wrong("a client certificate and its key must stand together".into())),
    };
    let token = match (&user.token, material(&None, &user.token_file)?) {
        (Some(token), _) => Some(token.clone()),
        (None, Some(bytes)) => Some(String::from_utf8_lossy(&bytes).trim().to_owned()),
        (None, None) => None,
    };
    Ok(Connection {
        server: cluster.cluster.server.trim_end_matches('/').to_owned(),
        authority: material(
            &cluster.cluster.certificate_authority_data,
            &cluster.cluster.certificate_authority,
        )?,
        certificate,
        token,
        server_name: cluster.cluster.tls_server_name.clone(),
    })
}
