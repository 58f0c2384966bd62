//! The scheduler: finds a node for each Pod that has none.
//!
//! One task follows the log of Pods and nodes, keeps a picture of the cluster by it, and decides on one Pod after the other, each
//! decision on top of those before it. What was decided is written side by side by others: a Pod is *assumed* to be where it was sent until
//! the store says so, or refuses. Nothing is remembered across a restart: what was not written is decided anew. Described in
//! `docs/scheduler.md`.

mod desk;
mod outcome;
mod placement;
mod queue;

pub(crate) use placement::Resident;
use tokio::task::JoinSet;

use crate::api::server::Server;
use crate::events::Recorder;

/// The scheduler at work. It ends when the server does.
#[derive(Debug)]
pub struct Scheduler {
    tasks: JoinSet<()>,
}

/// As whom it writes.
const USER: &str = "system:kube-scheduler";
/// Who is noted as the manager of what it writes.
const MANAGER: &str = "kube-scheduler";
/// Whose Pods are its own: those whose `spec.schedulerName` is this.
const PROFILE: &str = "default-scheduler";

impl Scheduler {
    /// Starts it on a server.
    pub fn start(server: &Server) -> Self {
        let client = server.client(USER, MANAGER);
        let (recorder, events) = Recorder::new(client.clone(), PROFILE);
        let mut tasks = JoinSet::new();
        tasks.spawn(events);
        tasks.spawn(desk::run(client, recorder));
        Self { tasks }
    }

    /// Resolves when it has ended, after the server was told to stop.
    pub async fn ended(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// A UID as a number, which tells objects apart as the text does.
fn uid_of(text: &str) -> u128 {
    uuid::Uuid::parse_str(text).map_or_else(|_| u128::from_le_bytes(digest(text)), |uid| uid.as_u128())
}

/// Of a UID that is no UUID.
fn digest(text: &str) -> [u8; 16] {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.as_ref()[..16]);
    bytes
}
