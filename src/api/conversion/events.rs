//! Events of a watch with their objects converted.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use http_body_util::BodyExt as _;
use tokio::sync::mpsc;

use super::selected::Selected;
use super::shown::Shown;
use crate::api::Api;
use crate::api::body::{Body, BodyError};
use crate::api::request::RequestInfo;
use crate::api::status::Status;
use crate::resources::Resource;
use crate::tree::Value;

/// Size of an event of a watch, bytes: more than an object may have.
const EVENT_MAX: usize = 8 * 1024 * 1024;

/// Events with their objects converted: as many at once as are at hand. One frame waits for the client, no more.
pub(super) fn convert(api: Arc<Api>, info: RequestInfo, shown: Shown, selected: Selected, body: Body) -> Body {
    let (sender, receiver) = mpsc::channel::<Result<Bytes, BodyError>>(1);
    tokio::spawn(async move {
        let mut telling = Telling {
            api: &api,
            resource: &info.resource,
            shown,
            selected,
        };
        let ended = tokio::select! {
            ended = telling.run(body, &sender) => ended,
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

struct Telling<'a> {
    api: &'a Api,
    resource: &'a Resource,
    shown: Shown,
    selected: Selected,
}

/// What happened to an object, before it is converted.
struct Change {
    word: String,
    object: Value,
    /// What it was before, where the selection asks.
    previous: Option<Value>,
}

impl Telling<'_> {
    async fn run(&mut self, mut body: Body, sender: &mpsc::Sender<Result<Bytes, BodyError>>) -> Result<(), BodyError> {
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
            let mut changes = Vec::new();
            for line in lines[..].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                changes.push(self.read(line)?);
            }
            let mut out = Vec::with_capacity(lines.len());
            let told = self.tell(changes, &mut out).await;
            if let Err(status) = &told {
                write(&mut out, "ERROR", |out| {
                    out.extend_from_slice(status.to_json().trim_ascii_end());
                });
            }
            if !out.is_empty() && sender.send(Ok(out.into())).await.is_err() || told.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn read(&self, line: &[u8]) -> Result<Change, BodyError> {
        let mut event: Value = serde_json::from_slice(line).map_err(|error| BodyError::Other(error.to_string()))?;
        let object = event["object"].take();
        let word = event["type"].as_str().unwrap_or("").to_owned();
        let previous = if word == "MODIFIED" && !self.selected.is_everything() {
            self.before(&object)
        } else {
            None
        };
        Ok(Change { word, object, previous })
    }

    /// The object as it was before the change that made it what it is; `None` where nobody knows any more.
    fn before(&self, object: &Value) -> Option<Value> {
        let text = |field: &str| object["metadata"][field].as_str();
        let revision: u64 = text("resourceVersion")?.parse().ok()?;
        let store = &self.api.reader.store;
        let view = store.view_at(&self.resource.storage, revision.checked_sub(1)?).ok()?;
        let key = self.resource.key(text("namespace"), text("name")?);
        let found = view.get(&self.resource.storage, &key).ok()??;
        serde_json::from_slice(found.json().ok()?).ok()
    }

    async fn tell(&mut self, changes: Vec<Change>, out: &mut Vec<u8>) -> Result<(), Status> {
        let is_object = |change: &Change| !matches!(&*change.word, "BOOKMARK" | "ERROR");
        let mut objects = Vec::with_capacity(changes.len());
        for change in changes.iter().filter(|change| is_object(change)) {
            objects.push(change.object.clone());
            objects.extend(change.previous.clone());
        }
        let mut converted = super::all(self.api, self.resource, objects).await?.into_iter();
        for change in changes {
            if !is_object(&change) {
                let shown = &mut self.shown;
                let object = &change.object;
                write(out, &change.word, |out| match &*change.word {
                    "BOOKMARK" => shown.of_bookmark(object, out),
                    _ => object.write(out),
                });
                continue;
            }
            let object = converted.next().unwrap_or_default();
            let previous = change.previous.and_then(|_| converted.next());
            let is = self.selected.selects(self.resource, &object);
            let (word, object) = match &*change.word {
                "MODIFIED" if !self.selected.is_everything() => {
                    // Of what nobody knows any more, the client may have heard.
                    let was = previous
                        .as_ref()
                        .is_none_or(|previous| self.selected.selects(self.resource, previous));
                    match (was, is) {
                        (false, false) => continue,
                        (false, true) => ("ADDED", object),
                        (true, true) => ("MODIFIED", object),
                        (true, false) => ("DELETED", Self::left(object, previous)),
                    }
                }
                _ if !is => continue,
                word => (word, object),
            };
            let shown = &mut self.shown;
            write(out, word, |out| shown.of_event(&object, out));
        }
        Ok(())
    }

    /// The last state of an object before it left the selection, under the revision of the change.
    fn left(now: Value, previous: Option<Value>) -> Value {
        let Some(mut last) = previous else { return now };
        last["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"].clone();
        last
    }
}

/// An event.
fn write(out: &mut Vec<u8>, word: &str, object: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(word.as_bytes());
    out.extend_from_slice(br#"","object":"#);
    object(out);
    out.extend_from_slice(b"}\n");
}
