//! Quotas: what objects take of them, and whether there is enough left. (Upstream's admission plugin ResourceQuota, and the rules of its
//! controller.)
//!
//! Rules: <https://kubernetes.io/docs/concepts/policy/resource-quotas/>.

mod usage;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Operation, Refused, Request, all_in, forbidden, items, text};
use crate::resources::Amounts;
use crate::resources::quantity::Quantity;
use crate::store::{Damaged, Range, Selection, View};
use crate::tree::{Map, Value};
use usage::Kind;

const RESOURCE: &str = "resourcequotas";

/// What a write takes of a quota.
#[derive(Debug, Clone)]
pub struct Charge {
    /// The quota's name.
    pub name: String,
    /// What is taken, by the names of resources.
    pub taken: Amounts,
}

impl Charge {
    /// The quota after it, or, with `back`, after it is taken back.
    pub fn apply(&self, quota: &Value, back: bool) -> Value {
        let mut quota = quota.clone();
        let mut used = used_of(&quota);
        for (name, amount) in &self.taken {
            let before = used.get(name).copied();
            let after = if back {
                before.map_or(*amount, |before| before.minus(*amount).at_least_nothing())
            } else {
                sum(before, *amount)
            };
            used.insert(name.clone(), after);
        }
        set_used(&mut quota, &used);
        quota
    }
}

fn sum(before: Option<Quantity>, more: Quantity) -> Quantity {
    match before {
        Some(before) if before.nanos() != 0 => before.plus(more),
        _ => more,
    }
}

fn amounts(map: &Value) -> Amounts {
    let amounts = map.as_object().into_iter().flatten();
    amounts
        .filter_map(|(name, amount)| Some((name.as_str().to_owned(), Quantity::parse(amount.as_str()?)?)))
        .collect()
}

fn used_of(quota: &Value) -> Amounts {
    amounts(&quota["status"]["used"])
}

fn set_used(quota: &mut Value, used: &Amounts) {
    if !quota["status"].is_object() {
        quota["status"] = Value::Object(Map::new());
    }
    quota["status"]["used"] = texts(used);
}

fn texts(amounts: &Amounts) -> Value {
    let texts = amounts
        .iter()
        .map(|(name, amount)| (name.clone(), Value::from(amount.canonical())));
    Value::Object(texts.collect())
}

/// `cpu=1,pods=2`.
fn told(amounts: &Amounts, only: &[&String]) -> String {
    let told = only
        .iter()
        .filter_map(|name| Some(format!("{name}={}", amounts.get(*name)?.canonical())));
    told.collect::<Vec<_>>().join(",")
}

/// Whether a write can take anything of a quota. Two looks at most.
pub(super) fn may_charge(view: &View, request: &Request<'_>) -> bool {
    let Some(namespace) = request.namespace else {
        return false;
    };
    view.count(RESOURCE, None) > 0
        && Kind::of(request.resource).is_charged(request.subresource, request.operation)
        && view.count(RESOURCE, Some(namespace)) > 0
}

/// What a write takes of the quotas of its namespace that it is not `charged` for yet.
///
/// # Errors
/// 403 when there is not enough left, or when it does not say how much it takes.
pub(super) fn charge(
    view: &Arc<View>,
    request: &Request<'_>,
    object: &Value,
    old: Option<&Value>,
    charged: &[Charge],
) -> Result<Vec<Charge>, Refused> {
    if !may_charge(view, request) {
        return Ok(Vec::new());
    }
    let kind = Kind::of(request.resource);
    let storage = &*request.resource.storage;
    let quotas = all_in(view, RESOURCE, request.namespace)?;
    let mut interesting = Vec::new();
    let is_open = |quota: &&Value| !charged.iter().any(|charge| quota["metadata"]["name"] == *charge.name);
    for quota in quotas.iter().filter(is_open) {
        let hard = amounts(&quota["status"]["hard"]);
        let tracked: Vec<&String> = hard.keys().filter(|name| kind.tracks(storage, name)).collect();
        if tracked.is_empty() || !scopes_of(&quota["spec"]).iter().all(|scope| kind.is_in(scope, object)) {
            continue;
        }
        let name = text(&quota["metadata"]["name"]);
        if let Some(missing) = kind.unsaid(&tracked, object) {
            return Err(forbidden(format!("failed quota: {name}: must specify {missing}")));
        }
        let used = used_of(quota);
        if tracked.iter().any(|tracked| !used.contains_key(*tracked)) {
            let names: Vec<&str> = tracked.iter().map(|name| name.as_str()).collect();
            return Err(forbidden(format!(
                "status unknown for quota: {name}, resources: {}",
                names.join(",")
            )));
        }
        interesting.push((name, hard, used));
    }
    if interesting.is_empty() {
        return Ok(Vec::new());
    }
    let now_s = jiff::Timestamp::now().as_second();
    let mut delta = kind.usage(storage, object, now_s);
    let negative: Vec<&str> = delta
        .iter()
        .filter(|(_, amount)| amount.nanos() < 0)
        .map(|(name, _)| name.as_str())
        .collect();
    if !negative.is_empty() {
        return Err(forbidden(format!(
            "quota usage is negative for resource(s): {}",
            negative.join(",")
        )));
    }
    if let Some(old) = old.filter(|_| request.operation == Operation::Update) {
        for (name, before) in kind.usage(storage, old, now_s) {
            let after = delta
                .get(&name)
                .map_or(before.minus(before).minus(before), |now| now.minus(before));
            delta.insert(name, after);
        }
    }
    delta.retain(|_, amount| amount.nanos() != 0);
    let mut charges = Vec::new();
    for (name, hard, used) in interesting {
        let mut taken = delta.clone();
        taken.retain(|name, _| hard.contains_key(name));
        if taken.is_empty() {
            continue;
        }
        let exceeds = |name: &String| {
            let after = sum(used.get(name).copied(), taken[name]);
            hard.get(name).is_some_and(|hard| after.nanos() > hard.nanos())
        };
        let exceeded: Vec<&String> = taken.keys().filter(|name| exceeds(name)).collect();
        if !exceeded.is_empty() {
            return Err(forbidden(format!(
                "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
                told(&taken, &exceeded),
                told(&used, &exceeded),
                told(&hard, &exceeded)
            )));
        }
        charges.push(Charge {
            name: name.to_owned(),
            taken,
        });
    }
    Ok(charges)
}

/// One of the conditions that objects must meet to be counted.
struct Scope<'a> {
    name: &'a str,
    operator: &'a str,
    values: &'a Value,
}

fn scopes_of(spec: &Value) -> Vec<Scope<'_>> {
    let plain = items(&spec["scopes"]).map(|name| Scope {
        name: text(name),
        operator: "Exists",
        values: &Value::Null,
    });
    let selected = items(&spec["scopeSelector"]["matchExpressions"]).map(|expression| Scope {
        name: text(&expression["scopeName"]),
        operator: text(&expression["operator"]),
        values: &expression["values"],
    });
    plain.chain(selected).collect()
}

/// Whether a change of an object of this kind can free something of a quota (its end always does).
pub fn can_free(storage: &str) -> bool {
    matches!(
        storage,
        "pods" | "services" | "persistentvolumeclaims" | "resourceclaims.resource.k8s.io"
    )
}

/// Built-in resources whose objects quotas count.
pub fn counted() -> Vec<&'static str> {
    let all = crate::resources::all().iter();
    let mut counted: Vec<&str> = all
        .filter(|resource| resource.namespaced && !resource.storage.is_empty() && resource.storage != "events")
        .map(|resource| &*resource.storage)
        .collect();
    counted.sort_unstable();
    counted.dedup();
    counted
}

/// The status that a quota should have, counted anew; `None` when it has it. Counting objects costs O(log n) a resource; what Pods, claims
/// and Services ask for costs reading all of them in the namespace.
///
/// # Errors
/// When an object cannot be read.
pub fn recount(view: &Arc<View>, namespace: &str, quota: &Value) -> Result<Option<Value>, Damaged> {
    let hard = amounts(&quota["spec"]["hard"]);
    let scopes = scopes_of(&quota["spec"]);
    let mut counted = Amounts::new();
    // What nobody counts keeps what is said of it.
    let said = used_of(quota);
    let mut by_storage: BTreeMap<String, Vec<&String>> = BTreeMap::new();
    for name in hard.keys() {
        match usage::storage_of(name) {
            Some(storage) => by_storage.entry(storage).or_default().push(name),
            None => {
                if let Some(amount) = said.get(name) {
                    counted.insert(name.clone(), *amount);
                }
            }
        }
    }
    let now_s = jiff::Timestamp::now().as_second();
    for (storage, names) in by_storage {
        let kind = Kind::of_storage(&storage);
        for name in &names {
            counted.insert((*name).clone(), Quantity::from_units(0));
        }
        let is_plain = scopes.is_empty() && names.iter().all(|name| kind.counts_each(&storage, name));
        if is_plain {
            let count = view.count(&storage, Some(namespace));
            let count = Quantity::from_units(i64::try_from(count).unwrap_or(i64::MAX));
            for name in names {
                counted.insert(name.clone(), count);
            }
            continue;
        }
        if !scopes.is_empty() && !kind.has_scopes() {
            continue;
        }
        let range = Range {
            namespace: Some(namespace.to_owned()),
            after: None,
        };
        let mut listing = view.list(&storage, range, &Selection::all());
        while let Some(run) = listing.next(64)? {
            for object in run.objects() {
                let object = super::read(&object)?;
                if !scopes.iter().all(|scope| kind.is_in(scope, &object)) {
                    continue;
                }
                for (name, amount) in kind.usage(&storage, &object, now_s) {
                    if let Some(all) = counted.get_mut(&name) {
                        *all = sum(Some(*all), amount);
                    }
                }
            }
        }
    }
    let (hard, used) = (quota["spec"]["hard"].clone(), texts(&counted));
    let status = &quota["status"];
    let same = |field: &str, wanted: &Value| amounts(&status[field]) == amounts(wanted);
    if same("hard", &hard) && same("used", &used) {
        return Ok(None);
    }
    let status = [("hard", hard), ("used", used)];
    Ok(Some(Value::Object(status.into_iter().collect())))
}
