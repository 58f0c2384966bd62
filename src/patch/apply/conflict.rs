//! Conflicts: fields that somebody else manages and that would change.

use std::fmt;
use std::fmt::Write as _;

use super::super::go_format;
use super::super::managed::compare::Changes;
use super::super::managed::fields::Fields;
use super::super::managed::{entry, identity};
use crate::tree::Value;

/// Most conflicts that are told one by one.
const TOLD_MAX: usize = 1000;

/// Fields that other managers have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts {
    /// How many there are.
    pub count: usize,
    /// One by one, by manager and path; at most 1000.
    pub told: Vec<Conflict>,
}

/// A field that another manager has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Who has it, as messages show it: `"kubectl" using apps/v1`.
    pub manager: String,
    /// Where it is, as messages show it: `.spec.template.spec.containers[name="c"].image`.
    pub path: String,
}

impl fmt::Display for Conflicts {
    /// The message of the Status.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (1, [conflict]) = (self.count, self.told.as_slice()) {
            let Conflict { manager, path } = conflict;
            return write!(f, "Apply failed with 1 conflict: conflict with {manager}: {path}");
        }
        write!(f, "Apply failed with {} conflicts: ", self.count)?;
        let mut before = None;
        for Conflict { manager, path } in &self.told {
            if before != Some(manager) {
                let line = if before.is_some() { "\n" } else { "" };
                write!(f, "{line}conflicts with {manager}:")?;
                before = Some(manager);
            }
            write!(f, "\n- {path}")?;
        }
        Ok(())
    }
}

/// The conflicts of `entries`, the other managers of an object, with what changes in the version of each. What is in the set
/// of `allowed` is none; it is asked for when there are any. `None` when there are none.
pub(super) fn find<'c, 'v: 'c>(
    entries: &[Value],
    changes: impl Fn(&Value) -> Option<&'c Changes<'v>>,
    allowed: impl FnOnce() -> Option<Fields>,
) -> Option<Conflicts> {
    let mut found: Vec<(&Value, Fields)> = Vec::new();
    for entry in entries {
        let Some(changes) = changes(entry) else { continue };
        let fields = &entry["fieldsV1"];
        if matches!(fields, Value::Raw(json) if !entry::has_any(json, &changes.taken.top())) {
            continue;
        }
        let common = Fields::of(fields).common(changes.taken.top());
        if !common.is_empty() {
            found.push((entry, common));
        }
    }
    if found.is_empty() {
        return None;
    }
    if let Some(allowed) = allowed() {
        for (_, set) in &mut found {
            set.remove(&allowed);
        }
        found.retain(|(_, set)| !set.is_empty());
    }
    found.sort_by(|(one, _), (other, _)| identity(one).cmp(&identity(other)));
    let mut conflicts = Conflicts {
        count: 0,
        told: Vec::new(),
    };
    for (entry, set) in &found {
        let manager = shown(entry);
        set.paths(&mut |path| {
            conflicts.count += 1;
            if conflicts.told.len() < TOLD_MAX {
                conflicts.told.push(Conflict {
                    manager: manager.clone(),
                    path: path.to_owned(),
                });
            }
            true
        });
    }
    (conflicts.count > 0).then_some(conflicts)
}

/// A manager as messages show it.
fn shown(entry: &Value) -> String {
    let [manager, _, version, subresource] = identity(entry);
    let mut text = go_format::quote(manager);
    if !subresource.is_empty() {
        let _ = write!(text, " with subresource {}", go_format::quote(subresource));
    }
    if !version.is_empty() {
        let _ = write!(text, " using {version}");
    }
    text
}
