//! Rules of the status of Jobs.

use std::collections::HashSet;

use crate::tree::Value;

use super::FieldError;
use super::job_rules::{read_indexes, read_interval};
use super::lookup::{boolean, condition_true, integer, present, text, time_s};
use super::validate::{At, capitalized};

/// Checks a change of a Job's status. Most rules hold only where the fields that they are about change, so that a status
/// that is wrong already can be mended bit by bit.
pub(super) fn check_job_status(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let status = At::root(new).get("status");
    check_uncounted(&status.get("uncountedTerminatedPods"), errors);
    check_conditions(old, new, &status.get("conditions"), errors);
    check_times(old, new, &status, errors);
    check_finished(old, new, &status, errors);
    check_status_indexes(old, new, &status, errors);
    let ready = status.get("ready");
    let active = integer(new, "/status/active").unwrap_or(0);
    if (differ(old, new, "ready") || differ(old, new, "active")) && ready.integer().is_some_and(|ready| ready > active)
    {
        errors.push(ready.invalid("cannot set more ready pods than active"));
    }
    // An indexed Job whose completions follow its parallelism may shrink.
    let elastic = text(new, "/spec/completionMode") == "Indexed"
        && integer(new, "/spec/completions") == integer(new, "/spec/parallelism");
    for counter in ["failed", "succeeded"] {
        let count = |job| integer(job, &format!("/status/{counter}")).unwrap_or(0);
        if count(new) < count(old) && !(elastic && counter == "succeeded") {
            let detail = format!("cannot decrease the {counter} counter");
            errors.push(FieldError::invalid(
                format!("status.{counter}"),
                &count(new).into(),
                detail,
            ));
        }
    }
}

fn finished(job: &Value) -> bool {
    condition_true(job, "Complete") || condition_true(job, "Failed")
}

fn differ(old: &Value, new: &Value, field: &str) -> bool {
    let value = |job: &Value| job.pointer(&format!("/status/{field}")).cloned().unwrap_or(Value::Null);
    value(old) != value(new)
}

fn check_uncounted(uncounted: &At<'_>, errors: &mut Vec<FieldError>) {
    let mut known = HashSet::new();
    for list in ["succeeded", "failed"] {
        for uid in uncounted.get(list).items() {
            if uid.is_empty() {
                errors.push(uid.invalid("must not be empty"));
            } else if !known.insert(uid.text()) {
                errors.push(uid.duplicate());
            }
        }
    }
}

fn check_conditions(old: &Value, new: &Value, conditions: &At<'_>, errors: &mut Vec<FieldError>) {
    let mut wrong = |is: bool, detail: &str| {
        if is {
            errors.push(FieldError::invalid_plain(&conditions.field, detail));
        }
    };
    let now = |kind| condition_true(new, kind);
    let before = |kind| condition_true(old, kind);
    let changed = |kind| now(kind) != before(kind);
    let (complete, failed, target, met) = (
        now("Complete"),
        now("Failed"),
        now("FailureTarget"),
        now("SuccessCriteriaMet"),
    );
    wrong(
        (changed("Complete") || changed("Failed")) && complete && failed,
        "cannot set Complete=True and Failed=true conditions",
    );
    wrong(
        (changed("Complete") || changed("FailureTarget")) && complete && target,
        "cannot set Complete=True and FailureTarget=true conditions",
    );
    wrong(
        changed("Failed") && failed && !target,
        "cannot set Failed=True condition without the FailureTarget=true condition",
    );
    wrong(
        changed("Complete") && complete && !met,
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    );
    wrong(
        met && failed,
        "cannot set SuccessCriteriaMet=True and Failed=true conditions",
    );
    wrong(
        met && target,
        "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
    );
    wrong(
        present(new, "/spec/successPolicy") && !met && complete,
        "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
    );
    for kind in ["Failed", "Complete", "FailureTarget"] {
        let detail = format!("cannot disable the terminal {kind}=True condition");
        wrong(before(kind) && !now(kind), &detail);
    }
    wrong(
        before("SuccessCriteriaMet") && !met,
        "cannot disable the SuccessCriteriaMet=True condition",
    );
    wrong(
        before("Complete") && !before("SuccessCriteriaMet") && met,
        "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
    );
}

fn check_times(old: &Value, new: &Value, status: &At<'_>, errors: &mut Vec<FieldError>) {
    let (start, end) = (status.get("startTime"), status.get("completionTime"));
    let complete = condition_true(new, "Complete");
    let complete_changed = complete != condition_true(old, "Complete");
    let (start_changed, end_changed) = (differ(old, new, "startTime"), differ(old, new, "completionTime"));
    if complete_changed || end_changed {
        if end.present() && !complete {
            errors.push(end.invalid("cannot set completionTime when there is no Complete=True condition"));
        }
        if !end.present() && complete {
            errors.push(end.required("completionTime is required for Complete jobs"));
        }
    }
    let earlier = time_s(new, "/status/completionTime")
        .zip(time_s(new, "/status/startTime"))
        .is_some_and(|(end_s, start_s)| end_s < start_s);
    if (start_changed || end_changed) && earlier {
        errors.push(end.invalid("completionTime cannot be set before startTime"));
    }
    if end_changed && end.present() && present(old, "/status/completionTime") {
        errors.push(end.invalid("completionTime cannot be mutated"));
    }
    let suspended = boolean(new, "/spec/suspend") == Some(true);
    if start_changed && present(old, "/status/startTime") && !suspended {
        errors.push(start.required("startTime cannot be removed for unsuspended job"));
    }
}

/// What a Job that is at its end may not have.
fn check_finished(old: &Value, new: &Value, status: &At<'_>, errors: &mut Vec<FieldError>) {
    if !finished(new) {
        return;
    }
    let ended = !finished(old);
    for counter in ["active", "terminating"] {
        let count = status.get(counter);
        if (ended || differ(old, new, counter)) && count.integer().is_some_and(|count| count > 0) {
            errors.push(count.invalid(format_args!("{counter}>0 is invalid for finished job")));
        }
    }
    let start = status.get("startTime");
    if (ended || differ(old, new, "startTime")) && !start.present() {
        errors.push(start.required("startTime is required for finished job"));
    }
    let uncounted = status.get("uncountedTerminatedPods");
    let some = ["succeeded", "failed"]
        .iter()
        .any(|list| !uncounted.get(*list).is_empty());
    if (ended || differ(old, new, "uncountedTerminatedPods")) && some {
        let shown = capitalized(uncounted.value);
        let detail = "uncountedTerminatedPods needs to be empty for finished job";
        errors.push(FieldError::invalid(&uncounted.field, &shown, detail));
    }
}

fn check_status_indexes(old: &Value, new: &Value, status: &At<'_>, errors: &mut Vec<FieldError>) {
    let (completed, failed) = (status.get("completedIndexes"), status.get("failedIndexes"));
    let (completed_changed, failed_changed) = (differ(old, new, "completedIndexes"), differ(old, new, "failedIndexes"));
    let count = integer(new, "/spec/completions");
    let per_index = present(new, "/spec/backoffLimitPerIndex");
    if let Some(count) = count {
        let asked = [
            (&completed, "completedIndexes", completed_changed),
            (
                &failed,
                "failedIndexes",
                failed_changed && per_index && failed.present(),
            ),
        ];
        for (indexes, name, _) in asked.into_iter().filter(|(.., asked)| *asked) {
            if let Err(wrong) = read_indexes(indexes.text(), count) {
                errors.push(indexes.invalid(format_args!("error parsing {name}: {wrong}")));
            }
        }
    }
    if completed_changed && !completed.is_empty() && text(new, "/spec/completionMode") != "Indexed" {
        errors.push(completed.invalid("cannot set non-empty completedIndexes when non-indexed completion mode"));
    }
    if failed_changed && failed.present() && !per_index {
        errors.push(failed.invalid("cannot set non-null failedIndexes when backoffLimitPerIndex is null"));
    }
    if let Some(count) = count
        && (completed_changed || failed_changed)
        && let Some(index) = overlap(completed.text(), failed.text(), count)
    {
        errors.push(failed.invalid(format_args!(
            "failedIndexes and completedIndexes overlap at index: {index}"
        )));
    }
}

/// The first index that is in both; intervals that cannot be read are passed over.
fn overlap(one: &str, other: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<(i64, i64)> {
        let intervals = text.split(',').map(|interval| read_interval(interval, completions));
        intervals.flatten().collect()
    };
    let (one, other) = (read(one), read(other));
    let (mut a, mut b) = (0, 0);
    while let (Some(x), Some(y)) = (one.get(a), other.get(b)) {
        if x.0 <= y.1 && y.0 <= x.1 {
            return Some(x.0.max(y.0));
        }
        if x.0 <= y.0 {
            a += 1;
        } else {
            b += 1;
        }
    }
    None
}
