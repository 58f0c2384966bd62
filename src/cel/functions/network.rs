//! Addresses and networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::value::{Failure, Outcome, Val};
use super::{Price, Row};

pub(super) const ROWS: &[Row] = &[
    ("ip", false, Price::Tenths(1), |_, args| match args {
        [Val::String(text)] => Some(address(text).map(Val::Ip).map_err(Failure::told)),
        _ => None,
    }),
    ("isIP", false, Price::Tenths(1), |_, args| match args {
        [Val::String(text)] => Some(Ok(Val::Bool(address(text).is_ok()))),
        _ => None,
    }),
    ("ip.isCanonical", false, Price::Tenths(2), |_, args| match args {
        [Val::String(text)] => Some(
            address(text)
                .map(|address| Val::Bool(address.to_string() == **text))
                .map_err(Failure::told),
        ),
        _ => None,
    }),
    ("family", true, Price::One, |_, args| match args {
        [Val::Ip(address)] => Some(Ok(Val::Int(if address.is_ipv4() { 4 } else { 6 }))),
        _ => None,
    }),
    ("isUnspecified", true, Price::One, |_, args| {
        test(args, IpAddr::is_unspecified)
    }),
    ("isLoopback", true, Price::One, |_, args| {
        test(args, IpAddr::is_loopback)
    }),
    ("isLinkLocalMulticast", true, Price::One, |_, args| {
        test(args, |address| match address {
            IpAddr::V4(it) => it.octets()[..3] == [224, 0, 0],
            IpAddr::V6(it) => it.segments()[0] & 0xff0f == 0xff02,
        })
    }),
    ("isLinkLocalUnicast", true, Price::One, |_, args| {
        test(args, is_link_local)
    }),
    ("isGlobalUnicast", true, Price::One, |_, args| {
        test(args, |it| {
            let broadcast = *it == IpAddr::V4(Ipv4Addr::BROADCAST);
            !(broadcast || it.is_unspecified() || it.is_loopback() || it.is_multicast() || is_link_local(it))
        })
    }),
    ("cidr", false, Price::Tenths(1), |_, args| match args {
        [Val::String(text)] => Some(
            network(text)
                .map(|(it, bits)| Val::Cidr(it, bits))
                .map_err(Failure::told),
        ),
        _ => None,
    }),
    ("isCIDR", false, Price::Tenths(1), |_, args| match args {
        [Val::String(text)] => Some(Ok(Val::Bool(network(text).is_ok()))),
        _ => None,
    }),
    ("containsIP", true, Price::One, |_, args| {
        let (network, other) = match args {
            [Val::Cidr(network, bits), Val::Ip(other)] => ((*network, *bits), Ok(*other)),
            [Val::Cidr(network, bits), Val::String(text)] => ((*network, *bits), address(text)),
            _ => return None,
        };
        Some(
            other
                .map(|other| Val::Bool(masked(other, network.1) == masked(network.0, network.1)))
                .map_err(Failure::told),
        )
    }),
    ("containsCIDR", true, Price::One, |_, args| {
        let (own, other) = match args {
            [Val::Cidr(own, bits), Val::Cidr(other, other_bits)] => ((*own, *bits), Ok((*other, *other_bits))),
            [Val::Cidr(own, bits), Val::String(text)] => ((*own, *bits), network(text)),
            _ => return None,
        };
        Some(
            other
                .map(|(other, bits)| Val::Bool(own.1 <= bits && masked(other, own.1) == masked(own.0, own.1)))
                .map_err(Failure::told),
        )
    }),
    ("prefixLength", true, Price::One, |_, args| match args {
        [Val::Cidr(_, bits)] => Some(Ok(Val::Int(i64::from(*bits)))),
        _ => None,
    }),
    ("masked", true, Price::One, |_, args| match args {
        [Val::Cidr(network, bits)] => Some(Ok(Val::Cidr(masked(*network, *bits), *bits))),
        _ => None,
    }),
];

fn test<'a>(args: &[Val<'a>], is: impl Fn(&IpAddr) -> bool) -> Option<Outcome<'a>> {
    match args {
        [Val::Ip(address)] => Some(Ok(Val::Bool(is(address)))),
        _ => None,
    }
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => it.is_link_local(),
        IpAddr::V6(it) => it.segments()[0] & 0xffc0 == 0xfe80,
    }
}

/// The address without the bits that are not the network's.
fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(it) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            Ipv4Addr::from(u32::from(it) & mask).into()
        }
        IpAddr::V6(it) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            Ipv6Addr::from(u128::from(it) & mask).into()
        }
    }
}

fn address(text: &str) -> Result<IpAddr, String> {
    if text.contains('%') {
        return Err(format!("IP address \"{text}\" with zone value is not allowed"));
    }
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(it)) if it.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address \"{text}\" is not allowed"))
        }
        Ok(address) => Ok(address),
        Err(_) => Err(format!(
            "IP Address \"{text}\" parse error during conversion from string: ParseAddr(\"{text}\"): unable to parse IP"
        )),
    }
}

fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let wrong = || {
        format!(
            "network address parse error during conversion from string: network address parse error during conversion \
             from string: netip.ParsePrefix(\"{text}\"): invalid prefix"
        )
    };
    let (network, bits) = text.rsplit_once('/').ok_or_else(wrong)?;
    let digits =
        !bits.is_empty() && bits.bytes().all(|it| it.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
    let network = network.parse::<IpAddr>().map_err(|_| wrong())?;
    let bits: u8 = bits.parse().ok().filter(|_| digits).ok_or_else(wrong)?;
    match network {
        IpAddr::V6(it) if it.to_ipv4_mapped().is_some() => Err(format!(
            "network address parse error during conversion from string: IPv4-mapped IPv6 address \"{text}\" is not allowed"
        )),
        _ if bits > if network.is_ipv4() { 32 } else { 128 } => Err(wrong()),
        _ => Ok((network, bits)),
    }
}
