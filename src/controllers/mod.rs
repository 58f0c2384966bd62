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
mod bootstrap;
mod certificates;
mod claim;
mod condition;
mod crew;
mod cron;
mod daemon;
mod deployment;
mod devices;
mod disruption;
mod endpoints;
mod expiry;
mod failure;
mod figures;
mod finished;
mod garbage;
mod history;
mod job;
mod kinds;
mod metadata;
mod nodes;
mod pace;
mod percent;
mod pod;
mod policies;
mod queue;
mod quota;
mod replicas;
mod runtime;
mod selector;
mod settings;
mod stateful;
mod volumes;

use accounts::{DefaultAccounts, Publisher, TokenSecrets};
use addresses::{Given, Ranges};
use autoscale::Autoscalers;
use bootstrap::{BootstrapSigner, TokenCleaner};
use certificates::SigningRequests;
use cron::CronJobs;
use daemon::DaemonSets;
use deployment::Deployments;
use devices::ResourceClaims;
use disruption::{Budgets, StaleDisruptions};
use endpoints::{ClassicEndpoints, Mirror, Slices};
use event::Recorder;
use finished::FinishedJobs;
use job::Jobs;
use nodes::{Evictions, Lifecycle, NodeRanges, Ttl};
use policies::PolicyStatus;
use quota::Quotas;
use replicas::Replicas;
use runtime::Controller;
use stateful::StatefulSets;
use tokio::task::JoinSet;
use volumes::{ClaimProtection, Claims, EphemeralVolumes, HollowVolumes, VolumeProtection, Volumes};

use crate::api::Client;
use crate::api::server::Server;
use crate::events as event;

pub use nodes::{ClusterRange, ClusterRangeError};
pub use settings::{CLUSTER_CIDR, Settings};

/// Controllers at work. They end when the server does.
#[derive(Debug)]
pub struct Controllers {
    tasks: JoinSet<()>,
}

impl Controllers {
    /// Starts them on a server, as they are by default.
    pub fn start(server: &Server) -> Self {
        Self::start_with(server, &Settings::default())
    }

    /// Starts that alone on a server which kube-apiserver does itself: Events expire.
    pub fn expiry(server: &Server, settings: &Settings) -> Self {
        let mut start = Start {
            server,
            tasks: JoinSet::new(),
        };
        start.task("event-expiry", |client| expiry::run(client, settings.event_ttl));
        Self { tasks: start.tasks }
    }

    /// Starts them on a server.
    pub fn start_with(server: &Server, settings: &Settings) -> Self {
        let mut start = Start {
            server,
            tasks: JoinSet::new(),
        };
        start.controller("bootstrap-signer", |client, _| BootstrapSigner::new(client));
        let signer = server.signer().clone();
        start.controller("certificate-controller", |client, _| {
            SigningRequests::new(client, signer)
        });
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
        start.task("event-expiry", |client| expiry::run(client, settings.event_ttl));
        start.controller("hollow-provisioner", HollowVolumes::new);
        start.controller("horizontal-pod-autoscaler", Autoscalers::new);
        start.controller("job-controller", Jobs::new);
        start.controller_of(
            "node-controller",
            "node-ipam-controller",
            "cidrAllocator",
            |client, events| NodeRanges::new(client, events, settings),
        );
        start.controller_of(
            "node-controller",
            "node-lifecycle-controller",
            "node-controller",
            |client, events| Lifecycle::new(client, events, settings),
        );
        start.controller("persistent-volume-binder", Claims::new);
        start.controller("persistentvolume-controller", Volumes::new);
        start.task("pod-garbage-collector", |client| {
            nodes::collect_pods(client, settings.clone())
        });
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
        start.controller("serviceaccount-token-controller", |client, _| {
            TokenSecrets::new(client, server.issuer(), authority)
        });
        start.controller("service-cidrs-controller", Ranges::new);
        start.controller("service-ip-address-controller", |client, _| Given::new(client));
        start.controller("statefulset-controller", StatefulSets::new);
        start.controller_of(
            "node-controller",
            "taint-eviction-controller",
            "taint-eviction-controller",
            Evictions::new,
        );
        start.controller("ttl-controller", |client, _| Ttl::new(client));
        start.controller("token-cleaner", |client, _| TokenCleaner::new(client));
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
        self.controller_of(name, name, name, make);
    }

    /// One that shares its user with others, or has another name in its Events.
    fn controller_of<C: Controller>(
        &mut self,
        user: &str,
        name: &'static str,
        component: &'static str,
        make: impl FnOnce(Client, Recorder) -> Option<C>,
    ) {
        let (recorder, events) = Recorder::new(self.client(user), component);
        if let Some(controller) = make(self.client(user), recorder) {
            self.tasks.spawn(events);
            self.tasks.spawn(runtime::run(self.client(user), name, controller));
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
