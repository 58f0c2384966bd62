//! What containers have printed, for who asks for their log.

use super::containers::Container;
use super::program;
use super::work::Cluster;
use crate::api::Simulated;
use crate::store::Object;
use crate::tree::{List, Value};

impl Simulated for Cluster {
    fn has(&self, node: &str) -> bool {
        self.named(node).is_some()
    }

    fn log(&self, pod: &Object, container: &str) -> Result<String, String> {
        let damaged = |error: &dyn std::fmt::Display| error.to_string();
        let bytes = pod.json().map_err(|error| damaged(&error))?;
        let pod: Value = serde_json::from_slice(bytes).map_err(|error| damaged(&error))?;
        let lists = [
            ("containers", "containerStatuses"),
            ("initContainers", "initContainerStatuses"),
            ("ephemeralContainers", "ephemeralContainerStatuses"),
        ];
        let name = pod["metadata"]["name"].as_str().unwrap_or("");
        let node = pod["spec"]["nodeName"].as_str().unwrap_or("");
        let find = |list: &'_ str, from: &'_ str| {
            let list = pod[from][list].as_array().map_or(&[][..], List::as_slice);
            list.iter().find(|entry| entry["name"] == *container).cloned()
        };
        for (specs, statuses) in lists {
            let Some(spec) = find(specs, "spec") else { continue };
            let status = find(statuses, "status").unwrap_or_default();
            if status["containerID"].as_str().unwrap_or("").is_empty() {
                let reason = status["state"]["waiting"]["reason"]
                    .as_str()
                    .unwrap_or("ContainerCreating");
                return Err(match reason {
                    "ErrImagePull" | "ImagePullBackOff" => format!(
                        "container \"{container}\" in pod \"{name}\" is waiting to start: trying and failing to pull image"
                    ),
                    reason => format!("container \"{container}\" in pod \"{name}\" is waiting to start: {reason}"),
                });
            }
            let is_init = specs == "initContainers";
            let printed = program::printed(
                &Container {
                    pod: &pod,
                    spec: &spec,
                    is_init,
                },
                node,
            );
            return Ok(if printed.is_empty() {
                format!(
                    "(container {container} of pod {name} is on the simulated node {node}: nothing runs there that prints)\n"
                )
            } else {
                printed
            });
        }
        Err(format!("container {container} is not valid for pod {name}"))
    }
}
