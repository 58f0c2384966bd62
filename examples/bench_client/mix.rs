//! What kinds of requests a load is made of, and in which order they come.

use std::str::FromStr;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One Pod.
    Get,
    /// A Table of 500 Pods.
    Table,
    /// The Pods of one cohort: a thousandth of them.
    Selector,
    /// A new ConfigMap.
    Create,
    /// A merge patch of the oldest ConfigMap that this client made; a create when there is none.
    Patch,
    /// The oldest ConfigMap that this client made; a create when there is none.
    Delete,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Kind::Get,
        Kind::Table,
        Kind::Selector,
        Kind::Create,
        Kind::Patch,
        Kind::Delete,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::Table => "table",
            Kind::Selector => "selector",
            Kind::Create => "create",
            Kind::Patch => "patch",
            Kind::Delete => "delete",
        }
    }
}

/// Kinds in the shares that were asked for; the n-th request is always of the same kind.
#[derive(Clone, Debug)]
pub(crate) struct Mix(Vec<Kind>);

impl Mix {
    /// The kind of a client's n-th request. Clients begin at different places.
    pub(crate) fn kind(&self, client: usize, request: usize) -> Kind {
        self.0[(client + request) % self.0.len()]
    }
}

/// As in `get=9,table=3,create=2`.
impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const SHARES_MAX: u32 = 1_000;
        let mut shares = Vec::new();
        for part in text.split(',') {
            let (name, share) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?} is not KIND=SHARE"))?;
            let kind = Kind::ALL
                .into_iter()
                .find(|kind| kind.name() == name)
                .ok_or_else(|| format!("no kind of request is called {name:?}"))?;
            let share: u32 = share.parse().map_err(|_| format!("{share:?} is not a number"))?;
            shares.push((kind, share));
        }
        let total: u32 = shares.iter().map(|(_, share)| share).sum();
        if total == 0 || total > SHARES_MAX {
            return Err(format!("the shares sum up to {total}, not to 1..={SHARES_MAX}"));
        }
        // Each step goes to the kind that lags furthest behind its share, so that kinds alternate.
        let mut given = vec![0; shares.len()];
        let order = (1..=total)
            .map(|step| {
                let next = (0..shares.len())
                    .max_by_key(|at| {
                        i64::from(shares[*at].1) * i64::from(step) - i64::from(given[*at]) * i64::from(total)
                    })
                    .unwrap_or(0);
                given[next] += 1;
                shares[next].0
            })
            .collect();
        Ok(Mix(order))
    }
}
