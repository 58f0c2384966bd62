//! Signing what was approved, with this server's own authority.

use base64::Engine as _;

use super::SigningRequests;
use super::approval::with_condition;
use super::requests::{has, has_certificate, judged, usages};
use crate::api::status::Status;
use crate::auth::{Usages, Wanted, pem};
use crate::controllers::failure::Failure;
use crate::controllers::queue::Done;
use crate::resources::{self, SigningRequest};
use crate::tree::{Value, json};

/// How long a certificate lasts that asks for nothing else, and at most.
const LASTS_S: i64 = 365 * 24 * 3600;
/// How long it lasts at least.
const LASTS_LEAST_S: i64 = 600;
/// A certificate begins so long before now, for clocks that are behind.
const BACKDATED_S: i64 = 300;
/// One that is asked for to last no longer than this lasts that long from now on; the time before now is on top.
const SHORT_S: i64 = 8 * 3600;

impl SigningRequests {
    /// Gives an approved request its certificate, or says why it gets none.
    pub(super) async fn sign(&self, key: &str, request: &Value, now_s: i64) -> Result<Done, Failure> {
        if has(request, "Denied") || has(request, "Failed") || has_certificate(request) {
            return Ok(Done::Settled);
        }
        let signer = request["spec"]["signerName"].as_str().unwrap_or("");
        let asked = resources::signing_request(request);
        let verdict = match &asked {
            Err(fault) => Some(Err((*fault).to_owned())),
            Ok(asked) => judged(signer, asked, &usages(request)),
        };
        // Somebody else's.
        let Some(verdict) = verdict else {
            return Ok(Done::Settled);
        };
        let verdict = verdict.and_then(|()| wanted(request, asked?));
        let signed = match verdict {
            Ok((asked, usages)) => Ok(self.signed(request, &asked, usages, now_s)?),
            Err(why) => Err(why),
        };
        let uid = &request["metadata"]["uid"];
        let edit = |old: &Value| {
            if old["metadata"]["uid"] != *uid || has(old, "Failed") || has_certificate(old) {
                return None;
            }
            Some(match &signed {
                Ok(certificate) => {
                    let mut new = old.clone();
                    new["status"]["certificate"] = certificate.as_str().into();
                    new
                }
                Err(why) => {
                    let condition = json!({
                        "type": "Failed",
                        "status": "True",
                        "reason": "SignerValidationFailure",
                        "message": why.as_str(),
                    });
                    with_condition(old, condition)
                }
            })
        };
        self.change(key, "status", edit).await?;
        Ok(Done::Settled)
    }

    /// The certificate that is asked for, base64 of PEM.
    fn signed(&self, request: &Value, asked: &SigningRequest, usages: Usages, now_s: i64) -> Result<String, Failure> {
        let (begins_s, ends_s) = times(request["spec"]["expirationSeconds"].as_i64(), now_s);
        let wanted = Wanted {
            subject: &asked.subject,
            public_key: &asked.public_key,
            names: &asked.names,
            usages,
            begins_s,
            ends_s,
        };
        let der = self.authority.sign(&wanted).map_err(Status::internal)?;
        Ok(base64::engine::general_purpose::STANDARD.encode(pem("CERTIFICATE", &der)))
    }
}

/// What is asked for, if it can be given.
fn wanted(request: &Value, asked: SigningRequest) -> Result<(SigningRequest, Usages), String> {
    if let Some(why) = asked.unproven {
        return Err(format!("unable to verify certificate request signature: {why}"));
    }
    Ok((asked, Usages::named(usages(request))?))
}

/// From when to when a certificate is good for which so many seconds are asked.
fn times(asked_s: Option<i64>, now_s: i64) -> (i64, i64) {
    let lasts_s = asked_s.map_or(LASTS_S, |asked_s| asked_s.clamp(LASTS_LEAST_S, LASTS_S));
    let begins_s = now_s - BACKDATED_S;
    if lasts_s < SHORT_S {
        (begins_s, now_s + lasts_s)
    } else {
        (begins_s, begins_s + lasts_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_lasts_as_long_as_is_asked_for_within_bounds() {
        let now_s = 1_000_000_000;
        let lasts = |asked_s| {
            let (begins_s, ends_s) = times(asked_s, now_s);
            assert_eq!(begins_s, now_s - BACKDATED_S);
            ends_s - now_s
        };
        assert_eq!(lasts(None), LASTS_S - BACKDATED_S);
        assert_eq!(lasts(Some(i64::MAX)), LASTS_S - BACKDATED_S);
        assert_eq!(lasts(Some(1)), 600);
        assert_eq!(lasts(Some(3600)), 3600);
        assert_eq!(lasts(Some(24 * 3600)), 24 * 3600 - BACKDATED_S);
    }
}
