//! The status of ValidatingAdmissionPolicies: whether their expressions fit the types that they are about.
//!
//! What does not fit is only told: expressions run whatever their types. Rules: "Type checking" of the documentation of
//! ValidatingAdmissionPolicy.

mod kinds;

use std::sync::Arc;

use super::claim::gone_is_fine;
use super::failure::Failure;
use super::metadata::is_same;
use super::queue::Done;
use super::runtime::Controller;
use crate::api::Client;
use crate::cel::{Environment, Program};
use crate::resources::{self, ResourceRef};
use crate::store::View;
use crate::tree::{Value, json};
use kinds::Described;

const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
/// Bytes of one warning.
const WARNING_MAX: usize = 16 * 1024;

pub(super) struct PolicyStatus {
    client: Client,
    policies: ResourceRef,
}

impl PolicyStatus {
    /// `None` if there is no such kind.
    pub(super) fn new(client: Client) -> Option<Self> {
        let policies = resources::stored(POLICIES)?.into();
        Some(Self { client, policies })
    }

    fn warnings(&self, view: &Arc<View>, policy: &Value) -> Result<Vec<Value>, Failure> {
        let spec = &policy["spec"];
        let kinds = kinds::of_policy(&self.client, view, spec)?;
        let params = match (
            spec["paramKind"]["apiVersion"].as_str(),
            spec["paramKind"]["kind"].as_str(),
        ) {
            (Some(api_version), Some(kind)) => kinds::of_kind(&self.client, view, api_version, kind)?,
            _ => None,
        };
        let mut warnings = Vec::new();
        for (index, validation) in spec["validations"].as_array().into_iter().flatten().enumerate() {
            for field in ["expression", "messageExpression"] {
                let Some(expression) = validation[field].as_str().filter(|text| !text.is_empty()) else {
                    continue;
                };
                let mut told: Vec<String> = Vec::new();
                for kind in &kinds {
                    if let Some(error) = misfit(spec, kind, params.as_ref(), expression) {
                        told.push(format!("{}: {error}\n", kind.name));
                    }
                }
                if !told.is_empty() {
                    let mut warning = told.join("\n");
                    if warning.len() > WARNING_MAX {
                        warning.truncate(warning.floor_char_boundary(WARNING_MAX));
                    }
                    warnings
                        .push(json!({"fieldRef": format!("spec.validations[{index}].{field}"), "warning": warning}));
                }
            }
        }
        Ok(warnings)
    }
}

/// What is wrong with an expression about objects of this kind.
fn misfit(spec: &Value, kind: &Described, params: Option<&Described>, expression: &str) -> Option<String> {
    fn typed(described: &Described) -> (&Value, &str) {
        (&described.schema, &described.kind)
    }
    let mut environment = Environment::of_admission_typed(typed(kind), params.map(typed), !spec["paramKind"].is_null());
    for variable in spec["variables"].as_array().into_iter().flatten() {
        let (Some(name), Some(text)) = (variable["name"].as_str(), variable["expression"].as_str()) else {
            continue;
        };
        let program = Program::compile(text, &environment).ok();
        environment = environment.with_composed(name, program.as_ref());
    }
    Program::compile(expression, &environment)
        .err()
        .map(|error| error.to_string())
}

impl Controller for PolicyStatus {
    fn resource(&self) -> &'static str {
        POLICIES
    }

    async fn look(&self, name: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(POLICIES, name)? else {
            return Ok(Done::Settled);
        };
        let policy = self.client.read(&self.policies, &object)?;
        let generation = &policy["metadata"]["generation"];
        if policy["status"]["observedGeneration"] == *generation {
            return Ok(Done::Settled);
        }
        let warnings = self.warnings(&view, &policy)?;
        let edit = |old: &Value| {
            if !is_same(old, &policy) {
                return None;
            }
            let mut new = old.clone();
            new["status"]["observedGeneration"] = generation.clone();
            new["status"]["typeChecking"] = json!({});
            if !warnings.is_empty() {
                new["status"]["typeChecking"]["expressionWarnings"] = warnings.clone().into();
            }
            Some(new)
        };
        gone_is_fine(self.client.change(&self.policies, Some("status"), name, edit).await)?;
        Ok(Done::Settled)
    }
}
