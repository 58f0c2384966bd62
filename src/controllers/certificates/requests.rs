//! What requests ask for, held against what the signers of Kubernetes give.

use std::collections::BTreeSet;

use crate::resources::SigningRequest;
use crate::tree::Value;

/// The signers whose requests are signed here.
pub(super) const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub(super) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub(super) const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
pub(super) const LEGACY: &str = "kubernetes.io/legacy-unknown";

const NODES: &str = "system:nodes";
const NODE: &str = "system:node:";

/// Whether something was said of a request: `Approved`, `Denied`, `Failed`.
pub(super) fn has(request: &Value, kind: &str) -> bool {
    conditions(request).iter().any(|condition| condition["type"] == kind)
}

pub(super) fn conditions(request: &Value) -> &[Value] {
    request["status"]["conditions"]
        .as_array()
        .map_or(&[][..], |conditions| conditions.as_slice())
}

pub(super) fn has_certificate(request: &Value) -> bool {
    request["status"]["certificate"]
        .as_str()
        .is_some_and(|text| !text.is_empty())
}

pub(super) fn usages(request: &Value) -> BTreeSet<&str> {
    let usages = request["spec"]["usages"].as_array();
    let usages = usages.map_or(&[][..], |usages| usages.as_slice());
    usages.iter().filter_map(Value::as_str).collect()
}

/// Whether a signer gives what is asked for; `None`: it is none of the signers here.
pub(super) fn judged(signer: &str, asked: &SigningRequest, usages: &BTreeSet<&str>) -> Option<Result<(), String>> {
    Some(match signer {
        CLIENT => client(usages),
        KUBELET_CLIENT => kubelet_client(asked, usages),
        KUBELET_SERVING => kubelet_serving(asked, usages),
        // Whatever is approved.
        LEGACY => Ok(()),
        _ => return None,
    })
}

fn client(usages: &BTreeSet<&str>) -> Result<(), String> {
    let allowed = ["digital signature", "key encipherment", "client auth"];
    if let Some(other) = usages.iter().find(|usage| !allowed.contains(usage)) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    if !usages.contains("client auth") {
        return Err("missing required usage for client certificate: client auth".into());
    }
    Ok(())
}

/// Whether a request is one for the certificate that a kubelet shows this server.
pub(super) fn kubelet_client(asked: &SigningRequest, usages: &BTreeSet<&str>) -> Result<(), String> {
    is_of_nodes(asked)?;
    let names = &asked.names;
    for (kind, is_none) in [
        ("DNS", names.dns.is_empty()),
        ("Email", names.emails.is_empty()),
        ("IP", names.addresses.is_empty()),
        ("URI", names.uris.is_empty()),
    ] {
        if !is_none {
            return Err(format!("{kind} subjectAltNames are not allowed"));
        }
    }
    is_of_a_node(asked)?;
    uses(usages, "client auth")
}

fn kubelet_serving(asked: &SigningRequest, usages: &BTreeSet<&str>) -> Result<(), String> {
    is_of_nodes(asked)?;
    let names = &asked.names;
    if names.dns.is_empty() && names.addresses.is_empty() {
        return Err("DNS or IP subjectAltName is required".into());
    }
    for (kind, is_none) in [("Email", names.emails.is_empty()), ("URI", names.uris.is_empty())] {
        if !is_none {
            return Err(format!("{kind} subjectAltNames are not allowed"));
        }
    }
    uses(usages, "server auth")?;
    is_of_a_node(asked)
}

fn is_of_nodes(asked: &SigningRequest) -> Result<(), String> {
    if asked.organizations == [NODES] {
        Ok(())
    } else {
        Err(format!("subject organization is not {NODES}"))
    }
}

fn is_of_a_node(asked: &SigningRequest) -> Result<(), String> {
    if asked.common_name.starts_with(NODE) {
        Ok(())
    } else {
        Err(format!("subject common name does not begin with {NODE}"))
    }
}

/// Signing and the one purpose, and nothing more; with keys of RSA enciphering keys, too.
fn uses(usages: &BTreeSet<&str>, purpose: &str) -> Result<(), String> {
    let all = BTreeSet::from(["digital signature", "key encipherment", purpose]);
    let mut least = all.clone();
    least.remove("key encipherment");
    if *usages == all || *usages == least {
        return Ok(());
    }
    let all: Vec<&str> = all.into_iter().collect();
    Err(format!("usages did not match [{}]", all.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::AlternativeNames;

    fn asked(groups: &[&str], name: &str, names: AlternativeNames) -> SigningRequest {
        SigningRequest {
            subject: Vec::new(),
            public_key: Vec::new(),
            common_name: name.into(),
            organizations: groups.iter().map(|group| (*group).to_owned()).collect(),
            names,
            unproven: None,
        }
    }

    fn said(signer: &str, asked: &SigningRequest, usages: &[&str]) -> Result<(), String> {
        judged(signer, asked, &usages.iter().copied().collect()).unwrap()
    }

    #[test]
    fn a_kubelets_client_certificate_is_of_a_node_for_clients_and_has_no_other_names() {
        let node = asked(&[NODES], "system:node:a", AlternativeNames::default());
        let usages = ["digital signature", "client auth"];
        assert_eq!(said(KUBELET_CLIENT, &node, &usages), Ok(()));
        assert_eq!(
            said(
                KUBELET_CLIENT,
                &node,
                &["key encipherment", "digital signature", "client auth"]
            ),
            Ok(())
        );
        let refused = |asked: &SigningRequest, usages: &[&str]| said(KUBELET_CLIENT, asked, usages).unwrap_err();
        assert_eq!(
            refused(&node, &["client auth"]),
            "usages did not match [client auth digital signature key encipherment]"
        );
        for groups in [&[][..], &[NODES, NODES], &["system:masters"], &[NODES, "x"]] {
            let other = asked(groups, "system:node:a", AlternativeNames::default());
            assert_eq!(refused(&other, &usages), "subject organization is not system:nodes");
        }
        let other = asked(&[NODES], "admin", AlternativeNames::default());
        assert_eq!(
            refused(&other, &usages),
            "subject common name does not begin with system:node:"
        );
        let names = AlternativeNames {
            addresses: vec![vec![1, 1, 1, 1]],
            ..AlternativeNames::default()
        };
        let other = asked(&[NODES], "system:node:a", names);
        assert_eq!(refused(&other, &usages), "IP subjectAltNames are not allowed");
    }

    #[test]
    fn a_kubelets_serving_certificate_has_names_for_servers() {
        let usages = ["digital signature", "server auth"];
        let names = AlternativeNames {
            dns: vec!["a".into()],
            ..AlternativeNames::default()
        };
        let node = asked(&[NODES], "system:node:a", names.clone());
        assert_eq!(said(KUBELET_SERVING, &node, &usages), Ok(()));
        let none = asked(&[NODES], "system:node:a", AlternativeNames::default());
        assert_eq!(
            said(KUBELET_SERVING, &none, &usages).unwrap_err(),
            "DNS or IP subjectAltName is required"
        );
        let names = AlternativeNames {
            uris: vec!["u:1".into()],
            ..names
        };
        let more = asked(&[NODES], "system:node:a", names);
        assert_eq!(
            said(KUBELET_SERVING, &more, &usages).unwrap_err(),
            "URI subjectAltNames are not allowed"
        );
    }

    #[test]
    fn clients_certificates_are_for_clients_and_other_signers_are_none_of_ours() {
        let anyone = asked(&["a"], "b", AlternativeNames::default());
        assert_eq!(said(CLIENT, &anyone, &["client auth"]), Ok(()));
        assert_eq!(
            said(CLIENT, &anyone, &["client auth", "server auth"]).unwrap_err(),
            "invalid usage for client certificate: server auth"
        );
        assert_eq!(
            said(CLIENT, &anyone, &["digital signature"]).unwrap_err(),
            "missing required usage for client certificate: client auth"
        );
        assert!(judged("example.com/a", &anyone, &BTreeSet::new()).is_none());
    }
}
