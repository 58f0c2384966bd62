//! One object.

use http::StatusCode;

use super::Reader;
use super::chunks::Chunks;
use super::form::{Form, What, now_s};
use super::{answer, state, table};
use crate::api::body::Response;
use crate::api::request::RequestInfo;
use crate::api::status::Status;
use crate::store::Object;

/// Answers a get of an object (or of its `status`, which is the same object).
///
/// # Errors
/// 404 when there is none, 504 when `resourceVersion` lies in the future, 400 and 406 for options and forms.
pub async fn get(reader: &Reader, info: &RequestInfo) -> Result<Response, Status> {
    let version = state::version(&info.query.get("resourceVersion").unwrap_or_default())?;
    let form = Form::of_one(info)?;
    let view = state::not_older_than(reader, version).await?;
    match view.get(&info.resource.storage, &info.key()) {
        Ok(Some(object)) => one(&form, StatusCode::OK, &object),
        Ok(None) => {
            let name = info.name.as_deref().unwrap_or_default();
            Err(Status::not_found(&info.resource.group, &info.resource.plural, name))
        }
        Err(damaged) => Err(Status::damaged(damaged)),
    }
}

/// An answer that carries one object in the form that the client accepts: of get, and of writes.
///
/// # Errors
/// 400 and 406 for the form; 500 when stored bytes are damaged.
pub fn object_answer(info: &RequestInfo, code: StatusCode, object: &Object) -> Result<Response, Status> {
    one(&Form::of_one(info)?, code, object)
}

fn one(form: &Form, code: StatusCode, object: &Object) -> Result<Response, Status> {
    let mut out = Chunks::default();
    let written = match form.what {
        What::Row(version, _) => {
            let mut head = table::head(version);
            head.push_str(r#","metadata":{"resourceVersion":""#);
            head.push_str(flatkube_format::sidecar::digits(object.revision()).as_str());
            head.push_str("\"}");
            table::column_definitions(&form.resource.columns, &mut head);
            head.push_str(r#","rows":["#);
            out.copy(head.as_bytes());
            form.write(object, now_s(), &mut out).map(|()| out.copy(b"]}\n"))
        }
        _ => form.write(object, 0, &mut out).map(|()| out.copy(b"\n")),
    };
    written.map_err(Status::internal)?;
    Ok(answer(code, out.into_body()))
}
