//! One rule of a role: what it matches, and which of another's rights it covers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{Attributes, What};

/// Stands for everything.
const ALL: &str = "*";
/// Most single rights that a set of rules may be made of to be compared with another's: a request's rules are 3 MiB of text at most,
/// and their product could be anything.
const RIGHTS_MAX: usize = 65_536;
/// Most comparisons of one right with one rule.
const COMPARISONS_MAX: usize = 4_194_304;
/// Most rights that are told as lacking.
const LACKING_MAX: usize = 1_000;

/// A rule of `rbac.authorization.k8s.io`: verbs on resources or on paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// Verbs, or `*`.
    #[serde(deserialize_with = "list")]
    pub verbs: Vec<Box<str>>,
    /// Groups, or `*`.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<Box<str>>,
    /// `RESOURCE`, `RESOURCE/SUBRESOURCE`, `*/SUBRESOURCE` or `*`.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Box<str>>,
    /// Names of objects; none for all.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<Box<str>>,
    /// Paths; the last character may be `*`.
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub urls: Vec<Box<str>>,
}

impl Rule {
    /// All verbs on all resources.
    pub fn everything() -> Self {
        Self {
            verbs: all(),
            api_groups: all(),
            resources: all(),
            ..Self::default()
        }
    }

    /// All verbs on all paths.
    pub fn every_path() -> Self {
        Self {
            verbs: all(),
            urls: all(),
            ..Self::default()
        }
    }

    /// Whether the rule allows what is asked for.
    pub(super) fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if !has(&self.verbs, attributes.verb) {
            return false;
        }
        match attributes.what {
            What::Path(path) => self.urls.iter().any(|url| url_covers(url, path)),
            What::Resource(asked) => {
                has(&self.api_groups, asked.group)
                    && self
                        .resources
                        .iter()
                        .any(|resource| names(resource, asked.resource, asked.subresource))
                    && (self.resource_names.is_empty() || self.resource_names.iter().any(|name| **name == *asked.name))
            }
        }
    }

    /// Whether the rule gives a single right, which is one in all its parts.
    fn covers(&self, right: &Right<'_>) -> bool {
        if !has(&self.verbs, right.verb) {
            return false;
        }
        match right.over {
            Over::Path(path) => self.urls.iter().any(|url| url_covers(url, path)),
            Over::Objects { group, resource, name } => {
                let same = |own: &str| {
                    own == ALL
                        || own == resource
                        || own.strip_prefix("*/").is_some_and(|own| {
                            resource
                                .split_once('/')
                                .is_some_and(|(_, subresource)| subresource == own)
                        })
                };
                has(&self.api_groups, group)
                    && self.resources.iter().any(|own| same(own))
                    && (self.resource_names.is_empty()
                        || name.is_some_and(|name| self.resource_names.iter().any(|own| **own == *name)))
            }
        }
    }

    /// The single rights that the rule consists of.
    fn rights(&self) -> impl Iterator<Item = Right<'_>> {
        let objects = self.api_groups.iter().flat_map(move |group| {
            self.resources.iter().flat_map(move |resource| {
                self.verbs.iter().flat_map(move |verb| {
                    let right = move |name| Right {
                        verb,
                        over: Over::Objects { group, resource, name },
                    };
                    let unnamed = self.resource_names.is_empty().then(|| right(None));
                    unnamed
                        .into_iter()
                        .chain(self.resource_names.iter().map(move |name| right(Some(name))))
                })
            })
        });
        let paths = self.urls.iter().flat_map(move |url| {
            self.verbs.iter().map(move |verb| Right {
                verb,
                over: Over::Path(url),
            })
        });
        objects.chain(paths)
    }

    /// As kube-apiserver's messages show it.
    fn told(&self) -> String {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let mut text = String::from("{");
        for (label, values) in parts.iter().filter(|(_, values)| !values.is_empty()) {
            if text.len() > 1 {
                text.push_str(", ");
            }
            let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
            let _ = write!(text, "{label}:[{}]", values.join(" "));
        }
        text.push('}');
        text
    }
}

/// One verb on one kind of object or one path.
#[derive(Debug, Clone, Copy)]
struct Right<'a> {
    verb: &'a str,
    over: Over<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Over<'a> {
    Objects {
        group: &'a str,
        resource: &'a str,
        name: Option<&'a str>,
    },
    Path(&'a str),
}

/// Which of `wanted` the holder of `held` does not have, a line for each kind of object, in order; empty when everything is held.
///
/// Costs the product of both; bounded by `RIGHTS_MAX` rights and `COMPARISONS_MAX` comparisons, beyond which the rest is taken as not
/// held, and so is what is beyond `LACKING_MAX` rights that are not.
pub fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<String> {
    let mut lacking: BTreeMap<Over<'_>, Vec<Box<str>>> = BTreeMap::new();
    let mut lines = BTreeSet::new();
    let mut told = BTreeSet::new();
    let (mut count, mut compared) = (0, 0_usize);
    'rules: for rule in wanted {
        // Whoever has the rule itself, or everything, needs no look at its parts.
        if held.iter().any(|own| own == rule) {
            continue;
        }
        for right in rule.rights() {
            count += 1;
            compared += held.len();
            if count > RIGHTS_MAX || compared > COMPARISONS_MAX || told.len() > LACKING_MAX {
                lines.insert(rule.told());
                break 'rules;
            }
            if held.iter().any(|own| own.covers(&right)) {
                continue;
            }
            if told.insert((right.over, right.verb)) {
                lacking.entry(right.over).or_default().push(right.verb.into());
            }
        }
    }
    for (over, verbs) in lacking {
        match over {
            Over::Objects { group, resource, name } => {
                lines.insert(
                    Rule {
                        verbs,
                        api_groups: vec![group.into()],
                        resources: vec![resource.into()],
                        resource_names: name.map(Into::into).into_iter().collect(),
                        urls: Vec::new(),
                    }
                    .told(),
                );
            }
            // Upstream joins the verbs on objects alone.
            Over::Path(path) => lines.extend(verbs.into_iter().map(|verb| {
                Rule {
                    verbs: vec![verb],
                    urls: vec![path.into()],
                    ..Rule::default()
                }
                .told()
            })),
        }
    }
    lines.into_iter().collect()
}

/// A list, which may be `null`.
fn list<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Box<str>>, D::Error> {
    Option::<Vec<Box<str>>>::deserialize(from).map(Option::unwrap_or_default)
}

fn all() -> Vec<Box<str>> {
    vec![ALL.into()]
}

fn has(list: &[Box<str>], value: &str) -> bool {
    list.iter().any(|own| **own == *ALL || **own == *value)
}

/// Whether a rule's word for resources means this one.
fn names(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == ALL {
        return true;
    }
    match rule.split_once('/') {
        None => subresource.is_empty() && rule == resource,
        Some((own, sub)) => !subresource.is_empty() && sub == subresource && (own == ALL || own == resource),
    }
}

/// Whether a rule's path means this one.
fn url_covers(rule: &str, path: &str) -> bool {
    rule == path || rule.strip_suffix('*').is_some_and(|start| path.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::super::Asked;
    use super::*;
    use crate::auth::User;

    fn rule(text: &str) -> Rule {
        serde_json::from_str(text).unwrap()
    }

    fn allows(rule: &Rule, verb: &str, resource: &str, subresource: &str, name: &str) -> bool {
        let user = User::authenticated("alice", "", Vec::new());
        let asked = Asked {
            group: "apps",
            resource,
            subresource,
            namespace: "n",
            name,
            fields: "",
        };
        rule.allows(&Attributes {
            user: &user,
            verb,
            what: What::Resource(asked),
        })
    }

    #[test]
    fn a_rule_means_what_it_names_and_nothing_else() {
        let deployments = rule(r#"{"verbs":["get"],"apiGroups":["apps"],"resources":["deployments","*/scale"]}"#);
        assert!(allows(&deployments, "get", "deployments", "", "a"));
        assert!(allows(&deployments, "get", "statefulsets", "scale", "a"));
        assert!(!allows(&deployments, "list", "deployments", "", ""));
        assert!(!allows(&deployments, "get", "deployments", "status", "a"));
        let status =
            rule(r#"{"verbs":["*"],"apiGroups":["*"],"resources":["deployments/status"],"resourceNames":["a"]}"#);
        assert!(allows(&status, "patch", "deployments", "status", "a"));
        assert!(!allows(&status, "patch", "deployments", "status", "b"));
        assert!(!allows(&status, "patch", "deployments", "", "a"));
        // A star before a slash stands for a resource; behind it, for nothing.
        let literal = rule(r#"{"verbs":["get"],"apiGroups":["apps"],"resources":["deployments/*"]}"#);
        assert!(!allows(&literal, "get", "deployments", "scale", "a"));
        assert!(allows(&Rule::everything(), "x", "anything", "at-all", ""));
        assert!(!allows(&Rule::every_path(), "get", "deployments", "", ""));
    }

    #[test]
    fn paths_end_in_a_star_or_are_whole() {
        for (rule, path, expected) in [
            ("/api", "/api", true),
            ("/api", "/api/", false),
            ("/api/*", "/api/v1", true),
            ("/api/*", "/api", false),
            ("*", "/metrics", true),
            ("/m*s", "/metrics", false),
        ] {
            assert_eq!(url_covers(rule, path), expected, "{rule} {path}");
        }
    }

    #[test]
    fn what_is_missing_is_told_once_for_each_kind_of_object() {
        let held = [rule(
            r#"{"verbs":["get","list"],"apiGroups":[""],"resources":["pods"]}"#,
        )];
        assert!(missing(&held, &held).is_empty());
        let named = rule(r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"],"resourceNames":["a"]}"#);
        assert!(missing(&held, std::slice::from_ref(&named)).is_empty());
        assert_eq!(
            missing(&[named], &held),
            [r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#]
        );
        let wanted = [
            rule(r#"{"verbs":["get","watch"],"apiGroups":[""],"resources":["pods","secrets"]}"#),
            rule(r#"{"verbs":["get"],"nonResourceURLs":["/metrics"]}"#),
        ];
        assert_eq!(
            missing(&held, &wanted),
            [
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["watch"]}"#,
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "watch"]}"#,
                r#"{NonResourceURLs:["/metrics"], Verbs:["get"]}"#,
            ]
        );
        assert!(missing(&[Rule::everything(), Rule::every_path()], &wanted).is_empty());
    }

    #[test]
    fn rules_whose_product_is_too_large_are_not_held() {
        let many: Vec<Box<str>> = (0..2_000).map(|number| format!("r{number}").into()).collect();
        let wanted = [Rule {
            verbs: many.clone(),
            api_groups: many.clone(),
            resources: many,
            ..Rule::default()
        }];
        let held = [rule(r#"{"verbs":["r1"],"apiGroups":["*"],"resources":["*"]}"#)];
        assert!(!missing(&held, &wanted).is_empty());
    }
}
