//! What a Pod's claims on volumes ask of its node.

use super::cluster::{Cluster, PodId};
use super::filter::Why;
use super::node::Node;

/// What the claims of one Pod need.
#[derive(Debug, Clone)]
pub(super) struct Needs<'a> {
    nothing: std::marker::PhantomData<&'a ()>,
}

impl Needs<'_> {
    pub(super) fn of(_: &Cluster, _: PodId) -> Result<Self, String> {
        Ok(Self {
            nothing: std::marker::PhantomData,
        })
    }

    pub(super) fn check(&self, _: &Cluster, _: &Node) -> Option<Why> {
        None
    }
}
