//! Whether the names of a definition are free in its group, and what its status says.
//!
//! The rules, reasons and messages are those of upstream's controllers of custom resources (names, establishing, approval of
//! protected groups).

use std::collections::BTreeSet;

use super::FINALIZER;
use crate::resources::edit::add_finalizer;
use crate::resources::lookup::{condition, text, texts};
use crate::resources::strategy::time_text;
use crate::tree::{Value, json};

/// The names that a definition has been given: nobody else in its group gets them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// API group.
    pub group: String,
    /// Plural, singular and short names.
    pub resources: BTreeSet<String>,
    /// Kind and kind of lists.
    pub kinds: BTreeSet<String>,
}

impl Known {
    /// The accepted names of a definition.
    pub fn of(definition: &Value) -> Known {
        let names = &definition["status"]["acceptedNames"];
        let some =
            |names: &mut dyn Iterator<Item = &str>| names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let short = texts(names, "/shortNames");
        Known {
            group: text(definition, "/spec/group").to_owned(),
            resources: some(
                &mut [text(names, "/plural"), text(names, "/singular")]
                    .into_iter()
                    .chain(short),
            ),
            kinds: some(&mut [text(names, "/kind"), text(names, "/listKind")].into_iter()),
        }
    }
}

/// The status that a definition should have, given the names that others of its group have; `None` when it has it already.
pub fn judge(definition: &Value, others: &[&Known], now_s: i64) -> Option<Value> {
    let taken = |in_kinds: bool, name: &str| {
        others
            .iter()
            .any(|other| if in_kinds { &other.kinds } else { &other.resources }.contains(name))
    };
    let asked = &definition["spec"]["names"];
    let mut status = definition["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    let accepted = status["acceptedNames"].clone();
    let mut names = accepted.clone();
    if !names.is_object() {
        names = json!({});
    }
    let mut conflict = None;
    let free = |field: &str, in_kinds: bool| {
        let name = asked[field].as_str().unwrap_or("");
        if name == accepted[field].as_str().unwrap_or("") || !taken(in_kinds, name) {
            Ok(())
        } else {
            Err(format!("{name:?} is already in use"))
        }
    };
    let take = |names: &mut Value, field: &str| {
        if let Some(names) = names.as_object_mut() {
            if asked[field].is_null() {
                names.remove(field);
            } else {
                names.insert(field.to_owned(), asked[field].clone());
            }
        }
    };
    for (field, in_kinds, reason) in [
        ("plural", false, "PluralConflict"),
        ("singular", false, "SingularConflict"),
    ] {
        match free(field, in_kinds) {
            Ok(()) => take(&mut names, field),
            Err(message) => conflict = Some((reason, message)),
        }
    }
    if asked["shortNames"] != accepted["shortNames"] {
        let ours = texts(&accepted, "/shortNames");
        let refused: Vec<String> = texts(asked, "/shortNames")
            .into_iter()
            .filter(|name| !ours.contains(name) && taken(false, name))
            .map(|name| format!("{name:?} is already in use"))
            .collect();
        match refused.as_slice() {
            [] => take(&mut names, "shortNames"),
            [message] => conflict = Some(("ShortNamesConflict", message.clone())),
            messages => conflict = Some(("ShortNamesConflict", format!("[{}]", messages.join(", ")))),
        }
    }
    for (field, in_kinds, reason) in [("kind", true, "KindConflict"), ("listKind", true, "ListKindConflict")] {
        match free(field, in_kinds) {
            Ok(()) => take(&mut names, field),
            Err(message) => conflict = Some((reason, message)),
        }
    }
    take(&mut names, "categories");
    status["acceptedNames"] = names;

    let is_free = conflict.is_none();
    let (names_status, reason, message) = match conflict {
        None => ("True", "NoConflicts", "no conflicts found".to_owned()),
        Some((reason, message)) => ("False", reason, message),
    };
    set_condition(&mut status, "NamesAccepted", (names_status, reason, &message), now_s);
    let established = condition(definition, "Established");
    if established.is_none_or(|condition| text(condition, "/status") != "True") {
        let verdict = if is_free {
            ("True", "InitialNamesAccepted", "the initial names have been accepted")
        } else {
            ("False", "NotAccepted", "not all names are accepted")
        };
        set_condition(&mut status, "Established", verdict, now_s);
    }
    if let Some((verdict, reason, message)) = approval(definition) {
        let kind = "KubernetesAPIApprovalPolicyConformant";
        set_condition(&mut status, kind, (verdict, reason, &message), now_s);
    }
    (status != definition["status"]).then_some(status)
}

/// Sets a condition unless it says the same; its time is that of its status' last change.
pub fn set_condition(status: &mut Value, kind: &str, (verdict, reason, message): (&str, &str, &str), now_s: i64) {
    let mut conditions = status["conditions"].as_array().map_or(Vec::new(), |list| list.to_vec());
    let known = conditions.iter_mut().find(|condition| text(condition, "/type") == kind);
    let mut condition = json!({
        "type": kind, "status": verdict, "lastTransitionTime": time_text(now_s), "reason": reason, "message": message
    });
    match known {
        None => conditions.push(condition),
        Some(known) => {
            let same = |field: &str, value: &str| text(known, field) == value;
            if same("/status", verdict) && same("/reason", reason) && same("/message", message) {
                return;
            }
            if same("/status", verdict) {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
    }
    status["conditions"] = conditions.into();
}

/// A definition that is to be deleted: it stays until its objects are gone.
pub fn ending(definition: &Value, now_s: i64) -> Value {
    let mut ending = definition.clone();
    ending["metadata"]["deletionTimestamp"] = time_text(now_s).into();
    add_finalizer(&mut ending, FINALIZER);
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let verdict = ("True", "InstanceDeletionPending", message);
    set_condition(&mut ending["status"], "Terminating", verdict, now_s);
    ending
}

/// What the condition about a group of the Kubernetes community says (KEP-1111); `None` for all other groups.
fn approval(definition: &Value) -> Option<(&'static str, &'static str, String)> {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let group = text(definition, "/spec/group");
    let protected = ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        group
            .strip_suffix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    });
    if !protected {
        return None;
    }
    let annotation = definition["metadata"]["annotations"][ANNOTATION].as_str();
    Some(match annotation.unwrap_or("") {
        "" => (
            "False",
            "MissingAnnotation",
            format!("protected groups must have approval annotation {ANNOTATION:?}, {SEE}"),
        ),
        text if text.starts_with("unapproved") => ("False", "UnapprovedAnnotation", format!("not approved: {text:?}")),
        text if is_url(text) => ("True", "ApprovedAnnotation", format!("approved in {text}")),
        _ => (
            "False",
            "InvalidAnnotation",
            format!(
                "protected groups must have approval annotation {ANNOTATION:?} with either a URL or a reason starting with \
                 \"unapproved\", {SEE}"
            ),
        ),
    })
}

/// Whether a text has a scheme and a host.
fn is_url(text: &str) -> bool {
    text.parse::<http::Uri>()
        .is_ok_and(|uri| uri.scheme().is_some() && uri.host().is_some_and(|host| !host.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str, short: &[&str]) -> Value {
        json!({
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {"group": "example.com", "names": {
                "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"), "shortNames": short
            }},
            "status": {"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]},
        })
    }

    fn verdict(status: &Value, kind: &str) -> (String, String, String) {
        let holder = json!({"status": status.clone()});
        let condition = condition(&holder, kind).cloned().unwrap_or_default();
        let part = |field: &str| condition[field].as_str().unwrap_or("").to_owned();
        (part("status"), part("reason"), part("message"))
    }

    #[test]
    fn free_names_are_accepted_and_establish_the_definition() {
        let mut widgets = definition("widgets", "Widget", &["wd"]);
        let status = judge(&widgets, &[], 7).unwrap();
        assert_eq!(status["acceptedNames"], widgets["spec"]["names"]);
        assert_eq!(verdict(&status, "NamesAccepted").1, "NoConflicts");
        assert_eq!(verdict(&status, "Established").1, "InitialNamesAccepted");
        widgets["status"] = status;
        assert_eq!(judge(&widgets, &[], 9), None, "nothing is left to say");
    }

    #[test]
    fn a_name_that_another_definition_of_the_group_has_is_told() {
        let mut widgets = definition("widgets", "Widget", &["wd"]);
        widgets["status"] = judge(&widgets, &[], 7).unwrap();
        let known = Known::of(&widgets);
        for (plural, kind, short, reason, message) in [
            ("wd", "Other", &[][..], "PluralConflict", "\"wd\" is already in use"),
            ("others", "Wd", &[], "SingularConflict", "\"wd\" is already in use"),
            (
                "others",
                "Other",
                &["x", "wd", "widget"],
                "ShortNamesConflict",
                "[\"wd\" is already in use, \"widget\" is already in use]",
            ),
            (
                "others",
                "WidgetList",
                &[],
                "KindConflict",
                "\"WidgetList\" is already in use",
            ),
        ] {
            let status = judge(&definition(plural, kind, short), &[&known], 7).unwrap();
            let told = verdict(&status, "NamesAccepted");
            assert_eq!(
                (&*told.0, &*told.1, &*told.2),
                ("False", reason, message),
                "{plural} {kind}"
            );
            assert_eq!(verdict(&status, "Established").1, "NotAccepted");
        }
    }

    #[test]
    fn an_established_definition_stays_so_when_it_asks_for_a_name_that_is_taken() {
        let mut widgets = definition("widgets", "Widget", &["wd"]);
        widgets["status"] = judge(&widgets, &[], 7).unwrap();
        let mut others = definition("others", "Other", &["o"]);
        others["status"] = judge(&others, &[&Known::of(&widgets)], 7).unwrap();
        others["spec"]["names"]["shortNames"] = json!(["o", "wd"]);
        let status = judge(&others, &[&Known::of(&widgets)], 9).unwrap();
        assert_eq!(verdict(&status, "NamesAccepted").1, "ShortNamesConflict");
        assert_eq!(verdict(&status, "Established").0, "True");
        assert_eq!(status["acceptedNames"]["shortNames"], json!(["o"]));
    }

    #[test]
    fn groups_of_the_community_tell_whether_they_were_approved() {
        let about = |group: &str, annotation: Option<&str>| {
            let mut definition = definition("widgets", "Widget", &[]);
            definition["spec"]["group"] = group.into();
            if let Some(annotation) = annotation {
                definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": annotation});
            }
            let told = verdict(
                &judge(&definition, &[], 7).unwrap(),
                "KubernetesAPIApprovalPolicyConformant",
            );
            (told.0, told.1)
        };
        let told = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
        assert_eq!(about("example.com", None), told("", ""));
        assert_eq!(about("notk8s.io", None), told("", ""));
        assert_eq!(about("x.k8s.io", None), told("False", "MissingAnnotation"));
        assert_eq!(
            about("k8s.io", Some("unapproved, for tests")),
            told("False", "UnapprovedAnnotation")
        );
        assert_eq!(
            about("x.kubernetes.io", Some("https://github.com/a/b/pull/1")),
            told("True", "ApprovedAnnotation")
        );
        assert_eq!(about("x.k8s.io", Some("no url")), told("False", "InvalidAnnotation"));
    }
}
