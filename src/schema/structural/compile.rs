//! From the JSON of a schema to the compact form.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use super::arena::{Field, Flags, Kind, ListType, NONE, NodeData, Pattern, Run, Structural};
use super::checks::Check;
use super::formats::Format;
use super::{DEPTH_MAX, NODES_MAX};
use crate::cel::rules::Rules;
use crate::tree::{Text, Value};

/// Why a schema cannot be compiled. One that was found to be valid when it was written can be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unusable {
    /// A keyword that structural schemas do not have; the text is kube-apiserver's.
    #[error("{0}")]
    Unsupported(&'static str),
    /// Schemas within schemas beyond `DEPTH_MAX`.
    #[error("the schema nests deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// More schemas than `NODES_MAX`.
    #[error("the schema has more than {NODES_MAX} parts")]
    TooBig,
}

/// Keywords that are refused, with what is said of each.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("id", "OpenAPIV3Schema 'id' is not supported"),
    ("$schema", "OpenAPIV3Schema 'schema' is not supported"),
    ("$ref", "OpenAPIV3Schema '$ref' is not supported"),
    (
        "patternProperties",
        "OpenAPIV3Schema 'patternProperties' is not supported",
    ),
    ("dependencies", "OpenAPIV3Schema 'dependencies' is not supported"),
    ("additionalItems", "OpenAPIV3Schema 'additionalItems' is not supported"),
    ("definitions", "OpenAPIV3Schema 'definitions' is not supported"),
];

impl Structural {
    /// Compiles an `openAPIV3Schema`, its rules too. Takes time linear in its size.
    ///
    /// # Errors
    /// Keywords that structural schemas do not have, and schemas beyond `DEPTH_MAX` levels or `NODES_MAX` parts.
    pub fn compile(schema: &Value) -> Result<Structural, Unusable> {
        Structural::without_rules(schema).map(|shape| Structural {
            rules: Rules::compile(schema),
            ..shape
        })
    }

    /// [`Structural::compile`], but for the rules, which may be wrong.
    ///
    /// # Errors
    /// As [`Structural::compile`].
    pub(crate) fn without_rules(schema: &Value) -> Result<Structural, Unusable> {
        let mut builder = Builder::default();
        let root = builder.node(schema, 0)?;
        Ok(builder.finish(root))
    }
}

#[derive(Default)]
struct Builder<'s> {
    nodes: Interned<NodeData>,
    fields: Runs<Field>,
    checks: Runs<Check>,
    branches: Runs<u32>,
    lists: Runs<u32>,
    keys: Interned<Run>,
    names: Interned<&'s str>,
    values: Vec<Value>,
    value_lens: Vec<u32>,
    value_runs: HashMap<String, Run>,
    patterns: Interned<&'s str>,
    /// Schemas met, equal ones counted each.
    met: usize,
}

/// Things that are stored once.
struct Interned<T> {
    all: Vec<T>,
    known: HashMap<T, u32>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Interned {
            all: Vec::new(),
            known: HashMap::new(),
        }
    }
}

impl<T: Copy + Eq + std::hash::Hash> Interned<T> {
    fn add(&mut self, thing: T) -> u32 {
        *self.known.entry(thing).or_insert_with(|| {
            self.all.push(thing);
            self.all.len() as u32 - 1
        })
    }
}

/// Runs that are stored once.
struct Runs<T> {
    all: Vec<T>,
    known: HashMap<Box<[T]>, Run>,
}

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Runs {
            all: Vec::new(),
            known: HashMap::new(),
        }
    }
}

impl<T: Copy + Eq + std::hash::Hash> Runs<T> {
    fn add(&mut self, run: Vec<T>) -> Run {
        if run.is_empty() {
            return Run::default();
        }
        if let Some(known) = self.known.get(run.as_slice()) {
            return *known;
        }
        let place = Run {
            start: self.all.len() as u32,
            count: run.len() as u32,
        };
        self.all.extend_from_slice(&run);
        self.known.insert(run.into(), place);
        place
    }
}

impl<'s> Builder<'s> {
    fn node(&mut self, schema: &'s Value, depth: usize) -> Result<u32, Unusable> {
        if depth > DEPTH_MAX {
            return Err(Unusable::TooDeep);
        }
        self.met += 1;
        if self.met > NODES_MAX {
            return Err(Unusable::TooBig);
        }
        for (keyword, why) in UNSUPPORTED {
            if is_set(&schema[*keyword]) {
                return Err(Unusable::Unsupported(why));
            }
        }
        let mut flags = Flags::default();
        Self::extensions(schema, &mut flags)?;
        let checks = self.checks(schema, depth)?;
        let items = match &schema["items"] {
            Value::Array(list) if !list.is_empty() => {
                return Err(Unusable::Unsupported(
                    "OpenAPIV3Schema 'items' must be a schema, but is an array",
                ));
            }
            item @ Value::Object(_) => self.below(item, depth, &mut flags)?,
            _ => NONE,
        };
        let additional = match &schema["additionalProperties"] {
            Value::Bool(true) => {
                flags.set(Flags::ADDITIONAL);
                NONE
            }
            Value::Bool(false) => {
                flags.set(Flags::NO_ADDITIONAL);
                NONE
            }
            value @ Value::Object(_) => {
                flags.set(Flags::ADDITIONAL);
                self.below(value, depth, &mut flags)?
            }
            _ => NONE,
        };
        let mut fields = Vec::new();
        if let Some(properties) = schema["properties"].as_object() {
            fields.reserve(properties.len());
            for (name, property) in properties {
                let node = self.below(property, depth, &mut flags)?;
                let name = self.names.add(name.as_str());
                fields.push(Field { name, node });
            }
        }
        let default = match &schema["default"] {
            Value::Null => NONE,
            value => {
                flags.set(Flags::DEFAULTS);
                self.values_run(std::slice::from_ref(value)).start
            }
        };
        let node = NodeData {
            fields: self.fields.add(fields),
            items,
            additional,
            default,
            keys: self.list_keys(schema),
            checks: checks.start,
            check_count: checks.count as u16,
            flags,
        };
        Ok(self.nodes.add(node))
    }

    /// A schema below one that has `flags`.
    fn below(&mut self, schema: &'s Value, depth: usize, flags: &mut Flags) -> Result<u32, Unusable> {
        let node = self.node(schema, depth + 1)?;
        flags.0 |= self.nodes.all[node as usize].flags.0 & Flags::BELOW.0;
        Ok(node)
    }

    fn extensions(schema: &Value, flags: &mut Flags) -> Result<(), Unusable> {
        flags.set_kind(match schema["type"].as_str().unwrap_or("") {
            "object" => Kind::Object,
            "array" => Kind::Array,
            "string" => Kind::String,
            "integer" => Kind::Integer,
            "number" => Kind::Number,
            "boolean" => Kind::Boolean,
            _ => Kind::Any,
        });
        let yes = |keyword: &str| schema[keyword].as_bool() == Some(true);
        if yes("nullable") {
            flags.set(Flags::NULLABLE);
        }
        match schema["x-kubernetes-preserve-unknown-fields"].as_bool() {
            Some(true) => flags.set(Flags::PRESERVES),
            Some(false) => {
                return Err(Unusable::Unsupported(
                    "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined",
                ));
            }
            None => {}
        }
        if yes("x-kubernetes-embedded-resource") {
            flags.set(Flags::EMBEDDED);
            flags.set(Flags::EMBEDS);
        }
        if yes("x-kubernetes-int-or-string") {
            flags.set(Flags::INT_OR_STRING);
        }
        if schema["x-kubernetes-map-type"] == "atomic" {
            flags.set(Flags::MAP_ATOMIC);
        }
        let list = match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map,
            Some(_) => ListType::Atomic,
            None => ListType::Unset,
        };
        flags.set_list(list);
        if matches!(list, ListType::Set | ListType::Map) {
            flags.set(Flags::UNIQUE);
        }
        Ok(())
    }

    fn list_keys(&mut self, schema: &'s Value) -> u32 {
        let keys = self.name_list(&schema["x-kubernetes-list-map-keys"]);
        if keys.count == 0 { NONE } else { self.keys.add(keys) }
    }

    /// Names as a run of `lists`.
    fn name_list(&mut self, names: &'s Value) -> Run {
        let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
        let names = names.map(|name| self.names.add(name)).collect();
        self.lists.add(names)
    }

    fn values_run(&mut self, values: &[Value]) -> Run {
        let mut text = Vec::new();
        let mut lens = Vec::with_capacity(values.len());
        for value in values {
            let before = text.len();
            value.write(&mut text);
            lens.push((text.len() - before) as u32);
            text.push(b',');
        }
        let text = String::from_utf8(text).unwrap_or_default();
        *self.value_runs.entry(text).or_insert_with(|| {
            let start = self.values.len() as u32;
            self.values.extend_from_slice(values);
            self.value_lens.append(&mut lens);
            Run {
                start,
                count: values.len() as u32,
            }
        })
    }

    /// Demands, in the order in which they are checked.
    fn checks(&mut self, schema: &'s Value, depth: usize) -> Result<Run, Unusable> {
        let mut checks = Vec::new();
        let integer = |keyword: &str| schema[keyword].as_i64();
        let number = |keyword: &str| schema[keyword].as_f64().map(f64::to_bits);
        let yes = |keyword: &str| schema[keyword].as_bool() == Some(true);
        for (keyword, check) in [
            ("anyOf", Check::AnyOf as fn(Run) -> Check),
            ("oneOf", Check::OneOf),
            ("allOf", Check::AllOf),
        ] {
            let list = schema[keyword].as_array().into_iter().flatten();
            // What branches say of defaults and lists is nothing.
            let branches = list.map(|branch| self.node(branch, depth + 1));
            let branches = branches.collect::<Result<Vec<u32>, Unusable>>()?;
            if !branches.is_empty() {
                checks.push(check(self.branches.add(branches)));
            }
        }
        if schema["not"].is_object() {
            checks.push(Check::Not(self.node(&schema["not"], depth + 1)?));
        }
        checks.extend(integer("maxLength").map(Check::MaxLength));
        checks.extend(integer("minLength").map(Check::MinLength));
        match schema["pattern"].as_str() {
            None | Some("") => {}
            Some(pattern) => checks.push(Check::Pattern(self.patterns.add(pattern))),
        }
        match schema["format"].as_str() {
            None | Some("") => {}
            Some(name) => checks.push(match Format::of(name) {
                Some(format) => Check::Format(format),
                None => Check::OtherFormat(self.names.add(name)),
            }),
        }
        checks.extend(number("multipleOf").map(Check::MultipleOf));
        let lower = if yes("exclusiveMinimum") {
            Check::Above
        } else {
            Check::Minimum
        };
        let upper = if yes("exclusiveMaximum") {
            Check::Below
        } else {
            Check::Maximum
        };
        checks.extend(number("minimum").map(lower));
        checks.extend(number("maximum").map(upper));
        checks.extend(integer("minItems").map(Check::MinItems));
        checks.extend(integer("maxItems").map(Check::MaxItems));
        if yes("uniqueItems") {
            checks.push(Check::UniqueItems);
        }
        if let Some(values) = schema["enum"].as_array().filter(|values| !values.is_empty()) {
            checks.push(Check::Enum(self.values_run(values)));
        }
        checks.extend(integer("minProperties").map(Check::MinProperties));
        checks.extend(integer("maxProperties").map(Check::MaxProperties));
        let required = self.name_list(&schema["required"]);
        if required.count > 0 {
            checks.push(Check::Required(required));
        }
        Ok(self.checks.add(checks))
    }

    fn finish(mut self, root: u32) -> Structural {
        let last = self.nodes.all.len() as u32 - 1;
        if root != last {
            // The root equals a part of itself only if it is empty of parts; it stands at the end all the same.
            let copy = self.nodes.all[root as usize];
            self.nodes.all.push(copy);
        }
        let mut names = String::with_capacity(self.names.all.iter().map(|name| name.len()).sum());
        let name_ends = self.names.all.iter().map(|name| {
            names.push_str(name);
            names.len() as u32
        });
        let name_ends = name_ends.collect();
        let patterns = self.patterns.all.iter().map(|text| Pattern {
            text: Text::from(*text),
            regex: OnceLock::new(),
        });
        Structural {
            nodes: self.nodes.all.into(),
            fields: self.fields.all.into(),
            checks: self.checks.all.into(),
            branches: self.branches.all.into(),
            lists: self.lists.all.into(),
            keys: self.keys.all.into(),
            values: self.values.into(),
            value_lens: self.value_lens.into(),
            patterns: patterns.collect(),
            names: names.into(),
            name_ends,
            compiled: AtomicUsize::new(0),
            rules: None,
        }
    }
}

/// Whether a keyword says something: null, false, and what is empty do not.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    }
}
