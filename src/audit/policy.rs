//! The policy: of which requests how much is recorded.
//!
//! Rules: <https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/#audit-policy>.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::auth::User;
use crate::auth::authorization::{Asked, Attributes, What};

/// A policy file above this is none, bytes.
const FILE_MAX: u64 = 1024 * 1024;

/// How much of a request is recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub enum Level {
    /// Nothing.
    #[default]
    None,
    /// Who asked for what, and what came of it.
    Metadata,
    /// What was sent, too.
    Request,
    /// What was answered, too.
    RequestResponse,
}

impl Level {
    /// Its name in policies and events.
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// When an event is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum Stage {
    /// Before anything is done.
    RequestReceived,
    /// When the head of an answer is sent whose body has no end yet.
    ResponseStarted,
    /// When the answer is sent.
    ResponseComplete,
    /// When the server failed in the middle.
    Panic,
}

/// Why there is no policy.
#[derive(Debug, thiserror::Error)]
#[error("the audit policy {path}: {reason}")]
pub struct PolicyError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// What is recorded of which requests.
#[derive(Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: bool,
}

/// What is recorded of one request.
#[derive(Debug, Clone, Copy)]
pub struct Extent<'a> {
    /// How much.
    pub level: Level,
    /// Whether `managedFields` are left out of objects.
    pub omits_managed_fields: bool,
    omitted: [&'a [Stage]; 2],
}

impl Extent<'_> {
    /// Whether a stage is to be recorded.
    pub fn records(&self, stage: Stage) -> bool {
        !self.omitted.iter().any(|stages| stages.contains(&stage))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde::de::IgnoredAny,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Rule {
    level: Option<Level>,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<Resources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Resources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

impl Policy {
    /// Reads a file in YAML or JSON.
    ///
    /// # Errors
    /// What is wrong with it. Unlike upstream a field that is not known is an error: a policy that is misread hides what it
    /// should show.
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        let wrong = |reason: String| PolicyError {
            path: path.to_owned(),
            reason,
        };
        let size = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
        if size > FILE_MAX {
            return Err(wrong(format!("it is larger than {FILE_MAX} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text).map_err(wrong)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let file: File = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        if file.api_version != "audit.k8s.io/v1" || file.kind != "Policy" {
            return Err(format!(
                "it is a {} of {}, not a Policy of audit.k8s.io/v1",
                file.kind, file.api_version
            ));
        }
        if file.rules.is_empty() {
            return Err("it has no rules".into());
        }
        for (index, rule) in file.rules.iter().enumerate() {
            rule.check().map_err(|why| format!("rules[{index}].{why}"))?;
        }
        Ok(Self {
            rules: file.rules,
            omit_stages: file.omit_stages,
            omit_managed_fields: file.omit_managed_fields,
        })
    }

    /// What is recorded of a request: what the first rule says that fits it; nothing when none does. Looks at one rule after the
    /// other, without an allocation.
    pub fn extent(&self, attributes: &Attributes<'_>) -> Extent<'_> {
        let rule = self.rules.iter().find(|rule| rule.fits(attributes));
        let of_rule = rule.map_or(&[][..], |rule| &rule.omit_stages);
        Extent {
            level: rule.and_then(|rule| rule.level).unwrap_or_default(),
            omits_managed_fields: rule
                .and_then(|rule| rule.omit_managed_fields)
                .unwrap_or(self.omit_managed_fields),
            omitted: [&self.omit_stages, of_rule],
        }
    }
}

impl Rule {
    fn check(&self) -> Result<(), String> {
        if self.level.is_none() {
            return Err("level: it must be one of None, Metadata, Request, RequestResponse".into());
        }
        if !self.non_resource_urls.is_empty() && (!self.resources.is_empty() || !self.namespaces.is_empty()) {
            return Err("nonResourceURLs: rules cannot apply to both regular resources and non-resource URLs".into());
        }
        for url in &self.non_resource_urls {
            let inner = url.strip_suffix('*').unwrap_or(url);
            if url != "*" && !url.starts_with('/') {
                return Err(format!("nonResourceURLs: {url:?} must begin with '/'"));
            }
            if inner.contains('*') {
                return Err(format!(
                    "nonResourceURLs: {url:?} has a '*' that is not its last letter"
                ));
            }
        }
        for resources in &self.resources {
            if resources.group.contains('/') {
                return Err(format!(
                    "resources: the group {:?} must be without a version",
                    resources.group
                ));
            }
            if !resources.resource_names.is_empty() && resources.resources.is_empty() {
                return Err("resources: resourceNames need at least one resource".into());
            }
        }
        Ok(())
    }

    fn fits(&self, attributes: &Attributes<'_>) -> bool {
        let User { name, groups, .. } = attributes.user;
        let of = |list: &[String], word: &str| list.is_empty() || list.iter().any(|it| it == word);
        let in_group = || self.user_groups.iter().any(|group| groups.contains(group));
        if !(of(&self.users, name) && (self.user_groups.is_empty() || in_group()) && of(&self.verbs, attributes.verb)) {
            return false;
        }
        match attributes.what {
            What::Resource(asked) if self.non_resource_urls.is_empty() => {
                let fits = |resources: &Resources| resources.fit(&asked);
                of(&self.namespaces, asked.namespace) && (self.resources.is_empty() || self.resources.iter().any(fits))
            }
            What::Path(path) if self.resources.is_empty() && self.namespaces.is_empty() => {
                let fits =
                    |url: &String| url == path || url.strip_suffix('*').is_some_and(|head| path.starts_with(head));
                self.non_resource_urls.is_empty() || self.non_resource_urls.iter().any(fits)
            }
            What::Resource(_) | What::Path(_) => false,
        }
    }
}

impl Resources {
    fn fit(&self, asked: &Asked<'_>) -> bool {
        if self.group != asked.group {
            return false;
        }
        let is_named = self.resource_names.is_empty() || self.resource_names.iter().any(|name| name == asked.name);
        let fits = |told: &String| match told.split_once('/') {
            None => told == "*" || asked.subresource.is_empty() && told == asked.resource,
            Some((resource, "*")) => resource == asked.resource,
            Some((resource, subresource)) => {
                !asked.subresource.is_empty()
                    && (resource == "*" || resource == asked.resource)
                    && subresource == asked.subresource
            }
        };
        self.resources.is_empty() || is_named && self.resources.iter().any(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  users: ["system:kube-proxy"]
  verbs: [watch]
  resources: [{group: "", resources: [endpoints, services]}]
- level: None
  userGroups: ["system:authenticated"]
  nonResourceURLs: ["/api*", /version]
- level: Request
  resources: [{group: "", resources: [configmaps], resourceNames: [one]}]
  namespaces: [kube-system]
- level: Metadata
  resources: [{group: "", resources: [secrets, "pods/log", "*/status", "deployments/*"]}]
  omitManagedFields: false
  omitStages: [ResponseStarted]
- level: RequestResponse
  resources: [{group: apps}]
"#;

    fn level(user: &str, verb: &str, asked: Asked<'_>) -> Level {
        let user = User::authenticated(user, "", Vec::new());
        let what = What::Resource(asked);
        Policy::parse(POLICY)
            .unwrap()
            .extent(&Attributes {
                user: &user,
                verb,
                what,
            })
            .level
    }

    fn asked<'a>(
        group: &'a str,
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    ) -> Asked<'a> {
        Asked {
            group,
            resource,
            subresource,
            namespace,
            name,
            ..Asked::default()
        }
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        for (user, verb, what, expected) in [
            (
                "system:kube-proxy",
                "watch",
                asked("", "services", "", "", ""),
                Level::None,
            ),
            (
                "a",
                "get",
                asked("", "configmaps", "", "kube-system", "one"),
                Level::Request,
            ),
            (
                "a",
                "get",
                asked("", "configmaps", "", "kube-system", "two"),
                Level::None,
            ),
            ("a", "get", asked("", "configmaps", "", "default", "one"), Level::None),
            ("a", "get", asked("", "secrets", "", "x", "y"), Level::Metadata),
            ("a", "get", asked("", "pods", "", "x", "y"), Level::None),
            ("a", "get", asked("", "pods", "log", "x", "y"), Level::Metadata),
            ("a", "get", asked("", "pods", "status", "x", "y"), Level::Metadata),
            ("a", "get", asked("", "deployments", "scale", "x", "y"), Level::Metadata),
            ("a", "get", asked("", "deployments", "", "x", "y"), Level::Metadata),
            (
                "a",
                "get",
                asked("apps", "deployments", "", "x", "y"),
                Level::RequestResponse,
            ),
        ] {
            assert_eq!(level(user, verb, what), expected, "{user} {verb} {what:?}");
        }
    }

    #[test]
    fn rules_of_paths_are_about_paths_and_others_about_both() {
        let user = User::authenticated("a", "", Vec::new());
        let extent = |text: &str, what| {
            let policy = Policy::parse(text).unwrap();
            policy
                .extent(&Attributes {
                    user: &user,
                    verb: "get",
                    what,
                })
                .level
        };
        for (path, expected) in [
            ("/api/x", Level::None),
            ("/version", Level::None),
            ("/metrics", Level::None),
        ] {
            assert_eq!(extent(POLICY, What::Path(path)), expected);
        }
        let every = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}";
        assert_eq!(extent(every, What::Path("/metrics")), Level::Metadata);
        assert_eq!(
            extent(every, What::Resource(asked("", "pods", "", "", ""))),
            Level::Metadata
        );
        let path = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata, nonResourceURLs: ['*']}]}";
        assert_eq!(extent(path, What::Path("/metrics")), Level::Metadata);
        assert_eq!(extent(path, What::Resource(asked("", "pods", "", "", ""))), Level::None);
    }

    #[test]
    fn stages_of_the_policy_and_of_the_rule_are_left_out() {
        let policy = Policy::parse(POLICY).unwrap();
        let user = User::anonymous();
        let what = What::Resource(asked("", "secrets", "", "x", "y"));
        let extent = policy.extent(&Attributes {
            user: &user,
            verb: "get",
            what,
        });
        assert!(!extent.records(Stage::RequestReceived) && !extent.records(Stage::ResponseStarted));
        assert!(extent.records(Stage::ResponseComplete) && extent.records(Stage::Panic));
        assert!(!extent.omits_managed_fields);
    }

    #[test]
    fn a_policy_that_says_nothing_or_nonsense_is_refused() {
        let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
        for (text, told) in [
            ("kind: Policy", "not a Policy of audit.k8s.io/v1"),
            (&format!("{head}rules: []"), "no rules"),
            (&format!("{head}rules: [{{users: [a]}}]"), "rules[0].level"),
            (&format!("{head}rules: [{{level: Metadata, user: [a]}}]"), "user"),
            (&format!("{head}rules: [{{level: Some}}]"), "Some"),
            (
                &format!("{head}rules: [{{level: None, nonResourceURLs: ['/a*b']}}]"),
                "not its last",
            ),
            (
                &format!("{head}rules: [{{level: None, nonResourceURLs: ['a']}}]"),
                "must begin",
            ),
            (
                &format!("{head}rules: [{{level: None, namespaces: [a], nonResourceURLs: ['/a']}}]"),
                "both",
            ),
            (
                &format!("{head}rules: [{{level: None, resources: [{{resourceNames: [a]}}]}}]"),
                "resourceNames",
            ),
        ] {
            let wrong = Policy::parse(text).unwrap_err();
            assert!(wrong.contains(told), "{text}: {wrong}");
        }
    }
}
