//! Groups the addresses of an `Endpoints` object by their ports.
//!
//! Addresses that have the same ports share a subset; ports that have the same addresses do, too. An object has 1,000 addresses at
//! most; of more, those that are ready come first.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::tree::{Value, json};

/// Addresses that an object has at most.
pub(super) const ADDRESSES_MAX: usize = 1000;

/// An address, by which it is sorted: its number, and its Pod's UID.
type Place = (Option<IpAddr>, String);

/// Addresses on their way into subsets.
#[derive(Debug, Default)]
pub(super) struct Subsets {
    addresses: BTreeMap<Place, Value>,
    /// Which addresses have each port, and whether they are ready; `None` for those without any port.
    by_port: BTreeMap<Option<Port>, BTreeMap<Place, bool>>,
}

/// A port, in the order in which they are listed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Port {
    name: String,
    number: i64,
    protocol: String,
    application: Option<String>,
}

impl Port {
    fn of(port: &Value) -> Self {
        let text = |field: &str| port[field].as_str().unwrap_or("").to_owned();
        Self {
            name: text("name"),
            number: port["port"].as_i64().unwrap_or(0),
            protocol: text("protocol"),
            application: port["appProtocol"].as_str().map(str::to_owned),
        }
    }

    fn value(&self) -> Value {
        let mut port = json!({"port": self.number, "protocol": self.protocol});
        if !self.name.is_empty() {
            port["name"] = self.name.as_str().into();
        }
        if let Some(application) = &self.application {
            port["appProtocol"] = application.as_str().into();
        }
        port
    }
}

impl Subsets {
    /// `port`: an endpoint's, `None` where there are none.
    pub(super) fn add(&mut self, address: &Value, port: Option<&Value>, is_ready: bool) {
        let ip = address["ip"].as_str().and_then(|ip| ip.parse().ok());
        let uid = address["targetRef"]["uid"].as_str().unwrap_or("").to_owned();
        let place = (ip, uid);
        self.addresses.entry(place.clone()).or_insert_with(|| address.clone());
        let of_port = self.by_port.entry(port.map(Port::of)).or_default();
        of_port.insert(place, is_ready);
    }

    /// The subsets, and whether addresses were left out.
    pub(super) fn pack(self) -> (Vec<Value>, bool) {
        let mut by_addresses: BTreeMap<BTreeMap<Place, bool>, Vec<Value>> = BTreeMap::new();
        for (port, addresses) in self.by_port {
            let ports = by_addresses.entry(addresses).or_default();
            ports.extend(port.iter().map(Port::value));
        }
        let count = |ready: bool| -> usize {
            let all = by_addresses.keys().flat_map(BTreeMap::values);
            all.filter(|is_ready| **is_ready == ready).count()
        };
        let (ready, unready) = (count(true), count(false));
        let is_over = ready + unready > ADDRESSES_MAX;
        // Of those that are too many each subset has its share.
        let mut room_ready = Room::new(ready, ADDRESSES_MAX);
        let mut room_unready = Room::new(unready, ADDRESSES_MAX.saturating_sub(ready));
        let subsets = by_addresses
            .into_iter()
            .map(|(places, ports)| {
                let list = |wanted: bool, room: &mut Room| -> Vec<Value> {
                    let of_kind = places.iter().filter(|(_, is_ready)| **is_ready == wanted);
                    let mut list: Vec<Value> = of_kind
                        .filter_map(|(place, _)| self.addresses.get(place).cloned())
                        .collect();
                    list.truncate(room.share(list.len()));
                    list
                };
                let mut subset = json!({});
                for (field, list) in [
                    ("addresses", list(true, &mut room_ready)),
                    ("notReadyAddresses", list(false, &mut room_unready)),
                ] {
                    if !list.is_empty() {
                        subset[field] = list.into();
                    }
                }
                if !ports.is_empty() {
                    subset["ports"] = ports.into();
                }
                subset
            })
            .filter(|subset| !subset["addresses"].is_null() || !subset["notReadyAddresses"].is_null())
            .collect();
        (subsets, is_over)
    }
}

/// Room for so many of so many.
struct Room {
    all: usize,
    max: usize,
    left: usize,
}

impl Room {
    fn new(all: usize, max: usize) -> Self {
        Self { all, max, left: max }
    }

    /// How many of a subset's there is room for.
    fn share(&mut self, count: usize) -> usize {
        let share = if self.all <= self.max {
            count
        } else {
            (count * self.max).div_ceil(self.all).min(self.left)
        };
        self.left -= share.min(self.left);
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> Value {
        json!({"ip": format!("10.0.{}.{}", number / 250, number % 250), "targetRef": {"uid": number.to_string()}})
    }

    #[test]
    fn ports_of_the_same_addresses_share_a_subset() {
        let mut subsets = Subsets::default();
        let (a, b, c) = (
            json!({"name": "a", "port": 1, "protocol": "TCP"}),
            json!({"name": "b", "port": 2, "protocol": "TCP"}),
            json!({"name": "c", "port": 3, "protocol": "TCP"}),
        );
        for number in [10, 2] {
            subsets.add(&address(number), Some(&a), true);
            subsets.add(&address(number), Some(&b), true);
        }
        subsets.add(&address(5), Some(&c), false);
        let (packed, is_over) = subsets.pack();
        assert!(!is_over && packed.len() == 2, "{packed:?}");
        assert_eq!(packed[0]["addresses"], json!([address(2), address(10)]));
        assert_eq!(packed[0]["ports"], json!([a, b]));
        assert_eq!(packed[1]["notReadyAddresses"], json!([address(5)]));
        assert!(packed[1]["addresses"].is_null());
    }

    #[test]
    fn of_too_many_the_ready_ones_stay() {
        let mut subsets = Subsets::default();
        for number in 0..1500 {
            subsets.add(&address(number), None, number < 900);
        }
        let (packed, is_over) = subsets.pack();
        assert!(is_over);
        assert_eq!(packed[0]["addresses"].as_array().unwrap().len(), 900);
        assert_eq!(packed[0]["notReadyAddresses"].as_array().unwrap().len(), 100);
        let mut subsets = Subsets::default();
        let port = |number: usize| json!({"name": "", "port": number, "protocol": "TCP"});
        for number in 0..1600 {
            subsets.add(&address(number), Some(&port(number % 2)), number < 1400);
        }
        let (packed, _) = subsets.pack();
        let counts: Vec<usize> = packed
            .iter()
            .map(|it| it["addresses"].as_array().unwrap().len())
            .collect();
        assert_eq!(counts, [500, 500]);
        assert!(packed.iter().all(|it| it["notReadyAddresses"].is_null()));
    }
}
