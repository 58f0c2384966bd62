//! Rules of a Pod's spec that look at several fields, in a Pod or in a template. Parts of the spec have files of their own.

use std::collections::{HashMap, HashSet};

use crate::tree::Value;

use super::annotations::check_annotations;
use super::containers::check_containers;
use super::network::check_network;
use super::placement::check_placement;
use super::resources::check_pod_resources;
use super::security::check_security;
use super::volumes::check_volumes;
use crate::resources::FieldError;
use crate::resources::lookup::integer;
use crate::resources::validate::{At, capitalized};

/// What the rules of one part of a Pod's spec ask of the rest.
pub(super) struct Whole<'a> {
    pub(super) spec: At<'a>,
    /// The name of the Pod (`""` when it has none); `None` in a template.
    pub(super) pod: Option<&'a str>,
    /// The volumes that are sound, by name.
    pub(super) volumes: HashMap<&'a str, &'a Value>,
    /// The names of `spec.resourceClaims`.
    pub(super) claims: HashSet<&'a str>,
    /// `terminationGracePeriodSeconds`.
    pub(super) grace_s: Option<i64>,
    /// Whether users are those of the host.
    pub(super) host_users: bool,
    pub(super) host_network: bool,
}

impl<'a> Whole<'a> {
    /// The sound volume of that name.
    pub(super) fn volume(&self, name: &str) -> Option<&'a Value> {
        self.volumes.get(name).copied()
    }
}

/// Checks a template but for its labels: its spec, and annotations that say something about it.
pub(in crate::resources) fn check_pod_template(template: &At<'_>, errors: &mut Vec<FieldError>) {
    let spec = template.get("spec");
    check_spec(&spec, None, errors);
    let annotations = template.get("metadata.annotations");
    check_annotations(&annotations.named(template, "annotations"), &spec, errors);
    let ephemeral = spec.get("ephemeralContainers");
    if !ephemeral.is_empty() {
        errors.push(ephemeral.forbidden("ephemeral containers not allowed in pod template"));
    }
}

/// Checks the spec of a Pod of that name.
pub(super) fn check_spec<'a>(spec: &At<'a>, pod: Option<&'a str>, errors: &mut Vec<FieldError>) {
    let mut whole = Whole {
        spec: spec.clone(),
        pod,
        volumes: HashMap::new(),
        claims: HashSet::new(),
        grace_s: integer(spec.value, "/terminationGracePeriodSeconds"),
        host_users: spec.value.get("hostUsers").and_then(Value::as_bool) != Some(false),
        host_network: spec.value.get("hostNetwork").and_then(Value::as_bool) == Some(true),
    };
    whole.volumes = check_volumes(&whole, errors);
    check_claims(&mut whole, errors);
    check_containers(&whole, errors);
    check_pod_resources(&whole, errors);
    check_network(&whole, errors);
    check_placement(spec, errors);
    check_security(&whole, errors);
}

fn check_claims<'a>(whole: &mut Whole<'a>, errors: &mut Vec<FieldError>) {
    if whole.spec.value.get("resourceClaims").is_none() {
        return;
    }
    let mut names: HashSet<&'a str> = HashSet::new();
    for claim in whole.spec.get("resourceClaims").items() {
        let name = claim.get("name");
        if !name.is_empty() && !names.insert(name.text()) {
            errors.push(name.duplicate());
        }
        let wrong = match (
            claim.get("resourceClaimName").present(),
            claim.get("resourceClaimTemplateName").present(),
        ) {
            (true, true) => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            (false, false) => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            _ => continue,
        };
        errors.push(FieldError::invalid(&claim.field, &capitalized(claim.value), wrong));
    }
    whole.claims = names;
}
