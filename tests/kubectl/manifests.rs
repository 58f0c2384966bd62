//! The manifests of `tests/fixtures`, as people apply them: once, again, changed, listed, diffed and deleted.

use crate::tool::{Kubectl, unchanged};

const FILES: [&str; 7] = [
    "access.yaml",
    "batch.yaml",
    "database.yaml",
    "monitoring.yaml",
    "platform.yaml",
    "pods.yaml",
    "shop.yaml",
];

/// There are at least this many objects in the fixtures.
const OBJECTS_MIN: usize = 60;

#[test]
fn every_manifest_can_be_applied_twice_and_deleted() {
    let Some(kubectl) = Kubectl::without_controllers("manifests") else {
        return;
    };
    let mut objects = 0;
    for file in FILES {
        let applied = kubectl.ok(&["apply", "-f", file]);
        for line in applied.lines() {
            // Those of the cluster may have been laid down by another test.
            let done = [" created", " unchanged", " configured"]
                .iter()
                .any(|end| line.ends_with(end));
            assert!(done, "{line}");
        }
        objects += applied.lines().count();
        unchanged(&kubectl, file);
        let listed = kubectl.ok(&["get", "-f", file, "-o", "name"]);
        assert_eq!(listed.lines().count(), applied.lines().count(), "{file}");
        assert_eq!(
            kubectl.ok(&["diff", "-f", file]),
            "",
            "{file} differs from what is there"
        );
        // A label of another writer is no change.
        kubectl.ok(&["label", "-f", file, "seen=yes"]);
        unchanged(&kubectl, file);
    }
    assert!(objects >= OBJECTS_MIN, "{objects} objects");
    for file in FILES {
        if file != "platform.yaml" {
            kubectl.ok(&["delete", "--wait=false", "-f", file]);
        }
    }
}
