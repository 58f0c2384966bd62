//! Spreads endpoints over slices, rewriting as few slices as it can (KEP-752).
//!
//! Endpoints that are where they should be stay there. What is new fills slices that are rewritten anyway, then one that has room for
//! all the rest, then new slices. Slices are never merged only because they could be: each rewriting is told to every node.

use std::collections::BTreeMap;

use crate::tree::{Value, json};

/// What is to be written.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Slices to be made, without names.
    pub(super) create: Vec<Value>,
    /// Slices as they should be, with the metadata of those that are stored.
    pub(super) update: Vec<Value>,
    /// Slices as they are stored, to be deleted.
    pub(super) delete: Vec<Value>,
    /// Slices that are as they should be.
    pub(super) unchanged: Vec<Value>,
}

/// What tells two endpoints apart: addresses and host name. All else of an endpoint can change in its place.
type Identity = (Vec<String>, String);

fn identity(endpoint: &Value) -> Identity {
    let addresses = endpoint["addresses"].as_array();
    let mut addresses: Vec<String> = addresses
        .into_iter()
        .flatten()
        .filter_map(|address| Some(address.as_str()?.to_owned()))
        .collect();
    addresses.sort();
    (addresses, endpoint["hostname"].as_str().unwrap_or("").to_owned())
}

/// What tells two lists of ports apart, whatever their order. No list is an empty one.
pub(super) fn port_key(ports: &Value) -> Vec<String> {
    let ports = ports.as_array();
    let mut key: Vec<String> = ports
        .into_iter()
        .flatten()
        .map(|port| {
            let text = |field: &str| port[field].as_str().unwrap_or("").to_owned();
            let number = port["port"].as_i64().unwrap_or(0);
            format!(
                "{}\0{number}\0{}\0{}",
                text("name"),
                text("protocol"),
                text("appProtocol")
            )
        })
        .collect();
    key.sort();
    key
}

/// Endpoints that are wanted behind one list of ports.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) ports: Value,
    endpoints: BTreeMap<Identity, Value>,
}

impl Wanted {
    pub(super) fn new(ports: Value) -> Self {
        Self {
            ports,
            endpoints: BTreeMap::new(),
        }
    }

    pub(super) fn insert(&mut self, endpoint: Value) {
        self.endpoints.insert(identity(&endpoint), endpoint);
    }

    pub(super) fn len(&self) -> usize {
        self.endpoints.len()
    }

    fn take(&mut self, endpoint: &Value) -> Option<Value> {
        self.endpoints.remove(&identity(endpoint))
    }

    /// Moves endpoints to a slice until it has `max` or there are none left.
    fn fill(&mut self, endpoints: &mut Vec<Value>, max: usize) {
        while endpoints.len() < max
            && let Some((_, endpoint)) = self.endpoints.pop_first()
        {
            endpoints.push(endpoint);
        }
    }
}

/// A slice while it is planned.
struct Slice {
    stored: Value,
    endpoints: Vec<Value>,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Unchanged,
    Changed,
    Empty,
}

/// Plans the slices of one list of ports and one family. `labels`: those that each is to have; `fresh`: a slice without endpoints and
/// ports to make new ones of.
pub(super) fn pack(mut wanted: Wanted, stored: Vec<Value>, labels: &Value, fresh: &Value, max: usize, plan: &mut Plan) {
    let mut slices: Vec<Slice> = stored
        .into_iter()
        .map(|stored| kept(&mut wanted, stored, labels))
        .collect();
    // Those that are rewritten anyway, the fullest first.
    let mut order: Vec<usize> = (0..slices.len())
        .filter(|&at| slices[at].state == State::Changed)
        .collect();
    order.sort_by_key(|&at| std::cmp::Reverse(slices[at].endpoints.len()));
    for at in order {
        wanted.fill(&mut slices[at].endpoints, max);
    }
    while wanted.len() > 0 {
        // One that has room for the rest, and of those the fullest.
        let left = wanted.len();
        let roomy = slices
            .iter_mut()
            .filter(|slice| slice.state == State::Unchanged && slice.endpoints.len() + left <= max)
            .max_by_key(|slice| slice.endpoints.len())
            .filter(|_| left < max);
        if let Some(slice) = roomy {
            wanted.fill(&mut slice.endpoints, max);
            slice.state = State::Changed;
            continue;
        }
        let mut new = fresh.clone();
        let mut endpoints = Vec::new();
        wanted.fill(&mut endpoints, max);
        new["endpoints"] = endpoints.into();
        new["ports"] = wanted.ports.clone();
        plan.create.push(new);
    }
    for Slice {
        stored,
        endpoints,
        state,
    } in slices
    {
        match state {
            State::Unchanged => plan.unchanged.push(stored),
            State::Empty => plan.delete.push(stored),
            State::Changed => {
                let mut new = stored;
                new["endpoints"] = endpoints.into();
                new["metadata"]["labels"] = labels.clone();
                plan.update.push(new);
            }
        }
    }
}

/// A stored slice with what it keeps.
fn kept(wanted: &mut Wanted, stored: Value, labels: &Value) -> Slice {
    let (mut endpoints, mut is_changed, mut count) = (Vec::new(), false, 0);
    for endpoint in stored["endpoints"].as_array().into_iter().flatten() {
        count += 1;
        if let Some(mut new) = wanted.take(endpoint) {
            // Hints are given when all is in its place.
            if !endpoint["hints"].is_null() {
                new["hints"] = endpoint["hints"].clone();
            }
            is_changed |= !is_alike(&new, endpoint);
            endpoints.push(new);
        }
    }
    let state = if endpoints.is_empty() && count > 0 {
        State::Empty
    } else if is_changed || endpoints.len() != count || stored["metadata"]["labels"] != *labels {
        State::Changed
    } else {
        State::Unchanged
    };
    Slice {
        stored,
        endpoints,
        state,
    }
}

fn is_alike(one: &Value, other: &Value) -> bool {
    ["nodeName", "zone", "targetRef", "conditions", "hints"]
        .iter()
        .all(|field| one[*field] == other[*field])
}

impl Plan {
    /// Writes what is new over what is to be deleted, as far as that goes.
    pub(super) fn recycle(&mut self, may_be_written_over: impl Fn(&Value) -> bool) {
        let mut left = Vec::new();
        for old in std::mem::take(&mut self.delete) {
            let fits = |new: &Value| new["addressType"] == old["addressType"] && may_be_written_over(&old);
            match self.create.pop_if(|new| fits(new)) {
                None => left.push(old),
                Some(mut new) => {
                    let metadata = new["metadata"].take();
                    new["metadata"] = old["metadata"].clone();
                    for field in ["labels", "annotations"] {
                        new["metadata"][field] = metadata[field].clone();
                    }
                    self.update.push(new);
                }
            }
        }
        self.delete = left;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.create.is_empty() && self.update.is_empty() && self.delete.is_empty()
    }
}

/// The key of a stored slice.
pub(super) fn key_of_slice(slice: &Value) -> String {
    let text = |field: &str| slice["metadata"][field].as_str().unwrap_or("");
    format!("{}/{}", text("namespace"), text("name"))
}

/// A name that a slice's own begins with. With the dash it would be too long a name for some.
pub(super) fn prefix(name: &str) -> String {
    if name.len() < 253 {
        format!("{name}-")
    } else {
        name.to_owned()
    }
}

/// A slice without endpoints.
pub(super) fn empty_slice(name: &str, namespace: &str, family: &str, labels: &Value, owners: Value) -> Value {
    let mut slice = json!({
        "metadata": {"generateName": prefix(name), "namespace": namespace},
        "addressType": family,
        "endpoints": [],
        "ports": [],
    });
    slice["metadata"]["labels"] = labels.clone();
    slice["metadata"]["ownerReferences"] = owners;
    slice
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 3;

    fn endpoint(number: usize) -> Value {
        json!({"addresses": [format!("10.0.0.{number}")], "conditions": {"ready": true}})
    }

    fn slice(name: &str, numbers: &[usize]) -> Value {
        let endpoints: Vec<Value> = numbers.iter().map(|&number| endpoint(number)).collect();
        let mut slice = json!({"metadata": {"name": name, "namespace": "ns", "labels": {}}});
        slice["endpoints"] = endpoints.into();
        slice
    }

    fn plan(stored: &[Value], wanted: impl IntoIterator<Item = usize>) -> Plan {
        let mut all = Wanted::new(json!([]));
        wanted.into_iter().for_each(|number| all.insert(endpoint(number)));
        let mut plan = Plan::default();
        pack(
            all,
            stored.to_vec(),
            &json!({}),
            &json!({"metadata": {}}),
            MAX,
            &mut plan,
        );
        plan
    }

    fn counts(plan: &Plan) -> [usize; 4] {
        [&plan.create, &plan.update, &plan.delete, &plan.unchanged].map(Vec::len)
    }

    fn numbers(slice: &Value) -> Vec<&str> {
        let endpoints = slice["endpoints"].as_array().unwrap().iter();
        endpoints
            .map(|endpoint| endpoint["addresses"][0].as_str().unwrap())
            .collect()
    }

    #[test]
    fn new_endpoints_fill_new_slices() {
        let plan = plan(&[], 0..7);
        assert_eq!(counts(&plan), [3, 0, 0, 0]);
        assert_eq!(
            plan.create.iter().map(|it| numbers(it).len()).collect::<Vec<_>>(),
            [3, 3, 1]
        );
    }

    #[test]
    fn what_is_in_its_place_is_not_written() {
        let stored = [slice("a", &[0, 1, 2]), slice("b", &[3])];
        assert_eq!(counts(&plan(&stored, 0..4)), [0, 0, 0, 2]);
        // One more goes where there is room for it; one that went leaves its slice alone.
        let more = plan(&stored, 0..5);
        assert_eq!(
            (counts(&more), &more.update[0]["metadata"]["name"]),
            ([0, 1, 0, 1], &"b".into())
        );
        let fewer = plan(&stored, [0, 2, 3]);
        assert_eq!(
            (counts(&fewer), numbers(&fewer.update[0])),
            ([0, 1, 0, 1], vec!["10.0.0.0", "10.0.0.2"])
        );
    }

    #[test]
    fn slices_that_are_rewritten_anyway_are_filled_first_and_empty_ones_go() {
        let stored = [slice("a", &[0, 1, 2]), slice("b", &[3]), slice("c", &[4])];
        let plan = plan(&stored, [0, 1, 3, 7]);
        assert_eq!(counts(&plan), [0, 1, 1, 1]);
        assert_eq!(numbers(&plan.update[0]), ["10.0.0.0", "10.0.0.1", "10.0.0.7"]);
        assert_eq!(plan.delete[0]["metadata"]["name"], "c");
    }

    #[test]
    fn what_is_made_is_written_over_what_goes() {
        let mut plan = plan(&[slice("a", &[0]), slice("b", &[1])], [5]);
        assert_eq!(counts(&plan), [1, 0, 2, 0]);
        plan.recycle(|_| true);
        assert_eq!(counts(&plan), [0, 1, 1, 0]);
        assert_eq!(plan.update[0]["metadata"]["name"], "a");
    }

    #[test]
    fn ports_are_one_list_in_any_order() {
        let ports = json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}]);
        let other = json!([{"name": "b", "port": 2}, {"name": "a", "port": 1}]);
        assert_eq!(port_key(&ports), port_key(&other));
        assert_eq!(port_key(&Value::Null), port_key(&json!([])));
        assert_ne!(port_key(&ports), port_key(&json!([{"name": "a", "port": 1}])));
    }
}
