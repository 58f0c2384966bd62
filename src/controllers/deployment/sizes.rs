//! How many Pods which ReplicaSet gets: arithmetic alone. Rules: "Rolling update deployment" and "Proportional scaling" of the
//! documentation of Deployments, and kube-controller-manager where that is silent.

use std::cmp::Reverse;

/// A ReplicaSet as the arithmetic sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Set {
    /// `spec.replicas`
    pub(super) replicas: i64,
    /// `status.availableReplicas`
    pub(super) available: i64,
    /// The annotation `max-replicas`: what all sets together might have when it got its size; 0 when it has none.
    pub(super) of_max: i64,
    /// Unix seconds.
    pub(super) created_s: i64,
    /// Breaks ties.
    pub(super) name: String,
}

/// What a Deployment asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Goal {
    /// `spec.replicas`
    pub(super) replicas: i64,
    /// Pods beyond that, while old ones are replaced.
    pub(super) surge: i64,
    /// Pods that may be missing meanwhile.
    pub(super) unavailable: i64,
}

impl Goal {
    /// Pods that there may be at most.
    pub(super) fn most(self) -> i64 {
        self.replicas + self.surge
    }

    fn fewest_available(self) -> i64 {
        self.replicas - self.unavailable
    }

    /// How large the new set may be, beside the others.
    pub(super) fn of_new(self, new: i64, all: i64) -> i64 {
        if new >= self.replicas {
            return self.replicas;
        }
        let room = (self.most() - all).max(0);
        new + room.min(self.replicas - new)
    }

    /// How large the old sets may stay, in their order: first those Pods go that are not available, then as many others as can be
    /// spared. `new`: size and available Pods of the new set.
    pub(super) fn of_old(self, old: &[Set], new: (i64, i64)) -> Vec<i64> {
        let mut sizes: Vec<i64> = old.iter().map(|set| set.replicas).collect();
        let all: i64 = sizes.iter().sum::<i64>() + new.0;
        let spare = all - self.fewest_available() - (new.0 - new.1);
        if spare <= 0 {
            return sizes;
        }
        let mut order: Vec<usize> = (0..old.len()).collect();
        order.sort_by_key(|&at| (old[at].created_s, &old[at].name));
        let mut left = spare;
        for &at in &order {
            let sick = (sizes[at] - old[at].available).clamp(0, left);
            sizes[at] -= sick;
            left -= sick;
        }
        let available: i64 = new.1 + old.iter().map(|set| set.available).sum::<i64>();
        let mut left = (available - self.fewest_available()).max(0);
        for &at in &order {
            let count = sizes[at].min(left);
            sizes[at] -= count;
            left -= count;
        }
        sizes
    }

    /// The sizes of all sets after the Deployment was scaled while several have Pods: each keeps its share, the largest takes what
    /// rounding leaves. `so_far`: `status.replicas` of the Deployment.
    pub(super) fn in_proportion(self, sets: &[Set], so_far: i64) -> Vec<i64> {
        let mut sizes: Vec<i64> = sets.iter().map(|set| set.replicas).collect();
        let allowed = if self.replicas > 0 { self.most() } else { 0 };
        let to_add = allowed - sizes.iter().sum::<i64>();
        if to_add == 0 {
            return sizes;
        }
        let mut order: Vec<usize> = (0..sets.len()).collect();
        // Of equal ones the newest grows first and the oldest shrinks first.
        order.sort_by_key(|&at| {
            let age = if to_add > 0 {
                -sets[at].created_s
            } else {
                sets[at].created_s
            };
            (Reverse(sets[at].replicas), age, sets[at].name.clone())
        });
        let mut added = 0;
        for &at in &order {
            let share = self.share(&sets[at], so_far);
            let left = to_add - added;
            let share = if to_add > 0 {
                share.clamp(0, left)
            } else {
                share.clamp(left, 0)
            };
            sizes[at] += share;
            added += share;
        }
        if let Some(&first) = order.first() {
            sizes[first] = (sizes[first] + to_add - added).max(0);
        }
        sizes
    }

    /// What a set would grow by to keep its share.
    fn share(self, set: &Set, so_far: i64) -> i64 {
        if self.replicas == 0 {
            return -set.replicas;
        }
        let of = if set.of_max > 0 { set.of_max } else { so_far };
        if of <= 0 {
            return 0;
        }
        // To the nearest, halves up.
        (2 * set.replicas * self.most() + of) / (2 * of) - set.replicas
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(replicas: i64, available: i64) -> Set {
        Set {
            replicas,
            available,
            of_max: 0,
            created_s: replicas,
            name: format!("s{replicas}-{available}"),
        }
    }

    #[test]
    fn shares_are_kept_when_a_deployment_grows_in_the_middle_of_a_rollout() {
        let goal = Goal {
            replicas: 15,
            surge: 3,
            unavailable: 2,
        };
        // The example of the documentation: 10 replicas, surge 3: an old set of 8 and a new one of 5 become 11 and 7.
        let sets = [(8, 1), (5, 2)].map(|(replicas, created_s)| Set {
            of_max: 13,
            created_s,
            ..set(replicas, replicas)
        });
        assert_eq!(goal.in_proportion(&sets, 13), [11, 7]);
        let none = Goal { replicas: 0, ..goal };
        assert_eq!(none.in_proportion(&sets, 13), [0, 0]);
    }

    proptest! {
        /// A rollout in which any Pods become available or fail at any time never has too many Pods, never takes away Pods that
        /// are needed, and comes to its end once Pods become available.
        #[test]
        fn a_rollout_keeps_its_promises(
            replicas in 0i64..12, surge in 0i64..5, unavailable in 0i64..5, chances in prop::collection::vec(0i64..4, 60),
        ) {
            let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable.min(replicas) };
            let goal = Goal { replicas, surge, unavailable };
            let mut old = vec![set(replicas / 2, replicas / 2), set(replicas - replicas / 2, replicas - replicas / 2)];
            let mut new = (0, 0);
            for step in 0..200 {
                let all = |old: &[Set], new: i64| old.iter().map(|set| set.replicas).sum::<i64>() + new;
                let available = |old: &[Set], new: (i64, i64)| old.iter().map(|set| set.available).sum::<i64>() + new.1;
                let grown = goal.of_new(new.0, all(&old, new.0));
                prop_assert!(grown >= new.0 && all(&old, grown) <= goal.most().max(all(&old, new.0)));
                new.0 = grown;
                let before = available(&old, new);
                let sizes = goal.of_old(&old, new);
                for (set, size) in old.iter_mut().zip(sizes) {
                    prop_assert!(size <= set.replicas && size >= 0);
                    set.replicas = size;
                    // The ReplicaSet deletes Pods that are not available first.
                    set.available = set.available.min(size);
                }
                let after = available(&old, new);
                prop_assert!(after == before || after >= goal.fewest_available(), "{before} to {after}: {goal:?}");
                // Pods of the new set become available; for a while some of all sets fail.
                let chance = chances.get(step).copied();
                new.1 = (new.1 + chance.unwrap_or(4)).min(new.0);
                if chance == Some(0) {
                    new.1 = (new.1 - 1).max(0);
                    old[step % 2].available = (old[step % 2].available - 1).max(0);
                }
            }
            prop_assert_eq!((new, old[0].replicas, old[1].replicas), ((replicas, replicas), 0, 0));
        }

        /// Scaling in proportion gives exactly what is allowed, and never a set less than nothing.
        #[test]
        fn scaling_in_proportion_gives_what_is_allowed(
            sizes in prop::collection::vec((0i64..40, 0i64..60), 1..5), replicas in 0i64..60, surge in 0i64..10,
        ) {
            let goal = Goal { replicas, surge, unavailable: 0 };
            let sets: Vec<Set> = sizes.iter().map(|&(replicas, of_max)| Set { of_max, ..set(replicas, 0) }).collect();
            let now: i64 = sets.iter().map(|set| set.replicas).sum();
            let sizes = goal.in_proportion(&sets, now);
            prop_assert!(sizes.iter().all(|size| *size >= 0));
            let allowed = if replicas > 0 { goal.most() } else { 0 };
            // What rounding took too much of is given back by the largest, as far as it has it.
            prop_assert!(sizes.iter().sum::<i64>() >= allowed.min(now) || sizes.iter().sum::<i64>() == allowed);
        }
    }
}
