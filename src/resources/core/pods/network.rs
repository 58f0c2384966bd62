//! Rules of a Pod's names: DNS, its host name, names of other hosts.

use std::collections::HashSet;

use crate::tree::Value;

use super::rules::Whole;
use crate::resources::FieldError;
use crate::resources::lookup::{boolean, count, text, texts};
use crate::resources::names::{is_underscored_subdomain, qualified_name, subdomain};
use crate::resources::validate::{self, At};

pub(super) fn check_network(whole: &Whole<'_>, errors: &mut Vec<FieldError>) {
    let Some(fields) = whole.spec.value.as_object() else {
        return;
    };
    let spec = &whole.spec;
    let unserved = text(spec.value, "/dnsPolicy") == "None";
    if unserved || fields.contains_key("dnsConfig") {
        check_dns(&spec.get("dnsConfig"), unserved, errors);
    }
    if fields.contains_key("hostAliases") {
        for alias in spec.get("hostAliases").items() {
            let ip = alias.get("ip");
            errors.extend(validate::ip(ip.text()).map(|what| FieldError::invalid_text(&ip.field, ip.text(), what)));
            for name in alias.get("hostnames").items() {
                name.check(subdomain(name.text()), errors);
            }
        }
    }
    if fields.contains_key("schedulingGates") {
        let mut seen: HashSet<&str> = HashSet::new();
        for gate in spec.get("schedulingGates").items() {
            let name = text(gate.value, "/name");
            let wrong = qualified_name(name).into_iter();
            errors.extend(wrong.map(|what| FieldError::invalid_text(&gate.field, name, what)));
            if !seen.insert(name) {
                errors.push(FieldError::duplicate(&gate.field, &name.into()));
            }
        }
    }
    if fields.contains_key("hostnameOverride") {
        check_host_name(spec, errors);
    }
}

/// Longest name of a host, in bytes: Linux' own limit.
const HOST_NAME_LEN_MAX: usize = 64;

fn check_host_name(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    let name = spec.get("hostnameOverride");
    if name.text().len() > HOST_NAME_LEN_MAX {
        errors.push(FieldError::too_long(&name.field, HOST_NAME_LEN_MAX));
    }
    if boolean(spec.value, "/setHostnameAsFQDN") == Some(true) {
        let detail = "may not be specified when `setHostnameAsFQDN` is true";
        errors.push(name.invalid(detail));
    }
    if boolean(spec.value, "/hostNetwork") == Some(true) {
        errors.push(name.invalid("may not be specified when `hostNetwork` is true"));
    }
}

/// What libc can do: name servers, search paths, and bytes of the search list with its spaces.
const SERVERS_MAX: i64 = 3;
const SEARCHES_MAX: i64 = 32;
const SEARCH_LEN_MAX: usize = 2048;

/// `unserved`: there are no name servers but those given here.
fn check_dns(config: &At<'_>, unserved: bool, errors: &mut Vec<FieldError>) {
    let servers = config.get("nameservers");
    if unserved {
        if !config.present() {
            errors.push(config.required("must provide `dnsConfig` when `dnsPolicy` is None"));
            return;
        }
        if servers.is_empty() {
            errors.push(servers.required("must provide at least one DNS nameserver when `dnsPolicy` is None"));
            return;
        }
    }
    if count(config.value, "/nameservers") > SERVERS_MAX {
        errors.push(servers.invalid(format_args!("must not have more than {SERVERS_MAX} nameservers")));
    }
    for server in servers.items() {
        errors.extend(validate::ip(server.text()).map(|what| server.invalid(what)));
    }
    let searches = config.get("searches");
    if count(config.value, "/searches") > SEARCHES_MAX {
        errors.push(searches.invalid(format_args!("must not have more than {SEARCHES_MAX} search paths")));
    }
    if texts(config.value, "/searches").join(" ").len() > SEARCH_LEN_MAX {
        errors.push(searches.invalid(format_args!(
            "must not have more than {SEARCH_LEN_MAX} characters (including spaces) in the search list"
        )));
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let name = search.text().strip_suffix('.').unwrap_or(search.text());
        if !is_underscored_subdomain(name) {
            let detail = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-', '_' or \
                          '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
                          validation is '[a-z0-9_]([-_a-z0-9]*[a-z0-9_])?(\\.[a-z0-9_]([-_a-z0-9]*[a-z0-9_])?)*')";
            errors.push(FieldError::invalid_text(&search.field, name, detail));
        }
    }
    for option in config.get("options").items() {
        if option
            .value
            .get("name")
            .and_then(Value::as_str)
            .is_none_or(str::is_empty)
        {
            errors.push(option.required("must not be empty"));
        }
    }
}
