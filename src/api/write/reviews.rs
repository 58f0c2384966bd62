//! Reviews: questions that are asked by creating an object that is never stored.

use crate::tree::{Value, json};
use bytes::Bytes;
use http::StatusCode;

use super::admission::Chain;
use super::manager::Manager;
use super::options::WriteOptions;
use super::{access_reviews, commit, create, object};
use crate::api::Api;
use crate::api::body::Response;
use crate::api::request::RequestInfo;
use crate::api::status::Status;
use crate::api::unstored;
use crate::auth::User;
use crate::resources::{self, Refusal, check_review};
use crate::schema::{FieldValidation, Syntax};

/// Answers the question in `body`.
pub(super) async fn answer(
    api: &Api,
    info: &RequestInfo,
    options: &WriteOptions,
    syntax: Syntax,
    body: &Bytes,
) -> Result<Response, Status> {
    let mut review = create::decode(info, syntax, body, FieldValidation::Ignore)?.value;
    if !review["metadata"].is_object() {
        review["metadata"] = json!({});
    }
    if let (Some(namespace), true) = (&info.namespace, review["metadata"]["namespace"].is_null()) {
        review["metadata"]["namespace"] = namespace.as_str().into();
    }
    let name = object::meta(&review, "name").to_owned();
    let chain = Chain::of_create(api, info, &name, options.dry_run);
    chain.admit(&mut review, &mut Vec::new()).await?;
    resources::canonicalize(&info.resource, &mut review);
    if &*info.resource.kind == "SelfSubjectReview" {
        object::metadata_mut(&mut review).insert("creationTimestamp", resources::time_text(object::now_s()).into());
    } else {
        Manager::of(info).note(None, &mut review);
    }
    check_review(&info.resource, &review).map_err(|refusal| match refusal {
        // A question is of no kind when it is refused.
        Refusal::Invalid(mut errors) => {
            errors.truncate(commit::ERRORS_MAX);
            Status::invalid(&info.resource.group, "", "", commit::causes(errors))
        }
        other => commit::refused(&info.resource, "", other),
    })?;
    review["status"] = match &*info.resource.kind {
        "SelfSubjectReview" => json!({"userInfo": user_info(&info.user)}),
        "TokenReview" => token(api, &review).await,
        "SelfSubjectRulesReview" => {
            let status = access_reviews::rules(api, info, &review)?;
            // Upstream tells the answer alone.
            review["spec"] = json!({});
            review["metadata"] = json!({});
            status
        }
        "SelfSubjectAccessReview" | "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            access_reviews::access(api, info, &review)
        }
        _ => return Err(Status::not_implemented(&info.resource.qualified())),
    };
    Ok(unstored::whole(StatusCode::CREATED, &review))
}

/// Whom the token of a TokenReview stands for.
async fn token(api: &Api, review: &Value) -> Value {
    let list = |value: &Value| -> Vec<String> {
        let texts = value.as_array().map(|texts| texts.iter().filter_map(Value::as_str));
        texts.into_iter().flatten().map(str::to_owned).collect()
    };
    let token = review["spec"]["token"].as_str().unwrap_or("");
    let audiences = list(&review["spec"]["audiences"]);
    match api.authenticator.review(token, &audiences).await {
        Ok(found) => json!({
            "authenticated": true,
            "user": user_info(&found.user),
            "audiences": found.audiences,
        }),
        Err(why) => json!({"user": {}, "error": why}),
    }
}

fn user_info(user: &User) -> Value {
    let mut told = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        told["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        told["extra"] = json!(user.extra);
    }
    told
}
