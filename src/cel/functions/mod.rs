//! What functions do. Which there are, with which types, stands in `declarations.txt`.

pub(super) mod convert;
pub(super) mod formats;
pub(super) mod lists;
pub(super) mod network;
pub(super) mod operators;
pub(super) mod optionals;
pub(super) mod quantity;
pub(super) mod rendered;
pub(super) mod semver;
pub(super) mod strings;
pub(super) mod times;
pub(super) mod url;

use std::collections::HashMap;
use std::sync::LazyLock;

use super::authorizer;
use super::machine::Machine;
use super::value::{Outcome, Val};

/// A function over the values of its arguments, the one it is called on first. `None` when it has nothing for such values.
pub(super) type Run = for<'a> fn(&mut Machine<'a>, &[Val<'a>]) -> Option<Outcome<'a>>;

/// A function and what it costs.
#[derive(Clone, Copy)]
pub(super) struct Native {
    pub(super) run: Run,
    pub(super) price: Price,
}

impl std::fmt::Debug for Native {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Native({:?})", self.price)
    }
}

/// What a call costs, by the sizes of its arguments. The rules are kube-apiserver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Price {
    /// 1
    One,
    /// The function charges itself.
    Own,
    /// The size of the first argument, times so many tenths.
    Tenths(u64),
    /// As `Tenths(1)` of texts and bytes, else 1.
    Converted,
    /// Of both sizes: a tenth times a tenth.
    Product,
    /// A pattern (second) over a text (first).
    Pattern,
    /// The size of the second, if it is a list.
    Within,
    /// A tenth of the smaller size.
    Smaller,
    /// As `Smaller` of texts and bytes, else 1.
    Compared,
    /// A tenth of both sizes of texts and bytes, else 1.
    Added,
    /// All that is in the first argument.
    Traversed,
    /// The size of the first, a list that is made anew.
    Listed,
    /// Each of the first with each of the second, so many times.
    Pairs(u64),
    /// Each of the first with each other.
    Sorted,
}

/// The function of that name, called on a value (`member`) or not.
pub(super) fn find(name: &str, member: bool) -> Option<Native> {
    TABLE.get(&(name, member)).copied()
}

/// A name, whether it is called on a value, its price, what it does.
pub(super) type Row = (&'static str, bool, Price, Run);

static TABLE: LazyLock<HashMap<(&'static str, bool), Native>> = LazyLock::new(|| {
    let rows = [
        operators::ROWS,
        convert::ROWS,
        times::ROWS,
        optionals::ROWS,
        strings::ROWS,
        lists::ROWS,
        url::ROWS,
        quantity::ROWS,
        network::ROWS,
        semver::ROWS,
        formats::ROWS,
        authorizer::ROWS,
        SHARED,
    ];
    rows.into_iter()
        .flatten()
        .map(|(name, member, price, run)| {
            let native = Native {
                run: *run,
                price: *price,
            };
            ((*name, *member), native)
        })
        .collect()
});

/// Functions of one name that several libraries have, for values of their own.
const SHARED: &[Row] = &[
    ("isGreaterThan", true, Price::One, |_, args| {
        Some(Ok(Val::Bool(order(args)?.is_gt())))
    }),
    ("isLessThan", true, Price::One, |_, args| {
        Some(Ok(Val::Bool(order(args)?.is_lt())))
    }),
    ("compareTo", true, Price::One, |_, args| {
        Some(Ok(Val::Int(order(args)? as i64)))
    }),
    ("indexOf", true, Price::Traversed, |machine, args| {
        match args.first()? {
            Val::List(_) => lists::index_of(machine, args),
            _ => strings::index_of(args),
        }
    }),
    ("lastIndexOf", true, Price::Traversed, |machine, args| {
        match args.first()? {
            Val::List(_) => lists::last_index_of(machine, args),
            _ => strings::last_index_of(args),
        }
    }),
    ("ip", true, Price::One, |_, args| match args {
        [Val::Cidr(address, _)] => Some(Ok(Val::Ip(*address))),
        _ => None,
    }),
];

fn order(args: &[Val<'_>]) -> Option<std::cmp::Ordering> {
    match args {
        [Val::Quantity(one), Val::Quantity(other)] => Some(one.cmp(other)),
        [Val::Semver(one), Val::Semver(other)] => Some(one.cmp(other)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::declarations::Declarations;
    use super::{TABLE, find};

    #[test]
    fn what_is_declared_can_be_run_and_what_runs_is_declared() {
        let all = Declarations::all();
        let mut missing = Vec::new();
        for name in all.names() {
            for at in all.of(name) {
                let member = all.overloads[*at as usize].member;
                if find(name, member).is_none() {
                    missing.push(format!("{name} ({member})"));
                }
            }
        }
        assert!(missing.is_empty(), "declared without a function: {missing:?}");
        for (name, member) in TABLE.keys() {
            let declared = all
                .of(name)
                .iter()
                .any(|at| all.overloads[*at as usize].member == *member);
            assert!(declared, "{name} ({member}) is not declared");
        }
    }
}
