//! The groups `networking.k8s.io` and `discovery.k8s.io`.

use crate::tree::{Value, json};

use super::FieldError;
use super::core::load_balancer_addresses;
use super::core::other_rules::cidr;
use super::core::service_rules::endpoint_slice;
use super::edit::default_at;
use super::kind::Kind;
use super::lookup;
use super::lookup::{count, integer, list, text, texts};
use super::names::{label, subdomain};
use super::row::{Row, some_and_more};
use super::validate::{At, label_selector};

pub(super) const KINDS: &[Kind] = &[
    Kind::new("endpointslices.discovery.k8s.io")
        .cells(endpoint_slices)
        .validate(endpoint_slice)
        .warnings(|slice| {
            let is_name = text(slice, "/addressType") == "FQDN";
            let warning = is_name.then(|| "spec.addressType: FQDN endpoints are deprecated".to_owned());
            warning.into_iter().collect()
        }),
    Kind::new("ingressclasses.networking.k8s.io")
        .cells(|row| {
            let class = row.object;
            let (group, kind, name) = (
                text(class, "/spec/parameters/apiGroup"),
                text(class, "/spec/parameters/kind"),
                text(class, "/spec/parameters/name"),
            );
            let parameters = match (group, kind) {
                (_, "") => "<none>".to_owned(),
                ("", kind) => format!("{kind}/{name}"),
                (group, kind) => format!("{kind}.{group}/{name}"),
            };
            row.name().text_at("/spec/controller").text(parameters).age();
        })
        .validate(|class, errors| {
            let controller = At::root(class).get("spec.controller");
            if !controller.is_empty() && !controller.text().contains('/') {
                errors.push(controller.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")"));
            }
        }),
    Kind::new("ingresses.networking.k8s.io")
        .cells(ingresses)
        .validate(check_ingress)
        .warnings(ingress_warnings),
    Kind::new("ipaddresses.networking.k8s.io").cells(|row| {
        let address = row.object;
        let part = |name| text(address, &format!("/spec/parentRef/{name}"));
        let resource = match part("group") {
            "" => part("resource").to_owned(),
            group => format!("{}.{group}", part("resource")),
        };
        let parent = [resource.as_str(), part("namespace"), part("name")];
        row.name().text(
            parent
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join("/"),
        );
    }),
    Kind::new("networkpolicies.networking.k8s.io")
        .cells(|row| {
            row.name().selector_at("/spec/podSelector").age();
        })
        .defaults(|policy| {
            let egress = count(policy, "/spec/egress") > 0;
            let types = if egress {
                json!(["Ingress", "Egress"])
            } else {
                json!(["Ingress"])
            };
            default_at(policy, "/spec", "policyTypes", types);
        })
        .validate(|policy, errors| {
            label_selector(&At::root(policy).get("spec.podSelector"), errors);
        }),
    Kind::new("servicecidrs.networking.k8s.io")
        .cells(|row| {
            let ranges = texts(row.object, "/spec/cidrs").join(",");
            row.name().text(ranges).age();
        })
        .validate(|ranges, errors| {
            let all = At::root(ranges).get("spec.cidrs");
            let mut fine = 0;
            for range in all.items() {
                match cidr(range.text()) {
                    Some(what) => errors.push(range.invalid(what)),
                    None => fine += 1,
                }
            }
            let same_family = all.items().filter(|range| range.text().contains(':')).count() != 1;
            if fine > 1 && same_family {
                let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
                errors.push(all.invalid(detail));
            }
        }),
];

fn endpoint_slices(row: &mut Row<'_>) {
    let slice = row.object;
    let ports: Vec<String> = list(slice, "/ports")
        .iter()
        .map(|port| match (integer(port, "/port"), text(port, "/name")) {
            (Some(number), _) => number.to_string(),
            (None, "") => "*".to_owned(),
            (None, name) => name.to_owned(),
        })
        .collect();
    let addresses: Vec<String> = list(slice, "/endpoints")
        .iter()
        .flat_map(|endpoint| texts(endpoint, "/addresses"))
        .map(str::to_owned)
        .collect();
    let shown = |items: &[String]| {
        if items.is_empty() {
            "<unset>".to_owned()
        } else {
            some_and_more(items, 3, ",")
        }
    };
    row.name()
        .text_at("/addressType")
        .text(shown(&ports))
        .text(shown(&addresses))
        .age();
}

fn ingresses(row: &mut Row<'_>) {
    let ingress = row.object;
    let rules = list(ingress, "/spec/rules");
    let mut hosts = Vec::new();
    // Rules beyond the third host are counted, whether or not they name a host.
    let mut more = false;
    for rule in rules {
        more |= hosts.len() == 3;
        let host = text(rule, "/host");
        if !more && !host.is_empty() {
            hosts.push(host);
        }
    }
    let hosts = match (hosts.join(","), more) {
        (hosts, _) if hosts.is_empty() => "*".to_owned(),
        (hosts, true) => format!("{hosts} + {} more...", rules.len() - 3),
        (hosts, false) => hosts,
    };
    let ports = if count(ingress, "/spec/tls") == 0 {
        "80"
    } else {
        "80, 443"
    };
    row.name()
        .text_or("/spec/ingressClassName", "<none>")
        .text(hosts)
        .text(load_balancer_addresses(ingress).join(","))
        .text(ports)
        .age();
}

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

fn check_ingress(ingress: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(ingress).get("spec");
    let (rules, default) = (spec.get("rules"), spec.get("defaultBackend"));
    if rules.is_empty() && !default.present() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid(&spec.field, &Value::Null, detail));
    }
    if default.present() {
        check_backend(&default, errors);
    }
    for rule in rules.items() {
        let host = rule.get("host");
        if !host.is_empty() {
            if host.text().parse::<std::net::IpAddr>().is_ok() {
                errors.push(host.invalid("must be a DNS name, not an IP address"));
            } else {
                host.check(host_name(host.text()), errors);
            }
        }
        for path in rule.get("http.paths").items() {
            check_path(&path, errors);
        }
    }
    for tls in spec.get("tls").items() {
        for host in tls.get("hosts").items() {
            host.check(host_name(host.text()), errors);
        }
    }
    let annotation = lookup::map(ingress, "/metadata/annotations").and_then(|all| all.get(CLASS_ANNOTATION));
    let class = spec.get("ingressClassName");
    if let Some(old) = annotation.filter(|old| class.present() && *old != class.value) {
        let field = format!("annotations.{CLASS_ANNOTATION}");
        errors.push(FieldError::invalid(
            field,
            old,
            "must match `ingressClassName` when both are specified",
        ));
    }
}

fn ingress_warnings(ingress: &Value) -> Vec<String> {
    let annotated = lookup::map(ingress, "/metadata/annotations").is_some_and(|all| all.contains_key(CLASS_ANNOTATION));
    let warning =
        format!("annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead");
    annotated.then_some(warning).into_iter().collect()
}

/// A DNS name, or one with `*` as its first label.
fn host_name(host: &str) -> Vec<String> {
    const WILDCARD_RULE: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, \
        which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character \
        (e.g. '*.example.com', regex used for validation is \
        '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    if !host.contains('*') {
        return subdomain(host);
    }
    let fine = host.strip_prefix("*.").is_some_and(|rest| subdomain(rest).is_empty());
    if fine {
        Vec::new()
    } else {
        vec![WILDCARD_RULE.to_owned()]
    }
}

fn check_path(path: &At<'_>, errors: &mut Vec<FieldError>) {
    let text = path.get("path");
    let kind = path.get("pathType");
    if kind.is_empty() {
        return;
    }
    let exact = matches!(kind.text(), "Exact" | "Prefix");
    if exact || !text.is_empty() {
        if !text.text().starts_with('/') {
            errors.push(text.invalid("must be an absolute path"));
        }
        if exact {
            for bad in ["//", "/./", "/../", "%2f", "%2F"] {
                if text.text().contains(bad) {
                    errors.push(text.invalid(format_args!("must not contain '{bad}'")));
                }
            }
            for bad in ["/..", "/."] {
                if text.text().ends_with(bad) {
                    errors.push(text.invalid(format_args!("cannot end with '{bad}'")));
                }
            }
        }
    }
    check_backend(&path.get("backend"), errors);
}

fn check_backend(backend: &At<'_>, errors: &mut Vec<FieldError>) {
    let (service, resource) = (backend.get("service"), backend.get("resource"));
    match (service.present(), resource.present()) {
        (true, true) => {
            errors.push(FieldError::invalid_text(
                &backend.field,
                "",
                "cannot set both resource and service backends",
            ));
            return;
        }
        (false, false) => {
            errors.push(FieldError::invalid_text(
                &backend.field,
                "",
                "resource or service backend is required",
            ));
            return;
        }
        (false, true) => return,
        (true, false) => {}
    }
    let name = service.get("name");
    if !name.is_empty() {
        name.check(label(name.text()), errors);
    }
    let (port_name, number) = (service.get("port.name"), service.get("port.number"));
    match (port_name.is_empty(), number.integer().unwrap_or(0)) {
        (false, 1..) => {
            errors.push(FieldError::invalid_text(
                &backend.field,
                "",
                "cannot set both port name & port number",
            ));
        }
        (true, 0) => errors.push(backend.required("port name or number is required")),
        (true, number @ (..0 | 65536..)) => {
            let field = service.get("port.number").field;
            errors.push(FieldError::invalid(
                field,
                &number.into(),
                "must be between 1 and 65535, inclusive",
            ));
        }
        _ => {}
    }
}
