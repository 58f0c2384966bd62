//! `flatkube kubeconfig create`: a kubeconfig with a client certificate of a user's own.

use std::path::PathBuf;

use base64::Engine as _;
use bytes::Bytes;
use hyper::Method;
use rcgen::{KeyPair, PublicKeyData as _};
use serde::Deserialize;
use serde_json::json;

use super::client::{Client, JSON};
use super::kubeconfig::{self, FILE_NAME};
use super::{Exit, Failure};
use crate::auth::{Authority, Credential, Usages, Wanted, kubeconfig_text, pem, subject_of_user};
use crate::remote::Connection;
use crate::resources::AlternativeNames;

/// Arguments of `flatkube kubeconfig create`.
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Makes a key and a client certificate for a user, and prints a kubeconfig with them. The certificate is signed with \
        the authority's key in the data directory, whether a server runs or not; with --kubeconfig, by a running server that is \
        asked for it as an administrator (a CertificateSigningRequest that is approved, signed and deleted again). What the user may \
        do is up to roles: give some to the name or to a group. A certificate cannot be taken back before it ends: keep it short.",
    after_long_help = "\
Examples:
  A user of a group for a day:
      flatkube kubeconfig create --user alice --group developers --duration 24h > alice.kubeconfig

  The same from another machine, by way of the server:
      flatkube kubeconfig create --user alice --group developers --kubeconfig admin.kubeconfig > alice.kubeconfig"
)]
pub(super) struct Create {
    /// The user's name
    #[arg(long, value_name = "NAME", value_parser = name)]
    user: String,

    /// A group that the user is in; may be given several times
    #[arg(long = "group", value_name = "NAME", value_parser = name)]
    groups: Vec<String>,

    /// How long the certificate is good (such as 8h, 30d)
    #[arg(long, value_name = "TIME", default_value = "365d", value_parser = duration)]
    duration: u32,

    /// The data directory whose authority signs
    #[arg(long, value_name = "DIR", default_value = super::server::DATA_DIR)]
    data_dir: PathBuf,

    /// Ask the server of this kubeconfig instead; members of system:masters are not made this way
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    kubeconfig: Option<PathBuf>,

    /// The address of the server, where it is another one than the administrator's kubeconfig names
    #[arg(long, value_name = "URL")]
    server: Option<String>,
}

fn name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 256 || text.chars().any(char::is_control) {
        return Err("not a name of 1 to 256 bytes without control characters".into());
    }
    Ok(text.to_owned())
}

/// The least that servers sign for, too.
fn duration(text: &str) -> Result<u32, String> {
    let lasts_s = kubeconfig::lifetime(text)?;
    if lasts_s < 600 {
        return Err("shorter than ten minutes (10m)".into());
    }
    Ok(lasts_s)
}

pub(super) fn run(arguments: &Create) -> Result<(), Failure> {
    let key =
        KeyPair::generate().map_err(|error| Failure::new(Exit::Failure, format!("cannot make a key: {error}")))?;
    let subject = subject_of_user(&arguments.user, &arguments.groups);
    let path = match &arguments.kubeconfig {
        Some(path) => path.clone(),
        None => arguments.data_dir.join(FILE_NAME),
    };
    let connection = kubeconfig::read(&path).map_err(|failure| {
        failure.or_advise("it is written when the server starts; name another data directory with --data-dir")
    })?;
    let certificate = if arguments.kubeconfig.is_some() {
        let runtime = super::client::runtime()?;
        runtime.block_on(asked(&connection, arguments, &subject, &key))?
    } else {
        let authority =
            Authority::open(&arguments.data_dir).map_err(|error| Failure::new(Exit::Failure, error.to_string()))?;
        let now_s = jiff::Timestamp::now().as_second();
        let der = authority.sign(&Wanted {
            subject: &subject,
            public_key: &key.subject_public_key_info(),
            names: &AlternativeNames::default(),
            usages: Usages::named(["digital signature", "client auth"]).unwrap_or_default(),
            // For clocks that are behind.
            begins_s: now_s - 300,
            ends_s: now_s + i64::from(arguments.duration),
        });
        let der = der.map_err(|error| Failure::new(Exit::Failure, format!("cannot sign: {error}")))?;
        pem("CERTIFICATE", &der)
    };
    let server = arguments.server.as_deref().unwrap_or(&connection.server);
    let authority = String::from_utf8_lossy(connection.authority.as_deref().unwrap_or_default());
    let credential = Credential::Certificate {
        certificate: &certificate,
        key: &key.serialize_pem(),
    };
    // By which the server is known under any address.
    let name = connection.server_name.as_deref();
    let text = kubeconfig_text(
        server.trim_end_matches('/'),
        &authority,
        &arguments.user,
        &credential,
        name,
    );
    super::store::print(text.as_bytes())
}

#[derive(Deserialize)]
struct Request {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    certificate: Option<String>,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    message: String,
}

/// How often it is looked whether the certificate is there, and how long in between.
const LOOKS_MAX: u32 = 100;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// The certificate that a server gives, PEM.
async fn asked(connection: &Connection, arguments: &Create, subject: &[u8], key: &KeyPair) -> Result<String, Failure> {
    const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let base64 = base64::engine::general_purpose::STANDARD;
    let client = Client::new(connection)?;
    let request = crate::auth::signing_request(subject, key)
        .map_err(|error| Failure::new(Exit::Failure, format!("cannot make a request: {error}")))?;
    let body = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "flatkube-kubeconfig-"},
        "spec": {
            "request": base64.encode(pem("CERTIFICATE REQUEST", &request)),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["digital signature", "client auth"],
            "expirationSeconds": arguments.duration,
        },
    });
    let made = client.send(Method::POST, PATH, JSON, body.to_string().into()).await?;
    let made: serde_json::Value = serde_json::from_slice(&made).unwrap_or_default();
    let path = format!("{PATH}/{}", made["metadata"]["name"].as_str().unwrap_or(""));
    let given = given(&client, &path, made).await;
    // Whatever came of it, it is done with.
    let _ = client.send(Method::DELETE, &path, JSON, Bytes::new()).await;
    let bytes = base64
        .decode(given?)
        .map_err(|_| Failure::new(Exit::Failure, "the server's certificate is not base64"))?;
    String::from_utf8(bytes).map_err(|_| Failure::new(Exit::Failure, "the server's certificate is not PEM"))
}

/// Approves a request and waits for its certificate, base64.
async fn given(client: &Client, path: &str, mut request: serde_json::Value) -> Result<String, Failure> {
    request["status"]["conditions"] = json!([{
        "type": "Approved",
        "status": "True",
        "reason": "FlatkubeKubeconfigCreate",
        "message": "This CSR was made and approved by flatkube kubeconfig create.",
    }]);
    let approval = format!("{path}/approval");
    client
        .send(Method::PUT, &approval, JSON, request.to_string().into())
        .await?;
    for _ in 0..LOOKS_MAX {
        let request: Request = client.get(path).await?;
        if let Some(certificate) = request.status.certificate {
            return Ok(certificate);
        }
        if let Some(failed) = request
            .status
            .conditions
            .iter()
            .find(|condition| condition.kind == "Failed")
        {
            let message = format!("{} gets no certificate: {}", request.metadata.name, failed.message);
            return Err(Failure::new(Exit::Failure, message));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Failure::new(Exit::Failure, "the server signs nothing")
        .advise("are its controllers switched off (--controllers=off)? Use --data-dir on the server's machine"))
}
