//! What simulated nodes are like, and how fast things happen on them.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::admission::plugins::may_set_label;

/// What simulated nodes are like. In a file: YAML or JSON, with the names of these fields in camel case; what is missing is as
/// by default.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Profile {
    /// From a Pod's arrival on its node until its containers start, milliseconds, at least.
    pub start_ms_min: u32,
    /// The same, at most: each Pod has its own between the two.
    pub start_ms_max: u32,
    /// From a container's start until it is ready, milliseconds. Probes' `initialDelaySeconds` come on top.
    pub ready_ms: u32,
    /// From a Pod's deletion until its containers have ended, milliseconds; its grace period at most.
    pub stop_ms: u32,
    /// Between two renewals of a node's Lease, seconds.
    pub lease_renew_s: u32,
    /// Between two reports of a node's status when nothing changes, seconds.
    pub status_report_s: u32,
    /// Whether Events tell what becomes of Pods, as kubelets tell it. When many Pods start at once some are left out.
    pub events: bool,
    /// The region of all nodes.
    pub region: String,
    /// Zones; nodes take turns.
    pub zones: Vec<String>,
    /// What nodes have; nodes take turns.
    pub instance_types: Vec<InstanceType>,
    /// Further labels of all nodes.
    pub labels: std::collections::BTreeMap<String, String>,
}

/// What a node has.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct InstanceType {
    /// `node.kubernetes.io/instance-type`
    pub name: String,
    /// `kubernetes.io/arch`
    pub arch: String,
    /// CPUs.
    pub cpu: u32,
    /// Memory, GiB.
    pub memory_gi: u32,
    /// Ephemeral storage, GiB.
    pub storage_gi: u32,
    /// Pods that it takes.
    pub pods: u32,
}

impl Default for InstanceType {
    fn default() -> Self {
        Self {
            name: "hollow-8x32".into(),
            arch: "amd64".into(),
            cpu: 8,
            memory_gi: 32,
            storage_gi: 100,
            pods: 110,
        }
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            start_ms_min: 200,
            start_ms_max: 900,
            ready_ms: 300,
            stop_ms: 500,
            lease_renew_s: 10,
            status_report_s: 300,
            events: true,
            region: "hollow-1".into(),
            zones: ["a", "b", "c"].map(|zone| format!("hollow-1{zone}")).to_vec(),
            instance_types: vec![InstanceType::default()],
            labels: std::collections::BTreeMap::new(),
        }
    }
}

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ProfileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

impl Profile {
    /// Nothing takes time: for tests.
    pub fn quick() -> Self {
        Self {
            start_ms_min: 0,
            start_ms_max: 0,
            ready_ms: 0,
            stop_ms: 0,
            ..Self::default()
        }
    }

    /// Reads one from a file.
    ///
    /// # Errors
    /// When it cannot be read, is neither YAML nor JSON, or says what means nothing.
    pub fn read(path: &Path) -> Result<Self, ProfileError> {
        let failed = |reason: String| ProfileError {
            path: path.to_owned(),
            reason,
        };
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let profile: Self = serde_saphyr::from_str(&text).map_err(|error| failed(error.to_string()))?;
        profile.check().map_err(failed)?;
        Ok(profile)
    }

    fn check(&self) -> Result<(), String> {
        if self.start_ms_min > self.start_ms_max {
            return Err("startMsMin is greater than startMsMax".into());
        }
        if self.zones.is_empty() || self.instance_types.is_empty() {
            return Err("zones and instanceTypes need an entry".into());
        }
        if !(1..=40).contains(&self.lease_renew_s) {
            return Err("leaseRenewS is from 1 to 40: a Lease is good for 40 seconds".into());
        }
        if let Some(label) = self.labels.keys().find(|label| !may_set_label(label)) {
            return Err(format!("labels: {label} is none that a node may give itself"));
        }
        if self.status_report_s == 0 {
            return Err("statusReportS is at least 1".into());
        }
        let wrong = |kind: &&InstanceType| kind.cpu == 0 || kind.memory_gi == 0 || kind.pods == 0;
        match self.instance_types.iter().find(wrong) {
            Some(kind) => Err(format!("an instance of type {} has nothing to run a Pod on", kind.name)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Profile, ProfileError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Profile::read(file.path())
    }

    #[test]
    fn a_file_says_what_differs_and_is_checked() {
        let text = "readyMs: 5\nzones: [z]\ninstanceTypes: [{name: big, cpu: 64}]\n";
        let profile = read(text).unwrap();
        assert_eq!((profile.ready_ms, profile.stop_ms), (5, Profile::default().stop_ms));
        assert_eq!(
            (profile.instance_types[0].cpu, profile.instance_types[0].pods),
            (64, 110)
        );
        assert_eq!(read("{}").unwrap(), Profile::default());
        for wrong in [
            "readyMs: soon",
            "speed: 1",
            "zones: []",
            "startMsMin: 5000",
            "leaseRenewS: 0",
            "labels: {node-role.kubernetes.io/worker: ''}",
            "instanceTypes: [{cpu: 0}]",
            "[",
        ] {
            read(wrong).expect_err(wrong);
        }
    }
}
