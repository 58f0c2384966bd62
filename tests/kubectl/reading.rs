//! `get` in every output, selectors, paging, `describe`, `explain`, discovery.

use crate::tool::{Kubectl, columns, contains};

/// Three ConfigMaps with labels.
const MAPS: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: a, labels: {tier: web, size: small, rank: '1'}}
data: {key: alpha}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: b, labels: {tier: web, size: large}}
data: {key: beta}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, labels: {tier: db}}
data: {key: gamma, other: x}
";

fn names(text: &str) -> Vec<&str> {
    text.lines()
        .map(|line| line.rsplit('/').next().expect("a name"))
        .collect()
}

#[test]
fn get_prints_every_output_format() {
    // Nobody else puts anything into the namespace.
    let Some(kubectl) = Kubectl::without_controllers("outputs") else {
        return;
    };
    contains(
        &kubectl.ok_with(&["create", "-f", "-"], MAPS),
        &["configmap/a created", "configmap/c created"],
    );

    let table = kubectl.ok(&["get", "configmaps"]);
    let mut lines = table.lines();
    assert_eq!(columns(lines.next().expect("a header")), ["NAME", "DATA", "AGE"]);
    let rows: Vec<Vec<&str>> = lines.map(columns).collect();
    assert_eq!(rows.len(), 3, "{table}");
    assert_eq!(rows[0][..2], ["a", "1"]);
    assert_eq!(rows[2][..2], ["c", "2"]);
    assert!(rows[0][2].ends_with('s'), "an age in seconds: {table}");

    contains(
        &kubectl.ok(&["get", "cm", "--show-labels"]),
        &["LABELS", "rank=1,size=small,tier=web"],
    );
    contains(&kubectl.ok(&["get", "cm", "-L", "tier"]), &["TIER", "web", "db"]);
    assert!(!kubectl.ok(&["get", "cm", "--no-headers"]).contains("NAME"));
    assert_eq!(
        kubectl.ok(&["get", "cm", "-o", "name"]),
        "configmap/a\nconfigmap/b\nconfigmap/c\n"
    );
    assert_eq!(
        kubectl.ok(&["get", "cm", "-o", "jsonpath={.items[*].data.key}"]),
        "alpha beta gamma"
    );
    assert_eq!(
        kubectl.ok(&["get", "cm", "b", "-o", "jsonpath={.kind}/{.apiVersion}/{.data.key}"]),
        "ConfigMap/v1/beta"
    );
    let custom = kubectl.ok(&["get", "cm", "-o", "custom-columns=N:.metadata.name,K:.data.key"]);
    assert_eq!(
        custom.lines().map(columns).collect::<Vec<_>>(),
        [["N", "K"], ["a", "alpha"], ["b", "beta"], ["c", "gamma"]]
    );
    assert_eq!(
        kubectl.ok(&[
            "get",
            "cm",
            "-o",
            "go-template={{range .items}}{{.metadata.name}};{{end}}"
        ]),
        "a;b;c;"
    );
    let yaml = kubectl.ok(&["get", "cm", "a", "-o", "yaml"]);
    contains(
        &yaml,
        &[
            "apiVersion: v1\n",
            "kind: ConfigMap\n",
            "  key: alpha\n",
            "resourceVersion: \"",
            "  uid: ",
        ],
    );
    let json = kubectl.ok(&["get", "cm", "-o", "json"]);
    contains(&json, &["\"kind\": \"List\"", "\"kind\": \"ConfigMap\"", "\"gamma\""]);
    assert_eq!(kubectl.ok(&["get", "--raw", "/livez"]), "ok");
    assert_eq!(
        kubectl
            .ok(&["get", "cm", "--sort-by", "{.data.key}", "-o", "name"])
            .lines()
            .count(),
        3
    );
}

#[test]
fn label_and_field_selectors_select() {
    // Nobody else puts anything into the namespace.
    let Some(kubectl) = Kubectl::without_controllers("selectors") else {
        return;
    };
    kubectl.ok_with(&["create", "-f", "-"], MAPS);
    let cases: [(&str, &[&str]); 10] = [
        ("tier=web", &["a", "b"]),
        ("tier==db", &["c"]),
        ("tier!=web", &["c"]),
        ("size", &["a", "b"]),
        ("!size", &["c"]),
        ("tier in (web,db),size notin (large)", &["a", "c"]),
        ("size in (large,huge)", &["b"]),
        ("tier=web,size=small", &["a"]),
        ("rank>0", &["a"]),
        ("tier=none", &[]),
    ];
    for (selector, expected) in cases {
        let text = kubectl.ok(&["get", "cm", "-l", selector, "-o", "name"]);
        assert_eq!(names(&text), expected, "{selector}");
    }
    assert_eq!(
        names(&kubectl.ok(&["get", "cm", "--field-selector", "metadata.name=b", "-o", "name"])),
        ["b"]
    );
    assert_eq!(
        names(&kubectl.ok(&["get", "cm", "--field-selector", "metadata.name!=b", "-o", "name"])),
        ["a", "c"]
    );
    let none = kubectl.run(&["get", "cm", "-l", "tier=none"], "");
    contains(&String::from_utf8_lossy(&none.stderr), &["No resources found in"]);
    contains(
        &kubectl.fails(&["get", "cm", "--field-selector", "data.key=alpha"]),
        &["\"data.key\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""],
    );
}

#[test]
fn pods_are_selected_by_their_fields() {
    let Some(kubectl) = Kubectl::new("podfields") else {
        return;
    };
    kubectl.ok(&["create", "-f", "pods.yaml"]);
    let get = |selector: &str| kubectl.ok(&["get", "pods", "--field-selector", selector, "-o", "name"]);
    assert_eq!(names(&get("spec.nodeName=worker-1")), ["pinned"]);
    assert_eq!(names(&get("spec.nodeName!=worker-1")), ["everything", "minimal"]);
    assert_eq!(names(&get("status.phase=Pending")), ["everything", "minimal", "pinned"]);
    assert_eq!(names(&get("status.phase=Running")), Vec::<&str>::new());
    kubectl.ok(&[
        "patch",
        "pod",
        "minimal",
        "--subresource",
        "status",
        "--type",
        "merge",
        "-p",
        r#"{"status":{"phase":"Running"}}"#,
    ]);
    assert_eq!(names(&get("status.phase=Running")), ["minimal"]);
    assert_eq!(
        names(&get("spec.restartPolicy=Always,metadata.name=pinned")),
        ["pinned"]
    );
}

#[test]
fn a_list_in_pages_is_the_whole_list() {
    // Nobody else puts anything into the namespace.
    let Some(kubectl) = Kubectl::without_controllers("pages") else {
        return;
    };
    let manifest: Vec<String> = (0..57)
        .map(|number| {
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: map-{number:03}}}\ndata: {{n: '{number}'}}\n")
        })
        .collect();
    kubectl.ok_with(&["create", "-f", "-"], &manifest.join("---\n"));
    let whole = kubectl.ok(&["get", "cm", "-o", "name", "--chunk-size=0"]);
    assert_eq!(whole.lines().count(), 57);
    for size in ["1", "7", "56", "57", "58"] {
        assert_eq!(
            kubectl.ok(&["get", "cm", "-o", "name", "--chunk-size", size]),
            whole,
            "pages of {size}"
        );
    }
    let table = kubectl.ok(&["get", "cm", "--chunk-size=10"]);
    assert_eq!(table.lines().count(), 58, "{table}");
    let page = kubectl.ok(&[
        "get",
        "--raw",
        &format!("/api/v1/namespaces/{}/configmaps?limit=10", kubectl.namespace),
    ]);
    contains(&page, &["\"remainingItemCount\":47", "\"continue\":\""]);
}

#[test]
fn tables_have_the_columns_of_kube_apiserver() {
    let Some(kubectl) = Kubectl::without_controllers("tables") else {
        return;
    };
    for file in [
        "shop.yaml",
        "database.yaml",
        "batch.yaml",
        "pods.yaml",
        "platform.yaml",
        "access.yaml",
    ] {
        kubectl.ok(&["apply", "-f", file]);
    }
    let cases: [(&str, &[&str]); 22] = [
        (
            "pods",
            &[
                "NAME",
                "READY",
                "STATUS",
                "RESTARTS",
                "AGE",
                "IP",
                "NODE",
                "NOMINATED NODE",
                "READINESS GATES",
            ],
        ),
        (
            "deployments",
            &[
                "NAME",
                "READY",
                "UP-TO-DATE",
                "AVAILABLE",
                "AGE",
                "CONTAINERS",
                "IMAGES",
                "SELECTOR",
            ],
        ),
        ("statefulsets", &["NAME", "READY", "AGE", "CONTAINERS", "IMAGES"]),
        (
            "jobs",
            &[
                "NAME",
                "STATUS",
                "COMPLETIONS",
                "DURATION",
                "AGE",
                "CONTAINERS",
                "IMAGES",
                "SELECTOR",
            ],
        ),
        (
            "cronjobs",
            &[
                "NAME",
                "SCHEDULE",
                "TIMEZONE",
                "SUSPEND",
                "ACTIVE",
                "LAST SCHEDULE",
                "AGE",
                "CONTAINERS",
                "IMAGES",
                "SELECTOR",
            ],
        ),
        (
            "services",
            &[
                "NAME",
                "TYPE",
                "CLUSTER-IP",
                "EXTERNAL-IP",
                "PORT(S)",
                "AGE",
                "SELECTOR",
            ],
        ),
        ("endpoints", &["NAME", "ENDPOINTS", "AGE"]),
        ("endpointslices", &["NAME", "ADDRESSTYPE", "PORTS", "ENDPOINTS", "AGE"]),
        ("secrets", &["NAME", "TYPE", "DATA", "AGE"]),
        ("serviceaccounts", &["NAME", "AGE"]),
        (
            "pvc",
            &[
                "NAME",
                "STATUS",
                "VOLUME",
                "CAPACITY",
                "ACCESS MODES",
                "STORAGECLASS",
                "VOLUMEATTRIBUTESCLASS",
                "AGE",
                "VOLUMEMODE",
            ],
        ),
        (
            "pv",
            &[
                "NAME",
                "CAPACITY",
                "ACCESS MODES",
                "RECLAIM POLICY",
                "STATUS",
                "CLAIM",
                "STORAGECLASS",
                "VOLUMEATTRIBUTESCLASS",
                "REASON",
                "AGE",
                "VOLUMEMODE",
            ],
        ),
        ("ingresses", &["NAME", "CLASS", "HOSTS", "ADDRESS", "PORTS", "AGE"]),
        (
            "storageclasses",
            &[
                "NAME",
                "PROVISIONER",
                "RECLAIMPOLICY",
                "VOLUMEBINDINGMODE",
                "ALLOWVOLUMEEXPANSION",
                "AGE",
            ],
        ),
        ("roles", &["NAME", "CREATED AT"]),
        (
            "rolebindings",
            &["NAME", "ROLE", "AGE", "USERS", "GROUPS", "SERVICEACCOUNTS"],
        ),
        ("leases", &["NAME", "HOLDER", "AGE"]),
        ("namespaces", &["NAME", "STATUS", "AGE"]),
        (
            "nodes",
            &[
                "NAME",
                "STATUS",
                "ROLES",
                "AGE",
                "VERSION",
                "INTERNAL-IP",
                "EXTERNAL-IP",
                "OS-IMAGE",
                "KERNEL-VERSION",
                "CONTAINER-RUNTIME",
            ],
        ),
        (
            "hpa",
            &["NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"],
        ),
        (
            "pdb",
            &["NAME", "MIN AVAILABLE", "MAX UNAVAILABLE", "ALLOWED DISRUPTIONS", "AGE"],
        ),
        ("networkpolicies", &["NAME", "POD-SELECTOR", "AGE"]),
    ];
    for (resource, expected) in cases {
        let table = kubectl.ok(&["get", resource, "-o", "wide"]);
        let header = table.lines().next().unwrap_or_default();
        assert_eq!(columns(header), expected, "{resource}:\n{table}");
        assert!(table.lines().count() > 1, "{resource} has no rows");
    }
    let deployments = kubectl.ok(&["get", "deployments", "--no-headers"]);
    let row = deployments
        .lines()
        .find(|line| line.starts_with("frontend"))
        .expect("a row");
    assert_eq!(columns(row)[..4], ["frontend", "0/3", "0", "0"]);
    let services = kubectl.ok(&["get", "service", "postgres", "--no-headers"]);
    assert_eq!(
        columns(&services)[..5],
        ["postgres", "ClusterIP", "None", "<none>", "5432/TCP"]
    );
    let all = kubectl.ok(&["get", "all"]);
    contains(
        &all,
        &[
            "pod/minimal",
            "service/frontend",
            "deployment.apps/cart",
            "statefulset.apps/postgres",
            "job.batch/migrate",
        ],
    );
    assert_eq!(
        columns(&kubectl.ok(&["get", "storageclass", "fast", "--no-headers"]))[0],
        "fast (default)"
    );
}

#[test]
fn describe_finds_what_it_describes() {
    let Some(kubectl) = Kubectl::new("describe") else {
        return;
    };
    for file in ["shop.yaml", "database.yaml", "batch.yaml", "pods.yaml", "platform.yaml"] {
        kubectl.ok(&["apply", "-f", file]);
    }
    contains(
        &kubectl.ok(&["describe", "pod", "everything"]),
        &[
            "everything",
            "Pending",
            "registry.example.com/tools/main:1",
            "QoS Class:",
        ],
    );
    contains(
        &kubectl.ok(&["describe", "deployment", "frontend"]),
        &["Replicas:               3 desired", "25% max surge", "Events:"],
    );
    for object in [
        "service/frontend",
        "statefulset/postgres",
        "cronjob/postgres-backup",
        "job/thumbnails",
        "ingress/shop",
        "configmap/shop-config",
        "secret/shop-payment",
        "pvc/backups",
        "hpa/frontend",
        "pdb/cart",
        "networkpolicy/postgres",
        "node/worker-1",
        "quota/team",
        "limitrange/defaults",
        "storageclass/fast",
        "serviceaccount/shop",
        "endpoints/legacy-database",
        "lease/shop-leader",
        "priorityclass/interactive",
        "namespace/default",
    ] {
        let name = object.split('/').nth(1).expect("a name");
        contains(&kubectl.ok(&["describe", object]), &["Name:", name]);
    }
}

#[test]
fn explain_knows_the_fields() {
    let Some(kubectl) = Kubectl::new("explain") else { return };
    contains(
        &kubectl.quiet(&["explain", "pods.spec.containers"]),
        &[
            "KIND:       Pod",
            "VERSION:    v1",
            "FIELD: containers <[]Container>",
            "livenessProbe",
            "DESCRIPTION:",
        ],
    );
    contains(
        &kubectl.quiet(&["explain", "deployment.spec.strategy.rollingUpdate.maxSurge"]),
        &["GROUP:      apps", "maxSurge <IntOrString>"],
    );
    contains(
        &kubectl.quiet(&["explain", "cronjob.spec", "--recursive"]),
        &["jobTemplate", "concurrencyPolicy", "activeDeadlineSeconds"],
    );
    contains(
        &kubectl.quiet(&["explain", "hpa", "--api-version=autoscaling/v1"]),
        &["VERSION:    v1"],
    );
    contains(
        &kubectl.quiet(&["explain", "pod.spec", "--output=plaintext-openapiv2"]),
        &["containers"],
    );
    contains(
        &kubectl.fails(&["explain", "pod.spec.nothing"]),
        &["field \"nothing\" does not exist"],
    );
}

#[test]
fn discovery_lists_the_built_in_resources() {
    let Some(kubectl) = Kubectl::new("discovery") else {
        return;
    };
    let versions = kubectl.quiet(&["api-versions"]);
    let found: Vec<&str> = versions.lines().collect();
    for version in [
        "v1",
        "apps/v1",
        "batch/v1",
        "autoscaling/v1",
        "autoscaling/v2",
        "networking.k8s.io/v1",
        "policy/v1",
        "rbac.authorization.k8s.io/v1",
        "storage.k8s.io/v1",
        "coordination.k8s.io/v1",
        "discovery.k8s.io/v1",
        "events.k8s.io/v1",
        "scheduling.k8s.io/v1",
        "node.k8s.io/v1",
        "admissionregistration.k8s.io/v1",
    ] {
        assert!(found.contains(&version), "{version} is not in {found:?}");
    }
    let wide = kubectl.quiet(&["api-resources", "-o", "wide", "--no-headers"]);
    let pods = wide.lines().find(|line| line.starts_with("pods ")).expect("pods");
    contains(
        pods,
        &[
            "po",
            "v1",
            "true",
            "Pod",
            "create,delete,deletecollection,get,list,patch,update,watch",
            "all",
        ],
    );
    let cluster = kubectl.quiet(&["api-resources", "--namespaced=false", "-o", "name"]);
    contains(
        &cluster,
        &[
            "nodes\n",
            "namespaces\n",
            "persistentvolumes\n",
            "clusterroles.rbac.authorization.k8s.io\n",
        ],
    );
    let group = kubectl.quiet(&["api-resources", "--api-group=apps", "-o", "name"]);
    for resource in [
        "controllerrevisions",
        "daemonsets",
        "deployments",
        "replicasets",
        "statefulsets",
    ] {
        contains(&group, &[&format!("{resource}.apps\n")]);
    }
    contains(&kubectl.ok(&["version"]), &["Server Version: v1.36"]);
    contains(
        &kubectl.ok(&["cluster-info"]),
        &["Kubernetes control plane", "is running at"],
    );
    contains(
        &kubectl.ok(&["get", "--raw", "/readyz?verbose"]),
        &["[+]", "readyz check passed"],
    );
    contains(
        &kubectl.ok(&["get", "--raw", "/version"]),
        &["\"major\":", "\"minor\":", "36"],
    );
    contains(&kubectl.ok(&["get", "--raw", "/metrics"]), &["# TYPE "]);
}

#[test]
fn the_namespaces_and_the_service_of_every_cluster_are_there() {
    let Some(kubectl) = Kubectl::new("bootstrap") else {
        return;
    };
    let namespaces = kubectl.ok(&["get", "namespaces", "-o", "name"]);
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        contains(&namespaces, &[&format!("namespace/{name}\n")]);
    }
    assert_eq!(
        kubectl.ok(&["get", "namespace", "default", "-o", "jsonpath={.status.phase}"]),
        "Active"
    );
    assert_eq!(
        kubectl.ok(&[
            "get",
            "namespace",
            "default",
            "-o",
            "jsonpath={.metadata.labels.kubernetes\\.io/metadata\\.name}"
        ]),
        "default"
    );
    contains(
        &kubectl.ok(&["get", "service", "kubernetes", "-n", "default"]),
        &["ClusterIP", "443/TCP"],
    );
}
