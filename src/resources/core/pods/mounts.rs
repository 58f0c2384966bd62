//! Rules of where containers see volumes: as directories (mounts) and as devices.

use std::collections::HashSet;

use crate::tree::Value;

use super::rules::Whole;
use crate::resources::FieldError;
use crate::resources::lookup::{boolean, list, text};
use crate::resources::validate::{At, descending_path, steps_back};

/// Rules of `volumeMounts`. kube-apiserver leaves the index out of some of its paths.
pub(super) fn mounts(container: &At<'_>, whole: &Whole<'_>, errors: &mut Vec<FieldError>) {
    let all = container.get("volumeMounts");
    let device_names = texts_of(container.value, "/volumeDevices", "/name");
    let device_paths = texts_of(container.value, "/volumeDevices", "/devicePath");
    let mut paths: HashSet<&str> = HashSet::new();
    for mount in all.items() {
        let (name, path) = (text(mount.value, "/name"), text(mount.value, "/mountPath"));
        let volume = whole.volume(name);
        if volume.is_none() {
            errors.push(FieldError::not_found(mount.get("name").field, &name.into()));
        }
        if !paths.insert(path) {
            errors.push(FieldError::invalid_text(
                mount.get("mountPath").field,
                path,
                "must be unique",
            ));
        }
        if device_names.contains(name) {
            let detail = "must not already exist in volumeDevices";
            errors.push(FieldError::invalid_text(mount.get("name").field, name, detail));
        }
        if device_paths.contains(path) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.push(FieldError::invalid_text(mount.get("mountPath").field, path, detail));
        }
        let image = volume.is_some_and(|volume| volume.get("image").is_some());
        for part in ["subPath", "subPathExpr"] {
            if mount.value.get(part).is_none() {
                continue;
            }
            let sub_path = mount.get(part);
            if image && !sub_path.is_empty() {
                errors.push(sub_path.invalid("not allowed in image volume sources"));
            }
            if part == "subPathExpr" && !sub_path.is_empty() && !text(mount.value, "/subPath").is_empty() {
                errors.push(sub_path.invalid("subPathExpr and subPath are mutually exclusive"));
            }
            descending_path(&sub_path.named(&all, part), errors);
        }
        if mount.value.get("mountPropagation").is_some() {
            propagation(
                container,
                &mount.get("mountPropagation").named(&all, "mountPropagation"),
                errors,
            );
        }
        if mount.value.get("recursiveReadOnly").is_some() {
            recursively_read_only(&mount, &all, errors);
        }
    }
}

/// What the items of a list have in one field.
fn texts_of<'a>(container: &'a Value, pointer: &str, field: &str) -> HashSet<&'a str> {
    list(container, pointer).iter().map(|item| text(item, field)).collect()
}

fn propagation(container: &At<'_>, mode: &At<'_>, errors: &mut Vec<FieldError>) {
    mode.one_of(&["Bidirectional", "HostToContainer", "None"], errors);
    if mode.text() == "Bidirectional" && boolean(container.value, "/securityContext/privileged") != Some(true) {
        errors.push(mode.forbidden("Bidirectional mount propagation is available only to privileged containers"));
    }
}

fn recursively_read_only<'a>(mount: &At<'a>, all: &At<'a>, errors: &mut Vec<FieldError>) {
    let mode = mount.get("recursiveReadOnly").named(all, "recursiveReadOnly");
    match mode.text() {
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if boolean(mount.value, "/readOnly") != Some(true) {
                errors.push(mode.forbidden("may only be specified when readOnly is true"));
            }
            if !matches!(text(mount.value, "/mountPropagation"), "" | "None") {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.push(mode.forbidden(detail));
            }
        }
        _ => errors.push(mode.not_supported(&["Disabled", "Enabled", "IfPossible"])),
    }
}

/// Rules of `volumeDevices`.
pub(super) fn devices(container: &At<'_>, whole: &Whole<'_>, errors: &mut Vec<FieldError>) {
    let mount_names = texts_of(container.value, "/volumeMounts", "/name");
    let mount_paths = texts_of(container.value, "/volumeMounts", "/mountPath");
    let (mut names, mut paths): (HashSet<&str>, HashSet<&str>) = (HashSet::new(), HashSet::new());
    for device in container.get("volumeDevices").items() {
        let (name_at, path_at) = (device.get("name"), device.get("devicePath"));
        let (name, path) = (name_at.text(), path_at.text());
        if !name.is_empty() && !names.insert(name) {
            errors.push(name_at.invalid("must be unique"));
        }
        let claimed = |volume: &Value| {
            volume
                .get("persistentVolumeClaim")
                .or_else(|| volume.get("ephemeral"))
                .is_some()
        };
        match whole.volume(name) {
            None => errors.push(FieldError::not_found(&name_at.field, &name.into())),
            Some(volume) if !claimed(volume) => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(name_at.invalid(detail));
            }
            Some(_) => {}
        }
        if paths.contains(path) {
            errors.push(path_at.invalid("must be unique"));
        }
        if steps_back(path) {
            errors.push(path_at.invalid("can not contain backsteps ('..')"));
        } else {
            paths.insert(path);
        }
        if mount_names.contains(name) {
            errors.push(name_at.invalid("must not already exist in volumeMounts"));
        }
        if mount_paths.contains(path) {
            errors.push(path_at.invalid("must not already exist as a path in volumeMounts"));
        }
    }
}
