//! Simulated nodes: Nodes without machines, whose Pods live as a kubelet's would.
//!
//! | file | what it does |
//! | --- | --- |
//! | `profile` | what the nodes are like, and how fast things happen on them |
//! | `nodes` | registers Nodes, renews their Leases |
//! | `follow` | learns from the log which Pods want a look, and when |
//! | `work` | has the look: what is stored, what comes next, what is written |
//! | `admission` | whether a node takes a Pod |
//! | `life` | what becomes of a Pod: a function of what is stored and the time |
//! | `containers` | the same of one container |
//! | `conditions` | phase and conditions of a Pod, of its containers' states |
//! | `told` | Events of kubelets |
//! | `output` | logs |
//! | `program`, `shell` | what runs in a container: how long, and how it ends |
//! | `addresses` | addresses of nodes and Pods |
//! | `wheel` | what wants a look later |
//!
//! All state of a Pod is in its stored status. In memory there is a key for each Pod that something is to happen to (about 150
//! bytes), 32 bytes of addresses and about 300 of a user for each node, and nothing for a Pod that just runs: 5,000 nodes take 2 MB,
//! 100,000 Pods that run take nothing.

mod addresses;
mod admission;
mod conditions;
mod containers;
mod follow;
mod life;
mod nodes;
mod output;
mod profile;
mod program;
mod shell;
mod told;
mod wheel;
mod work;

use std::sync::{Arc, Weak};

use tokio::task::JoinSet;

use crate::api::server::Server;
use crate::events::Recorder;

pub use profile::{InstanceType, Profile, ProfileError};

/// Nodes that there may be at most: their names have five digits.
pub const NODES_MAX: usize = 50_000;

/// Nodes at work. They end when the server does.
#[derive(Debug)]
pub struct Hollow {
    tasks: JoinSet<()>,
}

impl Hollow {
    /// Registers so many nodes (`hollow-00001` and on, [`NODES_MAX`] at most) and lets the Pods live that are bound to them.
    pub fn start(server: &Server, nodes: usize, profile: Profile) -> Self {
        let mut tasks = JoinSet::new();
        let client = server.client("system:node:hollow", "kubelet");
        let (recorder, events) = Recorder::new(client, "kubelet");
        if let Some(cluster) = work::Cluster::new(server, nodes.min(NODES_MAX), profile, recorder) {
            let cluster = Arc::new(cluster);
            let simulated: Weak<work::Cluster> = Arc::downgrade(&cluster);
            server.simulate(simulated);
            tasks.spawn(events);
            tasks.spawn(nodes::run(cluster.clone()));
            tasks.spawn(follow::run(cluster));
        }
        Self { tasks }
    }

    /// Resolves when all have ended, after the server was told to stop.
    pub async fn ended(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
