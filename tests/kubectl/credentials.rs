//! Credentials that are made for others: kubeconfigs, tokens, certificates; and who one is with them.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use crate::process::{FLATKUBE, Server, text};
use crate::tool::{Kubectl, contains, installed};

fn flatkube(arguments: &[&str]) -> Output {
    let mut command = Command::new(FLATKUBE);
    command.args(arguments).env_remove("KUBECONFIG");
    command.output().expect("the binary runs")
}

/// Standard output of a command that succeeds.
fn ok(arguments: &[&str]) -> String {
    let output = flatkube(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// A server on a directory of its own, and a kubectl on it.
fn server(dir: &Path, topic: &str) -> Option<Kubectl> {
    let program = installed().into_iter().next()?;
    let server = Arc::new(Server::on(dir));
    Some(Kubectl::on(server, &program, topic.to_owned()))
}

#[test]
fn a_kubeconfig_that_was_made_for_somebody_says_who_he_is() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let Some(kubectl) = server(&data, "minted") else { return };
    let admin = data.join("admin.kubeconfig");
    let common = [
        "kubeconfig",
        "create",
        "--user",
        "alice: o'neil",
        "--group",
        "team-a",
        "--group",
        "team-b",
    ];
    for source in [["--data-dir", text(&data)], ["--kubeconfig", text(&admin)]] {
        let made = ok(&[&common[..], &source[..], &["--duration", "1h"]].concat());
        let path = dir.path().join("alice.kubeconfig");
        std::fs::write(&path, made).expect("written");
        let who = kubectl.ok(&["--kubeconfig", text(&path), "auth", "whoami", "-o", "json"]);
        contains(&who, &["\"alice: o'neil\"", "team-a", "team-b", "system:authenticated"]);
        contains(
            &kubectl.fails(&["--kubeconfig", text(&path), "get", "secrets"]),
            &["User \"alice: o'neil\" cannot list resource \"secrets\""],
        );
    }
    // What was asked for by way of the server is done with.
    assert_eq!(kubectl.ok(&["get", "csr", "-o", "name"]), "");
    let masters = [
        &common[..4],
        &["--group", "system:masters", "--kubeconfig", text(&admin)][..],
    ]
    .concat();
    let refused = flatkube(&masters);
    assert!(!refused.status.success());
    contains(&String::from_utf8_lossy(&refused.stderr), &["system:masters"]);
}

#[test]
fn a_token_leads_a_machine_to_its_certificate() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let Some(kubectl) = server(&data, "joining") else {
        return;
    };
    let admin = data.join("admin.kubeconfig");
    let made = |output: &str| {
        ok(&[
            "token",
            "create",
            "--kubeconfig",
            text(&admin),
            "--ttl",
            "1h",
            "--output",
            output,
        ])
    };
    let joined = made("join");
    contains(
        &joined,
        &[
            "kubeadm join 127.0.0.1:",
            " --token ",
            " --discovery-token-ca-cert-hash sha256:",
        ],
    );
    let path = dir.path().join("bootstrap.kubeconfig");
    std::fs::write(&path, made("bootstrap-kubeconfig")).expect("written");
    let who = kubectl.ok(&["--kubeconfig", text(&path), "auth", "whoami", "-o", "json"]);
    contains(
        &who,
        &["system:bootstrap:", "system:bootstrappers:kubeadm:default-node-token"],
    );
    // Whoever has nothing finds the cluster.
    let nobody = [
        "--as",
        "system:anonymous",
        "--as-group",
        "system:unauthenticated",
        "-n",
        "kube-public",
    ];
    let info = kubectl.ok(&[&nobody[..], &["get", "cm", "cluster-info", "-o", "yaml"]].concat());
    contains(&info, &["certificate-authority-data", "server: https://127.0.0.1:"]);
    let can = |verb: &str, what: &str| kubectl.run(&["--kubeconfig", text(&path), "auth", "can-i", verb, what], "");
    for (verb, what, allowed) in [
        ("create", "certificatesigningrequests.certificates.k8s.io", true),
        (
            "create",
            "certificatesigningrequests.certificates.k8s.io/nodeclient",
            true,
        ),
        ("create", "nodes", false),
    ] {
        assert_eq!(can(verb, what).status.success(), allowed, "{verb} {what}");
    }
}

#[test]
fn what_kubectl_approves_is_signed_and_lets_in() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(kubectl) = server(&dir.path().join("data"), "approving") else {
        return;
    };
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "carol");
    let pem = params
        .serialize_request(&key)
        .and_then(|request| request.pem())
        .expect("a request");
    let request = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem);
    for (name, verb) in [("good", "approve"), ("bad", "deny")] {
        let manifest = format!(
            "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: {name}}}\nspec:\n  \
             request: {request}\n  signerName: kubernetes.io/kube-apiserver-client\n  usages: [client auth]\n"
        );
        kubectl.ok_with(&["create", "-f", "-"], &manifest);
        kubectl.ok(&["certificate", verb, name]);
    }
    kubectl.ok(&[
        "wait",
        "csr/good",
        "--for=jsonpath={.status.certificate}",
        "--timeout=50s",
    ]);
    contains(
        &kubectl.ok(&["get", "csr", "good", "bad"]),
        &["Approved,Issued", "Denied"],
    );
    let certificate = kubectl.field("csr/good", ".status.certificate");
    let certificate = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, certificate).expect("base64");
    let (crt, secret) = (dir.path().join("carol.crt"), dir.path().join("carol.key"));
    std::fs::write(&crt, certificate).expect("written");
    std::fs::write(&secret, key.serialize_pem()).expect("written");
    kubectl.ok(&[
        "config",
        "set-credentials",
        "carol",
        "--client-certificate",
        text(&crt),
        "--client-key",
        text(&secret),
    ]);
    contains(
        &kubectl.ok(&["--user", "carol", "auth", "whoami", "-o", "json"]),
        &["\"carol\""],
    );
    // An account's token, by the same command that people use.
    kubectl.ok(&["create", "serviceaccount", "robot"]);
    let token = kubectl.ok(&["create", "token", "robot"]);
    assert_eq!(token.trim().split('.').count(), 3, "{token}");
}

#[test]
fn certificates_are_told_with_their_ends_and_made_anew() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let none = flatkube(&["certs", "check", "--data-dir", text(&data)]);
    assert_eq!(none.status.code(), Some(1));
    let running = Server::on(&data);
    let told = ok(&["certs", "check", "--data-dir", text(&data)]);
    contains(&told, &["pki/ca.crt", "CN=kubernetes-admin", "127.0.0.1", "ends  "]);
    let soon = flatkube(&["certs", "check", "--data-dir", text(&data), "--within", "400d"]);
    assert_eq!(soon.status.code(), Some(1));
    contains(&String::from_utf8_lossy(&soon.stderr), &["server.crt ends soon"]);
    // Not under a server that would not take it up.
    let held = flatkube(&["certs", "rotate", "--ca", "--data-dir", text(&data)]);
    assert_eq!(held.status.code(), Some(4), "{held:?}");
    running.end("TERM");
    let authority = std::fs::read(data.join("pki/ca.crt")).expect("read");
    contains(
        &ok(&["certs", "rotate", "--data-dir", text(&data)]),
        &["removed", "server.crt"],
    );
    let running = Server::on(&data);
    assert_eq!(std::fs::read(data.join("pki/ca.crt")).expect("read"), authority);
    running.end("TERM");
    contains(
        &ok(&["certs", "rotate", "--ca", "--data-dir", text(&data)]),
        &["ca.crt", "refused"],
    );
    let running = Server::on(&data);
    assert_ne!(std::fs::read(data.join("pki/ca.crt")).expect("read"), authority);
    ok(&["certs", "check", "--data-dir", text(&data)]);
    running.end("TERM");
}
