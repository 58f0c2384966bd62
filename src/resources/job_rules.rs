//! Rules of Jobs, also of those that a CronJob makes.

use std::collections::HashSet;

use crate::tree::Value;

use super::label_selector::selects;
use super::lookup::{boolean, integer, present, text};
use super::networking_rules::domain_prefixed_path;
use super::validate::{At, capitalized, immutable, label_selector};
use super::workload_rules::check_template;
use super::{FieldError, names};

/// Most rules of a policy, and most conditions of a rule.
const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const MANAGER_LEN_MAX: usize = 63;
/// Most Pods at a time, and most failed indexes, of an indexed Job.
const INDEXED_MAX: i64 = 100_000;
/// The same for a Job with more completions than [`INDEXED_MAX`] and a limit of failures per index.
const HIGHLY_INDEXED_MAX: i64 = 10_000;
/// Longest text of indexes in a success policy, in bytes.
const INDEXES_LEN_MAX: usize = 64 * 1024;

/// Checks the spec of a Job or of a CronJob's template.
pub(super) fn check_job_spec(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    let manager = spec.get("managedBy");
    if manager.present() {
        if manager.is_empty() {
            errors.push(manager.required(""));
        } else {
            domain_prefixed_path(&manager, errors);
        }
        if manager.text().len() > MANAGER_LEN_MAX {
            errors.push(FieldError::too_long(&manager.field, MANAGER_LEN_MAX));
        }
    }
    check_indexes(spec, errors);
    check_failure_policy(spec, errors);
    let replacement = spec.get("podReplacementPolicy");
    let policed = spec.get("podFailurePolicy").present();
    let supported: &[&str] = if policed {
        &["Failed"]
    } else {
        &["Failed", "TerminatingOrFailed"]
    };
    if replacement.present() && !supported.contains(&replacement.text()) {
        errors.push(replacement.not_supported(supported));
    }
    let template = spec.get("template");
    check_template(&template, errors);
    let restarts = template.get("spec.restartPolicy");
    match restarts.text() {
        "" | "Always" => errors.push(restarts.required("valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if policed => {
            errors.push(restarts.invalid("only \"Never\" is supported when podFailurePolicy is specified"));
        }
        "OnFailure" | "Never" => {}
        _ => errors.push(restarts.not_supported(&["OnFailure", "Never"])),
    }
}

/// What an indexed Job must have, and what no other may.
fn check_indexes(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    let [completions, parallelism, per_index, failed] =
        ["completions", "parallelism", "backoffLimitPerIndex", "maxFailedIndexes"].map(|field| spec.get(field));
    let success = spec.get("successPolicy");
    if failed.present() && !per_index.present() {
        errors.push(per_index.required("when maxFailedIndexes is specified"));
    }
    let mode = spec.get("completionMode").text();
    if mode != "Indexed" {
        if success.present() {
            let shown = capitalized(success.value);
            let detail = "requires indexed completion mode";
            errors.push(FieldError::invalid(&success.field, &shown, detail));
        }
        let others = [per_index, failed].into_iter();
        for field in others.filter(|field| field.present() && matches!(mode, "" | "NonIndexed")) {
            errors.push(field.invalid("requires indexed completion mode"));
        }
        return;
    }
    let Some(count) = completions.integer() else {
        errors.push(completions.required("when completion mode is Indexed"));
        return;
    };
    let mut at_most = |field: &At<'_>, most: i64, when: &str| {
        if field.integer().is_some_and(|number| number > most) {
            errors.push(field.invalid(format_args!("must be less than or equal to {most}{when}")));
        }
    };
    at_most(&parallelism, INDEXED_MAX, " when completion mode is Indexed");
    at_most(&failed, INDEXED_MAX, "");
    if failed.integer().is_some_and(|failed| failed > count) {
        errors.push(failed.invalid("must be less than or equal to completions"));
    }
    if count > INDEXED_MAX && per_index.present() {
        if !failed.present() {
            let detail = format!("must be specified when completions is above {INDEXED_MAX}");
            errors.push(failed.required(&detail));
        }
        for field in [&parallelism, &failed] {
            if field.integer().is_some_and(|number| number > HIGHLY_INDEXED_MAX) {
                errors.push(field.invalid(format_args!(
                    "must be less than or equal to {HIGHLY_INDEXED_MAX} when completions are above {INDEXED_MAX} and used \
                     with backoff limit per index"
                )));
            }
        }
    }
    if success.present() {
        check_success_policy(&success.get("rules"), count, errors);
    }
}

fn check_success_policy(rules: &At<'_>, completions: i64, errors: &mut Vec<FieldError>) {
    if rules.is_empty() {
        errors.push(rules.required("at least one rules must be specified when the successPolicy is specified"));
    }
    check_count(rules, RULES_MAX, errors);
    for rule in rules.items() {
        let (indexes, wanted) = (rule.get("succeededIndexes"), rule.get("succeededCount"));
        if !indexes.present() && !wanted.present() {
            errors.push(rule.required("at least one of succeededCount or succeededIndexes must be specified"));
        }
        let mut named = 0;
        if indexes.present() {
            if indexes.text().len() > INDEXES_LEN_MAX {
                errors.push(FieldError::too_long(&indexes.field, INDEXES_LEN_MAX));
            }
            match read_indexes(indexes.text(), completions) {
                Ok(intervals) => named = intervals.iter().map(|(low, high)| high - low + 1).sum(),
                Err(wrong) => errors.push(indexes.invalid(format_args!("error parsing succeededIndexes: {wrong}"))),
            }
        }
        let Some(count) = wanted.integer() else { continue };
        wanted.not_negative(errors);
        if count > completions {
            let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.push(wanted.invalid(detail));
        }
        if indexes.present() && count > named {
            errors.push(wanted.invalid(format_args!(
                "must be less than or equal to {named} (the number of indexes in the specified succeededIndexes field)"
            )));
        }
    }
}

fn check_count(list: &At<'_>, most: usize, errors: &mut Vec<FieldError>) {
    let count = list.items().count();
    if count > most {
        errors.push(FieldError::too_many(&list.field, count, most));
    }
}

/// Reads indexes as `1,3-5,7`, in rising order and below `completions`: each interval, both ends included.
pub(super) fn read_indexes(text: &str, completions: i64) -> Result<Vec<(i64, i64)>, String> {
    let mut intervals: Vec<(i64, i64)> = Vec::new();
    for interval in text.split(',').filter(|_| !text.is_empty()) {
        let (low, high) = read_interval(interval, completions)?;
        if let Some((_, last)) = intervals.last()
            && *last >= low
        {
            return Err(format!("non-increasing order, previous: {last}, current: {low}"));
        }
        intervals.push((low, high));
    }
    Ok(intervals)
}

pub(super) fn read_interval(interval: &str, completions: i64) -> Result<(i64, i64), String> {
    let ends: Vec<&str> = interval.split('-').collect();
    if ends.len() > 2 {
        return Err(format!(
            "the fragment {interval:?} violates the requirement that an index interval can have at most two parts \
             separated by '-'"
        ));
    }
    let index = |text: &str| {
        let index: i64 = text
            .parse()
            .map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if index < completions {
            Ok(index)
        } else {
            Err(format!("too large index: {text:?}"))
        }
    };
    let low = index(ends[0])?;
    let Some(high) = ends.get(1) else {
        return Ok((low, low));
    };
    let high = index(high)?;
    if low >= high {
        return Err(format!("non-increasing order, previous: {low}, current: {high}"));
    }
    Ok((low, high))
}

fn check_failure_policy(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    let rules = spec.get("podFailurePolicy.rules");
    if rules.is_empty() {
        return;
    }
    check_count(&rules, RULES_MAX, errors);
    let names: HashSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec.get(format!("template.spec.{list}")).items())
        .map(|container| container.get("name").text())
        .collect();
    for rule in rules.items() {
        let action = rule.get("action");
        if action.text() == "FailIndex" && !spec.get("backoffLimitPerIndex").present() {
            errors.push(action.invalid("requires the backoffLimitPerIndex to be set"));
        }
        let (codes, conditions) = (rule.get("onExitCodes"), rule.get("onPodConditions"));
        check_count(&conditions, RULES_MAX, errors);
        if codes.present() {
            check_exit_codes(&codes, &names, errors);
        }
        let detail = match (codes.present(), !conditions.is_empty()) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        errors.push(FieldError::invalid_plain(&rule.field, detail));
    }
}

fn check_exit_codes(codes: &At<'_>, containers: &HashSet<&str>, errors: &mut Vec<FieldError>) {
    let container = codes.get("containerName");
    if container.present() && !containers.contains(container.text()) {
        errors.push(container.invalid("must be one of the container or initContainer names in the pod template"));
    }
    let values = codes.get("values");
    if values.is_empty() {
        errors.push(FieldError::invalid_shown(
            &values.field,
            "[]",
            "at least one value is required",
        ));
    }
    check_count(&values, EXIT_CODES_MAX, errors);
    let mut known = HashSet::new();
    let (mut last, mut ordered) = (i64::MIN, true);
    for value in values.items() {
        let code = value.integer().unwrap_or(0);
        if codes.get("operator").text() == "In" && code == 0 {
            errors.push(value.invalid("must not be 0 for the In operator"));
        }
        if !known.insert(code) {
            errors.push(value.duplicate());
        }
        ordered &= last <= code;
        last = code;
    }
    if !ordered {
        errors.push(values.invalid("must be ordered"));
    }
}

/// Labels by which a Job tells its Pods, with the field of metadata each has the value of. Those without a prefix are the
/// old ones.
pub(super) const OWN_LABELS: &[(&str, &str)] = &[
    ("batch.kubernetes.io/controller-uid", "uid"),
    ("batch.kubernetes.io/job-name", "name"),
    ("controller-uid", "uid"),
    ("job-name", "name"),
];

/// A Job selects its Pods, and they have its labels; `old` is what a change starts from.
pub(super) fn check_own_pods(old: Option<&Value>, job: &Value, errors: &mut Vec<FieldError>) {
    let root = At::root(job);
    let selector = root.get("spec.selector");
    if boolean(job, "/spec/manualSelector") != Some(true) && selector.present() {
        let labels = root.get("spec.template.metadata.labels");
        // A Job from before the prefixes is not asked for them.
        let has = |job: &Value, name: &str| lookup_label(job, name).is_some();
        let prefixed = old.is_none_or(|old| OWN_LABELS.iter().all(|(name, _)| has(old, name)));
        let mut expected = Value::Object(crate::tree::Map::new());
        for (name, field) in OWN_LABELS.iter().filter(|(name, _)| prefixed || !name.contains('/')) {
            let wanted = root.get("metadata").get(*field).text();
            if let Some(fields) = expected.as_object_mut() {
                fields.insert(*name, wanted.into());
            }
            let field = || format!("{}[{name}]", labels.field);
            let detail = || format!("must be '{wanted}'");
            match lookup_label(job, name) {
                None => errors.push(FieldError::required(field(), detail())),
                Some(found) if found != wanted => {
                    errors.push(FieldError::invalid(field(), labels.value, detail()));
                }
                Some(_) => {}
            }
        }
        if selects(selector.value, &expected) == Some(false) {
            errors.push(selector.invalid("`selector` not auto-generated"));
        }
    }
    let count = integer(job, "/spec/completions").unwrap_or(0);
    if text(job, "/spec/completionMode") == "Indexed" && count > 0 {
        let name = root.get("metadata.name");
        let last = format!("{}-{}", name.text(), count - 1);
        if !names::label(&last).is_empty() {
            let detail = format_args!("will not able to create pod with invalid DNS label: {last}");
            errors.push(name.invalid(detail));
        }
    }
}

fn lookup_label<'a>(job: &'a Value, name: &str) -> Option<&'a str> {
    super::lookup::map(job, "/spec/template/metadata/labels")?
        .get(name)?
        .as_str()
}

/// The selector of a Job is there, is sound and selects the template.
pub(super) fn check_job_selector(job: &Value, errors: &mut Vec<FieldError>) {
    let root = At::root(job);
    let selector = root.get("spec.selector");
    if !selector.present() {
        errors.push(selector.required(""));
    }
    label_selector(&selector, errors);
    let labels = root.get("spec.template.metadata.labels");
    if !selector.present() || selects(selector.value, labels.value) == Some(false) {
        errors.push(labels.invalid("`selector` does not match template `labels`"));
    }
}

/// What a change of a Job may not touch.
pub(super) fn check_job_change(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let field = |job, name: &'static str| At::root(job).get("spec").get(name);
    for name in ["selector", "completionMode", "backoffLimitPerIndex", "managedBy"] {
        immutable(old, new, format!("spec.{name}"), errors);
    }
    for name in ["podFailurePolicy", "successPolicy"] {
        let after = field(new, name);
        if field(old, name).value != after.value {
            let shown = capitalized(after.value);
            errors.push(FieldError::invalid(&after.field, &shown, "field is immutable"));
        }
    }
    let completions = field(new, "completions");
    if text(new, "/spec/completionMode") != "Indexed" {
        immutable(old, new, "spec.completions", errors);
    } else if completions.present()
        && field(old, "completions").value != completions.value
        && completions.value != field(new, "parallelism").value
    {
        errors.push(completions.invalid("can only be modified in tandem with spec.parallelism"));
    }
    let template = field(new, "template");
    let before = field(old, "template");
    // A suspended Job without Pods may still change where its Pods run and what they ask for.
    let idle = boolean(old, "/spec/suspend") == Some(true) && integer(old, "/status/active").unwrap_or(0) == 0;
    let fixed = before.value == template.value || idle && may_become(before.value, template.value);
    if !fixed {
        let shown = capitalized(template.value);
        errors.push(FieldError::invalid(&template.field, &shown, "field is immutable"));
    }
}

/// Whether two templates differ in nothing but what the template of an idle Job may change.
fn may_become(old: &Value, new: &Value) -> bool {
    rest_of_template(old) == rest_of_template(new)
}

fn rest_of_template(template: &Value) -> Value {
    let mut rest = template.clone();
    let mut without = |parent: &str, fields: &[&str]| {
        if let Some(map) = rest.pointer_mut(parent).and_then(Value::as_object_mut) {
            for field in fields {
                map.remove(field);
            }
        }
    };
    without("/metadata", &["labels", "annotations"]);
    without("/spec/affinity", &["nodeAffinity"]);
    let nothing =
        super::lookup::count(template, "/spec/affinity") == i64::from(present(template, "/spec/affinity/nodeAffinity"));
    without("/spec", &["nodeSelector", "tolerations", "schedulingGates"]);
    if nothing {
        without("/spec", &["affinity"]);
    }
    for list in ["containers", "initContainers"] {
        for at in 0..super::lookup::count(template, &format!("/spec/{list}")) {
            without(&format!("/spec/{list}/{at}"), &["resources"]);
        }
    }
    if rest
        .pointer("/metadata")
        .and_then(Value::as_object)
        .is_some_and(crate::tree::Map::is_empty)
        && let Some(fields) = rest.as_object_mut()
    {
        fields.remove("metadata");
    }
    rest
}

/// Warnings about the spec of a Job at that path.
pub(super) fn warn_job_spec(spec: &At<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let above = |field: &'static str, most| spec.get(field).integer().is_some_and(|number| number > most);
    let many = above("completions", INDEXED_MAX) && above("parallelism", HIGHLY_INDEXED_MAX);
    if many && spec.get("completionMode").text() == "Indexed" {
        warnings.push(format!(
            "{}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes \
             might not be able to track completedIndexes when a big number of indexes fail",
            spec.field
        ));
    }
    warnings.extend(super::core::pods::warnings::warn_pod_template(&spec.get("template")));
    warnings
}
