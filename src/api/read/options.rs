//! The query parameters of list and watch (`ListOptions`) and of get, with upstream's conversions and rules.

use std::borrow::Cow;
use std::time::Duration;

use super::quote::quoted;
use super::{fields, labels};
use crate::api::request::Query;
use crate::api::status::{Cause, Status};
use crate::resources::Resource;
use crate::store::Selection;

/// `ListOptions` of `meta.k8s.io`, converted and checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ListOptions {
    /// Label and field selectors together.
    pub(super) selection: Selection,
    /// Most objects of one page; `None` = all.
    pub(super) limit: Option<u64>,
    /// Token of the page before, not yet read.
    pub(super) continue_token: Option<String>,
    /// As given; empty when absent.
    pub(super) resource_version: String,
    /// How `resource_version` is meant.
    pub(super) matching: Option<Match>,
    /// `sendInitialEvents`.
    pub(super) initial_events: Option<bool>,
    /// `allowWatchBookmarks`.
    pub(super) bookmarks: bool,
    /// When a watch ends by itself.
    pub(super) timeout: Option<Duration>,
}

/// `resourceVersionMatch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    /// The state at that very revision.
    Exact,
    /// The newest state, if it is not older.
    NotOlderThan,
}

impl ListOptions {
    /// Reads the options of a list (`watch` false) or a watch of `resource`. `name` is that of the path, when the legacy
    /// way of watching one object is used.
    ///
    /// # Errors
    /// 400 for malformed values and selectors, 422 for combinations that are not allowed.
    pub(super) fn parse(query: &Query, resource: &Resource, name: Option<&str>, watch: bool) -> Result<Self, Status> {
        let mut options = Self::default();
        if query.is_empty() {
            if let Some(name) = name {
                options.select_name(name)?;
            }
            return Ok(options);
        }
        let raw = Raw::of(query);
        options.convert(&raw, resource)?;
        let causes = if watch { raw.check_watch() } else { raw.check_list() };
        if !causes.is_empty() {
            return Err(Status::invalid("meta.k8s.io", "ListOptions", "", causes));
        }
        if let Some(name) = name {
            options.select_name(name)?;
        }
        Ok(options)
    }

    fn convert(&mut self, raw: &Raw<'_>, resource: &Resource) -> Result<(), Status> {
        if let Some(seconds) = integer(raw.timeout.as_deref())? {
            self.timeout = u64::try_from(seconds).ok().filter(|s| *s > 0).map(Duration::from_secs);
        }
        if let Some(limit) = integer(raw.limit.as_deref())? {
            self.limit = u64::try_from(limit).ok().filter(|limit| *limit > 0);
        }
        self.selection.requirements =
            labels::parse(raw.labels.as_deref().unwrap_or_default()).map_err(Status::bad_request)?;
        let fields = fields::parse(raw.fields.as_deref().unwrap_or_default(), resource).map_err(Status::bad_request)?;
        self.selection.requirements.extend(fields);
        self.continue_token = raw
            .continue_token
            .as_deref()
            .filter(|t| !t.is_empty())
            .map(str::to_owned);
        raw.resource_version
            .as_deref()
            .unwrap_or_default()
            .clone_into(&mut self.resource_version);
        self.matching = match raw.matching.as_deref() {
            Some("Exact") => Some(Match::Exact),
            Some("NotOlderThan") => Some(Match::NotOlderThan),
            _ => None,
        };
        self.initial_events = raw.initial_events;
        self.bookmarks = raw.bookmarks;
        Ok(())
    }

    /// Narrows to one object of the path; a selector that names another is an error.
    fn select_name(&mut self, name: &str) -> Result<(), Status> {
        use crate::store::Requirement::Name;
        let requirements = &mut self.selection.requirements;
        let named = requirements.iter().find_map(|requirement| match requirement {
            Name { value, is: true } => Some(value.as_str()),
            _ => None,
        });
        match named {
            Some(selected) if selected == name => Ok(()),
            Some(_) => Err(Status::bad_request(
                "fieldSelector metadata.name doesn't match requested name",
            )),
            None => {
                requirements.push(Name {
                    value: name.to_owned(),
                    is: true,
                });
                Ok(())
            }
        }
    }
}

/// Values of the first parameter of each name, in one pass over the query.
#[derive(Default)]
struct Raw<'a> {
    labels: Option<Cow<'a, str>>,
    fields: Option<Cow<'a, str>>,
    timeout: Option<Cow<'a, str>>,
    limit: Option<Cow<'a, str>>,
    continue_token: Option<Cow<'a, str>>,
    resource_version: Option<Cow<'a, str>>,
    matching: Option<Cow<'a, str>>,
    initial_events: Option<bool>,
    bookmarks: bool,
}

impl<'a> Raw<'a> {
    fn of(query: &'a Query) -> Self {
        let mut raw = Self::default();
        for (name, value) in query.pairs() {
            let place = match &*name {
                "labelSelector" => &mut raw.labels,
                "fieldSelector" => &mut raw.fields,
                "timeoutSeconds" => &mut raw.timeout,
                "limit" => &mut raw.limit,
                "continue" => &mut raw.continue_token,
                "resourceVersion" => &mut raw.resource_version,
                "resourceVersionMatch" => &mut raw.matching,
                "sendInitialEvents" => {
                    raw.initial_events
                        .get_or_insert_with(|| query.flag("sendInitialEvents"));
                    continue;
                }
                "allowWatchBookmarks" => {
                    raw.bookmarks = query.flag("allowWatchBookmarks");
                    continue;
                }
                _ => continue,
            };
            place.get_or_insert(value);
        }
        raw
    }

    fn given(value: Option<&Cow<'_, str>>) -> bool {
        value.is_some_and(|value| !value.is_empty())
    }

    fn matching(&self) -> &str {
        self.matching.as_deref().unwrap_or_default()
    }

    /// `validateListOptions` of apimachinery.
    fn check_list(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        let matching = self.matching();
        if !matching.is_empty() {
            if !Self::given(self.resource_version.as_ref()) {
                causes.push(forbidden(
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if Self::given(self.continue_token.as_ref()) {
                causes.push(forbidden("resourceVersionMatch is forbidden for continue"));
            }
            if matching != "Exact" && matching != "NotOlderThan" {
                causes.push(unsupported(matching, "\"Exact\", \"NotOlderThan\", \"\""));
            }
            if matching == "Exact" && self.resource_version.as_deref() == Some("0") {
                causes.push(forbidden(
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        if self.initial_events.is_some() {
            causes.push(Cause {
                reason: "FieldValueForbidden".into(),
                message: "Forbidden: sendInitialEvents is forbidden for list".into(),
                field: "sendInitialEvents".into(),
            });
        }
        causes
    }

    /// `validateWatchOptions` of apimachinery.
    fn check_watch(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        let matching = self.matching();
        if self.initial_events.is_some() && matching != "NotOlderThan" {
            causes.push(forbidden(
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if !matching.is_empty() {
            if self.initial_events.is_none() {
                causes.push(forbidden(
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
            if matching != "NotOlderThan" {
                causes.push(unsupported(matching, "\"NotOlderThan\""));
            }
            if Self::given(self.continue_token.as_ref()) {
                causes.push(forbidden("resourceVersionMatch is forbidden for continue"));
            }
        }
        causes
    }
}

fn forbidden(why: &str) -> Cause {
    Cause {
        reason: "FieldValueForbidden".into(),
        message: format!("Forbidden: {why}"),
        field: "resourceVersionMatch".into(),
    }
}

fn unsupported(value: &str, supported: &str) -> Cause {
    Cause {
        reason: "FieldValueNotSupported".into(),
        message: format!("Unsupported value: {}: supported values: {supported}", quoted(value)),
        field: "resourceVersionMatch".into(),
    }
}

/// An integer parameter.
///
/// # Errors
/// 400 with the text of Go's `strconv.ParseInt`.
fn integer(text: Option<&str>) -> Result<Option<i64>, Status> {
    let Some(text) = text else { return Ok(None) };
    text.parse()
        .map(Some)
        .map_err(|error: std::num::ParseIntError| Status::bad_request(go_error("ParseInt", text, &error)))
}

/// Reads a resource version as upstream does: `None` for unset; decimal digits only.
///
/// # Errors
/// The text of upstream's `ParseResourceVersion`; list and watch wrap it in different answers.
pub(super) fn resource_version(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    // Rust takes a leading `+`, Go does not.
    let parsed = if text.starts_with('+') {
        "+".parse()
    } else {
        text.parse()
    };
    parsed.map(Some).map_err(|error| {
        let problem = go_error("ParseUint", text, &error);
        format!("resourceVersion: Invalid value: {}: {problem}", quoted(text))
    })
}

fn go_error(function: &str, text: &str, error: &std::num::ParseIntError) -> String {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let why = match error.kind() {
        PosOverflow | NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {}: {why}", quoted(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::find;
    use crate::store::Requirement;

    fn parse(query: &str, watch: bool) -> Result<ListOptions, Status> {
        ListOptions::parse(&Query::new(query), find("", "v1", "configmaps").unwrap(), None, watch)
    }

    fn message(query: &str, watch: bool) -> (u16, String) {
        let status = parse(query, watch).unwrap_err();
        (status.code, status.message)
    }

    #[test]
    fn all_parameters_are_read() {
        let options = parse(
            "limit=2&continue=x&resourceVersion=5&allowWatchBookmarks=true&timeoutSeconds=7&labelSelector=a%3Db&fieldSelector=metadata.name%3Dn",
            false,
        )
        .unwrap();
        assert_eq!(options.limit, Some(2));
        assert_eq!(options.continue_token.as_deref(), Some("x"));
        assert_eq!(options.resource_version, "5");
        assert!(options.bookmarks);
        assert_eq!(options.timeout, Some(Duration::from_secs(7)));
        assert_eq!(options.selection.requirements.len(), 2);
        let watch = parse("sendInitialEvents=1&resourceVersionMatch=NotOlderThan", true).unwrap();
        assert_eq!(watch.initial_events, Some(true));
        assert_eq!(watch.matching, Some(Match::NotOlderThan));
    }

    #[test]
    fn limits_below_one_mean_no_limit() {
        for limit in ["0", "-1"] {
            assert_eq!(parse(&format!("limit={limit}"), false).unwrap().limit, None);
        }
    }

    #[test]
    fn malformed_numbers_are_told_in_upstreams_words() {
        let expected = (400, "strconv.ParseInt: parsing \"x\": invalid syntax".to_owned());
        assert_eq!(message("limit=x", false), expected);
        assert_eq!(message("timeoutSeconds=x", true), expected);
        assert_eq!(
            resource_version("abc"),
            Err("resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax".into())
        );
        assert!(
            resource_version("-1")
                .unwrap_err()
                .ends_with("parsing \"-1\": invalid syntax")
        );
        assert!(
            resource_version("+1")
                .unwrap_err()
                .ends_with("parsing \"+1\": invalid syntax")
        );
        assert!(
            resource_version("99999999999999999999")
                .unwrap_err()
                .ends_with("value out of range")
        );
        assert_eq!(resource_version(""), Ok(None));
        assert_eq!(resource_version("0"), Ok(Some(0)));
    }

    #[test]
    fn forbidden_combinations_are_invalid() {
        let prefix = "ListOptions.meta.k8s.io \"\" is invalid: ";
        let cases = [
            (
                false,
                "resourceVersionMatch=Exact",
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
            (
                false,
                "resourceVersion=0&resourceVersionMatch=Exact",
                "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ),
            (
                false,
                "resourceVersion=5&resourceVersionMatch=Bogus",
                "resourceVersionMatch: Unsupported value: \"Bogus\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
            ),
            (
                true,
                "sendInitialEvents=abc",
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            (
                true,
                "resourceVersionMatch=NotOlderThan",
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
            (
                false,
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                "[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list]",
            ),
        ];
        for (watch, query, expected) in cases {
            assert_eq!(message(query, watch), (422, format!("{prefix}{expected}")), "{query}");
        }
    }

    #[test]
    fn the_name_of_the_path_narrows_a_watch_and_may_not_contradict_the_selector() {
        let configmaps = find("", "v1", "configmaps").unwrap();
        let with = |query: &str| ListOptions::parse(&Query::new(query), configmaps, Some("a"), true);
        let named = vec![Requirement::Name {
            value: "a".into(),
            is: true,
        }];
        assert_eq!(with("").unwrap().selection.requirements, named);
        assert_eq!(
            with("fieldSelector=metadata.name%3Da").unwrap().selection.requirements,
            named
        );
        assert_eq!(with("fieldSelector=metadata.name%3Db").unwrap_err().code, 400);
    }
}
