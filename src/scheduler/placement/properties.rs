//! Random clusters: what is decided holds against a slow reading of the rules, made anew from the objects each time.

use std::collections::HashMap;

use proptest::prelude::*;

use super::cycle::{Decision, decide};
use super::preempt::{Preemption, preempt};
use super::{Class, Cluster, PodFacts, PodId};
use crate::tree::{Value, json};

const ZONES: [&str; 3] = ["z1", "z2", "z3"];
const APPS: [&str; 3] = ["a", "b", "c"];
const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// What one Pod of a test asks for: each number stands for a choice.
#[derive(Debug, Clone)]
struct Wish {
    app: usize,
    cpu: i64,
    priority: i64,
    /// 0 none, 1 apart by host, 2 together by zone, 3 spread by zone, 4 a port, 5 a zone alone.
    rule: usize,
    other: usize,
    is_tolerant: bool,
}

fn wish() -> impl Strategy<Value = Wish> {
    (0..3_usize, 0..4_i64, 0..3_i64, 0..6_usize, 0..3_usize, any::<bool>()).prop_map(
        |(app, cpu, priority, rule, other, is_tolerant)| Wish {
            app,
            cpu,
            priority,
            rule,
            other,
            is_tolerant,
        },
    )
}

fn pod_of(number: usize, wish: &Wish) -> Value {
    let selector = json!({"matchLabels": {"app": APPS[wish.other]}});
    let required = |key: &str| {
        let mut term = json!({"topologyKey": key});
        term["labelSelector"] = selector.clone();
        let mut terms = json!({});
        terms["requiredDuringSchedulingIgnoredDuringExecution"] = vec![term].into();
        terms
    };
    let mut container = json!({"resources": {"requests": {"cpu": wish.cpu.to_string()}}});
    let mut pod = json!({"metadata": {"name": format!("p{number}"), "namespace": "ns", "labels": {"app": APPS[wish.app]}},
        "spec": {"priority": wish.priority}});
    match wish.rule {
        1 => pod["spec"]["affinity"]["podAntiAffinity"] = required(HOST),
        2 => pod["spec"]["affinity"]["podAffinity"] = required(ZONE),
        3 => {
            let mut one = json!({"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"});
            one["labelSelector"] = selector.clone();
            pod["spec"]["topologySpreadConstraints"] = vec![one].into();
        }
        4 => container["ports"] = json!([{"containerPort": 1, "hostPort": 80}]),
        5 => pod["spec"]["nodeSelector"][ZONE] = ZONES[wish.other].into(),
        _ => {}
    }
    if wish.is_tolerant {
        pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    }
    pod["spec"]["containers"] = vec![container].into();
    pod
}

/// The picture, and the objects that it is of.
#[derive(Default)]
struct World {
    cluster: Cluster,
    nodes: Vec<(String, Value)>,
    pods: Vec<(String, Value, Option<String>)>,
}

impl World {
    fn of(nodes: &[(usize, i64, bool)]) -> Self {
        let mut world = Self::default();
        for (number, (zone, cpu, is_tainted)) in nodes.iter().enumerate() {
            let name = format!("n{number}");
            let mut node = json!({"metadata": {"labels": {}},
                "status": {"allocatable": {"cpu": cpu.to_string(), "memory": "8Gi", "pods": "4"}}});
            node["metadata"]["labels"][HOST] = name.as_str().into();
            node["metadata"]["labels"][ZONE] = ZONES[*zone].into();
            if *is_tainted {
                node["spec"]["taints"] = json!([{"key": "k", "effect": "NoSchedule"}]);
            }
            world.cluster.set_node(&name, &node);
            world.nodes.push((name, node));
        }
        world
    }

    fn add(&mut self, number: usize, wish: &Wish) -> PodId {
        let pod = pod_of(number, wish);
        let key = format!("ns/p{number}");
        let class = Class::of(&pod, self.cluster.names());
        let facts = PodFacts {
            uid: number as u128,
            ..PodFacts::default()
        };
        let id = self.cluster.set_pod(&key, class, facts, None);
        self.pods.push((key, pod, None));
        id
    }

    fn place(&mut self, id: PodId, node: u32) {
        let (key, name) = (
            self.cluster.pod(id).key.to_string(),
            self.cluster.node_name(node).to_string(),
        );
        self.cluster.assume(id, node);
        let pod = self.pods.iter_mut().find(|(other, ..)| *other == key).unwrap();
        pod.2 = Some(name);
    }

    fn label<'a>(&'a self, node: &str, key: &str) -> &'a str {
        let (_, node) = self.nodes.iter().find(|(name, _)| name == node).unwrap();
        node["metadata"]["labels"][key].as_str().unwrap()
    }

    /// Pods that are somewhere, leaving some out.
    fn placed<'a>(&'a self, without: &'a [String]) -> impl Iterator<Item = (&'a Value, &'a str)> {
        let placed = self.pods.iter().filter(|(key, ..)| !without.contains(key));
        placed.filter_map(|(_, pod, node)| Some((pod, node.as_deref()?)))
    }

    /// Whether a Pod can be on a node, by the plain words of each rule.
    fn fits(&self, pod: &Value, node: &str, without: &[String]) -> bool {
        let (_, object) = self.nodes.iter().find(|(name, _)| name == node).unwrap();
        let here = || self.placed(without).filter(|(_, place)| *place == node);
        let cpu = |pod: &Value| -> i64 {
            let text = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str();
            text.unwrap().parse().unwrap()
        };
        let has: i64 = object["status"]["allocatable"]["cpu"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        let taken: i64 = here().map(|(pod, _)| cpu(pod)).sum();
        let has_room = here().count() < 4 && (cpu(pod) == 0 || taken + cpu(pod) <= has);
        let tolerates = object["spec"]["taints"].is_null() || !pod["spec"]["tolerations"].is_null();
        let zone = &pod["spec"]["nodeSelector"][ZONE];
        let is_zone = zone.is_null() || *zone == self.label(node, ZONE);
        let port = |pod: &Value| !pod["spec"]["containers"][0]["ports"].is_null();
        let has_port = !port(pod) || !here().any(|(other, _)| port(other));
        let required = |pod: &'_ Value, kind: &str| -> Option<String> {
            let term = &pod["spec"]["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"][0];
            term["labelSelector"]["matchLabels"]["app"].as_str().map(str::to_owned)
        };
        let app = |pod: &'_ Value| pod["metadata"]["labels"]["app"].as_str().unwrap().to_owned();
        let apart =
            required(pod, "podAntiAffinity").is_none_or(|wanted| !here().any(|(other, _)| app(other) == wanted));
        let kept_out = here().any(|(other, _)| required(other, "podAntiAffinity") == Some(app(pod)));
        let together = required(pod, "podAffinity").is_none_or(|wanted| {
            let zone = self.label(node, ZONE);
            let mut wanted_pods = self
                .placed(without)
                .filter(|(other, _)| app(other) == wanted)
                .peekable();
            if wanted_pods.peek().is_none() {
                return app(pod) == wanted;
            }
            wanted_pods.any(|(_, place)| self.label(place, ZONE) == zone)
        });
        let spread = &pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]["app"];
        let is_spread = spread.as_str().is_none_or(|wanted| {
            let mut zones: HashMap<&str, i64> = HashMap::new();
            for (name, _) in &self.nodes {
                zones.entry(self.label(name, ZONE)).or_default();
            }
            for (_, place) in self.placed(without).filter(|(other, _)| app(other) == wanted) {
                *zones.get_mut(self.label(place, ZONE)).unwrap() += 1;
            }
            let own = i64::from(app(pod) == wanted);
            zones[self.label(node, ZONE)] + own - zones.values().min().unwrap() <= 1
        });
        has_room && tolerates && is_zone && has_port && apart && !kept_out && together && is_spread
    }
}

proptest! {
    #[test]
    fn decisions_are_those_of_a_slow_reading_of_the_rules_and_preemption_takes_the_lower_alone(
        nodes in prop::collection::vec((0..3_usize, 1..6_i64, any::<bool>()), 1..6),
        wishes in prop::collection::vec(wish(), 1..24),
    ) {
        let mut world = World::of(&nodes);
        let mut from = 0;
        for (number, wish) in wishes.iter().enumerate() {
            let id = world.add(number, wish);
            let pod = world.pods[number].1.clone();
            match decide(&world.cluster, id, &mut from) {
                Decision::Place(node) => {
                    let name = world.cluster.node_name(node).to_string();
                    prop_assert!(world.fits(&pod, &name, &[]), "{name} is no place for {}", pod.to_json());
                    world.place(id, node);
                }
                Decision::Nowhere(misfit) => {
                    for (name, _) in &world.nodes {
                        prop_assert!(!world.fits(&pod, name, &[]), "{name} is a place for {}: {misfit}", pod.to_json());
                    }
                    let preemption = preempt(&world.cluster, id, &misfit, from);
                    let lower = |other: &Value| other["spec"]["priority"].as_i64() < pod["spec"]["priority"].as_i64();
                    if let Preemption::Evict(eviction) = preemption {
                        let name = world.cluster.node_name(eviction.node).to_string();
                        prop_assert!(!eviction.victims.is_empty());
                        let keys: Vec<String> =
                            eviction.victims.iter().map(|id| world.cluster.pod(*id).key.to_string()).collect();
                        for (key, other, place) in world.pods.iter().filter(|(key, ..)| keys.contains(key)) {
                            prop_assert!(lower(other), "{key} is no less important");
                            prop_assert_eq!(place.as_deref(), Some(name.as_str()));
                        }
                        prop_assert!(world.fits(&pod, &name, &keys), "it does not help: {:?}", keys);
                        for id in eviction.victims {
                            let key = world.cluster.pod(id).key.to_string();
                            world.cluster.remove_pod(id);
                            world.pods.iter_mut().find(|(other, ..)| *other == key).unwrap().2 = None;
                        }
                        world.place(id, eviction.node);
                    } else {
                        // Those of lower priority would have to leave in vain.
                        for (name, _) in &world.nodes {
                            let all: Vec<String> = world.pods.iter()
                                .filter(|(_, other, place)| place.as_deref() == Some(name) && lower(other))
                                .map(|(key, ..)| key.clone())
                                .collect();
                            prop_assert!(all.is_empty() || !world.fits(&pod, name, &all), "{name} could be made a place");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_picture_kept_up_to_date_is_that_made_anew(
        nodes in prop::collection::vec((0..3_usize, 1..6_i64, any::<bool>()), 1..5),
        steps in prop::collection::vec((wish(), 0..8_usize, prop::option::of(0..5_usize), any::<bool>()), 1..60),
    ) {
        let mut world = World::of(&nodes);
        let mut now: HashMap<usize, (Wish, Option<String>, bool)> = HashMap::new();
        for (wish, number, node, is_deleting) in steps {
            let key = format!("ns/p{number}");
            match node.map(|node| format!("n{node}")) {
                None if now.contains_key(&number) => {
                    let id = world.cluster.id(&key).unwrap();
                    world.cluster.remove_pod(id);
                    now.remove(&number);
                }
                node => {
                    let class = Class::of(&pod_of(number, &wish), world.cluster.names());
                    let facts = PodFacts { is_deleting, ..PodFacts::default() };
                    world.cluster.set_pod(&key, class, facts, node.as_deref());
                    now.insert(number, (wish, node, is_deleting));
                }
            }
        }
        let mut anew = World::of(&nodes);
        for (number, (wish, node, is_deleting)) in &now {
            let class = Class::of(&pod_of(*number, wish), anew.cluster.names());
            let facts = PodFacts { is_deleting: *is_deleting, ..PodFacts::default() };
            anew.cluster.set_pod(&format!("ns/p{number}"), class, facts, node.as_deref());
        }
        prop_assert_eq!(world.cluster.picture(), anew.cluster.picture());
    }
}

impl Cluster {
    /// Everything that decisions go by, in an order of its own.
    fn picture(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for node in self.nodes.iter().filter(|node| !node.name.is_empty()) {
            let mut pods: Vec<&str> = node.pods.iter().map(|id| &*self.pod(*id).key).collect();
            pods.sort_unstable();
            let ports = node.ports.len();
            lines.push(format!(
                "{} {} {:?} {:?} {ports} {pods:?}",
                node.name, node.exists, node.requested, node.assumed
            ));
        }
        for kin in self.classes.iter().flatten() {
            let mut on: Vec<String> = kin
                .on
                .iter()
                .map(|(node, count)| format!("{} {count:?}", self.nodes[*node as usize].name))
                .collect();
            on.sort_unstable();
            lines.push(format!("{:?} {on:?}", kin.class));
        }
        lines.push(format!("{} with terms", self.with_terms.len()));
        lines.sort_unstable();
        lines
    }
}
