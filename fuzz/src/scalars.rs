//! Quantities, times and durations.

use flatkube::resources::duration::human_duration;
use flatkube::resources::quantity::Quantity;
use flatkube::schema::{self, Expected, FieldValidation, Syntax};

use super::input::Input;

/// A text as a quantity and as a time, in every field that takes one; a number as a duration.
pub fn scalars(data: &[u8]) {
    let mut number = [0; 8];
    let prefix = &data[..data.len().min(8)];
    number[..prefix.len()].copy_from_slice(prefix);
    assert!(human_duration(i64::from_le_bytes(number)).len() <= 24);

    let Some(text) = Input::new(data).text() else { return };
    quantity(text);
    let pod = serde_json::json!({"spec": {"overhead": {"cpu": text}, "containers": null}});
    same(&pod, "v1", "Pod");
    let object = serde_json::json!({"metadata": {"creationTimestamp": text, "deletionTimestamp": text}});
    same(&object, "v1", "ConfigMap");
    let event = serde_json::json!({"eventTime": text, "firstTimestamp": text});
    same(&event, "v1", "Event");
}

/// What is accepted has one canonical form.
fn quantity(text: &str) {
    let Some(quantity) = Quantity::parse(text) else {
        assert_eq!(Quantity::rewrite(text, true), None);
        return;
    };
    let canonical = quantity.canonical();
    let again = Quantity::parse(&canonical).expect("the canonical form is one");
    assert_eq!(again.canonical(), canonical);
    assert_eq!(again.nanos(), quantity.nanos(), "{text} {canonical}");
    let millis = quantity.to_millis();
    assert!(millis.nanos().abs() >= quantity.nanos().abs() && (millis.nanos() - quantity.nanos()).abs() < 1_000_000);
    for round in [false, true] {
        let written = Quantity::rewrite(text, round).expect("it is one");
        let read = Quantity::parse(&written).expect("what is written is one");
        assert_eq!(
            read.nanos(),
            if round { millis } else { quantity }.nanos(),
            "{text} {written}"
        );
        let rewritten = Quantity::rewrite(&written, round).expect("it is one");
        let last = Quantity::rewrite(&rewritten, round).expect("it is one");
        assert_eq!(last, rewritten, "{text} {written}");
    }
}

/// A field that is accepted decodes to itself.
fn same(object: &serde_json::Value, version: &str, kind: &str) {
    let expected = Expected {
        group: "",
        version,
        kind,
    };
    let body = object.to_string();
    let Ok(decoded) = schema::decode(body.as_bytes(), Syntax::Json, &expected, FieldValidation::Warn) else {
        return;
    };
    let json = decoded.value.to_json();
    let again = schema::decode(json.as_bytes(), Syntax::Json, &expected, FieldValidation::Strict);
    let again = again.unwrap_or_else(|rejected| panic!("{rejected}: {json}"));
    assert_eq!(again.value.to_json(), json);
}
