//! Rules of slices of the devices that a driver has.

use crate::tree::Value;

use super::names::{binding, pool, qualified, taint};
use super::{is_too_long, refuse_repeated};
use crate::resources::FieldError;
use crate::resources::core::pods::placement::node_selector_term;
use crate::resources::lookup::{count, list, text};
use crate::resources::names::{label, subdomain};
use crate::resources::quantity::Quantity;
use crate::resources::storage_rules::driver_name;
use crate::resources::validate::{At, capitalized, immutable};

/// Most devices of a slice, and fewer where they have taints or share counters.
const DEVICES_MAX: usize = 128;
const ADVANCED_DEVICES_MAX: usize = 64;
/// Most sets of counters of a slice, counters of a set, and sets that a device takes from.
const COUNTER_SETS_MAX: usize = 8;
const COUNTERS_MAX: usize = 32;
const CONSUMPTIONS_MAX: usize = 2;
/// Most attributes and capacities of a device together, and most of its taints.
const PROPERTIES_MAX: usize = 32;
const TAINTS_MAX: usize = 16;
/// Longest value of an attribute, in bytes.
const VALUE_LEN_MAX: usize = 64;
/// Most amounts that a capacity may be asked for in.
const AMOUNTS_MAX: usize = 10;

/// What is wrong with a change of a slice.
pub(super) fn change(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    slice(Some(old), new, errors);
    for field in ["spec.pool.name", "spec.driver", "spec.nodeName"] {
        immutable(old, new, field, errors);
    }
}

/// What is wrong with a slice. What devices of `old` have already is tolerated.
pub(super) fn slice(old: Option<&Value>, slice: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(slice).get("spec");
    driver_name(&spec.get("driver"), errors);
    let of = spec.get("pool");
    pool(&of.get("name"), errors);
    let (slices, generation) = (of.get("resourceSliceCount"), of.get("generation"));
    if slices.integer().unwrap_or(0) <= 0 {
        let number = slices.integer().unwrap_or(0).into();
        errors.push(FieldError::invalid(&slices.field, &number, "must be greater than zero"));
    }
    if generation.integer().is_some_and(|generation| generation < 0) {
        errors.push(generation.invalid("must be greater than or equal to zero"));
    }
    check_place(&spec, errors);
    let (devices, counters) = (spec.get("devices"), spec.get("sharedCounters"));
    if devices.present() && counters.present() {
        let detail = "only one of `sharedCounters` or `devices` is allowed";
        errors.push(FieldError::invalid_text(&spec.field, "", detail));
    }
    let is_advanced = |device: &At<'_>| count(device.value, "/taints") + count(device.value, "/consumesCounters") > 0;
    let most = if devices.items().any(|device| is_advanced(&device)) {
        ADVANCED_DEVICES_MAX
    } else {
        DEVICES_MAX
    };
    if !is_too_long(&devices, most, errors) {
        let by_device = spec.get("perDeviceNodeSelection").is_true();
        for device in devices.items() {
            let before = old.and_then(|old| named(old, device.get("name").text()));
            check_device(before, &device, by_device, errors);
        }
        refuse_repeated(&devices, |device| device.get("name").text(), errors);
    }
    if !is_too_long(&counters, COUNTER_SETS_MAX, errors) {
        for set in counters.items() {
            check_counters(&set, "name", errors);
        }
        refuse_repeated(&counters, |set| set.get("name").text(), errors);
    }
}

fn named<'a>(slice: &'a Value, name: &str) -> Option<&'a Value> {
    let devices = list(slice, "/spec/devices").iter();
    devices.into_iter().find(|device| text(device, "/name") == name)
}

/// Which nodes the devices of a slice can be reached from is said in one way.
fn check_place(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    const RULE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut ways = Vec::new();
    let node = spec.get("nodeName");
    if node.present() {
        if node.is_empty() {
            errors.push(node.invalid("must be either unset or set to a non-empty string"));
        } else {
            ways.push("`nodeName`");
            node.check(subdomain(node.text()), errors);
        }
    }
    let selector = spec.get("nodeSelector");
    if selector.present() {
        ways.push("`nodeSelector`");
        let terms = selector.get("nodeSelectorTerms");
        for term in terms.items() {
            node_selector_term(&term, true, errors);
        }
        if terms.items().count() != 1 {
            let shown = capitalized(terms.value);
            let detail = "must have exactly one node selector term";
            errors.push(FieldError::invalid(&terms.field, &shown, detail));
        }
    }
    for (field, way) in [
        ("allNodes", "`allNodes`"),
        ("perDeviceNodeSelection", "`perDeviceNodeSelection`"),
    ] {
        let field = spec.get(field);
        if field.is_true() {
            ways.push(way);
        } else if field.present() {
            errors.push(field.invalid("must be either unset or set to true"));
        }
    }
    match ways[..] {
        [] => errors.push(spec.required(RULE)),
        [_] => {}
        _ => {
            let shown = format!("{{{}}}", ways.join(", "));
            let detail = format!("{RULE}, but multiple fields are set");
            errors.push(FieldError::invalid_text(&spec.field, &shown, detail));
        }
    }
}

fn check_device(old: Option<&Value>, device: &At<'_>, by_device: bool, errors: &mut Vec<FieldError>) {
    let name = device.get("name");
    name.check(label(name.text()), errors);
    let properties = count(device.value, "/attributes") + count(device.value, "/capacity");
    if properties > PROPERTIES_MAX as i64 {
        let detail = format!("the total number of attributes and capacities must not exceed {PROPERTIES_MAX}");
        errors.push(FieldError::invalid(&device.field, &properties.into(), detail));
    }
    let attributes = device.get("attributes");
    for (name, attribute) in attributes.entries() {
        qualified(name, &attributes.field, errors);
        check_attribute(&attribute, errors);
    }
    let is_same = |field: &str| old.is_some_and(|old| old.get(field) == device.value.get(field));
    if !is_same("capacity") {
        let capacities = device.get("capacity");
        for (name, capacity) in capacities.entries() {
            qualified(name, &capacities.field, errors);
            let policy = capacity.get("requestPolicy");
            if !policy.present() {
                continue;
            }
            if device.get("allowMultipleAllocations").is_true() {
                check_policy(&capacity.get("value"), &policy, errors);
            } else {
                errors.push(policy.forbidden("allowMultipleAllocations must be true"));
            }
        }
    }
    let taints = device.get("taints");
    if !is_same("taints") && !is_too_long(&taints, TAINTS_MAX, errors) {
        for one in taints.items() {
            taint(&one, errors);
        }
    }
    let consumptions = device.get("consumesCounters");
    if !is_too_long(&consumptions, CONSUMPTIONS_MAX, errors) {
        for consumption in consumptions.items() {
            check_counters(&consumption, "counterSet", errors);
        }
        refuse_repeated(
            &consumptions,
            |consumption| consumption.get("counterSet").text(),
            errors,
        );
    }
    check_device_place(device, by_device, errors);
    binding(device, errors);
}

/// Where one device can be reached from, if each says so for itself.
fn check_device_place(device: &At<'_>, by_device: bool, errors: &mut Vec<FieldError>) {
    let fields = ["nodeName", "nodeSelector", "allNodes"].map(|field| device.get(field));
    if !by_device {
        if fields.iter().any(At::present) {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true \
                in the ResourceSlice spec";
            errors.push(FieldError::invalid(&device.field, &Value::Null, detail));
        }
        return;
    }
    let [node, selector, all] = &fields;
    let mut ways = Vec::new();
    if node.present() {
        if node.is_empty() {
            errors.push(node.invalid("must not be empty"));
        } else {
            ways.push("`nodeName`");
            node.check(subdomain(node.text()), errors);
        }
    }
    if selector.present() {
        ways.push("`nodeSelector`");
        for term in selector.get("nodeSelectorTerms").items() {
            node_selector_term(&term, true, errors);
        }
    }
    if all.is_true() {
        ways.push("`allNodes`");
    } else if all.present() {
        errors.push(all.invalid("must be either unset or set to true"));
    }
    let detail = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to \
        true in the ResourceSlice spec";
    match ways[..] {
        [] => errors.push(device.required(detail)),
        [_] => {}
        _ => {
            let shown = format!("{{{}}}", ways.join(", "));
            errors.push(FieldError::invalid_text(&device.field, &shown, detail));
        }
    }
}

fn check_attribute(attribute: &At<'_>, errors: &mut Vec<FieldError>) {
    const ONE: &str = "exactly one value must be specified";
    let fields = attribute.value.as_object();
    match fields.map_or(0, |fields| fields.iter().filter(|(_, value)| !value.is_null()).count()) {
        0 => errors.push(FieldError::invalid_text(&attribute.field, "", ONE)),
        1 => {}
        _ => errors.push(attribute.invalid(ONE)),
    }
    let version = attribute.get("version");
    if version.present() && !is_version(version.text()) {
        errors.push(version.invalid("must be a string compatible with semver.org spec 2.0.0"));
    }
    for field in [attribute.get("string"), version] {
        if field.text().len() > VALUE_LEN_MAX {
            errors.push(FieldError::too_long(&field.field, VALUE_LEN_MAX));
        }
    }
}

/// Whether a text is a version of <https://semver.org> 2.0.0.
fn is_version(text: &str) -> bool {
    let (rest, build) = text
        .split_once('+')
        .map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, before) = rest
        .split_once('-')
        .map_or((rest, None), |(core, before)| (core, Some(before)));
    let is_number = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let is_word =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let is_before = |part: &str| is_word(part) && (is_number(part) || !part.bytes().all(|byte| byte.is_ascii_digit()));
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && before.is_none_or(|before| before.split('.').all(is_before))
        && build.is_none_or(|build| build.split('.').all(is_word))
}

/// A set of counters, or what a device takes from one.
fn check_counters(set: &At<'_>, name: &'static str, errors: &mut Vec<FieldError>) {
    let (name, counters) = (set.get(name), set.get("counters"));
    if name.is_empty() {
        errors.push(name.required(""));
    } else {
        name.check(label(name.text()), errors);
    }
    let len = counters.entries().count();
    if len == 0 {
        errors.push(counters.required(""));
    } else if len > COUNTERS_MAX {
        errors.push(FieldError::too_many(&counters.field, len, COUNTERS_MAX));
    } else {
        for (name, _) in counters.entries() {
            let wrong = label(name).into_iter();
            errors.extend(wrong.map(|what| FieldError::invalid_text(&counters.field, name, what)));
        }
    }
}

fn nanos(amount: &At<'_>) -> Option<i128> {
    Quantity::parse(amount.text()).map(Quantity::nanos)
}

/// In which amounts a capacity may be asked for.
fn check_policy<'a>(capacity: &At<'a>, policy: &At<'a>, errors: &mut Vec<FieldError>) {
    let (values, range, default) = (
        policy.get("validValues"),
        policy.get("validRange"),
        policy.get("default"),
    );
    match (!values.is_empty(), range.present()) {
        (true, true) => errors.push(policy.forbidden(
            "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time",
        )),
        (true, false) if !default.present() => errors.push(default.required("required when validValues is defined")),
        (false, true) if !default.present() => errors.push(default.required("required when validRange is defined")),
        (true, false) => check_values(capacity, &values, &default, errors),
        (false, true) => check_range(capacity, &range, &default, errors),
        (false, false) => {}
    }
}

fn check_values(capacity: &At<'_>, values: &At<'_>, default: &At<'_>, errors: &mut Vec<FieldError>) {
    let all: Vec<At<'_>> = values.items().collect();
    for pair in all.windows(2) {
        if nanos(&pair[0]) > nanos(&pair[1]) {
            errors.push(pair[1].invalid("values must be sorted in ascending order"));
        }
    }
    if !is_too_long(values, AMOUNTS_MAX, errors) {
        for value in &all {
            if nanos(value) > nanos(capacity) {
                let detail = format!("option is larger than capacity value: {}", capacity.text());
                errors.push(value.invalid(detail));
            }
        }
        refuse_repeated(values, At::text, errors);
    }
    if !all.iter().any(|value| nanos(value) == nanos(default)) {
        let detail = "default value is not valid according to the requestPolicy";
        errors.push(FieldError::invalid(&values.field, default.value, detail));
    }
}

fn check_range<'a>(capacity: &At<'a>, range: &At<'a>, default: &At<'a>, errors: &mut Vec<FieldError>) {
    let (least, most, step) = (range.get("min"), range.get("max"), range.get("step"));
    let Some(min) = nanos(&least) else {
        errors.push(least.required("required when validRange is defined"));
        return;
    };
    let whole = nanos(capacity).unwrap_or(0);
    let wanted = nanos(default).unwrap_or(0);
    let mut refuse = |field: &str, shown: &At<'_>, detail: String| {
        errors.push(FieldError::invalid(
            format!("{}.{field}", range.field),
            shown.value,
            detail,
        ));
    };
    if min > whole {
        refuse(
            "min",
            &least,
            format!("min is larger than capacity value: {}", capacity.text()),
        );
    }
    if wanted < min {
        refuse(
            "default",
            default,
            format!("default is less than min: {}", least.text()),
        );
    }
    if let Some(max) = nanos(&most) {
        if min > max {
            refuse("max", &least, format!("min is larger than max: {}", most.text()));
        }
        if max > whole {
            refuse(
                "max",
                &most,
                format!("max is larger than capacity value: {}", capacity.text()),
            );
        }
        if wanted > max {
            refuse("default", default, format!("default is more than max: {}", most.text()));
        }
    }
    let Some(by) = nanos(&step) else { return };
    if by <= 0 {
        refuse("step", &step, "must be greater than zero".to_owned());
        return;
    }
    if min.saturating_add(by) > whole {
        let sum = Quantity::parse(least.text()).zip(Quantity::parse(step.text()));
        let sum = sum.map_or_else(String::new, |(min, step)| min.plus(step).canonical());
        let detail = format!("one step {sum} is larger than capacity value: {}", capacity.text());
        refuse("step", &step, detail);
    }
    for value in [default, &most] {
        if nanos(value).is_some_and(|value| value.saturating_sub(min) % by != 0) {
            let detail = format!(
                "value is not a multiple of a given step ({}) from ({})",
                step.text(),
                least.text()
            );
            refuse("step", value, detail);
        }
    }
}
