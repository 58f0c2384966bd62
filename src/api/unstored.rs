//! Answers with an object that is not stored - a dry run, the last state of what is gone, a Scale - in the form that the client
//! accepts.

use http::StatusCode;

use super::body::Response;
use super::negotiate::MetaVersion;
use super::read::{Include, What, column_definitions, table_head};
use super::request::RequestInfo;
use super::router::json;
use super::status::Status;
use crate::resources::{Cell, Column, table};
use crate::tree::{Value, write_text};

/// Answers with `object`, whose row has these cells.
///
/// # Errors
/// 400 and 406 for the form that was asked for.
pub(super) fn answer(
    info: &RequestInfo,
    code: StatusCode,
    columns: &[Column],
    cells: &[Cell],
    object: &Value,
) -> Result<Response, Status> {
    match What::of_one(info)? {
        What::Item | What::Whole => Ok(whole(code, object)),
        What::Partial(version) => {
            let mut body = Vec::new();
            write_partial(version, object, &mut body);
            body.push(b'\n');
            Ok(json(code, body))
        }
        What::Row(version, include) => {
            let version_text = object["metadata"]["resourceVersion"].as_str().unwrap_or("");
            let mut head = table_head(version);
            head.push_str(r#","metadata":{"resourceVersion":"#);
            let mut body = head.into_bytes();
            write_text(version_text, &mut body);
            let mut head = "}".to_owned();
            column_definitions(columns, &mut head);
            head.push_str(r#","rows":["#);
            body.extend_from_slice(head.as_bytes());
            let now_s = jiff::Timestamp::now().as_second();
            table::write_cells(cells, now_s, version_text.parse().unwrap_or(0), &mut body);
            match include {
                Include::None => body.extend_from_slice(b"null"),
                Include::Metadata => write_partial(version, object, &mut body),
                Include::Object => object.write(&mut body),
            }
            body.extend_from_slice(b"}]}\n");
            Ok(json(code, body))
        }
    }
}

/// Answers with all of `object`.
pub(super) fn whole(code: StatusCode, object: &Value) -> Response {
    let mut body = Vec::new();
    object.write(&mut body);
    body.push(b'\n');
    json(code, body)
}

fn write_partial(version: MetaVersion, object: &Value, body: &mut Vec<u8>) {
    let head = format!(
        r#"{{"kind":"PartialObjectMetadata","apiVersion":"{}","metadata":"#,
        version.api_version()
    );
    body.extend_from_slice(head.as_bytes());
    object["metadata"].write(body);
    body.push(b'}');
}
