//! What can be chosen about controllers.

use std::time::Duration;

use super::nodes::{ClusterRange, ClusterRangeError};

/// Where nodes have the ranges of their Pods unless told otherwise: 32,768 ranges of 256 addresses.
pub const CLUSTER_CIDR: &str = "10.128.0.0/9";

/// What can be chosen about controllers; by default what kube-controller-manager has, and ranges of addresses for nodes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long a node may be silent before it counts as unreachable.
    pub node_monitor_grace: Duration,
    /// How long a node that has never said whether it is ready may take.
    pub node_startup_grace: Duration,
    /// How often nodes that are not ready are looked at.
    pub node_monitor_period: Duration,
    /// Of what nodes get ranges of addresses for their Pods: one of IPv4, one of IPv6, or one of each; empty: they get none.
    pub cluster_ranges: Vec<ClusterRange>,
    /// Pods that are over and may stay.
    pub pods_over_max: usize,
    /// How often Pods are looked through for what nobody takes away.
    pub pod_collection_period: Duration,
    /// How long a node must be gone before its Pods go.
    pub orphan_quarantine: Duration,
    /// How long Events are kept after they were written last.
    pub event_ttl: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            node_monitor_grace: Duration::from_secs(50),
            node_startup_grace: Duration::from_mins(1),
            node_monitor_period: Duration::from_secs(5),
            cluster_ranges: ClusterRange::list(CLUSTER_CIDR).unwrap_or_default(),
            pods_over_max: 12_500,
            pod_collection_period: Duration::from_secs(20),
            orphan_quarantine: Duration::from_secs(40),
            event_ttl: Duration::from_hours(1),
        }
    }
}

impl Settings {
    /// Ranges as `--cluster-cidr` has them: `10.128.0.0/9`, or with one of IPv6 behind a comma.
    ///
    /// # Errors
    /// When one cannot be used, and why.
    pub fn cluster_ranges(text: &str) -> Result<Vec<ClusterRange>, ClusterRangeError> {
        ClusterRange::list(text)
    }
}
