//! Cluster addresses and node ports of Services: which are taken, and giving out free ones.

use std::net::Ipv4Addr;

use crate::tree::{Value, json};

use super::edit::{items_mut, set_at};
use super::lookup::{boolean, integer, list, text, texts};
use super::{FieldError, Refusal};

/// Addresses and ports in use; 9 KiB, whatever the number of Services.
///
/// Filled by [`Allocations::note`] for every stored Service at start; afterwards writes of Services keep it, under one
/// lock: [`Allocations::allocate`] before the write, [`Allocations::release`] with the object that is no more (the old one
/// of an update, the last one of a delete; the new one of a write that failed).
#[derive(Debug, Clone)]
pub struct Allocations {
    addresses: Used,
    ports: Used,
    /// Where the search for a free one begins, so that neither is given out again soon.
    next: u32,
}

/// First address of the range and how many it has: 10.96.0.0/16.
const ADDRESSES: (u32, u32) = (0x0a60_0000, 1 << 16);
/// First node port and how many there are: 30000 to 32767.
const PORTS: (u32, u32) = (30_000, 2_768);
/// The address of the Service `default/kubernetes`.
pub const KUBERNETES_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

impl Default for Allocations {
    fn default() -> Self {
        let mut addresses = Used::new(ADDRESSES);
        // The network's own address and its broadcast address.
        addresses.take(ADDRESSES.0);
        addresses.take(ADDRESSES.0 + ADDRESSES.1 - 1);
        addresses.take(KUBERNETES_ADDRESS.to_bits());
        Allocations {
            addresses,
            ports: Used::new(PORTS),
            next: 0,
        }
    }
}

impl Allocations {
    /// Takes note of a stored Service.
    pub fn note(&mut self, service: &Value) {
        for address in addresses_of(service) {
            self.addresses.take(address.to_bits());
        }
        for port in ports_of(service) {
            self.ports.take(port);
        }
    }

    /// Sets free what a Service had that `kept` (its new version, if there is one) has no more.
    pub fn release(&mut self, service: &Value, kept: Option<&Value>) {
        let keeps = |address: &Ipv4Addr| kept.is_some_and(|kept| addresses_of(kept).any(|other| other == *address));
        for address in addresses_of(service).filter(|address| !keeps(address)) {
            if address != KUBERNETES_ADDRESS {
                self.addresses.free(address.to_bits());
            }
        }
        let keeps = |port: &u32| kept.is_some_and(|kept| ports_of(kept).any(|other| other == *port));
        for port in ports_of(service).filter(|port| !keeps(port)) {
            self.ports.free(port);
        }
    }

    /// Gives a new or changed Service (after [`super::prepare_create`] or [`super::prepare_update`]) the addresses and node
    /// ports that its type needs and it does not name, and takes those it names. On an error nothing is taken.
    ///
    /// With `dry_run` the Service gets its values, but nothing is taken.
    pub fn allocate(&mut self, service: &mut Value, old: Option<&Value>, dry_run: bool) -> Result<(), Refusal> {
        let before = self.clone();
        let result = self.allocate_all(service, old);
        if result.is_err() || dry_run {
            *self = before;
        }
        result
    }

    fn allocate_all(&mut self, service: &mut Value, old: Option<&Value>) -> Result<(), Refusal> {
        let kind = text(service, "/spec/type").to_owned();
        if kind == "ExternalName" {
            return Ok(());
        }
        let owned: Vec<Ipv4Addr> = old.into_iter().flat_map(addresses_of).collect();
        match text(service, "/spec/clusterIP").to_owned().as_str() {
            "None" => {}
            "" => {
                let address = Ipv4Addr::from_bits(self.free_address()?).to_string();
                set_at(service, "/spec", "clusterIP", address.as_str());
                set_at(service, "/spec", "clusterIPs", json!([address]));
            }
            wanted => {
                if let Ok(address) = wanted.parse::<Ipv4Addr>()
                    && !owned.contains(&address)
                {
                    self.take_address(address, wanted)?;
                }
            }
        }
        let allocates = kind == "NodePort"
            || (kind == "LoadBalancer" && boolean(service, "/spec/allocateLoadBalancerNodePorts") != Some(false));
        if !matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
            return Ok(());
        }
        let owned: Vec<u32> = old.into_iter().flat_map(ports_of).collect();
        // The same number may serve two protocols of one Service.
        let mut given: Vec<(i64, u32)> = Vec::new();
        for (i, port) in list(service, "/spec/ports").to_vec().iter().enumerate() {
            let number = integer(port, "/port").unwrap_or(0);
            let wanted = integer(port, "/nodePort").filter(|&wanted| wanted > 0);
            let node_port = match wanted.map(|wanted| u32::try_from(wanted).unwrap_or(u32::MAX)) {
                Some(wanted) => {
                    if !owned.contains(&wanted) && !given.iter().any(|(_, port)| *port == wanted) {
                        self.take_port(wanted, i)?;
                    }
                    wanted
                }
                None if !allocates => continue,
                None => match given.iter().find(|(port, _)| *port == number) {
                    Some((_, node_port)) => *node_port,
                    None => self.free_port()?,
                },
            };
            given.push((number, node_port));
            if let Some(port) = items_mut(service, "/spec/ports").nth(i) {
                set_at(port, "", "nodePort", node_port);
            }
        }
        let local = kind == "LoadBalancer" && text(service, "/spec/externalTrafficPolicy") == "Local";
        if local && integer(service, "/spec/healthCheckNodePort").unwrap_or(0) == 0 {
            let port = self.free_port()?;
            set_at(service, "/spec", "healthCheckNodePort", port);
        }
        Ok(())
    }

    fn free_address(&mut self) -> Result<u32, Refusal> {
        self.next = self.next.wrapping_add(2_654_435_769);
        self.addresses.take_any(self.next).ok_or_else(|| full("cluster IP"))
    }

    fn free_port(&mut self) -> Result<u32, Refusal> {
        self.next = self.next.wrapping_add(2_654_435_769);
        self.ports.take_any(self.next).ok_or_else(|| full("node port"))
    }

    fn take_address(&mut self, address: Ipv4Addr, wanted: &str) -> Result<(), Refusal> {
        let what = match self.addresses.take(address.to_bits()) {
            Take::Taken => return Ok(()),
            Take::WasTaken => format!("failed to allocate IP {wanted}: provided IP is already allocated"),
            Take::OutOfRange => {
                format!("failed to allocate IP {wanted}: the provided network does not match the current range")
            }
        };
        Err(FieldError::invalid("spec.clusterIPs", &json!([wanted]), what).into())
    }

    fn take_port(&mut self, port: u32, index: usize) -> Result<(), Refusal> {
        let what = match self.ports.take(port) {
            Take::Taken => return Ok(()),
            Take::WasTaken => "provided port is already allocated",
            Take::OutOfRange => "provided port is not in the valid range. The range of valid ports is 30000-32767",
        };
        Err(FieldError::invalid(format!("spec.ports[{index}].nodePort"), &port.into(), what).into())
    }
}

fn full(what: &str) -> Refusal {
    Refusal::BadRequest(format!("no free {what} is left in the range"))
}

fn addresses_of(service: &Value) -> impl Iterator<Item = Ipv4Addr> {
    texts(service, "/spec/clusterIPs")
        .into_iter()
        .filter_map(|address| address.parse().ok())
}

fn ports_of(service: &Value) -> impl Iterator<Item = u32> {
    let ports = list(service, "/spec/ports")
        .iter()
        .filter_map(|port| integer(port, "/nodePort"));
    ports
        .chain(integer(service, "/spec/healthCheckNodePort"))
        .filter_map(|port| u32::try_from(port).ok())
}

/// A bit for each number of a range.
#[derive(Debug, Clone)]
struct Used {
    first: u32,
    count: u32,
    words: Vec<u64>,
}

enum Take {
    Taken,
    WasTaken,
    OutOfRange,
}

impl Used {
    fn new((first, count): (u32, u32)) -> Used {
        Used {
            first,
            count,
            words: vec![0; count.div_ceil(64) as usize],
        }
    }

    fn bit(&mut self, number: u32) -> Option<(&mut u64, u64)> {
        let index = number.checked_sub(self.first).filter(|&index| index < self.count)?;
        Some((self.words.get_mut(index as usize / 64)?, 1 << (index % 64)))
    }

    fn take(&mut self, number: u32) -> Take {
        match self.bit(number) {
            None => Take::OutOfRange,
            Some((word, bit)) if *word & bit != 0 => Take::WasTaken,
            Some((word, bit)) => {
                *word |= bit;
                Take::Taken
            }
        }
    }

    fn free(&mut self, number: u32) {
        if let Some((word, bit)) = self.bit(number) {
            *word &= !bit;
        }
    }

    /// Takes the first free number from `start` (modulo the range) on.
    fn take_any(&mut self, start: u32) -> Option<u32> {
        for step in 0..self.count {
            let number = self.first + (start % self.count + step) % self.count;
            if matches!(self.take(number), Take::Taken) {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(kind: &str, ports: &Value) -> Value {
        json!({"spec": {"type": kind, "ports": ports}})
    }

    #[test]
    fn a_service_gets_an_address_and_each_port_a_node_port() {
        let mut allocations = Allocations::default();
        let mut a = service(
            "NodePort",
            &json!([{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}, {"port": 80}]),
        );
        allocations.allocate(&mut a, None, false).unwrap();
        assert_eq!(text(&a, "/spec/clusterIP"), text(&a, "/spec/clusterIPs/0"));
        assert!(text(&a, "/spec/clusterIP").starts_with("10.96."));
        let port = |i: usize| integer(&a, &format!("/spec/ports/{i}/nodePort")).unwrap();
        assert_eq!(port(0), port(1), "one number serves both protocols");
        assert_ne!(port(0), port(2));
        assert!((30_000..32_768).contains(&port(2)));
    }

    #[test]
    fn what_is_taken_is_refused_until_it_is_released() {
        let mut allocations = Allocations::default();
        let wanted = || {
            let mut wanted = service("NodePort", &json!([{"port": 80, "nodePort": 31234}]));
            wanted["spec"]["clusterIP"] = "10.96.7.7".into();
            wanted["spec"]["clusterIPs"] = json!(["10.96.7.7"]);
            wanted
        };
        let mut dry = wanted();
        allocations.allocate(&mut dry, None, true).unwrap();
        let mut first = wanted();
        allocations.allocate(&mut first, None, false).unwrap();
        assert!(matches!(
            allocations.allocate(&mut wanted(), None, false),
            Err(Refusal::Invalid(_))
        ));
        let mut changed = first.clone();
        allocations
            .allocate(&mut changed, Some(&first), false)
            .expect("its own are its own");
        allocations.release(&first, Some(&changed));
        assert!(
            allocations.allocate(&mut wanted(), None, false).is_err(),
            "kept by the new version"
        );
        allocations.release(&changed, None);
        allocations.allocate(&mut wanted(), None, false).unwrap();
        let mut far = service("NodePort", &json!([{"port": 80, "nodePort": 80}]));
        assert!(allocations.allocate(&mut far, None, false).is_err());
    }

    #[test]
    fn every_port_is_given_out_once_and_then_there_is_none() {
        let mut allocations = Allocations::default();
        let mut ports: Vec<i64> = Vec::new();
        for _ in 0..PORTS.1 {
            let mut one = service("NodePort", &json!([{"port": 80}]));
            allocations.allocate(&mut one, None, false).unwrap();
            ports.push(integer(&one, "/spec/ports/0/nodePort").unwrap());
        }
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), PORTS.1 as usize);
        assert!(
            allocations
                .allocate(&mut service("NodePort", &json!([{"port": 80}])), None, false)
                .is_err()
        );
    }
}
