//! Sets of completion indexes, as a Job's status writes them: `1,3-5,7`.

/// Indexes in ascending runs, `(first, last)`; no two of them touch. Costs 8 bytes a run; a run per two indexes at most.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Indexes(Vec<(u32, u32)>);

impl Indexes {
    /// Reads what a status says. What is no index, or is not below `completions`, is left out, as kube-controller-manager does: a status
    /// may have been written when there were more.
    pub(super) fn parse(text: &str, completions: u32) -> Self {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
                continue;
            };
            if first < completions && first <= last {
                runs.push((first, last.min(completions - 1)));
            }
        }
        Self::of(runs)
    }

    /// Of runs in any order.
    pub(super) fn of(mut runs: Vec<(u32, u32)>) -> Self {
        runs.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(runs.len());
        for (first, last) in runs {
            match joined.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        Self(joined)
    }

    /// With more of them.
    pub(super) fn with(&self, more: impl IntoIterator<Item = u32>) -> Self {
        let mut runs = self.0.clone();
        runs.extend(more.into_iter().map(|index| (index, index)));
        Self::of(runs)
    }

    /// With those of another set.
    pub(super) fn and(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).copied().collect())
    }

    /// How many there are.
    pub(super) fn total(&self) -> u32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// How many are in both: O(runs of both).
    pub(super) fn shared(&self, other: &Self) -> u32 {
        let (mut one, mut two, mut shared) = (0, 0, 0);
        while let (Some(a), Some(b)) = (self.0.get(one), other.0.get(two)) {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            if first <= last {
                shared += last - first + 1;
            }
            if a.1 < b.1 {
                one += 1;
            } else {
                two += 1;
            }
        }
        shared
    }

    /// The first that are in none of the runs, below `below`: `count` at most. O(runs + count).
    pub(super) fn missing(&self, below: u32, count: usize) -> Vec<u32> {
        let ends = self.0.iter().copied().chain([(below, below)]);
        let mut next = 0;
        let gaps = ends.flat_map(|(first, last)| {
            let gap = next..first.min(below);
            next = last.saturating_add(1);
            gap
        });
        gaps.take(count).collect()
    }

    /// Whether one is among them: O(log runs).
    pub(super) fn has(&self, index: u32) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= index);
        after > 0 && index <= self.0[after - 1].1
    }

    /// Runs of two are written as two indexes, longer ones with a dash.
    pub(super) fn text(&self) -> String {
        let parts = self.0.iter().map(|&(first, last)| match last - first {
            0 => first.to_string(),
            1 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        });
        parts.collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let indexes = Indexes::default().with([7, 1, 5, 3, 4, 9, 10]);
        assert_eq!(indexes.text(), "1,3-5,7,9,10");
        assert_eq!(indexes.total(), 7);
        assert_eq!(Indexes::parse(&indexes.text(), 100), indexes);
        let has: Vec<u32> = (0..12).filter(|index| indexes.has(*index)).collect();
        assert_eq!(has, [1, 3, 4, 5, 7, 9, 10]);
    }

    #[test]
    fn what_is_missing_comes_in_order_and_what_is_shared_is_counted() {
        let indexes = Indexes::parse("0,2-3,6", 9);
        assert_eq!(indexes.missing(9, 3), [1, 4, 5]);
        assert_eq!(indexes.missing(9, 9), [1, 4, 5, 7, 8]);
        assert_eq!(indexes.missing(3, 9), [1]);
        assert_eq!(Indexes::default().missing(2, 9), [0, 1]);
        assert!(Indexes::parse("0-3", 4).missing(4, 1).is_empty());
        assert_eq!(indexes.shared(&Indexes::parse("0-2,5-8", 9)), 3);
        assert_eq!(indexes.shared(&Indexes::default()), 0);
    }

    #[test]
    fn what_is_beyond_the_completions_or_no_index_is_left_out() {
        assert_eq!(Indexes::parse("1,3-9,12", 6).text(), "1,3-5");
        assert_eq!(Indexes::parse("x,5-2,-,2", 6).text(), "2");
        assert_eq!(Indexes::parse("0-3", 0).text(), "");
        assert_eq!(Indexes::parse("0-4294967295", u32::MAX).total(), u32::MAX);
    }
}
