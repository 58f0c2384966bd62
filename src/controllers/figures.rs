//! Figures of controllers, under the names that kube-controller-manager has for them; and one of ours: how far behind the log one is.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// Figures of one work queue.
#[derive(Debug)]
pub(super) struct Figures {
    /// Keys that wait for a worker.
    pub(super) depth: Gauge,
    pub(super) adds: Counter,
    /// Seconds from when a key was asked for until a worker took it.
    pub(super) waited: Histogram,
    /// Seconds that a look took.
    pub(super) worked: Histogram,
    pub(super) retries: Counter,
}

impl Figures {
    pub(super) fn named(name: &'static str) -> Self {
        Self {
            depth: gauge!("workqueue_depth", "name" => name),
            adds: counter!("workqueue_adds_total", "name" => name),
            waited: histogram!("workqueue_queue_duration_seconds", "name" => name),
            worked: histogram!("workqueue_work_duration_seconds", "name" => name),
            retries: counter!("workqueue_retries_total", "name" => name),
        }
    }

    /// None that anybody sees.
    pub(super) fn none() -> Self {
        Self {
            depth: Gauge::noop(),
            adds: Counter::noop(),
            waited: Histogram::noop(),
            worked: Histogram::noop(),
            retries: Counter::noop(),
        }
    }
}

/// How many revisions a controller has still to read of the log of one resource.
pub(super) fn lag(name: &'static str, resource: &'static str) -> Gauge {
    gauge!("flatkube_controller_lag_revisions", "name" => name, "resource" => resource)
}
