//! The entries that a change begins with: those that are known, or those that the client sent.

use super::fields::Fields;
use super::{Request, identity, text};
use crate::tree::{Map, Value};

/// The entries that a change begins with.
pub(super) fn base(live: Option<&Value>, new: &Value, request: &Request<'_>) -> Vec<Value> {
    let known = live.and_then(|live| live["metadata"]["managedFields"].as_array());
    let known = || known.map(|known| known.to_vec()).unwrap_or_default();
    let Some(sent) = new["metadata"]["managedFields"].as_array() else {
        return known();
    };
    let forgets = match sent.as_slice() {
        [] => true,
        [entry] => entry.as_object().is_some_and(Map::is_empty),
        _ => false,
    };
    // Through a subresource nobody sets managers.
    if !request.subresource.is_empty() {
        known()
    } else if forgets {
        Vec::new()
    } else {
        let live = live.map_or(&Value::Null, |live| &live["metadata"]["managedFields"]);
        if is_same(live, sent) {
            return known();
        }
        well_formed(sent).unwrap_or_else(known)
    }
}

/// Whether the entries that were sent are those that are known.
fn is_same(known: &Value, sent: &[Value]) -> bool {
    let Some(known) = known.as_array() else { return false };
    let is_same = |(known, sent): (&Value, &Value)| {
        let (Some(known), Some(sent)) = (known.as_object(), sent.as_object()) else {
            return false;
        };
        known.len() == sent.len()
            && known.iter().all(|(name, known)| match (known, sent.get(name)) {
                (Value::Raw(json), Some(sent @ Value::Object(_))) => sent.to_json() == json.as_str(),
                (known, sent) => Some(known) == sent,
            })
    };
    known.len() == sent.len() && known.iter().zip(sent).all(is_same)
}

/// The entries that a client sent, as they are stored. `None` unless all are well-formed.
fn well_formed(sent: &[Value]) -> Option<Vec<Value>> {
    let mut entries: Vec<Value> = Vec::with_capacity(sent.len());
    for entry in sent {
        let operation = text(entry, "operation");
        if !matches!(operation, "Apply" | "Update")
            || text(entry, "apiVersion").is_empty()
            || text(entry, "fieldsType") != "FieldsV1"
        {
            return None;
        }
        let fields = Fields::checked(&entry["fieldsV1"])?;
        let mut entry = entry.clone();
        entry["fieldsV1"] = fields.write();
        entries.push(entry);
    }
    // Of entries of one manager the last one counts.
    let mut seen = std::collections::HashSet::new();
    let mut unique: Vec<Value> = entries
        .into_iter()
        .rev()
        .filter(|entry| seen.insert(identity(entry).map(str::to_owned)))
        .collect();
    unique.reverse();
    Some(unique)
}
