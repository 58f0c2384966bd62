//! Rules of Events: few for those of the core group, many for those that are written in `events.k8s.io`.

use crate::resources::lookup::text;
use crate::resources::names::qualified_name;
use crate::resources::validate::{At, immutable};
use crate::resources::{FieldError, Resource};
use crate::tree::Value;

/// Longest `reportingInstance`, `action` and `reason`, in bytes.
const WORD_LEN_MAX: usize = 128;
/// Longest `message`, in bytes.
const NOTE_LEN_MAX: usize = 1024;

/// An Event lies in the namespace of what it is about; one with an `eventTime` says who reports what.
pub(super) fn event(event: &Value, errors: &mut Vec<FieldError>) {
    let event = At::root(event);
    let about = event.get("involvedObject.namespace");
    let own = event.get("metadata.namespace").text();
    let is_new = event.get("eventTime").present();
    let fine = match (about.text(), is_new) {
        ("", false) => matches!(own, "" | "default"),
        ("", true) => matches!(own, "default" | "kube-system"),
        (about, false) => about == own,
        (_, true) => true,
    };
    if !fine {
        let detail = "does not match event.namespace";
        errors.push(FieldError::invalid_text(&about.field, about.text(), detail));
    }
    if !is_new {
        return;
    }
    let controller = event.get("reportingComponent").text();
    if controller.is_empty() {
        errors.push(FieldError::required("reportingController", ""));
    }
    for what in qualified_name(controller) {
        errors.push(FieldError::invalid_text("reportingController", controller, what));
    }
    for field in ["reportingInstance", "action", "reason"] {
        let word = event.get(field);
        if word.is_empty() {
            errors.push(word.required(""));
        }
        check_len(&word, WORD_LEN_MAX, errors);
    }
    check_len(&event.get("message"), NOTE_LEN_MAX, errors);
}

fn check_len(text: &At<'_>, len_max: usize, errors: &mut Vec<FieldError>) {
    if text.text().len() > len_max {
        let detail = format!("can have at most {len_max} characters");
        errors.push(FieldError::invalid_text(&text.field, "", detail));
    }
}

/// What `events.k8s.io/v1` asks for beyond: times and types of new Events, and that nothing but the series changes later.
pub(super) fn event_of_events_group(asked: &Resource, old: Option<&Value>, new: &Value, errors: &mut Vec<FieldError>) {
    if asked.group.is_empty() {
        return;
    }
    let event = At::root(new);
    if old.is_none_or(|old| old.get("series") != new.get("series")) {
        check_series(&event.get("series"), errors);
    }
    if let Some(old) = old {
        for field in [
            "involvedObject",
            "reason",
            "message",
            "source",
            "firstTimestamp",
            "lastTimestamp",
            "count",
            "reason",
            "type",
            "eventTime",
            "action",
            "related",
        ] {
            immutable(old, new, field, errors);
        }
        let controller = text(new, "/reportingComponent");
        if text(old, "/reportingComponent") != controller {
            errors.push(FieldError::invalid_text(
                "reportingController",
                controller,
                "field is immutable",
            ));
        }
        immutable(old, new, "reportingInstance", errors);
        return;
    }
    let time = event.get("eventTime");
    if !time.present() {
        errors.push(time.required(""));
    }
    let severity = event.get("type").text();
    if !matches!(severity, "Normal" | "Warning") {
        errors.push(FieldError::invalid_text(
            "type",
            "",
            format!("has invalid value: {severity}"),
        ));
    }
    let source = event.get("source");
    let unset = [
        ("firstTimestamp", event.get("firstTimestamp").present()),
        ("lastTimestamp", event.get("lastTimestamp").present()),
        ("count", event.get("count").integer().is_some_and(|count| count != 0)),
        (
            "source",
            !source.get("component").is_empty() || !source.get("host").is_empty(),
        ),
    ];
    for (field, _) in unset.into_iter().filter(|(_, set)| *set) {
        errors.push(FieldError::invalid_text(field, "", "needs to be unset"));
    }
}

fn check_series(series: &At<'_>, errors: &mut Vec<FieldError>) {
    if !series.present() {
        return;
    }
    if series.get("count").integer().unwrap_or(0) < 2 {
        errors.push(FieldError::invalid_text("series.count", "", "should be at least 2"));
    }
    let last = series.get("lastObservedTime");
    if !last.present() {
        errors.push(last.required(""));
    }
}
