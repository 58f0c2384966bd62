//! Expressions as trees. Nodes lie in one list, so that neither depth nor size costs stack when a tree is let go.

use std::sync::Arc;

/// A node: its place in [`Ast::nodes`].
pub(super) type Id = u32;

/// An expression taken apart.
#[derive(Debug)]
pub(super) struct Ast {
    pub(super) nodes: Vec<Node>,
    pub(super) root: Id,
}

impl Ast {
    pub(super) fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }
}

#[derive(Debug)]
pub(super) struct Node {
    /// Byte of the expression that stands for the node in messages: an operator, a dot, an opening parenthesis.
    pub(super) at: u32,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Literal(Literal),
    Ident(Arc<str>),
    /// `operand.field`; `has(operand.field)` when `test`; `operand.?field` when `optional`.
    Select {
        operand: Id,
        field: Arc<str>,
        test: bool,
        optional: bool,
    },
    /// A function, or an operator under the name `_+_`.
    Call {
        function: Arc<str>,
        target: Option<Id>,
        args: Vec<Id>,
    },
    And(Id, Id),
    Or(Id, Id),
    Conditional(Id, Id, Id),
    /// Items; `?item` when the flag is set.
    List(Vec<(Id, bool)>),
    Map(Vec<Entry>),
    /// `Name{field: value}`
    Object {
        name: Arc<str>,
        fields: Vec<(Arc<str>, Entry)>,
    },
    Fold(Box<Fold>),
    /// `cel.bind(name, value, body)`
    Bind {
        name: Arc<str>,
        value: Id,
        body: Id,
    },
    /// `target.optMap(name, body)`; `optFlatMap` when `flat`.
    OptionalMap {
        target: Id,
        name: Arc<str>,
        body: Id,
        flat: bool,
    },
    /// `target.sortBy(name, key)`
    SortBy {
        target: Id,
        name: Arc<str>,
        key: Id,
    },
}

#[derive(Debug, Clone)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(crate::tree::Text),
    Bytes(Arc<[u8]>),
}

/// A key and a value; of a field of an object the key is not looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) key: Id,
    pub(super) value: Id,
    pub(super) optional: bool,
}

/// A macro that goes over a list or a map.
#[derive(Debug)]
pub(super) struct Fold {
    pub(super) what: FoldKind,
    pub(super) range: Id,
    /// One variable (items of a list, keys of a map), or two (place and item, key and value).
    pub(super) names: (Arc<str>, Option<Arc<str>>),
    pub(super) filter: Option<Id>,
    pub(super) body: Id,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    /// `map` and `transformList`
    Map,
    Filter,
    TransformMap,
    TransformMapEntry,
}
