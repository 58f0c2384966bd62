//! From an object to what the store keeps of it: compact JSON with a gap for the revision, and the sidecar.

use crate::tree::{Map, Value, write_text};
use std::collections::HashMap;
use std::sync::OnceLock;

use flatkube_format::object::Prepared;
use flatkube_format::sidecar::{Pair, Sidecar};
use serde::de::{Deserialize, IgnoredAny};

use super::{Resource, kind, lookup, table};

/// Why an object cannot be encoded or a stored one cannot be read again.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The object or its metadata is not a JSON object.
    #[error("the object or its metadata is not a JSON object")]
    NotAnObject,
    /// The stored bytes are not the JSON of an object with a `resourceVersion`.
    #[error("offset {offset}: {expected} expected")]
    Malformed {
        /// Bytes from the start of the JSON.
        offset: usize,
        /// What should have been there.
        expected: &'static str,
    },
    /// Longer than offsets can tell.
    #[error("the object is longer than 4 GiB")]
    TooLong,
}

/// The order in which metadata's fields are written, as kube-apiserver writes them; any others come after.
pub(super) const METADATA_ORDER: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Encodes an object in its stored shape (see [`Resource::stored_shape`]).
///
/// `kind` and `apiVersion` are left out, `metadata` comes first; custom objects begin with their `apiVersion` and `kind`.
/// `metadata.resourceVersion` is an empty string at the splice point. Costs one pass over the object and the making of its Table cells.
pub fn encode(resource: &Resource, object: &Value) -> Result<Prepared, EncodeError> {
    let fields = object.as_object().ok_or(EncodeError::NotAnObject)?;
    let empty = Map::new();
    let metadata = match fields.get("metadata") {
        None | Some(Value::Null) => &empty,
        Some(metadata) => metadata.as_object().ok_or(EncodeError::NotAnObject)?,
    };
    let mut json = Vec::with_capacity(4096);
    if resource.custom.is_some() {
        json.extend_from_slice(resource.item_head().as_bytes());
        json.extend_from_slice(b"\"metadata\":");
    } else {
        json.extend_from_slice(b"{\"metadata\":");
    }
    let start = json.len();
    let splice = write_metadata(metadata, &mut json);
    let end = json.len();
    for (name, value) in fields {
        if !matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
            json.push(b',');
            write_text(name, &mut json);
            json.push(b':');
            value.write(&mut json);
        }
    }
    json.push(b'}');
    if u32::try_from(json.len()).is_err() {
        return Err(EncodeError::TooLong);
    }
    let spans = Spans {
        metadata_start: start,
        splice,
        metadata_tail: end - splice,
    };
    let sidecar = sidecar(Some(resource), object, &spans).archive();
    let prepared = Prepared {
        json,
        splice: splice as u32,
        sidecar,
    };
    debug_assert!(prepared.check().is_ok(), "splice and sidecar fit the JSON");
    Ok(prepared)
}

/// Makes the sidecar of stored JSON again, e.g. when the columns of its kind have changed.
///
/// `resource` is the name in the store; an unknown one gets name and age as its cells.
pub fn archive(resource: &str, json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    archive_as(super::stored(resource), json)
}

/// [`archive`] of an object of a resource that is at hand, `None` for an unknown one. A version of a custom resource that is not
/// the stored one gives its own row.
pub fn archive_as(resource: Option<&Resource>, json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let spans = Spans::find(json)?;
    let malformed = |_| EncodeError::Malformed {
        offset: 0,
        expected: "JSON",
    };
    let object: Value = serde_json::from_slice(json).map_err(malformed)?;
    Ok(sidecar(resource, &object, &spans).archive())
}

/// Number of the column layout of a resource's sidecars: it changes when its columns or the rules of its cells change.
pub fn layout(resource: &str) -> u32 {
    static LAYOUTS: OnceLock<HashMap<&'static str, u32>> = OnceLock::new();
    let layouts = LAYOUTS.get_or_init(|| {
        let stored = super::all().iter().map(|resource| &*resource.storage);
        stored.map(|storage| (storage, hash_of_layout(storage))).collect()
    });
    let known = layouts.get(resource).copied();
    known.unwrap_or_else(|| hash_of_layout(resource))
}

impl Resource {
    /// Number of the column layout of sidecars whose rows are those of this resource.
    pub fn layout(&self) -> u32 {
        match &self.custom {
            Some(custom) => custom.cells.layout,
            None => layout(&self.storage),
        }
    }

    /// What items of this resource begin with on the wire: `{"apiVersion":"example.com/v1","kind":"Widget",` for custom ones,
    /// `{` for others.
    pub fn item_head(&self) -> String {
        if self.custom.is_none() {
            return "{".to_owned();
        }
        let mut head = br#"{"apiVersion":"#.to_vec();
        write_text(&self.api_version(), &mut head);
        head.extend_from_slice(br#","kind":"#);
        write_text(&self.kind, &mut head);
        head.push(b',');
        String::from_utf8(head).unwrap_or_default()
    }
}

fn hash_of_layout(resource: &str) -> u32 {
    /// Counts changes of how cells are computed that the column titles do not show.
    const RULES: &[u8] = b"1";
    let mut hash = crc32fast::Hasher::new();
    hash.update(RULES);
    for column in super::stored(resource)
        .into_iter()
        .flat_map(|resource| &resource.columns)
    {
        hash.update(column.name.as_bytes());
        hash.update(b"\0");
    }
    hash.finalize()
}

/// Where metadata and the digits of `resourceVersion` lie in the JSON.
#[derive(Debug, PartialEq, Eq)]
struct Spans {
    metadata_start: usize,
    splice: usize,
    metadata_tail: usize,
}

/// The field that sidecars of objects have which are being deleted, and its value. It is not one that clients may select by: the
/// program finds what is going by it.
pub const DELETING: (&str, &str) = ("metadata.deletionTimestamp", "set");

fn sidecar(resource: Option<&Resource>, object: &Value, spans: &Spans) -> Sidecar {
    let pair = |name: &str, value: &str| Pair {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let labels = lookup::map(object, "/metadata/labels").into_iter().flatten();
    let mut labels: Vec<Pair> = labels
        .filter_map(|(name, value)| Some(pair(name, value.as_str()?)))
        .collect();
    labels.sort_by(|a, b| a.name.cmp(&b.name));
    let mut fields: Vec<Pair> = Vec::new();
    if let Some(resource) = resource {
        if let Some(custom) = &resource.custom {
            fields.extend(custom.cells.fields(object).map(|(name, value)| pair(name, &value)));
        } else {
            let value = |field| kind::field_value(resource, object, field);
            fields.extend(resource.fields.iter().map(|field| pair(field, &value(field))));
        }
    }
    if !lookup::text(object, "/metadata/deletionTimestamp").is_empty() {
        fields.push(pair(DELETING.0, DELETING.1));
    }
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    let owners = lookup::list(object, "/metadata/ownerReferences").iter();
    let (row, holes) = table::row(&kind::cells(resource, object));
    Sidecar {
        layout: resource.map_or(0, Resource::layout),
        metadata_start: spans.metadata_start as u32,
        splice: spans.splice as u32,
        metadata_tail: spans.metadata_tail as u32,
        created: lookup::time_s(object, "/metadata/creationTimestamp").unwrap_or(0),
        uid: lookup::text(object, "/metadata/uid").to_owned(),
        labels,
        fields,
        owners: owners.map(|owner| lookup::text(owner, "/uid").to_owned()).collect(),
        row,
        holes,
    }
}

/// Writes metadata with an empty `resourceVersion`; the offset between its quotes comes back.
fn write_metadata(metadata: &Map, json: &mut Vec<u8>) -> usize {
    let mut splice = 0;
    let mut first = true;
    let mut field = |name: &str, value: &Value, json: &mut Vec<u8>| {
        json.push(if first { b'{' } else { b',' });
        first = false;
        write_text(name, json);
        json.push(b':');
        value.write(json);
    };
    for &name in METADATA_ORDER {
        if name == "resourceVersion" {
            field(name, &Value::from(""), json);
            splice = json.len() - 1;
        } else if let Some(value) = metadata.get(name).filter(|value| !value.is_null()) {
            field(name, value, json);
        }
    }
    for (name, value) in metadata {
        if !METADATA_ORDER.contains(&name.as_str()) && !value.is_null() {
            field(name, value, json);
        }
    }
    json.push(b'}');
    splice
}

impl Spans {
    /// Finds them in stored (compact) JSON by walking the fields of the object, then those of its metadata.
    fn find(json: &[u8]) -> Result<Spans, EncodeError> {
        let (metadata_start, end) = field(json, 0, "metadata")?;
        let (quote, after) = field(json, metadata_start, "resourceVersion")?;
        let splice = quote + 1;
        let digits_end = after - 1;
        if json.get(quote) != Some(&b'"') || digits_end < splice {
            return Err(EncodeError::Malformed {
                offset: quote,
                expected: "resourceVersion as a string",
            });
        }
        Ok(Spans {
            metadata_start,
            splice,
            metadata_tail: end - digits_end,
        })
    }
}

/// Start and end of the value of a field of the object that begins at `at`.
fn field(json: &[u8], at: usize, wanted: &str) -> Result<(usize, usize), EncodeError> {
    let malformed = |offset, expected| EncodeError::Malformed { offset, expected };
    if json.get(at) != Some(&b'{') {
        return Err(malformed(at, "an object"));
    }
    let mut at = at;
    loop {
        // At the opening brace or the comma before the next name.
        let (name, colon): (String, usize) = value(json, at + 1).ok_or(malformed(at + 1, "a name"))?;
        let (IgnoredAny, end) = value(json, colon + 1).ok_or(malformed(colon + 1, "a value"))?;
        if name == wanted {
            return Ok((colon + 1, end));
        }
        match json.get(end) {
            Some(b',') => at = end,
            _ => return Err(malformed(end, "metadata with a resourceVersion")),
        }
    }
}

/// The JSON value that begins at `at`, and the offset of its end.
fn value<'a, T: Deserialize<'a>>(json: &'a [u8], at: usize) -> Option<(T, usize)> {
    let mut values = serde_json::Deserializer::from_slice(json.get(at..)?).into_iter::<T>();
    let value = values.next()?.ok()?;
    Some((value, at + values.byte_offset()))
}

#[cfg(test)]
mod tests {
    use crate::tree::json;
    use flatkube_format::sidecar::access;

    use super::*;
    use crate::resources::find;

    fn odd_objects() -> Vec<Value> {
        vec![
            json!({}),
            json!({"metadata": null, "data": {}}),
            json!({"metadata": {}}),
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}}),
            json!({"metadata": {"name": "b", "labels": {}, "annotations": {}, "finalizers": []}}),
            json!({"metadata": {"name": "naïve-Ω-日本", "labels": {"ü": "é", "a": ""}}, "data": {"{": "}", "\"": "\\"}}),
            json!({"metadata": {"name": "q\"uo\\te\n\u{1}", "annotations": {"metadata": "{\"resourceVersion\":\"7\"}"}}}),
            json!({"metadata": {"resourceVersion": "99", "uid": "u", "zzz": {"resourceVersion": "1"}, "null": null}}),
            json!({"zebra": 1, "Alpha": {"metadata": {"resourceVersion": "5"}}, "metadata": {"name": "c"}}),
            json!({"metadata": {"ownerReferences": [{"uid": "o1"}, {"uid": "o2"}], "managedFields": [{"fieldsV1": {"f:metadata": {}}}]}}),
        ]
    }

    #[test]
    fn the_revision_goes_where_the_splice_point_says() {
        let resource = find("", "v1", "configmaps").unwrap();
        for mut object in odd_objects() {
            let prepared = encode(resource, &object).unwrap();
            prepared.check().unwrap();
            assert!(prepared.json.starts_with(b"{\"metadata\":{"), "{object}");
            let [before, after] = prepared.halves().unwrap();
            let stored = [before, b"1234567", after].concat();
            let read: Value = serde_json::from_slice(&stored).unwrap();
            assert_eq!(
                read.pointer("/metadata/resourceVersion").unwrap(),
                "1234567",
                "{object}"
            );
            // Nothing else has changed, apart from nulls in metadata and the type, which the resource tells.
            let fields = object.as_object_mut().unwrap();
            fields.retain(|name, _| name != "kind" && name != "apiVersion");
            let metadata = fields.entry("metadata").or_insert(json!({}));
            if metadata.is_null() {
                *metadata = json!({});
            }
            metadata.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            metadata["resourceVersion"] = json!("1234567");
            assert_eq!(read, object);
        }
    }

    #[test]
    fn the_metadata_span_is_metadata_whatever_the_revision() {
        let resource = find("", "v1", "configmaps").unwrap();
        for object in odd_objects() {
            let prepared = encode(resource, &object).unwrap();
            let [before, after] = prepared.halves().unwrap();
            for revision in ["1", "42", "18446744073709551615"] {
                let stored = [before, revision.as_bytes(), after].concat();
                let sidecar = access(&prepared.sidecar).unwrap();
                let span = sidecar.metadata_span(revision.len());
                let metadata: Value = serde_json::from_slice(&stored[span]).unwrap();
                let whole: Value = serde_json::from_slice(&stored).unwrap();
                assert_eq!(metadata, whole["metadata"], "{object}");
            }
        }
    }

    #[test]
    fn a_sidecar_made_again_from_stored_json_is_the_same() {
        let resource = find("", "v1", "configmaps").unwrap();
        for object in odd_objects() {
            let prepared = encode(resource, &object).unwrap();
            let [before, after] = prepared.halves().unwrap();
            let stored = [before, b"77", after].concat();
            assert_eq!(archive("configmaps", &stored).unwrap(), prepared.sidecar, "{object}");
        }
    }

    #[test]
    fn bytes_that_are_no_stored_object_are_refused() {
        for bytes in [
            &b""[..],
            b"{",
            b"{}",
            b"[]",
            b"{\"metadata\":{}}",
            b"{\"metadata\":{\"resourceVersion\":7}}",
            b"{\"metadata\":{\"resourceVersion\":\"7\"}",
            b"{\"metadata\":1}",
            b"\xff\xfe",
        ] {
            assert!(
                archive("configmaps", bytes).is_err(),
                "{}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn labels_fields_and_owners_are_in_the_sidecar() {
        let pods = find("", "v1", "pods").unwrap();
        let pod = json!({
            "metadata": {"name": "p", "uid": "u", "creationTimestamp": "1970-01-02T00:00:00Z",
                "labels": {"b": "2", "a": "1"}, "ownerReferences": [{"uid": "o"}]},
            "spec": {"nodeName": "n", "hostNetwork": true},
            "status": {"podIPs": [{"ip": "1.2.3.4"}, {"ip": "::1"}]}
        });
        let prepared = encode(pods, &pod).unwrap();
        let sidecar = access(&prepared.sidecar).unwrap();
        assert_eq!(sidecar.label("a"), Some("1"));
        assert_eq!(sidecar.label("b"), Some("2"));
        assert_eq!(sidecar.field("spec.nodeName"), Some("n"));
        assert_eq!(sidecar.field("spec.hostNetwork"), Some("true"));
        assert_eq!(sidecar.field("status.phase"), Some(""));
        assert_eq!(sidecar.field("status.podIPs"), Some("1.2.3.4,::1"));
        assert_eq!(sidecar.field("metadata.name"), None);
        assert_eq!(sidecar.owners.len(), 1);
        assert_eq!(sidecar.created_at(), Some(86_400));
        assert_eq!(sidecar.uid.as_str(), "u");
    }
}
