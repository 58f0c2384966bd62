//! Sets of fields that were made under another schema: what has become one value since is managed as one.

use super::super::managed::fields::Fields;
use super::super::managed::typed::{Form, Member, Typed};
use super::super::managed::{Request, Versions, text};
use crate::schema::ListType;
use crate::tree::Value;

/// Brings the set of an entry up to the schema of its version.
pub(super) fn reconcile_entry(
    typed: Typed<'_>,
    versions: &dyn Versions,
    live: &Value,
    entry: &mut Value,
    request: &Request<'_>,
) {
    let other;
    let typed = if request.is_in_version(entry) {
        typed
    } else {
        other = versions.in_version(live, text(entry, "apiVersion"));
        match &other {
            Some((typed, _)) => *typed,
            None => return,
        }
    };
    let mut set = Fields::of(&entry["fieldsV1"]);
    if reconcile(typed, &mut set) {
        entry["fieldsV1"] = set.write();
    }
}

/// Brings a set up to a type. Tells whether that changed it.
pub(super) fn reconcile(typed: Typed<'_>, set: &mut Fields) -> bool {
    match typed.form(None) {
        Form::Map(map) if map.atomic => set.gather(),
        Form::List(list) if list.kind == ListType::Atomic => set.gather(),
        Form::Scalar(_) => false,
        Form::List(list) => set.each(|_, below| reconcile(list.item, below)),
        Form::Map(map) => {
            let mut cursor = 0;
            set.each(|name, below| {
                let name = name.strip_prefix("f:").unwrap_or(name);
                match map.member(name, &mut cursor) {
                    Member::Field(typed) | Member::Key(typed) => reconcile(typed, below),
                    Member::Unknown => false,
                }
            })
        }
    }
}
