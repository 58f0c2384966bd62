//! A set of fields as a walk along an object finds it: in order, with nothing copied.

use crate::tree::{Key, Text, text_of, write_escaped};

/// The name of a node in `FieldsV1`.
#[derive(Debug, Clone)]
pub(in crate::patch) enum Name<'a> {
    /// A field or a key of a map: `f:` and this.
    Field(&'a str),
    /// The same, of a name that needs no escapes: one of a schema, or of the code.
    Known(&'static str),
    /// An element of a list, whole: `k:{"name":"c"}`, `v:"value"`.
    Element(Text),
}

impl<'a> From<&'a Key> for Name<'a> {
    fn from(key: &'a Key) -> Name<'a> {
        match key {
            Key::Known(name) => Name::Known(name),
            Key::Sent(name) => Name::Field(name),
        }
    }
}

#[derive(Debug)]
struct Node<'a> {
    /// 0 for the fields of the object itself.
    depth: usize,
    /// Whether it is in the set itself, beside what is below it.
    member: bool,
    name: Name<'a>,
}

/// A set of fields: each node before those below it, and in the order of their names.
#[derive(Debug, Default)]
pub(in crate::patch) struct Trail<'a> {
    nodes: Vec<Node<'a>>,
}

impl<'a> Trail<'a> {
    pub(in crate::patch) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Begins a node; what is opened until it is closed lies below it. Its place comes back.
    pub(in crate::patch) fn open(&mut self, name: Name<'a>, depth: usize) -> usize {
        self.nodes.push(Node {
            depth,
            member: false,
            name,
        });
        self.nodes.len() - 1
    }

    /// Makes the node at that place a member.
    pub(in crate::patch) fn enter(&mut self, place: usize) {
        self.nodes[place].member = true;
    }

    /// Ends the node at that place, and forgets it if there is nothing in it.
    pub(in crate::patch) fn close(&mut self, place: usize) {
        if self.nodes.len() == place + 1 && !self.nodes[place].member {
            self.nodes.pop();
        }
    }

    /// A member with nothing below it.
    pub(in crate::patch) fn add(&mut self, name: Name<'a>, depth: usize) {
        let place = self.open(name, depth);
        self.enter(place);
    }

    /// The nodes at the top.
    pub(in crate::patch) fn top(&self) -> Branches<'_, 'a> {
        Branches { nodes: &self.nodes }
    }

    /// As `FieldsV1` writes it.
    pub(in crate::patch) fn to_json(&self) -> Text {
        let mut json = Vec::with_capacity(32 * self.nodes.len() + 2);
        json.push(b'{');
        let mut open: usize = 0;
        for (at, node) in self.nodes.iter().enumerate() {
            json.resize(json.len() + open.saturating_sub(node.depth), b'}');
            open = node.depth + 1;
            if json.last() != Some(&b'{') {
                json.push(b',');
            }
            json.push(b'"');
            match &node.name {
                Name::Field(name) => {
                    json.extend_from_slice(b"f:");
                    write_escaped(name, &mut json);
                }
                Name::Known(name) => {
                    json.extend_from_slice(b"f:");
                    json.extend_from_slice(name.as_bytes());
                }
                Name::Element(name) => write_escaped(name, &mut json),
            }
            json.extend_from_slice(b"\":{");
            let has_more = self.nodes.get(at + 1).is_some_and(|next| next.depth > node.depth);
            if node.member && has_more {
                json.extend_from_slice(b"\".\":{}");
            }
        }
        json.resize(json.len() + open + 1, b'}');
        text_of(std::str::from_utf8(&json).unwrap_or_default())
    }
}

/// Nodes side by side.
#[derive(Clone)]
pub(in crate::patch) struct Branches<'t, 'a> {
    nodes: &'t [Node<'a>],
}

/// One node.
#[derive(Clone)]
pub(in crate::patch) struct Branch<'t, 'a> {
    pub(in crate::patch) name: &'t Name<'a>,
    pub(in crate::patch) member: bool,
    pub(in crate::patch) below: Branches<'t, 'a>,
}

impl<'t, 'a> Iterator for Branches<'t, 'a> {
    type Item = Branch<'t, 'a>;

    fn next(&mut self) -> Option<Branch<'t, 'a>> {
        let (first, rest) = self.nodes.split_first()?;
        let below = rest.iter().take_while(|node| node.depth > first.depth).count();
        let (below, after) = rest.split_at(below);
        self.nodes = after;
        Some(Branch {
            name: &first.name,
            member: first.member,
            below: Branches { nodes: below },
        })
    }
}
