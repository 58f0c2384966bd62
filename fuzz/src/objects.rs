//! Bodies of requests and what becomes of them: decoding by the schema, defaults, validation, the stored JSON and its
//! sidecar, the row of a Table.

use flatkube::resources::{self, Context, Resource, table};
use flatkube::schema::{self, Expected, FieldValidation, Schema, Syntax};
use flatkube::tree::Value;
use flatkube_format::sidecar;

use super::input::Input;
use super::patches::{note, plain};
use super::written::NOW_S;

pub(super) fn validation(byte: u8) -> FieldValidation {
    [FieldValidation::Ignore, FieldValidation::Warn, FieldValidation::Strict][usize::from(byte & 3) % 3]
}

/// The resource that a byte names, in its stored shape; `None` for one that is not stored.
fn stored(byte: u8) -> Option<&'static Resource> {
    let all = resources::all();
    all[usize::from(byte) % all.len()].stored_shape()
}

/// A body, in the syntax that the second byte names, for the resource that the first one names: it is refused, or it is an
/// object that decodes to itself; as a create it is refused, or stored; and the same object as an update changes nothing.
pub fn body(data: &[u8]) {
    let mut input = Input::new(data);
    let all = resources::all();
    let asked = &all[input.choice(all.len())];
    let how = input.byte();
    let syntax = [Syntax::Json, Syntax::Yaml, Syntax::Protobuf][usize::from(how >> 4) % 3];
    let expected = Expected {
        group: &asked.group,
        version: &asked.version,
        kind: &asked.kind,
    };
    let Ok(decoded) = schema::decode(input.rest(), syntax, &expected, validation(how)) else {
        return;
    };
    let json = decoded.value.to_json();
    let again = schema::decode(json.as_bytes(), Syntax::Json, &expected, FieldValidation::Strict);
    let again = again.unwrap_or_else(|rejected| panic!("{rejected}: {json}"));
    assert_eq!(again.value.to_json(), json, "what was decoded decodes to itself");

    let Some(shape) = asked.stored_shape() else { return };
    let mut value = resources::to_stored(asked, decoded.value);
    let namespace = value["metadata"]["namespace"].as_str().map(str::to_owned);
    let namespace = namespace
        .filter(|name| !name.is_empty())
        .or(shape.namespaced.then(|| "default".to_owned()));
    let context = Context {
        now_s: NOW_S,
        namespace: namespace.as_deref(),
        name: None,
        asked: Some(asked),
    };
    resources::set_requester(
        shape,
        &mut value,
        "someone",
        "uid",
        &[],
        &std::collections::BTreeMap::new(),
    );
    let prepared = resources::prepare_create_with(shape, &mut value, &context, |object| {
        if shape.group == asked.group && shape.version == asked.version {
            note(shape, "", None, object);
        }
    });
    if prepared.is_err() {
        return;
    }
    encoded(shape, &value);
    let value = read_back(shape, &value);
    let shown = resources::from_stored(asked, value.clone());
    let mut same = resources::to_stored(asked, Value::from(plain(&shown)));
    let name = value["metadata"]["name"].as_str().map(str::to_owned);
    let context = Context {
        name: name.as_deref(),
        ..context
    };
    let updated = resources::prepare_update_with(shape, None, &value, &mut same, &context, |object| {
        if std::ptr::eq(shape, asked) {
            note(shape, "", Some(&value), object);
        }
    });
    updated.unwrap_or_else(|refusal| panic!("{refusal:?}: {}", value.to_json()));
    assert_eq!(plain(&same), plain(&value), "the same object again changes nothing");
}

/// The object as a request finds it that comes after it was stored.
pub(super) fn read_back(resource: &'static Resource, object: &Value) -> Value {
    let prepared = resources::encode(resource, object).expect("an object");
    let [before, after] = prepared.halves().expect("the place for the revision is in it");
    let schema = Schema::of(&resource.group, &resource.version, &resource.kind).expect("a built-in kind has one");
    let mut value = schema::read_stored(&[before, b"4711", after].concat(), schema).expect("it is JSON");
    let fields = value.as_object_mut().expect("an object");
    fields.insert("kind", resource.kind.clone().into());
    fields.insert("apiVersion", resource.api_version().into());
    value
}

/// Encodes an object and compares what is stored with a plain parse of it: the sidecar made while writing is the one made
/// of the stored JSON; labels and owners are those of the JSON; the row is JSON with a cell a column.
pub(super) fn encoded(resource: &'static Resource, object: &Value) {
    let prepared = resources::encode(resource, object).expect("an object");
    let [before, after] = prepared.halves().expect("the place for the revision is in it");
    let stored = [before, b"4711", after].concat();
    let archived = resources::archive(&resource.storage, &stored);
    let archived = archived.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&stored)));
    let sidecar = sidecar::access(&prepared.sidecar).expect("it was just made");
    assert_eq!(
        sidecar::access(&archived).map(row_of),
        Ok(row_of(sidecar)),
        "rows made while writing and from the stored JSON"
    );
    assert_eq!(
        archived, prepared.sidecar,
        "sidecars made while writing and from the stored JSON"
    );

    let json: serde_json::Value = serde_json::from_slice(&stored).expect("JSON");
    let metadata = &json["metadata"];
    assert_eq!(metadata["resourceVersion"], "4711");
    let labels = metadata["labels"].as_object().into_iter().flatten();
    let labels: Vec<(&str, &str)> = labels
        .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
        .collect();
    let archived: Vec<(&str, &str)> = sidecar
        .labels
        .iter()
        .map(|pair| (pair.name.as_str(), pair.value.as_str()))
        .collect();
    assert_eq!(archived, labels);
    for (name, value) in labels {
        assert_eq!(sidecar.label(name), Some(value));
    }
    assert_eq!(sidecar.uid.as_str(), metadata["uid"].as_str().unwrap_or(""));
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let owners: Vec<&str> = owners.map(|owner| owner["uid"].as_str().unwrap_or("")).collect();
    assert!(sidecar.owners.iter().map(std::convert::AsRef::as_ref).eq(owners));
    let span = sidecar.metadata_span(4);
    let shown: serde_json::Value = serde_json::from_slice(&stored[span]).expect("metadata is JSON");
    assert_eq!(&shown, metadata);

    let row = row_of(sidecar);
    let row: serde_json::Value =
        serde_json::from_str(&format!("{row}null}}")).unwrap_or_else(|error| panic!("{error}: {row}"));
    assert_eq!(row["cells"].as_array().map(Vec::len), Some(resource.columns.len()));
}

fn row_of(sidecar: &sidecar::ArchivedSidecar) -> String {
    let mut row = Vec::new();
    table::write_row(sidecar, NOW_S + 90, 4711, &mut row);
    assert!(row.len() <= table::row_len_max(sidecar));
    String::from_utf8(row).expect("rows are text")
}

/// An object that no schema has seen: whatever is in the JSON, encoding it twice says the same.
pub fn stored_object(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(resource) = stored(input.byte()) else { return };
    let json = input.rest();
    let archived = resources::archive(&resource.storage, json);
    if let Ok(archived) = &archived {
        sidecar::access(archived).expect("it was just made");
    }
    // As it is read from the store: `1e3` is written `1000` and is an integer from then on. Schemas leave no such number to
    // those who make rows: it is refused where an integer is wanted, and written as one in custom objects.
    let written = serde_json::from_slice::<Value>(json).map(|value| value.to_json());
    let Ok(mut value) = written.and_then(|json| serde_json::from_str::<Value>(&json)) else {
        return;
    };
    // The store gives it its own.
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    if resources::encode(resource, &value).is_ok() {
        encoded(resource, &value);
    }
}

/// A sidecar of any bytes as a row, at moments before, at and far after its times.
pub fn row(data: &[u8]) {
    let Ok(sidecar) = sidecar::access(data) else { return };
    for now_s in [i64::MIN, -1, 0, NOW_S, i64::MAX] {
        for revision in [0, u64::MAX] {
            let mut row = Vec::new();
            table::write_row(sidecar, now_s, revision, &mut row);
            assert!(row.len() <= table::row_len_max(sidecar));
        }
    }
}

/// Protobuf of any kind, without and with its head in front.
pub fn protobuf(data: &[u8]) {
    let mut input = Input::new(data);
    let all = resources::all();
    let asked = &all[input.choice(all.len())];
    let expected = Expected {
        group: &asked.group,
        version: &asked.version,
        kind: &asked.kind,
    };
    let _ = schema::protobuf_to_json(input.rest());
    // runtime.Unknown: 1 = TypeMeta (1 = apiVersion, 2 = kind), 2 = the object's bytes.
    let text = |number: u8, text: &str| [&[number << 3 | 2, text.len() as u8], text.as_bytes()].concat();
    let head = [text(1, &asked.api_version()), text(2, &asked.kind)].concat();
    let mut body = [b"k8s\0", &[1 << 3 | 2, head.len() as u8][..], &head, &[2 << 3 | 2]].concat();
    let mut len = input.rest().len();
    while len >= 0x80 {
        body.push(len as u8 | 0x80);
        len >>= 7;
    }
    body.push(len as u8);
    body.extend_from_slice(input.rest());
    let Ok(decoded) = schema::decode(&body, Syntax::Protobuf, &expected, FieldValidation::Strict) else {
        return;
    };
    let json = decoded.value.to_json();
    let again = schema::decode(json.as_bytes(), Syntax::Json, &expected, FieldValidation::Strict);
    let again = again.unwrap_or_else(|rejected| panic!("{rejected}: {json}"));
    assert_eq!(
        again.value.to_json(),
        json,
        "protobuf and JSON of an object say the same"
    );
    assert!(Schema::of(&asked.group, &asked.version, &asked.kind).is_some());
}
