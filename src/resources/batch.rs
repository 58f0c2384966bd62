//! The group `batch`: Jobs and CronJobs.

use crate::tree::Value;

use super::FieldError;
use super::cell::Cell;
use super::core::pod_rules::capitalized;
use super::core::pod_spec::default_pod_spec;
use super::edit::{default_at, object_at, set_at};
use super::kind::Kind;
use super::lookup::{boolean, condition_true, integer, present, text, time_s};
use super::row::Row;
use super::validate::{At, immutable, selects};
use super::workload_rules::{check_endings, check_template};

pub(super) const KINDS: &[Kind] = &[
    Kind::new("cronjobs.batch")
        .cells(cron_jobs)
        .defaults(|job| default_pod_spec(job, "/spec/jobTemplate/spec/template/spec"))
        .validate(check_cron_job),
    Kind::new("jobs.batch")
        .cells(jobs)
        .defaults(job_defaults)
        .prepare_create(|job, _| select_own_pods(job))
        .validate(check_job)
        .validate_create(check_own_pods)
        .validate_update(check_job_change),
];

fn cron_jobs(row: &mut Row<'_>) {
    let suspended = match boolean(row.object, "/spec/suspend") {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    row.name()
        .text_at("/spec/schedule")
        .text_or("/spec/timeZone", "<none>")
        .text(suspended)
        .count_at("/status/active");
    if present(row.object, "/status/lastScheduleTime") {
        row.age_at("/status/lastScheduleTime");
    } else {
        row.text("<none>");
    }
    row.age()
        .containers_at("/spec/jobTemplate/spec/template/spec/containers")
        .selector_at("/spec/jobTemplate/spec/selector");
}

fn jobs(row: &mut Row<'_>) {
    let job = row.object;
    let succeeded = integer(job, "/status/succeeded").unwrap_or(0);
    let completions = match (
        integer(job, "/spec/completions"),
        integer(job, "/spec/parallelism").unwrap_or(0),
    ) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism @ 2..) => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let duration = match (time_s(job, "/status/startTime"), time_s(job, "/status/completionTime")) {
        (None, _) => Cell::Text(String::new()),
        (Some(start), end) => Cell::Duration {
            start,
            end: end.unwrap_or(0),
        },
    };
    row.name()
        .text(status(job))
        .text(completions)
        .cell(duration)
        .age()
        .containers_at("/spec/template/spec/containers")
        .selector_at("/spec/selector");
}

fn status(job: &Value) -> &'static str {
    if condition_true(job, "Complete") {
        "Complete"
    } else if condition_true(job, "Failed") {
        "Failed"
    } else if present(job, "/metadata/deletionTimestamp") {
        "Terminating"
    } else if condition_true(job, "Suspended") {
        "Suspended"
    } else if condition_true(job, "FailureTarget") {
        "FailureTarget"
    } else if condition_true(job, "SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn job_defaults(job: &mut Value) {
    default_pod_spec(job, "/spec/template/spec");
    let spec = "/spec";
    if integer(job, "/spec/completions").is_none() && integer(job, "/spec/parallelism").is_none() {
        default_at(job, spec, "completions", 1);
    }
    default_at(job, spec, "parallelism", 1);
    let per_index = integer(job, "/spec/backoffLimitPerIndex").is_some();
    default_at(job, spec, "backoffLimit", if per_index { i32::MAX } else { 6 });
    default_at(job, spec, "completionMode", "NonIndexed");
    default_at(job, spec, "suspend", false);
    default_at(job, spec, "manualSelector", false);
    let replacement = if present(job, "/spec/podFailurePolicy") {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    default_at(job, spec, "podReplacementPolicy", replacement);
    default_labels(job);
}

/// A Job without labels has those of its Pods.
fn default_labels(job: &mut Value) {
    let labels = job
        .pointer("/spec/template/metadata/labels")
        .cloned()
        .unwrap_or(Value::Null);
    let unlabelled = super::lookup::count(job, "/metadata/labels") == 0;
    if unlabelled && labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        set_at(job, "/metadata", "labels", labels);
    }
}

/// A Job tells its Pods by its own uid, unless it is to select them itself. The names without a prefix are the old ones.
fn select_own_pods(job: &mut Value) {
    if boolean(job, "/spec/manualSelector") == Some(true) {
        return;
    }
    let (name, uid) = (
        text(job, "/metadata/name").to_owned(),
        text(job, "/metadata/uid").to_owned(),
    );
    if let Some(labels) = object_at(job, "/spec/template/metadata/labels") {
        for prefix in ["batch.kubernetes.io/", ""] {
            labels.insert(format!("{prefix}controller-uid"), uid.as_str().into());
            labels.insert(format!("{prefix}job-name"), name.as_str().into());
        }
    }
    set_at(job, "/spec/selector/matchLabels", CONTROLLER_UID, uid);
    default_labels(job);
}

const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

fn check_job(job: &Value, errors: &mut Vec<FieldError>) {
    check_template(job, "spec.template", errors);
    check_endings(job, "spec.template", errors);
    let spec = At::root(job).get("spec");
    let indexed = spec.get("completionMode").text() == "Indexed";
    let (per_index, success) = (spec.get("backoffLimitPerIndex"), spec.get("successPolicy"));
    if !indexed && per_index.present() {
        errors.push(per_index.invalid("requires indexed completion mode"));
    }
    if !indexed && success.present() {
        let shown = capitalized(success.value);
        errors.push(FieldError::invalid(
            &success.field,
            &shown,
            "requires indexed completion mode",
        ));
    }
    for rule in spec.get("podFailurePolicy.rules").items() {
        let codes = rule.get("onExitCodes");
        let conditions = rule.get("onPodConditions");
        if codes.present() && !conditions.is_empty() {
            let detail = "specifying both OnExitCodes and OnPodConditions is not supported";
            errors.push(FieldError::invalid_plain(&rule.field, detail));
        } else if !codes.present() && conditions.is_empty() {
            let detail = "specifying one of OnExitCodes and OnPodConditions is required";
            errors.push(FieldError::invalid_plain(&rule.field, detail));
        }
        for code in codes.get("values").items() {
            if codes.get("operator").text() == "In" && code.integer() == Some(0) {
                errors.push(code.invalid("must not be 0 for the In operator"));
            }
        }
    }
}

/// A new Job selects its own Pods, and they have its labels.
fn check_own_pods(job: &Value, errors: &mut Vec<FieldError>) {
    let root = At::root(job);
    let selector = root.get("spec.selector");
    let manual = boolean(job, "/spec/manualSelector") == Some(true);
    if !manual && super::lookup::count(job, "/spec/selector/matchLabels") != 1 {
        errors.push(selector.invalid("`selector` not auto-generated"));
    }
    let labels = root.get("spec.template.metadata.labels");
    if selector.present() && selects(selector.value, labels.value) == Some(false) {
        errors.push(labels.invalid("`selector` does not match template `labels`"));
    }
}

fn check_job_change(old: &Value, new: &Value, subresource: Option<&str>, errors: &mut Vec<FieldError>) {
    if subresource.is_some() {
        return;
    }
    for field in [
        "selector",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        immutable(old, new, format!("spec.{field}"), errors);
    }
    // A Job that is suspended and has not begun may still change where its Pods run.
    let waiting = boolean(old, "/spec/suspend") == Some(true) && !present(old, "/status/startTime");
    if !waiting {
        let (before, after) = (At::root(old).get("spec.template"), At::root(new).get("spec.template"));
        if before.value != after.value {
            errors.push(FieldError::invalid(
                &after.field,
                &capitalized(after.value),
                "field is immutable",
            ));
        }
    }
    if text(old, "/spec/completionMode") != "Indexed" {
        immutable(old, new, "spec.completions", errors);
    }
}

fn check_cron_job(job: &Value, errors: &mut Vec<FieldError>) {
    let template = "spec.jobTemplate.spec.template";
    check_template(job, template, errors);
    check_endings(job, template, errors);
    let schedule = At::root(job).get("spec.schedule");
    if schedule.text().contains("TZ") {
        errors.push(schedule.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"));
    } else if !schedule.is_empty() && !schedule.text().starts_with('@') {
        let fields = schedule.text().split_ascii_whitespace().count();
        if fields != 5 {
            let all = schedule.text().split_ascii_whitespace().collect::<Vec<_>>().join(" ");
            errors.push(schedule.invalid(format_args!("expected exactly 5 fields, found {fields}: [{all}]")));
        }
    }
}
