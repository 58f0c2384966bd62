//! Standards and their versions.

use super::*;
use crate::tree::json;

#[allow(clippy::needless_pass_by_value, reason = "values are written where they are used")]
fn told_by(level: Level, minor: u32, spec: Value) -> String {
    let pod = json!({"metadata": {}, "spec": spec});
    let pod = Pod {
        metadata: &pod["metadata"],
        spec: &pod["spec"],
    };
    told(&violations(level, minor, &pod))
}

fn restricted_container() -> Value {
    json!({"name": "c", "securityContext": {
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"},
    }})
}

#[test]
fn a_pod_that_keeps_to_a_standard_violates_nothing() {
    let spec = json!({"containers": [restricted_container()]});
    assert_eq!(told_by(Level::Restricted, 36, spec.clone()), "");
    let plain = json!({"containers": [{"name": "c"}]});
    assert_eq!(told_by(Level::Baseline, 36, plain.clone()), "");
    assert_eq!(told_by(Level::Privileged, 36, json!({"hostPID": true})), "");
    assert_ne!(told_by(Level::Restricted, 36, plain), "");
}

#[test]
fn violations_are_told_in_the_order_of_their_names_those_of_the_baseline_first() {
    let spec = json!({
        "hostNetwork": true,
        "hostIPC": true,
        "containers": [{"name": "a", "securityContext": {"privileged": true}}, {"name": "b", "securityContext": {"privileged": true}}],
    });
    assert_eq!(
        told_by(Level::Baseline, 36, spec),
        "host namespaces (hostNetwork=true, hostIPC=true), privileged (containers \"a\", \"b\" must not set \
         securityContext.privileged=true)"
    );
}

#[test]
fn a_check_of_the_restricted_standard_takes_the_place_of_the_baselines() {
    let spec = json!({
        "containers": [{"name": "c", "securityContext": {"capabilities": {"add": ["SYS_ADMIN", "CHOWN"]}}}],
        "volumes": [{"name": "h", "hostPath": {"path": "/"}}, {"name": "n", "nfs": {"server": "s", "path": "/"}}],
    });
    assert_eq!(
        told_by(Level::Baseline, 36, spec.clone()),
        "non-default capabilities (container \"c\" must not include \"SYS_ADMIN\" in securityContext.capabilities.add), hostPath \
         volumes (volume \"h\")"
    );
    let told = told_by(Level::Restricted, 36, spec.clone());
    assert!(!told.contains("hostPath volumes ("), "{told}");
    assert!(
        told.contains(
            "restricted volume types (volumes \"h\", \"n\" use restricted volume types \"hostPath\", \"nfs\")"
        ),
        "{told}"
    );
    assert!(
        told.contains(
            "unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]; container \"c\" must \
             not include \"CHOWN\", \"SYS_ADMIN\" in securityContext.capabilities.add)"
        ),
        "{told}"
    );
    // Before 1.22 the restricted standard had no check of its own.
    let told = told_by(Level::Restricted, 21, spec);
    assert!(told.contains("non-default capabilities"), "{told}");
}

#[test]
fn checks_hold_from_the_version_that_brought_them() {
    let sysctl =
        json!({"containers": [], "securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]}});
    assert_eq!(
        told_by(Level::Baseline, 31, sysctl.clone()),
        "forbidden sysctls (net.ipv4.tcp_rmem)"
    );
    assert_eq!(told_by(Level::Baseline, 32, sysctl), "");
    let probe = json!({"containers": [{"name": "c", "livenessProbe": {"httpGet": {"host": "10.0.0.1", "port": 1}}}]});
    assert_eq!(told_by(Level::Baseline, 33, probe.clone()), "");
    assert_eq!(
        told_by(Level::Baseline, 34, probe),
        "probe or lifecycle host (container \"c\" uses probe or lifecycle host \"10.0.0.1\")"
    );
    let root = json!({"hostUsers": false, "securityContext": {"runAsUser": 0}, "containers": [restricted_container()]});
    assert_eq!(
        told_by(Level::Restricted, 34, root.clone()),
        "runAsUser=0 (pod must not set runAsUser=0)"
    );
    assert_eq!(told_by(Level::Restricted, 35, root), "");
    let windows =
        json!({"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": true}, "containers": [{"name": "c"}]});
    assert_eq!(told_by(Level::Restricted, 25, windows.clone()), "");
    assert_ne!(told_by(Level::Restricted, 24, windows), "");
}

#[test]
fn versions_are_minor_ones() {
    assert_eq!(minor_of("v1.0"), Some(0));
    assert_eq!(minor_of("v1.29"), Some(29));
    for wrong in ["", "latest", "1.2", "v1.", "v1.01", "v2.0", "v1.-1", "v1.99999999999"] {
        assert_eq!(minor_of(wrong), None, "{wrong}");
    }
}
