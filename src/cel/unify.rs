//! Which types fit which: open types are given what they have to be.

use std::sync::Arc;

use super::types::Type;

/// Most steps of comparing and replacing: so many for any expression, and more for each of its parts. Honest ones take a few a part.
const STEPS_MAX: u32 = 200_000;
const STEPS_PER_PART_MAX: u32 = 64;
/// How far open types that stand for open types are followed.
const DEPTH_MAX: u32 = 300;

/// What open types stand for.
#[derive(Debug, Default)]
pub(super) struct Unifier {
    bound: Vec<Option<Type>>,
    /// What was changed, to take it back.
    trail: Vec<(u32, Option<Type>)>,
    steps: u32,
    steps_max: u32,
}

impl Unifier {
    /// For an expression of so many parts.
    pub(super) fn new(parts: usize) -> Unifier {
        let parts = u32::try_from(parts).unwrap_or(u32::MAX);
        Unifier {
            steps_max: STEPS_MAX.saturating_add(parts.saturating_mul(STEPS_PER_PART_MAX)),
            ..Unifier::default()
        }
    }

    /// Whether comparing types went on for too long; answers are no longer worth anything then.
    pub(super) fn exhausted(&self) -> bool {
        self.steps > self.steps_max
    }

    fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_add(1);
        !self.exhausted()
    }

    /// A new open type.
    pub(super) fn open(&mut self) -> Type {
        self.bound.push(None);
        Type::Open(self.bound.len() as u32 - 1)
    }

    /// As many new open types, the first one's number comes back.
    pub(super) fn opens(&mut self, count: u32) -> u32 {
        let first = self.bound.len() as u32;
        self.bound.resize(self.bound.len() + count as usize, None);
        first
    }

    fn bind(&mut self, number: u32, to: Type) {
        let old = self.bound[number as usize].replace(to);
        self.trail.push((number, old));
    }

    /// Whether a value of type `actual` may stand where `expected` is; what becomes known by it is kept only if so.
    pub(super) fn fits(&mut self, expected: &Type, actual: &Type) -> bool {
        self.all_fit(&[(expected, actual)])
    }

    /// Whether all may stand where they are; what becomes known by it is kept only if so.
    pub(super) fn all_fit(&mut self, pairs: &[(&Type, &Type)]) -> bool {
        self.trail.clear();
        let fit = pairs.iter().all(|(expected, actual)| self.fit(expected, actual, 0));
        if !fit {
            while let Some((number, old)) = self.trail.pop() {
                self.bound[number as usize] = old;
            }
        }
        fit
    }

    fn fit(&mut self, expected: &Type, actual: &Type, depth: u32) -> bool {
        if depth > DEPTH_MAX || !self.step() {
            return false;
        }
        if let Type::Open(number) = actual {
            let (valid, known) = self.substitute_for(*number, expected, depth);
            if valid || known {
                return valid;
            }
        }
        if let Type::Open(number) = expected {
            return self.substitute_for(*number, actual, depth).0;
        }
        if expected.is_dyn() || actual.is_dyn() {
            return true;
        }
        let nullable = |other: &Type| {
            matches!(
                other,
                Type::Null
                    | Type::Opaque(_)
                    | Type::Optional(_)
                    | Type::Object(..)
                    | Type::Record(_)
                    | Type::Made(_)
                    | Type::Duration
                    | Type::Timestamp
            )
        };
        match (expected, actual) {
            (Type::Null, other) | (other, Type::Null) => nullable(other),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(one), Type::List(other)) | (Type::Optional(one), Type::Optional(other)) => {
                self.fit(one, other, depth + 1)
            }
            (Type::Map(one), Type::Map(other)) => {
                self.fit(&one.0, &other.0, depth + 1) && self.fit(&one.1, &other.1, depth + 1)
            }
            _ => expected == actual,
        }
    }

    /// Whether an open type may stand for `wanted`, and whether it stood for something before.
    fn substitute_for(&mut self, number: u32, wanted: &Type, depth: u32) -> (bool, bool) {
        if *wanted == Type::Open(number) {
            return (true, true);
        }
        if let Some(known) = self.bound[number as usize].clone() {
            if *wanted == known {
                return (true, true);
            }
            if !self.fit(wanted, &known, depth + 1) {
                return (false, true);
            }
            let general = most_general(wanted, &known);
            if !self.occurs(number, &general, depth) {
                self.bind(number, general);
            }
            return (true, true);
        }
        if self.occurs(number, wanted, depth) {
            return (false, false);
        }
        self.bind(number, wanted.clone());
        (true, false)
    }

    /// Whether the open type is part of what it would stand for.
    fn occurs(&mut self, number: u32, within: &Type, depth: u32) -> bool {
        if depth > DEPTH_MAX || !self.step() {
            return true;
        }
        if let Type::Open(other) = within {
            if *other == number {
                return true;
            }
            return match self.bound[*other as usize].clone() {
                Some(known) => self.occurs(number, &known, depth + 1),
                None => false,
            };
        }
        within
            .parameters()
            .into_iter()
            .any(|parameter| self.occurs(number, parameter, depth + 1))
    }

    /// The type with all that is known put in. What stays open is `dyn` if `closed`.
    pub(super) fn known(&mut self, of: &Type, closed: bool) -> Type {
        self.known_at(of, closed, 0).bounded()
    }

    fn known_at(&mut self, of: &Type, closed: bool, depth: u32) -> Type {
        if depth > DEPTH_MAX || !self.step() {
            return Type::Dyn;
        }
        match of {
            Type::Open(number) => match self.bound[*number as usize].clone() {
                Some(known) => self.known_at(&known, closed, depth + 1),
                None if closed => Type::Dyn,
                None => of.clone(),
            },
            Type::Type(_) | Type::List(_) | Type::Map(_) | Type::Optional(_) => {
                // Only types with parameters are rebuilt, and those hold few.
                let parameters: Vec<Type> = of.parameters().into_iter().cloned().collect();
                let mut parameters = parameters
                    .iter()
                    .map(|parameter| self.known_at(parameter, closed, depth + 1))
                    .collect::<Vec<_>>()
                    .into_iter();
                let mut next = || parameters.next().unwrap_or(Type::Dyn);
                match of {
                    Type::Type(_) => Type::Type(Arc::new(next())),
                    Type::List(_) => Type::List(Arc::new(next())),
                    Type::Optional(_) => Type::Optional(Arc::new(next())),
                    _ => {
                        let keys = next();
                        Type::Map(Arc::new((keys, next())))
                    }
                }
            }
            other => other.clone(),
        }
    }
}

/// The one of two types that fit that says less.
pub(super) fn most_general(one: &Type, other: &Type) -> Type {
    if less_specific(one, other) {
        one.clone()
    } else {
        other.clone()
    }
}

fn less_specific(one: &Type, other: &Type) -> bool {
    if one.is_dyn() || matches!(one, Type::Open(_)) {
        return true;
    }
    if other.is_dyn() || matches!(other, Type::Open(_)) {
        return false;
    }
    let (ones, others) = (one.parameters(), other.parameters());
    if ones.is_empty() || std::mem::discriminant(one) != std::mem::discriminant(other) {
        return one == other;
    }
    ones.into_iter()
        .zip(others)
        .all(|(one, other)| less_specific(one, other))
}
