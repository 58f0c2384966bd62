//! Approving what kubelets ask for, if who asks may ask for it.

use std::collections::BTreeMap;

use super::SigningRequests;
use super::requests::{KUBELET_CLIENT, has, has_certificate, kubelet_client, usages};
use crate::auth::User;
use crate::auth::authorization::Asked;
use crate::controllers::failure::Failure;
use crate::controllers::queue::Done;
use crate::resources;
use crate::tree::{Value, json};

impl SigningRequests {
    /// Approves a request that nobody has judged, where it is a kubelet's. One whose asker may not ask for it comes back later: its
    /// rights may come after it.
    pub(super) async fn approve(&self, key: &str, request: &Value) -> Result<Done, Failure> {
        let is_open =
            |request: &Value| !has(request, "Denied") && !has(request, "Approved") && !has_certificate(request);
        if !is_open(request) || request["spec"]["signerName"] != KUBELET_CLIENT {
            return Ok(Done::Settled);
        }
        let Ok(asked) = resources::signing_request(request) else {
            return Ok(Done::Settled);
        };
        if kubelet_client(&asked, &usages(request)).is_err() {
            return Ok(Done::Settled);
        }
        let user = asker(&request["spec"]);
        let may = |subresource: &str| {
            let asked = Asked {
                group: "certificates.k8s.io",
                resource: "certificatesigningrequests",
                subresource,
                ..Asked::default()
            };
            self.client.allows(&user, "create", asked)
        };
        let message = if user.name == asked.common_name && may("selfnodeclient") {
            "Auto approving self kubelet client certificate after SubjectAccessReview."
        } else if may("nodeclient") {
            "Auto approving kubelet client certificate after SubjectAccessReview."
        } else {
            return Ok(Done::Again);
        };
        let uid = &request["metadata"]["uid"];
        let edit = |old: &Value| {
            if old["metadata"]["uid"] != *uid || !is_open(old) {
                return None;
            }
            let condition = json!({
                "type": "Approved",
                "status": "True",
                "reason": "AutoApproved",
                "message": message,
            });
            Some(with_condition(old, condition))
        };
        self.change(key, "approval", edit).await?;
        Ok(Done::Settled)
    }
}

/// A request with one more condition.
pub(super) fn with_condition(request: &Value, condition: Value) -> Value {
    let mut new = request.clone();
    let conditions = request["status"]["conditions"].as_array();
    let mut conditions = conditions.map_or_else(Vec::new, |list| list.to_vec());
    conditions.push(condition);
    new["status"]["conditions"] = conditions.into();
    new
}

/// Who made a request, as it was written down.
fn asker(spec: &Value) -> User {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let texts = |list: &Value| -> Vec<String> {
        let list = list.as_array().map_or(&[][..], |list| list.as_slice());
        list.iter().map(text).collect()
    };
    let extra = spec["extra"].as_object().into_iter().flat_map(|extra| extra.iter());
    User {
        name: text(&spec["username"]),
        uid: text(&spec["uid"]),
        groups: texts(&spec["groups"]),
        extra: extra
            .map(|(key, values)| (key.to_string(), texts(values)))
            .collect::<BTreeMap<_, _>>(),
    }
}
