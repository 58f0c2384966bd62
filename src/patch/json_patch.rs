//! JSON Patch, RFC 6902, with the liberties that kube-apiserver takes: `replace` of a key that is missing adds it, what
//! stands before the first slash of a path is ignored, negative indexes count from the end.

use super::PatchError;
use crate::schema::{decode_value, go_word};
use crate::tree::{List, Map, Text, Value};

/// More operations than this are refused.
const OPERATIONS_MAX: usize = 10_000;

/// What all `copy` operations of a patch may copy together, in bytes of JSON, so that doubling ends early.
const COPIED_BYTES_MAX: usize = 3 << 20;

/// Containers inside each other in the document, at most: what is deeper could not be read back as JSON, and soon not
/// even be dropped without overflowing the stack.
const DEPTH_MAX: usize = 127;

/// Array elements that all operations of a patch may move aside or close up, so that 10,000 operations at the front of
/// a long array do not keep a thread for a minute.
const SHIFTED_MAX: usize = 1 << 24;

/// What the operations of a patch have cost so far, and how deep they may have made the document.
struct Effort {
    copied: usize,
    shifted: usize,
    /// No container of the document lies deeper than this.
    depth: usize,
}

impl Effort {
    fn shift(&mut self, elements: usize) -> Result<(), String> {
        self.shifted += elements;
        if self.shifted > SHIFTED_MAX {
            return Err(format!("more than {SHIFTED_MAX} array elements moved in one patch"));
        }
        Ok(())
    }

    /// A value whose containers lie at most `depth` deep was put at `path`. Measures the document only when the sum says
    /// that it may be too deep, which values of ordinary depth at ordinary paths never do.
    fn deepen(&mut self, document: &Value, path: &str, depth: usize) -> Result<(), String> {
        let bound = path.bytes().filter(|byte| *byte == b'/').count() + depth;
        self.depth = self.depth.max(bound);
        if self.depth > DEPTH_MAX {
            self.depth = depth_of(document);
        }
        if self.depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} levels in one document"));
        }
        Ok(())
    }
}

/// How many containers lie inside each other at most. Recurses: the value is at most twice [`DEPTH_MAX`] deep.
fn depth_of(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth_of).max().unwrap_or(0),
        Value::Object(object) => 1 + object.values().map(depth_of).max().unwrap_or(0),
        _ => 0,
    }
}

/// One operation, as it was sent; its name is looked at when its turn comes.
#[derive(Debug)]
pub(super) struct Operation {
    op: Text,
    path: Option<Text>,
    from: Option<Text>,
    value: Option<Value>,
}

/// Decodes the body of a patch; also what its fields are found to be (unknown, duplicate), if that is of interest:
/// kube-apiserver then decodes it twice, the first time as something else.
pub(super) fn decode(body: &[u8], attentive: bool) -> Result<(Vec<Operation>, Vec<String>), PatchError> {
    let bad = |text: String| {
        let before = if attentive { "error decoding patch: " } else { "" };
        PatchError::BadRequest(format!("{before}{text}"))
    };
    let (list_type, item_type) = if attentive {
        ("[]handlers.jsonPatchOp", "handlers.jsonPatchOp")
    } else {
        ("jsonpatch.Patch", "jsonpatch.Operation")
    };
    let (value, mut findings) = decode_value(body).map_err(bad)?;
    let items = match value {
        Value::Array(items) => items,
        Value::Null => List::new(),
        other => {
            let found = go_word(&other);
            return Err(bad(format!(
                "json: cannot unmarshal {found} into Go value of type {list_type}"
            )));
        }
    };
    if items.len() > OPERATIONS_MAX {
        let (most, got) = (OPERATIONS_MAX, items.len());
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {most}, got {got}"
        )));
    }
    let mut operations = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let mut object = match item {
            Value::Object(object) => object,
            Value::Null => Map::new(),
            other => {
                let found = go_word(&other);
                return Err(bad(format!(
                    "json: cannot unmarshal {found} into Go value of type {item_type}"
                )));
            }
        };
        let mut text = |name: &str| match object.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            // Left for its turn, which it does not survive.
            Some(_) if !attentive => Ok(None),
            Some(other) => {
                let found = go_word(&other);
                Err(bad(format!(
                    "json: cannot unmarshal {found} into Go struct field jsonPatchOp.{name} of type string"
                )))
            }
        };
        let (op, path, from) = (text("op")?.unwrap_or_default(), text("path")?, text("from")?);
        let value = object.remove("value");
        findings.extend(object.keys().map(|name| format!("unknown field \"[{index}].{name}\"")));
        operations.push(Operation { op, path, from, value });
    }
    let findings = findings
        .into_iter()
        .map(|finding| format!("json patch {finding}"))
        .collect();
    Ok((operations, findings))
}

/// Applies the operations in order; all or none.
pub(super) fn apply(mut document: Value, operations: &[Operation]) -> Result<Value, PatchError> {
    let mut effort = Effort {
        copied: 0,
        shifted: 0,
        depth: depth_of(&document),
    };
    for operation in operations {
        one(&mut document, operation, &mut effort).map_err(PatchError::NotApplicable)?;
    }
    Ok(document)
}

fn one(document: &mut Value, operation: &Operation, effort: &mut Effort) -> Result<(), String> {
    let missing = |what: &str| format!("{} operation has no {what}", operation.op);
    let path = || operation.path.as_deref().ok_or_else(|| missing("path"));
    let from = || operation.from.as_deref().ok_or_else(|| missing("from"));
    let value = || operation.value.clone().unwrap_or(Value::Null);
    match operation.op.as_str() {
        "add" | "replace" => {
            let (path, value) = (path()?, value());
            let depth = depth_of(&value);
            if operation.op == "add" {
                add(document, path, value, effort)?;
            } else {
                replace(document, path, value)?;
            }
            effort.deepen(document, path, depth)
        }
        "remove" => remove(document, path()?, effort).map(|_| ()),
        "move" => {
            let moved = remove(document, from()?, effort)?;
            let (path, depth) = (path()?, effort.depth);
            add(document, path, moved, effort)?;
            effort.deepen(document, path, depth)
        }
        "copy" => {
            let found = find(document, from()?).ok_or_else(|| format!("copy: nothing at {:?}", operation.from))?;
            let value = found.clone();
            effort.copied += length(&value);
            if effort.copied > COPIED_BYTES_MAX {
                return Err(format!("copy: more than {COPIED_BYTES_MAX} bytes in one patch"));
            }
            let (path, depth) = (path()?, depth_of(&value));
            add(document, path, value, effort)?;
            effort.deepen(document, path, depth)
        }
        "test" => {
            let path = path()?;
            let wanted = operation.value.as_ref().unwrap_or(&Value::Null);
            match find(document, path) {
                Some(found) if found == wanted => Ok(()),
                None if wanted.is_null() => Ok(()),
                _ => Err(format!("testing value {path} failed")),
            }
        }
        other => Err(format!("Unexpected kind: {other}")),
    }
}

/// The container that `path` leads to, and the last part of the path.
fn parent<'d>(document: &'d mut Value, path: &str) -> Result<(&'d mut Value, String), String> {
    let missing = || format!("doc is missing path: \"{path}\"");
    let mut parts = path.split('/');
    let last = parts.next_back().ok_or_else(missing)?;
    if parts.next().is_none() {
        return Err(missing()); // no slash at all
    }
    let mut container = document;
    for part in parts {
        container = step_mut(container, &unescape(part)).ok_or_else(missing)?;
    }
    if container.is_object() || container.is_array() {
        Ok((container, unescape(last)))
    } else {
        Err(missing())
    }
}

fn find<'d>(document: &'d Value, path: &str) -> Option<&'d Value> {
    if path.is_empty() {
        return Some(document);
    }
    path.split('/').skip(1).try_fold(document, |container, part| {
        let part = unescape(part);
        match container {
            Value::Object(object) => object.get(&part),
            Value::Array(items) => items.get(index(&part, items.len())?),
            _ => None,
        }
    })
}

fn step_mut<'d>(container: &'d mut Value, part: &str) -> Option<&'d mut Value> {
    match container {
        Value::Object(object) => object.get_mut(part),
        Value::Array(items) => {
            let at = index(part, items.len())?;
            items.get_mut(at)
        }
        _ => None,
    }
}

fn add(document: &mut Value, path: &str, value: Value, effort: &mut Effort) -> Result<(), String> {
    let (container, key) = parent(document, path)?;
    match container {
        Value::Object(object) => {
            effort.shift(moved(object, &key))?;
            object.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = index(&key, items.len() + 1).ok_or_else(|| format!("unable to access invalid index: {key}"))?;
            effort.shift(items.len() - at)?;
            items.insert(at, value);
        }
        _ => return Err(format!("doc is missing path: \"{path}\"")),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str, effort: &mut Effort) -> Result<Value, String> {
    let (container, key) = parent(document, path)?;
    let removed = match container {
        Value::Object(object) => {
            effort.shift(moved(object, &key))?;
            object.remove(&key)
        }
        Value::Array(items) => match index(&key, items.len()) {
            Some(at) => {
                effort.shift(items.len() - at)?;
                Some(items.remove(at))
            }
            None => None,
        },
        _ => None,
    };
    removed.ok_or_else(|| format!("unable to remove nonexistent key: {key}"))
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let (container, key) = parent(document, path)?;
    match container {
        Value::Object(object) => {
            object.insert(key, value);
            Ok(())
        }
        other => {
            let slot = step_mut(other, &key).ok_or_else(|| format!("replace: doc is missing key: {path}"))?;
            *slot = value;
            Ok(())
        }
    }
}

/// How much is moved when an entry of an object comes or goes, in elements of a list: entries lie side by side, too, and
/// are moved all at once.
fn moved(object: &Map, key: &str) -> usize {
    const AT_ONCE: usize = 8;
    match object.keys().next_back() {
        Some(last) if last.as_str() >= key => object.len() / AT_ONCE,
        _ => 0,
    }
}

/// Index below `length`; negative ones count from the end.
fn index(part: &str, length: usize) -> Option<usize> {
    let index: i64 = part.parse().ok()?;
    let index = if index < 0 {
        usize::try_from(index + length as i64).ok()?
    } else {
        usize::try_from(index).ok()?
    };
    (index < length).then_some(index)
}

fn unescape(part: &str) -> String {
    if part.contains('~') {
        part.replace("~1", "/").replace("~0", "~")
    } else {
        part.to_owned()
    }
}

/// About how long the value is as JSON.
fn length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| length(item) + 1).sum::<usize>(),
        Value::Object(object) => {
            2 + object
                .iter()
                .map(|(key, item)| key.len() + 4 + length(item))
                .sum::<usize>()
        }
        _ => 4,
    }
}
