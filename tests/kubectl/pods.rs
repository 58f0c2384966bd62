//! Pods: the time that they get to end, debugging and resizing in place.

use crate::tool::{Kubectl, contains};

const POD: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: NAME}}
spec:
  nodeName: NODE
  containers:
  - {name: c, image: 'i:1', resources: {requests: {cpu: 100m}}}
";

#[test]
fn delete_gives_pods_the_time_that_it_is_told() {
    let Some(kubectl) = Kubectl::new("grace") else { return };
    let pod = |name: &str| {
        kubectl.ok_with(
            &["create", "-f", "-"],
            &POD.replace("NAME", name).replace("NODE", "none"),
        );
    };
    pod("slow");
    kubectl.ok(&["delete", "pod", "slow", "--grace-period=7", "--wait=false"]);
    assert_eq!(kubectl.field("pod/slow", ".metadata.deletionGracePeriodSeconds"), "7");
    kubectl.ok(&["delete", "pod", "slow", "--now", "--wait=false"]);
    assert_eq!(kubectl.field("pod/slow", ".metadata.deletionGracePeriodSeconds"), "1");
    kubectl.ok(&["delete", "pod", "slow", "--grace-period=0", "--force"]);
    contains(&kubectl.fails(&["get", "pod", "slow"]), &["NotFound"]);
}

#[test]
fn a_pod_is_debugged_and_resized_in_place() {
    let Some(kubectl) = Kubectl::new("inplace") else { return };
    kubectl.ok_with(
        &["create", "-f", "-"],
        &POD.replace("NAME", "p").replace("NODE", "none"),
    );
    kubectl.ok(&["debug", "pod/p", "--image=tools:1", "--container=dbg", "--attach=false"]);
    assert_eq!(kubectl.field("pod/p", ".spec.ephemeralContainers[0].image"), "tools:1");
    let patch = r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"200m"}}}]}}"#;
    kubectl.ok(&["patch", "pod/p", "--subresource=resize", "-p", patch]);
    assert_eq!(
        kubectl.field("pod/p", ".spec.containers[0].resources.requests.cpu"),
        "200m"
    );
    assert_eq!(kubectl.field("pod/p", ".metadata.generation"), "3");
    contains(
        &kubectl.fails(&["patch", "pod/p", "-p", &patch.replace("200m", "300m")]),
        &["pod updates may not change fields other than"],
    );
}
