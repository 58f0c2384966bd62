//! Which Services a Pod concerns.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;

use super::backend::Backend;
use super::{RUN_MAX, SERVICES};
use crate::controllers::failure::Failure;
use crate::controllers::runtime::Change;
use crate::store::{Object, Range, Requirement, Selection, View};

/// Selectors that are remembered; then all are forgotten, and read anew. About 300 bytes each: 3 MiB at most.
const REMEMBERED_MAX: usize = 10_000;

/// Selectors of Services as they were read last: a Pod's change looks at all Services of its namespace.
#[derive(Debug, Default)]
pub(super) struct Selectors {
    read: Mutex<HashMap<String, (u64, Option<Selection>)>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Service {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    selector: Option<BTreeMap<String, String>>,
}

impl Selectors {
    /// The Services that a change of a Pod matters to: that select it, or did.
    pub(super) fn concerned(&self, change: &Change<'_>, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        if let Some(previous) = change.previous.filter(|_| !change.is_gone)
            && Backend::of(previous)? == Backend::of(change.object)?
            && labels(previous)? == labels(change.object)?
        {
            return Ok(Vec::new());
        }
        self.that_select(change.object, change.previous, view)
    }

    /// The Services that select a Pod as it is or as it was.
    pub(super) fn that_select(
        &self,
        pod: &Object,
        previous: Option<&Object>,
        view: &Arc<View>,
    ) -> Result<Vec<Arc<str>>, Failure> {
        let range = Range {
            namespace: pod.namespace().map(str::to_owned),
            after: None,
        };
        let mut keys = Vec::new();
        let mut listing = view.list(SERVICES, range, &Selection::all());
        while let Some(run) = listing.next(RUN_MAX)? {
            for service in run.objects() {
                if self.selects(&service, pod)? || previous.map_or(Ok(false), |it| self.selects(&service, it))? {
                    keys.push(service.key().into());
                }
            }
        }
        Ok(keys)
    }

    fn selects(&self, service: &Object, pod: &Object) -> Result<bool, Failure> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = matches!(read.get(service.key()), Some((revision, _)) if *revision == service.revision());
        if !is_known {
            if read.len() >= REMEMBERED_MAX {
                read.clear();
            }
            read.insert(service.key().to_owned(), (service.revision(), selection(service)?));
        }
        match read.get(service.key()) {
            Some((_, Some(selection))) => Ok(selection.matches(pod)?),
            _ => Ok(false),
        }
    }
}

fn selection(service: &Object) -> Result<Option<Selection>, Failure> {
    let read: Result<Service, _> = serde_json::from_slice(service.json()?);
    let read = read.map_err(|error| Failure::Metadata(service.key().to_owned(), error))?;
    let selector = read.spec.selector.filter(|selector| !selector.is_empty());
    let requirements = |selector: BTreeMap<String, String>| {
        let pairs = selector.into_iter();
        pairs
            .map(|(name, value)| Requirement::LabelIn {
                name,
                values: vec![value],
            })
            .collect()
    };
    Ok(selector.map(|selector| Selection {
        requirements: requirements(selector),
    }))
}

fn labels(object: &Object) -> Result<Vec<(&str, &str)>, Failure> {
    let pairs = object.sidecar()?.labels.iter();
    Ok(pairs.map(|pair| (pair.name.as_str(), pair.value.as_str())).collect())
}
