//! The manifests of `tests/fixtures`, as people apply them: once, again, changed, described, diffed and deleted.

use crate::tool::Kubectl;

const FILES: [&str; 7] = [
    "access.yaml",
    "batch.yaml",
    "database.yaml",
    "monitoring.yaml",
    "platform.yaml",
    "pods.yaml",
    "shop.yaml",
];

/// The kinds in the fixtures; more than this many objects in all.
const OBJECTS_MIN: usize = 60;

#[test]
fn every_manifest_can_be_applied_twice_and_deleted() {
    let Some(kubectl) = Kubectl::new("manifests") else {
        return;
    };
    let mut objects = 0;
    for file in FILES {
        let applied = kubectl.ok(&["apply", "-f", file]);
        for line in applied.lines() {
            // Those of the cluster may have been laid down by another test.
            assert!(
                line.ends_with(" created") || line.ends_with(" unchanged") || line.ends_with(" configured"),
                "{line}"
            );
        }
        objects += applied.lines().count();
        let again = kubectl.ok(&["apply", "-f", file]);
        for line in again.lines() {
            assert!(line.ends_with(" unchanged"), "applied again: {line}");
        }
        assert_eq!(
            kubectl.ok(&["diff", "-f", file]),
            "",
            "{file} differs from what is there"
        );
        let listed = kubectl.ok(&["get", "-f", file, "-o", "name"]);
        assert_eq!(listed.lines().count(), applied.lines().count(), "{file}");
        kubectl.ok(&["label", "-f", file, "seen=yes"]);
        for line in kubectl.ok(&["apply", "-f", file]).lines() {
            assert!(
                line.ends_with(" unchanged"),
                "a label of another writer is no change: {line}"
            );
        }
    }
    assert!(objects >= OBJECTS_MIN, "{objects} objects");
    for file in FILES {
        if file != "platform.yaml" {
            kubectl.ok(&["delete", "--wait=false", "-f", file]);
        }
    }
}
