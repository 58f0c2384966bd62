//! The JSONPaths of printer columns, selectable fields and the scale subresource: compiled once, evaluated when an object is
//! written.
//!
//! The grammar is that of `k8s.io/client-go/util/jsonpath` without its template braces, as far as it selects values:
//!
//! ```text
//! path   = { step }
//! step   = "." name | "." "*" | ".." name | "[" index "]"
//! index  = "*" | number | [number] ":" [number] [":" number] | quoted { "," quoted } | number { "," number } | "?(" filter ")"
//! filter = operand [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) operand ]
//! operand = "@" path | quoted | number | "true" | "false"
//! ```
//!
//! Only the first value that a path finds is shown, so evaluation stops there.

use crate::tree::{Map, Text, Value};

/// A compiled path.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// All values of an object or list.
    All,
    /// The field of that name here and in everything below.
    Deep(Option<String>),
    Index(i64),
    Slice(Option<i64>, Option<i64>, i64),
    Fields(Vec<String>),
    Indices(Vec<i64>),
    Filter(Operand, Option<(Comparison, Operand)>),
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(Path),
    Constant(Value),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Why a text is no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset}: {expected} expected")]
pub struct PathError {
    /// Bytes from the start of the text.
    pub offset: usize,
    /// What should have been there.
    pub expected: &'static str,
}

/// Filters within filters; a longer chain is no path.
const DEPTH_MAX: usize = 8;
/// Longest path, bytes. Definitions are bounded by the size of a request; nothing real comes near.
const LEN_MAX: usize = 4096;
/// Values looked at in one evaluation. Recursive descents that begin in each other would otherwise grow with a power of the object's
/// size.
const VISITS_MAX: usize = 200_000;

impl Path {
    /// Compiles a path like `.spec.replicas` or `.status.conditions[?(@.type=="Ready")].status`.
    ///
    /// # Errors
    /// When the text is not one.
    pub fn compile(text: &str) -> Result<Path, PathError> {
        if text.len() > LEN_MAX {
            return Err(PathError {
                offset: LEN_MAX,
                expected: "the end",
            });
        }
        let mut parser = Parser { text, at: 0, depth: 0 };
        let path = parser.path()?;
        if parser.at < text.len() {
            return Err(parser.expected("`.` or `[`"));
        }
        Ok(path)
    }

    /// The first value that it finds in `object`.
    pub fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        let mut visits = 0;
        first(&self.steps, object, &mut visits)
    }

    /// The names of a path that is nothing but fields, as those of subresources are.
    pub fn fields(&self) -> Option<Vec<&str>> {
        self.steps
            .iter()
            .map(|step| match step {
                Step::Field(name) => Some(name.as_str()),
                _ => None,
            })
            .collect()
    }
}

fn first<'a>(steps: &[Step], value: &'a Value, visits: &mut usize) -> Option<&'a Value> {
    *visits += 1;
    if *visits > VISITS_MAX {
        return None;
    }
    let Some((step, rest)) = steps.split_first() else {
        return Some(value);
    };
    match step {
        Step::Field(name) => first(rest, value.as_object()?.get(name)?, visits),
        Step::All => children(value).find_map(|child| first(rest, child, visits)),
        Step::Deep(name) => deep(name.as_deref(), rest, value, visits),
        Step::Index(index) => first(rest, element(value, *index)?, visits),
        Step::Slice(from, to, step) => {
            let list = value.as_array()?.as_slice();
            let bound =
                |bound: i64| if bound < 0 { bound + list.len() as i64 } else { bound }.clamp(0, list.len() as i64);
            let (from, to) = (bound(from.unwrap_or(0)), bound(to.unwrap_or(list.len() as i64)));
            let range = list.get(from as usize..to as usize)?;
            let step = usize::try_from(*step).ok().filter(|&step| step > 0)?;
            range.iter().step_by(step).find_map(|item| first(rest, item, visits))
        }
        Step::Fields(names) => names
            .iter()
            .find_map(|name| first(rest, value.as_object()?.get(name)?, visits)),
        Step::Indices(indices) => indices
            .iter()
            .find_map(|index| first(rest, element(value, *index)?, visits)),
        Step::Filter(left, condition) => value.as_array()?.iter().find_map(|item| {
            holds(left, condition.as_ref(), item, visits)
                .then(|| first(rest, item, visits))
                .flatten()
        }),
    }
}

fn children(value: &Value) -> impl Iterator<Item = &Value> {
    let list = value.as_array().into_iter().flatten();
    let fields = value.as_object().into_iter().flat_map(Map::values);
    list.chain(fields)
}

fn deep<'a>(name: Option<&str>, rest: &[Step], value: &'a Value, visits: &mut usize) -> Option<&'a Value> {
    *visits += 1;
    if *visits > VISITS_MAX {
        return None;
    }
    let here = match name {
        None => first(rest, value, visits),
        Some(name) => value
            .as_object()
            .and_then(|fields| fields.get(name))
            .and_then(|found| first(rest, found, visits)),
    };
    here.or_else(|| children(value).find_map(|child| deep(name, rest, child, visits)))
}

fn element(value: &Value, index: i64) -> Option<&Value> {
    let list = value.as_array()?.as_slice();
    let index = if index < 0 { index + list.len() as i64 } else { index };
    list.get(usize::try_from(index).ok()?)
}

fn holds(left: &Operand, condition: Option<&(Comparison, Operand)>, item: &Value, visits: &mut usize) -> bool {
    let left = operand(left, item, visits);
    let Some((comparison, right)) = condition else {
        return left.is_some();
    };
    let (Some(left), Some(right)) = (left, operand(right, item, visits)) else {
        return false;
    };
    let ordering = match (left, right) {
        (Value::Number(_), Value::Number(_)) => left.as_f64().partial_cmp(&right.as_f64()),
        (Value::String(left), Value::String(right)) => Some(left.as_str().cmp(right.as_str())),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        _ => None,
    };
    match comparison {
        Comparison::Equal => ordering.is_some_and(std::cmp::Ordering::is_eq),
        Comparison::NotEqual => ordering.is_none_or(std::cmp::Ordering::is_ne),
        Comparison::Less => ordering.is_some_and(std::cmp::Ordering::is_lt),
        Comparison::LessOrEqual => ordering.is_some_and(std::cmp::Ordering::is_le),
        Comparison::Greater => ordering.is_some_and(std::cmp::Ordering::is_gt),
        Comparison::GreaterOrEqual => ordering.is_some_and(std::cmp::Ordering::is_ge),
    }
}

fn operand<'a>(operand: &'a Operand, item: &'a Value, visits: &mut usize) -> Option<&'a Value> {
    match operand {
        Operand::Path(path) => first(&path.steps, item, visits),
        Operand::Constant(value) => Some(value),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn expected(&self, expected: &'static str) -> PathError {
        PathError {
            offset: self.at,
            expected,
        }
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn space(&mut self) {
        while self.take(" ") {}
    }

    fn path(&mut self) -> Result<Path, PathError> {
        let mut steps = Vec::new();
        loop {
            if self.take("..") {
                steps.push(if self.rest().starts_with('[') || self.take("*") {
                    Step::Deep(None)
                } else {
                    Step::Deep(Some(self.name()?))
                });
            } else if self.take(".") {
                if self.take("*") {
                    steps.push(Step::All);
                } else if !self.rest().starts_with('[') {
                    steps.push(Step::Field(self.name()?));
                }
            } else if self.take("[") {
                steps.push(self.index()?);
            } else {
                return Ok(Path { steps });
            }
        }
    }

    /// A name up to the next step; `\` takes what follows as it is.
    fn name(&mut self) -> Result<String, PathError> {
        let mut name = String::new();
        let mut letters = self.rest().char_indices();
        let mut len = self.rest().len();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\\' => name.extend(letters.next().map(|(_, letter)| letter)),
                '.' | '[' | ']' | ')' | ' ' | '=' | '!' | '<' | '>' | ',' | '|' | '&' => {
                    len = at;
                    break;
                }
                letter => name.push(letter),
            }
        }
        if name.is_empty() {
            return Err(self.expected("a name"));
        }
        self.at += len;
        Ok(name)
    }

    fn index(&mut self) -> Result<Step, PathError> {
        let step = if self.take("*") {
            Step::All
        } else if self.take("?(") {
            self.filter()?
        } else if self.rest().starts_with(['\'', '"']) {
            let mut names = vec![self.quoted()?];
            while self.take(",") {
                self.space();
                names.push(self.quoted()?);
            }
            if let [name] = names.as_mut_slice() {
                Step::Field(std::mem::take(name))
            } else {
                Step::Fields(names)
            }
        } else {
            self.numbers()?
        };
        if self.take("]") {
            Ok(step)
        } else {
            Err(self.expected("`]`"))
        }
    }

    fn numbers(&mut self) -> Result<Step, PathError> {
        let from = self.number();
        if self.take(":") {
            let to = self.number();
            let step = if self.take(":") { self.number().unwrap_or(1) } else { 1 };
            return Ok(Step::Slice(from, to, step));
        }
        let first = from.ok_or(self.expected("an index"))?;
        let mut indices = vec![first];
        while self.take(",") {
            self.space();
            indices.push(self.number().ok_or(self.expected("an index"))?);
        }
        Ok(if indices.len() == 1 {
            Step::Index(first)
        } else {
            Step::Indices(indices)
        })
    }

    fn number(&mut self) -> Option<i64> {
        let rest = self.rest();
        let end = rest
            .char_indices()
            .find(|(at, letter)| !(letter.is_ascii_digit() || *at == 0 && *letter == '-'))
            .map_or(rest.len(), |(at, _)| at);
        let number = rest.get(..end)?.parse().ok()?;
        self.at += end;
        Some(number)
    }

    fn quoted(&mut self) -> Result<String, PathError> {
        let quote = self.rest().chars().next().filter(|quote| matches!(quote, '\'' | '"'));
        let quote = quote.ok_or(self.expected("a quoted text"))?;
        let mut text = String::new();
        let mut letters = self.rest().char_indices().skip(1);
        while let Some((at, letter)) = letters.next() {
            if letter == '\\' {
                text.extend(letters.next().map(|(_, letter)| letter));
            } else if letter == quote {
                self.at += at + 1;
                return Ok(text);
            } else {
                text.push(letter);
            }
        }
        Err(self.expected("a quoted text that ends"))
    }

    fn filter(&mut self) -> Result<Step, PathError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.expected("fewer filters within filters"));
        }
        let left = self.operand()?;
        self.space();
        let comparisons = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let found = comparisons.into_iter().find(|(token, _)| self.take(token));
        let condition = match found {
            None => None,
            Some((_, comparison)) => Some((comparison, self.operand()?)),
        };
        self.space();
        self.depth -= 1;
        if self.take(")") {
            Ok(Step::Filter(left, condition))
        } else {
            Err(self.expected("`)`"))
        }
    }

    fn operand(&mut self) -> Result<Operand, PathError> {
        self.space();
        if self.take("@") {
            return Ok(Operand::Path(self.path()?));
        }
        if self.rest().starts_with(['\'', '"']) {
            return Ok(Operand::Constant(Value::String(Text::from(self.quoted()?))));
        }
        for (token, value) in [("true", true), ("false", false)] {
            if self.take(token) {
                return Ok(Operand::Constant(Value::Bool(value)));
            }
        }
        let rest = self.rest();
        let end = rest
            .find(|letter: char| !matches!(letter, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'))
            .unwrap_or(rest.len());
        let number = rest.get(..end).and_then(|text| serde_json::from_str(text).ok());
        let number = number.filter(|value| matches!(value, Value::Number(_)));
        let number = number.ok_or(self.expected("`@`, a text, a number, `true` or `false`"))?;
        self.at += end;
        Ok(Operand::Constant(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{List, json};

    fn found(path: &str) -> Value {
        let object = json!({
            "spec": {"a": 1, "list": [{"name": "x", "n": 1}, {"name": "y", "n": 2}], "dotted.name": "d", "z": {"deep": 7}},
            "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        Path::compile(path)
            .unwrap()
            .first(&object)
            .cloned()
            .unwrap_or(json!("nothing"))
    }

    #[test]
    fn a_path_finds_the_first_value_that_it_selects() {
        for (path, expected) in [
            (".spec.a", json!(1)),
            (".spec.none.below", json!("nothing")),
            (".spec.list[*].name", json!("x")),
            (".spec.list[1].name", json!("y")),
            (".spec.list[-1].name", json!("y")),
            (".spec.list[5].name", json!("nothing")),
            (".spec.list[1:].name", json!("y")),
            (".spec.list[0:2:1].n", json!(1)),
            (".spec['dotted.name']", json!("d")),
            (r".spec.dotted\.name", json!("d")),
            (".spec['none','a']", json!(1)),
            (".spec.list[1,0].n", json!(2)),
            ("..deep", json!(7)),
            (".status.conditions[?(@.type==\"Ready\")].status", json!("True")),
            (".status.conditions[?(@.type == 'Ready')].status", json!("True")),
            (".status.conditions[?(@.type!='Ready')].type", json!("Other")),
            (".spec.list[?(@.n>=2)].name", json!("y")),
            (".spec.list[?(@.n>1.5)].name", json!("y")),
            (".spec.list[?(@.none)].name", json!("nothing")),
            (".spec.list[?(@.name)].name", json!("x")),
            (".spec.*", json!(1)),
        ] {
            assert_eq!(found(path), expected, "{path}");
        }
        assert_eq!(found("")["spec"]["a"], json!(1));
    }

    #[test]
    fn what_is_no_path_is_refused_with_its_place() {
        for path in [
            "spec",
            ".",
            ".spec.",
            ".spec[",
            ".spec[a]",
            ".a[?(@.b==)]",
            ".a[?(@.b=='c'].d",
            ".a[?(x)]",
            ".a['b",
        ] {
            assert!(Path::compile(path).is_err(), "{path}");
        }
        let nested = format!("{}@{}", ".a[?(@".repeat(20), ")]".repeat(20));
        assert!(Path::compile(&nested).is_err());
        assert!(Path::compile(&".a".repeat(5000)).is_err());
    }

    #[test]
    fn recursive_descents_within_each_other_end() {
        let mut value = json!({"a": 1});
        for _ in 0..60 {
            // Both share what they hold: an object of 2^60 values.
            let mut list = List::default();
            list.push(value.clone());
            let mut fields = Map::new();
            fields.insert("a", value);
            fields.insert("b", Value::Array(list));
            value = Value::Object(fields);
        }
        let path = Path::compile("..a..a..a..a..a..a..none").unwrap();
        assert_eq!(path.first(&value), None);
    }

    #[test]
    fn paths_of_nothing_but_fields_tell_their_names() {
        assert_eq!(
            Path::compile(".spec.replicas").unwrap().fields(),
            Some(vec!["spec", "replicas"])
        );
        assert_eq!(Path::compile(".spec[0]").unwrap().fields(), None);
    }
}
