//! Amounts of resources.

use super::names::{Name, Names};
use crate::scalars::quantity::Quantity;
use crate::tree::Value;

/// Amounts of resources: what a node has, what Pods ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Amounts {
    /// Thousandths of a core.
    pub(super) cpu_milli: i64,
    pub(super) memory_bytes: i64,
    pub(super) storage_bytes: i64,
    /// All other resources, by name: huge pages, devices. In their own units.
    pub(super) others: Vec<(Name, i64)>,
}

/// What a container without requests counts as where nodes are compared. Source: `pkg/scheduler/util/pod_resources.go`.
const CPU_MILLI_ASSUMED: i64 = 100;
const MEMORY_BYTES_ASSUMED: i64 = 200 << 20;

impl Amounts {
    /// Of a map of quantities; what is no quantity counts as nothing. `pods` is left out.
    pub(crate) fn of(map: &Value, names: &mut Names) -> Self {
        let mut amounts = Self::default();
        for (name, text) in map.as_object().into_iter().flatten() {
            let Some(quantity) = text.as_str().and_then(Quantity::parse) else {
                continue;
            };
            match name.as_str() {
                "cpu" => amounts.cpu_milli = scaled(quantity, 1_000_000),
                "memory" => amounts.memory_bytes = scaled(quantity, UNIT),
                "ephemeral-storage" => amounts.storage_bytes = scaled(quantity, UNIT),
                "pods" => {}
                _ => amounts.set(names.get(name), scaled(quantity, UNIT)),
            }
        }
        amounts
    }

    fn set(&mut self, name: Name, amount: i64) {
        match self.others.binary_search_by(|(other, _)| other.cmp(&name)) {
            Ok(at) => self.others[at].1 = amount,
            Err(at) => self.others.insert(at, (name, amount)),
        }
    }

    pub(super) fn other(&self, name: &str) -> i64 {
        let at = self.others.binary_search_by(|(other, _)| (**other).cmp(name));
        at.map_or(0, |at| self.others[at].1)
    }

    fn combine(&mut self, more: &Amounts, with: impl Fn(i64, i64) -> i64) {
        self.cpu_milli = with(self.cpu_milli, more.cpu_milli);
        self.memory_bytes = with(self.memory_bytes, more.memory_bytes);
        self.storage_bytes = with(self.storage_bytes, more.storage_bytes);
        for (name, amount) in &more.others {
            let amount = with(self.other(name), *amount);
            self.set(name.clone(), amount);
        }
    }

    pub(crate) fn add(&mut self, more: &Amounts) {
        self.combine(more, i64::saturating_add);
    }

    pub(crate) fn subtract(&mut self, less: &Amounts) {
        self.combine(less, i64::saturating_sub);
        self.others.retain(|(_, amount)| *amount != 0);
    }

    fn raise(&mut self, other: &Amounts) {
        self.combine(other, i64::max);
    }
}

const UNIT: i128 = 1_000_000_000;

/// Rounded up to units of so many nanos; what is negative counts as nothing.
fn scaled(quantity: Quantity, nanos: i128) -> i64 {
    let units = (quantity.nanos() + nanos - 1) / nanos;
    i64::try_from(units.max(0)).unwrap_or(i64::MAX)
}

/// `pods` of a node's allocatable.
pub(super) fn pods_max(allocatable: &Value) -> i64 {
    let quantity = allocatable["pods"].as_str().and_then(Quantity::parse);
    quantity.map_or(0, |quantity| scaled(quantity, UNIT))
}

/// Bytes of a claim's or a volume's `storage`.
pub(crate) fn storage_bytes(map: &Value) -> i64 {
    let quantity = map["storage"].as_str().and_then(Quantity::parse);
    quantity.map_or(0, |quantity| scaled(quantity, UNIT))
}

/// What a Pod asks for, and the same where containers that ask for nothing are assumed to need a little.
///
/// Containers run side by side; init containers one after the other before them, those that are restarted go on running. What the
/// Pod as a whole asks for counts in place of what its containers do. Rules: KEP-753, KEP-2837.
pub(super) fn of_pod(spec: &Value, names: &mut Names) -> (Amounts, Amounts) {
    let mut real = Amounts::default();
    let mut assumed = Amounts::default();
    let list = |field: &str| spec[field].as_array().map_or(&[][..], |list| list.as_slice());
    let mut of = |container: &Value| {
        let requests = &container["resources"]["requests"];
        let real = Amounts::of(requests, names);
        let mut assumed = real.clone();
        if requests["cpu"].is_null() {
            assumed.cpu_milli = CPU_MILLI_ASSUMED;
        }
        if requests["memory"].is_null() {
            assumed.memory_bytes = MEMORY_BYTES_ASSUMED;
        }
        (real, assumed)
    };
    for container in list("containers") {
        let (one, guess) = of(container);
        real.add(&one);
        assumed.add(&guess);
    }
    // What runs beside init containers so far, and the most that was needed at a time.
    let mut beside = (Amounts::default(), Amounts::default());
    let mut peak = (Amounts::default(), Amounts::default());
    for container in list("initContainers") {
        let (mut one, mut guess) = of(container);
        if container["restartPolicy"] == "Always" {
            real.add(&one);
            assumed.add(&guess);
            beside.0.add(&one);
            beside.1.add(&guess);
            (one, guess) = beside.clone();
        } else {
            one.add(&beside.0);
            guess.add(&beside.1);
        }
        peak.0.raise(&one);
        peak.1.raise(&guess);
    }
    real.raise(&peak.0);
    assumed.raise(&peak.1);
    let whole = &spec["resources"]["requests"];
    if whole.is_object() {
        let asked = Amounts::of(whole, names);
        for amounts in [&mut real, &mut assumed] {
            if !whole["cpu"].is_null() {
                amounts.cpu_milli = asked.cpu_milli;
            }
            if !whole["memory"].is_null() {
                amounts.memory_bytes = asked.memory_bytes;
            }
            for (name, amount) in asked.others.iter().filter(|(name, _)| name.starts_with("hugepages-")) {
                amounts.set(name.clone(), *amount);
            }
        }
    }
    let overhead = Amounts::of(&spec["overhead"], names);
    real.add(&overhead);
    assumed.add(&overhead);
    real.others.retain(|(_, amount)| *amount != 0);
    assumed.others.clear();
    (real, assumed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    fn cpu(spec: &Value) -> (i64, i64) {
        let (real, assumed) = of_pod(spec, &mut Names::default());
        (real.cpu_milli, assumed.cpu_milli)
    }

    fn asks(cpu: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn init_containers_count_as_the_most_at_a_time_and_restarted_ones_go_on() {
        let mut sidecar = asks("200m");
        sidecar["restartPolicy"] = "Always".into();
        let containers = vec![asks("500m"), json!({})];
        let mut spec = json!({"containers": []});
        spec["containers"] = containers.into();
        assert_eq!(cpu(&spec), (500, 600));
        spec["initContainers"] = vec![asks("2"), sidecar, asks("550m")].into();
        assert_eq!(cpu(&spec), (2000, 2000));
        spec["initContainers"][0] = asks("100m");
        assert_eq!(cpu(&spec), (750, 800));
        spec["overhead"] = json!({"cpu": "1"});
        assert_eq!(cpu(&spec), (1750, 1800));
        spec["resources"] = json!({"requests": {"cpu": "3"}});
        assert_eq!(cpu(&spec), (4000, 4000));
    }

    #[test]
    fn amounts_are_rounded_up_and_never_wrap() {
        let mut names = Names::default();
        let amounts = Amounts::of(
            &json!({"cpu": "1u", "memory": "1.5", "x.io/a": "9E", "pods": "5", "bad": "x"}),
            &mut names,
        );
        assert_eq!((amounts.cpu_milli, amounts.memory_bytes), (1, 2));
        let mut sum = amounts.clone();
        sum.add(&amounts);
        assert_eq!(sum.other("x.io/a"), i64::MAX);
        sum.subtract(&sum.clone());
        assert!(sum.others.is_empty());
    }
}
