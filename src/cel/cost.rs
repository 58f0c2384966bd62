//! What an expression can cost at most, told before it runs: by how large the schema lets values become.
//!
//! The rules are kube-apiserver's to the digit, odd ones too, since a CustomResourceDefinition is refused by them.

use std::sync::Arc;

use super::ast::{Fold, FoldKind, Id, Kind, Literal};
use super::check::{Checked, Link};
use super::declarations::Declarations;
use super::shape::Shape;
use super::types::Type;

/// From at least to at most; at the top it stays at the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

const UNKNOWN: Range = Range { min: 0, max: u64::MAX };

impl Range {
    fn of(number: u64) -> Range {
        Range {
            min: number,
            max: number,
        }
    }

    fn plus(self, other: Range) -> Range {
        Range {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    fn times(self, other: Range) -> Range {
        Range {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    /// Times a factor, rounded up.
    fn scaled(self, factor: f64) -> Range {
        let scaled = |number: u64| (number as f64 * factor).ceil() as u64;
        Range {
            min: scaled(self.min),
            max: scaled(self.max),
        }
    }

    fn union(self, other: Range) -> Range {
        Range {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// Where a value is in the objects of the schema.
#[derive(Debug, Clone, Copy)]
enum Path<'a> {
    /// Nowhere: it was made.
    None,
    /// At a place of that shape, if there is one.
    At(Option<&'a Arc<Shape>>),
}

/// What is known of a part of the expression.
#[derive(Debug, Clone, Copy)]
struct Known<'a> {
    cost: Range,
    size: Option<Range>,
    /// Sizes of keys and of values, of lists and maps that were made.
    entries: Option<(Range, Range)>,
    path: Path<'a>,
}

impl Known<'_> {
    fn size_or_unknown(&self) -> Range {
        self.size.unwrap_or(UNKNOWN)
    }
}

/// The most that one run can cost. `root` is the shape of `self`, and of `oldSelf`.
pub(super) fn estimate(checked: &Checked, root: &Arc<Shape>) -> Range {
    let mut estimator = Estimator {
        checked,
        root,
        locals: Vec::new(),
    };
    estimator.known(checked.ast.root).cost
}

struct Estimator<'a> {
    checked: &'a Checked,
    root: &'a Arc<Shape>,
    locals: Vec<(Arc<str>, Known<'a>)>,
}

impl<'a> Estimator<'a> {
    fn type_of(&self, id: Id) -> &'a Type {
        &self.checked.types[id as usize]
    }

    /// What is known of a node, its size filled in from its place or its type.
    fn known(&mut self, id: Id) -> Known<'a> {
        let mut known = self.node(id);
        if known.size.is_none() {
            known.size = match known.path {
                Path::At(Some(shape)) => Some(Range {
                    min: 0,
                    max: shape.elements_max,
                }),
                _ => scalar_size(self.type_of(id)),
            };
        }
        known
    }

    fn made(cost: Range) -> Known<'a> {
        Known {
            cost,
            size: None,
            entries: None,
            path: Path::None,
        }
    }

    fn node(&mut self, id: Id) -> Known<'a> {
        match &self.checked.ast.node(id).kind {
            Kind::Literal(literal) => Known {
                size: match literal {
                    Literal::String(text) => Some(Range::of(text.chars().count() as u64)),
                    Literal::Bytes(bytes) => Some(Range::of(bytes.len() as u64)),
                    _ => None,
                },
                ..Self::made(Range::of(0))
            },
            Kind::Ident(name) => self.ident(id, name),
            Kind::Select {
                operand, field, test, ..
            } => self.select(*operand, field, *test),
            Kind::Call { target, args, .. } => self.call(id, *target, args),
            Kind::And(one, other) | Kind::Or(one, other) => {
                let (one, other) = (self.known(*one).cost, self.known(*other).cost);
                Self::made(Range {
                    min: one.min,
                    max: one.plus(other).max,
                })
            }
            Kind::Conditional(condition, one, other) => {
                let condition = self.known(*condition).cost;
                let (one, other) = (self.known(*one), self.known(*other));
                Known {
                    cost: condition.plus(one.cost.union(other.cost)),
                    size: Some(one.size_or_unknown().union(other.size_or_unknown())),
                    entries: union_of_entries(one.entries, other.entries),
                    path: Path::None,
                }
            }
            Kind::List(items) => {
                let mut cost = Range::of(10);
                let mut sizes = empty_or(items.is_empty());
                for (item, _) in items {
                    let item = self.known(*item);
                    cost = cost.plus(item.cost);
                    sizes = sizes.union(item.size_or_unknown());
                }
                Known {
                    size: Some(Range::of(items.len() as u64)),
                    entries: Some((Range::of(1), sizes)),
                    ..Self::made(cost)
                }
            }
            Kind::Map(entries) => {
                let mut cost = Range::of(30);
                let (mut keys, mut values) = (empty_or(entries.is_empty()), empty_or(entries.is_empty()));
                for entry in entries {
                    let (key, value) = (self.known(entry.key), self.known(entry.value));
                    cost = cost.plus(key.cost).plus(value.cost);
                    keys = keys.union(key.size_or_unknown());
                    values = values.union(value.size_or_unknown());
                }
                Known {
                    size: Some(Range::of(entries.len() as u64)),
                    entries: Some((keys, values)),
                    ..Self::made(cost)
                }
            }
            Kind::Object { fields, .. } => {
                let costs = fields.iter().map(|(_, entry)| self.known(entry.value).cost);
                Self::made(costs.fold(Range::of(40), Range::plus))
            }
            Kind::Fold(fold) => self.fold(fold),
            Kind::Bind { name, value, body } => {
                let value = self.known(*value);
                let body = self.within(&[(name.clone(), value)], *body);
                Known {
                    cost: Range::of(10).plus(value.cost).plus(body.cost),
                    path: Path::None,
                    ..body
                }
            }
            Kind::OptionalMap {
                target,
                name,
                body,
                flat,
            } => {
                let target = self.known(*target).cost;
                let value = Self::made(Range::of(0));
                let body = self.within(&[(name.clone(), value)], *body).cost;
                let wrapped = Range::of(u64::from(!*flat));
                let some = Range::of(11).plus(target).plus(body).plus(wrapped);
                Self::made(target.plus(Range::of(1)).plus(some.union(Range::of(1))))
            }
            Kind::SortBy { target, name, key } => {
                let target = self.known(*target);
                let item = self.item_of(&target);
                let key = self.within(&[(name.clone(), item)], *key).cost;
                let len = target.size_or_unknown();
                let keys = len.times(key.plus(Range::of(12))).plus(Range::of(12));
                let cost = target.cost.plus(Range::of(22)).plus(keys).plus(sorted(len));
                Known {
                    size: Some(len),
                    ..Self::made(cost)
                }
            }
        }
    }

    fn within(&mut self, names: &[(Arc<str>, Known<'a>)], id: Id) -> Known<'a> {
        let depth = self.locals.len();
        self.locals.extend_from_slice(names);
        let known = self.known(id);
        self.locals.truncate(depth);
        known
    }

    fn ident(&mut self, id: Id, name: &str) -> Known<'a> {
        let cost = Range::of(1);
        match self.checked.links[id as usize] {
            Link::Local => {
                let local = self.locals.iter().rev().find(|(local, _)| **local == *name);
                let Some((_, local)) = local else {
                    return Self::made(cost);
                };
                let mut known = Known { cost, ..*local };
                // Where a value is says more than what it was made of; so does its type.
                if matches!(known.path, Path::At(Some(_))) || scalar_size(self.type_of(id)).is_some() {
                    known.size = None;
                }
                known
            }
            Link::Variable(_) => Known {
                path: Path::At(Some(self.root)),
                ..Self::made(cost)
            },
            _ => Self::made(cost),
        }
    }

    fn select(&mut self, operand: Id, field: &str, test: bool) -> Known<'a> {
        let target = self.known(operand);
        let path = match target.path {
            Path::None => Path::At(Some(self.root)),
            Path::At(shape) => Path::At(shape.and_then(|shape| {
                let field = shape.field(field).map(|field| &field.shape);
                field.or_else(|| shape.attribute())
            })),
        };
        if test {
            return Self::made(target.cost);
        }
        let costs = matches!(
            self.type_of(operand),
            Type::Map(_) | Type::Object(..) | Type::Record(_) | Type::Made(_)
        );
        Known {
            cost: target.cost.plus(Range::of(u64::from(costs))),
            size: None,
            entries: None,
            path,
        }
    }

    /// Items of a list or values of a map.
    fn item_of(&self, range: &Known<'a>) -> Known<'a> {
        Known {
            cost: Range::of(0),
            size: range.entries.map(|(_, values)| values),
            entries: None,
            path: self.element(range.path),
        }
    }

    /// The size of the items of a list that is at a place.
    fn item_size(path: Path<'a>) -> Range {
        let shape = match path {
            Path::None => None,
            Path::At(shape) => shape.and_then(|shape| shape.element()),
        };
        shape.map_or(UNKNOWN, |shape| Range {
            min: 0,
            max: shape.elements_max,
        })
    }

    fn element(&self, path: Path<'a>) -> Path<'a> {
        match path {
            // What was made has no place; its parts are looked for from the root, as kube-apiserver does.
            Path::None => Path::At(Some(self.root)),
            Path::At(shape) => Path::At(shape.and_then(|shape| shape.element())),
        }
    }

    fn fold(&mut self, fold: &Fold) -> Known<'a> {
        let range = self.known(fold.range);
        let item = self.item_of(&range);
        let is_list = matches!(self.type_of(fold.range), Type::List(_));
        // Keys of maps are texts of no length, as kube-apiserver has them.
        let key = Known {
            cost: Range::of(0),
            size: Some(match range.entries {
                Some((keys, _)) => keys,
                None if is_list => Range::of(1),
                None if matches!(range.path, Path::At(Some(_))) => Range::of(0),
                None => UNKNOWN,
            }),
            entries: None,
            path: Path::None,
        };
        let names = match &fold.names {
            (one, None) => vec![(one.clone(), if is_list { item } else { key })],
            (one, Some(other)) => vec![(one.clone(), key), (other.clone(), item)],
        };
        let filter = fold.filter.map(|filter| self.within(&names, filter).cost);
        let body = self.within(&names, fold.body);
        let one = Range::of(1);
        let choice = |min, max| Range { min, max };
        let (start, step, result) = match fold.what {
            FoldKind::All => (0, Range::of(2).plus(choice(1, one.plus(body.cost).max)), 1),
            FoldKind::Exists => (0, Range::of(3).plus(choice(1, one.plus(body.cost).max)), 1),
            FoldKind::ExistsOne => (0, body.cost.plus(choice(1, 2)), 2),
            FoldKind::Filter => (10, body.cost.plus(choice(1, 13)), 1),
            FoldKind::Map => (10, body.cost.plus(Range::of(12)), 1),
            FoldKind::TransformMap => (30, body.cost.plus(Range::of(3)), 1),
            FoldKind::TransformMapEntry => (30, body.cost.plus(Range::of(2)), 1),
        };
        let step = match filter {
            Some(filter) => filter.plus(step.union(one)),
            None => step,
        };
        let len = range.size_or_unknown();
        let cost = range.cost.plus(Range::of(start + result)).plus(len.times(step));
        let nothing = Range::of(0);
        let entries = match fold.what {
            FoldKind::Map => Some((Range::of(1), nothing.union(body.size_or_unknown()))),
            FoldKind::Filter => {
                let mut kept = item;
                if kept.size.is_none() {
                    kept.size = match kept.path {
                        Path::At(Some(shape)) => Some(choice(0, shape.elements_max)),
                        _ => None,
                    };
                }
                Some((Range::of(1), nothing.union(kept.size_or_unknown())))
            }
            _ => None,
        };
        let made = matches!(
            fold.what,
            FoldKind::Filter | FoldKind::Map | FoldKind::TransformMap | FoldKind::TransformMapEntry
        );
        Known {
            cost,
            size: Some(if made { len } else { Range::of(1) }),
            entries,
            path: Path::None,
        }
    }

    fn call(&mut self, id: Id, target: Option<Id>, args: &[Id]) -> Known<'a> {
        let Link::Call {
            name,
            member,
            overloads,
        } = &self.checked.links[id as usize]
        else {
            return Self::made(Range::of(0));
        };
        let given: Vec<Known<'a>> = args.iter().map(|arg| self.known(*arg)).collect();
        if &**name == "dyn" {
            return given.first().map_or(Self::made(Range::of(1)), |arg| Known {
                cost: arg.cost.plus(Range::of(1)),
                ..*arg
            });
        }
        let target = target.filter(|_| *member).map(|target| (target, self.known(target)));
        let arg_cost = given.iter().map(|arg| arg.cost).fold(Range::of(0), Range::plus);
        let mut cost: Option<Range> = None;
        let mut size: Option<Range> = None;
        for overload in overloads {
            let params = &Declarations::all().overloads[*overload as usize].args;
            let (own, result) = self.function(name, params, target.as_ref(), args, &given);
            let whole = own.plus(arg_cost);
            cost = Some(cost.map_or(whole, |cost| cost.union(whole)));
            size = match (size, result) {
                (Some(size), Some(result)) => Some(size.union(result)),
                (size, result) => size.or(result),
            };
        }
        let mut known = Self::made(cost.unwrap_or(Range::of(0)));
        known.size = size;
        if let Some((_, target)) = &target {
            known.cost = known.cost.plus(target.cost);
        }
        if matches!(&**name, "_[_]" | "_[?_]")
            && let Some(list) = given.first()
        {
            known.size = list.entries.map(|(_, values)| values);
            known.path = self.element(list.path);
        }
        if &**name == "_+_"
            && let [one, other] = &given[..]
        {
            known.entries = union_of_entries(one.entries, other.entries);
        }
        known
    }

    /// The cost of one overload without its arguments, and the size of its result.
    fn function(
        &self,
        name: &str,
        params: &[Type],
        target: Option<&(Id, Known<'a>)>,
        ids: &[Id],
        given: &[Known<'a>],
    ) -> (Range, Option<Range>) {
        let size = |at: usize| given.get(at).map_or(UNKNOWN, Known::size_or_unknown);
        let one = Range::of(1);
        let own = target.map(|(_, known)| known.size_or_unknown());
        match (name, own) {
            ("check", _) => (Range::of(350_000), None),
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(own)) => {
                let Some((Type::List(items), path)) = target.map(|(id, known)| (self.type_of(*id), known.path)) else {
                    return (own.scaled(0.1), None);
                };
                let item = match **items {
                    // Comparing texts costs as much as they are long.
                    Type::String | Type::Bytes => one.plus(Self::item_size(path).scaled(0.1)),
                    _ => one,
                };
                (own.times(item), None)
            }
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(own)) => (own.scaled(0.1), Some(own)),
            ("replace", Some(own)) => (own.scaled(0.2), Some(replaced(own, size(0), size(1)))),
            ("split", Some(own)) => (
                own.scaled(0.2),
                Some(Range {
                    min: 0,
                    max: self.split_limit(ids).unwrap_or(own.max),
                }),
            ),
            ("join", Some(own)) => {
                let separator = if given.is_empty() { Range::of(0) } else { size(0) };
                let gaps = Range {
                    min: own.min.saturating_sub(1),
                    max: own.max.saturating_sub(1),
                };
                let item = Self::item_size(target.map_or(Path::None, |(_, known)| known.path));
                let made = own.times(item).plus(separator.times(gaps));
                (made.scaled(0.1), Some(made))
            }
            ("find" | "findAll", Some(own)) => {
                let cost = own.plus(one).scaled(0.1).times(size(0).scaled(0.25));
                (cost, Some(Range { min: 0, max: own.max }))
            }
            ("matches", Some(own)) => (own.plus(one).scaled(0.1).times(size(0).scaled(0.25)), None),
            ("contains", Some(own)) => (own.scaled(0.1).times(size(0).scaled(0.1)), None),
            ("url", None) | ("startsWith" | "endsWith", Some(_)) => (size(0).scaled(0.1), None),
            ("format", Some(own)) => (own.scaled(0.1), Some(own.plus(size(0)))),
            ("validate", Some(_)) => (size(0).plus(one).scaled(0.1).times(Range::of(15)), None),
            ("containsIP" | "containsCIDR", Some(_)) => {
                let address = Range { min: 4, max: 16 };
                let mut cost = address.plus(address).scaled(0.1);
                if name == "containsCIDR" {
                    cost = cost.plus(address.scaled(0.1)).plus(one);
                }
                if params.get(1) == Some(&Type::String) {
                    cost = cost.plus(size(0).scaled(0.1));
                }
                (cost, None)
            }
            ("slice" | "reverse" | "flatten", Some(own)) => (own.plus(Range::of(10)), Some(own)),
            ("sort" | "distinct", Some(own)) => (sorted(own), Some(own)),
            ("lists.range", None) => {
                let len = match ids.first().map(|id| &self.checked.ast.node(*id).kind) {
                    Some(Kind::Literal(Literal::Int(len))) => Range::of((*len).max(0) as u64),
                    _ => UNKNOWN,
                };
                (len.plus(Range::of(10)), Some(len))
            }
            ("sets.contains" | "sets.intersects", None) => (size(0).times(size(1)).plus(one), None),
            ("sets.equivalent", None) => (size(0).times(size(1)).times(Range::of(2)).plus(one), None),
            ("@in", None) if matches!(params.get(1), Some(Type::List(_))) => (size(1), None),
            ("string", None) if params.first() == Some(&Type::Bytes) => {
                let size = size(0);
                let made = Range {
                    min: size.min / 4,
                    max: size.max,
                };
                (size.scaled(0.1), Some(made))
            }
            ("bytes", None) if params.first() == Some(&Type::String) => {
                let size = size(0);
                let made = Range {
                    min: size.min,
                    max: size.max.saturating_mul(4),
                };
                (size.scaled(0.1), Some(made))
            }
            ("strings.quote", None) => {
                let size = size(0);
                let made = Range {
                    min: size.min.saturating_add(2),
                    max: size.max.saturating_mul(2).saturating_add(2),
                };
                (size.scaled(0.1), Some(made))
            }
            ("_+_", None) => {
                let made = size(0).plus(size(1));
                match params.first() {
                    Some(Type::String | Type::Bytes) => (made.scaled(0.1), Some(made)),
                    Some(Type::List(_)) => (one, Some(made)),
                    _ => (one, None),
                }
            }
            ("_==_" | "_!=_", None) => (smaller(size(0), size(1)), None),
            ("_<_" | "_<=_" | "_>_" | "_>=_", None) if matches!(params.first(), Some(Type::String | Type::Bytes)) => {
                (smaller(size(0), size(1)), None)
            }
            _ => (one, None),
        }
    }

    /// The most parts that a `split` was told to make.
    fn split_limit(&self, ids: &[Id]) -> Option<u64> {
        match &self.checked.ast.node(*ids.get(1)?).kind {
            Kind::Literal(Literal::Int(limit)) => u64::try_from(*limit).ok(),
            _ => None,
        }
    }
}

/// The size of what has one item of its kind.
fn scalar_size(of: &Type) -> Option<Range> {
    let scalar = matches!(
        of,
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint
    );
    scalar.then(|| Range::of(1))
}

fn empty_or(empty: bool) -> Range {
    Range {
        min: if empty { 0 } else { u64::MAX },
        max: 0,
    }
}

fn union_of_entries(one: Option<(Range, Range)>, other: Option<(Range, Range)>) -> Option<(Range, Range)> {
    let (one, other) = (one?, other?);
    Some((one.0.union(other.0), one.1.union(other.1)))
}

/// Comparing two sizes: as many steps as the smaller has.
fn smaller(one: Range, other: Range) -> Range {
    let max = one.max.min(other.max);
    Range {
        min: u64::from(max > 0),
        max,
    }
    .scaled(0.1)
}

/// Each of a list with each other.
fn sorted(len: Range) -> Range {
    let half = |number: u64| number.saturating_mul(number) / 2;
    Range {
        min: half(len.min),
        max: half(len.max),
    }
    .plus(len)
    .plus(Range::of(10))
}

/// How long a text can become in which parts are replaced.
fn replaced(size: Range, old: Range, new: Range) -> Range {
    let (max_count, max_kept) = if old.min == 0 {
        (size.max.saturating_add(1), size.max)
    } else if new.max <= old.min {
        (0, size.max)
    } else {
        (size.max.div_ceil(old.min), 0)
    };
    let (min_count, min_kept) = if old.max == 0 {
        (size.min.saturating_add(1), size.min)
    } else if old.max <= new.min {
        (0, size.min)
    } else {
        (size.min.div_ceil(old.max), 0)
    };
    Range {
        min: min_count.saturating_mul(new.min).saturating_add(min_kept),
        max: max_count.saturating_mul(new.max).saturating_add(max_kept),
    }
}
