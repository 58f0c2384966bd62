//! Converted objects in the form that the client accepts: whole, their metadata alone, rows of a Table.

use http::StatusCode;

use super::text;
use crate::api::body::Response;
use crate::api::negotiate::MetaVersion;
use crate::api::read::{Include, What, column_definitions, table_head};
use crate::api::request::{RequestInfo, Verb};
use crate::api::status::Status;
use crate::api::unstored;
use crate::resources::{self, table};
use crate::tree::{Value, json};

/// Writes objects of one resource in one form.
pub(super) struct Shown {
    info: RequestInfo,
    what: What,
    /// Whether a watch has told the columns.
    columns_sent: bool,
}

impl Shown {
    /// The form of the answer to a request.
    ///
    /// # Errors
    /// 400 for an unknown `includeObject`, 406 for the form of a list where there is one object, and the other way round.
    pub(super) fn of(info: &RequestInfo) -> Result<Self, Status> {
        let what = match info.verb {
            Verb::List | Verb::DeleteCollection => What::of_items(info)?,
            _ if info.subresource_name() == "scale" => What::Whole,
            _ => What::of_one(info)?,
        };
        Ok(Self {
            info: info.clone(),
            what,
            columns_sent: false,
        })
    }

    /// A single object.
    ///
    /// # Errors
    /// As for [`Shown::of`].
    pub(super) fn one(&self, code: StatusCode, object: &Value) -> Result<Response, Status> {
        let resource = &self.info.resource;
        let cells = resources::cells(Some(resource), object);
        unstored::answer(&self.info, code, &resource.columns, &cells, object)
    }

    /// A list. `list` is what was read, without its items.
    pub(super) fn list(&mut self, mut list: Value, items: Vec<Value>) -> Vec<u8> {
        let metadata = list["metadata"].take();
        match self.what {
            What::Item | What::Whole => {
                list["metadata"] = metadata;
                list["items"] = items.into();
                text(&list)
            }
            What::Partial(version) => {
                let items: Vec<Value> = items.into_iter().map(|item| partial(version, &item)).collect();
                let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": version.api_version()});
                text(&with(
                    list,
                    [("metadata", without_empty(metadata)), ("items", items.into())],
                ))
            }
            What::Row(version, include) => {
                let mut body = self.table(version, &without_empty(metadata));
                let now_s = jiff::Timestamp::now().as_second();
                for (number, item) in items.iter().enumerate() {
                    if number > 0 {
                        body.push(b',');
                    }
                    self.row(version, include, item, now_s, &mut body);
                }
                body.extend_from_slice(b"]}\n");
                body
            }
        }
    }

    /// The object of an event.
    pub(super) fn of_event(&mut self, object: &Value, out: &mut Vec<u8>) {
        match self.what {
            What::Item | What::Whole => object.write(out),
            What::Partial(version) => partial(version, object).write(out),
            What::Row(version, include) => {
                let revision = json!({"resourceVersion": object["metadata"]["resourceVersion"].as_str().unwrap_or("")});
                out.extend_from_slice(&self.table(version, &revision));
                let now_s = jiff::Timestamp::now().as_second();
                self.row(version, include, object, now_s, out);
                out.extend_from_slice(b"]}");
            }
        }
    }

    /// The object of a bookmark, of which there is its metadata.
    pub(super) fn of_bookmark(&mut self, object: &Value, out: &mut Vec<u8>) {
        match self.what {
            What::Item | What::Whole => object.write(out),
            What::Partial(version) => partial(version, object).write(out),
            What::Row(version, _) => {
                let revision = json!({"resourceVersion": object["metadata"]["resourceVersion"].as_str().unwrap_or("")});
                out.extend_from_slice(&self.table(version, &revision));
                out.extend_from_slice(br#"{"cells":[],"object":"#);
                partial(version, object).write(out);
                out.extend_from_slice(b"}]}");
            }
        }
    }

    /// A Table up to its first row. A watch tells the columns once.
    fn table(&mut self, version: MetaVersion, metadata: &Value) -> Vec<u8> {
        let mut head = table_head(version);
        head.push_str(r#","metadata":"#);
        head.push_str(&metadata.to_json());
        if std::mem::replace(&mut self.columns_sent, true) {
            head.push_str(r#","columnDefinitions":null"#);
        } else {
            column_definitions(&self.info.resource.columns, &mut head);
        }
        head.push_str(r#","rows":["#);
        head.into_bytes()
    }

    fn row(&self, version: MetaVersion, include: Include, object: &Value, now_s: i64, out: &mut Vec<u8>) {
        let cells = resources::cells(Some(&self.info.resource), object);
        let revision = object["metadata"]["resourceVersion"].as_str().unwrap_or("");
        table::write_cells(&cells, now_s, revision.parse().unwrap_or(0), out);
        match include {
            Include::None => out.extend_from_slice(b"null"),
            Include::Metadata => partial(version, object).write(out),
            Include::Object => object.write(out),
        }
        out.push(b'}');
    }
}

fn partial(version: MetaVersion, object: &Value) -> Value {
    let head = json!({"kind": "PartialObjectMetadata", "apiVersion": version.api_version()});
    with(head, [("metadata", object["metadata"].clone())])
}

fn with<const N: usize>(mut object: Value, fields: [(&str, Value); N]) -> Value {
    for (name, value) in fields {
        object[name] = value;
    }
    object
}

/// Lists of whole custom objects tell an empty `continue`, others do not.
fn without_empty(mut metadata: Value) -> Value {
    if metadata["continue"] == ""
        && let Some(fields) = metadata.as_object_mut()
    {
        fields.remove("continue");
    }
    metadata
}
