//! Rules over objects, and what definitions are refused for.

use super::{Broken, Reason, Rules, check_form, check_rules};
use crate::tree::{Value, json};

fn object(properties: Value) -> Value {
    let mut schema = json!({"type": "object"});
    schema["properties"] = properties;
    schema
}

fn told(broken: &[Broken]) -> Vec<String> {
    broken
        .iter()
        .map(|it| {
            let shown = it.shown.as_ref().map(|shown| format!(" {shown}")).unwrap_or_default();
            format!("{} {:?}{shown}: {}", it.path, it.reason, it.detail)
        })
        .collect()
}

fn verdict(schema: &Value, old: Option<&Value>, new: &Value) -> Vec<String> {
    told(&Rules::compile(schema).expect("rules").validate(old, new).broken)
}

#[test]
fn what_breaks_a_rule_is_told_where_and_as_the_rule_says() {
    let schema = object(json!({"spec": {
        "type": "object",
        "properties": {
            "min": {"type": "integer"},
            "max": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 100", "message": "max must stay below 100"}]},
            "name": {"type": "string", "x-kubernetes-validations": [
                {"rule": "self.startsWith('w-')", "messageExpression": "'name ' + self + ' must start with w-'", "reason": "FieldValueForbidden"}
            ]},
            "items": {"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [{"rule": "self.all(x, x != 'no')"}]}
        },
        "x-kubernetes-validations": [
            {"rule": "!has(self.min) || !has(self.max) || self.min <= self.max", "message": "min above max", "fieldPath": ".min", "reason": "FieldValueInvalid"}
        ]
    }}));
    assert_eq!(check_form(&schema, "s"), []);
    assert_eq!(
        verdict(&schema, None, &json!({"spec": {"min": 5, "max": 3}})),
        ["spec.min Invalid: min above max"]
    );
    assert_eq!(
        verdict(&schema, None, &json!({"spec": {"max": 100, "name": "bad"}})),
        [
            "spec.max Invalid 100: max must stay below 100",
            "spec.name Forbidden: name bad must start with w-"
        ]
    );
    assert_eq!(
        verdict(&schema, None, &json!({"spec": {"items": ["yes", "no"]}})),
        ["spec.items Invalid: failed rule: self.all(x, x != 'no')"]
    );
    assert_eq!(
        verdict(
            &schema,
            None,
            &json!({"spec": {"min": 1, "max": 2, "name": "w-x", "items": ["a"]}})
        ),
        [""; 0]
    );
}

#[test]
fn rules_about_changes_run_where_old_and_new_belong_together() {
    let schema = object(json!({
        "im": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "im is immutable"}]},
        "up": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]},
        "opt": {"type": "string", "x-kubernetes-validations": [
            {"rule": "oldSelf.hasValue() || self == 'first'", "optionalOldSelf": true, "message": "starts as first"}
        ]},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
            "type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}
        }}
    }));
    let old = json!({"im": "a", "up": 5, "opt": "first", "list": [{"k": "x", "v": 1}, {"k": "y", "v": 2}]});
    assert_eq!(verdict(&schema, None, &old), [""; 0]);
    assert_eq!(
        verdict(&schema, None, &json!({"opt": "second"})),
        ["opt Invalid \"second\": starts as first"]
    );
    assert_eq!(verdict(&schema, Some(&old), &json!({"opt": "second"})), [""; 0]);
    assert_eq!(
        verdict(&schema, Some(&old), &json!({"im": "b"})),
        ["im Invalid \"b\": im is immutable"]
    );
    assert_eq!(
        verdict(&schema, Some(&old), &json!({"up": 4})),
        ["up Invalid 4: failed rule: self >= oldSelf"]
    );
    let moved = json!({"list": [{"k": "y", "v": 2}, {"k": "x", "v": 3}, {"k": "z", "v": 9}]});
    assert_eq!(
        verdict(&schema, Some(&old), &moved),
        ["list[1].v Invalid 3: failed rule: self == oldSelf"]
    );
}

#[test]
fn what_did_not_change_is_tolerated() {
    let schema = object(json!({
        "a": {"type": "string", "x-kubernetes-validations": [{"rule": "self == 'good'"}]},
        "b": {"type": "string"}
    }));
    let rules = Rules::compile(&schema).expect("rules");
    let old = json!({"a": "bad", "b": "x"});
    let verdict = rules.validate(Some(&old), &json!({"a": "bad", "b": "y"}));
    assert_eq!(told(&verdict.broken), [""; 0]);
    assert_eq!(
        told(&verdict.tolerated),
        ["a Invalid \"bad\": failed rule: self == 'good'"]
    );
    let verdict = rules.validate(Some(&old), &json!({"a": "worse", "b": "y"}));
    assert_eq!(
        told(&verdict.broken),
        ["a Invalid \"worse\": failed rule: self == 'good'"]
    );
}

#[test]
fn errors_of_a_run_are_told_with_the_rule() {
    let rule = |of: Value, rule: &str| {
        let mut of = of;
        of["x-kubernetes-validations"] = json!([{"rule": rule}]);
        object(Value::Object([("f", of)].into_iter().collect()))
    };
    let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
    assert_eq!(
        verdict(&rule(map, "self['a'] == 'x'"), None, &json!({"f": {"b": "x"}})),
        ["f Invalid: no such key: a evaluating rule: self['a'] == 'x'"]
    );
    let list = json!({"type": "array", "items": {"type": "integer"}});
    assert_eq!(
        verdict(&rule(list.clone(), "self[3] == 1"), None, &json!({"f": [1]})),
        ["f Invalid: index out of bounds: 3 evaluating rule: self[3] == 1"]
    );
    assert_eq!(
        verdict(&rule(list, "1 / size(self) == 1"), None, &json!({"f": []})),
        ["f Invalid: division by zero evaluating rule: 1 / size(self) == 1"]
    );
    let either = json!({"x-kubernetes-int-or-string": true});
    assert_eq!(
        verdict(&rule(either.clone(), "self < 5"), None, &json!({"f": "x"})),
        [
            "f Invalid \"x\": 'no such overload: _<_(string, int)': call arguments did not match a supported operator, \
             function or macro signature for rule: self < 5"
        ]
    );
    assert_eq!(
        verdict(
            &rule(either, "type(self) == int ? self < 5 : self.endsWith('%')"),
            None,
            &json!({"f": "x%"})
        ),
        [""; 0]
    );
}

#[test]
fn what_the_schema_hides_is_hidden_and_names_are_escaped() {
    let schema = json!({
        "type": "object",
        "properties": {
            "a-b": {"type": "integer"},
            "namespace": {"type": "string"},
            "date": {"type": "string", "format": "date-time"},
            "none": {"type": "string", "nullable": true},
            "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"x": {"type": "number"}}}
        },
        "x-kubernetes-validations": [
            {"rule": "self.a__dash__b == 1"},
            {"rule": "self.__namespace__ == 'n'"},
            {"rule": "self.metadata.name == 'me' && self.kind == 'K'"},
            {"rule": "self.date < timestamp('2030-01-01T00:00:00Z')"},
            {"rule": "!has(self.none)"},
            {"rule": "self.raw.x == 2.0"}
        ]
    });
    assert_eq!(told(&check_rules(&schema, "s")), [""; 0]);
    let good = json!({"kind": "K", "apiVersion": "g/v1", "metadata": {"name": "me"}, "a-b": 1, "namespace": "n",
        "date": "2026-01-02T03:04:05Z", "none": null, "raw": {"x": 2, "y": {}}});
    assert_eq!(verdict(&schema, None, &good), [""; 0]);
}

#[test]
fn a_definition_is_refused_for_rules_that_cannot_be() {
    let check = |properties: Value| told(&check_rules(&object(properties), "s"));
    let place = |name: &str, what: &str| format!("s.properties[a].x-kubernetes-validations[0].{name} {what}");
    let rule = |rule: &str| json!({"a": {"type": "object", "properties": {"n": {"type": "integer"}, "t": {"type": "string"}}, "x-kubernetes-validations": [{"rule": rule}]}});
    let shown = |rule: &str| {
        format!(
            "Invalid {{\"Rule\":{},\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}}",
            Value::from(rule)
        )
    };
    for (text, wrong) in [
        (
            "self.foo",
            "compilation failed: ERROR: <input>:1:5: undefined field 'foo'\n | self.foo\n | ....^",
        ),
        (
            "foo == 1",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo == 1\n | ^",
        ),
        (
            "self.t < self.n",
            "compilation failed: ERROR: <input>:1:8: found no matching overload for '_<_' applied to '(string, int)'\n | self.t < self.n\n | .......^",
        ),
        (
            "self.n +",
            "compilation failed: ERROR: <input>:1:9: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | self.n +\n | ........^",
        ),
        ("self.n", "must evaluate to a bool"),
    ] {
        assert_eq!(check(rule(text)), [place("rule", &format!("{}: {wrong}", shown(text)))]);
    }
    assert_eq!(
        check(
            json!({"a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1", "messageExpression": "self"}]}})
        ),
        [
            "s.properties[a].x-kubernetes-validations[0].messageExpression Invalid {\"Rule\":\"self > 1\",\"Message\":\"\",\"MessageExpression\":\"self\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: messageExpression must evaluate to a string"
        ]
    );
    assert_eq!(
        check(
            json!({"a": {"type": "array", "maxItems": 3, "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}}})
        ),
        [
            "s.properties[a].items.x-kubernetes-validations[0].rule Invalid \"self >= oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[a]"
        ]
    );
    assert_eq!(
        check(
            json!({"a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1", "optionalOldSelf": true}]}})
        ),
        [
            "s.properties[a].x-kubernetes-validations[0].optionalOldSelf Invalid true: may not be set if oldSelf is not used in rule"
        ]
    );
    assert_eq!(
        told(&check_form(
            &object(json!({"a": {"type": "integer", "x-kubernetes-validations": [
                {"rule": " ", "reason": "Odd", "fieldPath": ".x"}
            ]}})),
            "s"
        )),
        [
            "s.properties[a].x-kubernetes-validations[0].rule Required: rule is not specified",
            "s.properties[a].x-kubernetes-validations[0].reason NotSupported \"Odd\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
            "s.properties[a].x-kubernetes-validations[0].fieldPath Invalid \".x\": fieldPath must be a valid path"
        ]
    );
}

#[test]
fn a_definition_is_refused_for_rules_that_are_too_dear() {
    const HINT: &str = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";
    let nested = |inner: Value| {
        object(
            json!({"a": {"type": "array", "items": inner, "x-kubernetes-validations": [
                {"rule": "self.all(x, self.all(y, x == y))"}
            ]}}),
        )
    };
    let found = check_rules(&nested(json!({"type": "string"})), "s");
    assert_eq!(
        told(&found),
        [
            format!("s.properties[a].x-kubernetes-validations[0].rule Forbidden: estimated rule cost exceeds budget by factor of more than 100x {HINT}"),
            "s.properties[a].x-kubernetes-validations[0].rule Forbidden: contributed to estimated rule & messageExpression cost total exceeding cost limit for entire OpenAPIv3 schema".to_owned(),
            format!("s Forbidden: x-kubernetes-validations estimated rule & messageExpression cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x {HINT}"),
        ]
    );
    let mut bounded = nested(json!({"type": "string", "maxLength": 10}));
    bounded["properties"]["a"]["maxItems"] = json!(100);
    assert_eq!(check_rules(&bounded, "s"), []);
    // `contains` multiplies the sizes of both texts: 4096 and 4096 characters are too much, 4096 and 512 are not.
    let texts = |len: u64| {
        object(json!({"a": {"type": "array", "maxItems": 20, "items": {
            "type": "object",
            "properties": {"message": {"type": "string", "maxLength": 4096}, "part": {"type": "string", "maxLength": len}},
            "x-kubernetes-validations": [{"rule": "!self.message.contains(self.part)"}]
        }}}))
    };
    assert_eq!(
        check_rules(&texts(4096), "s").first().map(|it| it.detail.clone()),
        Some(format!("estimated rule cost exceeds budget by factor of 5.4x {HINT}"))
    );
    assert_eq!(check_rules(&texts(512), "s"), []);
}

#[test]
fn a_rule_that_goes_on_for_too_long_is_cut_off() {
    let schema = object(
        json!({"a": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [
            {"rule": "self.all(x, self.all(y, self.all(z, x + y + z >= 0)))"},
            {"rule": "true"}
        ]}}),
    );
    let items: Value = (0..1000).collect::<Vec<i64>>().into();
    let mut new = json!({});
    new["a"] = items;
    assert_eq!(
        verdict(&schema, None, &new),
        [
            "a Invalid: 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: self.all(x, self.all(y, self.all(z, x + y + z >= 0)))"
        ]
    );
    let each = object(
        json!({"a": {"type": "array", "items": {"type": "integer", "x-kubernetes-validations": [
            {"rule": "lists.range(50000).size() > self"}
        ]}}}),
    );
    let found = Rules::compile(&each).expect("rules").validate(None, &new).broken;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].detail, super::OUT_OF_BUDGET);
    assert_eq!(found[0].reason, Reason::Invalid);
}
