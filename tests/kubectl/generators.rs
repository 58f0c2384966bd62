//! The commands that make objects from flags: create KIND, run, expose, autoscale.

use crate::tool::{Kubectl, contains};

#[test]
fn create_makes_each_kind_from_flags() {
    let Some(kubectl) = Kubectl::new("create") else { return };
    let unique = |name: &str| format!("{}-{name}", kubectl.namespace);
    let (priority, role, binding, namespace) = (unique("pc"), unique("role"), unique("binding"), unique("ns"));
    let cases: [(&[&str], &str); 19] = [
        (
            &["configmap", "c", "--from-literal=a=1", "--from-literal=b=two words"],
            "configmap/c created",
        ),
        (
            &["secret", "generic", "s", "--from-literal=password=hush"],
            "secret/s created",
        ),
        (
            &[
                "secret",
                "docker-registry",
                "r",
                "--docker-username=u",
                "--docker-password=p",
            ],
            "secret/r created",
        ),
        (
            &["deployment", "d", "--image=d:1", "--replicas=3", "--port=80"],
            "deployment.apps/d created",
        ),
        (&["job", "j", "--image=j:1", "--", "true"], "job.batch/j created"),
        (
            &["cronjob", "cj", "--image=cj:1", "--schedule=*/5 * * * *"],
            "cronjob.batch/cj created",
        ),
        (&["service", "clusterip", "sc", "--tcp=80:8080"], "service/sc created"),
        (&["service", "nodeport", "sn", "--tcp=80:8080"], "service/sn created"),
        (
            &["service", "loadbalancer", "sl", "--tcp=80:8080"],
            "service/sl created",
        ),
        (
            &["service", "externalname", "se", "--external-name=example.com"],
            "service/se created",
        ),
        (&["serviceaccount", "sa"], "serviceaccount/sa created"),
        (
            &["ingress", "i", "--rule=example.com/=sc:80"],
            "ingress.networking.k8s.io/i created",
        ),
        (&["quota", "q", "--hard=pods=10,cpu=4"], "resourcequota/q created"),
        (
            &["poddisruptionbudget", "p", "--selector=app=d", "--min-available=50%"],
            "poddisruptionbudget.policy/p created",
        ),
        (
            &["role", "ro", "--verb=get,list", "--resource=pods"],
            "role.rbac.authorization.k8s.io/ro created",
        ),
        (
            &["rolebinding", "rb", "--role=ro", "--user=jane"],
            "rolebinding.rbac.authorization.k8s.io/rb created",
        ),
        (&["clusterrole", &role, "--verb=get", "--resource=nodes"], "created"),
        (
            &["clusterrolebinding", &binding, "--clusterrole=view", "--group=people"],
            "created",
        ),
        (&["priorityclass", &priority, "--value=1000"], "created"),
    ];
    for (arguments, expected) in cases {
        contains(&kubectl.ok(&[&["create"], arguments].concat()), &[expected]);
    }
    contains(&kubectl.ok(&["create", "namespace", &namespace]), &["created"]);
    assert_eq!(kubectl.field("secret/s", ".data.password"), "aHVzaA==");
    assert_eq!(kubectl.field("secret/r", ".type"), "kubernetes.io/dockerconfigjson");
    assert_eq!(kubectl.field("cm/c", ".data.b"), "two words");
    assert_eq!(kubectl.field("service/se", ".spec.externalName"), "example.com");
    assert_eq!(kubectl.field("service/sn", ".spec.type"), "NodePort");
    assert_eq!(
        kubectl.field(
            "deployment/d",
            ".spec.template.spec.containers[0].ports[0].containerPort"
        ),
        "80"
    );
    for object in [
        format!("clusterrole/{role}"),
        format!("clusterrolebinding/{binding}"),
        format!("priorityclass/{priority}"),
    ] {
        contains(&kubectl.ok(&["delete", &object]), &["deleted"]);
    }
}

#[test]
fn run_expose_and_autoscale() {
    let Some(kubectl) = Kubectl::new("run") else { return };
    assert_eq!(
        kubectl.ok(&["run", "web", "--image=web:1", "--port=8080", "--labels=app=web"]),
        "pod/web created\n"
    );
    assert_eq!(
        kubectl.ok(&["expose", "pod", "web", "--port=80", "--target-port=8080"]),
        "service/web exposed\n"
    );
    assert_eq!(kubectl.field("service/web", ".spec.selector.app"), "web");
    kubectl.ok(&["create", "deployment", "d", "--image=d:1"]);
    contains(
        &kubectl.ok(&["autoscale", "deployment", "d", "--min=2", "--max=5"]),
        &["horizontalpodautoscaler.autoscaling/d autoscaled"],
    );
    assert_eq!(kubectl.field("hpa/d", ".spec.maxReplicas"), "5");
    // One object, two versions of another shape.
    let path = format!(
        "/apis/autoscaling/v1/namespaces/{}/horizontalpodautoscalers/d",
        kubectl.namespace
    );
    contains(
        &kubectl.ok(&["get", "--raw", &path]),
        &["\"apiVersion\":\"autoscaling/v1\"", "\"maxReplicas\":5"],
    );
}

#[test]
fn events_are_one_kind_in_two_groups() {
    let Some(kubectl) = Kubectl::new("events") else { return };
    let manifest = format!(
        "apiVersion: v1\nkind: Event\nmetadata: {{name: web.1}}\ntype: Warning\nreason: Unhealthy\nmessage: probe failed\n\
         involvedObject: {{apiVersion: v1, kind: Pod, name: web, namespace: {0}}}\ncount: 3\n\
         firstTimestamp: '2026-01-05T08:00:00Z'\nlastTimestamp: '2026-01-05T09:00:00Z'\nsource: {{component: kubelet}}\n",
        kubectl.namespace
    );
    kubectl.ok_with(&["create", "-f", "-"], &manifest);
    contains(
        &kubectl.ok(&["get", "events"]),
        &["LAST SEEN", "Warning", "Unhealthy", "pod/web", "probe failed"],
    );
    contains(&kubectl.ok(&["events"]), &["Unhealthy"]);
    contains(
        &kubectl.ok(&["get", "events.events.k8s.io", "web.1", "-o", "yaml"]),
        &["note: probe failed", "regarding:", "deprecatedCount: 3"],
    );
    assert_eq!(
        kubectl.ok(&[
            "get",
            "events",
            "--field-selector",
            "involvedObject.name=web,type=Warning",
            "-o",
            "name"
        ]),
        "event/web.1\n"
    );
    assert_eq!(
        kubectl.ok(&[
            "get",
            "events",
            "--field-selector",
            "involvedObject.name=other",
            "-o",
            "name"
        ]),
        ""
    );
}
