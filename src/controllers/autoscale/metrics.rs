//! Where metrics come from: the APIs `metrics.k8s.io`, `custom.metrics.k8s.io` and `external.metrics.k8s.io` of aggregated servers.

use std::collections::BTreeMap;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::calculate::{Sample, Samples, millis};
use crate::api::Client;

/// Metrics of one answer that are taken at most.
const ITEMS_MAX: usize = 100_000;

#[derive(Deserialize)]
#[serde(default)]
struct List<T> {
    items: Vec<T>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { items: Vec::new() }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodMetrics {
    metadata: Name,
    timestamp: String,
    window: String,
    containers: Vec<ContainerMetrics>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Name {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerMetrics {
    name: String,
    usage: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MetricValue {
    described_object: Name,
    timestamp: String,
    window_seconds: Option<i64>,
    value: String,
}

/// The metrics of a server.
pub(super) struct Metrics<'a> {
    pub(super) client: &'a Client,
    pub(super) namespace: &'a str,
}

impl Metrics<'_> {
    /// What Pods use of a resource; of one container if it is named.
    pub(super) async fn resource(
        &self,
        resource: &str,
        container: Option<&str>,
        selector: &str,
    ) -> Result<Samples, String> {
        let what = format!("namespaces/{}/pods?labelSelector={}", self.namespace, encoded(selector));
        let path = format!("/apis/metrics.k8s.io/v1beta1/{what}");
        let unable = |why: String| {
            format!(
                "unable to get metrics for resource {resource}: unable to fetch metrics from resource metrics API: {why}"
            )
        };
        let list: List<PodMetrics> = self.get(&path, "pods.metrics.k8s.io").await.map_err(unable)?;
        if list.items.is_empty() {
            return Err(format!(
                "unable to get metrics for resource {resource}: no metrics returned from resource metrics API"
            ));
        }
        let samples = list.items.into_iter().filter_map(|pod| {
            let mut sum = 0;
            for one in &pod.containers {
                if container.is_none_or(|wanted| wanted == one.name) {
                    // Pods that lack a figure are left out.
                    sum += millis(one.usage.get(resource)?)?;
                }
            }
            let window_s = pod
                .window
                .parse::<jiff::SignedDuration>()
                .map_or(60, |window| window.as_secs());
            let sample = Sample {
                millis: sum,
                at_s: time_s(&pod.timestamp),
                window_s,
            };
            Some((pod.metadata.name, sample))
        });
        Ok(samples.collect())
    }

    /// A metric of each of some Pods.
    pub(super) async fn of_pods(&self, metric: &str, selector: &str, metric_selector: &str) -> Result<Samples, String> {
        let unable = |why: String| {
            format!("unable to get metric {metric}: unable to fetch metrics from custom metrics API: {why}")
        };
        let values = self
            .custom(&format!("pods/*/{metric}"), selector, metric_selector)
            .await
            .map_err(unable)?;
        if values.is_empty() {
            return Err(unable("no metrics returned from custom metrics API".to_owned()));
        }
        let samples = values.into_iter().filter_map(|value| {
            let sample = Sample {
                millis: millis(&value.value)?,
                at_s: time_s(&value.timestamp),
                window_s: value.window_seconds.unwrap_or(60),
            };
            Some((value.described_object.name, sample))
        });
        Ok(samples.collect())
    }

    /// A metric of one object, in thousandths. `resource`: plural and group, `ingresses.networking.k8s.io`.
    pub(super) async fn of_object(
        &self,
        metric: &str,
        resource: &str,
        name: &str,
        metric_selector: &str,
    ) -> Result<i64, String> {
        let unable = |why: String| format!("unable to fetch metrics from custom metrics API: {why}");
        let what = if resource == "namespaces" {
            format!("metrics/{metric}")
        } else {
            format!("{resource}/{name}/{metric}")
        };
        let values = self.custom(&what, "", metric_selector).await.map_err(unable)?;
        let value = values.first().and_then(|value| millis(&value.value));
        value.ok_or_else(|| unable("no metrics returned from custom metrics API".to_owned()))
    }

    async fn custom(&self, what: &str, selector: &str, metric_selector: &str) -> Result<Vec<MetricValue>, String> {
        let query = format!(
            "labelSelector={}&metricLabelSelector={}",
            encoded(selector),
            encoded(metric_selector)
        );
        for version in ["v1beta2", "v1beta1"] {
            let group = format!("/apis/custom.metrics.k8s.io/{version}");
            if self.client.is_aggregated(&group) {
                let path = format!("{group}/namespaces/{}/{what}?{query}", self.namespace);
                let list: List<MetricValue> = self.get(&path, "*.custom.metrics.k8s.io").await?;
                return Ok(list.items);
            }
        }
        Err("no custom metrics API (custom.metrics.k8s.io) registered".to_owned())
    }

    /// A metric of something outside, summed up, in thousandths.
    pub(super) async fn external(&self, metric: &str, metric_selector: &str) -> Result<i64, String> {
        let path = format!(
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/{}/{metric}?labelSelector={}",
            self.namespace,
            encoded(metric_selector)
        );
        let unable = |why: String| format!("unable to fetch metrics from external metrics API: {why}");
        let list: List<MetricValue> = self
            .get(&path, &format!("{metric}.external.metrics.k8s.io"))
            .await
            .map_err(unable)?;
        if list.items.is_empty() {
            return Err("no metrics returned from external metrics API".to_owned());
        }
        Ok(list.items.iter().filter_map(|value| millis(&value.value)).sum())
    }

    async fn get<T: for<'de> Deserialize<'de>>(&self, path: &str, what: &str) -> Result<List<T>, String> {
        let missing = || format!("the server could not find the requested resource (get {what})");
        let Some(answer) = self.client.ask_aggregated(path).await else {
            return Err(missing());
        };
        match answer? {
            (200, body) => {
                let mut list: List<T> = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
                list.items.truncate(ITEMS_MAX);
                Ok(list)
            }
            (404, _) => Err(missing()),
            (503, _) => Err(format!(
                "the server is currently unable to handle the request (get {what})"
            )),
            (code, _) => Err(format!(
                "an error on the server (code {code}) has prevented the request from succeeding (get {what})"
            )),
        }
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn time_s(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second)
}
