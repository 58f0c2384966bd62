//! How fast replicas may change: windows of recommendations, and policies of how many come or go in which time.

use std::collections::VecDeque;

use crate::tree::Value;

/// Without a behaviour: the window for scaling down, seconds.
const DOWN_WINDOW_S: i64 = 300;
/// Recommendations and changes that are remembered of one autoscaler: 32 KiB at most.
const REMEMBERED_MAX: usize = 1024;

/// What is remembered of one autoscaler.
#[derive(Debug, Default)]
pub(super) struct Memory {
    recommendations: VecDeque<(i64, i64)>,
    ups: VecDeque<(i64, i64)>,
    downs: VecDeque<(i64, i64)>,
    /// The generation that was looked at last, and when.
    looked_at: Option<(i64, i64)>,
}

/// What comes of a recommendation: replicas, and the conditions `AbleToScale` and `ScalingLimited` (whether it is, reason, message).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Limited {
    pub(super) replicas: i64,
    pub(super) able: (&'static str, &'static str),
    pub(super) limited: (bool, &'static str, &'static str),
}

/// What bounds a recommendation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) current: i64,
    pub(super) min: i64,
    pub(super) max: i64,
}

const READY: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const UP_STABILIZED: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const DOWN_STABILIZED: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_MANY: (&str, &str) = (
    "TooManyReplicas",
    "the desired replica count is more than the maximum replica count",
);
const TOO_FEW: (&str, &str) = (
    "TooFewReplicas",
    "the desired replica count is less than the minimum replica count",
);
const UP_LIMIT: (&str, &str) = (
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
);
const DOWN_LIMIT: (&str, &str) = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);

impl Memory {
    /// Seconds until the next look is due: what an autoscaler tells of itself is no reason for one. `None`: it is due, and is noted.
    pub(super) fn due(&mut self, generation: i64, period_s: i64, now_s: i64) -> Option<i64> {
        if let Some((seen, at_s)) = self.looked_at
            && seen == generation
            && (at_s..at_s + period_s).contains(&now_s)
        {
            return Some(at_s + period_s - now_s);
        }
        self.looked_at = Some((generation, now_s));
        None
    }

    /// Notes how many replicas there were when the autoscaler was first looked at.
    pub(super) fn begin(&mut self, current: i64, now_s: i64) {
        if self.recommendations.is_empty() {
            self.recommendations.push_back((now_s, current));
        }
    }

    /// Bounds a recommendation. `behavior`: `spec.behavior`, with defaults, or `Null`.
    pub(super) fn limit(&mut self, behavior: &Value, wanted: i64, bounds: Bounds, now_s: i64) -> Limited {
        let is_up = wanted >= bounds.current;
        let window = |field: &str, otherwise: i64| {
            behavior[field]["stabilizationWindowSeconds"]
                .as_i64()
                .unwrap_or(otherwise)
        };
        let (up_s, down_s) = (window("scaleUp", 0), window("scaleDown", DOWN_WINDOW_S));
        let recent = |since_s: i64| {
            let recommendations = self.recommendations.iter();
            recommendations
                .filter(move |(at_s, _)| *at_s > now_s - since_s)
                .map(|(_, replicas)| *replicas)
        };
        let stable = if behavior.is_null() {
            // Without a behaviour the window keeps from going down whatever the direction.
            recent(down_s).fold(wanted, i64::max)
        } else if is_up {
            recent(up_s).fold(wanted, i64::min)
        } else {
            recent(down_s).fold(wanted, i64::max)
        };
        remember(&mut self.recommendations, (now_s, wanted), now_s - up_s.max(down_s));
        let able = match () {
            () if stable == wanted => READY,
            () if is_up && !behavior.is_null() => UP_STABILIZED,
            () => DOWN_STABILIZED,
        };
        let (replicas, why) = if behavior.is_null() {
            plain(stable, bounds)
        } else {
            self.by_policies(behavior, stable, bounds, now_s)
        };
        Limited {
            replicas,
            able,
            limited: (replicas != stable, why.0, why.1),
        }
    }

    fn by_policies(
        &self,
        behavior: &Value,
        wanted: i64,
        bounds: Bounds,
        now_s: i64,
    ) -> (i64, (&'static str, &'static str)) {
        let Bounds { current, min, max } = bounds;
        if wanted > current {
            let limit = most(&behavior["scaleUp"], current, &self.ups, &self.downs, now_s).max(current);
            let (most, why) = if max > limit {
                (limit, UP_LIMIT)
            } else {
                (max, TOO_MANY)
            };
            if wanted > most {
                return (most, why);
            }
        } else if wanted < current {
            let limit = fewest(&behavior["scaleDown"], current, &self.ups, &self.downs, now_s).min(current);
            let (fewest, why) = if min < limit {
                (limit, DOWN_LIMIT)
            } else {
                (min, TOO_FEW)
            };
            if wanted < fewest {
                return (fewest, why);
            }
        }
        (wanted, WITHIN)
    }

    /// Notes that replicas were changed.
    pub(super) fn scaled(&mut self, behavior: &Value, from: i64, to: i64, now_s: i64) {
        if behavior.is_null() {
            return;
        }
        let longest = |rules: &Value| {
            let policies = rules["policies"].as_array();
            let periods = policies
                .into_iter()
                .flatten()
                .filter_map(|policy| policy["periodSeconds"].as_i64());
            periods.max().unwrap_or(0)
        };
        if to > from {
            remember(&mut self.ups, (now_s, to - from), now_s - longest(&behavior["scaleUp"]));
        } else {
            remember(
                &mut self.downs,
                (now_s, from - to),
                now_s - longest(&behavior["scaleDown"]),
            );
        }
    }
}

fn remember(list: &mut VecDeque<(i64, i64)>, one: (i64, i64), since_s: i64) {
    list.retain(|(at_s, _)| *at_s >= since_s);
    if list.len() == REMEMBERED_MAX {
        list.pop_front();
    }
    list.push_back(one);
}

/// Without a behaviour: twice as many at once, or four.
fn plain(wanted: i64, Bounds { current, min, max }: Bounds) -> (i64, (&'static str, &'static str)) {
    let limit = (2 * current).max(4);
    let (most, why) = if max > limit {
        (limit, UP_LIMIT)
    } else {
        (max, TOO_MANY)
    };
    if wanted < min {
        (min, TOO_FEW)
    } else if wanted > most {
        (most, why)
    } else {
        (wanted, WITHIN)
    }
}

fn changed(list: &VecDeque<(i64, i64)>, period_s: i64, now_s: i64) -> i64 {
    let recent = list.iter().filter(|(at_s, _)| *at_s > now_s - period_s);
    recent.map(|(_, change)| change).sum()
}

type Changes = VecDeque<(i64, i64)>;

fn policies(rules: &Value) -> impl Iterator<Item = (bool, i64, i64)> {
    let policies = rules["policies"].as_array();
    policies.into_iter().flatten().map(|policy| {
        let number = |field: &str| policy[field].as_i64().unwrap_or(0);
        (policy["type"] == "Percent", number("value"), number("periodSeconds"))
    })
}

/// How many replicas policies let there be.
fn most(rules: &Value, current: i64, ups: &Changes, downs: &Changes, now_s: i64) -> i64 {
    let proposals = policies(rules).map(|(is_percent, value, period_s)| {
        let at_start = current - changed(ups, period_s, now_s) + changed(downs, period_s, now_s);
        if is_percent {
            (at_start as f64 * (1.0 + value as f64 / 100.0)).ceil() as i64
        } else {
            at_start + value
        }
    });
    match rules["selectPolicy"].as_str() {
        Some("Disabled") => current,
        Some("Min") => proposals.min().unwrap_or(current),
        _ => proposals.max().unwrap_or(current),
    }
}

/// To how few replicas policies let it come.
fn fewest(rules: &Value, current: i64, ups: &Changes, downs: &Changes, now_s: i64) -> i64 {
    let proposals = policies(rules).map(|(is_percent, value, period_s)| {
        let at_start = current - changed(ups, period_s, now_s) + changed(downs, period_s, now_s);
        if is_percent {
            (at_start as f64 * (1.0 - value as f64 / 100.0)) as i64
        } else {
            at_start - value
        }
    });
    match rules["selectPolicy"].as_str() {
        Some("Disabled") => current,
        Some("Min") => proposals.max().unwrap_or(current),
        _ => proposals.min().unwrap_or(current),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    const BOUNDS: Bounds = Bounds {
        current: 5,
        min: 2,
        max: 30,
    };

    #[test]
    fn without_a_behaviour_it_grows_to_twice_and_shrinks_after_a_while() {
        let mut memory = Memory::default();
        memory.begin(5, 0);
        let up = memory.limit(&Value::Null, 20, BOUNDS, 1);
        assert_eq!((up.replicas, up.limited), (10, (true, UP_LIMIT.0, UP_LIMIT.1)));
        let down = memory.limit(&Value::Null, 3, Bounds { current: 20, ..BOUNDS }, 100);
        assert_eq!((down.replicas, down.able), (20, DOWN_STABILIZED));
        let later = memory.limit(&Value::Null, 1, Bounds { current: 20, ..BOUNDS }, 500);
        assert_eq!(
            (later.replicas, later.able, later.limited.1),
            (2, READY, "TooFewReplicas")
        );
    }

    #[test]
    fn policies_bound_what_comes_and_goes_in_their_time() {
        let behavior = json!({
            "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 60}, {"type": "Percent", "value": 100, "periodSeconds": 60}]},
            "scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": "Min", "policies": [
                {"type": "Pods", "value": 1, "periodSeconds": 60}, {"type": "Percent", "value": 50, "periodSeconds": 60}]},
        });
        let mut memory = Memory::default();
        let up = memory.limit(&behavior, 20, BOUNDS, 0);
        assert_eq!((up.replicas, up.limited.1), (10, "ScaleUpLimit"));
        memory.scaled(&behavior, 5, 10, 0);
        let again = memory.limit(&behavior, 20, Bounds { current: 10, ..BOUNDS }, 30);
        assert_eq!(again.replicas, 10);
        let later = memory.limit(&behavior, 50, Bounds { current: 10, ..BOUNDS }, 90);
        assert_eq!(later.replicas, 20);
        let down = memory.limit(&behavior, 1, Bounds { current: 10, ..BOUNDS }, 200);
        assert_eq!((down.replicas, down.limited.1), (9, "ScaleDownLimit"));
        memory.scaled(&behavior, 10, 9, 200);
        let disabled = json!({"scaleUp": behavior["scaleUp"], "scaleDown": {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}});
        assert_eq!(memory.limit(&disabled, 1, BOUNDS, 900).replicas, 5);
    }

    #[test]
    fn windows_take_the_best_of_what_was_recommended() {
        let behavior = json!({
            "scaleUp": {"stabilizationWindowSeconds": 60, "policies": [{"type": "Pods", "value": 100, "periodSeconds": 15}]},
            "scaleDown": {"stabilizationWindowSeconds": 60, "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]},
        });
        let mut memory = Memory::default();
        memory.begin(5, 0);
        let up = memory.limit(&behavior, 9, BOUNDS, 10);
        assert_eq!((up.replicas, up.able), (5, UP_STABILIZED));
        assert_eq!(memory.limit(&behavior, 9, BOUNDS, 65).replicas, 9);
        let down = memory.limit(&behavior, 2, Bounds { current: 9, ..BOUNDS }, 66);
        assert_eq!((down.replicas, down.able), (9, DOWN_STABILIZED));
    }
}
