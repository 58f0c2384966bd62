//! Objects that the API server itself makes: namespaces, the Service `kubernetes`, system priority classes, flow control.

use crate::tree::Value;

use super::lookup::text;
use super::{Context, Resource, find, prepare_create};

/// The objects of `facts/bootstrap.jsonl`, ready to be written where they are missing, in an order in which each can be
/// written: namespaces first. With uid and creation time; status included.
pub fn bootstrap(now_s: i64) -> Vec<(&'static Resource, Value)> {
    include_str!("facts/bootstrap.jsonl")
        .lines()
        .filter_map(|line| object(line, now_s))
        .collect()
}

fn object(line: &str, now_s: i64) -> Option<(&'static Resource, Value)> {
    let mut line: Value = serde_json::from_str(line).ok()?;
    let resource = find(
        text(&line, "/resource/0"),
        text(&line, "/resource/1"),
        text(&line, "/resource/2"),
    )?;
    let mut object = line.get_mut("object")?.take();
    let mut status = object.get("status").cloned();
    if let Some(Value::Array(conditions)) = status.as_mut().and_then(|status| status.get_mut("conditions")) {
        for condition in conditions {
            condition["lastTransitionTime"] = super::strategy::time_text(now_s).into();
        }
    }
    let namespace = text(&object, "/metadata/namespace").to_owned();
    let namespace = Some(namespace.as_str()).filter(|namespace| !namespace.is_empty());
    prepare_create(
        resource,
        &mut object,
        &Context {
            now_s,
            namespace,
            name: None,
        },
    )
    .ok()?;
    if let Some(status) = status {
        object["status"] = status;
    }
    Some((resource, object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_of_the_table_is_made() {
        let objects = bootstrap(1_767_300_000);
        assert_eq!(objects.len(), include_str!("facts/bootstrap.jsonl").lines().count());
        let (resource, first) = &objects[0];
        assert_eq!((resource.kind, text(first, "/metadata/name")), ("Namespace", "default"));
        for (resource, object) in &objects {
            super::super::encode(resource, object).unwrap();
        }
    }
}
