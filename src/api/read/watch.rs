//! Events of a collection, or of one object, as they are published.
//!
//! A watch is a position in the log and the selection it is filtered by. Nothing is queued for it: hyper asks the body
//! for the next frame when the client has taken the last one, and the body then reads on in the mapped log. A client that
//! is slow reads further back; it loses its place only when the history there is discarded, and is told so (410).

use std::hash::{BuildHasher as _, Hasher as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use flatkube_format::sidecar::digits;
use http::StatusCode;
use http_body::Frame;
use tokio::time::{Instant, Sleep};

use super::Reader;
use super::chunks::Chunks;
use super::form::{Form, What, now_s};
use super::list::Source;
use super::notice::{Begun, overstayed};
use super::options::ListOptions;
use super::protobuf::{self, Messages};
use super::{answer, state, table};
use crate::api::Stopping;
use crate::api::body::{Body, BodyError, Response};
use crate::api::negotiate::Format;
use crate::api::request::RequestInfo;
use crate::api::status::Status;
use crate::store::{Event, EventKind, Follower, HistoryError, Object, Selection, View};

/// Shortest life of a watch without `timeoutSeconds`; each gets up to twice that, so that they do not end together.
const LIFE_MIN: Duration = Duration::from_mins(30);
/// How often a client that allows bookmarks gets one.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// How long before its end a watch sends a last bookmark.
const LAST_BOOKMARK_BEFORE: Duration = Duration::from_secs(2);
/// Most log records that are looked at before other tasks get their turn.
const RECORDS_PER_TURN: usize = 256;
/// How often the start is tried again when retention discards the history behind a view that was just taken.
const START_TRIES: usize = 8;

/// Answers a watch.
///
/// # Errors
/// As for a list; a revision that is too old is told inside the stream, as upstream does.
pub async fn watch(reader: &Reader, info: &RequestInfo) -> Result<Response, Status> {
    let options = ListOptions::parse(&info.query, &info.resource, info.name.as_deref(), true)?;
    if info.answer.format == Format::Yaml {
        return Err(Status::not_acceptable(
            "only the following media types are accepted: application/json;stream=watch, \
             application/vnd.kubernetes.protobuf;stream=watch",
        ));
    }
    let form = Form::of_one(info)?;
    let version = state::version(&options.resource_version)?;
    let begun = reader.notice.begin();
    let begin = begin(reader, info, &options, version).await?;
    let now = Instant::now();
    let deadline = now + options.timeout.unwrap_or_else(default_life);
    let stopping = reader.stopping.clone();
    let mut body = WatchBody {
        source: None,
        follower: None,
        skip_to: 0,
        end_of_initial: None,
        selection: options.selection,
        messages: (info.answer.format == Format::Protobuf)
            .then(|| Messages::of(&form))
            .flatten(),
        form,
        columns_sent: false,
        chunks: Chunks::default(),
        ended: false,
        deadline,
        next_bookmark: options.bookmarks.then(|| next_bookmark(now, deadline)),
        timer: Box::pin(tokio::time::sleep_until(deadline)),
        signal: reader.stopping.clone(),
        stopping: Box::pin(async move { stopping.stopped().await }),
        waiting: None,
        begun,
    };
    match begin {
        Begin::Initial { view, follower } => {
            body.source = Some(Source::all(&view, info, &body.selection).map_err(Status::internal)?);
            body.end_of_initial = options.bookmarks.then(|| view.revision());
            body.follower = Some(follower);
        }
        Begin::After { follower, skip_to } => {
            body.follower = Some(follower);
            body.skip_to = skip_to;
        }
        Begin::TooOld { asked, floor } => body.too_old(asked, floor),
    }
    let is_protobuf = body.messages.is_some();
    let response = answer(StatusCode::OK, Body::stream(body));
    Ok(if is_protobuf {
        protobuf::events(response)
    } else {
        response
    })
}

/// Where a watch begins.
enum Begin {
    /// With all objects of the view, then what follows it.
    Initial { view: Arc<View>, follower: Follower },
    /// With the first write after `skip_to` (or after the follower's position, if that is later).
    After { follower: Follower, skip_to: u64 },
    /// Nowhere: the history there is gone.
    TooOld { asked: u64, floor: u64 },
}

/// Follows the table "Semantics for watch" of the Kubernetes API concepts, and KEP-3157 for `sendInitialEvents`.
async fn begin(
    reader: &Reader,
    info: &RequestInfo,
    options: &ListOptions,
    version: Option<u64>,
) -> Result<Begin, Status> {
    let resource = &*info.resource.storage;
    let namespace = info.namespace.as_deref();
    let version = version.filter(|version| *version != 0);
    let follow = |after: u64| reader.store.follow(resource, namespace, after);
    if options.initial_events.unwrap_or(version.is_none()) {
        for _ in 0..START_TRIES {
            let view = state::not_older_than(reader, version).await?;
            match follow(view.revision()) {
                Ok(follower) => return Ok(Begin::Initial { view, follower }),
                Err(HistoryError::TooOld { .. }) => {}
                Err(error) => return Err(state::history(&error)),
            }
        }
        return Err(Status::service_unavailable(
            "history is discarded faster than a watch can start",
        ));
    }
    let asked = version.unwrap_or_else(|| reader.store.view().revision());
    match follow(asked) {
        Ok(follower) => Ok(Begin::After { follower, skip_to: 0 }),
        Err(HistoryError::TooOld { floor, .. }) => Ok(Begin::TooOld { asked, floor }),
        Err(HistoryError::Future { current }) => match follow(current) {
            Ok(follower) => Ok(Begin::After {
                follower,
                skip_to: asked,
            }),
            Err(error) => Err(state::history(&error)),
        },
        Err(error) => Err(state::history(&error)),
    }
}

/// 30 to 60 minutes.
fn default_life() -> Duration {
    let random = std::hash::RandomState::new().build_hasher().finish();
    LIFE_MIN + Duration::from_millis(random % LIFE_MIN.as_millis() as u64)
}

fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let last = deadline.checked_sub(LAST_BOOKMARK_BEFORE).filter(|last| *last > now);
    last.map_or(now + BOOKMARK_EVERY, |last| last.min(now + BOOKMARK_EVERY))
}

/// The body of a watch.
struct WatchBody {
    /// Objects that are told as `ADDED` first; `None` once they are out.
    source: Option<Source>,
    /// `None` when there is nothing to follow.
    follower: Option<Follower>,
    /// Writes up to here are not told: the client asked for later ones before they were made.
    skip_to: u64,
    /// Revision of the bookmark that ends the initial objects, until it is sent.
    end_of_initial: Option<u64>,
    selection: Selection,
    form: Form,
    /// Of a stream in protobuf.
    messages: Option<Messages>,
    /// Only the first Table of a stream carries the columns.
    columns_sent: bool,
    chunks: Chunks,
    ended: bool,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    /// Runs to the next bookmark or the deadline, whichever comes first.
    timer: Pin<Box<Sleep>>,
    signal: Stopping,
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Whom timer and signal wake: as long as it is the same task and neither of them has anything to tell, they need not be
    /// asked again after each event.
    waiting: Option<Waker>,
    /// Counts while there is a `source`: a position in the log keeps no file.
    begun: Begun,
}

impl WatchBody {
    /// Writes what can be said now, up to a full chunk. Returns whether more may be there at once.
    fn fill(&mut self) -> Result<bool, BodyError> {
        let now_s = if let What::Row(..) = self.form.what { now_s() } else { 0 };
        while let Some(source) = &mut self.source {
            if self.chunks.is_full() {
                return Ok(true);
            }
            if self.begun.has_overstayed() {
                return Err(overstayed());
            }
            match source.next()? {
                Some(run) => {
                    for object in run.objects() {
                        self.event("ADDED", &object, object.revision(), now_s)?;
                    }
                }
                None => self.source = None,
            }
        }
        if let Some(revision) = self.end_of_initial.take() {
            self.bookmark(revision, true);
        }
        for _ in 0..RECORDS_PER_TURN {
            if self.chunks.is_full() {
                return Ok(true);
            }
            let Some(follower) = &mut self.follower else {
                return Ok(false);
            };
            match follower.next() {
                Ok(None) => return Ok(false),
                Ok(Some(event)) if event.revision <= self.skip_to => {}
                Ok(Some(event)) => self.change(&event, now_s)?,
                Err(HistoryError::TooOld { floor, .. }) => {
                    let asked = follower.position();
                    self.too_old(asked, floor);
                    return Ok(false);
                }
                Err(error) => return Err(BodyError::Other(error.to_string())),
            }
        }
        Ok(true)
    }

    /// Tells a write as the selection sees it: an object that enters it is added, one that leaves is deleted, in the last
    /// state in which it was selected.
    fn change(&mut self, event: &Event, now_s: i64) -> Result<(), BodyError> {
        let gone = event.kind == EventKind::Deleted;
        let is = !gone && self.selects(&event.object)?;
        let was = match &event.previous {
            Some(previous) => self.selects(previous)?,
            None => gone && self.selects(&event.object)?,
        };
        match (was, is) {
            (false, false) => Ok(()),
            (false, true) => self.event("ADDED", &event.object, event.revision, now_s),
            (true, true) => self.event("MODIFIED", &event.object, event.revision, now_s),
            (true, false) => {
                let last = event.previous.as_ref().filter(|_| !gone).unwrap_or(&event.object);
                self.event("DELETED", last, event.revision, now_s)
            }
        }
    }

    fn selects(&self, object: &Object) -> Result<bool, BodyError> {
        Ok(self.selection.is_everything() || self.selection.matches(object)?)
    }

    fn event(&mut self, word: &str, object: &Object, revision: u64, now_s: i64) -> Result<(), BodyError> {
        let Self {
            chunks, form, messages, ..
        } = self;
        if let Some(messages) = messages {
            let mut frame = Vec::new();
            messages.append_event(word, form, object, revision, &mut frame)?;
            chunks.copy(&frame);
            return Ok(());
        }
        let buffer = chunks.buffer(64);
        buffer.extend_from_slice(br#"{"type":""#);
        buffer.extend_from_slice(word.as_bytes());
        buffer.extend_from_slice(br#"","object":"#);
        if let What::Row(..) = form.what {
            self.table_head(revision);
            self.form.write_as_of(object, revision, now_s, &mut self.chunks)?;
            self.chunks.copy(b"]}}\n");
        } else {
            form.write_as_of(object, revision, now_s, chunks)?;
            chunks.copy(b"}\n");
        }
        Ok(())
    }

    /// A Table up to its first row.
    fn table_head(&mut self, revision: u64) {
        let What::Row(version, _) = self.form.what else { return };
        let mut head = table::head(version);
        head.push_str(r#","metadata":{"resourceVersion":""#);
        head.push_str(digits(revision).as_str());
        head.push_str("\"}");
        if std::mem::replace(&mut self.columns_sent, true) {
            head.push_str(r#","columnDefinitions":null"#);
        } else {
            table::column_definitions(&self.form.resource.columns, &mut head);
        }
        head.push_str(r#","rows":["#);
        self.chunks.copy(head.as_bytes());
    }

    /// Everything up to `revision` has been told.
    fn bookmark(&mut self, revision: u64, end_of_initial: bool) {
        let annotations = if end_of_initial {
            r#","annotations":{"k8s.io/initial-events-end":"true"}"#
        } else {
            ""
        };
        let metadata = format!(r#"{{"resourceVersion":"{revision}"{annotations}}}"#);
        let resource = &self.form.resource;
        let (kind, version) = match self.form.what {
            What::Row(version, _) => {
                self.chunks.copy(br#"{"type":"BOOKMARK","object":"#);
                self.table_head(revision);
                let row = format!(
                    r#"{{"cells":[],"object":{{"kind":"PartialObjectMetadata","apiVersion":"{}","metadata":{metadata}}}}}]}}"#,
                    version.api_version()
                );
                self.chunks.copy(row.as_bytes());
                self.chunks.copy(b"}\n");
                return;
            }
            What::Partial(version) => ("PartialObjectMetadata", version.api_version().to_owned()),
            What::Item | What::Whole => (&*resource.kind, resource.api_version()),
        };
        let object = format!(r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":{metadata}}}"#);
        self.tell("BOOKMARK", object.as_bytes());
    }

    /// Tells an event of something that is no object of the store, in JSON.
    fn tell(&mut self, word: &str, object: &[u8]) {
        if self.messages.is_some() {
            let mut frame = Vec::new();
            // Bookmarks and Statuses have messages.
            if protobuf::append_event_of(word, object, &mut frame).is_ok() {
                self.chunks.copy(&frame);
            }
            return;
        }
        self.chunks.copy(br#"{"type":""#);
        self.chunks.copy(word.as_bytes());
        self.chunks.copy(br#"","object":"#);
        self.chunks.copy(object);
        self.chunks.copy(b"}\n");
    }

    /// The client must list again: the history after `asked` is gone.
    fn too_old(&mut self, asked: u64, floor: u64) {
        let status = Status::expired(format!("too old resource version: {asked} ({floor})")).to_json();
        self.tell("ERROR", status.trim_ascii_end());
        self.follower = None;
        self.source = None;
        self.ended = true;
    }

    /// Does what is due by the clock.
    fn tick(&mut self, now: Instant) {
        if now >= self.deadline {
            self.ended = true;
        } else if self.next_bookmark.is_some_and(|due| now >= due) && self.source.is_none() {
            self.next_bookmark = Some(next_bookmark(now, self.deadline));
            if let Some(position) = self.follower.as_ref().map(Follower::position)
                && position >= self.skip_to
            {
                self.bookmark(position, false);
            }
        }
    }
}

impl http_body::Body for WatchBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        loop {
            if let Some(frame) = this.chunks.take() {
                return Poll::Ready(Some(Ok(Frame::data(frame))));
            }
            if this.ended || this.form.is_overtaken() {
                return Poll::Ready(None);
            }
            let more = match this.fill() {
                Ok(more) => more,
                Err(error) => {
                    this.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
            };
            let is_waiting = this
                .waiting
                .as_ref()
                .is_some_and(|waiting| waiting.will_wake(cx.waker()));
            if !is_waiting || this.timer.is_elapsed() {
                this.tick(Instant::now());
            }
            if this.chunks.len() > 0 || this.ended {
                continue;
            }
            if this.signal.is_stopping() {
                this.ended = true;
                continue;
            }
            if more {
                // Many writes that this watch does not select: let others run, then go on.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let due = this
                .next_bookmark
                .map_or(this.deadline, |bookmark| bookmark.min(this.deadline));
            let is_moved = this.timer.deadline() != due;
            if is_moved {
                this.timer.as_mut().reset(due);
            }
            if !is_waiting || is_moved || this.timer.is_elapsed() {
                this.waiting = None;
                if this.timer.as_mut().poll(cx).is_ready() {
                    continue;
                }
                if this.stopping.as_mut().poll(cx).is_ready() {
                    this.ended = true;
                    continue;
                }
                this.waiting = Some(cx.waker().clone());
            }
            match this.follower.as_mut().map(|follower| follower.poll_changed(cx)) {
                Some(Poll::Ready(())) => {}
                Some(Poll::Pending) | None => return Poll::Pending,
            }
        }
    }
}
