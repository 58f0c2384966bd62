//! A set of fields taken apart: what is asked of it, and what is done with it.

use std::cmp::Ordering;

use super::entry::{self, DEPTH_MAX};
use super::trail::{Branches, Name};
use crate::tree::{Text, Value, write_text};

/// A set of fields as a tree: what is in it itself, and what is below. Nothing below is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::patch) struct Fields {
    member: bool,
    /// By name, as `FieldsV1` writes names: `f:spec`, `k:{"name":"c"}`, `v:"value"`.
    below: Vec<(Text, Fields)>,
}

impl Fields {
    /// From the value of an entry's `fieldsV1`, taken apart or not. What is no set is an empty one.
    pub(in crate::patch) fn of(value: &Value) -> Fields {
        match value {
            Value::Raw(json) => entry::parse(json).unwrap_or_default(),
            value => Fields::checked(value).unwrap_or_default(),
        }
    }

    /// From the value of an entry's `fieldsV1` that a client sent; names are brought into the form that is stored.
    ///
    /// `None` for what is no set: names that are not well-formed, values that are not objects, nests without end.
    pub(in crate::patch) fn checked(value: &Value) -> Option<Fields> {
        match value {
            Value::Raw(json) => {
                let value: Value = serde_json::from_str(json).ok()?;
                Fields::read(&value, 0)
            }
            Value::Null => Some(Fields::default()),
            value => Fields::read(value, 0),
        }
    }

    /// From the JSON of an entry. A node without children is a member; one with children says so with `"."`.
    fn read(json: &Value, depth: usize) -> Option<Fields> {
        let mut set = Fields::default();
        if depth > DEPTH_MAX {
            return None;
        }
        for (name, value) in json.as_object()? {
            if name == "." {
                set.member = true;
                continue;
            }
            let Some(name) = canonical_name(name)? else { continue };
            let mut below = Fields::read(value, depth + 1)?;
            below.join_if_leaf();
            set.below.push((name, below));
        }
        // Names may have been written in ways that sort otherwise.
        let below = std::mem::take(&mut set.below);
        set.put_all(below);
        Some(set)
    }

    /// The value of an entry's `fieldsV1`.
    pub(in crate::patch) fn write(&self) -> Value {
        let mut json = Vec::with_capacity(512);
        self.write_node(&mut json);
        Value::Raw(Text::from(std::str::from_utf8(&json).unwrap_or("{}")))
    }

    fn write_node(&self, json: &mut Vec<u8>) {
        json.push(b'{');
        if self.member && !self.below.is_empty() {
            json.extend_from_slice(b"\".\":{}");
        }
        for (name, below) in &self.below {
            if json.last() != Some(&b'{') {
                json.push(b',');
            }
            write_text(name, json);
            json.push(b':');
            below.write_node(json);
        }
        json.push(b'}');
    }

    pub(in crate::patch) fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }

    /// Whether the node itself is in the set.
    pub(in crate::patch) fn is_member(&self) -> bool {
        self.member
    }

    /// Whether anything below the node is in the set.
    pub(in crate::patch) fn has_below(&self) -> bool {
        !self.below.is_empty()
    }

    /// Makes the node itself a member.
    pub(in crate::patch) fn join(&mut self) {
        self.member = true;
    }

    /// Makes the node a member if there is nothing below it.
    pub(in crate::patch) fn join_if_leaf(&mut self) {
        self.member |= self.below.is_empty();
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        match self.below.last() {
            None => Err(0),
            // What is read mostly comes in order.
            Some((last, _)) if last.as_str() < name => Err(self.below.len()),
            Some(_) => self.below.binary_search_by(|(other, _)| other.as_str().cmp(name)),
        }
    }

    /// What is below of that name.
    pub(in crate::patch) fn get(&self, name: &str) -> Option<&Fields> {
        self.place(name).ok().map(|at| &self.below[at].1)
    }

    /// What is below a field of that name.
    pub(in crate::patch) fn field(&self, name: &str) -> Option<&Fields> {
        let at = self
            .below
            .binary_search_by(|(other, _)| compare(other, &Name::Field(name)));
        at.ok().map(|at| &self.below[at].1)
    }

    /// Whether the field is in the set: `["spec", "replicas"]`.
    pub(in crate::patch) fn has_field(&self, path: &[&str]) -> bool {
        path.iter()
            .try_fold(self, |set, name| set.field(name))
            .is_some_and(Fields::is_member)
    }

    /// Puts a set below; what was there of that name is joined with it. An empty one is left out.
    pub(in crate::patch) fn put(&mut self, name: Text, set: Fields) {
        if set.is_empty() {
            return;
        }
        match self.place(&name) {
            Ok(at) => self.below[at].1.add(set),
            Err(at) => self.below.insert(at, (name, set)),
        }
    }

    /// Puts sets below, in any order, where there are none yet.
    pub(in crate::patch) fn put_all(&mut self, mut below: Vec<(Text, Fields)>) {
        if below.is_sorted_by(|(one, _), (other, _)| one < other) {
            self.below = below;
            return;
        }
        below.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (name, set) in below {
            self.put(name, set);
        }
    }

    /// Adds another set.
    pub(in crate::patch) fn add(&mut self, other: Fields) {
        self.member |= other.member;
        if self.below.is_empty() {
            self.below = other.below;
            return;
        }
        if other.below.is_empty() {
            return;
        }
        let mut ours = std::mem::take(&mut self.below).into_iter().peekable();
        for (name, set) in other.below {
            while let Some(own) = ours.next_if(|(own, _)| *own < name) {
                self.below.push(own);
            }
            match ours.next_if(|(own, _)| *own == name) {
                Some((_, mut own)) => {
                    own.add(set);
                    self.below.push((name, own));
                }
                None => self.below.push((name, set)),
            }
        }
        self.below.extend(ours);
    }

    /// Takes the members of another set out; what is below those stays.
    pub(in crate::patch) fn remove(&mut self, other: &Fields) {
        self.member &= !other.member;
        if other.below.is_empty() {
            return;
        }
        self.below.retain_mut(|(name, set)| {
            if let Some(other) = other.get(name) {
                set.remove(other);
            }
            !set.is_empty()
        });
    }

    /// Takes a field out; what is below it stays.
    pub(in crate::patch) fn remove_field(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else {
            self.member = false;
            return;
        };
        let Ok(at) = self
            .below
            .binary_search_by(|(other, _)| compare(other, &Name::Field(first)))
        else {
            return;
        };
        self.below[at].1.remove_field(rest);
        if self.below[at].1.is_empty() {
            self.below.remove(at);
        }
    }

    /// Keeps what is below the fields that `keep` says yes to, at the top and below `metadata`.
    pub(in crate::patch) fn keep(&mut self, keep: impl Fn(&[&str]) -> bool) {
        let field = |name: &str| name.strip_prefix("f:").unwrap_or(name).to_owned();
        self.below.retain_mut(|(name, set)| {
            let name = field(name);
            if name == "metadata" {
                set.below.retain(|(below, _)| keep(&["metadata", &field(below)]));
            }
            keep(&[&name]) && !set.is_empty()
        });
    }

    /// Makes a set with anything below its node one of the node alone. Tells whether there was anything.
    pub(in crate::patch) fn gather(&mut self) -> bool {
        let gathered = !self.below.is_empty();
        self.below.clear();
        self.member |= gathered;
        gathered
    }

    /// Changes what is below. Tells whether any change said that it did.
    pub(in crate::patch) fn each(&mut self, mut change: impl FnMut(&str, &mut Fields) -> bool) -> bool {
        self.below
            .iter_mut()
            .fold(false, |changed, (name, set)| changed | change(name, set))
    }

    /// The members that a walk found, too.
    pub(in crate::patch) fn common(&self, found: Branches<'_, '_>) -> Fields {
        let mut common = Fields::default();
        for branch in found {
            let at = self.below.binary_search_by(|(other, _)| compare(other, branch.name));
            let Ok(at) = at else { continue };
            let (name, ours) = &self.below[at];
            let mut below = ours.common(branch.below);
            below.member = ours.member && branch.member;
            common.put(name.clone(), below);
        }
        common
    }

    /// What a walk found.
    pub(in crate::patch) fn found(found: Branches<'_, '_>) -> Fields {
        let mut set = Fields::default();
        for branch in found {
            let mut below = Fields::found(branch.below);
            below.member = branch.member;
            set.put(key_of(branch.name), below);
        }
        set
    }

    /// Adds what a walk found.
    pub(in crate::patch) fn add_found(&mut self, found: Branches<'_, '_>) {
        self.add(Fields::found(found));
    }

    /// Takes the members of what a walk found out. Tells whether there were any.
    pub(in crate::patch) fn remove_found(&mut self, found: Branches<'_, '_>) -> bool {
        let (mut changed, mut emptied) = (false, false);
        for branch in found {
            let at = self.below.binary_search_by(|(other, _)| compare(other, branch.name));
            let Ok(at) = at else { continue };
            let ours = &mut self.below[at].1;
            if branch.member {
                changed |= ours.member;
                ours.member = false;
            }
            changed |= ours.remove_found(branch.below);
            emptied |= ours.is_empty();
        }
        if emptied {
            self.below.retain(|(_, set)| !set.is_empty());
        }
        changed
    }

    /// Tells the path of each member, as conflicts spell it, up to the first that `tell` says no to: members of a node before
    /// what is below them.
    pub(in crate::patch) fn paths(&self, tell: &mut impl FnMut(&str) -> bool) -> bool {
        let mut path = String::new();
        self.walk(&mut path, tell)
    }

    fn walk(&self, path: &mut String, tell: &mut impl FnMut(&str) -> bool) -> bool {
        let length = path.len();
        for deep in [false, true] {
            for (name, set) in &self.below {
                if !deep && !set.member || deep && set.below.is_empty() {
                    continue;
                }
                push_element(path, name);
                let goes_on = if deep { set.walk(path, tell) } else { tell(path) };
                path.truncate(length);
                if !goes_on {
                    return false;
                }
            }
        }
        true
    }
}

/// The name of a node as messages spell it: `.spec`, `[name="c",port=80]`, `[="value"]`.
pub(in crate::patch) fn push_element(path: &mut String, name: &str) {
    let value = |json: &str| serde_json::from_str::<Value>(json).unwrap_or_default();
    match name.split_at_checked(2) {
        Some(("f:", name)) => {
            path.push('.');
            path.push_str(name);
        }
        Some(("k:", json)) => {
            path.push('[');
            for (i, (key, value)) in value(json).as_object().into_iter().flatten().enumerate() {
                if i > 0 {
                    path.push(',');
                }
                path.push_str(key);
                path.push('=');
                path.push_str(&shown(value));
            }
            path.push(']');
        }
        Some(("v:", json)) => {
            path.push_str("[=");
            path.push_str(&shown(&value(json)));
            path.push(']');
        }
        _ => {
            path.push('[');
            path.push_str(name.strip_prefix("i:").unwrap_or(name));
            path.push(']');
        }
    }
}

/// A value as messages show it.
fn shown(value: &Value) -> String {
    match value.as_str() {
        Some(text) => crate::patch::go_format::quote(text),
        None => value.to_json(),
    }
}

/// The name of a node in the form that is stored. `Some(None)` for those of a kind that nobody knows, which are dropped;
/// `None` for what is no name.
#[expect(clippy::option_option, reason = "no name, one that is dropped, one that stays")]
fn canonical_name(name: &str) -> Option<Option<Text>> {
    let (kind, json) = name.split_at_checked(2)?;
    if !kind.ends_with(':') {
        return None;
    }
    Some(match kind {
        "f:" => Some(name.into()),
        "v:" | "k:" => {
            let value: Value = serde_json::from_str(json).ok()?;
            if kind == "k:" && !value.is_object() {
                return None;
            }
            Some([kind, &value.to_json()].concat().into())
        }
        "i:" => Some(Text::from(format!("i:{}", json.parse::<i64>().ok()?))),
        _ => None,
    })
}

/// The order of a name that is stored and one that a walk found.
fn compare(stored: &str, found: &Name<'_>) -> Ordering {
    match found {
        Name::Field(name) | Name::Known(name) => match stored.split_at_checked(2) {
            Some(("f:", rest)) => rest.cmp(name),
            _ => stored.cmp("f:"),
        },
        Name::Element(name) => stored.cmp(name),
    }
}

fn key_of(name: &Name<'_>) -> Text {
    match name {
        Name::Field(name) | Name::Known(name) => {
            let mut key = Text::with_capacity(name.len() + 2);
            key.push_str("f:");
            key.push_str(name);
            key
        }
        Name::Element(name) => name.clone(),
    }
}
