//! The compact form, and how it is looked at.

use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use regex::Regex;

use super::checks::Check;
use super::formats::Format;
use crate::cel::rules::Rules;
use crate::tree::{Key, Text, Value};

/// A compiled schema. Immutable; the patterns in it are compiled when they are first met.
#[derive(Debug)]
pub struct Structural {
    /// The root is the last: what a node refers to stands before it.
    pub(super) nodes: Box<[NodeData]>,
    pub(super) fields: Box<[Field]>,
    pub(super) checks: Box<[Check]>,
    /// Nodes of `anyOf`, `oneOf` and `allOf`, in runs.
    pub(super) branches: Box<[u32]>,
    /// Names in runs: `required`, and the keys of lists.
    pub(super) lists: Box<[u32]>,
    /// The keys of lists that are maps: runs of `lists`.
    pub(super) keys: Box<[Run]>,
    /// Defaults, and in runs the values of `enum`.
    pub(super) values: Box<[Value]>,
    /// How long each of them is as JSON, in bytes.
    pub(super) value_lens: Box<[u32]>,
    pub(super) patterns: Box<[Pattern]>,
    /// All names, one after the other.
    pub(super) names: Box<str>,
    /// Where each name ends.
    pub(super) name_ends: Box<[u32]>,
    /// Patterns that are kept compiled.
    pub(super) compiled: AtomicUsize,
    /// `x-kubernetes-validations`, wherever there are any.
    pub(super) rules: Option<Rules>,
}

/// What stands for no node, no default, no keys.
pub(super) const NONE: u32 = u32::MAX;

/// A stretch of an arena.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Run {
    pub(super) start: u32,
    pub(super) count: u32,
}

impl Run {
    pub(super) fn of<T>(self, arena: &[T]) -> &[T] {
        &arena[self.start as usize..][..self.count as usize]
    }
}

/// One schema: 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct NodeData {
    /// `properties`, in the order of names.
    pub(super) fields: Run,
    /// `items`, a node.
    pub(super) items: u32,
    /// `additionalProperties`, a node.
    pub(super) additional: u32,
    /// `default`, in `values`.
    pub(super) default: u32,
    /// `x-kubernetes-list-map-keys`, in `keys`.
    pub(super) keys: u32,
    pub(super) checks: u32,
    pub(super) check_count: u16,
    pub(super) flags: Flags,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Field {
    pub(super) name: u32,
    pub(super) node: u32,
}

/// What a schema says in one bit or a few.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Flags(pub(super) u16);

impl Flags {
    const KIND: u16 = 0b111;
    pub(super) const NULLABLE: Flags = Flags(1 << 3);
    pub(super) const PRESERVES: Flags = Flags(1 << 4);
    pub(super) const EMBEDDED: Flags = Flags(1 << 5);
    pub(super) const INT_OR_STRING: Flags = Flags(1 << 6);
    pub(super) const MAP_ATOMIC: Flags = Flags(1 << 7);
    const LIST: u16 = 8;
    /// `additionalProperties: true`, or a schema.
    pub(super) const ADDITIONAL: Flags = Flags(1 << 10);
    /// `additionalProperties: false`.
    pub(super) const NO_ADDITIONAL: Flags = Flags(1 << 11);
    /// There are defaults, here or below.
    pub(super) const DEFAULTS: Flags = Flags(1 << 12);
    /// There are embedded resources, here or below.
    pub(super) const EMBEDS: Flags = Flags(1 << 13);
    /// There are lists that are sets or maps, here or below.
    pub(super) const UNIQUE: Flags = Flags(1 << 14);
    /// What holds for a schema when it holds for one below it.
    pub(super) const BELOW: Flags = Flags(Flags::DEFAULTS.0 | Flags::EMBEDS.0 | Flags::UNIQUE.0);

    pub(super) fn has(self, flag: Flags) -> bool {
        self.0 & flag.0 != 0
    }

    pub(super) fn set(&mut self, flag: Flags) {
        self.0 |= flag.0;
    }

    pub(super) fn set_kind(&mut self, kind: Kind) {
        self.0 |= kind as u16;
    }

    pub(super) fn kind(self) -> Kind {
        match self.0 & Flags::KIND {
            1 => Kind::Object,
            2 => Kind::Array,
            3 => Kind::String,
            4 => Kind::Integer,
            5 => Kind::Number,
            6 => Kind::Boolean,
            _ => Kind::Any,
        }
    }

    pub(super) fn set_list(&mut self, list: ListType) {
        self.0 |= (list as u16) << Flags::LIST;
    }

    pub(super) fn list(self) -> ListType {
        match self.0 >> Flags::LIST & 0b11 {
            1 => ListType::Atomic,
            2 => ListType::Set,
            3 => ListType::Map,
            _ => ListType::Unset,
        }
    }
}

/// The `type` of a schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// None is given.
    Any,
    /// `object`
    Object,
    /// `array`
    Array,
    /// `string`
    String,
    /// `integer`
    Integer,
    /// `number`
    Number,
    /// `boolean`
    Boolean,
}

impl Kind {
    /// As the API spells it; `""` for none.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Any => "",
            Kind::Object => "object",
            Kind::Array => "array",
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Number => "number",
            Kind::Boolean => "boolean",
        }
    }
}

/// `x-kubernetes-list-type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListType {
    /// Not given; such a list is atomic.
    Unset,
    /// Replaced as a whole.
    Atomic,
    /// Of values that occur once.
    Set,
    /// Of objects that keys tell apart.
    Map,
}

/// What a schema says of fields that it does not name.
#[derive(Clone, Copy, Debug)]
pub enum Additional<'a> {
    /// `additionalProperties: true`.
    Any,
    /// `additionalProperties: false`.
    None,
    /// Their schema.
    Schema(Node<'a>),
}

/// A pattern, compiled when it is first met.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) text: Text,
    pub(super) regex: OnceLock<Option<Regex>>,
}

/// A schema within a compiled schema.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    pub(super) all: &'a Structural,
    pub(super) id: u32,
}

impl PartialEq for Node<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.all, other.all) && self.id == other.id
    }
}

impl Eq for Node<'_> {}

impl Structural {
    /// The schema of the whole object.
    pub fn root(&self) -> Node<'_> {
        Node {
            all: self,
            id: self.nodes.len() as u32 - 1,
        }
    }

    /// How many distinct schemas there are in it.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes of heap, without rules, patterns that were compiled and what defaults refer to.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.nodes)
            + size_of_val(&*self.fields)
            + size_of_val(&*self.checks)
            + size_of_val(&*self.branches)
            + size_of_val(&*self.lists)
            + size_of_val(&*self.keys)
            + size_of_val(&*self.values)
            + size_of_val(&*self.value_lens)
            + size_of_val(&*self.patterns)
            + self.names.len()
            + size_of_val(&*self.name_ends)
    }

    /// The rules of the schema, ready to run; `None` when it has none.
    pub(crate) fn rules(&self) -> Option<&Rules> {
        self.rules.as_ref()
    }

    pub(super) fn name(&self, id: u32) -> &str {
        let start = id.checked_sub(1).map_or(0, |before| self.name_ends[before as usize]);
        &self.names[start as usize..self.name_ends[id as usize] as usize]
    }

    pub(super) fn names(&self, run: Run) -> impl ExactSizeIterator<Item = &str> {
        run.of(&self.lists).iter().map(|id| self.name(*id))
    }
}

impl<'a> Node<'a> {
    pub(super) fn data(self) -> &'a NodeData {
        &self.all.nodes[self.id as usize]
    }

    fn at(self, id: u32) -> Option<Node<'a>> {
        (id != NONE).then_some(Node { all: self.all, id })
    }

    pub(super) fn is(self, flag: Flags) -> bool {
        self.data().flags.has(flag)
    }

    /// Its `type`.
    pub fn kind(self) -> Kind {
        self.data().flags.kind()
    }

    /// Whether it is `x-kubernetes-int-or-string`.
    pub fn int_or_string(self) -> bool {
        self.is(Flags::INT_OR_STRING)
    }

    /// Whether null is a value of it.
    pub fn nullable(self) -> bool {
        self.is(Flags::NULLABLE)
    }

    /// Whether fields that it does not name are kept.
    pub fn preserves_unknown(self) -> bool {
        self.is(Flags::PRESERVES)
    }

    /// Whether values of it are whole API objects.
    pub fn embedded(self) -> bool {
        self.is(Flags::EMBEDDED)
    }

    /// Whether texts of it have a format, other than base64.
    pub fn has_format(self) -> bool {
        let format = |check: &Check| match check {
            Check::Format(format) => *format != Format::Byte,
            Check::OtherFormat(_) => true,
            _ => false,
        };
        self.checks().iter().any(format)
    }

    /// Whether it is an object that is replaced as a whole.
    pub fn map_atomic(self) -> bool {
        self.is(Flags::MAP_ATOMIC)
    }

    /// What sort of list it is.
    pub fn list_type(self) -> ListType {
        self.data().flags.list()
    }

    /// The fields that tell items of a list apart, when it is a map.
    pub fn list_keys(self) -> impl ExactSizeIterator<Item = &'a str> {
        let run = match self.data().keys {
            NONE => Run::default(),
            at => self.all.keys[at as usize],
        };
        self.all.names(run)
    }

    /// The named field, in O(log n).
    pub fn field(self, name: &str) -> Option<Node<'a>> {
        let fields = self.data().fields.of(&self.all.fields);
        let found = fields
            .binary_search_by(|field| self.all.name(field.name).cmp(name))
            .ok()?;
        self.at(fields[found].node)
    }

    /// The named fields, in the order of their names.
    pub fn fields(self) -> impl ExactSizeIterator<Item = (&'a str, Node<'a>)> {
        let all = self.all;
        let fields = self.data().fields.of(&all.fields).iter();
        fields.map(move |field| (all.name(field.name), Node { all, id: field.node }))
    }

    /// The items of a list.
    pub fn items(self) -> Option<Node<'a>> {
        self.at(self.data().items)
    }

    /// What it says of fields that it does not name.
    pub fn additional(self) -> Option<Additional<'a>> {
        match self.at(self.data().additional) {
            Some(schema) => Some(Additional::Schema(schema)),
            None if self.is(Flags::ADDITIONAL) => Some(Additional::Any),
            None if self.is(Flags::NO_ADDITIONAL) => Some(Additional::None),
            None => None,
        }
    }

    /// The schema of fields that it does not name.
    pub(super) fn additional_schema(self) -> Option<Node<'a>> {
        self.at(self.data().additional)
    }

    /// The schema of a field, named or not.
    pub fn of_field(self, name: &str) -> Option<Node<'a>> {
        self.field(name).or_else(|| self.additional_schema())
    }

    /// What is put where there is nothing.
    pub fn default(self) -> Option<&'a Value> {
        match self.data().default {
            NONE => None,
            at => Some(&self.all.values[at as usize]),
        }
    }

    /// How long its default is as JSON, in bytes.
    pub(super) fn default_len(self) -> usize {
        match self.data().default {
            NONE => 0,
            at => self.all.value_lens[at as usize] as usize,
        }
    }

    pub(super) fn checks(self) -> &'a [Check] {
        let data = self.data();
        &self.all.checks[data.checks as usize..][..usize::from(data.check_count)]
    }
}

/// A name as the key of an object.
pub(super) fn key(name: &str) -> Key {
    Key::Sent(Text::from(name))
}
