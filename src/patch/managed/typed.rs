//! What merging must know of a value: whether it is one value or several, and how its parts are told apart.
//!
//! Rules are those by which kube-apiserver makes `structured-merge-diff` schemas of OpenAPI: `x-kubernetes-list-type`,
//! `x-kubernetes-list-map-keys`, `x-kubernetes-map-type`; lists are one value and maps are several unless they say otherwise;
//! where nothing is said about a value it is taken by what it is.

use std::borrow::Cow;
use std::marker::PhantomData;

use crate::schema::structural::{self, Additional, Node, Structural};
use crate::schema::{Element, ListType, Plan, PlanField, Schema, Shape, Type};
use crate::tree::Value;

/// How values of one place in an object are merged. Copy; points into the schema that it is of.
#[derive(Clone, Copy)]
pub struct Typed<'a>(pub(in crate::patch) Kind<'a>);

#[derive(Clone, Copy)]
pub(in crate::patch) enum Kind<'a> {
    /// Of a built-in schema: the type, and what the field says about lists and maps.
    BuiltIn(Type<'static>, Option<&'static PlanField>),
    /// Of the schema of a custom resource. Whether it is a whole object, whose head the schema need not specify.
    Structural(Node<'a>, bool),
    /// As the value is: maps are several values, lists are one.
    Deduced(PhantomData<&'a ()>),
    /// As the value is, and always one value.
    Opaque,
}

/// What a place holds, as far as merging goes.
#[derive(Clone, Copy)]
pub(in crate::patch) enum Form<'a> {
    Scalar(Scalar),
    List(Listed<'a>),
    Map(Mapped<'a>),
}

/// What a scalar may be; null is allowed everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::patch) enum Scalar {
    Numeric,
    String,
    Boolean,
    /// Any of them.
    Untyped,
}

/// A list.
#[derive(Clone, Copy)]
pub(in crate::patch) struct Listed<'a> {
    pub(in crate::patch) kind: ListType,
    pub(in crate::patch) item: Typed<'a>,
    /// Of a list that is a map: its keys.
    pub(in crate::patch) keys: Keys<'a>,
}

/// The names of the keys of a list that is a map, in order.
#[derive(Clone, Copy)]
pub(in crate::patch) enum Keys<'a> {
    BuiltIn(&'a [&'static str]),
    /// Those of a list of a custom resource.
    Structural(Node<'a>),
}

/// A map or a struct.
#[derive(Clone, Copy)]
pub(in crate::patch) struct Mapped<'a> {
    /// Whether the whole is one value.
    pub(in crate::patch) atomic: bool,
    members: Members<'a>,
}

#[derive(Clone, Copy)]
enum Members<'a> {
    /// The fields of a built-in schema and no others.
    Struct(&'static Plan),
    /// Those of an object of a custom resource. Whether it is a whole object.
    Structural(Node<'a>, bool),
    /// Any names, with values of one type.
    Any(Typed<'a>),
}

/// A member of a map or a struct.
#[derive(Clone, Copy)]
pub(in crate::patch) enum Member<'a> {
    /// A field that the schema names.
    Field(Typed<'a>),
    /// A key.
    Key(Typed<'a>),
    /// Nothing that may be there.
    Unknown,
}

impl std::fmt::Debug for Typed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Kind::BuiltIn(ty, _) => ty.fmt(f),
            Kind::Structural(node, _) => write!(f, "Structural({})", node.kind().as_str()),
            Kind::Deduced(_) => f.write_str("Deduced"),
            Kind::Opaque => f.write_str("Opaque"),
        }
    }
}

impl From<Schema<'static>> for Typed<'static> {
    fn from(schema: Schema<'static>) -> Self {
        Typed(Kind::BuiltIn(Type::Schema(schema), None))
    }
}

impl<'a> From<&'a Structural> for Typed<'a> {
    fn from(schema: &'a Structural) -> Self {
        Typed(Kind::Structural(schema.root(), true))
    }
}

impl<'a> Typed<'a> {
    /// A value of which nothing is known: objects are taken apart, lists are one value.
    pub const DEDUCED: Typed<'static> = Typed(Kind::Deduced(PhantomData));

    /// Whether it is of a schema that does not change while the program runs.
    pub(in crate::patch) fn is_built_in(self) -> bool {
        matches!(self.0, Kind::BuiltIn(..))
    }

    /// What is here, given the value where the type leaves it open.
    pub(in crate::patch) fn form(self, value: Option<&Value>) -> Form<'a> {
        match self.0 {
            Kind::BuiltIn(ty, rule) => built_in(ty, rule, value),
            Kind::Structural(node, whole) => structural(node, whole, value),
            Kind::Deduced(_) => as_it_is(value, false),
            Kind::Opaque => as_it_is(value, true),
        }
    }

    /// The default of a key of a list that is a map, whose items are of this type, as JSON.
    pub(in crate::patch) fn default_of(self, key: &str) -> Option<Cow<'a, str>> {
        match self.0 {
            Kind::BuiltIn(Type::Schema(schema), _) => {
                let plan = Plan::of(schema);
                let field = plan.field(plan.find(key, &mut 0)?);
                field.default_json.map(Cow::Borrowed)
            }
            Kind::Structural(node, _) => Some(Cow::Owned(node.field(key)?.default()?.to_json())),
            _ => None,
        }
    }
}

fn built_in<'a>(ty: Type<'static>, rule: Option<&'static PlanField>, value: Option<&Value>) -> Form<'a> {
    let atomic = rule.is_some_and(|rule| rule.map_atomic);
    match ty {
        Type::Boolean => Form::Scalar(Scalar::Boolean),
        Type::Integer(_) | Type::Number(_) => Form::Scalar(Scalar::Numeric),
        Type::String("" | "byte") => Form::Scalar(Scalar::String),
        Type::String(_) => Form::Scalar(Scalar::Untyped),
        Type::Any => as_it_is(value, false),
        Type::Object => keyed(Typed::DEDUCED, atomic),
        Type::Map(element) => keyed(of(element), atomic),
        Type::List(element) => {
            let list = rule.and_then(|rule| Some((rule, rule.list?)));
            Form::List(Listed {
                kind: list.map_or(ListType::Atomic, |(_, kind)| kind),
                item: of(element),
                keys: Keys::BuiltIn(list.map_or(&[], |(rule, _)| &rule.map_keys)),
            })
        }
        Type::Schema(schema) => match schema.shape() {
            Shape::Struct => Form::Map(Mapped {
                atomic: atomic || is_whole(schema, rule),
                members: Members::Struct(Plan::of(schema)),
            }),
            Shape::Quantity | Shape::Time | Shape::MicroTime | Shape::IntOrString => Form::Scalar(Scalar::Untyped),
            Shape::Raw => as_it_is(value, true),
            Shape::Any | Shape::SchemaOrBool | Shape::SchemaOrArray | Shape::SchemaOrStrings => as_it_is(value, false),
        },
    }
}

fn of<'a>(element: Element<'static>) -> Typed<'a> {
    Typed(Kind::BuiltIn(element.ty(), None))
}

/// Whether a struct is one value: it says so, and the field that holds it does not say otherwise.
pub(in crate::patch) fn is_whole(schema: Schema<'static>, rule: Option<&'static PlanField>) -> bool {
    schema.map_atomic() && !rule.is_some_and(|rule| rule.field.map_granular())
}

fn keyed(values: Typed<'_>, atomic: bool) -> Form<'_> {
    Form::Map(Mapped {
        atomic,
        members: Members::Any(values),
    })
}

/// By the schema of a custom resource, as kube-apiserver makes a type of it: what is not specified is taken as it is where it is
/// kept at all.
fn structural<'a>(node: Node<'a>, whole: bool, value: Option<&Value>) -> Form<'a> {
    if node.int_or_string() {
        return Form::Scalar(Scalar::Untyped);
    }
    match node.kind() {
        structural::Kind::Boolean => Form::Scalar(Scalar::Boolean),
        structural::Kind::Integer | structural::Kind::Number => Form::Scalar(Scalar::Numeric),
        structural::Kind::String if node.has_format() => Form::Scalar(Scalar::Untyped),
        structural::Kind::String => Form::Scalar(Scalar::String),
        structural::Kind::Any => as_it_is(value, false),
        structural::Kind::Array => Form::List(Listed {
            kind: match node.list_type() {
                structural::ListType::Unset | structural::ListType::Atomic => ListType::Atomic,
                structural::ListType::Set => ListType::Set,
                structural::ListType::Map => ListType::Map,
            },
            item: node.items().map_or(Typed::DEDUCED, part),
            keys: Keys::Structural(node),
        }),
        structural::Kind::Object => Form::Map(Mapped {
            atomic: node.map_atomic(),
            members: Members::Structural(node, whole || node.embedded()),
        }),
    }
}

fn part(node: Node<'_>) -> Typed<'_> {
    Typed(Kind::Structural(node, false))
}

fn structural_member<'a>(node: Node<'a>, whole: bool, name: &str) -> Member<'a> {
    const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    match name {
        "apiVersion" | "kind" if whole => return Member::Field(Typed(Kind::BuiltIn(Type::String(""), None))),
        "metadata" if whole => {
            return Member::Field(Schema::named(METADATA).map_or(Typed::DEDUCED, Typed::from));
        }
        _ => {}
    }
    match (node.field(name), node.additional()) {
        (Some(field), _) => Member::Field(part(field)),
        (None, Some(Additional::Schema(values))) => Member::Key(part(values)),
        (None, Some(Additional::Any)) => Member::Key(Typed::DEDUCED),
        // An object of which nothing is specified may be of anything.
        (None, None) if node.preserves_unknown() || node.fields().len() == 0 => Member::Key(Typed::DEDUCED),
        (None, None | Some(Additional::None)) => Member::Unknown,
    }
}

/// A value of which the type says nothing. Null is taken for a map.
fn as_it_is<'a>(value: Option<&Value>, whole: bool) -> Form<'a> {
    let parts = Typed(if whole {
        Kind::Opaque
    } else {
        Kind::Deduced(PhantomData)
    });
    match value {
        None | Some(Value::Null | Value::Object(_) | Value::Raw(_)) => keyed(parts, whole),
        Some(Value::Array(_)) => Form::List(Listed {
            kind: ListType::Atomic,
            item: Typed(Kind::Opaque),
            keys: Keys::BuiltIn(&[]),
        }),
        Some(_) => Form::Scalar(Scalar::Untyped),
    }
}

impl<'a> Mapped<'a> {
    /// What a member is. `cursor` is where its name is looked for first; it moves on, as names mostly come in order.
    pub(in crate::patch) fn member(self, name: &str, cursor: &mut usize) -> Member<'a> {
        match self.members {
            Members::Struct(plan) => match plan.find(name, cursor) {
                Some(number) => {
                    let field = plan.field(number);
                    Member::Field(Typed(Kind::BuiltIn(field.ty, Some(field))))
                }
                None => Member::Unknown,
            },
            Members::Structural(node, whole) => structural_member(node, whole, name),
            Members::Any(values) => Member::Key(values),
        }
    }
}

impl<'a> Keys<'a> {
    /// The names.
    pub(in crate::patch) fn names(self) -> impl Iterator<Item = &'a str> {
        let (names, node): (&[&str], _) = match self {
            Keys::BuiltIn(names) => (names, None),
            Keys::Structural(node) => (&[], Some(node)),
        };
        names.iter().copied().chain(node.into_iter().flat_map(Node::list_keys))
    }
}
