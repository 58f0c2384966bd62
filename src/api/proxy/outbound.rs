//! Where this process connects to because an object says so: webhooks, conversion, aggregated APIs, kubelets, proxies. Who may write
//! such objects could otherwise reach what only this machine reaches (server-side request forgery).

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::OnceLock;

/// A rule of the whole process, which is given once, before anything is served.
static RULES: OnceLock<Outbound> = OnceLock::new();

/// Networks that may be connected to: those of `allowed` (all, if it is empty) without those of `denied`.
#[derive(Debug, Clone, Default)]
pub struct Outbound {
    /// All of them, if empty.
    pub allowed: Vec<Network>,
    /// Never.
    pub denied: Vec<Network>,
}

/// A network: `10.0.0.0/8`, `fd00::/8`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Outbound {
    /// Takes these rules for the process. Those that were given first stay.
    pub fn enforce(self) {
        let _ = RULES.set(self);
    }

    fn allows(&self, address: IpAddr) -> bool {
        // An address of IPv4 in the dress of IPv6 leads to the same place.
        let address = address.to_canonical();
        let is_in = |networks: &[Network]| networks.iter().any(|network| network.holds(address));
        (self.allowed.is_empty() || is_in(&self.allowed)) && !is_in(&self.denied)
    }
}

/// Whether an address may be connected to.
pub(super) fn allows(address: IpAddr) -> bool {
    RULES.get().is_none_or(|rules| rules.allows(address))
}

impl Network {
    fn holds(self, address: IpAddr) -> bool {
        let leading = |own: u128, other: u128, width: u32| {
            let rest = width.saturating_sub(self.bits.into());
            own.checked_shr(rest).unwrap_or(0) == other.checked_shr(rest).unwrap_or(0)
        };
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => leading(own.to_bits().into(), other.to_bits().into(), 32),
            (IpAddr::V6(own), IpAddr::V6(other)) => leading(own.to_bits(), other.to_bits(), 128),
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("{text} is no network such as 10.0.0.0/8, fd00::/8 or 192.0.2.1");
        let (address, bits) = text
            .split_once('/')
            .map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| refused())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(refused)?,
        };
        Ok(Network { address, bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Vec<Network> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn what_is_denied_is_denied_and_what_is_allowed_is_all_there_is() {
        let rules = |allowed: &[&str], denied: &[&str]| Outbound {
            allowed: networks(allowed),
            denied: networks(denied),
        };
        let allows = |rules: &Outbound, address: &str| rules.allows(address.parse().unwrap());
        let none = rules(&[], &[]);
        assert!(allows(&none, "127.0.0.1") && allows(&none, "::1"));
        let denied = rules(&[], &["169.254.0.0/16", "127.0.0.0/8", "::1", "fe80::/10"]);
        for address in [
            "169.254.169.254",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.1.1",
            "fe80::1",
        ] {
            assert!(!allows(&denied, address), "{address}");
        }
        for address in ["169.253.0.1", "10.0.0.1", "::2", "2001:db8::1", "128.0.0.1"] {
            assert!(allows(&denied, address), "{address}");
        }
        let some = rules(&["10.0.0.0/8", "fd00::/8"], &["10.1.0.0/16"]);
        assert!(allows(&some, "10.2.0.1") && allows(&some, "fd12::1"));
        assert!(!allows(&some, "10.1.0.1") && !allows(&some, "192.0.2.1") && !allows(&some, "::1"));
        let all = rules(&["0.0.0.0/0"], &[]);
        assert!(
            allows(&all, "203.0.113.9") && !allows(&all, "::1"),
            "each family is its own"
        );
    }

    #[test]
    fn networks_that_are_none_are_refused() {
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "::/129",
            "a",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "10.0.0.0/8/8",
        ] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
