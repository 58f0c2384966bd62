//! Who may approve and sign requests for certificates, and what may not be asked for. (Upstream's admission plugins
//! CertificateApproval, CertificateSigning and CertificateSubjectRestriction.)

use super::{Operation, Refused, Request, forbidden, items, text};
use crate::cel::authorizer::{Authorizer, Question};
use crate::resources;
use crate::tree::Value;

/// The signer whose certificates users of the API get.
const CLIENTS: &str = "kubernetes.io/kube-apiserver-client";

/// Nobody asks for a certificate that makes its bearer an administrator.
///
/// # Errors
/// 403.
pub(super) fn check_subject(request: &Request<'_>, asked: &Value) -> Result<(), Refused> {
    if request.operation == Operation::Create
        && asked["spec"]["signerName"] == CLIENTS
        && resources::requested_groups(asked)
            .iter()
            .any(|group| group == "system:masters")
    {
        return Err(forbidden(format!(
            "use of {CLIENTS} signer with system:masters group is not allowed"
        )));
    }
    Ok(())
}

/// Who approves or denies must be allowed to for that signer.
///
/// # Errors
/// 403.
pub(super) fn check_approval(rights: &dyn Authorizer, old: &Value) -> Result<(), Refused> {
    check(rights, "approve", old)
}

/// Who gives a certificate, or says that there is none, must be allowed to for that signer.
///
/// # Errors
/// 403.
pub(super) fn check_signing(rights: &dyn Authorizer, new: &Value, old: &Value) -> Result<(), Refused> {
    let failed = |asked: &Value| items(&asked["status"]["conditions"]).any(|condition| condition["type"] == "Failed");
    let signs = new["status"]["certificate"] != old["status"]["certificate"] || failed(new) != failed(old);
    if signs { check(rights, "sign", old) } else { Ok(()) }
}

fn check(rights: &dyn Authorizer, verb: &str, asked: &Value) -> Result<(), Refused> {
    let signer = text(&asked["spec"]["signerName"]);
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    let may = |name: String| {
        let question = Question {
            group: "certificates.k8s.io".to_owned(),
            resource: "signers".to_owned(),
            name,
            verb: verb.to_owned(),
            ..Question::default()
        };
        rights.check(&question).is_ok_and(|(allowed, _)| allowed)
    };
    if may(signer.to_owned()) || may(format!("{domain}/*")) {
        return Ok(());
    }
    Err(forbidden(format!(
        "user not permitted to {verb} requests with signerName {signer:?}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    /// Allows one verb for one name.
    struct Only(&'static str, &'static str);

    impl Authorizer for Only {
        fn check(&self, question: &Question) -> Result<(bool, String), String> {
            Ok((question.verb == self.0 && question.name == self.1, String::new()))
        }
    }

    #[test]
    fn approval_and_signing_are_rights_of_their_own_for_a_signer_or_a_domain() {
        let asked = json!({"spec": {"signerName": "example.com/a"}, "status": {}});
        let signed = json!({"spec": {"signerName": "example.com/a"}, "status": {"certificate": "x"}});
        assert!(check_approval(&Only("approve", "example.com/a"), &asked).is_ok());
        assert!(check_approval(&Only("approve", "example.com/*"), &asked).is_ok());
        assert!(check_approval(&Only("sign", "example.com/a"), &asked).is_err());
        assert!(check_approval(&Only("approve", "example.com/b"), &asked).is_err());
        assert!(check_signing(&Only("approve", "example.com/a"), &signed, &asked).is_err());
        assert!(check_signing(&Only("sign", "example.com/*"), &signed, &asked).is_ok());
        assert!(check_signing(&Only("none", ""), &asked, &asked).is_ok());
    }
}
