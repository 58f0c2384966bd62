//! Lists and sets.

use std::cmp::Ordering;

use super::super::machine::{Machine, WORK_VALUE};
use super::super::value::{Failure, List, Outcome, Val};
use super::operators::Order;
use super::{Price, Row, operators};

pub(super) const ROWS: &[Row] = &[
    ("isSorted", true, Price::Traversed, |_, args| match args {
        [Val::List(list)] => Some(is_sorted(list)),
        _ => None,
    }),
    ("sum", true, Price::Traversed, |machine, args| match args {
        [Val::List(list)] => Some(sum(machine, list)),
        _ => None,
    }),
    ("min", true, Price::Traversed, |_, args| {
        extreme(args, "min", Ordering::Less)
    }),
    ("max", true, Price::Traversed, |_, args| {
        extreme(args, "max", Ordering::Greater)
    }),
    ("slice", true, Price::Listed, |_, args| match args {
        [Val::List(list), Val::Int(start), Val::Int(end)] => Some(slice(list, *start, *end)),
        _ => None,
    }),
    ("flatten", true, Price::Listed, |machine, args| {
        let (list, depth) = match args {
            [Val::List(list)] => (list, 1),
            [Val::List(list), Val::Int(depth)] => (list, *depth),
            _ => return None,
        };
        if depth < 0 {
            return Some(Err(Failure::told("level must be non-negative")));
        }
        let mut items = Vec::new();
        Some(flatten(machine, list, depth.min(FLATTENED_MAX), &mut items).map(|()| Val::list(items)))
    }),
    ("sort", true, Price::Sorted, |machine, args| match args {
        [Val::List(list)] => Some(sorted_by(machine, list, list)),
        _ => None,
    }),
    ("lists.range", false, Price::One, |machine, args| match args {
        [Val::Int(len)] => Some(range(machine, *len)),
        _ => None,
    }),
    ("reverse", true, Price::Listed, |_, args| match args {
        [Val::List(list)] => Some(items(list).map(|mut items| {
            items.reverse();
            Val::list(items)
        })),
        _ => None,
    }),
    ("distinct", true, Price::Sorted, |machine, args| match args {
        [Val::List(list)] => Some(distinct(machine, list)),
        _ => None,
    }),
    ("sets.contains", false, Price::Pairs(1), |machine, args| match args {
        [Val::List(one), Val::List(other)] => Some(contains_all(machine, one, other).map(Val::Bool)),
        _ => None,
    }),
    ("sets.equivalent", false, Price::Pairs(2), |machine, args| match args {
        [Val::List(one), Val::List(other)] => Some(
            contains_all(machine, one, other)
                .and_then(|all| Ok(all && contains_all(machine, other, one)?))
                .map(Val::Bool),
        ),
        _ => None,
    }),
    ("sets.intersects", false, Price::Pairs(1), |machine, args| match args {
        [Val::List(one), Val::List(other)] => Some(intersects(machine, one, other)),
        _ => None,
    }),
];

/// How deep lists of lists are made flat.
const FLATTENED_MAX: i64 = 64;

/// What going through a value costs: a tenth of each text in it, 1 for each other scalar.
pub(in super::super) fn traversal_cost<'a>(machine: &mut Machine<'a>, value: &Val<'a>) -> Result<u64, Failure> {
    machine.work(WORK_VALUE)?;
    Ok(match value {
        Val::String(text) => text.len() as u64 / 10,
        Val::Bytes(bytes) => bytes.len() as u64 / 10,
        Val::List(list) => {
            let mut cost = 0;
            for item in list.iter() {
                cost += traversal_cost(machine, &item?)?;
            }
            cost
        }
        Val::Map(map) => {
            let mut cost = 0;
            for key in map.keys() {
                cost += traversal_cost(machine, &key)?;
                if let Some(value) = map.get(&key) {
                    cost += traversal_cost(machine, &value?)?;
                }
            }
            cost
        }
        _ => 1,
    })
}

fn items<'a>(list: &List<'a>) -> Result<Vec<Val<'a>>, Failure> {
    list.iter().collect()
}

/// The order of two items; an error for those that have none.
fn order<'a>(one: &Val<'a>, other: &Val<'a>) -> Result<Ordering, Failure> {
    match operators::compare(one, other) {
        Order::Is(order) => Ok(order),
        Order::Unknown => Ok(Ordering::Equal),
        Order::None => Err(Failure::no_overload("compare", &[one.clone(), other.clone()])),
    }
}

fn is_sorted<'a>(list: &List<'a>) -> Outcome<'a> {
    let mut before: Option<Val<'a>> = None;
    for item in list.iter() {
        let item = item?;
        if let Some(before) = &before
            && order(before, &item)?.is_gt()
        {
            return Ok(Val::Bool(false));
        }
        before = Some(item);
    }
    Ok(Val::Bool(true))
}

fn sum<'a>(machine: &mut Machine<'a>, list: &List<'a>) -> Outcome<'a> {
    let mut sum: Option<Val<'a>> = None;
    for item in list.iter() {
        let item = item?;
        sum = Some(match sum {
            None => item,
            Some(sum) => {
                let args = [sum, item];
                operators::add(machine, &args).unwrap_or_else(|| Err(Failure::no_overload("sum", &args)))?
            }
        });
    }
    Ok(sum.unwrap_or(Val::Int(0)))
}

fn extreme<'a>(args: &[Val<'a>], name: &str, wanted: Ordering) -> Option<Outcome<'a>> {
    let [Val::List(list)] = args else { return None };
    let mut best: Option<Val<'a>> = None;
    for item in list.iter() {
        let better = item.and_then(|item| {
            let better = match &best {
                None => true,
                Some(best) => order(&item, best)? == wanted,
            };
            Ok(better.then_some(item))
        });
        match better {
            Ok(Some(item)) => best = Some(item),
            Ok(None) => {}
            Err(failure) => return Some(Err(failure)),
        }
    }
    Some(best.ok_or_else(|| Failure::told(format!("{name} called on empty list"))))
}

pub(super) fn index_of<'a>(machine: &mut Machine<'a>, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let [Val::List(list), wanted] = args else { return None };
    Some((|| {
        for (at, item) in list.iter().enumerate() {
            if machine.equal(&item?, wanted)? {
                return Ok(Val::Int(at as i64));
            }
        }
        Ok(Val::Int(-1))
    })())
}

pub(super) fn last_index_of<'a>(machine: &mut Machine<'a>, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let [Val::List(list), wanted] = args else { return None };
    Some((|| {
        let mut found = -1;
        for (at, item) in list.iter().enumerate() {
            if machine.equal(&item?, wanted)? {
                found = at as i64;
            }
        }
        Ok(Val::Int(found))
    })())
}

fn slice<'a>(list: &List<'a>, start: i64, end: i64) -> Outcome<'a> {
    let wrong = |what: String| Err(Failure::told(format!("cannot slice({start}, {end}), {what}")));
    if start < 0 || end < 0 {
        return wrong("negative indexes not supported".into());
    }
    if start > end {
        return wrong("start index must be less than or equal to end index".into());
    }
    if list.len() < end as usize {
        return wrong(format!("list is length {}", list.len()));
    }
    let items: Result<Vec<_>, _> = list.iter().skip(start as usize).take((end - start) as usize).collect();
    Ok(Val::list(items?))
}

fn flatten<'a>(machine: &mut Machine<'a>, list: &List<'a>, depth: i64, out: &mut Vec<Val<'a>>) -> Result<(), Failure> {
    for item in list.iter() {
        machine.charge(1)?;
        match item? {
            Val::List(inner) if depth > 0 => flatten(machine, &inner, depth - 1, out)?,
            item => out.push(item),
        }
    }
    Ok(())
}

/// The items of a list in the order of the keys that another list has at the same places.
pub(in super::super) fn sorted_by<'a>(machine: &mut Machine<'a>, list: &List<'a>, keys: &List<'a>) -> Outcome<'a> {
    machine.work(WORK_VALUE * list.len() as u64)?;
    let keys = items(keys)?;
    if let Some(first) = keys.first() {
        for key in &keys {
            if std::mem::discriminant(first) != std::mem::discriminant(key) {
                return Err(Failure::told("list elements must have the same type"));
            }
        }
        if matches!(operators::compare(first, first), Order::None) {
            return Err(Failure::told("list elements must be comparable"));
        }
    }
    let mut pairs: Vec<(Val<'a>, Val<'a>)> = keys.into_iter().zip(items(list)?).collect();
    pairs.sort_by(|(one, _), (other, _)| {
        // NaN has no place; a total order keeps the sort whole.
        match (one, other) {
            (Val::Double(one), Val::Double(other)) => one.total_cmp(other),
            _ => order(one, other).unwrap_or(Ordering::Equal),
        }
    });
    Ok(Val::list(pairs.into_iter().map(|(_, item)| item).collect()))
}

fn range<'a>(machine: &mut Machine<'a>, len: i64) -> Outcome<'a> {
    if len < 0 {
        let what = format!("lists.range: size must be non-negative, got {len}");
        return Err(Failure::told(what));
    }
    machine.charge(len as u64 + 10)?;
    Ok(Val::list((0..len).map(Val::Int).collect()))
}

fn distinct<'a>(machine: &mut Machine<'a>, list: &List<'a>) -> Outcome<'a> {
    let mut kept: Vec<Val<'a>> = Vec::new();
    for item in list.iter() {
        let item = item?;
        let mut known = false;
        for other in &kept {
            if machine.equal(other, &item)? {
                known = true;
                break;
            }
        }
        if !known {
            kept.push(item);
        }
    }
    Ok(Val::list(kept))
}

fn has<'a>(machine: &mut Machine<'a>, list: &List<'a>, wanted: &Val<'a>) -> Result<bool, Failure> {
    for item in list.iter() {
        if machine.equal(&item?, wanted)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a list has all that another has.
fn contains_all<'a>(machine: &mut Machine<'a>, list: &List<'a>, all: &List<'a>) -> Result<bool, Failure> {
    for item in all.iter() {
        if !has(machine, list, &item?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn intersects<'a>(machine: &mut Machine<'a>, one: &List<'a>, other: &List<'a>) -> Outcome<'a> {
    for item in one.iter() {
        if has(machine, other, &item?)? {
            return Ok(Val::Bool(true));
        }
    }
    Ok(Val::Bool(false))
}
