//! `serviceaccounts/token`: a token for a service account.
//!
//! Tokens are not signed yet. What is wrong with a request is told in kube-apiserver's words; one that is right is answered
//! with 501, for a token that nobody believes would be worse than none.

use bytes::Bytes;

use super::admission::Chain;
use super::options::WriteOptions;
use super::{create, namespaces, object};
use crate::api::Api;
use crate::api::body::Response;
use crate::api::request::RequestInfo;
use crate::api::status::{Cause, Status};
use crate::schema::Syntax;
use crate::tree::Value;

/// How long a token lives that does not say, seconds.
const LIFE_S: i64 = 3600;
const LIFE_S_MIN: i64 = 10 * 60;
const LIFE_S_MAX: i64 = 1 << 32;

/// Answers the TokenRequest in `body`.
pub(super) async fn request(
    api: &Api,
    info: &RequestInfo,
    options: &WriteOptions,
    syntax: Syntax,
    body: &Bytes,
) -> Result<Response, Status> {
    let mut request = create::decode(info, syntax, body, options.validation)?.value;
    create::check_place(info, &mut request)?;
    let account = info.name.as_deref().unwrap_or("");
    let view = api.reader.store.view();
    namespaces::admit(&view, info, account)?;
    let named = object::meta(&request, "name");
    if !named.is_empty() && named != account {
        let text = "must match the service account name if specified";
        return Err(invalid(account, "metadata.name", &object::quoted(named), text));
    }
    let found = view.get("serviceaccounts", &info.key()).map_err(Status::internal)?;
    let found = found.ok_or_else(|| Status::not_found("", "serviceaccounts", account))?;
    let present = object::uid_of(&found)?;
    let asked = object::meta(&request, "uid");
    if !asked.is_empty() && asked != present {
        let why =
            format!("the UID in the token request ({asked}) does not match the UID of the service account ({present})");
        return Err(Status::conflict("authentication.k8s.io", "TokenRequest", account, &why));
    }
    let chain = Chain::of_create(api, info, account, options.dry_run);
    chain.admit(&mut request, &mut Vec::new()).await?;
    let life_s = request["spec"]["expirationSeconds"].as_i64().unwrap_or(LIFE_S);
    for (is_wrong, text) in [
        (life_s < LIFE_S_MIN, "may not specify a duration less than 10 minutes"),
        (
            life_s > LIFE_S_MAX,
            "may not specify a duration larger than 2^32 seconds",
        ),
    ] {
        if is_wrong {
            return Err(invalid("", "spec.expirationSeconds", &life_s.to_string(), text));
        }
    }
    let bound = &request["spec"]["boundObjectRef"];
    if bound.is_object() {
        check_bound(api, info, account, bound)?;
    }
    Err(Status::not_implemented("serviceaccounts/token"))
}

fn invalid(name: &str, field: &str, shown: &str, text: &str) -> Status {
    let cause = Cause {
        reason: "FieldValueInvalid".into(),
        message: format!("Invalid value: {shown}: {text}"),
        field: field.into(),
    };
    Status::invalid("authentication.k8s.io", "TokenRequest", name, vec![cause])
}

/// The object whose life bounds that of the token must be there, and be the one that is meant.
fn check_bound(api: &Api, info: &RequestInfo, account: &str, bound: &Value) -> Result<(), Status> {
    let text = |field: &str| bound[field].as_str().unwrap_or("");
    let (version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let (plural, key) = match (group, kind) {
        ("", "Pod") => ("pods", format!("{}/{name}", info.namespace.as_deref().unwrap_or(""))),
        ("", "Secret") => ("secrets", format!("{}/{name}", info.namespace.as_deref().unwrap_or(""))),
        ("", "Node") => ("nodes", name.to_owned()),
        _ => {
            let text = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Status::bad_request(text));
        }
    };
    let found = api.reader.store.view().get(plural, &key).map_err(Status::internal)?;
    let found = found.ok_or_else(|| Status::not_found("", plural, name))?;
    if plural == "pods" {
        let pod: Value = serde_json::from_slice(found.json().map_err(Status::damaged)?).map_err(Status::internal)?;
        if pod["spec"]["serviceAccountName"].as_str().unwrap_or("") != account {
            return Err(Status::bad_request(format!(
                "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
                object::quoted(account)
            )));
        }
    }
    let asked = text("uid");
    if !asked.is_empty() && asked != object::uid_of(&found)? {
        let why = format!(
            "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(Status::conflict("", kind, name, &why));
    }
    Ok(())
}
