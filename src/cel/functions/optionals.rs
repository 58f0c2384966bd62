//! Optional values.

use super::super::value::{Failure, Outcome, Val};
use super::{Price, Row};

pub(super) const ROWS: &[Row] = &[
    ("optional.of", false, Price::One, |_, args| match args {
        [value] => Some(Ok(Val::some(value.clone()))),
        _ => None,
    }),
    ("optional.ofNonZeroValue", false, Price::One, |_, args| match args {
        [value] if is_zero(value) => Some(Ok(Val::Optional(None))),
        [value] => Some(Ok(Val::some(value.clone()))),
        _ => None,
    }),
    ("optional.none", false, Price::One, |_, _| Some(Ok(Val::Optional(None)))),
    ("hasValue", true, Price::One, |_, args| match args {
        [Val::Optional(value)] => Some(Ok(Val::Bool(value.is_some()))),
        _ => None,
    }),
    ("value", true, Price::One, |_, args| match args {
        [Val::Optional(Some(value))] => Some(Ok((**value).clone())),
        [Val::Optional(None)] => Some(Err(Failure::told("optional.none() dereference"))),
        _ => None,
    }),
    ("or", true, Price::One, |_, args| match args {
        [Val::Optional(None), other @ Val::Optional(_)] => Some(Ok(other.clone())),
        [value @ Val::Optional(_), Val::Optional(_)] => Some(Ok(value.clone())),
        _ => None,
    }),
    ("orValue", true, Price::One, |_, args| match args {
        [Val::Optional(None), other] => Some(Ok(other.clone())),
        [Val::Optional(Some(value)), _] => Some(Ok((**value).clone())),
        _ => None,
    }),
    ("optional.unwrap", false, Price::Listed, |_, args| unwrapped(args)),
    ("unwrapOpt", true, Price::Listed, |_, args| unwrapped(args)),
    ("first", true, Price::One, |_, args| match args {
        [Val::List(list)] => Some(
            list.get(0)
                .transpose()
                .map(|item| item.map_or(Val::Optional(None), Val::some)),
        ),
        _ => None,
    }),
    ("last", true, Price::One, |_, args| match args {
        [Val::List(list)] => {
            let last = list.len().checked_sub(1).and_then(|last| list.get(last));
            Some(last.transpose().map(|item| item.map_or(Val::Optional(None), Val::some)))
        }
        _ => None,
    }),
];

/// What of a list of optional values there is.
fn unwrapped<'a>(args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let [Val::List(list)] = args else { return None };
    let mut items = Vec::with_capacity(list.len());
    for item in list.iter() {
        match item {
            Ok(Val::Optional(Some(value))) => items.push((*value).clone()),
            Ok(Val::Optional(None)) => {}
            Ok(_) => return None,
            Err(failure) => return Some(Err(failure)),
        }
    }
    Some(Ok(Val::list(items)))
}

fn is_zero(value: &Val<'_>) -> bool {
    match value {
        Val::Null | Val::Optional(None) => true,
        Val::Bool(value) => !value,
        Val::Int(number) | Val::Duration(number) => *number == 0,
        Val::Uint(number) => *number == 0,
        Val::Double(number) => *number == 0.0,
        Val::String(text) => text.is_empty(),
        Val::Bytes(bytes) => bytes.is_empty(),
        Val::List(list) => list.len() == 0,
        Val::Map(map) => map.len() == 0,
        _ => false,
    }
}
