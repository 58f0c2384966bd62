//! What a Job asks for, and one Pod of a Job as its counting sees it.

use super::TRACKED;
use crate::controllers::pod;
use crate::tree::Value;

/// Annotation and label of an indexed Job's Pod: which index it is for.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// What a Job asks for. Defaults are in it already.
pub(super) struct Spec<'a> {
    pub(super) parallelism: i64,
    /// `None`: one success is enough, and Pods know themselves when to end.
    pub(super) completions: Option<i64>,
    pub(super) is_indexed: bool,
    pub(super) is_suspended: bool,
    pub(super) backoff_limit: i64,
    /// Of an indexed Job: failures that one index may have.
    pub(super) backoff_limit_per_index: Option<i64>,
    pub(super) failed_indexes_max: Option<i64>,
    pub(super) deadline_s: Option<i64>,
    /// A Pod that is going counts as running until it has ended.
    pub(super) replaces_only_failed: bool,
    pub(super) failure_policy: &'a Value,
    pub(super) success_policy: &'a Value,
    pub(super) restart_policy: &'a Value,
}

impl<'a> Spec<'a> {
    pub(super) fn of(job: &'a Value) -> Self {
        let spec = &job["spec"];
        let number = |field: &str| spec[field].as_i64();
        let failure_policy = &spec["podFailurePolicy"];
        let is_indexed = spec["completionMode"] == "Indexed";
        Self {
            parallelism: number("parallelism").unwrap_or(1),
            // An indexed Job has them always.
            completions: number("completions").or(is_indexed.then_some(0)),
            is_indexed,
            is_suspended: spec["suspend"] == true,
            backoff_limit: number("backoffLimit").unwrap_or(6),
            backoff_limit_per_index: number("backoffLimitPerIndex").filter(|_| is_indexed),
            failed_indexes_max: number("maxFailedIndexes"),
            deadline_s: number("activeDeadlineSeconds"),
            replaces_only_failed: spec["podReplacementPolicy"] == "Failed" || !failure_policy.is_null(),
            failure_policy,
            success_policy: &spec["successPolicy"],
            restart_policy: &spec["template"]["spec"]["restartPolicy"],
        }
    }

    /// Indexes are below this.
    pub(super) fn indexes(&self) -> u32 {
        let completions = self.completions.filter(|_| self.is_indexed).unwrap_or(0);
        u32::try_from(completions).unwrap_or(0)
    }
}

/// A Pod that a Job controls.
pub(super) struct Member<'a> {
    pub(super) pod: &'a Value,
    pub(super) uid: &'a str,
    /// As its annotation says; it may be none that the Job has.
    pub(super) index: Option<u32>,
    /// It has the finalizer: its end is not counted yet.
    pub(super) is_tracked: bool,
}

impl<'a> Member<'a> {
    pub(super) fn of(pod: &'a Value) -> Self {
        let metadata = &pod["metadata"];
        let finalizers = metadata["finalizers"].as_array();
        let index = metadata["annotations"][INDEX].as_str();
        Self {
            pod,
            uid: metadata["uid"].as_str().unwrap_or(""),
            index: index.and_then(|index| index.parse().ok()),
            is_tracked: finalizers.is_some_and(|finalizers| finalizers.iter().any(|one| *one == TRACKED)),
        }
    }

    fn is_in(&self, phase: &str) -> bool {
        self.pod["status"]["phase"] == phase
    }

    fn is_deleting(&self) -> bool {
        !self.pod["metadata"]["deletionTimestamp"].is_null()
    }

    pub(super) fn is_active(&self) -> bool {
        pod::is_active(self.pod)
    }

    pub(super) fn has_succeeded(&self) -> bool {
        self.is_in("Succeeded")
    }

    /// Whether it counts as failed. One that is going may never get to say so.
    pub(super) fn has_failed(&self, spec: &Spec<'_>) -> bool {
        self.is_in("Failed") || !spec.replaces_only_failed && self.is_deleting() && !self.has_succeeded()
    }

    /// Whether it is going and has not ended.
    pub(super) fn is_terminating(&self) -> bool {
        self.is_deleting() && !pod::is_over(self.pod)
    }

    /// Whether it counts: Pods of an indexed Job do by one of its indexes.
    pub(super) fn counts(&self, spec: &Spec<'_>) -> bool {
        !spec.is_indexed || self.index.is_some_and(|index| index < spec.indexes())
    }

    /// How often its containers were started again.
    pub(super) fn restarts(&self) -> i64 {
        let lists = ["initContainerStatuses", "containerStatuses"].iter();
        lists
            .flat_map(|list| self.pod["status"][*list].as_array().into_iter().flatten())
            .filter_map(|status| status["restartCount"].as_i64())
            .sum()
    }
}
