//! Which volume suits a claim.

use std::cmp::Reverse;

use super::{class_of, is_for};
use crate::resources::quantity::Quantity;
use crate::resources::selects;
use crate::tree::Value;

/// The volume that suits a claim best: one that is kept for it, else the one with the fewest access modes beyond those that are asked
/// for, and of those the smallest. `waits`: only volumes that are kept for it count, for the scheduler chooses among others.
pub(super) fn best<'a>(claim: &Value, volumes: &'a [Value], waits: bool) -> Option<&'a Value> {
    let suits =
        |volume: &&Value| may_hold(claim, volume) && (is_for(volume, claim) || !waits && is_free(claim, volume));
    volumes
        .iter()
        .filter(suits)
        .min_by_key(|volume| (modes(volume).len(), Reverse(is_for(volume, claim)), capacity_of(volume)))
}

/// Why a volume that a claim names cannot be its; `None` when it can.
pub(super) fn mismatch(claim: &Value, volume: &Value) -> Option<&'static str> {
    if capacity_of(volume) < requested(claim) {
        Some("requested PV is too small")
    } else if class_of(volume) != class_of(claim) {
        Some("storageClassName does not match")
    } else if attributes_class(volume) != attributes_class(claim) {
        Some("volumeAttributesClassName does not match")
    } else if mode(volume) != mode(claim) {
        Some("incompatible volumeMode")
    } else if !has_modes(claim, volume) {
        Some("incompatible accessMode")
    } else {
        None
    }
}

/// What holds for any volume of this claim, also for one that is kept for it.
fn may_hold(claim: &Value, volume: &Value) -> bool {
    let reference = &volume["spec"]["claimRef"];
    (reference.is_null() || is_for(volume, claim))
        && capacity_of(volume) >= requested(claim)
        && mode(volume) == mode(claim)
        && has_modes(claim, volume)
        && volume["metadata"]["deletionTimestamp"].is_null()
}

fn is_free(claim: &Value, volume: &Value) -> bool {
    let selector = &claim["spec"]["selector"];
    volume["status"]["phase"] == "Available"
        && (selector.is_null() || selects(selector, &volume["metadata"]["labels"]) == Some(true))
        && class_of(volume) == class_of(claim)
        && attributes_class(volume) == attributes_class(claim)
}

fn modes(object: &Value) -> &[Value] {
    object["spec"]["accessModes"]
        .as_array()
        .map_or(&[], |modes| modes.as_slice())
}

fn has_modes(claim: &Value, volume: &Value) -> bool {
    modes(claim).iter().all(|mode| modes(volume).contains(mode))
}

fn mode(object: &Value) -> &str {
    object["spec"]["volumeMode"].as_str().unwrap_or("Filesystem")
}

fn attributes_class(object: &Value) -> &str {
    object["spec"]["volumeAttributesClassName"].as_str().unwrap_or("")
}

fn nanos(quantity: &Value) -> i128 {
    quantity.as_str().and_then(Quantity::parse).map_or(0, Quantity::nanos)
}

fn capacity_of(volume: &Value) -> i128 {
    nanos(&volume["spec"]["capacity"]["storage"])
}

/// What a claim asks for, in units of 10⁻⁹ bytes.
pub(super) fn requested(claim: &Value) -> i128 {
    nanos(&claim["spec"]["resources"]["requests"]["storage"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    fn volume(name: &str, storage: &str, edit: impl FnOnce(&mut Value)) -> Value {
        let mut volume = json!({"metadata": {"name": name, "labels": {"disk": name}}, "status": {"phase": "Available"},
            "spec": {"capacity": {"storage": storage}, "accessModes": ["ReadWriteOnce"], "storageClassName": "slow"}});
        edit(&mut volume);
        volume
    }

    fn claim(storage: &str, edit: impl FnOnce(&mut Value)) -> Value {
        let mut claim = json!({"metadata": {"name": "c", "namespace": "ns", "uid": "u"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "storageClassName": "slow", "resources": {"requests": {"storage": storage}}}});
        edit(&mut claim);
        claim
    }

    #[test]
    fn the_smallest_that_is_large_enough_is_taken() {
        let volumes = [
            volume("big", "10Gi", |_| ()),
            volume("small", "1Gi", |_| ()),
            volume("right", "5Gi", |_| ()),
            volume("many", "5Gi", |it| {
                it["spec"]["accessModes"] = json!(["ReadWriteOnce", "ReadOnlyMany"]);
            }),
            volume("block", "5Gi", |it| it["spec"]["volumeMode"] = "Block".into()),
            volume("fast", "5Gi", |it| it["spec"]["storageClassName"] = "fast".into()),
            volume("released", "5Gi", |it| it["status"]["phase"] = "Released".into()),
            volume("others", "5Gi", |it| {
                it["spec"]["claimRef"] = json!({"namespace": "ns", "name": "d"});
            }),
        ];
        let name =
            |claim: &Value| best(claim, &volumes, false).map(|found| found["metadata"]["name"].as_str().unwrap());
        assert_eq!(name(&claim("3Gi", |_| ())), Some("right"));
        assert_eq!(name(&claim("6Gi", |_| ())), Some("big"));
        assert_eq!(name(&claim("60Gi", |_| ())), None);
        assert_eq!(
            name(&claim("1Gi", |it| it["spec"]["accessModes"] = json!(["ReadOnlyMany"]))),
            Some("many")
        );
        assert_eq!(
            name(&claim("1Gi", |it| it["spec"]["volumeMode"] = "Block".into())),
            Some("block")
        );
        let selector = json!({"matchLabels": {"disk": "big"}});
        assert_eq!(name(&claim("1Gi", |it| it["spec"]["selector"] = selector)), Some("big"));
        assert_eq!(best(&claim("3Gi", |_| ()), &volumes, true), None);
    }

    #[test]
    fn one_that_is_kept_for_the_claim_goes_before_all() {
        let volumes = [
            volume("right", "5Gi", |_| ()),
            volume("kept", "50Gi", |it| {
                it["spec"]["claimRef"] = json!({"namespace": "ns", "name": "c"});
            }),
        ];
        for waits in [false, true] {
            let found = best(&claim("5Gi", |_| ()), &volumes, waits).unwrap();
            assert_eq!(found["metadata"]["name"], "kept");
        }
    }

    #[test]
    fn why_a_named_volume_cannot_be_had_is_told() {
        let volume = volume("v", "5Gi", |_| ());
        let why = |edit: fn(&mut Value)| mismatch(&claim("5Gi", edit), &volume);
        assert_eq!(why(|_| ()), None);
        assert_eq!(
            why(|it| it["spec"]["resources"]["requests"]["storage"] = "6Gi".into()),
            Some("requested PV is too small")
        );
        assert_eq!(
            why(|it| it["spec"]["storageClassName"] = "".into()),
            Some("storageClassName does not match")
        );
        assert_eq!(
            why(|it| it["spec"]["volumeMode"] = "Block".into()),
            Some("incompatible volumeMode")
        );
        assert_eq!(
            why(|it| it["spec"]["accessModes"] = json!(["ReadWriteMany"])),
            Some("incompatible accessMode")
        );
    }
}
