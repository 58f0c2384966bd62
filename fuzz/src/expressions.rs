//! Expressions in CEL, alone and as rules of custom resources.

use flatkube::cel::rules::{Rules, check_form, check_rules};
use flatkube::cel::run::{Budget, Input};
use flatkube::cel::{Environment, Program};
use flatkube::tree::Value;

/// An expression in the first line, two objects (old and new) and a schema in further ones. What does not compile is told with a
/// place; what compiles runs the same twice, within its budget. The expression is a rule of the schema, too: definitions are
/// judged, and objects that did not change are not refused.
pub fn cel(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let mut lines = text.splitn(4, '\n');
    let expression = lines.next().unwrap_or("");
    let mut value = || {
        lines
            .next()
            .and_then(|line| serde_json::from_str::<Value>(line).ok())
            .unwrap_or_default()
    };
    let (old, new, mut schema) = (value(), value(), value());

    let environment = Environment::of_admission(true).with_objects();
    match Program::compile(expression, &environment) {
        Err(wrong) => assert!(wrong.to_string().starts_with("ERROR: <input>:"), "{wrong}"),
        Ok(program) => {
            let inputs = [
                Input::Value(&new),
                Input::Value(&old),
                Input::Value(&new),
                Input::Value(&old),
                Input::Null,
                Input::Null,
                Input::Null,
                Input::Value(&old),
            ];
            let run = || program.run(&inputs, &mut Budget::of(100_000));
            assert_eq!(run(), run(), "{expression}");
        }
    }

    if !schema.is_object() {
        return;
    }
    schema["x-kubernetes-validations"] = Value::from(vec![
        serde_json::from_value::<Value>(serde_json::json!({"rule": expression, "messageExpression": expression}))
            .expect("JSON"),
    ]);
    check_form(&schema, "schema");
    check_rules(&schema, "schema");
    let Some(rules) = Rules::compile(&schema) else { return };
    let told = rules.validate(Some(&old), &new);
    assert_eq!(rules.validate(Some(&old), &new), told, "{expression}");
    rules.validate(None, &new);
}
