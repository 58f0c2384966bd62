//! ServiceCIDRs: ready while they are not going, and kept while addresses are in them that no other range has.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{ADDRESSES, RANGES, RUN_MAX};
use crate::api::Client;
use crate::controllers::claim::gone_is_fine;
use crate::controllers::condition;
use crate::controllers::event::{Level, Recorder};
use crate::controllers::failure::Failure;
use crate::controllers::metadata::is_same;
use crate::controllers::queue::Done;
use crate::controllers::runtime::Controller;
use crate::resources::{self, ResourceRef};
use crate::store::{Range, Selection, View};
use crate::tree::Value;

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// When it is looked again for addresses in a range that is to go.
const AGAIN: Duration = Duration::from_secs(10);

pub(in crate::controllers) struct Ranges {
    client: Client,
    recorder: Recorder,
    ranges: ResourceRef,
}

impl Ranges {
    /// `None` if there is no such kind.
    pub(in crate::controllers) fn new(client: Client, recorder: Recorder) -> Option<Self> {
        let ranges = resources::stored(RANGES)?.into();
        Some(Self {
            client,
            recorder,
            ranges,
        })
    }

    /// Whether an address lies in one of these blocks and in none of another range.
    fn is_needed(&self, view: &Arc<View>, range: &Value) -> Result<bool, Failure> {
        let mut others = Vec::new();
        let mut listing = view.list(RANGES, Range::default(), &Selection::all());
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                let other = self.client.read(&self.ranges, &object)?;
                if !is_same(&other, range) && other["metadata"]["deletionTimestamp"].is_null() {
                    others.extend(blocks(&other));
                }
            }
        }
        let own = blocks(range);
        let mut listing = view.list(ADDRESSES, Range::default(), &Selection::all());
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                let Ok(address) = object.key().parse::<IpAddr>() else {
                    continue;
                };
                let is_in = |blocks: &[Block]| blocks.iter().any(|block| block.has(address));
                if is_in(&own) && !is_in(&others) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    async fn tell(&self, name: &str, range: &Value, ready: (&str, &str, &str)) -> Result<(), Failure> {
        let now_s = jiff::Timestamp::now().as_second();
        let (state, reason, message) = ready;
        let edit = |old: &Value| {
            let present = resources::condition(old, "Ready");
            let is_told = present.is_some_and(|it| it["status"] == state && it["reason"] == reason);
            (is_same(old, range) && !is_told).then(|| {
                let mut new = old.clone();
                condition::set(
                    &mut new["status"],
                    "Ready",
                    (state, reason),
                    message,
                    &Value::Null,
                    now_s,
                );
                new
            })
        };
        Ok(gone_is_fine(
            self.client.change(&self.ranges, Some("status"), name, edit).await,
        )?)
    }

    async fn set_finalizer(&self, name: &str, range: &Value, is_kept: bool) -> Result<(), Failure> {
        let edit = |old: &Value| {
            if !is_same(old, range) || old["metadata"]["deletionTimestamp"].is_null() != is_kept {
                return None;
            }
            let mut finalizers = old["metadata"]["finalizers"]
                .as_array()
                .map_or_else(Vec::new, |list| list.to_vec());
            finalizers.retain(|finalizer| finalizer != FINALIZER);
            if is_kept {
                finalizers.push(FINALIZER.into());
            }
            let mut new = old.clone();
            new["metadata"]["finalizers"] = finalizers.into();
            Some(new)
        };
        Ok(gone_is_fine(self.client.change(&self.ranges, None, name, edit).await)?)
    }
}

/// A block of addresses.
#[derive(Debug, Clone, Copy)]
struct Block {
    first: IpAddr,
    bits: u32,
}

impl Block {
    fn has(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let shift = 32_u32.saturating_sub(self.bits);
                u64::from(first.to_bits()) >> shift == u64::from(address.to_bits()) >> shift
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let shift = 128_u32.saturating_sub(self.bits);
                first.to_bits().checked_shr(shift) == address.to_bits().checked_shr(shift)
            }
            _ => false,
        }
    }
}

fn blocks(range: &Value) -> Vec<Block> {
    let texts = range["spec"]["cidrs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    texts
        .filter_map(|text| {
            let (first, bits) = text.split_once('/')?;
            Some(Block {
                first: first.parse().ok()?,
                bits: bits.parse().ok()?,
            })
        })
        .collect()
}

impl Controller for Ranges {
    fn resource(&self) -> &'static str {
        RANGES
    }

    async fn look(&self, name: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(RANGES, name)? else {
            return Ok(Done::Settled);
        };
        let range = self.client.read(&self.ranges, &object)?;
        let finalizers = range["metadata"]["finalizers"].as_array();
        let is_kept = finalizers.is_some_and(|list| list.iter().any(|finalizer| finalizer == FINALIZER));
        if range["metadata"]["deletionTimestamp"].is_null() {
            if !is_kept {
                self.set_finalizer(name, &range, true).await?;
            }
            let ready = ("True", "", "Kubernetes Service CIDR is ready");
            self.tell(name, &range, ready).await?;
        } else if is_kept {
            if self.is_needed(&view, &range)? {
                let text = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
                self.tell(name, &range, ("False", "Terminating", text)).await?;
                self.recorder
                    .tell(&range, Level::Warning, "KubernetesServiceCIDRError", text.to_owned());
                return Ok(Done::After(AGAIN));
            }
            self.set_finalizer(name, &range, false).await?;
        }
        Ok(Done::Settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    #[test]
    fn a_block_has_the_addresses_of_its_prefix() {
        let of = |text: &str| blocks(&json!({"spec": {"cidrs": [text]}}))[0];
        let has = |block: &str, address: &str| of(block).has(address.parse().unwrap());
        assert!(has("10.0.0.0/24", "10.0.0.200") && !has("10.0.0.0/24", "10.0.1.0"));
        assert!(has("0.0.0.0/0", "1.2.3.4") && has("::/0", "fd00::1"));
        assert!(has("fd00::/112", "fd00::ffff") && !has("fd00::/112", "fd00::1:0"));
        assert!(!has("fd00::/112", "10.0.0.1"));
    }
}
