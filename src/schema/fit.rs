//! Whether an object is one of its kind as it stands: the short way past a pass that would change nothing.

use super::plan::Plan;
use super::scalar;
use super::shape::{Schema, Shape, Type};
use crate::tree::{Map, Value};

/// Nesting beyond this is left to the pass, which refuses it.
const DEPTH_MAX: usize = 100;
/// So many structures are left to the pass, which counts exactly.
const STRUCTURES_MAX: usize = 1 << 15;

/// Whether a pass over `object` by its schema would surely find nothing and give it back as it is, but for fields that are
/// null: those are taken out here. `checked` is an object that passed before: what both share is not looked at again, and
/// costs nothing but the counting of its lists and maps.
pub(crate) fn fits(schema: Schema<'static>, object: &mut Value, checked: &Value) -> bool {
    let mut left = STRUCTURES_MAX;
    value(Type::Schema(schema), object, Some(checked), 0, &mut left)
}

fn value(ty: Type<'static>, value: &mut Value, checked: Option<&Value>, depth: usize, left: &mut usize) -> bool {
    if depth > DEPTH_MAX || *left == 0 {
        return false;
    }
    if checked.is_some_and(|checked| value.shares(checked)) {
        *left = left.saturating_sub(containers(value));
        return *left > 0;
    }
    if matches!(ty, Type::Any | Type::Object) {
        return match value {
            Value::Null | Value::Raw(_) => false,
            Value::Object(_) => is_shallow(value, depth),
            _ => matches!(ty, Type::Any) && is_shallow(value, depth),
        };
    }
    match (ty, value) {
        (Type::Integer(format), Value::Number(number)) => match number.as_i64() {
            Some(integer) => format != "int32" || i32::try_from(integer).is_ok(),
            None => false,
        },
        (Type::String("byte"), Value::String(text)) => scalar::base64(text) == Ok(None),
        (Type::Boolean, Value::Bool(_)) | (Type::Number(_), Value::Number(_)) | (Type::String(_), Value::String(_)) => {
            true
        }
        (Type::List(element), Value::Array(list)) => {
            *left -= 1;
            let before = checked.and_then(Value::as_array);
            list.iter_mut().enumerate().all(|(at, item)| {
                let checked = before.and_then(|before| before.get(at));
                self::value(element.ty(), item, checked, depth + 1, left)
            })
        }
        (Type::Map(element), Value::Object(map)) => {
            *left -= 1;
            map.iter_mut().all(|(name, value)| {
                let checked = checked.and_then(|checked| checked.get(name));
                self::value(element.ty(), value, checked, depth + 1, left)
            })
        }
        (Type::Schema(schema), value) => match (schema.shape(), value) {
            (Shape::Struct, Value::Object(map)) => {
                *left -= 1;
                fields(schema, map, checked.and_then(Value::as_object), depth, left)
            }
            (Shape::Quantity, Value::String(text)) => scalar::quantity(text.trim()).is_ok(),
            (Shape::Time, Value::String(text)) => scalar::time(text).is_ok_and(|time| time == text.as_str()),
            (Shape::MicroTime, Value::String(text)) => scalar::micro_time(text).is_ok_and(|time| time == text.as_str()),
            (Shape::IntOrString, Value::String(_)) => true,
            (Shape::IntOrString, Value::Number(number)) => {
                number.as_i64().is_some_and(|integer| i32::try_from(integer).is_ok())
            }
            _ => false,
        },
        _ => false,
    }
}

fn fields(schema: Schema<'static>, map: &mut Map, checked: Option<&Map>, depth: usize, left: &mut usize) -> bool {
    let plan = Plan::of(schema);
    let mut cursor = 0;
    let mut nulls = false;
    for (name, value) in map.iter_mut() {
        let Some(number) = plan.find_key(name, &mut cursor) else {
            return false;
        };
        if value.is_null() {
            nulls = true;
            continue;
        }
        let checked = checked.and_then(|checked| checked.get(name));
        if !self::value(plan.field(number).ty, value, checked, depth + 1, left) {
            return false;
        }
    }
    if nulls {
        map.retain(|_, value| !value.is_null());
    }
    true
}

/// How many lists and maps there are in a value, itself among them.
fn containers(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(containers).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(containers).sum::<usize>(),
        _ => 0,
    }
}

/// Whether a value of any kind, for which there are no rules, is no nest.
fn is_shallow(value: &Value, depth: usize) -> bool {
    depth <= DEPTH_MAX
        && match value {
            Value::Array(list) => list.iter().all(|item| is_shallow(item, depth + 1)),
            Value::Object(map) => map.values().all(|value| is_shallow(value, depth + 1)),
            _ => true,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{FieldValidation, check};
    use crate::tree::json;

    #[test]
    fn what_fits_is_what_a_pass_leaves_as_it_is() {
        let pods = Schema::of("", "v1", "Pod").unwrap();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1"}}}]}});
        let mut same = pod.clone();
        same["spec"]["nodeName"] = Value::Null;
        assert!(fits(pods, &mut same, &Value::Null));
        assert_eq!(same, pod);
        assert_eq!(
            check(pod.clone(), pods, FieldValidation::Strict, false).unwrap().value,
            pod
        );
        for (pointer, wrong) in [
            ("/spec/unknown", json!(1)),
            ("/spec/nodeName", json!(1)),
            ("/spec/containers/0/ports/0/containerPort", json!(1_u64 << 40)),
            ("/spec/containers/0/resources/limits/cpu", json!("much")),
            ("/spec/containers/0/resources/limits/cpu", json!(1)),
            ("/metadata/creationTimestamp", json!("2026-01-01T01:00:00+01:00")),
            ("/metadata/labels", json!({"a": null})),
            ("/metadata/finalizers", json!([null])),
        ] {
            let mut other = pod.clone();
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            other.pointer_mut(parent).unwrap()[field] = wrong;
            assert!(!fits(pods, &mut other, &pod), "{pointer}");
        }
    }

    #[test]
    fn what_was_checked_before_is_not_looked_at_again() {
        let pods = Schema::of("", "v1", "Pod").unwrap();
        let checked = json!({"spec": {"unknown": {"a": 1}}});
        let mut object = checked.clone();
        object["metadata"] = json!({"name": "p"});
        assert!(fits(pods, &mut object, &checked));
        object["spec"]["nodeName"] = "n".into();
        assert!(!fits(pods, &mut object, &checked));
    }
}
