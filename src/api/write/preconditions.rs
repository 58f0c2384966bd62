//! What a write demands of the object that it is about: that it is the one with a certain UID, or at a certain revision.

use super::object;
use super::target::Target;
use crate::api::status::{Cause, Status};
use crate::resources::Resource;
use crate::tree::Value;

/// The object must have this UID, if one is named; `old` is the object as it is, if there is one.
///
/// # Errors
/// 409 in the words of kube-apiserver's storage.
pub(super) fn check_uid(target: &Target, old: Option<&Value>, uid: &str) -> Result<(), Status> {
    let present = old.map_or("", |old| object::meta(old, "uid"));
    if uid.is_empty() || uid == present {
        return Ok(());
    }
    let what = format!("UID in precondition: {uid}, UID in object meta: {present}");
    Err(failed(target, &what))
}

/// The object must have this `resourceVersion`, if one is named.
///
/// # Errors
/// 409, as above.
pub(super) fn check_revision(target: &Target, old: &Value, revision: &str) -> Result<(), Status> {
    let present = object::meta(old, "resourceVersion");
    if revision.is_empty() || revision == present {
        return Ok(());
    }
    let what = format!("ResourceVersion in precondition: {revision}, ResourceVersion in object meta: {present}");
    Err(failed(target, &what))
}

fn failed(target: &Target, what: &str) -> Status {
    let resource = &target.resource;
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
         failed: {what}",
        prefix(resource),
        target.key(),
    );
    Status::conflict(&resource.group, &resource.plural, &target.name, &why)
}

/// Under which name kube-apiserver keeps objects of a resource in etcd: messages tell.
fn prefix(resource: &Resource) -> String {
    let (group, plural) = (&*resource.group, &*resource.plural);
    match (group, plural) {
        ("", "replicationcontrollers") => "controllers".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "services") => "services/specs".to_owned(),
        ("", "nodes") => "minions".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        ("apiextensions.k8s.io" | "apiregistration.k8s.io", _) => format!("{group}/{plural}"),
        _ if resource.custom.is_some() => format!("{group}/{plural}"),
        _ => plural.to_owned(),
    }
}

/// Refuses a change that names no revision, of kinds that take none such.
///
/// # Errors
/// 422.
pub(super) fn check_versioned(target: &Target, revision: Option<u64>) -> Result<(), Status> {
    let resource = &target.resource;
    if revision.is_some() || !resource.strategy.update_needs_version {
        return Ok(());
    }
    let cause = Cause {
        reason: "FieldValueInvalid".into(),
        message: "Invalid value: 0: must be specified for an update".into(),
        field: "metadata.resourceVersion".into(),
    };
    // Upstream names the resource here, not the kind.
    Err(Status::invalid(
        &resource.group,
        &resource.plural,
        &target.name,
        vec![cause],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::find;
    use crate::tree::json;

    #[test]
    fn a_failed_precondition_tells_where_kube_apiserver_keeps_the_object() {
        for (group, version, plural, key, told) in [
            ("", "v1", "configmaps", "a/n", "configmaps/a/n"),
            ("apps", "v1", "deployments", "a/n", "deployments/a/n"),
            ("", "v1", "services", "a/n", "services/specs/a/n"),
            ("", "v1", "endpoints", "a/n", "services/endpoints/a/n"),
            ("", "v1", "nodes", "n", "minions/n"),
            ("", "v1", "replicationcontrollers", "a/n", "controllers/a/n"),
            ("networking.k8s.io", "v1", "ingresses", "a/n", "ingress/a/n"),
            (
                "apiextensions.k8s.io",
                "v1",
                "customresourcedefinitions",
                "n",
                "apiextensions.k8s.io/customresourcedefinitions/n",
            ),
        ] {
            let target = Target::at(&find(group, version, plural).unwrap().into(), key);
            let old = json!({"metadata": {"uid": "u-1", "resourceVersion": "7"}});
            assert!(check_uid(&target, Some(&old), "").is_ok());
            assert!(check_uid(&target, Some(&old), "u-1").is_ok());
            let status = check_uid(&target, Some(&old), "u-2").unwrap_err();
            assert!(
                status.message.contains(&format!("Key: /registry/{told}, ")),
                "{}",
                status.message
            );
            assert!(check_uid(&target, None, "u-1").is_err());
            assert!(check_revision(&target, &old, "7").is_ok());
            assert!(check_revision(&target, &old, "8").is_err());
        }
    }
}
