//! How one object is written into an answer: as it is stored, with its head, as metadata only, or as a row of a Table.
//!
//! Everything comes from slices of the stored JSON and from the sidecar. An object is shown under its own revision, or,
//! when it leaves a watcher's selection, under the revision of the write that made it leave.

use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use flatkube_format::sidecar::{self, ArchivedSidecar, digit_count, digits};

use super::chunks::Chunks;
use crate::api::body::BodyError;
use crate::api::converted::{self, Conversion};
use crate::api::negotiate::{MetaVersion, Shape};
use crate::api::request::RequestInfo;
use crate::api::status::Status;
use crate::resources::custom::Reads;
use crate::resources::{self, Resource, ResourceRef};
use crate::store::{Damaged, MENDED_BY, Object, ShelvedRun};

use super::quote::quoted;

impl From<Damaged> for BodyError {
    fn from(damaged: Damaged) -> Self {
        BodyError::Damaged(format!("{damaged}; {MENDED_BY}"))
    }
}

/// Which part of the object a Table row carries (`includeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::api) enum Include {
    /// `null`.
    None,
    /// Its metadata, as a `PartialObjectMetadata`.
    Metadata,
    /// All of it.
    Object,
}

/// What an object becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::api) enum What {
    /// The stored bytes: an item of a list.
    Item,
    /// With `kind` and `apiVersion`: a single answer, the object of an event.
    Whole,
    /// `PartialObjectMetadata`.
    Partial(MetaVersion),
    /// A row of a Table.
    Row(MetaVersion, Include),
}

/// Whether [`Form::write_ready`] wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    Yes,
    No,
    Long,
}

/// Metadata that is shorter is copied: its neighbours are not what lies beside it in an answer, so each slice would be one of
/// three pieces. In bytes.
const METADATA_SLICE_LEN_MIN: usize = 4 * 1024;
/// From so few rows on it is not worth to fill a chunk to its end with some of them.
const READY_RUN_MIN: usize = 8;
/// Most bytes of rows that are copied at one go.
const READY_LEN_MAX: usize = 48 * 1024;

/// Writes objects of one resource in one form.
#[derive(Debug, Clone)]
pub(super) struct Form {
    pub(super) resource: ResourceRef,
    pub(super) what: What,
    /// `{"kind":…,"apiVersion":…,`
    head: String,
    /// For the versions of a kind whose shape is not the stored one.
    pub(super) conversion: Option<Conversion>,
    /// For custom resources, whose stored JSON has a head.
    custom: Option<CustomHead>,
    /// Column layout of current sidecars; only rows need it.
    layout: u32,
}

/// The head of custom objects: `{"apiVersion":…,"kind":…,`.
#[derive(Debug, Clone)]
struct CustomHead {
    /// That of this version.
    text: Box<str>,
    /// Whether all objects are stored with it.
    is_stored: bool,
    reads: Reads,
}

/// What stands between the head of stored JSON and the value of its metadata.
const METADATA_NAME: &str = r#""metadata":"#;

impl What {
    /// What a single object becomes for a client.
    ///
    /// # Errors
    /// 400 for an unknown `includeObject`, 406 for a list form.
    pub(in crate::api) fn of_one(info: &RequestInfo) -> Result<Self, Status> {
        match info.answer.shape {
            Shape::Object => Ok(What::Whole),
            Shape::Partial(version) => Ok(What::Partial(version)),
            Shape::Table(version) => Ok(What::Row(version, include(info)?)),
            Shape::PartialList(_) => Err(Status::not_acceptable(format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                go_type(&info.resource)
            ))),
        }
    }
}

impl What {
    /// What the items of a list become for a client.
    ///
    /// # Errors
    /// 400 for an unknown `includeObject`, 406 for the form of a single object.
    pub(in crate::api) fn of_items(info: &RequestInfo) -> Result<Self, Status> {
        match info.answer.shape {
            Shape::Object => Ok(What::Item),
            Shape::PartialList(version) => Ok(What::Partial(version)),
            Shape::Table(version) => Ok(What::Row(version, include(info)?)),
            Shape::Partial(_) => Err(Status::not_acceptable(format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({}List)",
                go_type(&info.resource)
            ))),
        }
    }
}

impl CustomHead {
    /// What is sent in place of the first bytes of a stored object, and how many these are. Another version's head ends where
    /// the sidecar says that metadata begins.
    fn before(&self, object: &Object) -> Result<(&[u8], usize), BodyError> {
        let own = self.text.as_bytes();
        if self.is_stored || object.json()?.starts_with(own) {
            return Ok((b"", 0));
        }
        let metadata = object.sidecar()?.metadata_start.to_native() as usize;
        Ok((own, metadata.saturating_sub(METADATA_NAME.len())))
    }
}

impl Form {
    /// Whether the custom resource's definition asks for something else by now.
    pub(super) fn is_overtaken(&self) -> bool {
        let custom = self.resource.custom.as_ref();
        custom.is_some_and(|custom| custom.overtaken.load(Ordering::Relaxed))
    }

    /// The form of a single answer or of an event's object.
    ///
    /// # Errors
    /// 400 for an unknown `includeObject`, 406 for a list form.
    pub(super) fn of_one(info: &RequestInfo) -> Result<Self, Status> {
        Ok(Self::new(&info.resource, What::of_one(info)?))
    }

    /// The form of the items of a list.
    ///
    /// # Errors
    /// 400 for an unknown `includeObject`, 406 for the form of a single object.
    pub(super) fn of_items(info: &RequestInfo) -> Result<Self, Status> {
        Ok(Self::new(&info.resource, What::of_items(info)?))
    }

    fn new(resource: &ResourceRef, what: What) -> Self {
        let version = resource.api_version();
        Self {
            resource: resource.clone(),
            what,
            head: format!(r#"{{"kind":"{}","apiVersion":"{version}","#, &resource.kind),
            conversion: converted::conversion(resource),
            custom: resource.custom.as_ref().map(|custom| CustomHead {
                text: resource.item_head().into(),
                // What a webhook converts keeps the head of the version that it is stored in until then.
                is_stored: custom.conversion.is_some() || custom.stored.is_none() && !custom.mixed,
                reads: custom.reads.clone(),
            }),
            layout: if let What::Row(..) = what { resource.layout() } else { 0 },
        }
    }

    /// Whether objects are sent as they are stored, so that a run of them is one slice.
    pub(super) fn is_stored(&self) -> bool {
        let headed = self
            .custom
            .as_ref()
            .is_none_or(|head| head.is_stored && head.reads.all_as_stored());
        self.what == What::Item && self.conversion.is_none() && headed
    }

    /// Appends the object under its own revision. `now_s` is the Unix time that ages are told for.
    pub(super) fn write(&self, object: &Object, now_s: i64, out: &mut Chunks) -> Result<(), BodyError> {
        self.write_part(self.what, object, object.revision(), now_s, out)
    }

    /// Appends the object as the last state before it left a selection, under the revision of that write.
    pub(super) fn write_as_of(
        &self,
        object: &Object,
        revision: u64,
        now_s: i64,
        out: &mut Chunks,
    ) -> Result<(), BodyError> {
        self.write_part(self.what, object, revision, now_s, out)
    }

    /// Appends neighbours on a shelf, separated by commas, from the rows that lie there ready.
    ///
    /// [`Ready::No`]: nothing was appended, each is to be written by itself. [`Ready::Long`]: nothing was appended, fewer
    /// are to be asked for.
    pub(super) fn write_ready(
        &self,
        run: &ShelvedRun,
        comma: bool,
        now_s: i64,
        out: &mut Chunks,
    ) -> Result<Ready, BodyError> {
        match self.what {
            What::Row(MetaVersion::V1, Include::Metadata) => {
                let Some(rows) = run.rows(self.layout)? else {
                    return Ok(Ready::No);
                };
                let (text, holes) = (rows.bytes(), run.row_holes());
                if text.len() > READY_LEN_MAX {
                    // One alone is written in pieces, of which the long ones are slices.
                    return Ok(if run.len() > 1 { Ready::Long } else { Ready::No });
                }
                let len = 1 + resources::table::rows_len_max(text.len(), holes.len());
                if run.len() > READY_RUN_MIN && !out.has_room(len) {
                    return Ok(Ready::Long);
                }
                let buffer = out.buffer(len);
                if comma {
                    buffer.push(b',');
                }
                resources::table::write_rows(text, holes, now_s, buffer);
            }
            What::Partial(MetaVersion::V1) => {
                let Some(objects) = run.row_objects() else {
                    return Ok(Ready::No);
                };
                let mut comma = comma;
                for object in objects {
                    let object = object?;
                    let text = object.bytes();
                    if std::mem::replace(&mut comma, true) {
                        out.constant(b",");
                    }
                    if text.len() > READY_LEN_MAX {
                        out.slice(object.slice());
                    } else {
                        out.copy(text);
                    }
                }
            }
            _ => return Ok(Ready::No),
        }
        Ok(Ready::Yes)
    }

    fn write_part(
        &self,
        what: What,
        object: &Object,
        revision: u64,
        now_s: i64,
        out: &mut Chunks,
    ) -> Result<(), BodyError> {
        match what {
            What::Item => self.write_object(None, object, revision, out),
            What::Whole => self.write_object(Some(self.head.as_bytes()), object, revision, out),
            What::Partial(version) => write_partial(version, object, object.sidecar()?, revision, b"}", out),
            What::Row(version, include) => {
                let sidecar = object.sidecar()?;
                self.write_row(object, sidecar, revision, now_s, out)?;
                match include {
                    Include::None => out.copy(b"null}"),
                    Include::Metadata => write_partial(version, object, sidecar, revision, b"}}", out)?,
                    Include::Object => {
                        self.write_object(Some(self.head.as_bytes()), object, revision, out)?;
                        out.copy(b"}");
                    }
                }
                Ok(())
            }
        }
    }

    /// `head`, if given, stands for the object's opening brace.
    fn write_object(
        &self,
        head: Option<&[u8]>,
        object: &Object,
        revision: u64,
        out: &mut Chunks,
    ) -> Result<(), BodyError> {
        if self
            .custom
            .as_ref()
            .is_some_and(|head| !head.reads.as_stored(object.revision()))
        {
            let (before, behind) = object.json_around_revision()?;
            let stored = [before, digits(revision).as_bytes(), behind].concat();
            out.copy(&converted::by_schema(&self.resource, &stored)?);
            return Ok(());
        }
        let (head, skip) = match &self.custom {
            Some(custom) => custom.before(object)?,
            None => head.map_or((&b""[..], 0), |head| (head, 1)),
        };
        if let Some(conversion) = &self.conversion {
            let (before, behind) = object.json_around_revision()?;
            let stored = [before, digits(revision).as_bytes(), behind].concat();
            let json = converted::convert(conversion, &stored)?;
            out.copy(head);
            out.copy(json.get(skip..).unwrap_or_default());
            return Ok(());
        }
        if revision != object.revision() {
            let (before, behind) = object.json_around_revision()?;
            out.copy(head);
            out.copy(before.get(skip..).unwrap_or_default());
            out.copy(digits(revision).as_bytes());
            out.copy(behind);
            return Ok(());
        }
        let json = object.json()?;
        if out.takes_slice(json.len()) {
            out.copy(head);
            out.slice(object.json_bytes()?.slice(skip..));
        } else {
            let buffer = out.buffer(head.len() + json.len());
            buffer.extend_from_slice(head);
            buffer.extend_from_slice(json.get(skip..).unwrap_or_default());
        }
        Ok(())
    }

    /// `{"cells":[…],"object":`
    fn write_row(
        &self,
        object: &Object,
        sidecar: &ArchivedSidecar,
        revision: u64,
        now_s: i64,
        out: &mut Chunks,
    ) -> Result<(), BodyError> {
        // That of an encrypted object may be empty: it would tell what is in it.
        if sidecar.layout.to_native() == self.layout && !sidecar.row.is_empty() {
            write_row(sidecar, revision, now_s, out);
            return Ok(());
        }
        let renewed = converted::renewed_sidecar(&self.resource, object.json()?)?;
        let sidecar = sidecar::access(&renewed).map_err(|error| BodyError::Other(error.to_string()))?;
        write_row(sidecar, revision, now_s, out);
        Ok(())
    }
}

fn write_row(sidecar: &ArchivedSidecar, revision: u64, now_s: i64, out: &mut Chunks) {
    let buffer = out.buffer(resources::table::row_len_max(sidecar));
    resources::table::write_row(sidecar, now_s, revision, buffer);
}

/// `end` closes it, and perhaps what stands around it.
fn write_partial(
    version: MetaVersion,
    object: &Object,
    sidecar: &ArchivedSidecar,
    revision: u64,
    end: &[u8],
    out: &mut Chunks,
) -> Result<(), BodyError> {
    let head: &[u8] = match version {
        MetaVersion::V1 => br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#,
        MetaVersion::V1Beta1 => br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1beta1","metadata":"#,
    };
    if revision == object.revision() {
        let span = sidecar.metadata_span(digit_count(revision));
        match object.json()?.get(span.clone()) {
            Some(metadata) if metadata.len() < METADATA_SLICE_LEN_MIN || !out.takes_slice(metadata.len()) => {
                let buffer = out.buffer(head.len() + metadata.len() + end.len());
                buffer.extend_from_slice(head);
                buffer.extend_from_slice(metadata);
                buffer.extend_from_slice(end);
                return Ok(());
            }
            Some(_) => {
                out.copy(head);
                out.slice(object.json_bytes()?.slice(span));
            }
            None => {
                return Err(BodyError::Damaged(format!(
                    "{}: metadata lies outside the JSON",
                    object.key()
                )));
            }
        }
    } else {
        let (before, behind) = object.json_around_revision()?;
        let start = sidecar.metadata_start.to_native() as usize;
        let tail = sidecar.metadata_tail.to_native() as usize;
        out.copy(head);
        out.copy(before.get(start..).unwrap_or_default());
        out.copy(digits(revision).as_bytes());
        out.copy(behind.get(..tail).unwrap_or_default());
    }
    out.copy(end);
    Ok(())
}

/// Now in Unix seconds: the moment that the ages of a Table are told for.
pub(super) fn now_s() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() as i64)
}

fn include(info: &RequestInfo) -> Result<Include, Status> {
    let given = info.query.get("includeObject").unwrap_or_default();
    Ok(match &*given {
        "" | "Metadata" => Include::Metadata,
        "None" => Include::None,
        "Object" => Include::Object,
        other => {
            return Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', \
                 'None', or empty",
                quoted(other)
            )));
        }
    })
}

/// The name of the Go type that upstream's messages show: `*apps.Deployment`.
fn go_type(resource: &Resource) -> String {
    if resource.custom.is_some() {
        return "*unstructured.Unstructured".to_owned();
    }
    let package = match resource.group.split('.').next() {
        None | Some("" | "events") => "core",
        Some(package) => package,
    };
    format!("*{package}.{}", &resource.kind)
}
