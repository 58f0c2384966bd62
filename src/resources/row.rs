//! Making the Table cells of an object at write time.

use crate::tree::Value;

use super::cell::Cell;
use super::lookup;

/// The row of one object while its cells are collected, in column order.
pub(super) struct Row<'a> {
    /// The object in its stored shape.
    pub(super) object: &'a Value,
    cells: Vec<Cell>,
}

impl<'a> Row<'a> {
    pub(super) fn new(object: &'a Value) -> Self {
        Row {
            object,
            cells: Vec::new(),
        }
    }

    pub(super) fn finish(self) -> Vec<Cell> {
        self.cells
    }

    pub(super) fn cell(&mut self, cell: Cell) -> &mut Self {
        self.cells.push(cell);
        self
    }

    /// A text that was made.
    pub(super) fn text(&mut self, text: impl Into<String>) -> &mut Self {
        self.cell(Cell::Text(text.into()))
    }

    /// `metadata.name`.
    pub(super) fn name(&mut self) -> &mut Self {
        self.text_at("/metadata/name")
    }

    /// The time since `metadata.creationTimestamp`.
    pub(super) fn age(&mut self) -> &mut Self {
        self.age_at("/metadata/creationTimestamp")
    }

    /// The text at that pointer, or `""`.
    pub(super) fn text_at(&mut self, pointer: &str) -> &mut Self {
        self.text(lookup::text(self.object, pointer))
    }

    /// The text at that pointer, or another one when it is absent or empty.
    pub(super) fn text_or(&mut self, pointer: &str, otherwise: &str) -> &mut Self {
        let text = lookup::text(self.object, pointer);
        self.text(if text.is_empty() { otherwise } else { text })
    }

    /// The integer at that pointer, or 0.
    pub(super) fn integer_at(&mut self, pointer: &str) -> &mut Self {
        self.integer(lookup::integer(self.object, pointer).unwrap_or(0))
    }

    /// The integer at that pointer, or a text when it is absent.
    pub(super) fn integer_or(&mut self, pointer: &str, otherwise: &str) -> &mut Self {
        match lookup::integer(self.object, pointer) {
            Some(integer) => self.integer(integer),
            None => self.text(otherwise),
        }
    }

    pub(super) fn integer(&mut self, integer: i64) -> &mut Self {
        self.cell(Cell::Integer(integer))
    }

    /// The boolean at that pointer, or what holds when it is absent.
    pub(super) fn boolean_at(&mut self, pointer: &str, otherwise: bool) -> &mut Self {
        self.cell(Cell::Bool(lookup::boolean(self.object, pointer).unwrap_or(otherwise)))
    }

    /// How many entries the map or list at that pointer has.
    pub(super) fn count_at(&mut self, pointer: &str) -> &mut Self {
        self.integer(lookup::count(self.object, pointer))
    }

    /// The time since the instant at that pointer, `<unknown>` when there is none.
    pub(super) fn age_at(&mut self, pointer: &str) -> &mut Self {
        self.cell(Cell::Age(lookup::time_s(self.object, pointer).unwrap_or(0)))
    }

    /// The names and images of the containers in the list at that pointer: two cells.
    pub(super) fn containers_at(&mut self, pointer: &str) -> &mut Self {
        let containers = lookup::list(self.object, pointer);
        let join = |field: &str| {
            containers
                .iter()
                .map(|c| lookup::text(c, field))
                .collect::<Vec<_>>()
                .join(",")
        };
        self.text(join("/name")).text(join("/image"))
    }

    /// The map of labels at that pointer.
    pub(super) fn labels_at(&mut self, pointer: &str) -> &mut Self {
        self.text(labels(lookup::at(self.object, pointer)))
    }

    /// The label selector at that pointer.
    pub(super) fn selector_at(&mut self, pointer: &str) -> &mut Self {
        self.text(selector(lookup::at(self.object, pointer)))
    }

    /// What the JSON `conditions` of the row are (a JSON array): not a column, it comes after them.
    pub(super) fn conditions(&mut self, json: &str) -> &mut Self {
        self.cell(Cell::Json(json.to_owned()))
    }
}

/// A map of labels as `a=1,b=2`, `<none>` when empty.
pub(super) fn labels(map: Option<&Value>) -> String {
    let mut pairs: Vec<String> = map
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or("")))
        .collect();
    pairs.sort();
    or_none(pairs.join(","))
}

/// A label selector as text, requirements sorted by key: `a=1,b in (x,y),!c`; `<none>` when it is absent or empty.
pub fn selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else {
        return or_none(String::new());
    };
    let equal = lookup::map(selector, "/matchLabels").into_iter().flatten();
    let mut requirements: Vec<(&str, String)> = equal
        .map(|(key, value)| (key.as_str(), format!("{key}={}", value.as_str().unwrap_or(""))))
        .collect();
    for expression in lookup::list(selector, "/matchExpressions") {
        let key = lookup::text(expression, "/key");
        let mut values = lookup::texts(expression, "/values");
        values.sort_unstable();
        let values = values.join(",");
        requirements.push((
            key,
            match lookup::text(expression, "/operator") {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "Exists" => key.to_owned(),
                "DoesNotExist" => format!("!{key}"),
                _ => return "<error>".to_owned(),
            },
        ));
    }
    requirements.sort_by(|a, b| a.0.cmp(b.0));
    or_none(
        requirements
            .into_iter()
            .map(|(_, text)| text)
            .collect::<Vec<_>>()
            .join(","),
    )
}

/// The text, or `<none>` when it is empty.
pub(super) fn or_none(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}

/// The first `max` items joined by commas and how many more there are.
pub(super) fn some_and_more(items: &[String], max: usize, separator: &str) -> String {
    let shown = items[..items.len().min(max)].join(separator);
    if items.len() > max {
        format!("{shown} + {} more...", items.len() - max)
    } else {
        shown
    }
}
