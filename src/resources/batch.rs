//! The group `batch`: Jobs and CronJobs.

use flatkube_format::sidecar::Cell;
use serde_json::Value;

use super::kind::Kind;
use super::lookup::{boolean, condition_true, integer, present, time_s};
use super::row::Row;

pub(super) const KINDS: &[Kind] = &[
    Kind::new("cronjobs.batch").cells(cron_jobs),
    Kind::new("jobs.batch").cells(jobs),
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
