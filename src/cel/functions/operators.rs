//! Operators: arithmetic, comparison, equality, indexes.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::rc::Rc;

use super::super::machine::{Machine, WORK_VALUE};
use super::super::shape::{ListSort, ShapeKind, escaped};
use super::super::types::Type;
use super::super::value::{Failure, Joined, List, Map, Outcome, Val};
use super::{Price, Row, times};
use crate::tree;

pub(super) const ROWS: &[Row] = &[
    ("_+_", false, Price::Added, add),
    ("_-_", false, Price::One, subtract),
    ("_*_", false, Price::One, |_, args| {
        arithmetic(args, i64::checked_mul, u64::checked_mul, |a, b| a * b)
    }),
    ("_/_", false, Price::One, |_, args| {
        by_zero(args, "division by zero").or_else(|| arithmetic(args, i64::checked_div, u64::checked_div, |a, b| a / b))
    }),
    ("_%_", false, Price::One, |_, args| match args {
        [Val::Int(_) | Val::Uint(_), Val::Int(_) | Val::Uint(_)] => by_zero(args, "modulus by zero")
            .or_else(|| arithmetic(args, |a, b| Some(a.wrapping_rem(b)), u64::checked_rem, |a, _| a)),
        _ => None,
    }),
    ("-_", false, Price::One, |_, args| match args {
        [Val::Int(number)] => Some(number.checked_neg().map(Val::Int).ok_or_else(int_overflow)),
        [Val::Double(number)] => Some(Ok(Val::Double(-number))),
        _ => None,
    }),
    ("!_", false, Price::One, |_, args| match args {
        [Val::Bool(value)] => Some(Ok(Val::Bool(!value))),
        _ => None,
    }),
    ("_==_", false, Price::Smaller, |machine, args| match args {
        [one, other] => Some(equal(machine, one, other).map(Val::Bool)),
        _ => None,
    }),
    ("_!=_", false, Price::Smaller, |machine, args| match args {
        [one, other] => Some(equal(machine, one, other).map(|equal| Val::Bool(!equal))),
        _ => None,
    }),
    ("_<_", false, Price::Compared, |machine, args| {
        ordered(machine, args, Ordering::is_lt)
    }),
    ("_<=_", false, Price::Compared, |machine, args| {
        ordered(machine, args, Ordering::is_le)
    }),
    ("_>_", false, Price::Compared, |machine, args| {
        ordered(machine, args, Ordering::is_gt)
    }),
    ("_>=_", false, Price::Compared, |machine, args| {
        ordered(machine, args, Ordering::is_ge)
    }),
    ("_[_]", false, Price::One, index),
    ("_[?_]", false, Price::One, optional_index),
    ("@in", false, Price::Within, within),
];

/// The error of whole numbers that became too large or too small.
pub(super) fn int_overflow() -> Failure {
    Failure::told("integer overflow")
}

fn uint_overflow() -> Failure {
    Failure::told("unsigned integer overflow")
}

/// Two numbers of one type.
pub(super) fn arithmetic<'a>(
    args: &[Val<'a>],
    ints: impl Fn(i64, i64) -> Option<i64>,
    uints: impl Fn(u64, u64) -> Option<u64>,
    doubles: impl Fn(f64, f64) -> f64,
) -> Option<Outcome<'a>> {
    match args {
        [Val::Int(one), Val::Int(other)] => Some(ints(*one, *other).map(Val::Int).ok_or_else(int_overflow)),
        [Val::Uint(one), Val::Uint(other)] => Some(uints(*one, *other).map(Val::Uint).ok_or_else(uint_overflow)),
        [Val::Double(one), Val::Double(other)] => Some(Ok(Val::Double(doubles(*one, *other)))),
        _ => None,
    }
}

fn by_zero<'a>(args: &[Val<'a>], what: &str) -> Option<Outcome<'a>> {
    matches!(args.get(1), Some(Val::Int(0) | Val::Uint(0))).then(|| Err(Failure::told(what)))
}

pub(super) fn add<'a>(machine: &mut Machine<'a>, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    match args {
        [Val::String(one), Val::String(other)] => Some(
            machine
                .work((one.len() + other.len()) as u64)
                .map(|()| Val::text([&**one, &**other].concat())),
        ),
        [Val::Bytes(one), Val::Bytes(other)] => Some(
            machine
                .work((one.len() + other.len()) as u64)
                .map(|()| Val::Bytes([&**one, &**other].concat().into())),
        ),
        [Val::List(one), Val::List(other)] => Some(joined(machine, one, other)),
        [
            Val::Duration(_) | Val::Timestamp(_),
            Val::Duration(_) | Val::Timestamp(_),
        ] => times::add(args),
        _ => arithmetic(args, i64::checked_add, u64::checked_add, |a, b| a + b),
    }
}

fn subtract<'a>(_: &mut Machine<'a>, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    times::subtract(args).or_else(|| arithmetic(args, i64::checked_sub, u64::checked_sub, |a, b| a - b))
}

/// Lists up to this length are copied when they are joined.
const COPIED_MAX: usize = 64;
/// How deep lists are joined within before they are copied, too.
const JOINED_DEPTH_MAX: u16 = 64;

/// One list after another; sets and lists with keys are merged.
fn joined<'a>(machine: &mut Machine<'a>, one: &List<'a>, other: &List<'a>) -> Outcome<'a> {
    if *one.sort() != ListSort::Atomic {
        return merged(machine, one, other);
    }
    if one.len() == 0 {
        return Ok(Val::List(other.clone()));
    }
    if other.len() == 0 {
        return Ok(Val::List(one.clone()));
    }
    let len = one.len().saturating_add(other.len());
    let depth_of = |list: &List<'_>| match list {
        List::Joined(joined) => joined.depth,
        _ => 0,
    };
    let depth = 1 + depth_of(one).max(depth_of(other));
    if len > COPIED_MAX && depth <= JOINED_DEPTH_MAX {
        return Ok(Val::List(List::Joined(Rc::new(Joined {
            first: one.clone(),
            second: other.clone(),
            len,
            depth,
        }))));
    }
    if len > COPIED_MAX {
        machine.charge(len as u64)?;
    }
    let items: Result<Vec<_>, _> = one.iter().chain(other.iter()).collect();
    Ok(Val::List(List::Made {
        items: Rc::new(items?),
        shape: one.shape(),
    }))
}

/// A set with what else is in another; a list with keys whose items are replaced by those of another with the same keys.
fn merged<'a>(machine: &mut Machine<'a>, one: &List<'a>, other: &List<'a>) -> Outcome<'a> {
    machine.work(WORK_VALUE * (one.len().saturating_add(other.len())) as u64)?;
    let sort = one.sort();
    let mut places = HashMap::new();
    let mut items = Vec::with_capacity(one.len());
    for (at, item) in one.iter().chain(other.iter()).enumerate() {
        let item = item?;
        let key = key_of(machine, &item, sort)?;
        match places.get(&key) {
            None => {
                places.insert(key, items.len());
                items.push(item);
            }
            Some(place) if at >= one.len() && *sort != ListSort::Set => items[*place] = item,
            // What a list has twice, against its sort, it keeps.
            Some(_) if at < one.len() => items.push(item),
            Some(_) => {}
        }
    }
    Ok(Val::List(List::Made {
        items: Rc::new(items),
        shape: one.shape(),
    }))
}

/// What tells an item of a set, or of a list with keys, from others.
fn key_of<'a>(machine: &mut Machine<'a>, item: &Val<'a>, sort: &ListSort) -> Result<String, Failure> {
    let mut key = String::new();
    match sort {
        ListSort::Map(names) => {
            let Val::Map(map) = item else {
                return Err(Failure::told(
                    "unexpected data format for element of array with x-kubernetes-list-type=map",
                ));
            };
            for name in names {
                match map {
                    Map::Tree { map, .. } => {
                        if let Some(value) = map.get(name) {
                            key.push_str(&value.to_json());
                        }
                    }
                    other => {
                        if let Some(value) = other.field(name) {
                            write_scalar(&value?, &mut key);
                        }
                    }
                }
                key.push('\n');
            }
        }
        _ => write_scalar(item, &mut key),
    }
    machine.work(key.len() as u64)?;
    Ok(key)
}

/// A scalar so that equal ones are written alike, as JSON does.
fn write_scalar(value: &Val<'_>, out: &mut String) {
    use std::fmt::Write;
    let _ = match value {
        Val::String(text) => write!(out, "{}", tree::Value::from(&**text)),
        Val::Int(number) => write!(out, "{number}"),
        Val::Uint(number) => write!(out, "{number}"),
        Val::Bool(value) => write!(out, "{value}"),
        other => write!(out, "{other:?}"),
    };
}

/// Whether two values are equal. Values of different types are not; numbers are compared by what they count.
pub(in super::super) fn equal<'a>(machine: &mut Machine<'a>, one: &Val<'a>, other: &Val<'a>) -> Result<bool, Failure> {
    machine.work(WORK_VALUE)?;
    Ok(match (one, other) {
        (Val::Null, Val::Null) => true,
        (Val::Bool(one), Val::Bool(other)) => one == other,
        (Val::String(one), Val::String(other)) => {
            machine.work(one.len().min(other.len()) as u64 / 8)?;
            **one == **other
        }
        (Val::Bytes(one), Val::Bytes(other)) => {
            machine.work(one.len().min(other.len()) as u64 / 8)?;
            one == other
        }
        (Val::Int(_) | Val::Uint(_) | Val::Double(_), Val::Int(_) | Val::Uint(_) | Val::Double(_)) => {
            compare_numbers(one, other) == Some(Ordering::Equal)
        }
        (Val::Duration(one), Val::Duration(other)) => one == other,
        (Val::Timestamp(one), Val::Timestamp(other)) => one == other,
        (Val::List(one), Val::List(other)) => equal_lists(machine, one, other)?,
        (Val::Map(one), Val::Map(other)) => equal_maps(machine, one, other)?,
        (Val::Optional(one), Val::Optional(other)) => match (one, other) {
            (None, None) => true,
            (Some(one), Some(other)) => equal(machine, one, other)?,
            _ => false,
        },
        (Val::Type(one), Val::Type(other)) => {
            std::mem::discriminant(&**one) == std::mem::discriminant(&**other)
                && match (&**one, &**other) {
                    (Type::Opaque(one), Type::Opaque(other)) => one == other,
                    _ => true,
                }
        }
        (Val::Quantity(one), Val::Quantity(other)) => one == other,
        (Val::Url(one), Val::Url(other)) => one == other,
        (Val::Ip(one), Val::Ip(other)) => one == other,
        (Val::Cidr(one, bits), Val::Cidr(other, other_bits)) => one == other && bits == other_bits,
        (Val::Semver(one), Val::Semver(other)) => one.cmp(other).is_eq(),
        (Val::Format(one), Val::Format(other)) => one.name == other.name,
        _ => false,
    })
}

fn equal_lists<'a>(machine: &mut Machine<'a>, one: &List<'a>, other: &List<'a>) -> Result<bool, Failure> {
    if one.len() != other.len() {
        return Ok(false);
    }
    // Of what is the same in memory nothing needs to be looked at.
    if let (List::Tree { items: a, .. }, List::Tree { items: b, .. }) = (one, other)
        && std::ptr::eq(*a, *b)
    {
        return Ok(true);
    }
    let sort = one.sort();
    if *sort == ListSort::Atomic {
        for (a, b) in one.iter().zip(other.iter()) {
            if !equal(machine, &a?, &b?)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    // In sets and lists with keys the order does not count.
    let mut known = HashMap::new();
    for item in one.iter() {
        let item = item?;
        machine.work(WORK_VALUE)?;
        known.insert(key_of(machine, &item, sort)?, item);
    }
    for item in other.iter() {
        let item = item?;
        let Some(own) = known.get(&key_of(machine, &item, sort)?) else {
            return Ok(false);
        };
        if *sort != ListSort::Set && !equal(machine, &own.clone(), &item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps<'a>(machine: &mut Machine<'a>, one: &Map<'a>, other: &Map<'a>) -> Result<bool, Failure> {
    if one.len() != other.len() {
        return Ok(false);
    }
    if let (Map::Tree { map: a, shape }, Map::Tree { map: b, .. }) = (one, other) {
        if std::ptr::eq(*a, *b) {
            return Ok(true);
        }
        // Fields that the schema does not know are compared as they stand.
        let known = |name: &str| match shape.map(|shape| &shape.kind) {
            Some(ShapeKind::Object { fields }) => {
                escaped(name).is_some_and(|escaped| fields.contains_key(escaped.as_str()))
            }
            _ => true,
        };
        for (name, value) in a.iter().filter(|(name, _)| !known(name)) {
            machine.work(WORK_VALUE)?;
            if let Some(theirs) = b.get(name)
                && !equal(machine, &Val::of_tree(value, None)?, &Val::of_tree(theirs, None)?)?
            {
                return Ok(false);
            }
        }
    }
    for key in one.keys() {
        machine.work(WORK_VALUE)?;
        match (one.get(&key), other.get(&key)) {
            (Some(own), Some(theirs)) => {
                if !equal(machine, &own?, &theirs?)? {
                    return Ok(false);
                }
            }
            (None, None) => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// The order of two numbers of whatever types; `None` beside NaN.
pub(super) fn compare_numbers(one: &Val<'_>, other: &Val<'_>) -> Option<Ordering> {
    let whole = |value: &Val<'_>| match value {
        Val::Int(number) => Some(i128::from(*number)),
        Val::Uint(number) => Some(i128::from(*number)),
        _ => None,
    };
    match (one, other, whole(one), whole(other)) {
        (_, _, Some(one), Some(other)) => Some(one.cmp(&other)),
        (Val::Double(one), Val::Double(other), _, _) => one.partial_cmp(other),
        (Val::Double(one), _, _, Some(other)) => compare_double(*one, other),
        (_, Val::Double(other), Some(one), _) => compare_double(*other, one).map(Ordering::reverse),
        _ => None,
    }
}

fn compare_double(double: f64, whole: i128) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // Beyond this all doubles are beyond all integers.
    if double.abs() >= 1e20 {
        return Some(if double > 0.0 {
            Ordering::Greater
        } else {
            Ordering::Less
        });
    }
    let floor = double.floor();
    Some((floor as i128).cmp(&whole).then(if double > floor {
        Ordering::Greater
    } else {
        Ordering::Equal
    }))
}

/// The order of two values.
pub(super) enum Order {
    Is(Ordering),
    /// One of them is NaN.
    Unknown,
    /// They are of types that have none.
    None,
}

/// The order of two values.
pub(super) fn compare(one: &Val<'_>, other: &Val<'_>) -> Order {
    Order::Is(match (one, other) {
        (Val::Int(_) | Val::Uint(_) | Val::Double(_), Val::Int(_) | Val::Uint(_) | Val::Double(_)) => {
            return compare_numbers(one, other).map_or(Order::Unknown, Order::Is);
        }
        (Val::Bool(one), Val::Bool(other)) => one.cmp(other),
        (Val::String(one), Val::String(other)) => (**one).cmp(&**other),
        (Val::Bytes(one), Val::Bytes(other)) => one.cmp(other),
        (Val::Duration(one), Val::Duration(other)) => one.cmp(other),
        (Val::Timestamp(one), Val::Timestamp(other)) => one.cmp(other),
        _ => return Order::None,
    })
}

fn ordered<'a>(machine: &mut Machine<'a>, args: &[Val<'a>], is: fn(Ordering) -> bool) -> Option<Outcome<'a>> {
    let [one, other] = args else { return None };
    if let Err(failure) = machine.work(WORK_VALUE) {
        return Some(Err(failure));
    }
    match compare(one, other) {
        Order::None => None,
        Order::Is(order) => Some(Ok(Val::Bool(is(order)))),
        Order::Unknown => Some(Err(Failure::told("NaN values cannot be ordered"))),
    }
}

/// An item or entry, if there is one.
type Found<'a> = Result<Option<Val<'a>>, Failure>;

/// The item or entry there; `None` when the value has neither.
/// The work of looking for a key: it is copied for maps that were made.
fn looked_up(key: &Val<'_>) -> u64 {
    match key {
        Val::String(text) => WORK_VALUE + text.len() as u64,
        _ => WORK_VALUE,
    }
}

fn lookup<'a>(machine: &mut Machine<'a>, target: &Val<'a>, key: &Val<'a>) -> Option<Found<'a>> {
    match target {
        Val::List(list) => {
            let place = match key {
                Val::Int(place) => *place,
                Val::Uint(place) => i64::try_from(*place).unwrap_or(-1),
                Val::Double(place) if place.fract() == 0.0 => *place as i64,
                _ => return None,
            };
            let item = usize::try_from(place).ok().and_then(|place| list.get(place));
            Some(item.transpose())
        }
        Val::Map(map) => {
            if let Err(failure) = machine.work(looked_up(key)) {
                return Some(Err(failure));
            }
            Some(map.get(key).transpose())
        }
        _ => None,
    }
}

fn index<'a>(machine: &mut Machine<'a>, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let [target, key] = args else { return None };
    if let Val::Optional(_) = target {
        return optional_index(machine, args);
    }
    Some(match lookup(machine, target, key)? {
        Ok(Some(value)) => Ok(value),
        Ok(None) if matches!(target, Val::List(_)) => {
            Err(Failure::told(format!("index out of bounds: {}", key.shown())))
        }
        Ok(None) => Err(Failure::told(format!("no such key: {}", key.shown()))),
        Err(failure) => Err(failure),
    })
}

fn optional_index<'a>(machine: &mut Machine<'a>, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let [target, key] = args else { return None };
    let target = match target {
        Val::Optional(None) => return Some(Ok(Val::Optional(None))),
        Val::Optional(Some(value)) => &**value,
        other => other,
    };
    Some(lookup(machine, target, key)?.map(|found| found.map_or(Val::Optional(None), Val::some)))
}

fn within<'a>(machine: &mut Machine<'a>, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    match args {
        [value, Val::List(list)] => Some((|| {
            for item in list.iter() {
                if equal(machine, &item?, value)? {
                    return Ok(Val::Bool(true));
                }
            }
            Ok(Val::Bool(false))
        })()),
        [key, Val::Map(map)] => {
            if let Err(failure) = machine.work(looked_up(key)) {
                return Some(Err(failure));
            }
            Some(Ok(Val::Bool(map.get(key).is_some())))
        }
        _ => None,
    }
}
