//! What is tolerated of a changed object because it was stored like that: rules that came later than the object.
//!
//! `facts/ratchets.tsv` says which faults of which fields kube-apiserver tolerates, kind by kind. It is asked only when a
//! change would be refused.

use std::collections::HashSet;

use crate::tree::Value;

use super::declaration::rows;
use super::kind::Kind;
use super::validate::by_rules;
use super::{FieldError, Resource};

/// Takes those errors away that the stored object has, too, and that are tolerated then.
pub(super) fn tolerate(resource: &Resource, kind: &Kind, old: &Value, errors: &mut Vec<FieldError>) {
    let rules: Vec<Tolerated> = rows(include_str!("facts/ratchets.tsv"))
        .filter(|row| {
            row[0]
                .split(' ')
                .any(|storage| storage == "*" || storage == resource.storage)
        })
        .map(|row| Tolerated {
            field: row[1],
            detail: row[2],
            same: row[3] == "same",
        })
        .collect();
    if !errors.iter().any(|error| rules.iter().any(|rule| rule.is_about(error))) {
        return;
    }
    let mut stored = Vec::new();
    by_rules(resource, old, None, &mut stored);
    (kind.validate)(old, &mut stored);
    // What is stored is looked at once for each rule, however many errors there are.
    let stored: Vec<HashSet<&str>> = rules
        .iter()
        .map(|rule| {
            let about = stored.iter().filter(|error| rule.is_about(error));
            about
                .map(|error| if rule.same { error.message.as_str() } else { "" })
                .collect()
        })
        .collect();
    errors.retain(|error| {
        !rules.iter().zip(&stored).any(|(rule, stored)| {
            let fault = if rule.same { error.message.as_str() } else { "" };
            stored.contains(fault) && rule.is_about(error)
        })
    });
}

/// A fault that is tolerated.
struct Tolerated {
    /// Pattern of the path of its field: `*` stands for anything.
    field: &'static str,
    /// A part of its message; `""`: any message.
    detail: &'static str,
    /// Whether the stored object must have it with the same value; otherwise one like it is enough.
    same: bool,
}

impl Tolerated {
    fn is_about(&self, error: &FieldError) -> bool {
        error.message.contains(self.detail) && matches(self.field, &error.field)
    }
}

/// Whether a text is of a pattern in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut left) = text.strip_prefix(start) else {
        return false;
    };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return left.ends_with(part);
        }
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_met_from_end_to_end() {
        let pattern = "spec.*.matchExpressions[*].values[*]";
        assert!(matches(pattern, "spec.selector.matchExpressions[0].values[12]"));
        assert!(!matches(pattern, "spec.selector.matchExpressions[0].key"));
        assert!(!matches(pattern, "status.selector.matchExpressions[0].values[1]"));
        assert!(matches("*", "") && matches("a", "a") && !matches("a", "ab"));
    }

    #[test]
    fn the_table_names_kinds_that_exist() {
        for row in rows(include_str!("facts/ratchets.tsv")) {
            assert_eq!(row.len(), 4, "{row:?}");
            for storage in row[0].split(' ').filter(|storage| *storage != "*") {
                assert!(crate::resources::stored(storage).is_some(), "{storage}");
            }
        }
    }
}
