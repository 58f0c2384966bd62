//! Nothing that an expression does or tells is unbounded.

use super::environment::Environment;
use super::machine::{self, COST_MAX, WORK_MAX};
use super::program::Program;
use super::rules::Rules;
use super::run::{Budget, Input, Output, RunError, Variables};
use super::value::{Failure, Val};
use crate::tree::{Value, json};

fn environment() -> Environment {
    Environment::new().with("x")
}

fn refused(expression: &str) -> String {
    Program::compile(expression, &environment()).expect_err("a mistake").0
}

#[test]
fn rows_of_extraneous_words_do_not_nest() {
    let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(|| {
        for begin in ["[", "[?"] {
            let told = refused(&format!("{begin}{}", ",".repeat(99_000)));
            assert!(told.contains("extraneous input ','"), "{told:.300}");
            refused(&format!("{begin}{}", ",?".repeat(49_000)));
        }
        refused(&format!("{{{}", ",".repeat(99_000)));
    });
    thread.expect("a thread").join().expect("no overflow");
}

#[test]
fn long_lines_are_shown_around_the_place() {
    let told = refused(&format!("[{}nosuch, {}1]", "'é', ".repeat(5_000), "1, ".repeat(10_000)));
    assert!(told.len() <= 64 * 1024, "{}", told.len());
    let line = |text: &str| text.lines().nth(1).map_or(0, |line| line.chars().count());
    assert_eq!(line(&told), 203, "{told:.600}");
    let told = refused(&format!("{} + nosuch", "1".repeat(180)));
    assert!(line(&told) == 192 && told.contains("+ nosuch\n"), "{told}");
    let told = refused(&vec![format!("nosuch('{}')", "a".repeat(900)); 100].join(" + "));
    assert!(told.len() <= 64 * 1024 && told.contains("nosuch"), "{}", told.len());
}

#[test]
fn copies_of_texts_are_work() {
    let x = json!({"items": vec![1; 10_000], "big": "a".repeat(2_900_000)});
    for expression in [
        "x.items.map(i, {x.big: i}).size() > 0",
        "x.items.map(i, x.items.transformMapEntry(j, k, {x.big + string(j): i})).size() > 0",
        "x.items.all(i, !(x.big in {'a': 1}))",
    ] {
        let program = Program::compile(expression, &environment()).unwrap_or_else(|wrong| panic!("{wrong}"));
        let values = [Val::of_tree(&x, None).expect("a value")];
        // A tenth of what a run may do: enough for a few copies, and quick without optimisation.
        let work_max = WORK_MAX / 10;
        let (outcome, used) = machine::run(&program, &values, COST_MAX, work_max);
        assert_eq!(
            outcome.map(|value| value.type_name()),
            Err(Failure::TooDear),
            "{expression}"
        );
        assert!(used.work < 2 * work_max);
    }
    let program = Program::compile("{'a': 1}[x.big] == 1", &environment()).expect("an expression");
    match program.run(&[Input::Value(&x)], &mut Budget::of(10_000_000)) {
        Err(RunError::Told(what)) => assert!(what.starts_with("no such key: aaa") && what.len() < 1_100),
        other => panic!("{other:?}"),
    }
}

#[test]
fn conversions_of_texts_are_work() {
    for (format, text) in [("byte", "YWFh".repeat(700_000)), ("date-time", "2".repeat(2_900_000))] {
        let schema = json!({
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": {"type": "integer"}},
                "big": {"type": "string", "format": format}
            },
            "x-kubernetes-validations": [{"rule": "self.items.map(i, self.big).size() > 0 || self.items.all(i, self.big == self.big)"}]
        });
        let new = json!({"items": vec![1; 10_000], "big": text});
        let told = Rules::compile(&schema).expect("rules").validate(None, &new).broken;
        assert!(told[0].detail.len() < 2_000, "{}", told[0].detail.len());
        if format == "byte" {
            assert!(told[0].detail.contains("cost exceeds limit"), "{}", told[0].detail);
        }
    }
}

#[test]
fn items_with_keys_are_found_in_long_lists_and_findings_are_counted() {
    let schema = json!({"type": "object", "properties": {"list": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["a", "b"],
        "items": {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.c >= oldSelf.c"}, {"rule": "self.c < 7"}]
        }
    }}});
    let rules = Rules::compile(&schema).expect("rules");
    let item = |at: usize, c: i64| json!({"a": format!("n{}", at / 2), "b": at % 2, "c": c});
    let list = |items: Vec<Value>| json!({"list": items});
    let len = 6_000;
    let old = list((0..len).map(|at| item(at, 5)).collect());
    let moved = |changed: usize| {
        list(
            (0..len)
                .rev()
                .map(|at| item(at, if at == changed { 4 } else { 5 }))
                .collect(),
        )
    };
    let verdict = rules.validate(Some(&old), &moved(1_001));
    let paths: Vec<&str> = verdict.broken.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, [format!("list[{}]", len - 1 - 1_001)]);
    // What was wrong before is tolerated of items that did not change.
    let old = list((0..20).map(|at| item(at, 9)).collect());
    let new = list((0..20).rev().map(|at| item(at, if at == 3 { 10 } else { 9 })).collect());
    let verdict = rules.validate(Some(&old), &new);
    assert_eq!((verdict.broken.len(), verdict.tolerated.len()), (1, 19));
    let wrong = list((0..3_000).map(|at| item(at, 9)).collect());
    assert_eq!(rules.validate(None, &wrong).broken.len(), 1_000);
    assert_eq!(rules.validate(Some(&wrong), &wrong).tolerated.len(), 1_000);
}

#[test]
fn variables_of_a_policy_share_one_budget() {
    let x = json!({"items": vec![1; 3_000]});
    let environment = environment();
    let dear = Program::compile("x.items.all(i, x.items.size() > 0)", &environment).expect("an expression");
    let last = Program::compile("x.items.size() > 0", &environment).expect("an expression");
    let entries = || (0..1_000).map(|_| ("a", Some(&dear))).chain([("last", Some(&last))]);
    let variables = Variables::new(entries());
    let inputs = [Input::Value(&x)];
    let mut budget = Budget::of(100_000);
    variables.make(&inputs, &mut budget);
    assert_eq!(last.run(&inputs, &mut budget), Err(RunError::OutOfBudget));
    let of_variables = Program::compile("x.last", &environment).expect("an expression");
    let asked = of_variables.run(&[Input::Variables(&variables)], &mut Budget::of(100));
    assert_eq!(asked, Err(RunError::TooDear));
    assert_eq!(last.run(&inputs, &mut Budget::of(100)), Ok(Output::Bool(true)));
}
