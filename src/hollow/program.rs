//! What runs in a container: how long, and how it ends. Annotations of the Pod say so; else its command does, as far as it can be
//! understood; else it runs on.
//!
//! Annotations are `hollow.flatkube.io/NAME`, for one container alone `hollow.flatkube.io/NAME.CONTAINER`.

use super::containers::Container;
use super::profile::Profile;
use super::shell;
use crate::scalars::go_duration::nanoseconds;
use crate::tree::{List, Value};

const ANNOTATION: &str = "hollow.flatkube.io/";
/// How long a program runs that nothing is known of but that it ends, milliseconds.
const UNKNOWN_MS: i64 = 1000;
/// How long one is seen to run that ends at once, milliseconds.
const BRIEF_MS: i64 = 100;

/// What becomes of a container that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    /// How long it runs, milliseconds; `None`: until it is stopped.
    pub(super) runs_ms: Option<i64>,
    pub(super) exit_code: i64,
    /// What it left in `/dev/termination-log`.
    pub(super) message: Option<String>,
}

impl Outcome {
    fn ends(runs_ms: i64, exit_code: i64) -> Self {
        Self {
            runs_ms: Some(runs_ms.max(BRIEF_MS)),
            exit_code,
            message: None,
        }
    }

    const RUNS_ON: Self = Self {
        runs_ms: None,
        exit_code: 0,
        message: None,
    };
}

/// When a container is ready after it was started.
pub(super) enum Ready {
    Never,
    /// Milliseconds.
    After(i64),
    /// As the profile has it.
    Usual,
}

fn annotation<'a>(pod: &'a Value, name: &str, container: Option<&str>) -> Option<&'a str> {
    let annotations = pod["metadata"]["annotations"].as_object()?;
    let of_container = container.and_then(|container| annotations.get(&format!("{ANNOTATION}{name}.{container}")));
    of_container
        .or_else(|| annotations.get(&format!("{ANNOTATION}{name}")))?
        .as_str()
}

/// Milliseconds of a duration such as `1m30s`; of one that is none, nothing.
fn duration_ms(text: &str) -> Option<i64> {
    let nanos = nanoseconds(text).ok()?;
    Some((nanos / 1e6).clamp(0.0, 1e15) as i64)
}

/// What becomes of a container that was started for the `restarts`th time again, on that node.
pub(super) fn outcome(container: &Container<'_>, restarts: i64, host: &str) -> Outcome {
    let said = |name| annotation(container.pod, name, Some(container.name()));
    let (runs, code) = (said("run-for"), said("exit-code").and_then(|code| code.parse().ok()));
    if runs.is_some() || code.is_some() {
        let heals = said("restarts").and_then(|most| most.parse().ok());
        let is_healed = heals.is_some_and(|most: i64| restarts >= most);
        let runs_ms = runs.map_or(Some(UNKNOWN_MS), duration_ms);
        return match runs_ms {
            Some(runs_ms) if !is_healed => Outcome {
                message: said("message").map(str::to_owned),
                ..Outcome::ends(runs_ms, code.unwrap_or(0))
            },
            _ => Outcome::RUNS_ON,
        };
    }
    of_command(container, restarts, host)
}

/// Images that are nothing but tools: without a command they end.
const TOOLS: [&str; 8] = [
    "busybox",
    "alpine",
    "hello-world",
    "bash",
    "debian",
    "ubuntu",
    "perl",
    "python",
];

fn of_command(container: &Container<'_>, restarts: i64, host: &str) -> Outcome {
    let spec = container.spec;
    let (command, arguments) = (words(&spec["command"]), words(&spec["args"]));
    let image = base_name(spec["image"].as_str().unwrap_or(""));
    if command.is_empty() && !TOOLS.contains(&image) {
        return Outcome::RUNS_ON;
    }
    let line: Vec<&str> = command.into_iter().chain(arguments).collect();
    if line.is_empty() {
        return Outcome::ends(0, 0);
    }
    let uid = container.pod["metadata"]["uid"].as_str().unwrap_or("");
    let run = digest(&[uid, container.name(), &restarts.to_string()]);
    let ended = ended(container, host, run, &line);
    let restarts_always = container.restarts_after(0);
    let log = spec["terminationMessagePath"]
        .as_str()
        .unwrap_or("/dev/termination-log");
    let written = ended.written.iter().rev().find(|(path, _)| path == log);
    let message = |code| match written {
        Some((_, text)) => Some(text.clone()),
        None if code != 0 && spec["terminationMessagePolicy"] == "FallbackToLogsOnError" => Some(ended.printed.clone()),
        None => None,
    };
    match ended.end {
        shell::End::Code(code) => Outcome {
            message: message(code).filter(|text| !text.is_empty()),
            ..Outcome::ends(ended.slept_ms, code)
        },
        shell::End::Forever => Outcome::RUNS_ON,
        // What is to be started again whenever it ends is meant to run on.
        shell::End::Unknown if restarts_always => Outcome::RUNS_ON,
        shell::End::Unknown => Outcome::ends(ended.slept_ms + UNKNOWN_MS, 0),
    }
}

/// What a container has printed by the time when it ends, as far as its command can be understood.
pub(super) fn printed(container: &Container<'_>, host: &str) -> String {
    let (command, arguments) = (words(&container.spec["command"]), words(&container.spec["args"]));
    let line: Vec<&str> = command.into_iter().chain(arguments).collect();
    if line.is_empty() {
        return String::new();
    }
    // Without a name it makes no files.
    ended(container, host, String::new(), &line).printed
}

/// What a command comes to that is run in a container. `run`: see [`shell::Disk::run`].
fn ended(container: &Container<'_>, host: &str, run: String, line: &[&str]) -> shell::Ended {
    let run = shell::Run {
        environment: &|name| variable(container, name),
        disk: shell::Disk {
            of: &|path| volume(container, path, host),
            run,
        },
    };
    run.command(line)
}

/// A variable of the container's environment, as far as the Pod says it.
fn variable(container: &Container<'_>, name: &str) -> Option<String> {
    let variables = container.spec["env"].as_array()?;
    let found = variables.iter().rev().find(|variable| variable["name"] == name)?;
    if let Some(value) = found["value"].as_str() {
        return Some(value.to_owned());
    }
    let path = found["valueFrom"]["fieldRef"]["fieldPath"].as_str()?;
    let pod = container.pod;
    let of_map = |map: &str| {
        let key = path.strip_prefix(&format!("metadata.{map}['"))?.strip_suffix("']")?;
        pod["metadata"][map][key].as_str()
    };
    let text = match path {
        "metadata.name" => pod["metadata"]["name"].as_str(),
        "metadata.namespace" => pod["metadata"]["namespace"].as_str(),
        "metadata.uid" => pod["metadata"]["uid"].as_str(),
        "spec.nodeName" => pod["spec"]["nodeName"].as_str(),
        "spec.serviceAccountName" => pod["spec"]["serviceAccountName"].as_str(),
        "status.podIP" => pod["status"]["podIP"].as_str(),
        "status.hostIP" => pod["status"]["hostIP"].as_str(),
        _ => of_map("annotations").or_else(|| of_map("labels")),
    };
    text.map(str::to_owned)
}

/// Where a file is: a name that is the same for all containers that see it.
fn volume(container: &Container<'_>, path: &str, host: &str) -> String {
    let pod = container.pod;
    let uid = pod["metadata"]["uid"].as_str().unwrap_or("");
    let mounts = container.spec["volumeMounts"]
        .as_array()
        .map_or(&[][..], List::as_slice);
    for mount in mounts {
        let Some(rest) = path.strip_prefix(mount["mountPath"].as_str().unwrap_or("/")) else {
            continue;
        };
        let volumes = pod["spec"]["volumes"].as_array().map_or(&[][..], List::as_slice);
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]);
        return match volume.and_then(|volume| volume["hostPath"]["path"].as_str()) {
            Some(folder) => format!("{host}:{folder}{rest}"),
            None => format!("{uid}:{}:{rest}", mount["name"].as_str().unwrap_or("")),
        };
    }
    format!("{uid}:{}:{path}", container.name())
}

/// The code that a container ends with when it is told to.
pub(super) fn stopped_code(container: &Container<'_>) -> i64 {
    let command = container.spec["command"].as_array().map_or(&[][..], List::as_slice);
    match command.first().and_then(Value::as_str).map(base_name) {
        // A shell or `sleep` as the first process does not hear it, and is killed.
        Some("sh" | "bash" | "ash" | "sleep" | "tail") => 137,
        _ => 0,
    }
}

/// When it is ready, if the Pod says: by its annotation, or by a readiness probe whose command can be seen to fail.
pub(super) fn ready_after_ms(container: &Container<'_>, host: &str) -> Ready {
    match annotation(container.pod, "ready-after", Some(container.name())) {
        Some("never") => Ready::Never,
        Some(text) => duration_ms(text).map_or(Ready::Usual, Ready::After),
        None if probe_fails(container, host) => Ready::Never,
        None => Ready::Usual,
    }
}

fn probe_fails(container: &Container<'_>, host: &str) -> bool {
    let command = &container.spec["readinessProbe"]["exec"]["command"];
    let line = words(command);
    // Without a name it makes no files.
    let end = || ended(container, host, String::new(), &line).end;
    !line.is_empty() && matches!(end(), shell::End::Code(code) if code != 0)
}

fn words(list: &Value) -> Vec<&str> {
    let list = list.as_array().map_or(&[][..], List::as_slice);
    list.iter().filter_map(Value::as_str).collect()
}

/// From the Pod's arrival until its first container starts, milliseconds.
pub(super) fn start_ms(pod: &Value, profile: &Profile) -> i64 {
    if let Some(said_ms) = annotation(pod, "start-after", None).and_then(duration_ms) {
        return said_ms;
    }
    let spread = i64::from(profile.start_ms_max - profile.start_ms_min.min(profile.start_ms_max));
    let uid = pod["metadata"]["uid"].as_str().unwrap_or("");
    i64::from(profile.start_ms_min) + i64::from(crc32fast::hash(uid.as_bytes())) % (spread + 1)
}

/// From the Pod's deletion until its containers have ended, milliseconds; they have its grace at most.
pub(super) fn stop_ms(pod: &Value, profile: &Profile) -> i64 {
    if let Some(said_ms) = annotation(pod, "stop-after", None).and_then(duration_ms) {
        return said_ms;
    }
    let containers = pod["spec"]["containers"].as_array().map_or(&[][..], List::as_slice);
    let sleeps = containers
        .iter()
        .filter_map(|container| container["lifecycle"]["preStop"]["sleep"]["seconds"].as_i64());
    let before_s = sleeps.max().unwrap_or(0).clamp(0, 86_400);
    before_s * 1000 + i64::from(profile.stop_ms)
}

/// Whether the image is to be had: `hollow.flatkube.io/image-pull: fail` says no, and so do names that tests give to images that are not there.
pub(super) fn has_image(spec: &Value, pod: &Value) -> bool {
    let image = spec["image"].as_str().unwrap_or("");
    let asked = annotation(pod, "image-pull", spec["name"].as_str());
    asked != Some("fail")
        && !image.ends_with(":404")
        && !image.starts_with("invalid.")
        && !["nonexist", "non-exist"].iter().any(|word| image.contains(word))
}

fn base_name(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split([':', '@']).next().unwrap_or(name)
}

/// An image's name with its registry and tag.
pub(super) fn full_image(image: &str) -> String {
    let (first, rest) = image.split_once('/').unwrap_or(("", image));
    let has_registry = first.contains(['.', ':']) || first == "localhost";
    let name = match (has_registry, first) {
        (true, _) => image.to_owned(),
        (false, "") => format!("docker.io/library/{rest}"),
        (false, _) => format!("docker.io/{image}"),
    };
    let last = name.rsplit('/').next().unwrap_or("");
    if last.contains([':', '@']) {
        name
    } else {
        format!("{name}:latest")
    }
}

/// What a runtime calls the image with this full name.
pub(super) fn image_id(full: &str) -> String {
    if full.contains('@') {
        return full.to_owned();
    }
    let name = full.rsplit_once(':').map_or(full, |(name, _)| name);
    format!("{name}@sha256:{}", digest(&[full]))
}

/// Sixty-four digits that follow from these texts.
pub(super) fn digest(texts: &[&str]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, texts.join("\n").as_bytes());
    digest
        .as_ref()
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            for digit in [byte >> 4, byte & 15] {
                text.extend(char::from_digit(digit.into(), 16));
            }
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    #[test]
    fn a_probe_whose_command_fails_keeps_a_container_from_being_ready() {
        let ready = |probe: Value| {
            let (pod, spec) = (json!({}), json!({"name": "c", "readinessProbe": probe}));
            let is_init = false;
            let container = Container {
                pod: &pod,
                spec: &spec,
                is_init,
            };
            !matches!(ready_after_ms(&container, "host"), Ready::Never)
        };
        assert!(!ready(json!({"exec": {"command": ["/bin/false"]}})));
        assert!(!ready(json!({"exec": {"command": ["sh", "-c", "test 1 -eq 2"]}})));
        assert!(ready(json!({"exec": {"command": ["cat", "/tmp/healthy"]}})));
        assert!(ready(json!({"exec": {"command": ["who-knows"]}})));
        assert!(ready(json!({"httpGet": {"port": 80}})));
        assert!(ready(Value::Null));
    }
}
