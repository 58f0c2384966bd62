//! Custom resources whose versions a webhook converts into one another (`spec.conversion.strategy: Webhook`).
//!
//! Reads send stored bytes, each object in the version that it was stored in; where that is not the version that was asked for,
//! what was read is taken apart here on its way out, and its objects are converted in batches; rows of Tables, metadata alone and
//! selections by fields are made of what comes out (`shown`, `selected`), those of a watch event by event (`events`). Requests for
//! the stored version pay nothing as long as all objects are stored in it.
//!
//! Rules: <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/>.

mod events;
mod selected;
mod shown;

use std::time::Duration;

use bytes::BytesMut;
use http::header;
use http_body_util::BodyExt as _;

use super::Api;
use super::body::Response;
use super::negotiate::{Format, Shape};
use super::request::{RequestInfo, Verb};
use super::status::Status;
use super::webhooks::resolve;
use crate::admission::webhooks::Client;
use crate::resources::Resource;
use crate::tree::{Value, json};
use selected::Selected;
use shown::Shown;

/// For one call; kube-apiserver's number.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Most objects that are converted by one call.
const BATCH_MAX: usize = 500;
/// Size of a list that is converted, bytes. Larger ones are to be read in pages.
const LIST_MAX: usize = 256 * 1024 * 1024;

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
pub(super) async fn all(api: &Api, resource: &Resource, objects: Vec<Value>) -> Result<Vec<Value>, Status> {
    to_version(api, resource, &resource.api_version(), objects).await
}

/// [`all`], into any version of the kind.
///
/// # Errors
/// 500 when the webhook cannot be asked, or gives something else.
pub(super) async fn to_version(
    api: &Api,
    resource: &Resource,
    wanted: &str,
    mut objects: Vec<Value>,
) -> Result<Vec<Value>, Status> {
    let Some(config) = resource.custom.as_ref().and_then(|custom| custom.conversion.as_ref()) else {
        return Ok(objects);
    };
    let places: Vec<usize> = (0..objects.len())
        .filter(|at| objects[*at]["apiVersion"] != wanted)
        .collect();
    for batch in places.chunks(BATCH_MAX) {
        let sent: Vec<Value> = batch.iter().map(|at| objects[*at].clone()).collect();
        let of = kind_of(&sent[0]);
        let told = |why: String| Status::plain(500, format!("conversion webhook for {of} {why}"));
        let converted = ask(api, config, wanted, &sent)
            .await
            .map_err(|why| told(format!("failed: {why}")))?;
        if converted.len() != sent.len() {
            let (got, expected) = (converted.len(), sent.len());
            return Err(told(format!("returned {got} objects, expected {expected}")));
        }
        for (place, (number, (before, mut after))) in batch.iter().zip(sent.iter().zip(converted).enumerate()) {
            check(before, &after, wanted)
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

/// Of the objects of a collection, which a deletion is about, those that it selects by fields of its version.
pub(super) struct Chosen(Selected);

/// What `info`, a deletion of a collection, selects by fields of its version; `listed`, the list of what is to go, is of all.
///
/// # Errors
/// 400 for a malformed selector.
pub(super) fn choose(info: &RequestInfo, listed: &mut RequestInfo) -> Result<Option<Chosen>, Status> {
    if !is_needed(&info.resource) {
        return Ok(None);
    }
    let selected = Selected::of(info, listed)?;
    Ok((!selected.is_everything()).then_some(Chosen(selected)))
}

impl Chosen {
    /// Those of the keys whose objects are selected.
    ///
    /// # Errors
    /// 500 when the webhook cannot be asked, or gives something else.
    pub(super) async fn of(&self, api: &Api, resource: &Resource, keys: Vec<String>) -> Result<Vec<String>, Status> {
        let mut chosen = Vec::new();
        for keys in keys.chunks(BATCH_MAX) {
            let view = api.reader.store.view();
            let mut found = Vec::with_capacity(keys.len());
            let mut objects = Vec::with_capacity(keys.len());
            for key in keys {
                if let Some(object) = view.get(&resource.storage, key).map_err(Status::internal)? {
                    let json = object.json().map_err(Status::damaged)?;
                    objects.push(serde_json::from_slice(json).map_err(Status::internal)?);
                    found.push(key);
                }
            }
            drop(view);
            let converted = all(api, resource, objects).await?;
            let selected = found
                .into_iter()
                .zip(&converted)
                .filter(|(_, object)| self.0.selects(resource, object));
            chosen.extend(selected.map(|(key, _)| key.clone()));
        }
        Ok(chosen)
    }
}

/// What a request whose answer is converted asks for, and how the answer is made of what is read.
pub(super) struct Converting {
    /// What has to be read: whole objects, whatever their selectable fields.
    pub(super) asked: RequestInfo,
    shown: Shown,
    selected: Selected,
}

/// The answer to `info`, which [`is_needed`].
///
/// # Errors
/// 400 and 406 for a form that cannot be made, 400 for a malformed selector.
pub(super) fn begin(info: &RequestInfo) -> Result<Converting, Status> {
    let mut asked = info.clone();
    asked.answer.gzip = false;
    let selected = Selected::of(info, &mut asked)?;
    let shown = Shown::of(info)?;
    // Frames of protobuf are not taken apart; metadata is all that they hold of custom objects.
    if !(info.verb == Verb::Watch && info.answer.format == Format::Protobuf) {
        asked.answer.format = Format::Json;
        asked.answer.shape = Shape::Object;
    }
    Ok(Converting { asked, shown, selected })
}

/// An answer with its objects in the version that was asked for, and in the form.
///
/// # Errors
/// 500 when the webhook cannot be asked, or gives something else.
pub(super) async fn answer(
    api: &std::sync::Arc<Api>,
    info: &RequestInfo,
    converting: Converting,
    response: Response,
) -> Result<Response, Status> {
    if !response.status().is_success() || info.subresource_name() == "scale" {
        return Ok(response);
    }
    let Converting {
        asked,
        mut shown,
        selected,
    } = converting;
    let (mut head, body) = response.into_parts();
    if info.verb == Verb::Watch {
        if asked.answer.format != Format::Json {
            return Ok(Response::from_parts(head, body));
        }
        let events = events::convert(api.clone(), info.clone(), shown, selected, body);
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
    head.headers.remove(header::CONTENT_LENGTH);
    if value["kind"] == "Status" && value["apiVersion"] == "v1" {
        return Ok(Response::from_parts(head, text(&value).into()));
    }
    if value["items"].is_array() && matches!(info.verb, Verb::List | Verb::DeleteCollection) {
        let items = value["items"].take();
        let items = items.as_array().map_or(Vec::new(), |items| items.to_vec());
        let mut items = all(api, &info.resource, items).await?;
        if !selected.is_everything() {
            items.retain(|item| selected.selects(&info.resource, item));
            if let Some(metadata) = value["metadata"].as_object_mut() {
                metadata.remove("remainingItemCount");
            }
        }
        value["apiVersion"] = info.resource.api_version().into();
        return Ok(Response::from_parts(head, shown.list(value, items).into()));
    }
    let value = one(api, &info.resource, value).await?;
    let made = shown.one(head.status, &value)?;
    Ok(Response::from_parts(head, made.into_body()))
}

fn text(value: &Value) -> Vec<u8> {
    let mut text = Vec::new();
    value.write(&mut text);
    text.push(b'\n');
    text
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
