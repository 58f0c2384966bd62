//! The objects that `flatkube seed` makes, each a function of its number.
//!
//! They are shaped like those of a middling company's cluster: Deployments of a few dozen applications whose
//! ReplicaSets own the Pods, an application container with probes, resources and environment,
//! projected service account volumes, and the status of a Pod that has been running for a while.

use std::fmt::Write;

use bytes::Bytes;
use serde_json::{Value, json};

/// One object: where it goes and what is sent.
pub(super) struct Seeded {
    /// Its namespace.
    pub(super) namespace: String,
    /// Its name, unique in the namespace.
    pub(super) name: String,
    /// The JSON to create it with.
    pub(super) body: Bytes,
    /// A merge patch for its `status` subresource; empty for kinds without one.
    pub(super) status: Bytes,
}

/// The label by which seeded objects are found again.
pub(super) const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY_LABEL`] on seeded objects.
pub(super) const MANAGED_BY: &str = "flatkube-seed";

/// Nodes that Pods are spread over.
const NODES: u64 = 5_000;
/// Pods of one ReplicaSet.
const REPLICAS: u64 = 25;
/// 2026-01-01T00:00:00Z. Seeded Pods have started in the month after it, in a fixed order.
const EPOCH_S: i64 = 1_767_225_600;
/// Seconds of that month.
const SPREAD_S: u64 = 30 * 86_400;

const APPLICATIONS: [&str; 16] = [
    "cart",
    "catalog",
    "checkout",
    "currency",
    "email",
    "frontend",
    "gateway",
    "inventory",
    "ledger",
    "payment",
    "pricing",
    "profile",
    "recommendation",
    "search",
    "session",
    "shipping",
];
const TEAMS: [&str; 5] = ["storefront", "fulfilment", "payments", "platform", "insight"];
const TIERS: [&str; 3] = ["web", "backend", "worker"];

/// A well mixed number for each `number` (SplitMix64's finalizer), so that neighbours share nothing by accident.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `length` letters and digits of the alphabet that Kubernetes draws name suffixes from (no vowels, no lookalikes).
fn suffix(mut seed: u64, length: usize) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut text = String::with_capacity(length);
    for _ in 0..length {
        text.push(char::from(ALPHABET[(seed % ALPHABET.len() as u64) as usize]));
        seed /= ALPHABET.len() as u64;
    }
    text
}

/// A number below 27^5 turned into five letters, one for one: two Pods of a ReplicaSet never share a name.
fn unique_suffix(number: u64) -> String {
    // 27^5 = 14,348,907; the factor is coprime to it, so the product runs through all residues.
    suffix(number.wrapping_mul(7_368_787) % 14_348_907, 5)
}

fn uid(seed: u64) -> String {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&mix(seed).to_be_bytes());
    bytes[8..].copy_from_slice(&mix(seed ^ 0x5eed).to_be_bytes());
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}

fn time(offset_s: u64) -> String {
    jiff::Timestamp::from_second(EPOCH_S + offset_s as i64)
        .map(|time| time.to_string())
        .unwrap_or_default()
}

fn namespace_name(number: u32) -> String {
    format!("{}-{number:02}", TEAMS[number as usize % TEAMS.len()])
}

/// The namespace with the number `number`.
pub(super) fn namespace(number: u32) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": namespace_name(number),
            "labels": { MANAGED_BY_LABEL: MANAGED_BY, "team": TEAMS[number as usize % TEAMS.len()] },
        },
    })
}

/// Where a Pod belongs and what it is called.
struct PodPlace {
    namespace: String,
    application: &'static str,
    tier: &'static str,
    template_hash: String,
    replica_set: String,
    name: String,
}

impl PodPlace {
    fn of(number: u64, namespaces: u32) -> Self {
        let set = number / REPLICAS;
        let application = APPLICATIONS[(mix(set) % APPLICATIONS.len() as u64) as usize];
        let tier = TIERS[(mix(set) >> 16) as usize % TIERS.len()];
        let template_hash = suffix(mix(set ^ 0x7e3a), 10);
        let replica_set = format!("{application}-{tier}-{template_hash}");
        PodPlace {
            namespace: namespace_name((set % u64::from(namespaces)) as u32),
            application,
            tier,
            template_hash,
            name: format!("{replica_set}-{}", unique_suffix(number)),
            replica_set,
        }
    }
}

/// The Pod with the number `number`, in one of `namespaces` namespaces.
pub(super) fn pod(number: u64, namespaces: u32) -> Seeded {
    let set = number / REPLICAS;
    let PodPlace {
        namespace,
        application,
        tier,
        template_hash,
        replica_set,
        name,
    } = PodPlace::of(number, namespaces);
    let node = format!("node-{:04}", mix(number) % NODES);
    let version = format!("{}.{}.{}", 1 + mix(set) % 4, mix(set) / 7 % 20, mix(set) / 11 % 10);
    let image = format!("registry.example.com/shop/{application}:{version}");
    let token_volume = format!("kube-api-access-{}", unique_suffix(number ^ 0x5a));
    let mounts = json!([
        { "name": "config", "mountPath": "/etc/shop", "readOnly": true },
        { "name": token_volume, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true },
    ]);
    let body = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "generateName": format!("{replica_set}-"),
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/name": application,
                "app.kubernetes.io/component": tier,
                "app.kubernetes.io/version": version,
                MANAGED_BY_LABEL: MANAGED_BY,
                "pod-template-hash": template_hash,
                "team": TEAMS[(set % u64::from(namespaces)) as usize % TEAMS.len()],
                // Rare on purpose: one Pod in a thousand, for selectors with small answers.
                "cohort": format!("{:03}", mix(number ^ 0xc0) % 1_000),
            },
            "annotations": {
                "prometheus.io/scrape": "true",
                "shop.example.com/config-hash": format!("{:016x}", mix(set ^ 0xcf)),
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set, "uid": uid(set),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "nodeName": node,
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 45,
            "containers": [
                {
                    "name": application,
                    "image": image,
                    "args": ["--listen=:8080", "--config=/etc/shop/config.yaml"],
                    "ports": [
                        { "name": "http", "containerPort": 8080, "protocol": "TCP" },
                    ],
                    "env": [
                        { "name": "POD_NAME", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.name" } } },
                    ],
                    "resources": {
                        "requests": { "cpu": format!("{}m", 50 + 50 * (mix(set) % 8)), "memory": "128Mi" },
                        "limits": { "memory": "256Mi" },
                    },
                    "livenessProbe": { "httpGet": { "path": "/healthz", "port": "http" }, "initialDelaySeconds": 10, "periodSeconds": 20 },
                    "readinessProbe": { "httpGet": { "path": "/ready", "port": "http" }, "periodSeconds": 5 },
                    "volumeMounts": mounts,
                },
            ],
            "volumes": [
                { "name": "config", "configMap": { "name": format!("{application}-config") } },
                { "name": token_volume, "projected": { "sources": [
                    { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
                    { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                ] } },
            ],
            "tolerations": [
                { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
                { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
            ],
        },
    });
    let status = pod_status(number, application, &image);
    Seeded {
        namespace,
        name,
        body: Bytes::from(body.to_string()),
        status: Bytes::from(status.to_string()),
    }
}

fn pod_status(number: u64, application: &str, image: &str) -> Value {
    let start_s = mix(number ^ 0x57a7) % SPREAD_S;
    let (scheduled, started) = (time(start_s), time(start_s + 4));
    let address = [10, 128 | (number >> 16) as u8 & 0x7f, (number >> 8) as u8, number as u8];
    let address = std::net::Ipv4Addr::from(address).to_string();
    let node = mix(number) % NODES;
    let node_address = std::net::Ipv4Addr::from([172, 16, (node >> 8) as u8, node as u8]).to_string();
    let running = |name: &str, image: &str, restarts: u64| {
        json!({
            "name": name,
            "image": image,
            "imageID": format!("{}@sha256:{:016x}{:016x}", image.split(':').next().unwrap_or(image), mix(number), mix(!number)),
            "containerID": format!("containerd://{:016x}{:016x}", mix(number ^ 0xc1), mix(number ^ 0xc2)),
            "ready": true,
            "started": true,
            "restartCount": restarts,
            "lastState": {},
            "state": { "running": { "startedAt": started } },
        })
    };
    // One Pod in fifty has restarted, as in life.
    let restarts = if mix(number ^ 0x4e57).is_multiple_of(50) {
        1 + number % 5
    } else {
        0
    };
    let condition = |kind: &str, time: &str| json!({ "type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": time });
    json!({ "status": {
        "phase": "Running",
        "hostIP": node_address,
        "hostIPs": [{ "ip": node_address }],
        "podIP": address,
        "podIPs": [{ "ip": address }],
        "startTime": scheduled,
        "qosClass": "Burstable",
        "conditions": [
            condition("Initialized", &scheduled),
            condition("Ready", &started),
            condition("ContainersReady", &started),
            condition("PodScheduled", &scheduled),
        ],
        "containerStatuses": [
            running(application, image, restarts),
        ],
    } })
}

/// The ConfigMap with the number `number`, in one of `namespaces` namespaces.
pub(super) fn config_map(number: u64, namespaces: u32) -> Seeded {
    let namespace = namespace_name((number % u64::from(namespaces)) as u32);
    let application = APPLICATIONS[(mix(number) % APPLICATIONS.len() as u64) as usize];
    // The suffix is unique by itself.
    let name = format!("{application}-config-{}", unique_suffix(number));
    let mut routes = String::new();
    for route in 0..12 {
        let path = suffix(mix(number * 31 + route), 6);
        let upstream = APPLICATIONS[(mix(number + route) % APPLICATIONS.len() as u64) as usize];
        let _ = write!(
            routes,
            "  - path: /{application}/{path}\n    upstream: http://{upstream}.{namespace}.svc:8080\n"
        );
    }
    let body = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/name": application,
                MANAGED_BY_LABEL: MANAGED_BY,
                "cohort": format!("{:03}", mix(number ^ 0xc0) % 1_000),
            },
        },
        "data": {
            "config.yaml": format!("server:\n  listen: :8080\n  timeout: {}s\nroutes:\n{routes}", 5 + mix(number) % 25),
            "features.json": json!({ "newCheckout": number.is_multiple_of(2), "rollout": mix(number) % 100 }).to_string(),
            "log.level": "info",
        },
    });
    Seeded {
        namespace,
        name,
        body: Bytes::from(body.to_string()),
        status: Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_same_number_is_always_the_same_object() {
        for number in [0, 1, 99_999] {
            assert_eq!(pod(number, 20).body, pod(number, 20).body);
            assert_eq!(config_map(number, 20).body, config_map(number, 20).body);
        }
    }

    #[test]
    fn names_are_unique_among_a_hundred_thousand() {
        let mut pods = HashSet::new();
        let mut suffixes = HashSet::new();
        for number in 0..100_000 {
            let place = PodPlace::of(number, 20);
            assert!(pods.insert((place.namespace, place.name)), "{number} repeats a name");
            assert!(suffixes.insert(unique_suffix(number)), "{number} repeats a suffix");
        }
    }

    #[test]
    fn a_pod_has_about_three_kibibytes_and_a_config_map_half_of_that() {
        for number in [0, 7, 4_711, 99_999] {
            let object = pod(number, 20);
            let size = object.body.len() + object.status.len();
            assert!((2_200..=3_600).contains(&size), "a Pod of {size} bytes");
            let size = config_map(number, 20).body.len();
            assert!((1_100..=1_800).contains(&size), "a ConfigMap of {size} bytes");
        }
    }

    #[test]
    fn labels_and_names_keep_to_the_rules_of_the_api() {
        for number in 0..1_000 {
            let pod: Value = serde_json::from_slice(&pod(number, 20).body).expect("JSON");
            let name = pod["metadata"]["name"].as_str().expect("a name");
            assert!(
                name.len() <= 63 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'),
                "{name}"
            );
            for (key, value) in pod["metadata"]["labels"].as_object().expect("labels") {
                assert!(value.as_str().is_some_and(|value| value.len() <= 63), "{key}");
            }
        }
    }
}
