//! The group `batch`: Jobs and CronJobs.

use crate::tree::Value;

use super::FieldError;
use super::cell::Cell;
use super::core::pods::spec::default_pod_spec;
use super::cron;
use super::edit::{default_at, default_in, object_at, set_at};
use super::job_rules::{
    OWN_LABELS, check_job_change, check_job_selector, check_job_spec, check_own_pods, warn_job_spec,
};
use super::job_status_rules::check_job_status;
use super::kind::Kind;
use super::lookup::{boolean, condition_true, integer, present, text, time_s};
use super::row::Row;
use super::validate::At;
use super::workload_rules::warn_name;

pub(super) const KINDS: &[Kind] = &[
    Kind::new("cronjobs.batch")
        .cells(cron_jobs)
        .defaults(|job| default_pod_spec(job, "/spec/jobTemplate/spec/template/spec"))
        .validate(check_cron_job)
        .warnings_create(warn_name)
        .warnings(|job| warn_job_spec(&At::root(job).get("spec.jobTemplate.spec")))
        .warns_of_changed_spec(),
    Kind::new("jobs.batch")
        .cells(jobs)
        .defaults(job_defaults)
        .prepare_create(|job, _| select_own_pods(job))
        .validate(|job, errors| {
            check_job_spec(&At::root(job).get("spec"), errors);
            check_job_selector(job, errors);
        })
        .validate_create(|job, errors| check_own_pods(None, job, errors))
        .validate_update(|old, new, subresource, errors| {
            if subresource.is_none() {
                check_own_pods(Some(old), new, errors);
                check_job_change(old, new, errors);
            }
        })
        .validate_status(check_job_status)
        .warnings_create(warn_name)
        .warnings(|job| warn_job_spec(&At::root(job).get("spec")))
        .warns_of_changed_spec()
        .checked_twice(),
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

/// A Job tells its Pods by its own uid, unless it is to select them itself. What its author wrote instead is refused later.
fn select_own_pods(job: &mut Value) {
    if boolean(job, "/spec/manualSelector") == Some(true) {
        return;
    }
    let own = |field| Value::from(text(job, &format!("/metadata/{field}")));
    let [name, uid] = ["name", "uid"].map(own);
    if let Some(labels) = object_at(job, "/spec/template/metadata/labels") {
        for (label, field) in OWN_LABELS {
            let value = if *field == "uid" { &uid } else { &name };
            default_in(labels, *label, value.clone());
        }
    }
    if let Some(labels) = object_at(job, "/spec/selector/matchLabels") {
        default_in(labels, OWN_LABELS[0].0, uid);
    }
    default_labels(job);
}

fn check_cron_job(job: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(job).get("spec");
    let schedule = spec.get("schedule");
    if !schedule.is_empty() {
        errors.extend(cron::schedule(schedule.text()).map(|wrong| schedule.invalid(wrong)));
        if schedule.text().contains("TZ") {
            errors.push(schedule.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"));
        }
    }
    let zone = spec.get("timeZone");
    if zone.present() {
        zone.check(cron::time_zone(zone.text()), errors);
    }
    let template = spec.get("jobTemplate.spec");
    check_job_spec(&template, errors);
    let selector = template.get("selector");
    if selector.present() {
        errors.push(selector.invalid("`selector` will be auto-generated"));
    }
    let manual = template.get("manualSelector");
    if manual.value.as_bool() == Some(true) {
        errors.push(manual.not_supported(&["nil", "false"]));
    }
}
