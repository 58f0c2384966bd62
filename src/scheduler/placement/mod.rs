//! Where a Pod goes: a picture of the cluster, and decisions that are functions of it.
//!
//! Nothing here knows of the store, of time or of chance: the same picture and the same Pod give the same decision. What many Pods
//! have in common (labels, requests, affinity, tolerations: all that their template says) is kept once, as their [`Class`];
//! of a Pod there remains a few numbers, and of a node how many Pods of which class are on it. What a rule asks of "all Pods that this
//! selector selects" is asked of classes, and costs what there is of those.

mod affinity;
mod amounts;
mod class;
mod cluster;
mod cycle;
mod filter;
mod labels;
mod names;
mod node;
mod preempt;
#[cfg(test)]
mod properties;
mod resident;
mod score;
mod spread;
mod volumes;

pub(super) use class::Class;
pub(super) use cluster::{Cluster, Place, PodFacts, PodId};
pub(super) use cycle::{Decision, decide, may_suit};
pub(super) use filter::{Rule, Rules};
pub(super) use names::Name;
pub(super) use preempt::{Eviction, Preemption, preempt};
pub(crate) use resident::Resident;
