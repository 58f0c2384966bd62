//! `/metrics`: request figures in kube-apiserver's names, and figures of the store.
//!
//! A request costs one histogram record and one counter increment on handles that were registered at the first request
//! of their kind: no label is built and no registry is searched while serving.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use http::{HeaderValue, StatusCode, header};
use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder as _};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::body::Response;
use super::request::{RequestInfo, Verb};
use super::router::plain;
use super::{Api, fairness, proxy, webhooks};
use crate::resources;

const DURATION: &str = "apiserver_request_duration_seconds";
const TOTAL: &str = "apiserver_request_total";
const INFLIGHT: &str = "apiserver_current_inflight_requests";
const OBJECTS: &str = "apiserver_storage_objects";
const ALLOCATOR_LIVE: &str = "flatkube_allocator_live_bytes";
const ALLOCATOR_RETAINED: &str = "flatkube_allocator_retained_bytes";

/// Figures of the store, read when somebody asks. Counts since the store was opened are gauges here: they are the store's
/// own counters, not this recorder's.
const GAUGES: &[(&str, &str)] = &[
    (OBJECTS, "Stored objects by resource."),
    ("flatkube_revision", "Newest published revision."),
    ("flatkube_log_bytes", "Bytes of log that are kept."),
    ("flatkube_log_segments", "Segments of the log."),
    ("flatkube_log_batches", "Batches written to the log since the start."),
    ("flatkube_log_records", "Records written to the log since the start."),
    ("flatkube_log_syncs", "Syncs of the log since the start."),
    (
        "flatkube_log_sync_seconds",
        "Seconds spent in syncs of the log since the start.",
    ),
    ("flatkube_shelvings", "Times a resource was shelved since the start."),
    (
        "flatkube_shelved_bytes",
        "Bytes of shelf parts written since the start.",
    ),
    (
        "flatkube_retired_bytes",
        "Bytes of files that were removed and that slow readers still hold on the disk.",
    ),
    (
        "flatkube_followers_too_old",
        "Watches that were slower than the retained history.",
    ),
    (
        "flatkube_scrubs",
        "Passes that proved all shelves and sealed segments, since the start.",
    ),
    ("flatkube_scrubbed_bytes", "Bytes that those read."),
    (
        "flatkube_mended_objects",
        "Objects that were damaged on a shelf and taken from the log, since the start.",
    ),
    (
        "flatkube_damaged_places",
        "Damaged places that cannot be mended; the server's log names them.",
    ),
    ("flatkube_delta_entries", "Entries of a resource's deltas."),
    ("flatkube_delta_bytes", "Bytes of log behind a resource's deltas."),
    ("flatkube_shelf_parts", "Shelf parts of a resource."),
    ("flatkube_shelf_bytes", "Bytes of a resource's shelf parts."),
    ("flatkube_history_floor", "Newest discarded revision of a resource."),
    (
        ALLOCATOR_LIVE,
        "Bytes that the program has asked for and not given back.",
    ),
    (
        ALLOCATOR_RETAINED,
        "Bytes that the allocator holds free, for later requests.",
    ),
];

/// Counts of what bounds on clients did; kept where it happens.
const COUNTERS: &[(&str, &str)] = &[
    (
        "flatkube_connections_ended_total",
        "Connections that were ended because the client did nothing: silent (no request), idle (none open), slow (took no \
         end of an answer).",
    ),
    (
        "flatkube_connections_refused_total",
        "Connections of addresses that had their share of connections already.",
    ),
    (
        "flatkube_slow_clients_ended_total",
        "Connections and streams whose client took less than 64 KiB a minute of what waited for it.",
    ),
    (
        "flatkube_overstayed_answers_total",
        "Answers that were broken off because files were kept on the disk for them.",
    ),
];

/// Upper bounds of the duration histogram, seconds: upstream's, and finer ones below.
const BUCKETS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0,
    4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];

/// Upper bounds of the histograms of work queues, seconds: upstream's.
const QUEUE_BUCKETS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0];

/// Codes that have a counter of their own; all others share the one of 0 ("other").
const CODES: [u16; 20] = [
    200, 201, 202, 204, 304, 400, 401, 403, 404, 405, 406, 409, 410, 413, 415, 422, 429, 500, 504, 0,
];

const VERBS: usize = 8;

/// How often recorded durations are folded into their histograms; bounds what waits in memory.
pub(super) const UPKEEP: Duration = Duration::from_secs(5);

/// The server's figures.
pub(super) struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
    /// By position in [`resources::all`].
    requests: Box<[OnceLock<PerResource>]>,
    /// Versions of custom resources that requests were counted of.
    custom_met: AtomicUsize,
    /// Requests in flight: reads, writes.
    inflight: [Gauge; 2],
}

/// Versions of custom resources that are told apart at most, those that are gone among them: a program that makes definitions without
/// end would fill the memory with their names.
const CUSTOM_MAX: usize = 20_000;

/// By subresource (none first) and verb.
type PerResource = Box<[OnceLock<Handles>]>;

struct Handles {
    duration: Histogram,
    codes: [OnceLock<Counter>; CODES.len()],
}

impl fmt::Debug for Metrics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Metrics")
    }
}

/// Counts a request as in flight while it lives.
pub(super) struct InFlight<'a>(&'a Gauge);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

impl Metrics {
    pub(super) fn new() -> Self {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Full(DURATION.into()), BUCKETS)
            .and_then(|builder| builder.set_buckets_for_metric(Matcher::Full(fairness::WAIT.into()), BUCKETS))
            .and_then(|builder| builder.set_buckets_for_metric(Matcher::Prefix("workqueue_".into()), QUEUE_BUCKETS))
            .unwrap_or_else(|_| PrometheusBuilder::new())
            .build_recorder();
        for (name, text) in [
            (
                DURATION,
                "Time from a request's head to the head of its answer, in seconds; watches are left out.",
            ),
            (TOTAL, "Requests by verb, resource and code."),
            (INFLIGHT, "Requests in flight by kind."),
        ] {
            recorder.describe_histogram(name.into(), None, text.into());
        }
        for (name, text) in COUNTERS.iter().chain(&crate::audit::FIGURES) {
            recorder.describe_counter((*name).into(), None, (*text).into());
        }
        for (name, text) in GAUGES {
            recorder.describe_gauge((*name).into(), None, (*text).into());
        }
        fairness::describe(&recorder);
        proxy::describe(&recorder);
        webhooks::describe(&recorder);
        let inflight = ["readOnly", "mutating"].map(|kind| {
            recorder.register_gauge(
                &key(INFLIGHT, vec![Label::from_static_parts("request_kind", kind)]),
                &METADATA,
            )
        });
        let recorder = Arc::new(recorder);
        // Counters that other modules keep go to the first server of the process.
        let _ = metrics::set_global_recorder(Arc::clone(&recorder));
        let requests = resources::all().iter().map(|_| OnceLock::new()).collect();
        Self {
            handle: recorder.handle(),
            recorder,
            requests,
            custom_met: AtomicUsize::new(0),
            inflight,
        }
    }

    /// What figures are registered with.
    pub(super) fn recorder(&self) -> Arc<PrometheusRecorder> {
        self.recorder.clone()
    }

    /// Notes that a request begins.
    pub(super) fn begin(&self, verb: Verb) -> InFlight<'_> {
        let gauge = &self.inflight[usize::from(!matches!(verb, Verb::Get | Verb::List | Verb::Watch))];
        gauge.increment(1.0);
        InFlight(gauge)
    }

    /// Notes a request for a resource that was answered with `status`.
    pub(super) fn request(&self, info: &RequestInfo, status: StatusCode, begun: Instant) {
        let subresource = info.subresource.as_ref().map_or(0, |sub| 1 + sub.index());
        let Some(slot) = self.slot(info) else { return };
        let table = slot.get_or_init(|| {
            (0..(1 + info.resource.subresources.len()) * VERBS)
                .map(|_| OnceLock::new())
                .collect()
        });
        let handles = table[subresource * VERBS + info.verb as usize].get_or_init(|| Handles {
            duration: self
                .recorder
                .register_histogram(&key(DURATION, labels(info)), &METADATA),
            codes: [const { OnceLock::new() }; CODES.len()],
        });
        if info.verb != Verb::Watch {
            handles.duration.record(begun.elapsed().as_secs_f64());
        }
        let code = CODES
            .iter()
            .position(|code| *code == status.as_u16())
            .unwrap_or(CODES.len() - 1);
        handles.codes[code]
            .get_or_init(|| {
                let mut labels = labels(info);
                let code = if CODES[code] == 0 {
                    "other".to_owned()
                } else {
                    CODES[code].to_string()
                };
                labels.push(Label::new("code", code));
                self.recorder.register_counter(&key(TOTAL, labels), &METADATA)
            })
            .increment(1);
    }

    /// Where the figures of a resource are kept: with it, for a custom one, so that they go when it goes. `None` once so many custom
    /// resources were met that no more are told apart.
    fn slot<'a>(&'a self, info: &'a RequestInfo) -> Option<&'a OnceLock<PerResource>> {
        if let Some(index) = info.resource.built_in() {
            return self.requests.get(index);
        }
        let custom = info.resource.custom.as_ref()?;
        let made = || -> Box<dyn Any + Send + Sync> {
            let met = self.custom_met.fetch_add(1, Ordering::Relaxed);
            Box::new((met < CUSTOM_MAX).then(OnceLock::<PerResource>::new))
        };
        let slot = custom.figures.0.get_or_init(made);
        slot.downcast_ref::<Option<OnceLock<PerResource>>>()?.as_ref()
    }

    /// Folds what was recorded into the histograms.
    pub(super) fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// `/metrics`.
    pub(super) fn answer(&self, api: &Api) -> Response {
        self.store_figures(api);
        api.fairness
            .tell_figures(|name, labels, value| self.gauge(name, labels, value));
        #[cfg(target_env = "gnu")]
        self.allocator_figures();
        let mut response = plain(StatusCode::OK, self.handle.render().into_bytes().into());
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
        );
        response
    }

    /// Sets a gauge by its name; for figures that are read when somebody asks.
    fn gauge(&self, name: &'static str, labels: Vec<Label>, value: f64) {
        self.recorder.register_gauge(&key(name, labels), &METADATA).set(value);
    }

    /// What glibc's malloc says of itself. Chunks in the caches of threads (at most some tens of KiB each) count as live.
    #[cfg(target_env = "gnu")]
    fn allocator_figures(&self) {
        use malloc_info::info::{SystemType, TotalType};
        let Ok(info) = malloc_info::malloc_info() else {
            return;
        };
        let total = |kind| {
            info.total
                .iter()
                .filter(|total| total.r#type == kind)
                .map(|total| total.size)
                .sum::<usize>()
        };
        let free = total(TotalType::Fast) + total(TotalType::Rest);
        let heap: usize = info
            .system
            .iter()
            .filter(|system| system.r#type == SystemType::Current)
            .map(|system| system.size)
            .sum();
        let live = (heap + total(TotalType::Mmap)).saturating_sub(free);
        self.gauge(ALLOCATOR_LIVE, Vec::new(), live as f64);
        self.gauge(ALLOCATOR_RETAINED, Vec::new(), free as f64);
    }

    fn store_figures(&self, api: &Api) {
        let stats = api.reader.store.stats();
        for (name, value) in [
            ("flatkube_revision", stats.revision),
            ("flatkube_log_bytes", stats.log_bytes),
            ("flatkube_log_segments", stats.segments),
            ("flatkube_log_batches", stats.batches),
            ("flatkube_log_records", stats.records),
            ("flatkube_log_syncs", stats.log_syncs),
            ("flatkube_shelvings", stats.shelvings),
            ("flatkube_shelved_bytes", stats.shelved_bytes),
            ("flatkube_retired_bytes", stats.retired_bytes),
            ("flatkube_followers_too_old", stats.followers_too_old),
            ("flatkube_scrubs", stats.scrubs),
            ("flatkube_scrubbed_bytes", stats.scrubbed_bytes),
            ("flatkube_mended_objects", stats.mended_objects),
            ("flatkube_damaged_places", stats.damaged.len() as u64),
        ] {
            self.gauge(name, Vec::new(), value as f64);
        }
        self.gauge(
            "flatkube_log_sync_seconds",
            Vec::new(),
            stats.log_sync_nanoseconds as f64 / 1e9,
        );
        for resource in &stats.resources {
            let labels = || vec![Label::new("resource", resource.name.clone())];
            for (name, value) in [
                (OBJECTS, resource.objects),
                ("flatkube_delta_entries", resource.delta_entries),
                ("flatkube_delta_bytes", resource.delta_bytes),
                ("flatkube_shelf_parts", resource.parts),
                ("flatkube_shelf_bytes", resource.shelf_bytes),
                ("flatkube_history_floor", resource.floor),
            ] {
                self.gauge(name, labels(), value as f64);
            }
        }
    }
}

pub(super) static METADATA: Metadata<'static> = Metadata::new("flatkube", Level::INFO, None);

pub(super) fn key(name: &'static str, labels: Vec<Label>) -> Key {
    Key::from_parts(name, labels)
}

fn labels(info: &RequestInfo) -> Vec<Label> {
    let verb = match info.verb {
        Verb::Get => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create => "POST",
        Verb::Update => "PUT",
        Verb::Patch => "PATCH",
        Verb::Delete => "DELETE",
        Verb::DeleteCollection => "DELETECOLLECTION",
    };
    vec![
        Label::from_static_parts("component", "apiserver"),
        Label::new("group", info.resource.group.clone()),
        Label::new("version", info.resource.version.clone()),
        Label::new("resource", info.resource.plural.clone()),
        Label::from_static_parts("subresource", info.subresource_name()),
        Label::from_static_parts("verb", verb),
    ]
}
