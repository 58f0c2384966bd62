//! Built-in plugins: what the server itself fills in, refuses and counts.
//!
//! Objects are in the shape that they are stored in; of subresources whose body is another object (a Binding, an Eviction, the
//! options of a CONNECT) they are that body.
//!
//! Each plugin looks at what it is about and at nothing else: a Pod in a namespace without quotas, ranges and labels costs a look for
//! each of those, and one for its account.

mod accounts;
mod certificates;
mod classes;
mod limits;
mod names;
mod nodes;
mod owners;
mod pod_security;
pub mod quota;
mod volumes;

use std::sync::Arc;

use super::{Operation, Refused, Request};
use crate::cel::authorizer::Authorizer;
use crate::resources;
use crate::store::{Damaged, Object, Range, Selection, View};
use crate::tree::{List, Value};
use names::Name;
pub use names::Plugins;
pub use nodes::may_set_label;

impl Plugins {
    /// What plugins fill in of a new or changed object, or of the body of a subresource; `old` is what is stored. Nobody manages
    /// the fields that they set. Called again when a policy or a webhook changed the object.
    ///
    /// # Errors
    /// What they refuse before anything else is asked.
    pub fn mutate(
        &self,
        view: &Arc<View>,
        request: &Request<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Refused> {
        let namespace = request.namespace.unwrap_or("");
        if self.has(Name::NodeRestriction)
            && let Some(node) = nodes::who(request)?
        {
            nodes::restrict(view, request, node, Some(object), old)?;
        }
        match (&*request.resource.storage, request.subresource, request.operation) {
            ("pods", "", Operation::Create) => {
                if self.has(Name::LimitRanger) {
                    limits::mutate(view, namespace, object)?;
                }
                if self.has(Name::ServiceAccount) {
                    accounts::mutate(view, request, object)?;
                }
                if self.has(Name::Priority) {
                    classes::prioritize(view, object)?;
                }
                resources::tolerate_failing_nodes(object);
                if self.has(Name::RuntimeClass) {
                    classes::give_overhead(view, object)?;
                }
                if self.has(Name::PodTopologyLabels) {
                    let node = text(&object["spec"]["nodeName"]).to_owned();
                    nodes::copy_topology(view, &node, object)?;
                }
                Ok(())
            }
            ("pods", "resize", Operation::Update) if self.has(Name::LimitRanger) => {
                limits::mutate(view, namespace, object)
            }
            ("pods", "binding", Operation::Create) if self.has(Name::PodTopologyLabels) => bind(view, object),
            ("persistentvolumeclaims", "", Operation::Create) if self.has(Name::DefaultStorageClass) => {
                classes::choose_storage(view, object)
            }
            ("ingresses.networking.k8s.io", "", Operation::Create) if self.has(Name::DefaultIngressClass) => {
                classes::choose_ingress(view, object)
            }
            ("", "", Operation::Create)
                if &*request.resource.plural == "bindings" && self.has(Name::PodTopologyLabels) =>
            {
                bind(view, object)
            }
            _ => Ok(()),
        }
    }

    /// What plugins say of a write as it would be made: no `object` for a deletion, no `old` for a creation. `rights` are those of who
    /// asks.
    ///
    /// # Errors
    /// What they refuse.
    pub fn validate(
        &self,
        view: &Arc<View>,
        request: &Request<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
        rights: &dyn Authorizer,
        warnings: &mut Vec<String>,
    ) -> Result<(), Refused> {
        let namespace = request.namespace.unwrap_or("");
        let Some(object) = object else {
            if self.has(Name::NodeRestriction)
                && let Some(node) = nodes::who(request)?
            {
                nodes::restrict(view, request, node, None, old)?;
            }
            return Ok(());
        };
        match (&*request.resource.storage, request.subresource, request.operation) {
            ("pods", "", Operation::Create) => {
                if self.has(Name::LimitRanger) {
                    limits::validate_pod(view, namespace, object)?;
                }
                if self.has(Name::RuntimeClass) {
                    classes::check_overhead(view, object)?;
                }
            }
            ("pods", "resize", Operation::Update) if self.has(Name::LimitRanger) => {
                limits::validate_pod(view, namespace, object)?;
            }
            ("pods", "ephemeralcontainers", Operation::Update) if self.has(Name::ServiceAccount) => {
                accounts::validate(view, request, object)?;
            }
            ("persistentvolumeclaims", "", Operation::Create | Operation::Update) => {
                if self.has(Name::LimitRanger) {
                    limits::validate_claim(view, namespace, object)?;
                }
                if let Some(old) = old
                    && self.has(Name::PersistentVolumeClaimResize)
                {
                    volumes::check_resize(view, object, old)?;
                }
            }
            ("certificatesigningrequests.certificates.k8s.io", part, _) => {
                let none = Value::Null;
                let old = old.unwrap_or(&none);
                match part {
                    "" if self.has(Name::CertificateSubjectRestriction) => {
                        certificates::check_subject(request, object)?;
                    }
                    "approval" if self.has(Name::CertificateApproval) => certificates::check_approval(rights, old)?,
                    "status" if self.has(Name::CertificateSigning) => certificates::check_signing(rights, object, old)?,
                    _ => {}
                }
            }
            ("priorityclasses.scheduling.k8s.io", "", _) if self.has(Name::Priority) => {
                classes::check_only_default(view, object)?;
            }
            _ => {}
        }
        if self.has(Name::OwnerReferencesPermissionEnforcement) {
            owners::check(rights, request, object, old)?;
        }
        if self.has(Name::PodSecurity) && matches!(request.operation, Operation::Create | Operation::Update) {
            pod_security::validate(view, request, object, old, warnings)?;
        }
        Ok(())
    }

    /// What plugins tell the audit log of a write that they are asked about; keys and texts.
    ///
    /// # Errors
    /// When a namespace cannot be read.
    pub fn for_audit(
        &self,
        view: &View,
        request: &Request<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Vec<(&'static str, String)>, Damaged> {
        if self.has(Name::PodSecurity) && matches!(request.operation, Operation::Create | Operation::Update) {
            pod_security::for_audit(view, request, object, old)
        } else {
            Ok(Vec::new())
        }
    }

    /// What a write takes of quotas that it is not `charged` for yet, once everything else has agreed. Costs a look where there are no
    /// quotas.
    ///
    /// # Errors
    /// 403 when there is not enough left.
    pub fn charge(
        &self,
        view: &Arc<View>,
        request: &Request<'_>,
        object: &Value,
        old: Option<&Value>,
        charged: &[quota::Charge],
    ) -> Result<Vec<quota::Charge>, Refused> {
        if self.has(Name::ResourceQuota) {
            quota::charge(view, request, object, old, charged)
        } else {
            Ok(Vec::new())
        }
    }

    /// Whether a write can have to do with a quota at all.
    pub fn charges(&self, view: &View, request: &Request<'_>) -> bool {
        self.has(Name::ResourceQuota) && quota::may_charge(view, request)
    }
}

fn bind(view: &View, binding: &mut Value) -> Result<(), Refused> {
    let node = text(&binding["target"]["name"]).to_owned();
    nodes::copy_topology(view, &node, binding)
}

fn forbidden(why: impl Into<String>) -> Refused {
    Refused::Forbidden(why.into())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn items(list: &Value) -> std::slice::Iter<'_, Value> {
    list.as_array().map_or(&[][..], List::as_slice).iter()
}

/// A stored object.
fn read(object: &Object) -> Result<Value, Damaged> {
    Ok(serde_json::from_slice(object.json()?).unwrap_or_default())
}

/// All objects of a resource of which there are few, in one namespace or in all.
fn all_in(view: &Arc<View>, storage: &str, namespace: Option<&str>) -> Result<Vec<Value>, Damaged> {
    let range = Range {
        namespace: namespace.map(str::to_owned),
        after: None,
    };
    let mut listing = view.list(storage, range, &Selection::all());
    let mut all = Vec::new();
    while let Some(run) = listing.next(64)? {
        for object in run.objects() {
            all.push(read(&object)?);
        }
    }
    Ok(all)
}
