//! Custom resources whose versions a webhook converts into one another (`spec.conversion.strategy: Webhook`).
//!
//! Reads send stored bytes, each object in the version that it was stored in; where that is not the version that was asked for,
//! what was read is taken apart here on its way out, and its objects are converted in batches. Requests for the stored version pay
//! nothing as long as all objects are stored in it.
//!
//! Rules: <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/>.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header;
use http_body::Frame;
use http_body_util::BodyExt as _;
use tokio::sync::mpsc;

use super::Api;
use super::body::{Body, BodyError, Response};
use super::negotiate::{Format, Shape};
use super::request::{RequestInfo, Verb};
use super::status::Status;
use super::webhooks::resolve;
use crate::admission::webhooks::Client;
use crate::resources::Resource;
use crate::tree::{Value, json};

/// For one call; kube-apiserver's number.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Most objects that are converted by one call.
const BATCH_MAX: usize = 500;
/// Size of a list that is converted, bytes. Larger ones are to be read in pages.
const LIST_MAX: usize = 256 * 1024 * 1024;
/// Size of an event of a watch, bytes: more than an object may have.
const EVENT_MAX: usize = 8 * 1024 * 1024;

/// Whether objects of the resource may have to be converted by a webhook to be shown, or to be stored.
pub(super) fn is_needed(resource: &Resource) -> bool {
    let custom = resource.custom.as_ref();
    custom.is_some_and(|custom| custom.conversion.is_some() && (custom.stored.is_some() || custom.mixed))
}

/// One object in the version of `resource`.
///
/// # Errors
/// 500 when the webhook cannot be asked, or gives something else.
pub(super) async fn one(api: &Api, resource: &Resource, object: Value) -> Result<Value, Status> {
    let mut converted = all(api, resource, vec![object]).await?;
    converted
        .pop()
        .ok_or_else(|| Status::internal("a conversion gave nothing"))
}

/// Objects in the version of `resource`, in their order. Those that are in it already are not sent.
///
/// # Errors
/// 500 when the webhook cannot be asked, or gives something else.
pub(super) async fn all(api: &Api, resource: &Resource, mut objects: Vec<Value>) -> Result<Vec<Value>, Status> {
    let Some(config) = resource.custom.as_ref().and_then(|custom| custom.conversion.as_ref()) else {
        return Ok(objects);
    };
    let wanted = resource.api_version();
    let places: Vec<usize> = (0..objects.len())
        .filter(|at| objects[*at]["apiVersion"] != *wanted)
        .collect();
    for batch in places.chunks(BATCH_MAX) {
        let sent: Vec<Value> = batch.iter().map(|at| objects[*at].clone()).collect();
        let of = kind_of(&sent[0]);
        let told = |why: String| Status::plain(500, format!("conversion webhook for {of} {why}"));
        let converted = ask(api, config, &wanted, &sent)
            .await
            .map_err(|why| told(format!("failed: {why}")))?;
        if converted.len() != sent.len() {
            let (got, expected) = (converted.len(), sent.len());
            return Err(told(format!("returned {got} objects, expected {expected}")));
        }
        for (place, (number, (before, mut after))) in batch.iter().zip(sent.iter().zip(converted).enumerate()) {
            check(before, &after, &wanted)
                .map_err(|why| told(format!("returned invalid converted object at index {number}: {why}")))?;
            keep_metadata(before, &mut after)
                .map_err(|why| told(format!("returned invalid metadata in object at index {number}: {why}")))?;
            objects[*place] = after;
        }
    }
    Ok(objects)
}

/// `example.com/v1, Kind=Widget`
fn kind_of(object: &Value) -> String {
    let text = |field: &str| object[field].as_str().unwrap_or("");
    format!("{}, Kind={}", text("apiVersion"), text("kind"))
}

/// Asks the webhook for a batch.
async fn ask(api: &Api, config: &Value, wanted: &str, objects: &[Value]) -> Result<Vec<Value>, String> {
    let uid = uuid::Uuid::new_v4().to_string();
    let review = json!({
        "kind": "ConversionReview",
        "apiVersion": "apiextensions.k8s.io/v1",
        "request": {"uid": uid.as_str(), "desiredAPIVersion": wanted, "objects": objects.to_vec()},
    });
    let post = {
        let view = api.reader.store.view();
        resolve(api, &view, &Client::of(&config["clientConfig"]), TIMEOUT)?
    };
    let answer = post.send(review.to_string().into_bytes(), TIMEOUT).await?;
    let mut review: Value = serde_json::from_slice(&answer)
        .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?;
    if kind_of(&review) != "apiextensions.k8s.io/v1, Kind=ConversionReview" {
        let found = kind_of(&review);
        return Err(format!(
            "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {found}"
        ));
    }
    let response = &mut review["response"];
    if response.is_null() {
        return Err("no response provided".into());
    }
    if response["uid"] != *uid {
        let got = response["uid"].as_str().unwrap_or("");
        return Err(format!("expected response.uid={uid:?}, got {got:?}"));
    }
    let result = &response["result"];
    if result["status"] != "Success" {
        return Err(match result["message"].as_str().unwrap_or("") {
            "" => format!(
                "response.result.status was '{}', not 'Success'",
                result["status"].as_str().unwrap_or("")
            ),
            message => message.to_owned(),
        });
    }
    Ok(response["convertedObjects"]
        .as_array()
        .map_or(Vec::new(), |list| list.to_vec()))
}

/// Whether an object is what another became.
fn check(before: &Value, after: &Value, wanted: &str) -> Result<(), String> {
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or("").to_owned();
    if after["apiVersion"] != wanted {
        return Err(format!(
            "invalid groupVersion (expected {wanted}, received {})",
            text(after, "apiVersion")
        ));
    }
    if before["kind"] != after["kind"] {
        return Err(format!(
            "invalid kind (expected {}, received {})",
            text(before, "kind"),
            text(after, "kind")
        ));
    }
    for field in ["name", "namespace", "uid"] {
        let (one, other) = (text(&before["metadata"], field), text(&after["metadata"], field));
        if one != other {
            let field = if field == "uid" { "UID" } else { field };
            return Err(format!("must have the same {field}: {one} != {other}"));
        }
    }
    Ok(())
}

/// A conversion may change labels and annotations; the rest of metadata is as it was.
fn keep_metadata(before: &Value, after: &mut Value) -> Result<(), String> {
    let mut metadata = before["metadata"].clone();
    if !after["metadata"].is_object() {
        return Err("missing metadata in converted object".into());
    }
    for field in ["labels", "annotations"] {
        let changed = &after["metadata"][field];
        let is_map = changed
            .as_object()
            .is_none_or(|map| map.iter().all(|(_, value)| value.is_string()));
        if !(changed.is_null() || changed.is_object()) || !is_map {
            return Err(format!("metadata.{field}: must be a map of strings"));
        }
        let Some(fields) = metadata.as_object_mut() else {
            continue;
        };
        if changed.is_null() {
            fields.remove(field);
        } else {
            fields.insert(field, changed.clone());
        }
    }
    after["metadata"] = metadata;
    Ok(())
}

/// What has to be read for a request whose answer is converted.
pub(super) fn read_as(info: &RequestInfo) -> RequestInfo {
    let mut info = info.clone();
    info.answer.gzip = false;
    info
}

/// An answer with its objects in the version that was asked for. Tables and metadata are made of what is stored.
///
/// # Errors
/// 500 when the webhook cannot be asked, or gives something else.
pub(super) async fn answer(
    api: &std::sync::Arc<Api>,
    info: &RequestInfo,
    response: Response,
) -> Result<Response, Status> {
    let is_json = info.answer.format == Format::Json && info.answer.shape == Shape::Object;
    if !is_json || !response.status().is_success() || info.subresource_name() == "scale" {
        return Ok(response);
    }
    let (mut head, body) = response.into_parts();
    if info.verb == Verb::Watch {
        let events = events(api.clone(), info.clone(), body);
        return Ok(Response::from_parts(head, events));
    }
    let mut bytes = BytesMut::new();
    let mut body = body;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(Status::internal)?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > LIST_MAX {
            let why = format!("lists that are converted have at most {LIST_MAX} bytes; read it in pages");
            return Err(Status::too_large(why));
        }
        bytes.extend_from_slice(&data);
    }
    let mut value: Value = serde_json::from_slice(&bytes).map_err(Status::internal)?;
    drop(bytes);
    if value["kind"] == "Status" && value["apiVersion"] == "v1" {
        head.headers.remove(header::CONTENT_LENGTH);
        return Ok(Response::from_parts(head, text(&value).into()));
    }
    let value = if value["items"].is_array() && matches!(info.verb, Verb::List | Verb::DeleteCollection) {
        let items = value["items"].as_array().map_or(Vec::new(), |items| items.to_vec());
        value["items"] = all(api, &info.resource, items).await?.into();
        value["apiVersion"] = info.resource.api_version().into();
        value
    } else {
        one(api, &info.resource, value).await?
    };
    head.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(head, text(&value).into()))
}

fn text(value: &Value) -> Vec<u8> {
    let mut text = Vec::new();
    value.write(&mut text);
    text.push(b'\n');
    text
}

/// Events with their objects converted: as many at once as are at hand. One frame waits for the client, no more.
fn events(api: std::sync::Arc<Api>, info: RequestInfo, body: Body) -> Body {
    let (sender, receiver) = mpsc::channel::<Result<Bytes, BodyError>>(1);
    tokio::spawn(async move {
        let ended = tokio::select! {
            ended = convert_events(&api, &info, body, &sender) => ended,
            () = sender.closed() => return,
        };
        if let Err(error) = ended {
            let _ = sender.send(Err(error)).await;
        }
    });
    Body::stream(Events(receiver))
}

/// Frames as they come.
struct Events(mpsc::Receiver<Result<Bytes, BodyError>>);

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.0
            .poll_recv(context)
            .map(|part| part.map(|part| part.map(Frame::data)))
    }
}

async fn convert_events(
    api: &Api,
    info: &RequestInfo,
    mut body: Body,
    sender: &mpsc::Sender<Result<Bytes, BodyError>>,
) -> Result<(), BodyError> {
    let mut waiting = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        waiting.extend_from_slice(&data);
        let Some(end) = waiting.iter().rposition(|byte| *byte == b'\n') else {
            if waiting.len() > EVENT_MAX {
                return Err(BodyError::Other("an event is too large to be converted".into()));
            }
            continue;
        };
        let lines = waiting.split_to(end + 1);
        let mut parsed = Vec::new();
        for line in lines[..].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Value = serde_json::from_slice(line).map_err(|error| BodyError::Other(error.to_string()))?;
            parsed.push(event);
        }
        let is_object = |event: &Value| !matches!(event["type"].as_str(), Some("BOOKMARK" | "ERROR"));
        let objects = parsed.iter().filter(|event| is_object(event));
        let objects = objects.map(|event| event["object"].clone()).collect();
        let mut out = Vec::with_capacity(lines.len());
        let mut failed = None;
        match all(api, &info.resource, objects).await {
            Ok(converted) => {
                let mut converted = converted.into_iter();
                for mut event in parsed {
                    if is_object(&event) {
                        event["object"] = converted.next().unwrap_or_default();
                    }
                    out.extend_from_slice(&text(&event));
                }
            }
            Err(status) => {
                out.extend_from_slice(br#"{"type":"ERROR","object":"#);
                out.extend_from_slice(status.to_json().trim_ascii_end());
                out.extend_from_slice(b"}\n");
                failed = Some(());
            }
        }
        if sender.send(Ok(out.into())).await.is_err() || failed.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_converted_object_is_the_same_but_for_what_versions_differ_in() {
        let before =
            json!({"apiVersion": "e.com/v1", "kind": "W", "metadata": {"name": "a", "uid": "u", "labels": {"x": "y"}}});
        let with = |change: fn(&mut Value)| {
            let mut after = before.clone();
            after["apiVersion"] = "e.com/v2".into();
            change(&mut after);
            check(&before, &after, "e.com/v2").and_then(|()| {
                keep_metadata(&before, &mut after)?;
                Ok(after["metadata"].clone())
            })
        };
        assert_eq!(with(|_| {}), Ok(before["metadata"].clone()));
        assert_eq!(
            with(|after| after["metadata"]["finalizers"] = json!(["f"])),
            Ok(before["metadata"].clone())
        );
        assert_eq!(
            with(|after| after["metadata"]["labels"] = json!({"z": "1"})).map(|it| it["labels"].clone()),
            Ok(json!({"z": "1"}))
        );
        for (change, why) in [
            (
                (|after| after["apiVersion"] = "e.com/v3".into()) as fn(&mut Value),
                "invalid groupVersion (expected e.com/v2, received e.com/v3)",
            ),
            (
                |after| after["kind"] = "X".into(),
                "invalid kind (expected W, received X)",
            ),
            (
                |after| after["metadata"]["name"] = "b".into(),
                "must have the same name: a != b",
            ),
            (
                |after| after["metadata"]["uid"] = "v".into(),
                "must have the same UID: u != v",
            ),
            (
                |after| after["metadata"]["labels"] = json!({"z": 1}),
                "metadata.labels: must be a map of strings",
            ),
        ] {
            assert_eq!(with(change), Err(why.to_owned()));
        }
    }
}
