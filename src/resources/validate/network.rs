//! What is wrong with addresses, ranges of them, and names of ports.

use std::net::IpAddr;

/// What is wrong with an IP address.
pub(in crate::resources) fn ip(text: &str) -> Option<String> {
    if text.parse::<IpAddr>().is_ok() {
        return None;
    }
    let numbers = text.split('.').collect::<Vec<_>>();
    let leading = numbers.len() == 4
        && numbers
            .iter()
            .all(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        && numbers.iter().any(|number| number.len() > 1 && number.starts_with('0'));
    Some(if leading {
        "must not have leading 0s".to_owned()
    } else {
        "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()
    })
}

/// What is wrong with an address range.
pub(in crate::resources) fn cidr(text: &str) -> Option<String> {
    let parsed = text.split_once('/').and_then(|(address, prefix)| {
        let address = address.parse::<IpAddr>().ok()?;
        let prefix = prefix.parse::<u32>().ok()?;
        let (bits, len) = match address {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
            IpAddr::V6(v6) => (v6.to_bits(), 128),
        };
        (prefix <= len).then_some((bits, prefix))
    });
    match parsed {
        None => Some("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()),
        Some((bits, prefix)) if bits.checked_shl(prefix).unwrap_or(0) != 0 => {
            Some("must not have bits set beyond the prefix length".to_owned())
        }
        Some(_) => None,
    }
}

/// What is wrong with the name of a port (RFC 6335, small letters only).
pub(in crate::resources) fn port_name(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut unless = |fine: bool, what: &str| {
        if !fine {
            wrong.push(what.to_owned());
        }
    };
    unless(name.len() <= 15, "must be no more than 15 characters");
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    unless(
        name.bytes().all(known),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    unless(
        name.bytes().any(|byte| byte.is_ascii_lowercase()),
        "must contain at least one letter (a-z)",
    );
    unless(!name.contains("--"), "must not contain consecutive hyphens");
    unless(
        !name.starts_with('-') && !name.ends_with('-'),
        "must not begin or end with a hyphen",
    );
    wrong
}
