//! The group `storage.k8s.io`.

use crate::tree::Value;

use super::kind::{Kind, METADATA};
use super::lookup::{list, map, text, texts};
use super::row::Row;
use super::storage_rules;
use super::validate::{immutable, immutable_struct};

pub(super) const KINDS: &[Kind] = &[
    Kind::new("csidrivers.storage.k8s.io")
        .cells(|row| {
            let driver = row.object;
            let unset = |texts: Vec<&str>| {
                if texts.is_empty() {
                    "<unset>".to_owned()
                } else {
                    texts.join(",")
                }
            };
            let audiences = list(driver, "/spec/tokenRequests")
                .iter()
                .map(|request| text(request, "/audience"));
            row.name()
                .boolean_at("/spec/attachRequired", true)
                .boolean_at("/spec/podInfoOnMount", false)
                .boolean_at("/spec/storageCapacity", false)
                .text(unset(audiences.collect()))
                .boolean_at("/spec/requiresRepublish", false)
                .text(unset(texts(driver, "/spec/volumeLifecycleModes")))
                .age();
        })
        .validate(storage_rules::driver)
        .validate_update(|old, new, _, errors| {
            for field in ["spec.attachRequired", "spec.volumeLifecycleModes"] {
                immutable(old, new, field, errors);
            }
        }),
    Kind::new("csinodes.storage.k8s.io")
        .cells(|row| {
            row.name().count_at("/spec/drivers").age();
        })
        .validate(storage_rules::node)
        .validate_update(|old, new, _, errors| storage_rules::node_change(old, new, errors)),
    Kind::new("csistoragecapacities.storage.k8s.io")
        .validate(storage_rules::capacity)
        .validate_update(|old, new, _, errors| storage_rules::capacity_change(old, new, errors)),
    Kind::new("storageclasses.storage.k8s.io")
        .cells(storage_classes)
        .validate(storage_rules::storage_class)
        .validate_update(|old, new, _, errors| {
            for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
                immutable(old, new, field, errors);
            }
        }),
    Kind::new("volumeattachments.storage.k8s.io")
        .status_keeps(METADATA)
        .cells(|row| {
            row.name()
                .text_at("/spec/attacher")
                .text_at("/spec/source/persistentVolumeName")
                .text_at("/spec/nodeName")
                .boolean_at("/status/attached", false)
                .age();
        })
        .validate(storage_rules::attachment)
        .validate_update(|old, new, _, errors| immutable_struct(old, new, "spec", errors))
        .validate_status(storage_rules::attachment_status),
    Kind::new("volumeattributesclasses.storage.k8s.io")
        .cells(|row| {
            let name = default_marked(row.object, &["storageclass.kubernetes.io/is-default-class"]);
            row.text(name).text_at("/driverName").age();
        })
        .validate(storage_rules::attributes_class)
        .validate_update(|old, new, _, errors| {
            for field in ["driverName", "parameters"] {
                immutable(old, new, field, errors);
            }
        }),
];

fn storage_classes(row: &mut Row<'_>) {
    let name = default_marked(
        row.object,
        &[
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ],
    );
    row.text(name)
        .text_at("/provisioner")
        .text_or("/reclaimPolicy", "Delete")
        .text_or("/volumeBindingMode", "Immediate")
        .boolean_at("/allowVolumeExpansion", false)
        .age();
}

/// The name, with a mark if one of the annotations makes this class the default one.
fn default_marked(class: &Value, annotations: &[&str]) -> String {
    let name = text(class, "/metadata/name");
    let set = map(class, "/metadata/annotations");
    let is = |annotation: &&str| set.and_then(|set| set.get(annotation)).and_then(Value::as_str) == Some("true");
    if annotations.iter().any(is) {
        format!("{name} (default)")
    } else {
        name.to_owned()
    }
}
