//! Figures of fairness, in kube-apiserver's names where they mean the same.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{Counter, Histogram, Label, Recorder as _};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::Fairness;
use super::class::{CLASSES, Class};
use super::shares::{POOLS, Pool};
use crate::api::metrics::{METADATA, key};

const DISPATCHED: &str = "apiserver_flowcontrol_dispatched_requests_total";
const REJECTED: &str = "apiserver_flowcontrol_rejected_requests_total";
/// Name of the histogram of waiting times.
pub(in crate::api) const WAIT: &str = "apiserver_flowcontrol_request_wait_duration_seconds";
const IN_QUEUE: &str = "apiserver_flowcontrol_current_inqueue_requests";
const EXECUTING: &str = "apiserver_flowcontrol_current_executing_requests";
const TAKEN: &str = "flatkube_flowcontrol_places_taken";
const SIZE: &str = "flatkube_flowcontrol_places";
const FLOWS: &str = "flatkube_flowcontrol_flows";

/// Tells a recorder what the figures mean.
pub(in crate::api) fn describe(recorder: &PrometheusRecorder) {
    for (name, text) in [
        (DISPATCHED, "Requests that were let in."),
        (
            REJECTED,
            "Requests that were refused with 429, by reason: queue-full, time-out, concurrency-limit.",
        ),
    ] {
        recorder.describe_counter(name.into(), None, text.into());
    }
    recorder.describe_histogram(
        WAIT.into(),
        None,
        "Seconds in line of requests that did not get their turn at once.".into(),
    );
    for (name, text) in [
        (IN_QUEUE, "Requests in line, for a place or for their turn."),
        (EXECUTING, "Requests that hold a place among the reads or the writes."),
        (TAKEN, "Places that are taken, by pool."),
        (SIZE, "Places there are, by pool."),
        (FLOWS, "Flows (users) that are known now."),
    ] {
        recorder.describe_gauge(name.into(), None, text.into());
    }
}

/// Why a request was refused, in upstream's words.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reason {
    LineFull,
    TimeOut,
    /// There are no lines for what it asked for.
    ConcurrencyLimit,
}

const REASONS: [&str; 3] = ["queue-full", "time-out", "concurrency-limit"];

/// Handles, registered when they are first needed.
pub(super) struct Figures {
    recorder: Arc<PrometheusRecorder>,
    classes: [PerClass; CLASSES.len()],
}

#[derive(Default)]
struct PerClass {
    dispatched: OnceLock<Counter>,
    rejected: [OnceLock<Counter>; REASONS.len()],
    /// Refused, let in.
    waits: [OnceLock<Histogram>; 2],
}

impl fmt::Debug for Figures {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Figures")
    }
}

impl Figures {
    pub(super) fn new(recorder: Arc<PrometheusRecorder>) -> Self {
        Self {
            recorder,
            classes: Default::default(),
        }
    }

    fn counter(&self, name: &'static str, labels: Vec<Label>) -> Counter {
        self.recorder.register_counter(&key(name, labels), &METADATA)
    }

    /// A request was let in.
    pub(super) fn dispatched(&self, class: Class) {
        self.classes[class as usize]
            .dispatched
            .get_or_init(|| self.counter(DISPATCHED, labels(class)))
            .increment(1);
    }

    /// A request was refused.
    pub(super) fn rejected(&self, class: Class, reason: Reason) {
        self.classes[class as usize].rejected[reason as usize]
            .get_or_init(|| {
                let mut labels = labels(class);
                labels.push(Label::from_static_parts("reason", REASONS[reason as usize]));
                self.counter(REJECTED, labels)
            })
            .increment(1);
    }

    /// A request was in line for so long, and was let in or not.
    pub(super) fn waited(&self, class: Class, time: Duration, is_let_in: bool) {
        self.classes[class as usize].waits[usize::from(is_let_in)]
            .get_or_init(|| {
                let mut labels = labels(class);
                labels.push(Label::from_static_parts(
                    "execute",
                    if is_let_in { "true" } else { "false" },
                ));
                self.recorder.register_histogram(&key(WAIT, labels), &METADATA)
            })
            .record(time.as_secs_f64());
    }
}

fn labels(class: Class) -> Vec<Label> {
    vec![
        Label::from_static_parts("priority_level", class.level()),
        Label::from_static_parts("flow_schema", class.schema()),
    ]
}

impl Fairness {
    /// Figures of now, each given to `tell`.
    pub(in crate::api) fn tell_figures(&self, tell: impl Fn(&'static str, Vec<Label>, f64)) {
        let mut executing = [0; CLASSES.len()];
        let mut waiting = [0; CLASSES.len()];
        let mut flows = 0;
        let shares = self.shares();
        for (class, pace, held, in_lines) in shares.flows() {
            executing[class as usize] += held[Pool::Reads as usize] + held[Pool::Writes as usize];
            waiting[class as usize] += in_lines.iter().sum::<usize>() + pace.in_line() as usize;
            flows += 1;
        }
        let pools = POOLS.map(|pool| (pool, shares.figures(pool)));
        drop(shares);
        for class in CLASSES {
            tell(EXECUTING, labels(class), executing[class as usize] as f64);
            tell(IN_QUEUE, labels(class), waiting[class as usize] as f64);
        }
        for (pool, (size, taken, _)) in pools {
            let label = || vec![Label::from_static_parts("pool", pool.name())];
            tell(SIZE, label(), size as f64);
            tell(TAKEN, label(), taken as f64);
        }
        tell(FLOWS, Vec::new(), f64::from(flows));
    }
}
