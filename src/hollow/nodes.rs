//! Registers Nodes as their kubelets would, and keeps their Leases and conditions up to date.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::program::digest;
use super::work::{Cluster, Node, Standing, now_ms};
use crate::api::Client;
use crate::api::status::Status;
use crate::resources::{self, ResourceRef, time_text};
use crate::tree::{Value, json};

/// Nodes that are written side by side: they share a sync.
const AT_ONCE: usize = 128;
/// How long a Lease is good for, seconds.
const LEASE_S: u32 = 40;
const LEASES: &str = "kube-node-lease";

/// Registers all nodes and keeps them alive until the server stops.
pub(super) async fn run(cluster: Arc<Cluster>) {
    let Some(client) = cluster.nodes.first().map(|node| node.client.clone()) else {
        return;
    };
    tokio::select! {
        () = client.stopping().stopped() => {}
        () = keep(cluster) => {}
    }
}

async fn keep(cluster: Arc<Cluster>) {
    let (Some(nodes), Some(leases)) = (stored("nodes"), stored("leases.coordination.k8s.io")) else {
        return;
    };
    let count = cluster.nodes.len();
    each(&cluster, 0..count, |cluster, at| {
        let nodes = nodes.clone();
        async move { register(&cluster, &nodes, at).await }
    })
    .await;
    // Every second its share of the nodes, so that no second has them all.
    let rounds = cluster.profile.lease_renew_s.max(1) as usize;
    let reports = (cluster.profile.status_report_s.max(1) as usize).div_ceil(rounds);
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    let mut tick = 0_usize;
    loop {
        ticks.tick().await;
        let (share, round) = (tick % rounds, tick / rounds);
        let range = count * share / rounds..count * (share + 1) / rounds;
        each(&cluster, range, |cluster, at| {
            let (nodes, leases) = (nodes.clone(), leases.clone());
            async move {
                let node = &cluster.nodes[at];
                let standing = node.standing(&node.client.store().view()).map_err(Status::internal)?;
                if matches!(standing, Standing::Gone | Standing::Stopped) {
                    return Ok(());
                }
                renew(node, &leases).await?;
                if at % reports == round % reports || standing == Standing::Doubted {
                    report(node, &nodes).await?;
                }
                Ok(())
            }
        })
        .await;
        tick += 1;
    }
}

fn stored(storage: &str) -> Option<ResourceRef> {
    Some(resources::stored(storage)?.into())
}

/// Does something for each of these nodes, [`AT_ONCE`] at a time.
async fn each<F: Future<Output = Result<(), Status>> + Send + 'static>(
    cluster: &Arc<Cluster>,
    range: std::ops::Range<usize>,
    work: impl Fn(Arc<Cluster>, usize) -> F,
) {
    let mut tasks = JoinSet::new();
    for at in range {
        if tasks.len() >= AT_ONCE {
            finished(tasks.join_next().await);
        }
        tasks.spawn(work(cluster.clone(), at));
    }
    while let Some(done) = tasks.join_next().await {
        finished(Some(done));
    }
}

fn finished(done: Option<Result<Result<(), Status>, tokio::task::JoinError>>) {
    match done {
        // A Node that somebody deleted stays away.
        Some(Ok(Err(error))) if error.code != 404 => tracing::debug!(%error, "a simulated node cannot be written"),
        Some(Err(error)) => tracing::error!(%error, "work on a simulated node ended unasked"),
        _ => {}
    }
}

async fn register(cluster: &Cluster, nodes: &ResourceRef, at: usize) -> Result<(), Status> {
    let node = &cluster.nodes[at];
    match node.client.create(nodes, None, object(cluster, at)).await {
        Ok(_) => Ok(()),
        Err(error) if error.code == 409 => report(node, nodes).await,
        Err(error) => Err(error),
    }
}

fn conditions() -> Value {
    let now = time_text(now_ms().div_euclid(1000));
    let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({"type": kind, "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now, "lastTransitionTime": now});
    vec![
        condition(
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        condition(
            "DiskPressure",
            "False",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        condition(
            "PIDPressure",
            "False",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
        condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
    .into()
}

fn object(cluster: &Cluster, at: usize) -> Value {
    let (node, profile) = (&cluster.nodes[at], &cluster.profile);
    let kind = &profile.instance_types[at % profile.instance_types.len().max(1)];
    let zone = &profile.zones[at % profile.zones.len().max(1)];
    let mut labels = json!({
        "beta.kubernetes.io/arch": kind.arch,
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": kind.arch,
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": kind.name,
        "topology.kubernetes.io/region": profile.region,
        "topology.kubernetes.io/zone": zone,
    });
    for (name, value) in &profile.labels {
        labels[name.as_str()] = value.into();
    }
    let resources = |reserved_mi: u64| {
        json!({
            "cpu": kind.cpu.to_string(),
            "memory": format!("{}Ki", (u64::from(kind.memory_gi) * 1024 - reserved_mi) * 1024),
            "ephemeral-storage": format!("{}Gi", kind.storage_gi),
            "hugepages-1Gi": "0",
            "hugepages-2Mi": "0",
            "pods": kind.pods.to_string(),
        })
    };
    let id = digest(&["node", &node.name]);
    let uuid = format!(
        "{}-{}-{}-{}-{}",
        &id[..8],
        &id[8..12],
        &id[12..16],
        &id[16..20],
        &id[20..32]
    );
    json!({
        "metadata": {
            "name": node.name,
            "labels": labels,
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {"providerID": format!("hollow://{}", node.name)},
        "status": {
            "capacity": resources(0),
            "allocatable": resources(100),
            "conditions": serde_json::to_value(conditions()).unwrap_or_default(),
            "addresses": [
                {"type": "InternalIP", "address": node.ip},
                {"type": "Hostname", "address": node.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "architecture": kind.arch,
                "bootID": uuid,
                "containerRuntimeVersion": "containerd://2.1.4",
                "kernelVersion": "6.12.0-hollow",
                "kubeProxyVersion": "",
                "kubeletVersion": "v1.36.2",
                "machineID": &id[..32],
                "operatingSystem": "linux",
                "osImage": "Hollow Linux",
                "systemUUID": uuid,
            },
        },
    })
}

/// Says that the node is as it was.
async fn report(node: &Node, nodes: &ResourceRef) -> Result<(), Status> {
    let edit = |old: &Value| {
        let mut new = old.clone();
        let mut wanted = conditions();
        for condition in wanted.as_array_mut()?.iter_mut() {
            let present = resources::condition(old, condition["type"].as_str().unwrap_or(""));
            if let Some(present) = present.filter(|present| present["status"] == condition["status"]) {
                condition["lastTransitionTime"] = present["lastTransitionTime"].clone();
            }
        }
        let others = old["status"]["conditions"].as_array().into_iter().flatten();
        for other in others {
            let is_own = wanted
                .as_array()
                .is_some_and(|own| own.iter().any(|own| own["type"] == other["type"]));
            if !is_own {
                wanted.as_array_mut()?.push(other.clone());
            }
        }
        new["status"]["conditions"] = wanted;
        Some(new)
    };
    node.client.change(nodes, Some("status"), &node.name, edit).await
}

/// Renews a node's Lease; makes it if it is not there.
async fn renew(node: &Node, leases: &ResourceRef) -> Result<(), Status> {
    let now = format!("{:.6}", jiff::Timestamp::now());
    let edit = |old: &Value| {
        let mut new = old.clone();
        new["spec"]["renewTime"] = now.as_str().into();
        Some(new)
    };
    let changed = node
        .client
        .change(leases, None, &format!("{LEASES}/{}", node.name), edit)
        .await;
    match changed {
        Err(error) if error.code == 404 => make_lease(&node.client, &node.name, leases, &now).await,
        changed => changed,
    }
}

async fn make_lease(client: &Client, name: &str, leases: &ResourceRef, now: &str) -> Result<(), Status> {
    let view = client.store().view();
    let Some(node) = view.get("nodes", name).map_err(Status::internal)? else {
        return Ok(());
    };
    let uid = node.sidecar().map_err(Status::internal)?.uid.to_string();
    let lease = json!({
        "metadata": {
            "name": name,
            "namespace": LEASES,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}],
        },
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_S, "renewTime": now},
    });
    client.create(leases, Some(LEASES), lease).await.map(drop)
}
