//! Addresses of nodes and of the Pods on them.

use std::net::Ipv4Addr;

/// Where addresses of nodes begin: a range for private use (RFC 1918) of a million.
const NODES: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 0);
/// Where Pods have their addresses whose node was given no range: a shared range (RFC 6598) of 16,384 times 256.
const UNASSIGNED: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 0);
/// Addresses of Pods that a node has.
const POOL: usize = 256;

/// The address of a node, by its number from 1 on.
pub(super) fn of_node(number: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(NODES.to_bits() + 256 + number as u32)
}

/// The Pods' range of a node that was given none.
pub(super) fn unassigned(number: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(UNASSIGNED.to_bits() + ((number as u32 % 16_384) << 8))
}

/// The first address of a range such as `10.128.3.0/24`.
pub(super) fn first_of(range: &str) -> Option<Ipv4Addr> {
    range.split_once('/')?.0.parse().ok()
}

/// The addresses of one node's Pods: 256 bits. The next one is taken first, so that one that was given back rests for a while.
#[derive(Debug, Default)]
pub(super) struct Pool {
    taken: [u64; POOL / 64],
    last: u8,
}

impl Pool {
    /// Takes a free address: its place in the node's range. The first and the last of a range are nobody's. When all are taken, one is
    /// given twice.
    pub(super) fn take(&mut self) -> u8 {
        for _ in 0..POOL {
            self.last = self.last.wrapping_add(1);
            if (2..=254).contains(&self.last) && !self.is_taken(self.last) {
                break;
            }
        }
        let place = self.last.clamp(2, 254);
        self.set(place, true);
        place
    }

    /// Notes that an address of the range that begins at `first` is in use, or no more.
    pub(super) fn note(&mut self, first: Ipv4Addr, address: &str, is_taken: bool) {
        let place = address.parse().ok().and_then(|address: Ipv4Addr| {
            let place = address.to_bits().checked_sub(first.to_bits())?;
            u8::try_from(place).ok()
        });
        if let Some(place) = place {
            self.set(place, is_taken);
        }
    }

    fn is_taken(&self, place: u8) -> bool {
        self.taken[usize::from(place / 64)] >> (place % 64) & 1 == 1
    }

    fn set(&mut self, place: u8, is_taken: bool) {
        let bit = 1 << (place % 64);
        let word = &mut self.taken[usize::from(place / 64)];
        *word = if is_taken { *word | bit } else { *word & !bit };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_given_once_and_rests_after_it_was_given_back() {
        let (mut pool, first) = (Pool::default(), Ipv4Addr::new(10, 128, 3, 0));
        pool.note(first, "10.128.3.3", true);
        pool.note(first, "10.128.4.4", true);
        assert_eq!([pool.take(), pool.take(), pool.take()], [2, 4, 5]);
        pool.note(first, "10.128.3.4", false);
        let mut all: Vec<u8> = (0..249).map(|_| pool.take()).collect();
        assert_eq!((all[0], all[248]), (6, 254));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 249);
        assert_eq!(pool.take(), 4, "the one that was given back");
    }

    #[test]
    fn ranges_of_nodes_do_not_overlap() {
        assert_eq!(of_node(1).to_string(), "172.16.1.1");
        assert_eq!(of_node(50_000).to_string(), "172.16.196.80");
        assert_eq!(unassigned(2).to_string(), "100.64.2.0");
        assert_eq!(first_of("10.128.3.0/24"), Some(Ipv4Addr::new(10, 128, 3, 0)));
    }
}
