//! Replaces Pods of former templates. Rules: "Performing a Rolling Update on a DaemonSet".

use super::crews::is_deleting;
use super::{DaemonSets, Look};
use crate::controllers::crew::Crew;
use crate::controllers::failure::Failure;
use crate::controllers::percent;

impl DaemonSets {
    /// Replaces as many as the strategy allows now.
    pub(super) async fn roll(&self, crew: &Crew<'_>, look: &mut Look<'_>) -> Option<Failure> {
        let (surplus, wanting) = match look.surge() {
            surge if surge > 0 => with_surge(look, surge),
            _ => (in_place(look), Vec::new()),
        };
        if surplus.is_empty() && wanting.is_empty() {
            return None;
        }
        self.exchange(crew, look, wanting, surplus).await
    }
}

/// The Pods of a node that live: one of the present template, one of a former one. `None` when there are more of a sort, which the
/// number of Pods has to be seen to first.
fn pair(look: &Look<'_>, places: &[usize]) -> Option<(Option<usize>, Option<usize>)> {
    let (mut new, mut old) = (None, None);
    for &place in places.iter().filter(|&&place| !is_deleting(&look.pods[place])) {
        let slot = if look.is_updated(place) { &mut new } else { &mut old };
        if slot.replace(place).is_some() {
            return None;
        }
    }
    Some((new, old))
}

/// Pods to delete, so that no more than `maxUnavailable` nodes are without one that is available. Those that are not available
/// anyway may all be replaced.
fn in_place(look: &Look<'_>) -> Vec<usize> {
    let update = &look.set["spec"]["updateStrategy"]["rollingUpdate"];
    // Nothing at all would never come to an end.
    let allowed = percent::resolve(&update["maxUnavailable"], look.desired(), true).max(1);
    let (mut unavailable, mut replaced, mut candidates) = (0_i64, Vec::new(), Vec::new());
    for places in look.by_node.values() {
        match pair(look, places) {
            Some((Some(new), None)) => unavailable += i64::from(!look.is_available(new)),
            Some((None, Some(old))) if !look.is_available(old) => {
                replaced.push(old);
                unavailable += 1;
            }
            Some((None, Some(old))) => candidates.push(old),
            _ => unavailable += 1,
        }
    }
    candidates.truncate(usize::try_from(allowed - unavailable).unwrap_or(0));
    replaced.extend(candidates);
    replaced
}

/// Pods to delete, and nodes that get another Pod beside the one that they have, no more than `surge` of them at a time.
fn with_surge(look: &Look<'_>, surge: i64) -> (Vec<usize>, Vec<String>) {
    let (mut surging, mut surplus, mut wanting, mut candidates) = (0_i64, Vec::new(), Vec::new(), Vec::new());
    for node in look.nodes.iter().filter(|node| node.runs) {
        match pair(look, look.on(&node.name)) {
            None => surging += 1,
            Some((_, None)) => {}
            Some((None, Some(old))) if !look.is_available(old) => wanting.push(node.name.clone()),
            Some((None, Some(_))) => candidates.push(node.name.clone()),
            Some((Some(new), Some(_))) if !look.is_available(new) => surging += 1,
            Some((Some(_), Some(old))) => surplus.push(old),
        }
    }
    candidates.truncate(usize::try_from(surge - surging).unwrap_or(0));
    wanting.extend(candidates);
    (surplus, wanting)
}

#[cfg(test)]
mod tests {
    use super::super::place::Node;
    use super::*;
    use crate::tree::{Value, json};

    /// A look at nodes with Pods of these sorts: `o` former and available, `O` former and not, `n` and `N` of the present template.
    fn look<'a>(set: &'a Value, nodes: &[&str]) -> Look<'a> {
        let mut look = Look {
            set,
            pods: Vec::new(),
            nodes: Vec::new(),
            by_node: std::collections::BTreeMap::new(),
            hash: "new".into(),
            now_s: 100,
        };
        for (number, sorts) in nodes.iter().enumerate() {
            let name = format!("node-{number}");
            for sort in sorts.chars() {
                let hash = if sort.eq_ignore_ascii_case(&'n') { "new" } else { "old" };
                let ready = if sort.is_lowercase() { "True" } else { "False" };
                look.by_node.entry(name.clone()).or_default().push(look.pods.len());
                look.pods.push(json!({
                    "metadata": {"labels": {"controller-revision-hash": hash}},
                    "status": {"conditions": [
                        {"type": "Ready", "status": ready, "lastTransitionTime": "1970-01-01T00:00:01Z"}]},
                }));
            }
            look.nodes.push(Node {
                name,
                runs: true,
                stays: true,
            });
        }
        look
    }

    #[allow(clippy::needless_pass_by_value, reason = "values are written where they are used")]
    fn set(update: Value) -> Value {
        json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": update}}})
    }

    #[test]
    fn no_more_nodes_are_without_a_pod_than_may_be() {
        let two = set(json!({"maxUnavailable": 2}));
        assert_eq!(in_place(&look(&two, &["o", "o", "o", "o"])), [0, 1]);
        assert_eq!(in_place(&look(&two, &["N", "o", "o", "n"])), [1]);
        assert_eq!(in_place(&look(&two, &["N", "N", "o"])), [0_usize; 0]);
        // Who is not available is missed by nobody.
        assert_eq!(in_place(&look(&two, &["O", "O", "O", "o"])), [0, 1, 2]);
        assert_eq!(
            in_place(&look(&set(json!({"maxUnavailable": "10%"})), &["o", "o", "o"])),
            [0]
        );
    }

    #[test]
    fn the_new_pod_is_there_before_the_old_one_goes() {
        let one = set(json!({"maxSurge": 1, "maxUnavailable": 0}));
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(with_surge(&look(&one, &["o", "o"]), 1), (vec![], names(&["node-0"])));
        assert_eq!(with_surge(&look(&one, &["oN", "o"]), 1), (vec![], names(&[])));
        assert_eq!(with_surge(&look(&one, &["on", "o"]), 1), (vec![0], names(&["node-1"])));
        assert_eq!(with_surge(&look(&one, &["O", "oN"]), 1), (vec![], names(&["node-0"])));
    }
}
