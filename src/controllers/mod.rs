//! Controllers: what makes the state of a cluster what its objects ask for.
//!
//! A controller follows the log of the resources that it is about, each from a position of its own, so that one that is slow reads
//! further back and never has to list again. What it learns becomes keys in a work queue; workers look at what is
//! stored *now* and act on that, so an event that comes twice, late, or after a restart changes nothing. Writes go the way of any
//! client's, under the controller's own user.

mod claim;
mod deployment;
mod event;
mod failure;
mod garbage;
mod metadata;
mod pod;
mod queue;
mod replicas;
mod runtime;
mod selector;

use deployment::Deployments;
use event::Recorder;
use replicas::Replicas;
use tokio::task::JoinSet;

use crate::api::server::Server;

/// Controllers at work. They end when the server does.
#[derive(Debug)]
pub struct Controllers {
    tasks: JoinSet<()>,
}

impl Controllers {
    /// Starts them on a server.
    pub fn start(server: &Server) -> Self {
        let mut tasks = JoinSet::new();
        let user = |name: &str| format!("system:serviceaccount:kube-system:{name}");
        let client = |name: &str| server.client(&user(name), MANAGER);
        tasks.spawn(garbage::run(client("generic-garbage-collector")));
        for (name, kind) in [
            ("replicaset-controller", &replicas::REPLICA_SETS),
            ("replication-controller", &replicas::REPLICATION_CONTROLLERS),
        ] {
            let (recorder, events) = Recorder::new(client(name), name);
            if let Some(controller) = Replicas::new(client(name), recorder, kind) {
                tasks.spawn(events);
                tasks.spawn(runtime::run(client(name), controller));
            }
        }
        let name = "deployment-controller";
        let (recorder, events) = Recorder::new(client(name), name);
        if let Some(controller) = Deployments::new(client(name), recorder) {
            tasks.spawn(events);
            tasks.spawn(runtime::run(client(name), controller));
        }
        Self { tasks }
    }

    /// Resolves when all have ended, after the server was told to stop.
    pub async fn ended(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Who is noted as the manager of what controllers write.
const MANAGER: &str = "kube-controller-manager";
