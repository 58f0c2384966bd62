//! `serviceaccounts/token`: a token for a service account.

use bytes::Bytes;
use http::StatusCode;

use super::admission::Chain;
use super::manager::Manager;
use super::options::WriteOptions;
use super::{create, namespaces, object, reply};
use crate::api::Api;
use crate::api::body::Response;
use crate::api::request::RequestInfo;
use crate::api::status::{Cause, Status};
use crate::api::unstored;
use crate::auth::{Bound, Claims, Issuer, Named};
use crate::patch::managed;
use crate::schema::{Schema, Syntax};
use crate::store::View;
use crate::tree::{Value, json};

/// How long a token lives that does not say, seconds.
const LIFE_S: i64 = 3600;
const LIFE_S_MIN: i64 = 10 * 60;
const LIFE_S_MAX: i64 = 1 << 32;
/// The life that volumes of Pods ask for when nobody said how long (admission puts it there), seconds: an hour and a bit, so
/// that it is told from what somebody chose.
const LIFE_S_EXTENDED: i64 = 3607;
/// What such a token gets instead, seconds: a year.
const EXTENSION_S: i64 = 365 * 24 * 3600;

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
    let mut life_s = request["spec"]["expirationSeconds"].as_i64().unwrap_or(LIFE_S);
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
    let issuer = api.authenticator.issuer();
    let issuer = issuer.ok_or_else(|| Status::not_implemented("serviceaccounts/token"))?;
    let mut warnings = Vec::new();
    if let Some(max) = issuer.life_s_max().filter(|max| life_s > *max) {
        warnings.push(format!(
            "requested expiration of {life_s} seconds shortened to {max} seconds"
        ));
        life_s = max;
    }
    let now_s = object::now_s();
    let bound = &request["spec"]["boundObjectRef"];
    let mut claims = Claims {
        aud: audiences(&request["spec"]["audiences"], issuer),
        exp: now_s + life_s,
        iat: now_s,
        nbf: now_s,
        jti: uuid::Uuid::new_v4().to_string(),
        sub: format!("system:serviceaccount:{}", info.key().replace('/', ":")),
        kubernetes: Bound {
            namespace: info.namespace.clone().unwrap_or_default(),
            serviceaccount: Named {
                name: account.to_owned(),
                uid: present.clone(),
            },
            ..Bound::default()
        },
        ..Claims::default()
    };
    if bound.is_object() {
        bind(&view, info, account, bound, &mut claims.kubernetes)?;
    }
    // Clients of old read their token once: it lives on, and is told of when it is used late.
    let is_for_us = claims.aud.iter().all(|audience| issuer.audiences().contains(audience));
    if issuer.extends() && claims.kubernetes.pod.is_some() && life_s == LIFE_S_EXTENDED && is_for_us {
        claims.kubernetes.warnafter = claims.exp;
        claims.exp = now_s + issuer.life_s_max().map_or(EXTENSION_S, |max| max.min(EXTENSION_S));
    }
    let spec = &mut request["spec"];
    spec["expirationSeconds"] = life_s.into();
    let metadata = object::metadata_mut(&mut request);
    metadata.insert("name", account.into());
    if let Some(namespace) = &info.namespace {
        metadata.insert("namespace", namespace.as_str().into());
    }
    metadata.insert("uid", present.as_str().into());
    metadata.insert("creationTimestamp", object::time(now_s).into());
    note(info, &mut request);
    let spec = &mut request["spec"];
    if spec["boundObjectRef"].is_null() {
        spec["boundObjectRef"] = Value::Null;
    }
    spec["audiences"] = claims
        .aud
        .iter()
        .map(|audience| Value::from(audience.as_str()))
        .collect::<Vec<_>>()
        .into();
    let token = issuer.sign(claims).map_err(Status::internal)?;
    request["status"] = json!({
        "token": token,
        "expirationTimestamp": object::time(now_s + life_s),
    });
    Ok(reply::with_warnings(
        unstored::whole(StatusCode::CREATED, &request),
        &warnings,
    ))
}

/// For whom the token is to be: whom the request names, or this server.
fn audiences(asked: &Value, issuer: &Issuer) -> Vec<String> {
    let asked = asked.as_array().map(|texts| texts.iter().filter_map(Value::as_str));
    let asked: Vec<String> = asked.into_iter().flatten().map(str::to_owned).collect();
    if asked.is_empty() {
        issuer.audiences().to_vec()
    } else {
        asked
    }
}

/// Notes who asked for what. That a reference is there is nobody's: the field always is.
fn note(info: &RequestInfo, request: &mut Value) {
    let version = "authentication.k8s.io/v1";
    let Some(schema) = Schema::of("authentication.k8s.io", "v1", "TokenRequest") else {
        return;
    };
    let reference = request["spec"]["boundObjectRef"].clone();
    Manager::of(info).with_request(version, |noted| managed::update(schema, None, request, noted));
    if reference.is_object() {
        let mut text = Vec::new();
        request["metadata"]["managedFields"].write(&mut text);
        let text = String::from_utf8_lossy(&text).replace(r#""f:boundObjectRef":{".":{},"#, r#""f:boundObjectRef":{"#);
        if let Ok(noted) = serde_json::from_str::<Value>(&text) {
            request["metadata"]["managedFields"] = noted;
        }
    }
}

fn invalid(name: &str, field: &str, shown: &str, text: &str) -> Status {
    let cause = Cause {
        reason: "FieldValueInvalid".into(),
        message: format!("Invalid value: {shown}: {text}"),
        field: field.into(),
    };
    Status::invalid("authentication.k8s.io", "TokenRequest", name, vec![cause])
}

/// Binds a token to an object: it must be there, and be the one that is meant.
fn bind(view: &View, info: &RequestInfo, account: &str, bound: &Value, to: &mut Bound) -> Result<(), Status> {
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
    let found = view.get(plural, &key).map_err(Status::internal)?;
    let found = found.ok_or_else(|| Status::not_found("", plural, name))?;
    let uid = object::uid_of(&found)?;
    let named = |uid: String| {
        Some(Named {
            name: name.to_owned(),
            uid,
        })
    };
    if plural == "pods" {
        let pod: Value = serde_json::from_slice(found.json().map_err(Status::damaged)?).map_err(Status::internal)?;
        if pod["spec"]["serviceAccountName"].as_str().unwrap_or("") != account {
            return Err(Status::bad_request(format!(
                "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
                object::quoted(account)
            )));
        }
        // Where the Pod runs is told too; a node that is not there yet has no UID.
        if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
            let found = view.get("nodes", node).map_err(Status::internal)?;
            let uid = found.map(|node| object::uid_of(&node)).transpose()?;
            to.node = Some(Named {
                name: node.to_owned(),
                uid: uid.unwrap_or_default(),
            });
        }
    }
    let asked = text("uid");
    if !asked.is_empty() && asked != uid {
        let why = format!(
            "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(Status::conflict("", kind, name, &why));
    }
    match plural {
        "pods" => to.pod = named(uid),
        "secrets" => to.secret = named(uid),
        _ => to.node = named(uid),
    }
    Ok(())
}
