//! What is wrong with an object, by its schema.
//!
//! Follows `k8s.io/kube-openapi/pkg/validation/validate`: its order, its texts, its way of choosing which branch of an `anyOf`
//! to complain about (the one that most checks were right for), and what apiextensions makes of them. Errors of values that did
//! not change are not told (KEP-4008).

use std::sync::atomic::Ordering;

use super::arena::{Additional, Kind, Node, Run, Structural};
use super::checks::Check;
use super::correlate::{OldItems, is_same};
use super::numbers::{Numeric, is_whole, shown};
use super::path::Path;
use super::{FAULTS_MAX, STEPS_MAX};
use crate::schema::FieldError;
use crate::tree::{List, Map, Value};

/// Patterns of one schema that are kept compiled; beyond them, one is compiled for each text.
const COMPILED_MAX: usize = 256;
/// Longest part of a text that is shown in an error, in bytes.
const SHOWN_MAX: usize = 16 << 10;

impl Structural {
    /// What is wrong with an object by its types and demands: at most `FAULTS_MAX` errors. `old`: what it was before; what did
    /// not change is not complained of. Takes at most `STEPS_MAX` steps.
    pub fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<FieldError> {
        self.root().validate(old, new, &Under::default())
    }
}

/// Where a value that is validated stands, and how.
#[derive(Clone, Default, Debug)]
pub(crate) struct Under {
    /// Path of the value, `""` for a whole object.
    pub(crate) base: String,
    /// Whether the value is a default, of which formats are checked too that are not known.
    pub(crate) default: bool,
}

impl Node<'_> {
    /// What is wrong with a value of this schema.
    pub(crate) fn validate(self, old: Option<&Value>, new: &Value, under: &Under) -> Vec<FieldError> {
        let mut run = Validation {
            all: self.all,
            under,
            steps: STEPS_MAX,
            quiet: false,
        };
        let mut found = Found::default();
        let whole = under.base.is_empty() && !under.default;
        run.value(self, new, old, Place::new(&Path::ROOT, whole), &mut found);
        if let Some(old) = old
            && !found.errors.is_empty()
            && is_same(self, old, new)
        {
            found.errors.clear();
        }
        if run.steps == 0 {
            let what = "the object takes too long to validate against its schema";
            found.errors.push(FieldError::invalid_plain("<nil>", what));
        }
        found.errors
    }
}

/// Errors, and how much was right.
#[derive(Default)]
struct Found {
    errors: Vec<FieldError>,
    /// Whether there is an error, told or not.
    wrong: bool,
    /// Checks that were made, by which the best of several branches is chosen.
    matched: u32,
}

impl Found {
    /// An error is told once.
    fn add(&mut self, error: FieldError) {
        if self.errors.len() < FAULTS_MAX && !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Found) {
        self.matched += other.matched;
        self.wrong |= other.wrong;
        for error in other.errors {
            self.add(error);
        }
    }

    fn is_full(&self) -> bool {
        self.errors.len() >= FAULTS_MAX
    }
}

#[derive(Clone, Copy)]
struct Place<'p> {
    path: &'p Path<'p>,
    /// The root of a whole object: its head is not compared with that of the old one.
    whole: bool,
}

impl<'p> Place<'p> {
    fn new(path: &'p Path<'p>, whole: bool) -> Place<'p> {
        Place { path, whole }
    }
}

struct Validation<'a> {
    all: &'a Structural,
    under: &'a Under,
    /// Steps that are left; when there are none, nothing is looked at any more.
    steps: u64,
    /// Whether it only matters that something is wrong, not what.
    quiet: bool,
}

impl<'a> Validation<'a> {
    fn node(&self, id: u32) -> Node<'a> {
        Node { all: self.all, id }
    }

    /// Takes steps; false when there are none left.
    fn step(&mut self, steps: u64) -> bool {
        self.steps = self.steps.saturating_sub(steps);
        self.steps > 0
    }

    fn tell(&self, found: &mut Found, error: impl FnOnce() -> FieldError) {
        found.wrong = true;
        if !self.quiet {
            found.add(error());
        }
    }

    fn value(&mut self, node: Node<'a>, value: &Value, old: Option<&Value>, place: Place<'_>, found: &mut Found) {
        if found.is_full() || !self.step(1) {
            return;
        }
        let checks = node.checks();
        let format = self.format(checks);
        let has_type = node.kind() != Kind::Any || node.int_or_string();
        if value.is_null() {
            if has_type && !node.nullable() {
                self.tell(found, || self.wrong_type(place.path, &types(node), "null"));
            } else {
                found.matched += 1;
            }
            self.allowed(checks, value, place.path, found);
            return;
        }
        if has_type || !format.is_empty() {
            match type_error(node, value, format) {
                Some((wanted, got)) => self.tell(found, || self.wrong_type(place.path, &wanted, got)),
                None => found.matched += 1,
            }
            found.matched += 1;
        }
        self.combined(checks, value, place, found);
        match value {
            Value::String(text) => self.text(checks, text, place.path, found),
            Value::Number(number) => self.number(checks, Numeric::of(number), place.path, found),
            Value::Array(list) => self.list(node, list, old, place.path, found),
            _ => {}
        }
        self.allowed(checks, value, place.path, found);
        found.matched += 1;
        if let Value::Object(map) = value {
            self.object(node, map, old, place, found);
            found.matched += 1;
        }
        found.matched += 1;
    }

    /// A value below one: errors are not told when it is the same as before.
    fn below(&mut self, node: Node<'a>, value: &Value, old: Option<&Value>, path: &Path<'_>, found: &mut Found) {
        let before = found.errors.len();
        self.value(node, value, old, Place::new(path, false), found);
        // Branches have no old values, so nothing is untold while it is quiet.
        if found.errors.len() > before
            && let Some(old) = old
            && is_same(node, old, value)
        {
            found.errors.truncate(before);
        }
    }

    /// The format that counts, `""` for none.
    fn format(&self, checks: &[Check]) -> &'a str {
        let format = checks.iter().find_map(|check| match check {
            Check::Format(format) => Some(format.name()),
            Check::OtherFormat(name) if self.under.default => Some(self.all.name(*name)),
            _ => None,
        });
        format.unwrap_or("")
    }

    /// `anyOf`, `oneOf`, `allOf`, `not`.
    fn combined(&mut self, checks: &[Check], value: &Value, place: Place<'_>, found: &mut Found) {
        for check in checks {
            match *check {
                Check::AnyOf(run) => self.any_of(run, value, place, found),
                Check::OneOf(run) => self.one_of(run, value, place, found),
                Check::AllOf(run) => self.all_of(run, value, place, found),
                Check::Not(id) => {
                    if !self.branch(id, value, place, true).wrong && self.steps > 0 {
                        self.combination(place.path, || "must not validate the schema (not)".to_owned(), found);
                    }
                }
                // These stand first.
                _ => break,
            }
        }
        found.matched += 2;
    }

    /// A branch by itself. Its errors are never compared with old values.
    fn branch(&mut self, id: u32, value: &Value, place: Place<'_>, quiet: bool) -> Found {
        let mut found = Found::default();
        let before = self.quiet;
        self.quiet |= quiet;
        self.value(self.node(id), value, None, place, &mut found);
        self.quiet = before;
        found
    }

    /// Tells what is wrong by the branch that was nearly right.
    fn best(&mut self, best: Option<(u32, u32)>, value: &Value, place: Place<'_>, found: &mut Found) {
        let Some((id, matched)) = best else { return };
        if self.quiet {
            found.matched += matched;
        } else {
            found.merge(self.branch(id, value, place, false));
        }
    }

    fn any_of(&mut self, run: Run, value: &Value, place: Place<'_>, found: &mut Found) {
        // A branch, and how much was right of it.
        let mut best: Option<(u32, u32)> = None;
        for id in run.of(&self.all.branches) {
            let result = self.branch(*id, value, place, true);
            if self.steps == 0 {
                return;
            }
            if !result.wrong {
                found.matched += result.matched;
                return;
            }
            if best.is_none_or(|(_, matched)| result.matched > matched) {
                best = Some((*id, result.matched));
            }
        }
        self.combination(
            place.path,
            || "must validate at least one schema (anyOf)".to_owned(),
            found,
        );
        self.best(best, value, place, found);
    }

    fn one_of(&mut self, run: Run, value: &Value, place: Place<'_>, found: &mut Found) {
        let mut best: Option<(u32, u32)> = None;
        let mut first_right = 0;
        let mut right = 0;
        for id in run.of(&self.all.branches) {
            let result = self.branch(*id, value, place, true);
            if self.steps == 0 {
                return;
            }
            if !result.wrong {
                right += 1;
                best = None;
                if right == 1 {
                    first_right = result.matched;
                }
            } else if right == 0 && best.is_none_or(|(_, matched)| result.matched > matched) {
                best = Some((*id, result.matched));
            }
        }
        if right == 1 {
            found.matched += first_right;
            return;
        }
        let what = || {
            let many = match right {
                0 => "Found none valid".to_owned(),
                right => format!("Found {right} valid alternatives"),
            };
            format!("must validate one and only one schema (oneOf). {many}")
        };
        self.combination(place.path, what, found);
        self.best(best, value, place, found);
    }

    fn all_of(&mut self, run: Run, value: &Value, place: Place<'_>, found: &mut Found) {
        let (mut right, mut wrong) = (0, 0);
        for id in run.of(&self.all.branches) {
            let result = self.branch(*id, value, place, false);
            if self.steps == 0 {
                return;
            }
            if result.wrong {
                wrong += 1;
            } else {
                right += 1;
            }
            found.merge(result);
        }
        if wrong > 0 {
            let none = if right == 0 { ". None validated" } else { "" };
            let what = || format!("must validate all the schemas (allOf){none}");
            self.combination(place.path, what, found);
        }
    }

    fn text(&mut self, checks: &[Check], text: &str, path: &Path<'_>, found: &mut Found) {
        self.text_demands(checks, text, path, found);
        found.matched += 1;
        let format = checks.iter().find_map(|check| match check {
            Check::Format(format) => Some(*format),
            _ => None,
        });
        if let Some(format) = format {
            if self.step(1 + text.len() as u64 / 64) && !format.accepts(text) {
                self.tell(found, || {
                    let shown = quoted(text);
                    let what = format!("must be of type {}: {shown}", format.name());
                    FieldError::type_invalid(self.field(path), &shown, said(path, &what))
                });
            }
            found.matched += 1;
        }
    }

    /// Tells the first of the demands on a text that is not met.
    fn text_demands(&mut self, checks: &[Check], text: &str, path: &Path<'_>, found: &mut Found) {
        let mut len = None;
        for check in checks {
            let mut length = || *len.get_or_insert_with(|| text.chars().count() as i64);
            match *check {
                Check::MaxLength(max) if length() > max => {
                    return self.tell(found, || FieldError::too_long(self.field(path), max.max(0) as usize));
                }
                Check::MinLength(min) if length() < min => {
                    let what = || format!("should be at least {min} chars long");
                    return self.tell(found, || self.invalid(path, &quoted(text), &what()));
                }
                Check::Pattern(at) => {
                    let pattern = &self.all.patterns[at as usize].text;
                    // At worst each part of a pattern is tried at each letter.
                    if !self.step(1 + text.len() as u64 / 64 * (1 + pattern.len() as u64 / 64)) {
                        return;
                    }
                    let what = match self.matches(at, text) {
                        Ok(true) => continue,
                        Ok(false) => format!("should match '{pattern}'"),
                        Err(why) => format!("should match '{pattern}, but pattern is invalid: {why}'"),
                    };
                    return self.tell(found, || self.invalid(path, &quoted(text), &what));
                }
                _ => {}
            }
        }
    }

    fn matches(&mut self, at: u32, text: &str) -> Result<bool, String> {
        let pattern = &self.all.patterns[at as usize];
        if let Some(compiled) = pattern.regex.get() {
            return match compiled {
                Some(regex) => Ok(regex.is_match(text)),
                None => crate::re2::compile(&pattern.text).map(|regex| regex.is_match(text)),
            };
        }
        // Compiling is dear.
        self.steps = self.steps.saturating_sub(2_000);
        let compiled = crate::re2::compile(&pattern.text);
        let matches = compiled
            .as_ref()
            .map(|regex| regex.is_match(text))
            .map_err(Clone::clone);
        if self.all.compiled.fetch_add(1, Ordering::Relaxed) < COMPILED_MAX {
            pattern.regex.get_or_init(|| compiled.ok());
        }
        matches
    }

    fn number(&mut self, checks: &[Check], number: Numeric, path: &Path<'_>, found: &mut Found) {
        for check in checks {
            let wrong = match *check {
                Check::MultipleOf(bits) => not_multiple(number, f64::from_bits(bits)),
                Check::Maximum(bits) => beyond(number, bits, "less than or equal to", |number, bound| number > bound),
                Check::Below(bits) => beyond(number, bits, "less than", |number, bound| number >= bound),
                Check::Minimum(bits) => {
                    beyond(number, bits, "greater than or equal to", |number, bound| number < bound)
                }
                Check::Above(bits) => beyond(number, bits, "greater than", |number, bound| number <= bound),
                _ => None,
            };
            if let Some(wrong) = wrong {
                self.tell(found, || self.invalid(path, &number.shown(), &wrong));
            }
        }
        found.matched += 2;
    }

    fn list(&mut self, node: Node<'a>, list: &List, old: Option<&Value>, path: &Path<'_>, found: &mut Found) {
        if let Some(items) = node.items() {
            let old_items = OldItems::of(node, old);
            for (at, item) in list.iter().enumerate() {
                if found.is_full() {
                    break;
                }
                let old = old_items.as_ref().and_then(|old| old.of_new(at, item));
                self.below(items, item, old, &path.index(at), found);
            }
        }
        let count = list.len() as i64;
        for check in node.checks() {
            match *check {
                Check::MinItems(min) if count < min => {
                    let what = || format!("should have at least {min} items");
                    self.tell(found, || self.invalid(path, &count.to_string(), &what()));
                }
                Check::MaxItems(max) if count > max => {
                    let max = max.max(0) as usize;
                    self.tell(found, || FieldError::too_many(self.field(path), list.len(), max));
                }
                Check::UniqueItems if has_duplicates(list) => {
                    self.tell(found, || self.invalid(path, "\"\"", "shouldn't contain duplicates"));
                }
                _ => {}
            }
        }
        found.matched += 2;
    }

    /// `enum`.
    fn allowed(&mut self, checks: &[Check], value: &Value, path: &Path<'_>, found: &mut Found) {
        let values = checks.iter().find_map(|check| match check {
            Check::Enum(run) => Some(run.of(&self.all.values)),
            _ => None,
        });
        let Some(values) = values else { return };
        if self.step(in_words(values.len())) && !values.iter().any(|allowed| is_allowed(allowed, value)) {
            // All of them are told.
            if !self.quiet && !self.step(values.len() as u64) {
                return;
            }
            self.tell(found, || {
                let supported: Vec<String> = values.iter().map(plain).collect();
                let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
                FieldError::not_supported_shown(self.field(path), &shown_value(value), &supported)
            });
        }
    }

    fn object(&mut self, node: Node<'a>, map: &Map, old: Option<&Value>, place: Place<'_>, found: &mut Found) {
        let path = place.path;
        let count = map.len() as i64;
        for check in node.checks() {
            match *check {
                Check::MinProperties(min) if count < min => {
                    let what = || format!("should have at least {min} properties");
                    return self.tell(found, || self.invalid(path, &count.to_string(), &what()));
                }
                Check::MaxProperties(max) if count > max => {
                    let max = max.max(0) as usize;
                    return self.tell(found, || FieldError::too_many(self.field(path), map.len(), max));
                }
                _ => {}
            }
        }
        let old = old.and_then(Value::as_object);
        if !matches!(node.additional(), None | Some(Additional::Any)) {
            for (name, value) in map.iter().filter(|(name, _)| node.field(name).is_none()) {
                if found.is_full() {
                    return;
                }
                if let Some(Additional::Schema(schema)) = node.additional() {
                    let old = old.and_then(|old| old.get(name));
                    self.below(schema, value, old, &path.entry(name), found);
                } else {
                    let what = || format!("{path}.{name} in body is a forbidden property");
                    self.tell(found, || {
                        FieldError::invalid_shown(self.field(path), &quoted(name), what())
                    });
                }
            }
        }
        if node.data().fields.count > 0 {
            for (name, value) in map {
                if found.is_full() {
                    return;
                }
                let Some(schema) = node.field(name) else { continue };
                let head = place.whole && matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
                let old = old.filter(|_| !head).and_then(|old| old.get(name));
                self.below(schema, value, old, &path.field(name), found);
            }
        }
        for check in node.checks() {
            let Check::Required(run) = *check else { continue };
            let names = self.all.names(run);
            if !self.step(in_words(names.len())) {
                return;
            }
            for name in names.filter(|name| !map.contains_key(name)) {
                self.tell(found, || FieldError::required(self.field(&path.field(name)), ""));
            }
        }
    }

    /// The path of a field, from the root of the object.
    fn field(&self, path: &Path<'_>) -> String {
        match (self.under.base.as_str(), path.is_root()) {
            ("", true) => "<nil>".to_owned(),
            ("", false) => path.to_string().trim_start_matches('.').to_owned(),
            (base, true) => base.to_owned(),
            (base, false) => format!("{base}.{}", path.to_string().trim_start_matches('.')),
        }
    }

    fn invalid(&self, path: &Path<'_>, shown: &str, what: &str) -> FieldError {
        FieldError::invalid_shown(self.field(path), shown, said(path, what))
    }

    fn wrong_type(&self, path: &Path<'_>, wanted: &str, found: &str) -> FieldError {
        let what = format!("must be of type {wanted}: \"{found}\"");
        FieldError::type_invalid(self.field(path), &format!("\"{found}\""), said(path, &what))
    }

    /// An error about several schemas, which upstream tells of the whole object.
    fn combination(&self, path: &Path<'_>, what: impl FnOnce() -> String, found: &mut Found) {
        self.tell(found, || {
            let field = if self.under.base.is_empty() {
                "<nil>"
            } else {
                &self.under.base
            };
            let detail = format!("{} {}", quoted(&path.to_string()), what());
            FieldError::invalid_shown(field, "\"\"", detail)
        });
    }
}

/// Steps of so many comparisons that end early.
fn in_words(comparisons: usize) -> u64 {
    comparisons as u64 / 8
}

/// What a value should be and what it is, if that is something else.
fn type_error(node: Node<'_>, value: &Value, format: &str) -> Option<(String, &'static str)> {
    let (found, found_format) = match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) => match Numeric::of(number) {
            Numeric::Integer(_) => ("integer", "int64"),
            Numeric::Float(_) => ("number", "float64"),
        },
        Value::String(_) | Value::Raw(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    };
    let is = |kind: Kind| node.kind() == kind && !node.int_or_string();
    let (integers, numbers) = (is(Kind::Integer) || node.int_or_string(), is(Kind::Number));
    let texts = is(Kind::String) || node.int_or_string();
    let of_type = match found {
        "integer" => integers,
        "string" => texts,
        found => node.kind().as_str() == found && !node.int_or_string(),
    };
    let whole = match value {
        Value::Number(number) => match Numeric::of(number) {
            Numeric::Float(float) => integers && is_whole(float),
            Numeric::Integer(_) => numbers,
        },
        _ => false,
    };
    let shapeless = matches!(value, Value::String(_) | Value::Array(_));
    if !shapeless && !format.is_empty() && !of_type && found_format != format && !whole {
        return Some((format.to_owned(), found_format));
    }
    if !integers && !numbers && !format.is_empty() && shapeless {
        return None;
    }
    (!of_type && !whole).then(|| (types(node), found))
}

/// What is said of a value: where it stands, and what is wrong.
fn said(path: &Path<'_>, what: &str) -> String {
    format!("{path} in body {what}")
}

fn types(node: Node<'_>) -> String {
    if node.int_or_string() {
        "integer,string".to_owned()
    } else {
        node.kind().as_str().to_owned()
    }
}

/// A text as errors show it.
fn quoted(text: &str) -> String {
    let mut end = text.len().min(SHOWN_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut json = Vec::with_capacity(end + 2);
    crate::tree::write_text(&text[..end], &mut json);
    String::from_utf8(json).unwrap_or_default()
}

fn shown_value(value: &Value) -> String {
    match value {
        Value::Number(number) => Numeric::of(number).shown(),
        Value::String(text) => quoted(text),
        value => value.to_string(),
    }
}

/// A value of an `enum` as it is listed.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        value => value.to_string(),
    }
}

/// Whether a value is one of an `enum`: numbers are compared as numbers of the kind that the schema gives.
#[expect(clippy::float_cmp, reason = "one of a list is just that one")]
fn is_allowed(allowed: &Value, value: &Value) -> bool {
    match (allowed, value) {
        (Value::Null, _) => false,
        (Value::Number(allowed), Value::Number(number)) => match (Numeric::of(allowed), Numeric::of(number)) {
            (Numeric::Integer(allowed), Numeric::Integer(number)) => allowed == number,
            (Numeric::Float(allowed), Numeric::Float(number)) => allowed == number,
            (Numeric::Float(allowed), Numeric::Integer(number)) => allowed == number as f64,
            (Numeric::Integer(allowed), Numeric::Float(number)) => allowed == number.trunc() as i64,
        },
        (allowed, value) => allowed == value,
    }
}

/// What is wrong with a number against a bound.
fn beyond(number: Numeric, bits: u64, word: &str, is_beyond: fn(f64, f64) -> bool) -> Option<String> {
    let bound = f64::from_bits(bits);
    match number {
        Numeric::Integer(integer) => {
            let bound = bound as i64;
            // Exact where doubles are not: what is told apart is the sign of the difference.
            let order = (integer.cmp(&bound) as i8).into();
            is_beyond(order, 0.0).then(|| format!("should be {word} {bound}"))
        }
        Numeric::Float(float) => is_beyond(float, bound).then(|| format!("should be {word} {}", shown(bound))),
    }
}

fn not_multiple(number: Numeric, factor: f64) -> Option<String> {
    if factor < 0.0 {
        return Some(format!(
            "factor MultipleOf declared must be positive: {}",
            shown(factor)
        ));
    }
    match number {
        Numeric::Integer(integer) if factor >= 1.0 => {
            let factor = factor as i64;
            (integer % factor != 0).then(|| format!("should be a multiple of {factor}"))
        }
        number => {
            let float = match number {
                Numeric::Integer(integer) => integer as f64,
                Numeric::Float(float) => float,
            };
            let quotient = if factor < 1.0 {
                1.0 / factor * float
            } else {
                float / factor
            };
            (!is_whole(quotient)).then(|| format!("should be a multiple of {}", shown(factor)))
        }
    }
}

fn has_duplicates(list: &List) -> bool {
    let mut seen = std::collections::HashSet::with_capacity(list.len());
    list.iter().any(|item| !seen.insert(item.to_json()))
}
