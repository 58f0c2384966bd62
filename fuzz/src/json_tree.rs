//! The program's own JSON trees, against those of `serde_json`.

use std::collections::BTreeMap;

use flatkube::tree::{Map, Value};

use super::input::Input;

/// Any bytes as JSON: both accept or both refuse, and what is written is the same value.
pub fn tree(data: &[u8]) {
    let theirs = serde_json::from_slice::<serde_json::Value>(data);
    let ours = serde_json::from_slice::<Value>(data);
    assert_eq!(theirs.is_ok(), ours.is_ok(), "{theirs:?} {ours:?}");
    let (Ok(theirs), Ok(ours)) = (theirs, ours) else { return };
    // Floating-point numbers are written as Go writes them: another text of the same value.
    let json = ours.to_json();
    let read: serde_json::Value = serde_json::from_str(&json).expect("it was written as JSON");
    assert!(is_same(&read, &theirs), "{json} {theirs}");
    assert_eq!(
        serde_json::to_string(&ours).expect("a tree can be written"),
        theirs.to_string()
    );
    assert_eq!(Value::from(theirs.clone()), ours);
    assert_eq!(
        serde_json::from_value::<serde_json::Value>(theirs.clone()).expect("JSON"),
        theirs
    );
    let copy = ours.clone();
    assert_eq!(copy, ours);
    let raw = Value::Raw(json.as_str().into());
    assert_eq!(raw.to_json(), json);
    let read = serde_json::to_value(&raw).expect("it is JSON");
    assert!(is_same(&read, &theirs), "{read} {theirs}");
    let again: Value = serde_json::from_str(&json).expect("it was written as JSON");
    assert_eq!(again.to_json(), json);
}

/// Whether two texts of JSON say the same; numbers by their value.
fn is_same(one: &serde_json::Value, other: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Number, Object};
    match (one, other) {
        (Number(one), Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Array(one), Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Object(one), Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(name, one)| other.get(name).is_some_and(|other| is_same(one, other)))
        }
        _ => one == other,
    }
}

/// Changes of a map and a list, made to a tree that others share and to a plain one: they stay the same, and who holds the
/// state before sees none of it.
pub fn tree_changes(data: &[u8]) {
    let mut input = Input::new(data);
    let mut map = Map::new();
    let mut model: BTreeMap<String, i64> = BTreeMap::new();
    let mut list = flatkube::tree::List::new();
    let mut rows: Vec<i64> = Vec::new();
    let mut kept: Vec<(Map, BTreeMap<String, i64>)> = Vec::new();
    for step in 0..200_i64 {
        if input.is_empty() {
            break;
        }
        let (operation, number) = (input.byte() % 10, usize::from(input.byte()));
        // Some names are known to schemas, some are sent.
        let name = ["metadata", "spec", "name", "a", "b", "é", "", "status"]
            .get(number % 16)
            .map_or_else(|| format!("key-{number}"), |&name| name.to_owned());
        match operation {
            0 | 1 => {
                let old = map.insert(name.clone(), step.into());
                assert_eq!(old.and_then(|old| old.as_i64()), model.insert(name, step));
            }
            2 => assert_eq!(map.remove(&name).and_then(|old| old.as_i64()), model.remove(&name)),
            3 => {
                *map.entry(name.clone()).or_insert(step.into()) = (-step).into();
                model.insert(name, -step);
            }
            4 => {
                map.retain(|key, _| key.len() % 2 == number % 2);
                model.retain(|key, _| key.len() % 2 == number % 2);
            }
            5 => {
                if let Some(value) = map.get_mut(&name) {
                    *value = 7.into();
                }
                if let Some(value) = model.get_mut(&name) {
                    *value = 7;
                }
            }
            6 if kept.len() < 4 => kept.push((map.clone(), model.clone())),
            7 => {
                list.push(step.into());
                rows.push(step);
            }
            8 => {
                let at = number % (rows.len() + 1);
                list.insert(at, step.into());
                rows.insert(at, step);
            }
            9 if !rows.is_empty() => {
                let at = number % rows.len();
                assert_eq!(list.remove(at).as_i64(), Some(rows.remove(at)));
            }
            _ => {
                list.retain(|value| value.as_i64() != Some(number as i64));
                rows.retain(|&value| value != number as i64);
            }
        }
        same(&map, &model);
        assert_eq!(list.iter().filter_map(Value::as_i64).collect::<Vec<_>>(), rows);
    }
    for (map, model) in &kept {
        same(map, model);
    }
}

fn same(map: &Map, model: &BTreeMap<String, i64>) {
    assert_eq!(map.len(), model.len());
    assert!(
        map.iter()
            .map(|(key, value)| (key.as_str(), value.as_i64()))
            .eq(model.iter().map(|(key, value)| (key.as_str(), Some(*value)))),
        "{map:?} {model:?}"
    );
    for key in model.keys() {
        assert_eq!(map.get(key).and_then(Value::as_i64), model.get(key).copied());
    }
}
