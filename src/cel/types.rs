//! Types of expressions.

use std::fmt;
use std::sync::Arc;

use super::shape::{Shape, ShapeKind};

/// A type.
#[derive(Debug, Clone)]
pub(super) enum Type {
    /// Of what was found to be wrong: fits everywhere, so that one mistake is told once.
    Error,
    /// Known only when the expression runs.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    /// `type(int)`: the type of types.
    #[allow(clippy::enum_variant_names, reason = "its name in CEL")]
    Type(Arc<Type>),
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    Optional(Arc<Type>),
    /// What libraries bring: `kubernetes.Quantity`, …
    Opaque(&'static str),
    /// An object of a schema, and what messages call it.
    Object(Arc<Shape>, Arc<str>),
    /// An object with these fields.
    Record(Arc<Record>),
    /// An object that is made by its name, with whatever fields.
    Made(Arc<str>),
    /// A type that is not known yet: a variable of the checker, or of a declaration.
    Open(u32),
}

/// What messages call an object, and its fields.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) name: &'static str,
    pub(super) fields: Vec<(Box<str>, Type)>,
}

/// Heaviest type, in types within it. Of what grows beyond (`{a: a}` in `{b: b}` in …) nothing is known.
const WEIGHT_MAX: u32 = 256;

impl Type {
    pub(super) fn list(items: Type) -> Type {
        Type::List(Arc::new(items)).bounded()
    }

    pub(super) fn map(keys: Type, values: Type) -> Type {
        Type::Map(Arc::new((keys, values))).bounded()
    }

    pub(super) fn optional(value: Type) -> Type {
        Type::Optional(Arc::new(value)).bounded()
    }

    /// The type, or `dyn` if it is too heavy.
    pub(super) fn bounded(self) -> Type {
        let mut left = WEIGHT_MAX;
        if self.within(&mut left) { self } else { Type::Dyn }
    }

    fn within(&self, left: &mut u32) -> bool {
        match left.checked_sub(1) {
            None => false,
            Some(less) => {
                *left = less;
                self.parameters().into_iter().all(|type_| type_.within(left))
            }
        }
    }

    /// The type of a value of that shape; `name` is what messages call it if it is an object.
    pub(super) fn of_shape(shape: &Arc<Shape>, name: &str) -> Type {
        match &shape.kind {
            ShapeKind::IntOrString | ShapeKind::Attribute => Type::Dyn,
            ShapeKind::Bool => Type::Bool,
            ShapeKind::Int => Type::Int,
            ShapeKind::Double => Type::Double,
            ShapeKind::String => Type::String,
            ShapeKind::Bytes => Type::Bytes,
            ShapeKind::Duration => Type::Duration,
            ShapeKind::Date | ShapeKind::DateTime => Type::Timestamp,
            ShapeKind::List { items, .. } => Type::list(Type::of_shape(items, &format!("{name}.@idx"))),
            ShapeKind::Map { values } => Type::map(Type::String, Type::of_shape(values, &format!("{name}.@elem"))),
            ShapeKind::Object { .. } => Type::Object(shape.clone(), name.into()),
        }
    }

    pub(super) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }

    /// Types below this one.
    pub(super) fn parameters(&self) -> Vec<&Type> {
        match self {
            Type::Type(one) | Type::List(one) | Type::Optional(one) => vec![one],
            Type::Map(pair) => vec![&pair.0, &pair.1],
            _ => Vec::new(),
        }
    }

    /// The type with others in the place of its open ones.
    pub(super) fn map_open(&self, with: &mut impl FnMut(u32) -> Type) -> Type {
        match self {
            Type::Open(number) => with(*number),
            Type::Type(one) => Type::Type(Arc::new(one.map_open(with))).bounded(),
            Type::List(one) => Type::list(one.map_open(with)),
            Type::Optional(one) => Type::optional(one.map_open(with)),
            Type::Map(pair) => Type::map(pair.0.map_open(with), pair.1.map_open(with)),
            other => other.clone(),
        }
    }
}

impl PartialEq for Type {
    fn eq(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::Type(one), Type::Type(other))
            | (Type::List(one), Type::List(other))
            | (Type::Optional(one), Type::Optional(other)) => one == other,
            (Type::Map(one), Type::Map(other)) => one == other,
            (Type::Opaque(one), Type::Opaque(other)) => one == other,
            (Type::Object(one, _), Type::Object(other, _)) => Arc::ptr_eq(one, other),
            (Type::Record(one), Type::Record(other)) => one.name == other.name,
            (Type::Made(one), Type::Made(other)) => one == other,
            (Type::Open(one), Type::Open(other)) => one == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Error => f.write_str("!error!"),
            Type::Dyn | Type::Open(_) => f.write_str("dyn"),
            Type::Null => f.write_str("null"),
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Uint => f.write_str("uint"),
            Type::Double => f.write_str("double"),
            Type::String => f.write_str("string"),
            Type::Bytes => f.write_str("bytes"),
            Type::Duration => f.write_str("duration"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::Type(one) => write!(f, "type({one})"),
            Type::List(items) => write!(f, "list({items})"),
            Type::Map(pair) => write!(f, "map({}, {})", pair.0, pair.1),
            Type::Optional(value) => write!(f, "optional_type({value})"),
            Type::Opaque(name) => f.write_str(name),
            Type::Object(_, name) | Type::Made(name) => f.write_str(name),
            Type::Record(record) => f.write_str(record.name),
        }
    }
}
