//! What the sidecar of a custom object holds: its row and its selectable fields, by the paths of its definition.

use std::fmt::Write as _;

use super::path::Path;
use crate::resources::cell::Cell;
use crate::resources::lookup::text;
use crate::tree::Value;

/// Paths of the cells and selectable fields of a version, compiled.
#[derive(Debug)]
pub struct Cells {
    /// Sources of the cells behind the name.
    pub sources: Vec<Source>,
    /// Selectable fields of all versions, by name; empty but for the version that is stored.
    pub fields: Vec<(String, Path)>,
    /// Selectable fields of this version.
    pub own: Vec<(String, Path)>,
    /// Number of what sidecars hold: another one for other columns or fields.
    pub layout: u32,
}

/// Where a cell comes from.
#[derive(Debug)]
pub struct Source {
    /// The path as the definition writes it.
    pub(super) text: Box<str>,
    kind: CellKind,
    /// `None` when it cannot be compiled; the cell is `null` then.
    path: Option<Path>,
}

/// The type of a printer column.
#[derive(Debug, Clone, Copy)]
enum CellKind {
    Text,
    Integer,
    Number,
    Boolean,
    Date,
}

impl Source {
    pub(super) fn new(kind: &str, path: &str) -> Source {
        Source {
            text: path.into(),
            kind: match kind {
                "integer" => CellKind::Integer,
                "number" => CellKind::Number,
                "boolean" => CellKind::Boolean,
                "date" => CellKind::Date,
                _ => CellKind::Text,
            },
            path: Path::compile(path).ok(),
        }
    }

    /// The cell of an object, as upstream's table converter makes it: what is not of the column's type is not shown.
    fn cell(&self, object: &Value) -> Cell {
        let Some(value) = self.path.as_ref().and_then(|path| path.first(object)) else {
            return Cell::Null;
        };
        match (self.kind, value) {
            (CellKind::Text, value) => Cell::Text(printed(value)),
            (CellKind::Integer, Value::Number(number)) => match number.as_i64() {
                Some(integer) => Cell::Integer(integer),
                // Go cuts the fraction off; what does not fit is the least integer there.
                None => number
                    .as_f64()
                    .map_or(Cell::Null, |number| Cell::Integer(go_integer(number))),
            },
            (CellKind::Number, Value::Number(number)) => match number.as_i64() {
                Some(integer) => Cell::Integer(integer),
                None => number.as_f64().map_or(Cell::Null, Cell::Number),
            },
            (CellKind::Boolean, Value::Bool(value)) => Cell::Bool(*value),
            (CellKind::Date, Value::String(text)) => match text.as_str() {
                "" | "null" => Cell::Age(0),
                text => match text.parse::<jiff::Timestamp>() {
                    Ok(instant) => Cell::Age(instant.as_second()),
                    Err(_) => Cell::Text("<invalid>".to_owned()),
                },
            },
            _ => Cell::Null,
        }
    }
}

/// The fraction cut off; what does not fit into 64 bits is the least integer, as Go has it on the processors that servers have.
fn go_integer(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&number) {
        number as i64
    } else {
        i64::MIN
    }
}

/// A value as Go prints it: texts as they are, lists and objects as JSON.
fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.as_str().to_owned(),
        Value::Number(number) => go_number(number),
        other => other.to_json(),
    }
}

/// A number as Go's `%v` prints it: of a fraction the shortest text that is read back as the same.
fn go_number(number: &serde_json::Number) -> String {
    if let Some(integer) = number.as_i64() {
        return integer.to_string();
    }
    let value = number.as_f64().unwrap_or(0.0);
    let exponent = if value == 0.0 {
        0
    } else {
        value.abs().log10().floor() as i32
    };
    if (-4..21).contains(&exponent) {
        return value.to_string();
    }
    // Rust writes `1e21`, Go `1e+21`.
    let mut text = String::new();
    let _ = write!(text, "{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent:0>2}"),
        Some((digits, exponent)) => format!("{digits}e-{:0>2}", &exponent[1..]),
        None => text,
    }
}

fn field_text(path: &Path, object: &Value) -> String {
    match path.first(object) {
        None | Some(Value::Null) => String::new(),
        Some(value) => printed(value),
    }
}

impl Cells {
    /// The row of an object.
    pub(crate) fn row(&self, object: &Value) -> Vec<Cell> {
        let mut cells = Vec::with_capacity(1 + self.sources.len());
        cells.push(Cell::Text(text(object, "/metadata/name").to_owned()));
        cells.extend(self.sources.iter().map(|source| source.cell(object)));
        cells
    }

    /// The selectable fields of an object, sorted by name: `""` where there is none.
    pub(crate) fn fields<'a>(&'a self, object: &'a Value) -> impl Iterator<Item = (&'a str, String)> {
        let fields = self.fields.iter();
        fields.map(|(name, path)| (name.as_str(), field_text(path, object)))
    }

    /// A selectable field of an object of this version: `""` where there is none.
    pub(crate) fn selectable(&self, name: &str, object: &Value) -> String {
        let found = self.own.iter().find(|(known, _)| known == name);
        found.map_or_else(String::new, |(_, path)| field_text(path, object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    #[test]
    fn a_cell_shows_what_is_of_its_columns_type_and_texts_show_everything() {
        let object = json!({
            "s": "text", "n": 5, "f": 1.5, "b": true, "d": "2020-01-02T03:04:05Z", "bad": "yesterday", "o": {"k": "v"}, "l": [1, "a"],
            "z": null, "big": 1e21, "small": 1e-7,
        });
        let cell = |kind: &str, path: &str| Source::new(kind, path).cell(&object);
        for (kind, path, expected) in [
            ("string", ".s", Cell::Text("text".into())),
            ("string", ".n", Cell::Text("5".into())),
            ("string", ".f", Cell::Text("1.5".into())),
            ("string", ".b", Cell::Text("true".into())),
            ("string", ".o", Cell::Text("{\"k\":\"v\"}".into())),
            ("string", ".l", Cell::Text("[1,\"a\"]".into())),
            ("string", ".big", Cell::Text("1e+21".into())),
            ("string", ".small", Cell::Text("1e-07".into())),
            ("string", ".none", Cell::Null),
            ("integer", ".n", Cell::Integer(5)),
            ("integer", ".f", Cell::Integer(1)),
            ("integer", ".big", Cell::Integer(i64::MIN)),
            ("integer", ".s", Cell::Null),
            ("number", ".n", Cell::Integer(5)),
            ("number", ".f", Cell::Number(1.5)),
            ("number", ".s", Cell::Null),
            ("boolean", ".b", Cell::Bool(true)),
            ("boolean", ".s", Cell::Null),
            ("boolean", ".z", Cell::Null),
            ("date", ".d", Cell::Age(1_577_934_245)),
            ("date", ".bad", Cell::Text("<invalid>".into())),
            ("date", ".none", Cell::Null),
            ("date", ".n", Cell::Null),
            ("string", "no path", Cell::Null),
        ] {
            assert_eq!(cell(kind, path), expected, "{kind} {path}");
        }
    }
}
