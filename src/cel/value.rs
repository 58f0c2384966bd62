//! Values while an expression runs. What comes from an object is lent from its tree and converted one scalar at a time.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use super::authorizer::Authorization;
use super::functions::formats::Format;
use super::functions::quantity::Amount;
use super::functions::semver::Version;
use super::functions::times::{self, Instant};
use super::functions::url::Url;
use super::lazy::Lazy;
use super::shape::{ListSort, Shape, ShapeKind};
use super::types::Type;
use crate::tree::{self, Text};

/// Longest text of a value that messages show, in bytes.
const SHOWN_MAX: usize = 1024;

thread_local! {
    static CONVERTED: Cell<u64> = const { Cell::new(0) };
}

/// Bytes of texts of objects that this thread converted since it asked last. Values are converted when they are looked at, deep
/// within lists and maps that know of no run; this is how the run comes to pay for it.
pub(super) fn take_converted() -> u64 {
    CONVERTED.take()
}

/// As much of a text as messages show.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(SHOWN_MAX)]
}

/// Why a run ended without a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// A mistake that `||`, `&&` and `all` may get over: `no such key: a`.
    Told(Box<str>),
    /// It cost too much.
    TooDear,
}

impl Failure {
    pub(super) fn told(what: impl Into<String>) -> Failure {
        Failure::Told(what.into().into())
    }

    /// A function that has nothing for such arguments.
    pub(super) fn no_overload(name: &str, args: &[Val<'_>]) -> Failure {
        let types: Vec<String> = args.iter().map(|arg| arg.type_name().to_owned()).collect();
        Failure::told(format!("no such overload: {name}({})", types.join(", ")))
    }
}

pub(super) type Outcome<'a> = Result<Val<'a>, Failure>;

/// A value.
#[derive(Debug, Clone)]
pub(super) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Str<'a>),
    Bytes(Arc<[u8]>),
    /// In nanoseconds.
    Duration(i64),
    Timestamp(Instant),
    List(List<'a>),
    Map(Map<'a>),
    Optional(Option<Rc<Val<'a>>>),
    Type(Box<Type>),
    Quantity(Arc<Amount>),
    Url(Arc<Url>),
    Ip(IpAddr),
    /// An address and how many of its bits are the network's.
    Cidr(IpAddr, u8),
    Semver(Arc<Version>),
    Format(&'static Format),
    Authorization(Rc<Authorization<'a>>),
}

/// A text of an object, or one that was made.
#[derive(Debug, Clone)]
pub(super) enum Str<'a> {
    Lent(&'a str),
    Made(Text),
}

impl std::ops::Deref for Str<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Str::Lent(text) => text,
            Str::Made(text) => text,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum List<'a> {
    Tree {
        items: &'a [tree::Value],
        /// The shape of the list.
        shape: Option<&'a Shape>,
    },
    Made {
        items: Rc<Vec<Val<'a>>>,
        shape: Option<&'a Shape>,
    },
    /// One list after another. Doubling a list again and again costs no memory.
    Joined(Rc<Joined<'a>>),
}

#[derive(Debug)]
pub(super) struct Joined<'a> {
    pub(super) first: List<'a>,
    pub(super) second: List<'a>,
    pub(super) len: usize,
    /// How many lists are joined within, one below the other.
    pub(super) depth: u16,
}

#[derive(Debug, Clone)]
pub(super) enum Map<'a> {
    Tree {
        map: &'a tree::Map,
        /// The shape of the map or object.
        shape: Option<&'a Shape>,
    },
    Made(Rc<BTreeMap<Key, Val<'a>>>),
    /// Values that are made when they are asked for.
    Lazy(&'a Lazy<'a>),
}

/// A key of a map that was made. Whole numbers are one kind of key, whatever their type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Bool(bool),
    Number(i128),
    String(Text),
}

impl Key {
    pub(super) fn of(value: &Val<'_>) -> Option<Key> {
        match value {
            Val::Bool(value) => Some(Key::Bool(*value)),
            Val::Int(number) => Some(Key::Number(i128::from(*number))),
            Val::Uint(number) => Some(Key::Number(i128::from(*number))),
            Val::Double(number) if number.fract() == 0.0 && number.abs() < 1e19 => Some(Key::Number(*number as i128)),
            Val::String(text) => Some(Key::String(match text {
                Str::Lent(text) => (*text).into(),
                Str::Made(text) => text.clone(),
            })),
            _ => None,
        }
    }

    pub(super) fn value<'a>(&self) -> Val<'a> {
        match self {
            Key::Bool(value) => Val::Bool(*value),
            Key::Number(number) => i64::try_from(*number).map_or(Val::Uint(*number as u64), Val::Int),
            Key::String(text) => Val::String(Str::Made(text.clone())),
        }
    }
}

impl<'a> Val<'a> {
    pub(super) fn text(text: impl Into<Text>) -> Val<'a> {
        Val::String(Str::Made(text.into()))
    }

    pub(super) fn list(items: Vec<Val<'a>>) -> Val<'a> {
        Val::List(List::Made {
            items: Rc::new(items),
            shape: None,
        })
    }

    pub(super) fn some(value: Val<'a>) -> Val<'a> {
        Val::Optional(Some(Rc::new(value)))
    }

    /// A value of an object, as its schema says; as it is without one.
    pub(super) fn of_tree(value: &'a tree::Value, shape: Option<&'a Shape>) -> Outcome<'a> {
        match shape {
            Some(shape) => shaped(value, shape),
            None => Ok(plain(value)),
        }
    }

    /// The name of the type of the value.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Val::Null => "null_type",
            Val::Bool(_) => "bool",
            Val::Int(_) => "int",
            Val::Uint(_) => "uint",
            Val::Double(_) => "double",
            Val::String(_) => "string",
            Val::Bytes(_) => "bytes",
            Val::Duration(_) => "google.protobuf.Duration",
            Val::Timestamp(_) => "google.protobuf.Timestamp",
            Val::List(_) => "list",
            Val::Map(_) => "map",
            Val::Optional(_) => "optional_type",
            Val::Type(_) => "type",
            Val::Quantity(_) => "kubernetes.Quantity",
            Val::Url(_) => "kubernetes.URL",
            Val::Ip(_) => "net.IP",
            Val::Cidr(..) => "net.CIDR",
            Val::Semver(_) => "kubernetes.Semver",
            Val::Format(_) => "kubernetes.NamedFormat",
            Val::Authorization(value) => value.type_name(),
        }
    }

    /// The type of the value; what lists and maps hold is left open.
    pub(super) fn type_of(&self) -> Type {
        match self {
            Val::Null => Type::Null,
            Val::Bool(_) => Type::Bool,
            Val::Int(_) => Type::Int,
            Val::Uint(_) => Type::Uint,
            Val::Double(_) => Type::Double,
            Val::String(_) => Type::String,
            Val::Bytes(_) => Type::Bytes,
            Val::Duration(_) => Type::Duration,
            Val::Timestamp(_) => Type::Timestamp,
            Val::List(_) => Type::list(Type::Dyn),
            Val::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Val::Optional(_) => Type::optional(Type::Dyn),
            Val::Type(_) => Type::Type(Arc::new(Type::Dyn)),
            other => Type::Opaque(other.type_name()),
        }
    }

    /// How messages show a key or an index: the first KiB of it.
    pub(super) fn shown(&self) -> String {
        match self {
            Val::String(text) => cut(text).to_owned(),
            Val::Int(number) => number.to_string(),
            Val::Uint(number) => number.to_string(),
            Val::Double(number) => number.to_string(),
            Val::Bool(value) => value.to_string(),
            other => other.type_name().to_owned(),
        }
    }
}

/// A value as it stands in JSON.
fn plain(value: &tree::Value) -> Val<'_> {
    match value {
        tree::Value::Null => Val::Null,
        tree::Value::Bool(value) => Val::Bool(*value),
        tree::Value::Number(number) => number
            .as_i64()
            .map(Val::Int)
            .or_else(|| number.as_f64().map(Val::Double))
            .unwrap_or(Val::Null),
        tree::Value::String(text) | tree::Value::Raw(text) => Val::String(Str::Lent(text)),
        tree::Value::Array(list) => Val::List(List::Tree {
            items: list.as_slice(),
            shape: None,
        }),
        tree::Value::Object(map) => Val::Map(Map::Tree { map, shape: None }),
    }
}

/// A value as its schema says it is. Data that is otherwise is an error of the run.
fn shaped<'a>(value: &'a tree::Value, shape: &'a Shape) -> Outcome<'a> {
    let wrong = |wanted: &str| {
        let found = plain(value).type_name();
        Err(Failure::told(format!("invalid data, expected {wanted}, got {found}")))
    };
    let text = |kind: &str, parsed: Option<Val<'a>>| {
        let shown = cut(value.as_str().unwrap_or_default());
        parsed.ok_or_else(|| Failure::told(format!("Invalid {kind} {shown}")))
    };
    if value.is_null() {
        if shape.nullable {
            return Ok(Val::Null);
        }
        return Err(Failure::told("invalid data, got null for schema with nullable=false"));
    }
    if let (ShapeKind::Bytes | ShapeKind::Duration | ShapeKind::Date | ShapeKind::DateTime, tree::Value::String(text)) =
        (&shape.kind, value)
    {
        CONVERTED.set(CONVERTED.get().saturating_add(text.len() as u64));
    }
    match (&shape.kind, value) {
        (ShapeKind::IntOrString | ShapeKind::Int, tree::Value::Number(number)) => {
            // `5.0` is an integer in JSON, too.
            let whole = number.as_i64().or_else(|| {
                let number = number.as_f64()?;
                (number.fract() == 0.0 && number.abs() < 9e18).then_some(number as i64)
            });
            whole.map(Val::Int).map_or_else(|| wrong("int"), Ok)
        }
        (ShapeKind::Bool, tree::Value::Bool(value)) => Ok(Val::Bool(*value)),
        (ShapeKind::Double, tree::Value::Number(number)) => Ok(Val::Double(number.as_f64().unwrap_or(f64::NAN))),
        (ShapeKind::String | ShapeKind::IntOrString, tree::Value::String(_)) => Ok(plain(value)),
        (ShapeKind::Bytes, tree::Value::String(base64)) => text(
            "byte formatted string",
            super::functions::formats::base64_bytes(base64).map(|it| Val::Bytes(it.into())),
        ),
        (ShapeKind::Duration, tree::Value::String(duration)) => {
            text("duration", times::format_duration(duration).map(Val::Duration))
        }
        (ShapeKind::Date, tree::Value::String(date)) => {
            text("date formatted string", times::date(date).map(Val::Timestamp))
        }
        (ShapeKind::DateTime, tree::Value::String(time)) => {
            text("date-time formatted string", times::date_time(time).map(Val::Timestamp))
        }
        (ShapeKind::List { .. }, tree::Value::Array(list)) => Ok(Val::List(List::Tree {
            items: list.as_slice(),
            shape: Some(shape),
        })),
        (ShapeKind::Map { .. } | ShapeKind::Object { .. }, tree::Value::Object(map)) => Ok(Val::Map(Map::Tree {
            map,
            shape: Some(shape),
        })),
        (ShapeKind::IntOrString, _) => Err(Failure::told(
            "invalid data, expected XIntOrString value to be either a string or integer",
        )),
        (kind, _) => wrong(match kind {
            ShapeKind::Bool => "bool",
            ShapeKind::Int => "int",
            ShapeKind::Double => "float",
            ShapeKind::List { .. } => "an array",
            ShapeKind::Map { .. } | ShapeKind::Object { .. } => "a map",
            _ => "string",
        }),
    }
}

impl<'a> List<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            List::Tree { items, .. } => items.len(),
            List::Made { items, .. } => items.len(),
            List::Joined(joined) => joined.len,
        }
    }

    /// The item at a place, if there is one.
    pub(super) fn get(&self, mut at: usize) -> Option<Outcome<'a>> {
        let mut list = self;
        loop {
            match list {
                List::Tree { items, shape } => {
                    let shape = shape.and_then(Shape::element).map(|items| &**items);
                    return items.get(at).map(|item| Val::of_tree(item, shape));
                }
                List::Made { items, .. } => return items.get(at).cloned().map(Ok),
                List::Joined(joined) => {
                    let first = joined.first.len();
                    list = if at < first {
                        &joined.first
                    } else {
                        at -= first;
                        &joined.second
                    };
                }
            }
        }
    }

    /// All items in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Outcome<'a>> + use<'a> {
        let mut pending = vec![(self.clone(), 0)];
        std::iter::from_fn(move || {
            loop {
                let (list, at) = pending.last_mut()?;
                if let List::Joined(joined) = list {
                    let joined = joined.clone();
                    pending.pop();
                    pending.push((joined.second.clone(), 0));
                    pending.push((joined.first.clone(), 0));
                    continue;
                }
                let item = list.get(*at);
                *at += 1;
                if item.is_some() {
                    return item;
                }
                pending.pop();
            }
        })
    }

    /// The shape of the list, if it came from an object.
    pub(super) fn shape(&self) -> Option<&'a Shape> {
        match self {
            List::Tree { shape, .. } | List::Made { shape, .. } => *shape,
            List::Joined(_) => None,
        }
    }

    /// How its items are told apart.
    pub(super) fn sort(&self) -> &'a ListSort {
        match self.shape().map(|shape| &shape.kind) {
            Some(ShapeKind::List { sort, .. }) => sort,
            _ => &ListSort::Atomic,
        }
    }
}

impl<'a> Map<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Map::Tree { map, .. } => map.len(),
            Map::Made(map) => map.len(),
            Map::Lazy(lazy) => lazy.len(),
        }
    }

    /// The value of a key that is a text.
    pub(super) fn field(&self, name: &str) -> Option<Outcome<'a>> {
        match self {
            Map::Tree { map, shape } => match shape.map(|shape| &shape.kind) {
                Some(ShapeKind::Object { fields }) => {
                    let field = fields.get(name)?;
                    // A field that is null is treated as one that is not there.
                    let value = map.get(&field.name).filter(|value| !value.is_null())?;
                    Some(Val::of_tree(value, Some(&field.shape)))
                }
                Some(ShapeKind::Map { values }) => map.get(name).map(|value| Val::of_tree(value, Some(values))),
                _ => map.get(name).map(|value| Val::of_tree(value, None)),
            },
            Map::Made(map) => map.get(&Key::String(name.into())).cloned().map(Ok),
            Map::Lazy(lazy) => lazy.get(name),
        }
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &Val<'_>) -> Option<Outcome<'a>> {
        match (self, key) {
            (_, Val::String(name)) => self.field(name),
            (Map::Made(map), key) => map.get(&Key::of(key)?).cloned().map(Ok),
            _ => None,
        }
    }

    /// All keys, in order.
    pub(super) fn keys(&self) -> Vec<Val<'a>> {
        match self {
            Map::Tree { map, shape } => match shape.map(|shape| &shape.kind) {
                Some(ShapeKind::Object { fields }) => fields
                    .iter()
                    .filter(|(_, field)| map.contains_key(&field.name))
                    .map(|(name, _)| Val::String(Str::Lent(name)))
                    .collect(),
                _ => map.keys().map(|key| Val::String(Str::Lent(key.as_str()))).collect(),
            },
            Map::Made(map) => map.keys().map(Key::value).collect(),
            Map::Lazy(lazy) => lazy.names(),
        }
    }
}
