//! Rules of what is given: allocations, who holds them, and what drivers say of the devices.

use std::collections::HashSet;

use crate::tree::Value;

use super::claim_rules::{Requests, opaque, raw};
use super::names::{binding, pool, toleration};
use super::{allocated, device_id, is_too_long, refuse_repeated};
use crate::resources::FieldError;
use crate::resources::core::pods::placement::node_selector_term;
use crate::resources::lookup::{list, present};
use crate::resources::names::label;
use crate::resources::storage_rules::driver_name;
use crate::resources::validate::{At, capitalized, conditions};

/// Most holders of a claim, results and configurations of an allocation, conditions and addresses of a device.
const HOLDERS_MAX: usize = 256;
const RESULTS_MAX: usize = 32;
const CONFIGURATIONS_MAX: usize = 64;
const CONDITIONS_MAX: usize = 8;
const ADDRESSES_MAX: usize = 16;
/// Longest names of a network device, in bytes.
const INTERFACE_LEN_MAX: usize = 256;
const HARDWARE_LEN_MAX: usize = 128;

/// What is wrong with a change of a claim's status.
pub(super) fn status(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let root = At::root(new);
    let status = root.get("status");
    let holders = status.get("reservedFor");
    if !is_too_long(&holders, HOLDERS_MAX, errors) {
        for holder in holders.items() {
            for field in ["resource", "name", "uid"] {
                if holder.get(field).is_empty() {
                    errors.push(holder.get(field).required(""));
                }
            }
        }
        refuse_repeated(&holders, |holder| holder.get("uid").text(), errors);
    }
    check_devices(new, &status.get("devices"), errors);
    let allocation = status.get("allocation");
    if !holders.is_empty() {
        let before = list(old, "/status/reservedFor");
        let added = holders.items().any(|holder| !before.contains(holder.value));
        if !allocation.present() {
            errors.push(holders.forbidden("may not be specified when `allocated` is not set"));
        } else if present(new, "/metadata/deletionTimestamp") && added {
            let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.push(holders.forbidden(detail));
        }
    }
    // What was given stays as it was given.
    let before = old.pointer("/status/allocation").filter(|before| !before.is_null());
    let is_changed = allocation.present() && before.is_some_and(|before| before != allocation.value);
    if is_changed {
        let shown = capitalized(allocation.value);
        errors.push(FieldError::invalid(&allocation.field, &shown, "field is immutable"));
    } else if before.is_none() && allocation.present() {
        check_allocation(&allocation, &Requests::of(&root.get("spec.devices")), errors);
    }
}

fn check_allocation(allocation: &At<'_>, requests: &Requests<'_>, errors: &mut Vec<FieldError>) {
    let results = allocation.get("devices.results");
    if !is_too_long(&results, RESULTS_MAX, errors) {
        for result in results.items() {
            requests.check(&result.get("request"), errors);
            driver_name(&result.get("driver"), errors);
            pool(&result.get("pool"), errors);
            let device = result.get("device");
            device.check(label(device.text()), errors);
            binding(&result, errors);
            for tolerated in result.get("tolerations").items() {
                toleration(&tolerated, errors);
            }
            share(&result.get("shareID"), errors);
        }
    }
    let configurations = allocation.get("devices.config");
    if !is_too_long(&configurations, CONFIGURATIONS_MAX, errors) {
        for configuration in configurations.items() {
            let source = configuration.get("source");
            if source.is_empty() {
                errors.push(source.required(""));
            } else {
                source.one_of(&["FromClaim", "FromClass"], errors);
            }
            requests.check_list(&configuration.get("requests"), errors);
            opaque(&configuration, errors);
        }
    }
    for term in allocation.get("nodeSelector.nodeSelectorTerms").items() {
        node_selector_term(&term, true, errors);
    }
}

/// A share of a device is told by a UUID.
fn share(id: &At<'_>, errors: &mut Vec<FieldError>) {
    if !id.present() {
        return;
    }
    let text = id.text();
    if uuid::Uuid::try_parse(text).is_err() {
        let fault = format!("error validating uid: invalid UUID length: {}", text.len());
        errors.push(id.invalid(fault));
    } else if text.len() != 36 || text != text.to_lowercase() {
        errors.push(id.invalid(
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal \
             characters",
        ));
    }
}

fn check_devices(claim: &Value, devices: &At<'_>, errors: &mut Vec<FieldError>) {
    let given = allocated(claim);
    let mut known = HashSet::new();
    for device in devices.items() {
        driver_name(&device.get("driver"), errors);
        pool(&device.get("pool"), errors);
        let name = device.get("device");
        name.check(label(name.text()), errors);
        share(&device.get("shareID"), errors);
        let id = device_id(device.value);
        let shown = id.join("/");
        let shown = shown.trim_end_matches('/');
        if !given.contains(&id) {
            let detail = "must be an allocated device in the claim";
            errors.push(FieldError::invalid_shown(&device.field, shown, detail));
        }
        if !known.insert(id) {
            errors.push(FieldError::duplicate_shown(&device.field, shown));
        }
        let all = device.get("conditions");
        is_too_long(&all, CONDITIONS_MAX, errors);
        conditions(&all, errors);
        if device.get("data").present() {
            raw(&device.get("data"), errors);
        }
        let network = device.get("networkData");
        for (field, len_max) in [
            ("interfaceName", INTERFACE_LEN_MAX),
            ("hardwareAddress", HARDWARE_LEN_MAX),
        ] {
            let field = network.get(field);
            if field.text().len() > len_max {
                errors.push(FieldError::too_long(&field.field, len_max));
            }
        }
        let addresses = network.get("ips");
        if !is_too_long(&addresses, ADDRESSES_MAX, errors) {
            for address in addresses.items() {
                if !is_interface_address(address.text()) {
                    let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
                    errors.push(address.invalid(detail));
                }
            }
            refuse_repeated(&addresses, At::text, errors);
        }
    }
}

/// An address with the length of its network's prefix.
fn is_interface_address(text: &str) -> bool {
    let parsed = text.split_once('/').and_then(|(address, prefix)| {
        let address: std::net::IpAddr = address.parse().ok()?;
        let prefix: u8 = prefix.parse().ok()?;
        Some(prefix <= if address.is_ipv4() { 32 } else { 128 })
    });
    parsed == Some(true)
}
