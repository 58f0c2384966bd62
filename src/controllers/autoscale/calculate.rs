//! How many replicas a metric asks for: arithmetic alone. Rules: "Algorithm details" of the documentation of HorizontalPodAutoscalers, and
//! kube-controller-manager where that is silent.

use std::collections::BTreeMap;

use crate::controllers::pod::seconds;
use crate::resources::condition;
use crate::resources::quantity::Quantity;
use crate::tree::Value;

/// How long a Pod may take to start before its use of CPU counts while it is not ready, seconds.
const CPU_STARTS_S: i64 = 5 * 60;
/// How long a Pod that was never ready may have been said not to be, seconds.
const NEVER_READY_S: i64 = 30;

/// A metric of one Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// In thousandths.
    pub(super) millis: i64,
    pub(super) at_s: i64,
    pub(super) window_s: i64,
}

/// Metrics by the names of Pods.
pub(super) type Samples = BTreeMap<String, Sample>;

/// How far from its target a metric may be without anything being scaled, upwards and downwards.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tolerance {
    pub(super) up: f64,
    pub(super) down: f64,
}

impl Tolerance {
    fn holds(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

/// What a metric comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Proposal {
    pub(super) replicas: i64,
    /// Percent of what is requested, for targets that are such.
    pub(super) utilization: Option<i64>,
    /// In thousandths; an average where the target is one.
    pub(super) millis: i64,
}

/// What is aimed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    /// Percent of what is requested.
    Utilization(i64),
    /// An average, in thousandths.
    Average(i64),
}

struct Groups {
    ready: usize,
    unready: Vec<String>,
    missing: Vec<String>,
    ignored: Vec<String>,
}

fn group(pods: &[Value], samples: &Samples, is_cpu: bool, now_s: i64) -> Groups {
    let mut groups = Groups {
        ready: 0,
        unready: Vec::new(),
        missing: Vec::new(),
        ignored: Vec::new(),
    };
    for pod in pods {
        let name = pod["metadata"]["name"].as_str().unwrap_or("").to_owned();
        let phase = pod["status"]["phase"].as_str();
        if !pod["metadata"]["deletionTimestamp"].is_null() || phase == Some("Failed") {
            groups.ignored.push(name);
        } else if phase == Some("Pending") {
            groups.unready.push(name);
        } else if let Some(sample) = samples.get(&name) {
            if is_cpu && is_starting(pod, *sample, now_s) {
                groups.unready.push(name);
            } else {
                groups.ready += 1;
            }
        } else {
            groups.missing.push(name);
        }
    }
    groups
}

/// Whether what a Pod uses says little, because it only starts.
fn is_starting(pod: &Value, sample: Sample, now_s: i64) -> bool {
    let (Some(ready), Some(started_s)) = (condition(pod, "Ready"), seconds(&pod["status"]["startTime"])) else {
        return true;
    };
    let changed_s = seconds(&ready["lastTransitionTime"]).unwrap_or(0);
    let is_unready = ready["status"] == "False";
    if started_s + CPU_STARTS_S > now_s {
        is_unready || sample.at_s < changed_s + sample.window_s
    } else {
        is_unready && started_s + NEVER_READY_S > changed_s
    }
}

/// Use in relation to the aim, and the proposal's figures.
fn ratio(samples: &Samples, requests: &BTreeMap<String, i64>, aim: Aim) -> Result<(f64, Option<i64>, i64), String> {
    let counted: Vec<(i64, i64)> = match aim {
        Aim::Average(_) => samples.values().map(|sample| (sample.millis, 0)).collect(),
        Aim::Utilization(_) => {
            let with_request = samples
                .iter()
                .filter_map(|(name, sample)| Some((sample.millis, *requests.get(name)?)));
            with_request.collect()
        }
    };
    let used: i64 = counted.iter().map(|(used, _)| used).sum();
    let average = used.checked_div(counted.len() as i64).unwrap_or(0);
    match aim {
        Aim::Average(target) => Ok((average as f64 / target.max(1) as f64, None, average)),
        Aim::Utilization(target) => {
            let requested: i64 = counted.iter().map(|(_, requested)| requested).sum();
            if requested == 0 {
                return Err("no metrics returned matched known pods".to_owned());
            }
            let utilization = used.saturating_mul(100) / requested;
            Ok((utilization as f64 / target.max(1) as f64, Some(utilization), average))
        }
    }
}

/// What a metric of Pods asks for. `current`: replicas that are asked for now.
///
/// # Errors
/// A sentence that says what is missing.
pub(super) fn of_pods(
    current: i64,
    pods: &[Value],
    mut samples: Samples,
    requests: &BTreeMap<String, i64>,
    (aim, is_cpu): (Aim, bool),
    tolerance: Tolerance,
    now_s: i64,
) -> Result<Proposal, String> {
    if pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".to_owned());
    }
    let groups = group(pods, &samples, is_cpu, now_s);
    samples.retain(|name, _| !groups.ignored.contains(name) && !groups.unready.contains(name));
    if samples.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    let (first, utilization, millis) = ratio(&samples, requests, aim)?;
    let proposal = |replicas: i64| Proposal {
        replicas,
        utilization,
        millis,
    };
    let rebalances = !groups.unready.is_empty() && first > 1.0;
    if !rebalances && groups.missing.is_empty() {
        let replicas = if tolerance.holds(first) {
            current
        } else {
            up(first * groups.ready as f64)
        };
        return Ok(proposal(replicas));
    }
    let assumed = |millis: i64| Sample {
        millis,
        at_s: now_s,
        window_s: 0,
    };
    // Of those that nothing is known of the cautious is assumed: they use what they may, or nothing.
    // (Exactly at the aim nothing is assumed: it would not change anything.)
    if first.total_cmp(&1.0).is_ne() {
        for name in &groups.missing {
            let millis = match aim {
                _ if first > 1.0 => 0,
                Aim::Average(target) => target,
                Aim::Utilization(target) => requests.get(name).copied().unwrap_or(0) * target.max(100) / 100,
            };
            samples.insert(name.clone(), assumed(millis));
        }
    }
    if rebalances {
        for name in &groups.unready {
            samples.insert(name.clone(), assumed(0));
        }
    }
    let (second, ..) = ratio(&samples, requests, aim)?;
    let turns = first < 1.0 && second > 1.0 || first > 1.0 && second < 1.0;
    if tolerance.holds(second) || turns {
        return Ok(proposal(current));
    }
    let replicas = up(second * samples.len() as f64);
    let turns = second < 1.0 && replicas > current || second > 1.0 && replicas < current;
    Ok(proposal(if turns { current } else { replicas }))
}

/// What one value for all Pods asks for, where the target is for all, too. `ready`: Pods that are.
pub(super) fn of_whole(current: i64, ready: i64, millis: i64, target: i64, tolerance: Tolerance) -> Proposal {
    let ratio = millis as f64 / target.max(1) as f64;
    let replicas = if current == 0 {
        up(ratio)
    } else if tolerance.holds(ratio) {
        current
    } else {
        up(ratio * ready as f64)
    };
    Proposal {
        replicas,
        utilization: None,
        millis,
    }
}

/// What one value for all Pods asks for, where the target is for each. `replicas`: how many there are.
pub(super) fn of_share(replicas: i64, millis: i64, target: i64, tolerance: Tolerance) -> Proposal {
    let target = target.max(1) as f64;
    let ratio = millis as f64 / (target * replicas as f64);
    Proposal {
        replicas: if tolerance.holds(ratio) {
            replicas
        } else {
            up(millis as f64 / target)
        },
        utilization: None,
        millis: if replicas > 0 {
            up(millis as f64 / replicas as f64)
        } else {
            millis
        },
    }
}

/// Rounded up, within what replicas can be.
fn up(replicas: f64) -> i64 {
    (replicas.ceil() as i64).clamp(0, i64::from(i32::MAX))
}

/// What Pods request of a resource, in thousandths, by their names; of one container if it is named.
///
/// # Errors
/// A sentence that names a container that requests nothing.
pub(super) fn requests(
    pods: &[Value],
    resource: &str,
    container: Option<&str>,
) -> Result<BTreeMap<String, i64>, String> {
    let mut all = BTreeMap::new();
    for pod in pods {
        let name = pod["metadata"]["name"].as_str().unwrap_or("");
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let stay = pod["spec"]["initContainers"].as_array().into_iter().flatten();
        let mut sum = 0;
        for one in containers.chain(stay.filter(|it| it["restartPolicy"] == "Always")) {
            let own = one["name"].as_str().unwrap_or("");
            if container.is_some_and(|wanted| wanted != own) {
                continue;
            }
            let request = &one["resources"]["requests"][resource];
            let Some(millis) = request.as_str().and_then(millis) else {
                return Err(format!(
                    "missing request for {resource} in container {own} of Pod {name}"
                ));
            };
            sum += millis;
        }
        all.insert(name.to_owned(), sum);
    }
    Ok(all)
}

/// A quantity in thousandths, rounded up.
pub(super) fn millis(quantity: &str) -> Option<i64> {
    let nanos = Quantity::parse(quantity)?.to_millis().nanos();
    i64::try_from(nanos / 1_000_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    const NOW: i64 = 100_000;
    const TOLERANCE: Tolerance = Tolerance { up: 0.1, down: 0.1 };

    fn pods(count: usize, phase: &str) -> Vec<Value> {
        (0..count)
            .map(|number| {
                json!({"metadata": {"name": format!("p{number}")},
                    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
                    "status": {"phase": phase, "startTime": "1970-01-01T00:00:00Z", "conditions": [
                        {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z"}]}})
            })
            .collect()
    }

    fn samples(values: &[i64]) -> Samples {
        let each = values.iter().enumerate();
        each.map(|(number, &millis)| {
            let sample = Sample {
                millis,
                at_s: NOW,
                window_s: 60,
            };
            (format!("p{number}"), sample)
        })
        .collect()
    }

    fn proposed(current: i64, pods: &[Value], used: &[i64], aim: Aim) -> Result<(i64, Option<i64>), String> {
        let requests = requests(pods, "cpu", None).unwrap();
        of_pods(current, pods, samples(used), &requests, (aim, true), TOLERANCE, NOW)
            .map(|it| (it.replicas, it.utilization))
    }

    #[test]
    fn replicas_follow_what_is_used() {
        let three = pods(3, "Running");
        assert_eq!(
            proposed(3, &three, &[80, 80, 80], Aim::Utilization(50)),
            Ok((5, Some(80)))
        );
        assert_eq!(
            proposed(3, &three, &[52, 52, 52], Aim::Utilization(50)),
            Ok((3, Some(52)))
        );
        assert_eq!(
            proposed(3, &three, &[10, 10, 10], Aim::Utilization(50)),
            Ok((1, Some(10)))
        );
        assert_eq!(proposed(3, &three, &[200, 200, 200], Aim::Average(100)), Ok((6, None)));
    }

    #[test]
    fn of_what_is_not_known_the_cautious_is_assumed() {
        let four = pods(4, "Running");
        // Upwards those without figures use nothing, downwards all that they may.
        assert_eq!(proposed(4, &four, &[100, 100, 100], Aim::Utilization(50)).unwrap().0, 6);
        assert_eq!(proposed(4, &four, &[10, 10, 10], Aim::Utilization(50)).unwrap().0, 3);
        let mut starting = pods(2, "Running");
        starting.extend(pods(4, "Pending").split_off(2));
        assert_eq!(proposed(4, &starting, &[100, 100], Aim::Utilization(80)).unwrap().0, 4);
        assert!(proposed(4, &pods(2, "Pending"), &[1, 1], Aim::Utilization(80)).is_err());
        assert!(proposed(4, &[], &[], Aim::Utilization(80)).is_err());
    }

    #[test]
    fn values_for_all_pods_are_shared_or_not() {
        assert_eq!(of_whole(2, 2, 4000, 1000, TOLERANCE).replicas, 8);
        assert_eq!(of_whole(0, 0, 2500, 1000, TOLERANCE).replicas, 3);
        let share = of_share(2, 5000, 1000, TOLERANCE);
        assert_eq!((share.replicas, share.millis), (5, 2500));
        assert_eq!(of_share(5, 5100, 1000, TOLERANCE).replicas, 5);
    }

    #[test]
    fn who_requests_nothing_is_named() {
        let mut one = pods(1, "Running");
        one[0]["spec"]["containers"][0]["resources"] = json!({});
        assert_eq!(
            requests(&one, "cpu", None),
            Err("missing request for cpu in container c of Pod p0".to_owned())
        );
        assert_eq!(requests(&one, "cpu", Some("other")).unwrap()["p0"], 0);
    }
}
