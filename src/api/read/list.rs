//! A collection: which objects the page holds, and the body that sends them while the client reads.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use flatkube_format::sidecar::digits;
use http::{HeaderValue, StatusCode, header};
use http_body::Frame;

use super::Reader;
use super::chunks::{self, Chunks};
use super::form::{Form, Ready, What, now_s};
use super::gzip::{self, GZIP_LEN_MIN, Gzip};
use super::notice::{Begun, overstayed};
use super::options::{ListOptions, Match};
use super::protobuf::{self, Messages};
use super::state::{self, PastError};
use super::token::Position;
use super::{answer, table};
use crate::api::body::{Body, BodyError, Response};
use crate::api::negotiate::Format;
use crate::api::request::RequestInfo;
use crate::api::status::Status;
use crate::api::stream;
use crate::store::{Damaged, Listing, Range, Requirement, Run, Selection, ShelvedRun, View};

/// Most objects of one run that is sent as a slice ...
const SLICED_RUN: usize = 1024;
/// ... which are fewer where objects are large, but for so many ...
const SLICED_RUN_MIN: usize = 128;
/// ... and its most bytes, unless it is one object: it bounds what is checked and paged in at one go.
const SLICED_LEN_MAX: usize = 4 * 1024 * 1024;
/// Objects that are looked for at one go when they are to be rendered.
const FOUND_RUN: usize = 128;
/// Most objects that are rendered one by one before the client is asked again.
const RENDERED_RUN_MAX: usize = 16;
/// Room for what stands before the rows of a Table, and before items, bytes.
const TABLE_HEAD_LEN: usize = 4 * 1024;
const HEAD_LEN: usize = 192;
/// Most runs of a page that are remembered between finding its end and sending it; a longer page is walked twice.
const RUNS_KEPT_MAX: usize = 512;

/// Answers a list.
///
/// # Errors
/// 400, 406 and 422 for options; 410 for revisions and tokens that are too old, 504 for those of the future.
pub async fn list(reader: &Reader, info: &RequestInfo) -> Result<Response, Status> {
    let options = ListOptions::parse(&info.query, &info.resource, info.name.as_deref(), false)?;
    let form = Form::of_items(info)?;
    let begun = reader.notice.begin();
    let start = start(reader, info, &options).await?;
    let page = page(reader, info, &options, &form, &start).map_err(Status::internal)?;
    respond(reader, info, form, page, start.view.revision(), begun)
}

/// Whether the options of a list of the collection that the request is about are in order.
///
/// # Errors
/// 400 and 422, as [`list`].
pub(in crate::api) fn check_options(info: &RequestInfo) -> Result<(), Status> {
    ListOptions::parse(&info.query, &info.resource, info.name.as_deref(), false).map(|_| ())
}

/// Answers a list, and tells the keys in the store of exactly the objects in it, in their order: for deleting a collection.
///
/// # Errors
/// As [`list`].
pub async fn list_with_keys(reader: &Reader, info: &RequestInfo) -> Result<(Response, Vec<String>), Status> {
    let options = ListOptions::parse(&info.query, &info.resource, info.name.as_deref(), false)?;
    let form = Form::of_items(info)?;
    let begun = reader.notice.begin();
    let start = start(reader, info, &options).await?;
    let page = page(reader, info, &options, &form, &start).map_err(Status::internal)?;
    let mut keys = Vec::new();
    let mut walk = page.source.clone();
    while let Some(run) = walk.next().map_err(Status::internal)? {
        keys.extend(run.objects().map(|object| object.key().to_owned()));
    }
    Ok((respond(reader, info, form, page, start.view.revision(), begun)?, keys))
}

/// Sends a body whole when it is small, as a stream when it is not.
fn respond(
    reader: &Reader,
    info: &RequestInfo,
    form: Form,
    page: Page,
    revision: u64,
    begun: Begun,
) -> Result<Response, Status> {
    if info.answer.format == Format::Protobuf
        && let Some(messages) = Messages::of(&form)
    {
        return protobuf::list(form, messages, page, revision, begun);
    }
    let mut body = ListBody::new(form, page, revision, begun);
    let gzip = info.answer.gzip && reader.compress.applies(info.loopback()) && !chunks::is_crowded();
    let filled = if gzip {
        body.fill(|chunks| chunks.len() < GZIP_LEN_MIN)
    } else {
        body.fill(Chunks::may_wait)
    };
    filled.map_err(Status::internal)?;
    if body.is_complete() && (!gzip || body.chunks.len() < GZIP_LEN_MIN) {
        return Ok(answer(StatusCode::OK, body.chunks.into_body()));
    }
    let Some(place) = gzip.then(gzip::Place::take).flatten() else {
        return Ok(answer(StatusCode::OK, Body::stream(body)));
    };
    let mut response = answer(StatusCode::OK, Body::stream(Gzip::new(body, place)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Ok(response)
}

/// Where a list begins.
struct Start {
    view: Arc<View>,
    after: Option<String>,
    limit: Option<u64>,
}

/// Which state is shown follows the table "Semantics for get and list" of the Kubernetes API concepts.
async fn start(reader: &Reader, info: &RequestInfo, options: &ListOptions) -> Result<Start, Status> {
    let version = state::version_of_list(&options.resource_version)?;
    let resource = &*info.resource.storage;
    if let Some(token) = &options.continue_token {
        if version.is_some_and(|version| version != 0) {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let position = Position::from_token(token, &reader.continue_key, resource)
            .filter(|position| lies_in(position, info.namespace.as_deref()))
            .ok_or_else(|| Status::bad_request("invalid continue token: continue key is not valid"))?;
        let view = match position.revision {
            None => reader.store.view(),
            Some(revision) => match state::exactly(reader, resource, revision).await {
                Ok(view) => view,
                Err(PastError::Status(status)) => return Err(status),
                Err(PastError::TooOld) => return Err(expired_token(reader, resource, position.after)),
            },
        };
        return Ok(Start {
            view,
            after: Some(position.after),
            limit: options.limit,
        });
    }
    // Without a rule for matching, a page of a given revision is of exactly that one (the legacy rule of `limit`).
    let exact = match options.matching {
        Some(Match::Exact) => version,
        Some(Match::NotOlderThan) => None,
        None => version.filter(|version| *version != 0 && options.limit.is_some()),
    };
    let view = match exact {
        None => state::not_older_than(reader, version).await?,
        Some(revision) => match state::exactly(reader, resource, revision).await {
            Ok(view) => view,
            Err(PastError::Status(status)) => return Err(status),
            Err(PastError::TooOld) => {
                return Err(Status::expired("The resourceVersion for the provided list is too old."));
            }
        },
    };
    // A list "at any revision" is served whole, as upstream's cache does.
    let limit = options.limit.filter(|_| version != Some(0));
    Ok(Start {
        view,
        after: None,
        limit,
    })
}

/// A token of one namespace does not lead into another.
fn lies_in(position: &Position, namespace: Option<&str>) -> bool {
    namespace.is_none_or(|namespace| {
        position
            .after
            .strip_prefix(namespace)
            .is_some_and(|rest| rest.starts_with('/'))
    })
}

fn expired_token(reader: &Reader, resource: &str, after: String) -> Status {
    let mut status = Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
         the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
         Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
         deleted between the time the first chunk was returned and now may show up in the list.",
    );
    status.continue_token = Some(Position { revision: None, after }.to_token(&reader.continue_key, resource));
    status
}

/// The objects of one answer, and what its metadata says about the rest.
pub(super) struct Page {
    pub(super) source: Source,
    pub(super) continue_token: Option<String>,
    pub(super) remaining: Option<u64>,
}

/// Where the objects come from: runs already found, then a listing.
#[derive(Clone)]
pub(super) struct Source {
    runs: VecDeque<Run>,
    listing: Option<Listing>,
    left: u64,
    run_max: usize,
    /// The run that was lent last, if it was one of `runs`.
    lent: Option<Run>,
}

impl Source {
    fn new(listing: Option<Listing>, run_max: usize) -> Self {
        Self {
            runs: VecDeque::new(),
            listing,
            left: u64::MAX,
            run_max,
            lent: None,
        }
    }

    /// All selected objects of a view, for a watch.
    pub(super) fn all(view: &Arc<View>, info: &RequestInfo, selection: &Selection) -> Result<Self, Damaged> {
        source(view, info, selection, None, RENDERED_RUN_MAX)
    }

    pub(super) fn next(&mut self) -> Result<Option<Run>, Damaged> {
        Ok(self.advance()?.cloned())
    }

    /// [`Source::next`], lent until the next call.
    fn advance(&mut self) -> Result<Option<&Run>, Damaged> {
        if let Some(run) = self.runs.pop_front() {
            self.lent = Some(run);
            return Ok(self.lent.as_ref());
        }
        let max = usize::try_from(self.left).unwrap_or(usize::MAX).min(self.run_max);
        let Some(listing) = self.listing.as_mut().filter(|_| max > 0) else {
            return Ok(None);
        };
        let run = listing.advance(max)?;
        self.left -= run.map_or(0, |run| run.len() as u64);
        Ok(run)
    }

    /// Gives back the end of the run that was lent last.
    pub(super) fn put_back(&mut self, rest: ShelvedRun) {
        self.runs.push_front(Run::Shelved(rest));
    }
}

/// Finds the cheapest way to the selected objects: one that names its object is a get.
fn source(
    view: &Arc<View>,
    info: &RequestInfo,
    selection: &Selection,
    after: Option<&str>,
    run_max: usize,
) -> Result<Source, Damaged> {
    let resource = &info.resource;
    let mut namespace = info.namespace.clone();
    let mut name = None;
    for requirement in &selection.requirements {
        match requirement {
            Requirement::Name { value, is: true } => name = Some(value),
            Requirement::Namespace { value, is: true } if resource.namespaced && namespace.is_none() => {
                namespace = Some(value.clone());
            }
            _ => {}
        }
    }
    if let Some(name) = name.filter(|_| after.is_none() && (namespace.is_some() || !resource.namespaced)) {
        let mut found = Source::new(None, run_max);
        if let Some(object) = view.get(&resource.storage, &resource.key(namespace.as_deref(), name))?
            && selection.matches(&object)?
        {
            found.runs.push_back(Run::One(object));
        }
        return Ok(found);
    }
    let range = Range {
        namespace,
        after: after.map(str::to_owned),
    };
    let listing = view.list(&resource.storage, range, selection);
    let listing = if run_max == SLICED_RUN {
        listing
    } else {
        listing.reading_sidecars()
    };
    Ok(Source::new(Some(listing), run_max))
}

fn page(
    reader: &Reader,
    info: &RequestInfo,
    options: &ListOptions,
    form: &Form,
    start: &Start,
) -> Result<Page, Damaged> {
    let run_max = if form.is_stored() { SLICED_RUN } else { FOUND_RUN };
    let begin = || source(&start.view, info, &options.selection, start.after.as_deref(), run_max);
    let mut walk = begin()?;
    let Some(limit) = start.limit else {
        return Ok(Page {
            source: walk,
            continue_token: None,
            remaining: None,
        });
    };
    // The metadata stands first in the answer, so the end of the page is found before anything is sent.
    walk.left = limit;
    let mut kept = Some(VecDeque::new());
    let mut last = None;
    while let Some(run) = walk.next()? {
        kept = kept.filter(|kept| kept.len() < RUNS_KEPT_MAX);
        if let Some(kept) = &mut kept {
            kept.push_back(run.clone());
        }
        last = Some(run);
    }
    let everything = options.selection.is_everything();
    let (more, remaining) = match &mut walk.listing {
        // A page that was not filled is the last one.
        Some(listing) if walk.left == 0 => {
            let remaining = listing.remaining();
            let more = if everything {
                remaining > 0
            } else {
                remaining > 0 && listing.next(1)?.is_some()
            };
            (more, (everything && more).then_some(remaining))
        }
        _ => (false, None),
    };
    let continue_token = last.filter(|_| more).map(|last| {
        let position = Position {
            revision: Some(start.view.revision()),
            after: last.last_key().to_owned(),
        };
        position.to_token(&reader.continue_key, &info.resource.storage)
    });
    let source = match kept {
        Some(runs) => Source {
            runs,
            listing: None,
            left: 0,
            run_max,
            lent: None,
        },
        None => Source {
            left: limit,
            ..begin()?
        },
    };
    Ok(Page {
        source,
        continue_token,
        remaining,
    })
}

/// The body of a list: head, objects, tail. Pulled by hyper; holds about one chunk.
struct ListBody {
    chunks: Chunks,
    form: Form,
    /// `None` once the tail was written.
    source: Option<Source>,
    first: bool,
    begun: Begun,
}

impl ListBody {
    fn new(form: Form, page: Page, revision: u64, begun: Begun) -> Self {
        // With the columns of a Table it is some 2 KiB long, without them it is short.
        let mut head = String::with_capacity(if matches!(form.what, What::Row(..)) {
            TABLE_HEAD_LEN
        } else {
            HEAD_LEN
        });
        // Writing to a String cannot fail.
        let _ = match form.what {
            What::Row(version, _) => head.write_str(&table::head(version)),
            What::Partial(version) => write!(
                head,
                r#"{{"kind":"PartialObjectMetadataList","apiVersion":"{}""#,
                version.api_version()
            ),
            What::Item | What::Whole => {
                let (kind, list) = form.resource.list_kind();
                let version = form.resource.api_version();
                write!(head, r#"{{"kind":"{kind}{list}","apiVersion":"{version}""#)
            }
        };
        head.push_str(r#","metadata":{"resourceVersion":""#);
        head.push_str(digits(revision).as_str());
        head.push('"');
        if let Some(token) = page.continue_token {
            head.push_str(r#","continue":""#);
            head.push_str(&token);
            head.push('"');
        } else if form.resource.custom.is_some() && form.what == What::Item {
            // Upstream's lists of custom objects always tell it.
            head.push_str(r#","continue":"""#);
        }
        if let Some(remaining) = page.remaining {
            head.push_str(r#","remainingItemCount":"#);
            head.push_str(digits(remaining).as_str());
        }
        head.push('}');
        if matches!(form.what, What::Row(..)) {
            table::column_definitions(&form.resource.columns, &mut head);
            head.push_str(r#","rows":["#);
        } else {
            head.push_str(r#","items":["#);
        }
        let mut chunks = if stream::is_http2() {
            Chunks::default()
        } else {
            Chunks::for_http1()
        };
        chunks.copy(head.as_bytes());
        Self {
            chunks,
            form,
            source: Some(page.source),
            first: true,
            begun,
        }
    }

    /// Whether everything is in `chunks`.
    fn is_complete(&self) -> bool {
        self.source.is_none()
    }

    /// Writes while `wants` more, until everything is written.
    fn fill(&mut self, wants: impl Fn(&Chunks) -> bool) -> Result<(), BodyError> {
        let Self {
            chunks,
            form,
            source: everything,
            first,
            begun: _,
        } = self;
        let now_s = if let What::Row(..) = form.what { now_s() } else { 0 };
        while wants(chunks)
            && let Some(source) = everything
        {
            let rest = match source.advance()? {
                Some(Run::Shelved(run)) => {
                    let comma = !std::mem::take(first);
                    if form.is_stored() {
                        slice(run, comma, chunks)?
                    } else {
                        render(form, run, comma, now_s, chunks)?
                    }
                }
                Some(Run::One(object)) => {
                    if !std::mem::take(first) {
                        chunks.constant(b",");
                    }
                    form.write(object, now_s, chunks)?;
                    None
                }
                None => {
                    *everything = None;
                    chunks.copy(b"]}\n");
                    return Ok(());
                }
            };
            if let Some(rest) = rest {
                source.put_back(rest);
                if form.is_stored() {
                    // Objects are large: look for fewer at a time.
                    source.run_max = (source.run_max / 2).max(SLICED_RUN_MIN);
                }
            }
        }
        Ok(())
    }
}

/// Appends the stored JSON of a run, a comma before it if there is one. Gives back what would be too much at one go.
fn slice(run: &ShelvedRun, comma: bool, chunks: &mut Chunks) -> Result<Option<ShelvedRun>, BodyError> {
    let len = run.json_len();
    if run.len() > 1 && len > SLICED_LEN_MAX {
        let (run, rest) = run.split(SLICED_LEN_MAX * run.len() / len);
        let between = slice(&run, comma, chunks)?;
        return Ok(joined(between, rest));
    }
    let (json, has_comma) = run.joined_json(comma)?;
    if comma && !has_comma {
        chunks.constant(b",");
    }
    if chunks.takes_slice(json.len()) {
        chunks.slice(json.slice());
    } else {
        chunks.copy(json.bytes());
    }
    Ok(None)
}

/// Appends a run in another form than the stored one. Gives back what would be too much at one go.
fn render(
    form: &Form,
    run: &ShelvedRun,
    comma: bool,
    now_s: i64,
    chunks: &mut Chunks,
) -> Result<Option<ShelvedRun>, BodyError> {
    match form.write_ready(run, comma, now_s, chunks)? {
        Ready::Yes => return Ok(None),
        Ready::Long => {
            let (run, rest) = run.split(run.len() / 2);
            let between = render(form, &run, comma, now_s, chunks)?;
            return Ok(joined(between, rest));
        }
        Ready::No => {}
    }
    let (run, rest) = run.split(RENDERED_RUN_MAX);
    let mut comma = comma;
    run.try_for_each(|object| {
        if std::mem::replace(&mut comma, true) {
            chunks.constant(b",");
        }
        form.write(object, now_s, chunks)
    })?;
    Ok(rest)
}

/// What is left of a run of which nothing more is left than these two, which follow each other.
fn joined(first: Option<ShelvedRun>, second: Option<ShelvedRun>) -> Option<ShelvedRun> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first.joined_with(&second)),
        (first, second) => first.or(second),
    }
}

impl http_body::Body for ListBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.begun.has_overstayed() {
            return Poll::Ready(Some(Err(overstayed())));
        }
        if let Err(error) = self.fill(|chunks| !chunks.is_full()) {
            return Poll::Ready(Some(Err(error)));
        }
        Poll::Ready(self.chunks.take().map(|frame| Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_complete() && self.chunks.len() == 0
    }
}
