//! What a right answer looks like. Checked on a whole answer before anything is timed.

use std::io::Read as _;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::client::Encoding;
use crate::failure::Failure;

/// More objects of a kind than any server makes itself.
const BOOTSTRAPPED_MAX: usize = 10;

/// What an answer has to hold.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    /// One object of this name.
    Object(String),
    /// So many items or rows.
    Count(usize),
    /// So many items, each with the label `pick=yes`.
    Picked(usize),
    /// So many, and those that a server makes itself.
    All(usize),
    /// So many or more.
    AtLeast(usize),
}

#[derive(Deserialize)]
struct Whole {
    kind: String,
    metadata: Metadata,
    #[serde(default, rename = "columnDefinitions")]
    columns: Vec<IgnoredAny>,
    #[serde(default)]
    items: Vec<Item>,
    #[serde(default)]
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Row {
    cells: Vec<IgnoredAny>,
    object: Item,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    namespace: String,
    name: String,
    #[serde(rename = "resourceVersion")]
    resource_version: String,
    labels: std::collections::BTreeMap<String, String>,
}

impl Expected {
    /// Judges the answer to `path`.
    pub(crate) fn check(&self, path: &str, encoding: Encoding, body: &[u8]) -> Result<(), Failure> {
        let decoded;
        let body = if encoding == Encoding::Gzip {
            let mut whole = Vec::new();
            let mut decoder = flate2::bufread::GzDecoder::new(body);
            decoder
                .read_to_end(&mut whole)
                .map_err(|error| Failure::content(path, format!("not one gzip member: {error}"), body))?;
            if !decoder.into_inner().is_empty() {
                return Err(Failure::content(path, "bytes after the gzip member", &whole));
            }
            decoded = whole;
            &decoded
        } else {
            body
        };
        self.judge(body).map_err(|what| Failure::content(path, what, body))
    }

    fn judge(&self, body: &[u8]) -> Result<(), String> {
        let whole: Whole = serde_json::from_slice(body).map_err(|error| format!("not the JSON expected: {error}"))?;
        if whole.metadata.resource_version.is_empty() {
            return Err("no resourceVersion".into());
        }
        if let Expected::Object(name) = self {
            return if whole.metadata.name == *name {
                Ok(())
            } else {
                Err(format!("the {} {:?}, not {name:?}", whole.kind, whole.metadata.name))
            };
        }
        if let Some(row) = whole.rows.iter().find(|row| row.cells.len() != whole.columns.len()) {
            let (cells, columns) = (row.cells.len(), whole.columns.len());
            return Err(format!("a row of {cells} cells under {columns} columns"));
        }
        let objects: Vec<_> = whole
            .items
            .iter()
            .map(|item| &item.metadata)
            .chain(whole.rows.iter().map(|row| &row.object.metadata))
            .collect();
        let key = |metadata: &Metadata| format!("{}/{}", metadata.namespace, metadata.name);
        if let Some(pair) = objects.windows(2).find(|pair| key(pair[0]) >= key(pair[1])) {
            return Err(format!("{} before {}", key(pair[0]), key(pair[1])));
        }
        if matches!(self, Expected::Picked(_))
            && let Some(other) = objects
                .iter()
                .find(|metadata| metadata.labels.get("pick").is_none_or(|value| value != "yes"))
        {
            return Err(format!("{} does not match the selector", key(other)));
        }
        let count = objects.len();
        let is_right = match self {
            Expected::Object(_) => true,
            Expected::Count(expected) | Expected::Picked(expected) => count == *expected,
            Expected::All(expected) => (*expected..expected + BOOTSTRAPPED_MAX).contains(&count),
            Expected::AtLeast(expected) => count >= *expected,
        };
        if is_right {
            Ok(())
        } else {
            Err(format!("{count} objects, not {self:?}"))
        }
    }
}
