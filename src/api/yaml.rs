//! Answers in YAML, for clients that accept nothing else: handlers make JSON, and it is turned into YAML here.

use http::{HeaderValue, header};
use http_body_util::{BodyExt as _, Limited};

use super::body::{Body, Response};
use super::status::Status;
use super::yaml_text;

/// Largest JSON body that is turned into YAML, bytes: it is held in memory whole.
const JSON_MAX: usize = 64 * 1024 * 1024;

/// The same answer in YAML. Answers that are not JSON pass as they are.
///
/// # Errors
/// 406 when the body is larger than 64 MiB, 500 when it breaks off.
pub(super) async fn answer(response: Response) -> Result<Response, Status> {
    let (mut head, body) = response.into_parts();
    if head
        .headers
        .get(header::CONTENT_TYPE)
        .is_none_or(|kind| kind != "application/json")
    {
        return Ok(Response::from_parts(head, body));
    }
    let collected = Limited::new(body, JSON_MAX).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            Status::not_acceptable("the answer is too large for application/yaml, use application/json")
        } else {
            Status::internal(error)
        }
    })?;
    let yaml = from_json(&collected.to_bytes())?;
    head.headers
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
    head.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(head, Body::from(yaml.into_bytes())))
}

/// JSON text as YAML text, keys sorted.
fn from_json(json: &[u8]) -> Result<String, Status> {
    let value: serde_json::Value = serde_json::from_slice(json).map_err(Status::internal)?;
    Ok(yaml_text::write(&value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_that_look_like_other_things_stay_strings() {
        let yaml = from_json(br#"{"b":"true","a":"1.10","n":null,"e":{},"l":[1,"x: y"],"t":"2020-01-01"}"#).unwrap();
        let back: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(back["b"], "true", "{yaml}");
        assert_eq!(back["a"], "1.10", "{yaml}");
        assert_eq!(back["l"][1], "x: y", "{yaml}");
        assert!(yaml.find("a:").unwrap() < yaml.find("b:").unwrap(), "{yaml}");
    }
}
