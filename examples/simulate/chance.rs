//! Everything that is left to chance, from one seed.

use crate::model::Body;

/// A source of decisions. The same seed gives the same decisions.
pub(crate) struct Chance(fastrand::Rng);

const NAMESPACES: [&str; 3] = ["a", "ab", "a-b"];

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(fastrand::Rng::with_seed(seed))
    }

    /// A number below `end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { self.0.usize(..end) }
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// The index of a weight, chosen as often as it says.
    pub(crate) fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        0
    }

    pub(crate) fn namespace(&mut self) -> Option<&'static str> {
        let index = self.below(NAMESPACES.len() + 1);
        NAMESPACES.get(index).copied()
    }

    /// One of few keys, so that they meet.
    pub(crate) fn key(&mut self) -> String {
        let name = self.below(8);
        match self.namespace() {
            None => format!("n{name}"),
            Some(namespace) => format!("{namespace}/n{name}"),
        }
    }

    pub(crate) fn label_name(&mut self) -> &'static str {
        ["app", "tier", "x"][self.below(3)]
    }

    pub(crate) fn label_value(&mut self) -> String {
        ["web", "db", "", "1"][self.below(4)].to_owned()
    }

    pub(crate) fn node(&mut self) -> String {
        ["n1", "n2", ""][self.below(3)].to_owned()
    }

    pub(crate) fn body(&mut self) -> Body {
        let mut labels = Vec::new();
        for name in ["app", "tier", "x"] {
            if !self.one_in(3) {
                labels.push((name, self.label_value()));
            }
        }
        Body {
            labels,
            node: self.node(),
            letter: char::from(b'a' + self.below(26) as u8),
            len: match self.below(40) {
                0 => 15_000 + self.below(8_000),
                1..=5 => 2_000 + self.below(4_000),
                _ => self.below(400),
            },
        }
    }
}
