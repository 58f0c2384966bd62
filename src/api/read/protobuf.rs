//! Lists and events in `application/vnd.kubernetes.protobuf`: stored JSON is told in it while it is sent, an object at a time.
//!
//! The length of a list stands before it. A list that fits into the first frame is made at once; of a longer one the rest
//! is told twice, first to learn how long it will be, then to be sent. Nothing is kept of the first time, and other tasks
//! get their turn in between.

use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flatkube_format::sidecar::{digit_count, digits};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response as HttpResponse, StatusCode};
use http_body::Frame;

use super::answer;
use super::chunks::Chunks;
use super::form::{Form, What};
use super::list::{Page, Source};
use super::notice::{Begun, overstayed};
use crate::api::body::{Body, BodyError, Response};
use crate::api::converted;
use crate::api::protobuf::MEDIA_TYPE;
use crate::api::status::Status;
use crate::schema::{EncodeError, Schema, append_message, json_to_protobuf, metadata_alone, wire};
use crate::store::{Object, Run};

/// Type of a stream of events.
const EVENTS_TYPE: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch");
/// The schema of metadata.
const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
/// From so many bytes of items on a list is long.
const KEPT_LEN_MIN: usize = 48 * 1024;
/// Bytes of JSON that are measured before other tasks get their turn.
const MEASURED_PER_TURN: usize = 512 * 1024;
/// Objects that are told at one go, unless they are large.
const PART_LEN: usize = 8;
/// From so many bytes on an object is large.
const LARGE_OBJECT: usize = 16 * 1024;

impl From<EncodeError> for BodyError {
    fn from(error: EncodeError) -> Self {
        BodyError::Other(error.to_string())
    }
}

/// What the messages of one answer are made by.
pub(super) struct Messages {
    api_version: String,
    kind: String,
    schema: Schema<'static>,
    metadata: Schema<'static>,
}

impl Messages {
    /// Those of objects in that form; `None` where there are none: Tables, and kinds that are not built in.
    pub(super) fn of(form: &Form) -> Option<Self> {
        let resource = &form.resource;
        let (api_version, kind, schema) = match form.what {
            What::Row(..) => return None,
            What::Partial(version) => (
                version.api_version().to_owned(),
                "PartialObjectMetadata",
                metadata_alone()?,
            ),
            What::Item | What::Whole => {
                if resource.custom.is_some() {
                    return None;
                }
                let schema = Schema::of(&resource.group, &resource.version, &resource.kind)?;
                (resource.api_version(), &*resource.kind, schema)
            }
        };
        Some(Self {
            api_version,
            kind: kind.to_owned(),
            schema,
            metadata: Schema::named(METADATA)?,
        })
    }

    /// Appends the message of an object.
    fn append(&self, form: &Form, object: &Object, revision: u64, out: &mut Vec<u8>) -> Result<(), BodyError> {
        if let What::Partial(_) = form.what {
            let start = wire::begin(1, out);
            append_message(&metadata(object, revision)?, self.metadata, out)?;
            wire::end(start, out);
        } else {
            append_message(&json(form, object, revision)?, self.schema, out)?;
        }
        Ok(())
    }

    /// Appends the event of an object.
    pub(super) fn append_event(
        &self,
        word: &str,
        form: &Form,
        object: &Object,
        revision: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), BodyError> {
        event(word, out, |out| {
            let start = wire::open_envelope(&self.api_version, &self.kind, out);
            self.append(form, object, revision, out)?;
            wire::close_envelope(start, out);
            Ok(())
        })
    }
}

/// Appends the event of something that is at hand in JSON: a bookmark, or why the stream ends.
pub(super) fn append_event_of(word: &str, json: &[u8], out: &mut Vec<u8>) -> Result<(), BodyError> {
    event(word, out, |out| {
        out.extend_from_slice(&json_to_protobuf(json)?);
        Ok(())
    })
}

/// A frame: its length in four bytes, then `{type = 1, object = {raw = 1}}`, where `raw` is a whole body.
fn event(
    word: &str,
    out: &mut Vec<u8>,
    object: impl FnOnce(&mut Vec<u8>) -> Result<(), BodyError>,
) -> Result<(), BodyError> {
    let length = out.len();
    out.extend_from_slice(&[0; 4]);
    let start = out.len();
    wire::text(1, word, out);
    let extension = wire::begin(2, out);
    let raw = wire::begin(1, out);
    object(out)?;
    wire::end(raw, out);
    wire::end(extension, out);
    let len = u32::try_from(out.len() - start).map_err(|_| BodyError::Other("an event is too large".into()))?;
    out[length..start].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

/// The JSON of an object in the version that was asked for, under that revision.
fn json<'a>(form: &Form, object: &'a Object, revision: u64) -> Result<Cow<'a, [u8]>, BodyError> {
    if revision == object.revision() && form.conversion.is_none() {
        return Ok(Cow::Borrowed(object.json()?));
    }
    let (before, behind) = object.json_around_revision()?;
    let stored = [before, digits(revision).as_bytes(), behind].concat();
    Ok(Cow::Owned(match &form.conversion {
        Some(conversion) => converted::convert(conversion, &stored)?,
        None => stored,
    }))
}

/// The JSON of an object's metadata, under that revision.
fn metadata(object: &Object, revision: u64) -> Result<Cow<'_, [u8]>, BodyError> {
    let sidecar = object.sidecar()?;
    let outside = || BodyError::Damaged(format!("{}: metadata lies outside the JSON", object.key()));
    if revision == object.revision() {
        let span = sidecar.metadata_span(digit_count(revision));
        return object.json()?.get(span).map(Cow::Borrowed).ok_or_else(outside);
    }
    let (before, behind) = object.json_around_revision()?;
    let before = before.get(sidecar.metadata_start.to_native() as usize..);
    let behind = behind.get(..sidecar.metadata_tail.to_native() as usize);
    let (before, behind) = before.zip(behind).ok_or_else(outside)?;
    Ok(Cow::Owned([before, digits(revision).as_bytes(), behind].concat()))
}

/// Says that a stream of events is in protobuf.
pub(super) fn events(mut response: HttpResponse<Body>) -> Response {
    response.headers_mut().insert(CONTENT_TYPE, EVENTS_TYPE);
    response
}

/// Answers with a list.
pub(super) fn list(
    form: Form,
    messages: Messages,
    page: Page,
    revision: u64,
    begun: Begun,
) -> Result<Response, Status> {
    let mut head = Vec::new();
    let start = wire::begin(1, &mut head);
    wire::text(2, digits(revision).as_str(), &mut head);
    if let Some(token) = &page.continue_token {
        wire::text(3, token, &mut head);
    }
    if let Some(remaining) = page.remaining {
        wire::integer(4, i64::try_from(remaining).unwrap_or(i64::MAX), &mut head);
    }
    wire::end(start, &mut head);
    let mut teller = Teller {
        form,
        messages,
        scratch: Vec::new(),
    };
    let mut source = page.source;
    let mut is_all = false;
    while head.len() < KEPT_LEN_MIN && !is_all {
        let told = teller.tell_some(&mut source, |item| append_item(item, &mut head));
        is_all = told.map_err(Status::internal)?.is_none();
    }
    let mut body = ListBody {
        teller,
        rest: source,
        begun,
        chunks: Chunks::default(),
        end: &[],
        stage: Stage::Sent,
    };
    let response = if is_all {
        body.begin(&head, head.len() as u64);
        body.chunks.copy(body.end);
        answer(StatusCode::OK, body.chunks.into_body())
    } else {
        body.stage = Stage::Measured(Box::new(Measured {
            walk: body.rest.clone(),
            len: head.len() as u64,
            kept: head,
        }));
        answer(StatusCode::OK, Body::stream(body))
    };
    metrics::counter!("flatkube_converted_reads_total", "reason" => "protobuf").increment(1);
    let mut response = response;
    response.headers_mut().insert(CONTENT_TYPE, MEDIA_TYPE);
    Ok(response)
}

/// Tells objects one after the other, in a buffer that is used again.
struct Teller {
    form: Form,
    messages: Messages,
    scratch: Vec<u8>,
}

impl Teller {
    /// Tells the next few objects, and gives the message of each away. Returns how many bytes of JSON these were; `None` at
    /// the end.
    fn tell_some(&mut self, source: &mut Source, mut take: impl FnMut(&[u8])) -> Result<Option<usize>, BodyError> {
        let mut tell = |object: &Object| {
            self.scratch.clear();
            self.messages
                .append(&self.form, object, object.revision(), &mut self.scratch)?;
            take(&self.scratch);
            Ok::<usize, BodyError>(self.scratch.len())
        };
        let mut len = 0;
        match source.next()? {
            None => return Ok(None),
            Some(Run::One(object)) => len += tell(&object)?,
            Some(Run::Shelved(run)) => {
                let is_large = run.json_len() / run.len() > LARGE_OBJECT;
                let (part, rest) = run.split(if is_large { 1 } else { PART_LEN });
                part.try_for_each(|object| {
                    len += tell(object)?;
                    Ok::<(), BodyError>(())
                })?;
                if let Some(rest) = rest {
                    source.put_back(rest);
                }
            }
        }
        if self.scratch.capacity() > KEPT_LEN_MIN {
            self.scratch = Vec::new();
        }
        Ok(Some(len))
    }
}

fn append_item(item: &[u8], out: &mut Vec<u8>) {
    wire::item_head(item.len(), out);
    out.extend_from_slice(item);
}

/// A list that is longer than a frame.
struct ListBody {
    teller: Teller,
    /// What follows the items that are kept.
    rest: Source,
    begun: Begun,
    chunks: Chunks,
    /// What stands behind the items.
    end: &'static [u8],
    stage: Stage,
}

enum Stage {
    /// The rest is being measured: where that is, how long the list is up to there, and its first items.
    Measured(Box<Measured>),
    /// The rest is being sent.
    Sent,
    /// Everything is in the chunks.
    Told,
}

/// How far a list has been measured.
struct Measured {
    walk: Source,
    len: u64,
    kept: Vec<u8>,
}

impl ListBody {
    /// Begins a list whose message is `len` bytes long, the first of which are these.
    fn begin(&mut self, first: &[u8], len: u64) {
        let mut head = Vec::new();
        let Messages { api_version, kind, .. } = &self.teller.messages;
        self.end = wire::open_envelope_of_known_length(api_version, &format!("{kind}List"), len, &mut head);
        self.chunks.copy(&head);
        self.chunks.copy(first);
    }

    /// Measures for a turn. Returns whether everything is measured.
    fn measure(&mut self) -> Result<bool, BodyError> {
        let Self { teller, stage, .. } = self;
        let Stage::Measured(measured) = stage else {
            return Ok(true);
        };
        let mut looked_at = 0;
        while looked_at < MEASURED_PER_TURN {
            let mut more = 0;
            let told = teller.tell_some(&mut measured.walk, |item| more += wire::item_len(item.len()))?;
            let Some(bytes) = told else {
                if let Stage::Measured(measured) = std::mem::replace(stage, Stage::Sent) {
                    self.begin(&measured.kept, measured.len);
                }
                return Ok(true);
            };
            measured.len += more;
            looked_at += bytes;
        }
        Ok(false)
    }

    fn fill(&mut self) -> Result<(), BodyError> {
        let Self {
            teller, rest, chunks, ..
        } = self;
        while !chunks.is_full() {
            let told = teller.tell_some(rest, |item| {
                append_item(item, chunks.buffer(item.len() + wire::ITEM_HEAD_LEN_MAX));
            })?;
            if told.is_none() {
                chunks.constant(self.end);
                self.stage = Stage::Told;
                return Ok(());
            }
        }
        Ok(())
    }
}

impl http_body::Body for ListBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.begun.has_overstayed() {
            return Poll::Ready(Some(Err(overstayed())));
        }
        let this = &mut *self;
        if let Stage::Measured(_) = this.stage {
            match this.measure() {
                Ok(true) => {}
                Ok(false) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        if let Stage::Sent = this.stage
            && let Err(error) = this.fill()
        {
            return Poll::Ready(Some(Err(error)));
        }
        Poll::Ready(this.chunks.take().map(|frame| Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.stage, Stage::Told) && self.chunks.len() == 0
    }
}
