//! Controllers: what makes the state of a cluster what its objects ask for.
//!
//! A controller follows the log of the resources that it is about, each from a position of its own, so that one that is slow reads
//! further back and never has to list again. What it learns becomes keys in a work queue; workers look at what is
//! stored *now* and act on that, so an event that comes twice, late, or after a restart changes nothing. Writes go the way of any
//! client's, under the controller's own user.

mod accounts;
mod addresses;
mod aggregation;
mod autoscale;
mod claim;
mod condition;
mod crew;
mod cron;
mod daemon;
mod deployment;
mod devices;
mod disruption;
mod endpoints;
mod failure;
mod figures;
mod finished;
mod garbage;
mod history;
mod job;
mod kinds;
mod metadata;
mod percent;
mod pod;
mod policies;
mod queue;
mod quota;
mod replicas;
mod runtime;
mod selector;
mod volumes;

use accounts::{DefaultAccounts, Publisher};
use addresses::{Given, Ranges};
use autoscale::Autoscalers;
use cron::CronJobs;
use daemon::DaemonSets;
use deployment::Deployments;
use devices::ResourceClaims;
use disruption::{Budgets, StaleDisruptions};
use endpoints::{ClassicEndpoints, Mirror, Slices};
use event::Recorder;
use finished::FinishedJobs;
use job::Jobs;
use policies::PolicyStatus;
use quota::Quotas;
use replicas::Replicas;
use runtime::Controller;
use tokio::task::JoinSet;
use volumes::{ClaimProtection, Claims, EphemeralVolumes, HollowVolumes, VolumeProtection, Volumes};

use crate::api::Client;
use crate::api::server::Server;
use crate::events as event;

/// Controllers at work. They end when the server does.
#[derive(Debug)]
pub struct Controllers {
    tasks: JoinSet<()>,
}

impl Controllers {
    /// Starts them on a server.
    pub fn start(server: &Server) -> Self {
        let mut start = Start {
            server,
            tasks: JoinSet::new(),
        };
        start.controller("clusterrole-aggregation-controller", |client, _| {
            aggregation::Aggregated::new(client)
        });
        start.task("generic-garbage-collector", garbage::run);
        start.controller("cronjob-controller", CronJobs::new);
        start.controller("daemonset-controller", DaemonSets::new);
        start.controller("deployment-controller", Deployments::new);
        start.controller("disruption-controller", Budgets::new);
        start.controller("stale-disruption-controller", |client, _| StaleDisruptions::new(client));
        start.controller("endpoint-controller", ClassicEndpoints::new);
        start.controller("endpointslice-controller", |client, _| Slices::new(client));
        start.controller("endpointslicemirroring-controller", Mirror::new);
        start.controller("ephemeral-volume-controller", EphemeralVolumes::new);
        start.controller("hollow-provisioner", HollowVolumes::new);
        start.controller("horizontal-pod-autoscaler", Autoscalers::new);
        start.controller("job-controller", Jobs::new);
        start.controller("persistent-volume-binder", Claims::new);
        start.controller("persistentvolume-controller", Volumes::new);
        start.controller("pv-protection-controller", |client, _| VolumeProtection::new(client));
        start.controller("pvc-protection-controller", |client, _| ClaimProtection::new(client));
        start.controller("replicaset-controller", |client, events| {
            Replicas::new(client, events, &replicas::REPLICA_SETS)
        });
        start.controller("replication-controller", |client, events| {
            Replicas::new(client, events, &replicas::REPLICATION_CONTROLLERS)
        });
        start.controller("resource-claim-controller", ResourceClaims::new);
        start.controller("resourcequota-controller", |client, _| Quotas::new(client));
        let authority = server.authority();
        start.controller("root-ca-cert-publisher", |client, _| Publisher::new(client, authority));
        start.controller("service-account-controller", |client, _| DefaultAccounts::new(client));
        start.controller("service-cidrs-controller", Ranges::new);
        start.controller("service-ip-address-controller", |client, _| Given::new(client));
        start.controller("ttl-after-finished-controller", |client, _| FinishedJobs::new(client));
        start.controller("validatingadmissionpolicy-status-controller", |client, _| {
            PolicyStatus::new(client)
        });
        Self { tasks: start.tasks }
    }

    /// Resolves when all have ended, after the server was told to stop.
    pub async fn ended(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// What is started. The name that each is started under is its user's (`system:serviceaccount:kube-system:NAME`), and the one in
/// its Events.
struct Start<'a> {
    server: &'a Server,
    tasks: JoinSet<()>,
}

impl Start<'_> {
    fn client(&self, name: &str) -> Client {
        let user = format!("system:serviceaccount:kube-system:{name}");
        self.server.client(&user, MANAGER)
    }

    /// A controller of one kind of object; `None` where its resource is not served.
    fn controller<C: Controller>(&mut self, name: &'static str, make: impl FnOnce(Client, Recorder) -> Option<C>) {
        let (recorder, events) = Recorder::new(self.client(name), name);
        if let Some(controller) = make(self.client(name), recorder) {
            self.tasks.spawn(events);
            self.tasks.spawn(runtime::run(self.client(name), name, controller));
        }
    }

    /// One that has a loop of its own.
    fn task<F: Future<Output = ()> + Send + 'static>(&mut self, name: &str, run: impl FnOnce(Client) -> F) {
        let task = run(self.client(name));
        self.tasks.spawn(task);
    }
}

/// Who is noted as the manager of what controllers write.
const MANAGER: &str = "kube-controller-manager";
