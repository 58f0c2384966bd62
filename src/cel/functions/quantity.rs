//! Resource quantities.

use std::sync::Arc;

use super::super::value::{Failure, Outcome, Val};
use super::{Price, Row};
use crate::scalars::quantity::Quantity;

/// An amount in units of 10⁻⁹. What is added to it does not end at the largest quantity that can be written.
pub(in super::super) type Amount = i128;

const NANOS: i128 = 1_000_000_000;
/// What is written as more than this counts as this, and is no integer.
const WRITTEN_MAX: i128 = i64::MAX as i128 * NANOS;

pub(super) const ROWS: &[Row] = &[
    ("quantity", false, Price::Tenths(1), |_, args| match args {
        [Val::String(text)] => Some(
            Quantity::parse(text)
                .map(|quantity| Val::Quantity(Arc::new(quantity.nanos())))
                .ok_or_else(|| {
                    Failure::told(
                        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
                    )
                }),
        ),
        _ => None,
    }),
    ("isQuantity", false, Price::Tenths(1), |_, args| match args {
        [Val::String(text)] => Some(Ok(Val::Bool(Quantity::parse(text).is_some()))),
        _ => None,
    }),
    ("sign", false, Price::One, |_, args| sign(args)),
    ("sign", true, Price::One, |_, args| sign(args)),
    ("asApproximateFloat", true, Price::One, |_, args| match args {
        [Val::Quantity(nanos)] => Some(Ok(Val::Double(if **nanos % NANOS == 0 {
            (**nanos / NANOS) as f64
        } else {
            **nanos as f64 / NANOS as f64
        }))),
        _ => None,
    }),
    ("isInteger", true, Price::One, |_, args| match args {
        [Val::Quantity(nanos)] => Some(Ok(Val::Bool(integer(**nanos).is_some()))),
        _ => None,
    }),
    ("asInteger", true, Price::One, |_, args| match args {
        [Val::Quantity(nanos)] => Some(
            integer(**nanos)
                .map(Val::Int)
                .ok_or_else(|| Failure::told("cannot convert value to integer")),
        ),
        _ => None,
    }),
    ("add", true, Price::One, |_, args| with(args, i128::saturating_add)),
    ("sub", true, Price::One, |_, args| with(args, i128::saturating_sub)),
];

fn sign<'a>(args: &[Val<'a>]) -> Option<Outcome<'a>> {
    match args {
        [Val::Quantity(nanos)] => Some(Ok(Val::Int(nanos.signum() as i64))),
        _ => None,
    }
}

fn integer(nanos: i128) -> Option<i64> {
    let whole = nanos % NANOS == 0 && nanos.abs() < WRITTEN_MAX;
    whole.then(|| i64::try_from(nanos / NANOS).ok()).flatten()
}

fn with<'a>(args: &[Val<'a>], of: fn(i128, i128) -> i128) -> Option<Outcome<'a>> {
    let (one, other) = match args {
        [Val::Quantity(one), Val::Quantity(other)] => (**one, **other),
        [Val::Quantity(one), Val::Int(number)] => (**one, i128::from(*number) * NANOS),
        _ => return None,
    };
    Some(Ok(Val::Quantity(Arc::new(of(one, other)))))
}
