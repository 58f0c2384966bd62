//! Where the elements of a list stand that is merged: found by what tells them apart, however long the list is.

use std::collections::HashMap;

use crate::tree::Value;

/// Up to so many elements, looking at each is quicker than an index.
const FEW: usize = 32;

/// The places of a list's elements; the first one of several that are the same.
pub(super) struct Places<'k> {
    merge_key: Option<&'k str>,
    /// `None` while there are few.
    index: Option<HashMap<String, usize>>,
}

impl<'k> Places<'k> {
    /// Of the elements of `list`, which are told apart by their field `merge_key`, or as a whole. O(length).
    pub(super) fn of(list: &[Value], merge_key: Option<&'k str>) -> Places<'k> {
        let mut places = Places { merge_key, index: None };
        if list.len() > FEW {
            places.note(list, 0);
        }
        places
    }

    /// The place in `list`, which is the one that this was made of, of the element that `item` is.
    pub(super) fn find(&self, list: &[Value], item: &Value) -> Option<usize> {
        match &self.index {
            None => list.iter().position(|other| same(other, item, self.merge_key)),
            Some(index) => index.get(&identity(item, self.merge_key)?).copied(),
        }
    }

    /// `list` has got another element at its end.
    pub(super) fn pushed(&mut self, list: &[Value]) {
        if list.len() > FEW {
            let from = self.index.as_ref().map_or(0, |_| list.len() - 1);
            self.note(list, from);
        }
    }

    fn note(&mut self, list: &[Value], from: usize) {
        let index = self.index.get_or_insert_default();
        for (at, item) in list.iter().enumerate().skip(from) {
            if let Some(identity) = identity(item, self.merge_key) {
                index.entry(identity).or_insert(at);
            }
        }
    }
}

/// Whether two elements are the same one of a list.
pub(super) fn same(a: &Value, b: &Value, merge_key: Option<&str>) -> bool {
    match merge_key {
        Some(key) => a.get(key).is_some() && a.get(key) == b.get(key),
        None => a == b,
    }
}

/// What two elements have in common that are the same; `None` for one without the key.
fn identity(item: &Value, merge_key: Option<&str>) -> Option<String> {
    match merge_key {
        Some(key) => item.get(key).map(Value::to_json),
        None => Some(item.to_json()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    #[test]
    fn many_are_found_where_few_are_found() {
        for merge_key in [None, Some("name")] {
            let mut list = Vec::new();
            let mut places = Places::of(&list, merge_key);
            for number in 0..4 * FEW {
                list.push(match number % 5 {
                    0 => json!({"name": number % 7}),
                    1 => json!({"other": number}),
                    2 => json!({"name": format!("{number}"), "value": 1}),
                    3 => json!({"name": null}),
                    _ => json!({"name": {"a": number, "b": [1.5]}}),
                });
                places.pushed(&list);
            }
            let whole = Places::of(&list, merge_key);
            for item in list
                .iter()
                .chain(&[json!({"name": "absent"}), json!("text"), json!({})])
            {
                let sought = list.iter().position(|other| same(other, item, merge_key));
                assert_eq!(places.find(&list, item), sought, "{item}");
                assert_eq!(whole.find(&list, item), sought, "{item}");
            }
        }
    }
}
