//! Rules of single resources that decide how a write is carried out (upstream's registry strategies).

use crate::resources::Resource;

type Name = (&'static str, &'static str);

/// Resources whose deletion answers with the object (`ReturnDeletedObject`), not with a Status.
const OBJECT_ON_DELETE: &[Name] = &[
    ("", "namespaces"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("", "pods"),
    ("", "podtemplates"),
    ("", "resourcequotas"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("resource.k8s.io", "deviceclasses"),
    ("resource.k8s.io", "resourceclaims"),
    ("resource.k8s.io", "resourceclaimtemplates"),
    ("resource.k8s.io", "resourceslices"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "volumeattachments"),
];

fn among(list: &[Name], resource: &Resource) -> bool {
    list.iter()
        .any(|(group, plural)| resource.group == *group && resource.plural == *plural)
}

/// Whether a deletion answers with the object.
pub(super) fn answers_with_object(resource: &Resource) -> bool {
    among(OBJECT_ON_DELETE, resource)
}
