//! Which range of addresses is whose: numbers of ranges, given and taken back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How long the prefix of a node's range is.
const NODE_PREFIX_V4: u8 = 24;
const NODE_PREFIX_V6: u8 = 64;
/// How much longer a node's prefix may be than the cluster's: 65,536 ranges.
const BITS_MAX: u8 = 16;

/// The range of addresses that nodes have theirs of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterRange {
    /// The first address, as a number.
    first: u128,
    prefix: u8,
    is_v4: bool,
}

/// Why a range cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?}: {reason}")]
pub struct ClusterRangeError {
    text: String,
    reason: String,
}

impl ClusterRange {
    /// One range, or one of each family behind one another with a comma.
    pub(in crate::controllers) fn list(text: &str) -> Result<Vec<Self>, ClusterRangeError> {
        let ranges: Vec<Self> = text.split(',').map(Self::of).collect::<Result<_, _>>()?;
        let families = ranges.iter().filter(|range| range.is_v4).count();
        if ranges.len() > 2 || ranges.len() == 2 && families != 1 {
            return Err(ClusterRangeError {
                text: text.to_owned(),
                reason: "one range, or one of IPv4 and one of IPv6".to_owned(),
            });
        }
        Ok(ranges)
    }

    fn of(text: &str) -> Result<Self, ClusterRangeError> {
        let failed = |reason: &str| ClusterRangeError {
            text: text.to_owned(),
            reason: reason.to_owned(),
        };
        let (address, prefix) = text
            .trim()
            .split_once('/')
            .ok_or_else(|| failed("not a range such as 10.128.0.0/9"))?;
        let address: IpAddr = address.parse().map_err(|_| failed("not an address before the slash"))?;
        let prefix: u8 = prefix.parse().map_err(|_| failed("not a number behind the slash"))?;
        let (first, bits, is_v4) = match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()), 32, true),
            IpAddr::V6(address) => (address.to_bits(), 128, false),
        };
        let range = Self { first, prefix, is_v4 };
        if prefix > bits {
            return Err(failed("the number behind the slash is too large"));
        }
        if prefix > range.node_prefix() {
            return Err(failed(&format!(
                "smaller than the range of one node, which is a /{}",
                range.node_prefix()
            )));
        }
        if range.node_prefix() - prefix > BITS_MAX {
            return Err(failed(&format!(
                "too large: at least a /{}",
                range.node_prefix() - BITS_MAX
            )));
        }
        // Shifts by all bits are none.
        let host_bits = u32::from(bits - prefix);
        let below = if host_bits == 128 {
            u128::MAX
        } else {
            (1 << host_bits) - 1
        };
        if first & below != 0 {
            return Err(failed("the address has bits behind the prefix"));
        }
        Ok(range)
    }

    fn node_prefix(self) -> u8 {
        if self.is_v4 { NODE_PREFIX_V4 } else { NODE_PREFIX_V6 }
    }

    fn node_bits(self) -> u32 {
        u32::from(if self.is_v4 {
            32 - NODE_PREFIX_V4
        } else {
            128 - NODE_PREFIX_V6
        })
    }

    fn count(self) -> u32 {
        1 << (self.node_prefix() - self.prefix)
    }

    fn text(self, number: u32) -> String {
        let first = self.first + (u128::from(number) << self.node_bits());
        let address = match u32::try_from(first) {
            Ok(first) if self.is_v4 => IpAddr::V4(Ipv4Addr::from_bits(first)),
            _ => IpAddr::V6(Ipv6Addr::from_bits(first)),
        };
        format!("{address}/{}", self.node_prefix())
    }

    /// The numbers of this range that lie in another one, or it in one of them.
    fn numbers(self, text: &str) -> Option<std::ops::RangeInclusive<u32>> {
        let (address, prefix) = text.split_once('/')?;
        let (address, bits) = match address.parse().ok()? {
            IpAddr::V4(address) if self.is_v4 => (u128::from(address.to_bits()), 32),
            IpAddr::V6(address) if !self.is_v4 => (address.to_bits(), 128),
            _ => return None,
        };
        let prefix: u32 = prefix.parse().ok().filter(|prefix| *prefix <= bits)?;
        let last = address.checked_add(1_u128.checked_shl(bits - prefix)?.checked_sub(1)?)?;
        let end = self.first + (u128::from(self.count()) << self.node_bits()) - 1;
        if last < self.first || address > end {
            return None;
        }
        let number = |address: u128| u32::try_from((address - self.first) >> self.node_bits()).unwrap_or(0);
        Some(number(address.max(self.first))..=number(last.min(end)))
    }
}

/// Which numbers of one range are taken: a bit each, 8 KiB at most.
#[derive(Debug)]
pub(super) struct Numbering {
    range: ClusterRange,
    taken: Vec<u64>,
    /// Where to look for the next free one: those that were given back rest.
    next: u32,
}

impl Numbering {
    pub(super) fn new(range: ClusterRange) -> Self {
        Self {
            range,
            taken: vec![0; range.count().div_ceil(64) as usize],
            next: 0,
        }
    }

    fn is_taken(&self, number: u32) -> bool {
        self.taken[(number / 64) as usize] >> (number % 64) & 1 == 1
    }

    /// Takes the next free range; `None`: there is none.
    pub(super) fn take(&mut self) -> Option<String> {
        let count = self.range.count();
        let number = (0..count)
            .map(|step| (self.next + step) % count)
            .find(|number| !self.is_taken(*number))?;
        self.next = (number + 1) % count;
        let text = self.range.text(number);
        self.note(&text, true);
        Some(text)
    }

    /// Notes that a range is somebody's, or nobody's. One that lies elsewhere is passed over.
    pub(super) fn note(&mut self, text: &str, is_taken: bool) {
        for number in self.range.numbers(text).into_iter().flatten() {
            let (word, bit) = (&mut self.taken[(number / 64) as usize], 1 << (number % 64));
            *word = if is_taken { *word | bit } else { *word & !bit };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbering(text: &str) -> Numbering {
        Numbering::new(ClusterRange::of(text).unwrap())
    }

    #[test]
    fn ranges_are_given_once_and_rest_after_they_were_given_back() {
        let mut ranges = numbering("10.1.0.0/22");
        ranges.note("10.1.1.0/24", true);
        ranges.note("192.168.0.0/16", true);
        ranges.note("fd00::/64", true);
        assert_eq!(ranges.take().as_deref(), Some("10.1.0.0/24"));
        assert_eq!(ranges.take().as_deref(), Some("10.1.2.0/24"));
        ranges.note("10.1.0.0/24", false);
        assert_eq!(ranges.take().as_deref(), Some("10.1.3.0/24"));
        assert_eq!(ranges.take().as_deref(), Some("10.1.0.0/24"));
        assert_eq!(ranges.take(), None);
    }

    #[test]
    fn larger_and_smaller_ranges_of_nodes_take_all_that_they_touch() {
        let mut ranges = numbering("10.1.0.0/22");
        ranges.note("10.1.0.0/23", true);
        ranges.note("10.1.2.128/25", true);
        assert_eq!(ranges.take().as_deref(), Some("10.1.3.0/24"));
        assert_eq!(ranges.take(), None);
        let mut ranges = numbering("10.1.0.0/24");
        ranges.note("0.0.0.0/0", true);
        assert_eq!(ranges.take(), None);
    }

    #[test]
    fn both_families_are_counted_in() {
        let mut six = numbering("fd00:1::/48");
        assert_eq!(
            (six.take().as_deref(), six.take().as_deref()),
            (Some("fd00:1::/64"), Some("fd00:1:0:1::/64"))
        );
        assert_eq!(ClusterRange::of("10.128.0.0/9").unwrap().count(), 32_768);
    }

    #[test]
    fn what_is_no_range_of_a_cluster_is_refused() {
        for (text, why) in [
            ("10.0.0.0", "not a range"),
            ("x/8", "not an address"),
            ("10.0.0.0/x", "not a number"),
            ("10.0.0.0/33", "too large"),
            ("10.0.0.0/25", "smaller than the range of one node"),
            ("10.0.0.0/7", "too large: at least a /8"),
            ("10.0.0.1/16", "bits behind the prefix"),
            ("::/0", "too large: at least a /48"),
            ("10.1.0.0/16,10.2.0.0/16", "one of IPv4 and one of IPv6"),
            ("", "not a range"),
        ] {
            let error = ClusterRange::list(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert_eq!(ClusterRange::list("10.1.0.0/16, fd00::/48").unwrap().len(), 2);
    }
}
