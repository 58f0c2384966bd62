//! Pods as far as requests for their `log`, `exec`, `attach`, `portforward` and `proxy` need them: which container, with which
//! options, where.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::Deserialize;

use super::location::is_global;
use super::translate::Wanted;
use crate::api::request::Query;
use crate::api::status::{Cause, Status};

/// What of a Pod these requests ask for.
#[derive(Deserialize, Default)]
pub(super) struct Pod {
    #[serde(default)]
    pub(super) spec: Spec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    #[serde(default)]
    pub(super) node_name: String,
    #[serde(default)]
    containers: Vec<Container>,
    #[serde(default)]
    init_containers: Vec<Container>,
    #[serde(default)]
    ephemeral_containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Container {
    name: String,
    #[serde(default)]
    ports: Vec<Port>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    container_port: u16,
}

#[derive(Deserialize, Default)]
struct PodStatus {
    #[serde(default, rename = "podIPs")]
    pod_ips: Vec<PodIp>,
}

#[derive(Deserialize)]
struct PodIp {
    #[serde(default)]
    ip: String,
}

impl Pod {
    /// The container that is asked for, or the only one.
    ///
    /// # Errors
    /// 400 when there is no such container, or several and none is named.
    pub(super) fn container<'a>(&'a self, name: &str, asked: &'a str) -> Result<&'a str, Status> {
        let spec = &self.spec;
        let all = || {
            let sidecars = spec.init_containers.iter();
            sidecars.chain(&spec.containers).chain(&spec.ephemeral_containers)
        };
        if !asked.is_empty() {
            if all().any(|container| container.name == asked) {
                return Ok(asked);
            }
            return Err(Status::bad_request(format!(
                "container {asked} is not valid for pod {name}"
            )));
        }
        match spec.containers.as_slice() {
            [only] => Ok(&only.name),
            [] => Err(Status::bad_request(format!(
                "a container name must be specified for pod {name}"
            ))),
            _ => {
                let names: Vec<&str> = all().map(|container| container.name.as_str()).collect();
                Err(Status::bad_request(format!(
                    "a container name must be specified for pod {name}, choose one of: [{}]",
                    names.join(" ")
                )))
            }
        }
    }

    /// The name of the node that it is on.
    ///
    /// # Errors
    /// 400 when it is on none.
    pub(super) fn node(&self, name: &str) -> Result<&str, Status> {
        match self.spec.node_name.as_str() {
            "" => Err(Status::bad_request(format!("pod {name} does not have a host assigned"))),
            node => Ok(node),
        }
    }

    /// Its first address.
    ///
    /// # Errors
    /// 400 when it has none, or one that may not be proxied to.
    pub(super) fn address(&self) -> Result<IpAddr, Status> {
        let first = self.status.pod_ips.first().and_then(|first| first.ip.parse().ok());
        first
            .filter(|address| is_global(*address))
            .ok_or_else(|| Status::bad_request(super::dial::NOT_ALLOWED))
    }

    /// Whether an address is one of its own.
    pub(super) fn has_address(&self, address: &str) -> bool {
        self.status.pod_ips.iter().any(|own| own.ip == address)
    }

    /// The first port that a container declares.
    pub(super) fn first_port(&self) -> Option<u16> {
        let with_ports = self
            .spec
            .containers
            .iter()
            .find(|container| !container.ports.is_empty());
        with_ports.map(|container| container.ports[0].container_port)
    }
}

/// A query string in the order that Go writes it.
fn encode(mut pairs: Vec<(&str, Cow<'_, str>)>) -> String {
    pairs.sort_by_key(|(name, _)| *name);
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs);
    query.finish()
}

fn integer(query: &Query, name: &str) -> Result<Option<i64>, Status> {
    let Some(text) = query.get(name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    parsed(&text).map(Some)
}

fn parsed<T: std::str::FromStr>(text: &str) -> Result<T, Status> {
    text.parse()
        .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax")))
}

fn refused(reason: &'static str, field: &str, message: String) -> Cause {
    Cause {
        reason: reason.into(),
        message,
        field: field.into(),
    }
}

/// What a request for a log asks for.
#[derive(Debug)]
pub(super) struct LogOptions {
    /// The kubelet's certificate is not to be verified.
    pub(super) is_unverified: bool,
    /// For the kubelet.
    pub(super) query: String,
}

/// Reads PodLogOptions.
///
/// # Errors
/// 400 for what cannot be read, 422 for values that mean nothing.
pub(super) fn log_options(query: &Query, name: &str) -> Result<LogOptions, Status> {
    const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
    const POSITIVE: &str = "must be greater than 0";
    let since_seconds = integer(query, "sinceSeconds")?;
    let since_time = match query.get("sinceTime").filter(|text| !matches!(&**text, "" | "null")) {
        None => None,
        Some(text) => Some(time(&text)?),
    };
    let tail_lines = integer(query, "tailLines")?;
    let limit_bytes = integer(query, "limitBytes")?;
    let mut causes = Vec::new();
    let invalid =
        |field, number: i64, rule| refused("FieldValueInvalid", field, format!("Invalid value: {number}: {rule}"));
    let forbidden = |field, text: &str| refused("FieldValueForbidden", field, format!("Forbidden: {text}"));
    if let Some(lines) = tail_lines.filter(|lines| *lines < 0) {
        causes.push(invalid("tailLines", lines, NOT_NEGATIVE));
    }
    if let Some(bytes) = limit_bytes.filter(|bytes| *bytes < 1) {
        causes.push(invalid("limitBytes", bytes, POSITIVE));
    }
    match since_seconds {
        // Upstream's path of no field.
        Some(_) if since_time.is_some() => causes.push(forbidden(
            "[]",
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        )),
        Some(seconds) if seconds < 1 => causes.push(invalid("sinceSeconds", seconds, POSITIVE)),
        _ => {}
    }
    // A choice of streams is behind a feature gate of upstream that is off.
    if query.get("stream").is_some_and(|stream| !stream.is_empty()) {
        causes.push(forbidden("stream", "may not be specified"));
    }
    if !causes.is_empty() {
        return Err(Status::invalid("", "PodLogOptions", name, causes));
    }
    let mut pairs: Vec<(&str, Cow<'_, str>)> = Vec::new();
    for (flag, is_set) in [
        ("follow", query.flag("follow")),
        ("previous", query.flag("previous")),
        ("timestamps", query.flag("timestamps")),
    ] {
        if is_set {
            pairs.push((flag, "true".into()));
        }
    }
    for (field, number) in [
        ("sinceSeconds", since_seconds),
        ("tailLines", tail_lines),
        ("limitBytes", limit_bytes),
    ] {
        if let Some(number) = number {
            pairs.push((field, number.to_string().into()));
        }
    }
    if let Some(time) = since_time {
        pairs.push(("sinceTime", time.into()));
    }
    Ok(LogOptions {
        is_unverified: query.flag("insecureSkipTLSVerifyBackend"),
        query: encode(pairs),
    })
}

/// A time of RFC 3339, to the second.
fn time(text: &str) -> Result<String, Status> {
    let form = "2006-01-02T15:04:05Z07:00";
    let read: Option<jiff::Timestamp> = text.parse().ok().filter(|_| text.as_bytes().get(10) == Some(&b'T'));
    let read = read.and_then(|time| jiff::Timestamp::from_second(time.as_second()).ok());
    read.map(|time| time.to_string()).ok_or_else(|| {
        Status::bad_request(format!(
            "parsing time \"{text}\" as \"{form}\": cannot parse \"{text}\" as \"2006\""
        ))
    })
}

/// What a request for `exec` or `attach` asks for: its streams, and the query for the kubelet.
pub(super) fn stream_options(query: &Query, is_exec: bool) -> (Wanted, String) {
    let wanted = Wanted {
        stdin: query.flag("stdin"),
        stdout: query.flag("stdout"),
        stderr: query.flag("stderr"),
        tty: query.flag("tty"),
    };
    let mut pairs: Vec<(&str, Cow<'_, str>)> = Vec::new();
    for (name, is_wanted) in [
        ("input", wanted.stdin),
        ("output", wanted.stdout),
        ("error", wanted.stderr),
        ("tty", wanted.tty),
    ] {
        if is_wanted {
            pairs.push((name, "1".into()));
        }
    }
    if is_exec {
        pairs.extend(query.all("command").map(|part| ("command", part)));
    }
    (wanted, encode(pairs))
}

/// What a request for `portforward` asks for, for the kubelet: ports, if they are named here and not in the streams.
///
/// # Errors
/// 400 for what is no number.
pub(super) fn port_forward_options(query: &Query) -> Result<String, Status> {
    let mut ports: Vec<String> = Vec::new();
    for text in query.all("ports") {
        for part in text.split(',').filter(|part| !part.is_empty()) {
            ports.push(parsed::<i32>(part.trim())?.to_string());
        }
    }
    if ports.is_empty() {
        return Ok(String::new());
    }
    Ok(encode(vec![("port", ports.join(",").into())]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(query: &str) -> String {
        log_options(&Query::new(query), "p").expect_err(query).message
    }

    #[test]
    fn options_of_a_log_are_passed_on_as_kube_apiserver_does() {
        let asked = "follow=true&previous=1&container=c&sinceTime=2026-01-02T03:04:05.678%2B01:00&timestamps=&tailLines=0\
                     &limitBytes=10&pretty=true&insecureSkipTLSVerifyBackend=true";
        let options = log_options(&Query::new(asked), "p").unwrap();
        assert_eq!(
            options.query,
            "follow=true&limitBytes=10&previous=true&sinceTime=2026-01-02T02%3A04%3A05Z&tailLines=0&timestamps=true"
        );
        assert!(options.is_unverified);
        assert_eq!(log_options(&Query::new(""), "p").unwrap().query, "");
    }

    #[test]
    fn options_of_a_log_that_mean_nothing_are_refused_in_upstreams_words() {
        assert_eq!(
            refused("tailLines=-1&limitBytes=0&sinceSeconds=0"),
            "PodLogOptions \"p\" is invalid: [tailLines: Invalid value: -1: must be greater than or equal to 0, \
             limitBytes: Invalid value: 0: must be greater than 0, sinceSeconds: Invalid value: 0: must be greater than 0]"
        );
        assert_eq!(
            refused("sinceSeconds=5&sinceTime=2026-01-02T03:04:05Z"),
            "PodLogOptions \"p\" is invalid: []: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"
        );
        assert_eq!(
            refused("tailLines=x"),
            "strconv.ParseInt: parsing \"x\": invalid syntax"
        );
        assert!(refused("sinceTime=yesterday").starts_with("parsing time \"yesterday\" as"));
        assert!(refused("stream=Stdout").ends_with("stream: Forbidden: may not be specified"));
    }

    #[test]
    fn options_of_streams_are_passed_on_in_the_kubelets_words() {
        let query = Query::new("command=sh&command=-c&command=echo+a%26b&stdin=true&stdout=true&tty=false&container=c");
        let (wanted, query) = stream_options(&query, true);
        assert_eq!(query, "command=sh&command=-c&command=echo+a%26b&input=1&output=1");
        assert!(wanted.stdin && wanted.stdout && !wanted.stderr && !wanted.tty);
        assert_eq!(
            port_forward_options(&Query::new("ports=80&ports=81,82")).unwrap(),
            "port=80%2C81%2C82"
        );
        assert!(port_forward_options(&Query::new("ports=http")).is_err());
    }

    #[test]
    fn a_container_is_chosen_or_the_choice_is_told() {
        let pod = |json: &str| -> Pod { serde_json::from_str(json).unwrap() };
        let one = pod(r#"{"spec":{"containers":[{"name":"a"}],"initContainers":[{"name":"i"}]}}"#);
        assert_eq!(one.container("p", "").unwrap(), "a");
        assert_eq!(one.container("p", "i").unwrap(), "i");
        let two = pod(
            r#"{"spec":{"containers":[{"name":"a"},{"name":"b"}],"initContainers":[{"name":"i"}],
                "ephemeralContainers":[{"name":"e"}]}}"#,
        );
        assert_eq!(
            two.container("p", "").unwrap_err().message,
            "a container name must be specified for pod p, choose one of: [i a b e]"
        );
        assert_eq!(
            two.container("p", "x").unwrap_err().message,
            "container x is not valid for pod p"
        );
        assert_eq!(two.container("p", "e").unwrap(), "e");
    }
}
