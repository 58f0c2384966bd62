//! The set of fields of an entry as the text that is stored: whether a change concerns it is told without taking it apart.

use std::borrow::Cow;
use std::collections::HashMap;

use super::fields::Fields;
use super::trail::{Branch, Branches, Name};
use crate::tree::Text;

/// Sets nest no deeper than this; objects do not either.
pub(in crate::patch) const DEPTH_MAX: usize = 512;

/// Whether a set of fields in JSON (compact, as it is stored) has any member of another set. Linear in the length of the
/// text at most; parts that have nothing in common are passed over. What is no set has no members.
pub(in crate::patch) fn has_any(json: &str, of: &Branches<'_, '_>) -> bool {
    let mut text = Scanner {
        bytes: json.as_bytes(),
        at: 0,
    };
    text.object(of).unwrap_or(false)
}

/// Whether a set of fields in JSON has all members of another set. As [`has_any`].
pub(in crate::patch) fn has_all(json: &str, of: Branches<'_, '_>) -> bool {
    let mut text = Scanner {
        bytes: json.as_bytes(),
        at: 0,
    };
    text.covers(of).unwrap_or(false)
}

/// The set of fields in JSON, taken apart. `None` for what is no set.
pub(in crate::patch) fn parse(json: &str) -> Option<Fields> {
    let mut text = Scanner {
        bytes: json.as_bytes(),
        at: 0,
    };
    let set = text.set(0)?;
    (text.at == json.len()).then_some(set)
}

/// Nodes side by side by their names: looked through where they are few, and by a table where they are many, so that a set of
/// many fields costs no more than its length.
enum Named<'b, 't, 'a> {
    Few(&'b Branches<'t, 'a>),
    Many(HashMap<(bool, &'t str), Branch<'t, 'a>>),
}

impl<'b, 't, 'a> Named<'b, 't, 'a> {
    /// More nodes than these are many.
    const FEW: usize = 16;

    fn of(branches: &'b Branches<'t, 'a>) -> Self {
        if branches.clone().nth(Self::FEW).is_none() {
            return Self::Few(branches);
        }
        let by_name = branches.clone().map(|branch| {
            let key = match branch.name {
                Name::Field(name) | Name::Known(name) => (true, *name),
                Name::Element(name) => (false, name.as_str()),
            };
            (key, branch)
        });
        Self::Many(by_name.collect())
    }

    /// The node of a name as it is written in JSON.
    fn find(&self, name: &[u8], escaped: bool) -> Option<Branch<'t, 'a>> {
        let by_name = match self {
            Self::Few(branches) => {
                let mut branches = Branches::clone(branches);
                return branches.find(|branch| is_named(branch.name, name, escaped));
            }
            Self::Many(by_name) => by_name,
        };
        let plain: Cow<'_, str> = if escaped {
            unescaped(name)?.into()
        } else {
            std::str::from_utf8(name).ok()?.into()
        };
        let key = match plain.strip_prefix("f:") {
            Some(field) => (true, field),
            None => (false, &*plain),
        };
        by_name.get(&key).cloned()
    }
}

struct Scanner<'t> {
    bytes: &'t [u8],
    at: usize,
}

impl<'t> Scanner<'t> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Takes an object apart.
    fn set(&mut self, depth: usize) -> Option<Fields> {
        if depth > DEPTH_MAX || self.peek()? != b'{' {
            return None;
        }
        self.at += 1;
        let mut set = Fields::default();
        while let Some((name, escaped)) = self.next_name()? {
            if name == b"." {
                self.pass_over()?;
                set.join();
                continue;
            }
            let name: Text = if escaped {
                unescaped(name)?.into()
            } else {
                std::str::from_utf8(name).ok()?.into()
            };
            let mut below = self.set(depth + 1)?;
            below.join_if_leaf();
            set.put(name, below);
        }
        Some(set)
    }

    /// Goes along an object up to its end, or up to the first common member.
    fn object(&mut self, of: &Branches<'_, '_>) -> Option<bool> {
        if self.peek()? != b'{' {
            return None;
        }
        self.at += 1;
        let named = Named::of(of);
        while let Some((name, escaped)) = self.next_name()? {
            let Some(branch) = named.find(name, escaped) else {
                self.pass_over()?;
                continue;
            };
            if branch.member && self.is_member() {
                return Some(true);
            }
            if self.object(&branch.below)? {
                return Some(true);
            }
        }
        Some(false)
    }

    /// Goes along an object up to its end, or up to a node that lacks something.
    fn covers(&mut self, of: Branches<'_, '_>) -> Option<bool> {
        if self.peek()? != b'{' {
            return None;
        }
        self.at += 1;
        let mut found = 0;
        let named = Named::of(&of);
        while let Some((name, escaped)) = self.next_name()? {
            let Some(branch) = named.find(name, escaped) else {
                self.pass_over()?;
                continue;
            };
            if branch.member && !self.is_member() || !self.covers(branch.below)? {
                return Some(false);
            }
            found += 1;
        }
        Some(found == of.count())
    }

    /// The next name of an object and whether there are escapes in it, up to its value; none at the object's end.
    #[expect(clippy::option_option, reason = "no object at all, no further name, a name")]
    fn next_name(&mut self) -> Option<Option<(&'t [u8], bool)>> {
        match self.peek()? {
            b'}' => {
                self.at += 1;
                return Some(None);
            }
            b',' => self.at += 1,
            _ => {}
        }
        let name = self.name()?;
        if self.peek()? != b':' {
            return None;
        }
        self.at += 1;
        Some(Some(name))
    }

    /// Whether the node whose value begins here is in the set: it has nothing below it, or it says so.
    fn is_member(&self) -> bool {
        let rest = &self.bytes[self.at..];
        rest.starts_with(b"{}") || rest.starts_with(b"{\".\":")
    }

    /// The text between quotes, as it is written; and whether there are escapes in it.
    fn name(&mut self) -> Option<(&'t [u8], bool)> {
        if self.peek()? != b'"' {
            return None;
        }
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some((&self.bytes[start..self.at - 1], escaped));
                }
                b'\\' => {
                    escaped = true;
                    self.at += 2;
                }
                _ => self.at += 1,
            }
        }
    }

    /// Goes over an object.
    fn pass_over(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'{' => depth += 1,
                b'}' => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        self.at += 1;
                        return Some(());
                    }
                }
                b'"' => {
                    self.name()?;
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
    }
}

fn is_named(name: &Name<'_>, written: &[u8], escaped: bool) -> bool {
    if escaped {
        return unescaped(written).is_some_and(|text| is_named(name, text.as_bytes(), false));
    }
    match name {
        Name::Field(name) | Name::Known(name) => written.strip_prefix(b"f:") == Some(name.as_bytes()),
        Name::Element(name) => written == name.as_bytes(),
    }
}

/// A name that was written with escapes.
fn unescaped(written: &[u8]) -> Option<String> {
    serde_json::from_slice(&[b"\"", written, b"\""].concat()).ok()
}

#[cfg(test)]
mod tests {
    use super::super::fields::Fields;
    use super::super::trail::Trail;
    use super::*;
    use crate::tree::{Text, Value};

    fn trail(members: &[&[&'static str]]) -> Trail<'static> {
        let mut trail = Trail::default();
        let mut open: Vec<&str> = Vec::new();
        for path in members {
            let common = path.iter().zip(&open).take_while(|(one, other)| one == other).count();
            open.truncate(common);
            for (depth, &name) in path.iter().enumerate().skip(common) {
                let name = match name.strip_prefix("f:") {
                    Some(name) => Name::Field(name),
                    None => Name::Element(name.into()),
                };
                let place = trail.open(name, depth);
                if depth + 1 == path.len() {
                    trail.enter(place);
                }
            }
            open = path.to_vec();
        }
        trail
    }

    #[test]
    fn a_set_as_text_tells_what_it_has_as_one_taken_apart_does() {
        let json = concat!(
            r#"{"f:metadata":{"f:labels":{".":{},"f:a\"\\b":{}}},"#,
            r#""f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{}}},"f:set":{"v:\"x}\"":{}}}}"#
        );
        let whole = Fields::of(&Value::Raw(Text::from(json)));
        assert_eq!(whole.write().to_json(), json);
        let sets: &[&[&[&str]]] = &[
            &[&["f:metadata", "f:labels"]],
            &[&["f:metadata", "f:labels", "f:a\"\\b"]],
            &[&["f:metadata"]],
            &[&["f:spec", "f:containers"]],
            &[&["f:spec", "f:containers", "k:{\"name\":\"c\"}"]],
            &[&["f:spec", "f:containers", "k:{\"name\":\"c\"}", "f:image"]],
            &[&["f:spec", "f:containers", "k:{\"name\":\"d\"}", "f:image"]],
            &[&["f:spec", "f:set", "v:\"x}\""]],
            &[&["f:metadata", "f:labels"], &["f:spec", "f:set", "v:\"x}\""]],
            &[&["f:metadata", "f:labels"], &["f:spec", "f:set", "v:\"y\""]],
            &[&["f:status"]],
        ];
        for members in sets {
            let of = trail(members);
            let mut less = whole.clone();
            assert_eq!(has_any(json, &of.top()), less.remove_found(of.top()), "{members:?}");
            let mut more = whole.clone();
            more.add_found(of.top());
            assert_eq!(has_all(json, of.top()), more == whole, "{members:?}");
        }
        assert!(!has_any("{\"f:spec\"", &trail(sets[3]).top()));
    }

    #[test]
    fn where_names_are_many_they_are_found_as_where_they_are_few() {
        let names: Vec<&'static str> = (0..60)
            .map(|number| &*Box::leak(format!("f:k\u{e9}\"{number}").into_boxed_str()))
            .collect();
        let mut paths: Vec<Vec<&'static str>> = names.iter().map(|name| vec!["f:data", *name]).collect();
        paths.push(vec!["f:list", "k:{\"name\":\"c\"}"]);
        let paths: Vec<&[&'static str]> = paths.iter().map(Vec::as_slice).collect();
        let set = trail(&paths);
        let json = set.to_json();
        assert!(has_all(&json, set.top()) && has_any(&json, &set.top()));
        let other = trail(&[&["f:data", names[59]]]);
        assert!(has_all(&json, other.top()) && has_any(&other.to_json(), &set.top()));
        assert!(!has_all(&other.to_json(), set.top()));
        let none = trail(&[&["f:data", "f:other"]]);
        assert!(!has_any(&none.to_json(), &set.top()) && !has_all(&json, none.top()));
    }
}
