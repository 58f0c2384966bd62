//! Write verbs.

use std::sync::Arc;

use hyper::body::Incoming;

use super::Api;
use super::body::Response;
use super::request::RequestInfo;
use super::status::Status;

/// Answers a request that changes something.
pub(super) async fn answer(api: &Arc<Api>, info: &RequestInfo, body: Incoming) -> Result<Response, Status> {
    let _ = (api, body);
    std::future::ready(()).await;
    Err(Status::not_implemented(info.verb.as_str()))
}
