//! Every kind that discovery names: explained, created, shown, described and deleted.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::process::Server;
use crate::tool::{Kubectl, installed};

/// One object of each kind: `tests/fixtures/kinds.yaml`.
const KINDS: &str = include_str!("../fixtures/kinds.yaml");

/// The kubectl that are run through everything unless this variable is set to run all of this machine: the one on PATH
/// and the oldest one.
const ALL: &str = "FLATKUBE_KUBECTL_ALL";

/// Requests of `explain` at a time: a kubectl is a whole process and takes a core.
const SIDE_BY_SIDE: usize = 3;

/// There are at least so many resources in discovery.
const RESOURCES_MIN: usize = 60;

/// A line of `api-resources -o wide`.
#[derive(Clone, Debug)]
struct Served {
    resource: String,
    version: String,
    kind: String,
    verbs: Vec<String>,
}

impl Served {
    /// Whether `version` is one of its group's: discovery's short form names the preferred one alone.
    fn serves(&self, version: &str, kind: &str) -> bool {
        let group = |text: &str| text.split_once('/').map(|(group, _)| group.to_owned());
        self.kind == kind && group(&self.version) == group(version)
    }

    fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|own| own == verb)
    }
}

fn served(kubectl: &Kubectl) -> Vec<Served> {
    let text = kubectl.quiet(&["api-resources", "-o", "wide", "--no-headers"]);
    // Short names may be missing: fields are counted from where the version stands.
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let namespaced = words
            .iter()
            .position(|word| ["true", "false"].contains(word))
            .unwrap_or_else(|| panic!("{line}"));
        Served {
            resource: words[0].to_owned(),
            version: words[namespaced - 1].to_owned(),
            kind: words[namespaced + 1].to_owned(),
            verbs: words[namespaced + 2]
                .trim_matches(['[', ']'])
                .split(',')
                .map(str::to_owned)
                .collect(),
        }
    };
    text.lines().map(line).collect()
}

/// The documents of the file: API version, kind, text.
fn documents() -> Vec<(&'static str, &'static str, &'static str)> {
    let field = |document: &'static str, name: &str| {
        document
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_else(|| panic!("no {name} in {document}"))
            .trim()
    };
    KINDS
        .split("\n---\n")
        .map(|document| (field(document, "apiVersion:"), field(document, "kind:"), document))
        .collect()
}

/// What stays after it was deleted: those have finalizers, and no controller takes them away; a Pod that is bound waits for
/// its kubelet.
const OUTLIVING: [&str; 4] = ["namespace/", "persistentvolume/", "persistentvolumeclaim/", "pod/"];

/// Kinds that kubectl up to 1.33 describes by asking for a beta version, which 1.36 serves no more: it is answered 404 by
/// kube-apiserver, too.
const DESCRIBED_BY_BETA: [&str; 3] = ["IPAddress", "ServiceCIDR", "VolumeAttributesClass"];

/// Every line is a warning that a kind is deprecated, or kubectl's own that a namespace does not bound what is deleted:
/// nothing else is said.
#[track_caller]
fn only_warnings(what: &str, errors: &str) {
    for line in errors.lines() {
        assert!(
            line.starts_with("Warning: ") && ["deprecated", "cluster-scoped"].iter().any(|part| line.contains(part)),
            "{what}: {errors}"
        );
    }
}

fn show_all(kubectl: &Kubectl, program: &Path, resources: &[Served]) {
    let kept: Vec<&str> = documents()
        .into_iter()
        .filter(|(version, kind, _)| resources.iter().any(|one| one.serves(version, kind) && one.can("get")))
        .map(|(_, _, document)| document)
        .collect();
    let manifest = kept.join("\n---\n");
    let run = |arguments: &[&str]| {
        let output = kubectl.run(arguments, &manifest);
        let (text, errors) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        assert!(
            output.status.success(),
            "{} {arguments:?}: {text}{errors}",
            program.display()
        );
        only_warnings(&format!("{} {arguments:?}", program.display()), &errors);
        text
    };
    let created = run(&["create", "-f", "-"]);
    assert_eq!(created.lines().count(), kept.len(), "{created}");
    assert!(created.lines().all(|line| line.ends_with(" created")), "{created}");

    let names = run(&["get", "-f", "-", "-o", "name"]);
    assert_eq!(names.lines().count(), kept.len(), "{names}");
    for format in [&["get", "-f", "-"][..], &["get", "-f", "-", "-o", "wide"]] {
        let tables = run(format);
        assert!(!tables.contains("<invalid>"), "{}: {tables}", program.display());
        for line in tables.lines() {
            // A utilisation that nobody has measured yet: kube-apiserver says so, too.
            let unmeasured = line.contains("<unknown>/80%");
            assert!(
                unmeasured || !line.contains("<unknown>"),
                "{}: {line} in {tables}",
                program.display()
            );
        }
    }
    let yaml = run(&["get", "-f", "-", "-o", "yaml"]);
    // Items and the list itself.
    assert_eq!(yaml.matches("\n  kind: ").count(), kept.len(), "{yaml}");
    let beta = |document: &str| {
        DESCRIBED_BY_BETA
            .iter()
            .any(|kind| document.contains(&format!("\nkind: {kind}\n")))
    };
    let (special, usual): (Vec<&str>, Vec<&str>) = kept.iter().partition(|document| beta(document));
    let described = kubectl.ok_with(&["describe", "-f", "-"], &usual.join("\n---\n"));
    assert_eq!(
        described.lines().filter(|line| line.starts_with("Name: ")).count(),
        usual.len(),
        "{described}"
    );
    for document in special {
        let output = kubectl.run(&["describe", "-f", "-"], document);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() || errors.contains("the server could not find the requested resource"),
            "{}: {errors}",
            program.display()
        );
    }

    // Those that are asked and not kept: a Pod is bound, access is reviewed.
    for (version, kind, document) in documents() {
        let own = resources
            .iter()
            .find(|one| one.serves(version, kind))
            .unwrap_or_else(|| panic!("{version} {kind} is not in discovery"));
        if !own.can("get") {
            kubectl.ok_with(&["create", "-f", "-", "-o", "json"], document);
        }
    }

    run(&["delete", "--wait=false", "-f", "-"]);
    let left = run(&["get", "-f", "-", "--ignore-not-found", "-o", "name"]);
    for name in left.lines() {
        assert!(
            OUTLIVING.iter().any(|kind| name.starts_with(kind)),
            "{}: {name} was deleted",
            program.display()
        );
    }
}

fn explain_all(kubectl: &Kubectl, program: &Path, resources: &[Served]) {
    let next = AtomicUsize::new(0);
    let explain = |one: &Served, more: &[&str]| {
        let version = format!("--api-version={}", one.version);
        let arguments = [&["explain", &one.resource, &version], more].concat();
        let text = kubectl.quiet(&arguments);
        let kind = text
            .lines()
            .find_map(|line| line.strip_prefix("KIND:"))
            .map(str::trim)
            .unwrap_or_default();
        assert_eq!(kind, one.kind, "{} {arguments:?}:\n{text}", program.display());
        text
    };
    let each = || {
        while let Some(one) = resources.get(next.fetch_add(1, Ordering::Relaxed)) {
            let plain = explain(one, &[]);
            assert!(
                plain.contains("apiVersion") && plain.contains("metadata"),
                "{}: {one:?}: {plain}",
                program.display()
            );
            let whole = explain(one, &["--recursive"]);
            // Names only, so shorter than the words about the first level, but one line at least for each field of it.
            assert!(whole.lines().count() > 5, "{}: {one:?}: {whole}", program.display());
            explain(one, &["--output=plaintext-openapiv2"]);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(each);
        }
    });
}

fn with_each_kubectl(work: impl Fn(&Kubectl, &Path, &[Served]) + Sync) {
    let mut programs = installed();
    if std::env::var_os(ALL).is_none() && programs.len() > 2 {
        // The names sort by version.
        programs[1..].sort();
        programs.truncate(2);
    }
    for program in &programs {
        // A server of its own: an APIService without a server behind it disturbs everyone's discovery.
        let kubectl = Kubectl::on(Arc::new(Server::ephemeral()), program, "probe".to_owned());
        let resources = served(&kubectl);
        assert!(resources.len() >= RESOURCES_MIN, "{resources:?}");
        work(&kubectl, program, &resources);
    }
}

#[test]
fn every_kind_is_explained() {
    with_each_kubectl(explain_all);
}

#[test]
fn every_kind_is_created_shown_described_and_deleted() {
    with_each_kubectl(show_all);
}

#[test]
fn no_kind_of_discovery_is_left_out() {
    let Some(kubectl) = Kubectl::new("kinds") else { return };
    let tried: BTreeSet<(String, String)> = documents()
        .into_iter()
        .map(|(version, kind, _)| (version.to_owned(), kind.to_owned()))
        .collect();
    for one in served(&kubectl) {
        assert!(
            !one.can("create")
                || tried.contains(&(one.version.clone(), one.kind.clone()))
                || one.version.contains(".example.com"),
            "{one:?} is not in tests/fixtures/kinds.yaml"
        );
    }
}
