//! `flatkube token`: bootstrap tokens, by which machines join.

use std::fmt::Write as _;
use std::path::PathBuf;

use bytes::Bytes;
use clap::{Subcommand, ValueEnum};
use hyper::Method;
use ring::digest;
use ring::rand::SecureRandom as _;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::client::{Client, JSON, RequestError};
use super::kubeconfig;
use super::{Exit, Failure};
use crate::auth::{BOOTSTRAP_TOKEN_TYPE, Credential, kubeconfig_text};
use crate::remote::Connection;
use crate::resources::time_text;

/// Arguments of `flatkube token`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make a token, and what machines need that join with it
    Create(Create),
}

/// Arguments of `flatkube token create`.
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Makes a bootstrap token: a machine that has it may ask for the certificate of a node, once, and gets it without \
        anybody's approval. With the first token comes what kubeadm makes, too, where it is missing: the ConfigMap \
        kube-public/cluster-info, by which a machine finds the cluster's authority, and the roles of machines that join. Whoever \
        has a token may add nodes to the cluster until it ends.",
    after_long_help = "\
Examples:
  A file by which a stock kubelet joins (kubelet --bootstrap-kubeconfig FILE --kubeconfig OTHER):
      flatkube token create --output bootstrap-kubeconfig --server https://10.0.0.1:6443 > bootstrap.kubeconfig

  A token for an hour:
      flatkube token create --ttl 1h"
)]
pub(super) struct Create {
    /// How an administrator reaches the server
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,

    /// The address by which machines reach the server, where it is another one than in the kubeconfig
    #[arg(long, value_name = "URL")]
    server: Option<String>,

    /// How long the token is good (such as 30m, 24h, 7d); 0: for ever
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = kubeconfig::lifetime)]
    ttl: u32,

    /// What the token is for, for those who read the list of tokens
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    /// What is printed
    #[arg(long, value_enum, default_value_t = Output::Token)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// The token alone
    Token,
    /// A kubeconfig with it, for a kubelet's --bootstrap-kubeconfig
    BootstrapKubeconfig,
    /// A line for kubeadm, with the digest of the authority's key; kubeadm wants ConfigMaps of its own besides, which are not made here
    Join,
}

/// The group of machines that join, as kubeadm names it.
const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";

pub(super) fn run(command: &Command) -> Result<(), Failure> {
    let Command::Create(arguments) = command;
    let path = arguments.kubeconfig.clone().unwrap_or_else(kubeconfig::default_path);
    let mut connection = kubeconfig::read(&path)?;
    let client = Client::new(&connection)?;
    if let Some(server) = &arguments.server {
        server.trim_end_matches('/').clone_into(&mut connection.server);
    }
    let runtime = super::client::runtime()?;
    let token = runtime.block_on(create(&client, &connection, arguments))?;
    let text = match arguments.output {
        Output::Token => format!("{token}\n"),
        Output::BootstrapKubeconfig => kubeconfig_text(
            &connection.server,
            authority(&connection)?,
            "tls-bootstrap-token-user",
            &Credential::Token(&token),
            None,
        ),
        Output::Join => {
            let address = connection.server.trim_start_matches("https://");
            let digest = digest_of_key(authority(&connection)?)?;
            format!("kubeadm join {address} --token {token} --discovery-token-ca-cert-hash sha256:{digest}\n")
        }
    };
    super::store::print(text.as_bytes())
}

/// The PEM by which the server is known.
fn authority(connection: &Connection) -> Result<&str, Failure> {
    let pem = connection.authority.as_deref().unwrap_or_default();
    std::str::from_utf8(pem).map_err(|_| Failure::new(Exit::Usage, "the kubeconfig's certificate authority is not PEM"))
}

/// The SHA-256 of the authority's public key, as kubeadm pins it.
fn digest_of_key(pem: &str) -> Result<String, Failure> {
    let wrong = || {
        Failure::new(
            Exit::Usage,
            "the kubeconfig's certificate authority is not PEM of a certificate",
        )
    };
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| wrong())?;
    let (_, certificate) = X509Certificate::from_der(&der).map_err(|_| wrong())?;
    let digest = digest::digest(&digest::SHA256, certificate.public_key().raw);
    let mut text = String::new();
    for byte in digest.as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// So many characters of `a-z0-9`, each as likely as any other.
fn random(length: usize) -> Result<String, Failure> {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let source = ring::rand::SystemRandom::new();
    let mut text = String::new();
    while text.len() < length {
        let mut byte = [0];
        source
            .fill(&mut byte)
            .map_err(|_| Failure::new(Exit::Failure, "the system gives no random bytes"))?;
        // 252 is seven times 36: what is above would make the first letters likelier.
        if byte[0] < 252 {
            text.push(char::from(LETTERS[usize::from(byte[0] % 36)]));
        }
    }
    Ok(text)
}

async fn create(client: &Client, connection: &Connection, arguments: &Create) -> Result<String, Failure> {
    for (path, object) in shared(connection)? {
        made(client.send_patiently(Method::POST, path, JSON, body(&object)).await)?;
    }
    let (id, secret) = (random(6)?, random(16)?);
    let mut data = json!({
        "token-id": id,
        "token-secret": secret,
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": GROUP,
    });
    if arguments.ttl > 0 {
        let ends_s = jiff::Timestamp::now().as_second() + i64::from(arguments.ttl);
        data["expiration"] = Value::from(time_text(ends_s));
    }
    if let Some(description) = &arguments.description {
        data["description"] = Value::from(description.as_str());
    }
    let held = json!({
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
        "type": BOOTSTRAP_TOKEN_TYPE,
        "stringData": data,
    });
    let path = "/api/v1/namespaces/kube-system/secrets";
    client.send(Method::POST, path, JSON, body(&held)).await?;
    Ok(format!("{id}.{secret}"))
}

fn body(object: &Value) -> Bytes {
    object.to_string().into()
}

/// What somebody made before is as good.
fn made(result: Result<Bytes, RequestError>) -> Result<(), Failure> {
    match result {
        Err(error) if !error.already_exists() => Err(error.into()),
        _ => Ok(()),
    }
}

/// What machines that join need besides a token, under kubeadm's names: where the cluster is, and their roles.
fn shared(connection: &Connection) -> Result<Vec<(&'static str, Value)>, Failure> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let pem = authority(connection)?;
    let group = |name: &str| json!([{"kind": "Group", "apiGroup": RBAC, "name": name}]);
    let binding = |name: &str, role: &str, subjects: Value| {
        let role = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": role});
        (
            BINDINGS,
            json!({"metadata": {"name": name}, "roleRef": role, "subjects": subjects}),
        )
    };
    let approve = "system:certificates.k8s.io:certificatesigningrequests:";
    let info = "kubeadm:bootstrap-signer-clusterinfo";
    let rules =
        json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["cluster-info"], "verbs": ["get"]}]);
    Ok(vec![
        (
            "/api/v1/namespaces/kube-public/configmaps",
            json!({
                "metadata": {"name": "cluster-info", "namespace": "kube-public"},
                "data": {"kubeconfig": discovery(&connection.server, pem)},
            }),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-public/roles",
            json!({"metadata": {"name": info, "namespace": "kube-public"}, "rules": rules}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-public/rolebindings",
            json!({
                "metadata": {"name": info, "namespace": "kube-public"},
                "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": info},
                "subjects": [{"kind": "User", "apiGroup": RBAC, "name": "system:anonymous"}],
            }),
        ),
        binding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", group(GROUP)),
        binding(
            "kubeadm:node-autoapprove-bootstrap",
            &format!("{approve}nodeclient"),
            group(GROUP),
        ),
        binding(
            "kubeadm:node-autoapprove-certificate-rotation",
            &format!("{approve}selfnodeclient"),
            group("system:nodes"),
        ),
    ])
}

/// A kubeconfig that says where the cluster is and no more.
fn discovery(server: &str, pem: &str) -> String {
    use base64::Engine as _;
    let pem = base64::engine::general_purpose::STANDARD.encode(pem);
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    certificate-authority-data: {pem}\n    \
         server: {server}\ncontexts: []\ncurrent-context: \"\"\npreferences: {{}}\nusers: []\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_their_form_and_are_not_the_same_twice() {
        let (id, secret) = (random(6).unwrap(), random(16).unwrap());
        let token = format!("{id}.{secret}");
        assert_eq!(crate::auth::parts_of_bootstrap_token(&token), Some((&*id, &*secret)));
        assert_ne!(secret, random(16).unwrap());
    }
}
