//! Rules of security contexts and of what a Pod shares with its host, for each operating system.

use std::collections::HashSet;

use crate::tree::Value;

use super::rules::Whole;
use super::spec::CONTAINER_LISTS;
use crate::resources::FieldError;
use crate::resources::lookup::{boolean, list, text};
use crate::resources::validate::{At, capitalized, descending_path};

/// Rules of a container's security context.
pub(super) fn check_container_security(context: &At<'_>, host_users: bool, errors: &mut Vec<FieldError>) {
    if boolean(context.value, "/allowPrivilegeEscalation") == Some(false) {
        let mut refuse = |detail| {
            errors.push(FieldError::invalid(&context.field, &capitalized(context.value), detail));
        };
        if boolean(context.value, "/privileged") == Some(true) {
            refuse("cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        for added in list(context.value, "/capabilities/add") {
            if added == "CAP_SYS_ADMIN" {
                refuse("cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN");
            }
        }
    }
    if host_users && text(context.value, "/procMount") == "Unmasked" {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.push(context.get("procMount").invalid(detail));
    }
    profiles(context, errors);
}

/// What contexts of Pods and containers have in common.
fn profiles(context: &At<'_>, errors: &mut Vec<FieldError>) {
    if context.value.get("seccompProfile").is_some() {
        seccomp(&context.get("seccompProfile"), errors);
    }
    if context.value.get("appArmorProfile").is_some() {
        app_armor(&context.get("appArmorProfile"), errors);
    }
    if context.value.get("windowsOptions").is_some() {
        windows_options(&context.get("windowsOptions"), errors);
    }
}

fn seccomp(profile: &At<'_>, errors: &mut Vec<FieldError>) {
    let local = profile.get("localhostProfile");
    if profile.get("type").text() == "Localhost" {
        if local.present() {
            descending_path(&local, errors);
        } else {
            errors.push(local.required("must be set when seccomp type is Localhost"));
        }
    } else if local.present() {
        let detail = "can only be set when seccomp type is Localhost";
        errors.push(FieldError::invalid(&local.field, &capitalized(profile.value), detail));
    }
}

/// Longest path of a profile, in bytes: Linux' longest path without its end.
const PROFILE_LEN_MAX: usize = 4095;

fn app_armor(profile: &At<'_>, errors: &mut Vec<FieldError>) {
    let local = profile.get("localhostProfile");
    match profile.get("type").text() {
        "Localhost" => {
            let path = local.text();
            if path != path.trim() {
                errors.push(local.invalid("must not be padded with whitespace"));
            } else if path.is_empty() {
                errors.push(local.required("must be set when AppArmor type is Localhost"));
            }
            if path.len() > PROFILE_LEN_MAX {
                errors.push(FieldError::too_long(&local.field, PROFILE_LEN_MAX));
            }
        }
        "RuntimeDefault" | "Unconfined" if local.present() => {
            errors.push(local.invalid("can only be set when AppArmor type is Localhost"));
        }
        _ => {}
    }
}

/// Most KiB of a credential specification.
const CREDENTIALS_KIB_MAX: usize = 64;
/// Longest domain of a user's name, in bytes, and one more.
const DOMAIN_LEN_END: usize = 256;
/// Longest name of a user, in bytes.
const USER_LEN_MAX: usize = 104;

fn windows_options(options: &At<'_>, errors: &mut Vec<FieldError>) {
    let credentials = options.get("gmsaCredentialSpec");
    if credentials.present() {
        if credentials.is_empty() {
            errors.push(credentials.invalid("gmsaCredentialSpec cannot be an empty string"));
        } else if credentials.text().len() > CREDENTIALS_KIB_MAX * 1024 {
            let detail = format!("gmsaCredentialSpec size must be under {CREDENTIALS_KIB_MAX} KiB");
            errors.push(credentials.invalid(detail));
        }
    }
    let name = options.get("runAsUserName");
    if !name.present() {
        return;
    }
    let full = name.text();
    if full.is_empty() {
        errors.push(name.invalid("runAsUserName cannot be an empty string"));
    } else if full.bytes().any(|byte| byte.is_ascii_control()) {
        errors.push(name.invalid("runAsUserName cannot contain control characters"));
    } else if full.matches('\\').count() > 1 {
        errors.push(name.invalid("runAsUserName cannot contain more than one backslash"));
    } else {
        windows_user(&name, errors);
    }
}

/// `DOMAIN\USER` or `USER`.
fn windows_user(name: &At<'_>, errors: &mut Vec<FieldError>) {
    let (domain, user) = match name.text().split_once('\\') {
        Some((domain, user)) => (Some(domain), user),
        None => (None, name.text()),
    };
    let mut unless = |fine: bool, detail: String| {
        if !fine {
            errors.push(name.invalid(detail));
        }
    };
    if let Some(domain) = domain {
        let length = format!("runAsUserName's Domain length must be under {DOMAIN_LEN_END} characters");
        unless(domain.len() < DOMAIN_LEN_END, length);
        unless(
            is_net_bios(domain) || is_windows_domain(domain),
            "runAsUserName's Domain doesn't match the NetBios nor the DNS format".to_owned(),
        );
    }
    unless(!user.is_empty(), "runAsUserName's User cannot be empty".to_owned());
    let length = format!("runAsUserName's User length must not be longer than {USER_LEN_MAX} characters");
    unless(user.len() <= USER_LEN_MAX, length);
    let blank = !user.is_empty() && user.bytes().all(|byte| matches!(byte, b'.' | b' '));
    unless(
        !blank,
        "runAsUserName's User cannot contain only periods or spaces".to_owned(),
    );
    unless(
        !user.contains([
            '"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']',
        ]),
        "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]".to_owned(),
    );
}

fn is_net_bios(domain: &str) -> bool {
    (1..=15).contains(&domain.chars().count())
        && !domain.starts_with('.')
        && !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|'])
}

fn is_windows_domain(domain: &str) -> bool {
    domain.split('.').all(|label| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}

/// Rules of the Pod's own context and of what it shares with its host.
pub(super) fn check_security(whole: &Whole<'_>, errors: &mut Vec<FieldError>) {
    let spec = &whole.spec;
    if !whole.host_users {
        for shared in ["hostNetwork", "hostPID", "hostIPC"] {
            let shared = spec.get(shared);
            if shared.is_true() {
                errors.push(shared.forbidden("when `hostUsers` is false"));
            }
        }
    }
    if spec.value.get("os").is_some() {
        check_system(spec, errors);
    }
    let context = spec.get("securityContext");
    let Some(fields) = context.value.as_object() else {
        return;
    };
    if boolean(spec.value, "/shareProcessNamespace") == Some(true) && boolean(spec.value, "/hostPID") == Some(true) {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(FieldError::invalid(
            context.get("shareProcessNamespace").field,
            &true.into(),
            detail,
        ));
    }
    if !fields.is_empty() {
        profiles(&context, errors);
        if fields.contains_key("sysctls") {
            check_sysctls(&context.get("sysctls"), whole, errors);
        }
    }
    check_host_processes(whole, errors);
}

fn check_sysctls(settings: &At<'_>, whole: &Whole<'_>, errors: &mut Vec<FieldError>) {
    let host_ipc = boolean(whole.spec.value, "/hostIPC") == Some(true);
    let mut names = HashSet::new();
    for setting in settings.items() {
        let name = setting.get("name");
        if name.is_empty() {
            errors.push(name.required(""));
        } else if !is_sysctl(name.text()) {
            let rule = "must have at most 253 characters and match regex \
                        ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.push(name.invalid(rule));
        } else if names.contains(name.text()) {
            errors.push(name.duplicate());
        }
        let dotted = name.text().replace('/', ".");
        if whole.host_network && dotted.starts_with("net.") {
            errors.push(name.invalid("may not be specified when 'hostNetwork' is true"));
        } else if host_ipc && is_of_ipc(&dotted) {
            errors.push(name.invalid("may not be specified when 'hostIPC' is true"));
        }
        names.insert(name.text());
    }
}

/// Whether a setting belongs to the namespace of interprocess communication.
fn is_of_ipc(name: &str) -> bool {
    matches!(name, "kernel.sem")
        || ["kernel.shm", "kernel.msg", "fs.mqueue."]
            .iter()
            .any(|start| name.starts_with(start))
}

fn is_sysctl(name: &str) -> bool {
    let part = |part: &str| {
        let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        edge(part.bytes().next())
            && edge(part.bytes().next_back())
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'))
    };
    name.len() <= 253 && name.split(['.', '/']).all(part)
}

/// All containers of a Pod.
fn containers<'a>(spec: &At<'a>) -> impl Iterator<Item = At<'a>> + use<'a> {
    let spec = spec.clone();
    let lists = CONTAINER_LISTS.iter().map(move |list| spec.get(*list));
    lists.flat_map(|list| list.items())
}

/// Where one container is a process of a Windows host, all are.
fn check_host_processes(whole: &Whole<'_>, errors: &mut Vec<FieldError>) {
    const PATH: &str = "/securityContext/windowsOptions/hostProcess";
    let pod = boolean(whole.spec.value, PATH);
    let (mut all, mut on_host) = (0, 0);
    for container in containers(&whole.spec) {
        all += 1;
        let own = boolean(container.value, PATH);
        if let (Some(pod), Some(own)) = (pod, own)
            && pod != own
        {
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            errors.push(
                container
                    .get("securityContext.windowsOptions.hostProcess")
                    .invalid(detail),
            );
        }
        on_host += i32::from(own.or(pod) == Some(true));
    }
    if on_host == 0 {
        return;
    }
    if on_host != all {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(FieldError::invalid_text(&whole.spec.field, "", detail));
    }
    if !whole.host_network {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(FieldError::invalid(
            whole.spec.get("hostNetwork").field,
            &false.into(),
            detail,
        ));
    }
}

/// What only the other system knows may not be set.
fn check_system(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    let name = spec.get("os.name");
    match name.text() {
        "" => {}
        "linux" => {
            let contexts = std::iter::once(spec.get("securityContext"))
                .chain(containers(spec).map(|container| container.get("securityContext")));
            for context in contexts {
                let options = context.get("windowsOptions");
                if options.present() {
                    errors.push(options.forbidden("windows options cannot be set for a linux pod"));
                }
            }
        }
        "windows" => check_windows(spec, errors),
        _ => {
            let systems = ["linux", "windows"];
            errors.push(FieldError::not_supported(spec.get("os").field, name.value, &systems));
        }
    }
}

fn check_windows(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    let mut none = |of: &At<'_>, fields: &[&'static str]| {
        for field in fields {
            let field = of.get(*field);
            if field.present() && !matches!(field.value, Value::Array(list) if list.is_empty()) {
                errors.push(field.forbidden("cannot be set for a windows pod"));
            }
        }
    };
    none(spec, &["hostUsers", "shareProcessNamespace"]);
    for shared in ["hostPID", "hostIPC"] {
        if spec.get(shared).is_true() {
            none(spec, &[shared]);
        }
    }
    none(
        &spec.get("securityContext"),
        &[
            "appArmorProfile",
            "seLinuxOptions",
            "seccompProfile",
            "fsGroup",
            "fsGroupChangePolicy",
            "sysctls",
            "runAsUser",
            "runAsGroup",
            "supplementalGroups",
            "supplementalGroupsPolicy",
            "seLinuxChangePolicy",
        ],
    );
    for container in containers(spec) {
        none(
            &container.get("securityContext"),
            &[
                "appArmorProfile",
                "seLinuxOptions",
                "seccompProfile",
                "capabilities",
                "readOnlyRootFilesystem",
                "privileged",
                "allowPrivilegeEscalation",
                "procMount",
                "runAsUser",
                "runAsGroup",
            ],
        );
    }
}
