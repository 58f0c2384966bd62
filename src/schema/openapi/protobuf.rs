//! OpenAPI version 2 in protobuf: the messages of gnostic's `openapi.v2.Document`, which client-go asks for and decodes.
//!
//! Field numbers are those of gnostic's `OpenAPIv2.proto`. Only what our documents hold is written.

use serde_json::Value;

/// A document under way: paths and definitions are added one by one.
pub(super) struct Document {
    head: Message,
    paths: Message,
    definitions: Message,
    tail: Message,
}

impl Document {
    pub(super) fn new(info: &Value, security_definitions: &Value) -> Document {
        let mut head = Message::default();
        head.text(1, "2.0");
        let mut about = Message::default();
        about.text(1, text(info, "title"));
        about.text(2, text(info, "version"));
        head.message(2, &about);
        let mut tail = Message::default();
        let mut all = Message::default();
        for (name, definition) in entries(security_definitions) {
            let mut requirement = Message::default();
            requirement.message(1, &named(name, &Message::default()));
            tail.message(12, &requirement);
            let mut key = Message::default();
            key.text(1, text(definition, "type"));
            key.text(2, text(definition, "name"));
            key.text(3, text(definition, "in"));
            key.text(4, text(definition, "description"));
            let mut item = Message::default();
            item.message(2, &key);
            all.message(1, &named(name, &item));
        }
        tail.message(13, &all);
        Document {
            head,
            paths: Message::default(),
            definitions: Message::default(),
            tail,
        }
    }

    pub(super) fn path(&mut self, path: &str, item: &Value) {
        let mut message = Message::default();
        for (method, field) in [
            ("get", 2),
            ("put", 3),
            ("post", 4),
            ("delete", 5),
            ("options", 6),
            ("head", 7),
            ("patch", 8),
        ] {
            if let Some(operation) = item.get(method) {
                message.message(field, &self::operation(operation));
            }
        }
        for parameter in items(item, "parameters") {
            message.message(9, &self::parameter(parameter));
        }
        self.paths.message(2, &named(path, &message));
    }

    pub(super) fn definition(&mut self, name: &str, schema: &Value) {
        self.definitions.message(1, &named(name, &self::schema(schema)));
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.head.message(8, &self.paths);
        self.head.message(9, &self.definitions);
        self.head.bytes.extend_from_slice(&self.tail.bytes);
        self.head.bytes
    }
}

fn operation(operation: &Value) -> Message {
    let mut message = Message::default();
    message.texts(1, items(operation, "tags"));
    message.text(3, text(operation, "description"));
    message.text(5, text(operation, "operationId"));
    message.texts(6, items(operation, "produces"));
    message.texts(7, items(operation, "consumes"));
    for parameter in items(operation, "parameters") {
        message.message(8, &self::parameter(parameter));
    }
    let mut responses = Message::default();
    for (code, response) in operation.get("responses").into_iter().flat_map(entries) {
        let mut said = Message::default();
        said.text(1, text(response, "description"));
        if let Some(schema) = response.get("schema") {
            let mut item = Message::default();
            item.message(1, &self::schema(schema));
            said.message(2, &item);
        }
        let mut value = Message::default();
        value.message(1, &said);
        responses.message(1, &named(code, &value));
    }
    message.message(9, &responses);
    message.texts(10, items(operation, "schemes"));
    extensions(&mut message, 13, operation);
    message
}

/// `ParametersItem`
fn parameter(parameter: &Value) -> Message {
    let is = |key: &str| parameter.get(key).and_then(Value::as_bool).unwrap_or(false);
    let mut message = Message::default();
    if let Some(schema) = parameter.get("schema") {
        let mut body = Message::default();
        body.text(2, text(parameter, "name"));
        body.text(3, text(parameter, "in"));
        body.flag(4, is("required"));
        body.message(5, &self::schema(schema));
        message.message(1, &body);
    } else {
        let in_path = text(parameter, "in") == "path";
        let mut simple = Message::default();
        simple.flag(1, is("required"));
        simple.text(2, text(parameter, "in"));
        simple.text(3, text(parameter, "description"));
        simple.text(4, text(parameter, "name"));
        // Query parameters have one field more before these than path parameters.
        simple.text(if in_path { 5 } else { 6 }, text(parameter, "type"));
        simple.flag(if in_path { 19 } else { 20 }, is("uniqueItems"));
        let mut non_body = Message::default();
        non_body.message(if in_path { 4 } else { 3 }, &simple);
        message.message(2, &non_body);
    }
    let mut item = Message::default();
    item.message(1, &message);
    item
}

fn schema(schema: &Value) -> Message {
    let mut message = Message::default();
    message.text(1, text(schema, "$ref"));
    message.text(2, text(schema, "format"));
    message.text(4, text(schema, "description"));
    if let Some(default) = schema.get("default") {
        message.message(5, &any(default));
    }
    message.texts(19, items(schema, "required"));
    for choice in items(schema, "enum") {
        message.message(20, &any(choice));
    }
    if let Some(element) = schema.get("additionalProperties") {
        let mut item = Message::default();
        match element {
            Value::Bool(any) => item.flag(2, *any),
            element => item.message(1, &self::schema(element)),
        }
        message.message(21, &item);
    }
    if let Some(ty) = schema.get("type").and_then(Value::as_str) {
        let mut item = Message::default();
        item.text(1, ty);
        message.message(22, &item);
    }
    if let Some(element) = schema.get("items") {
        let mut item = Message::default();
        item.message(1, &self::schema(element));
        message.message(23, &item);
    }
    if let Some(properties) = schema.get("properties") {
        let mut all = Message::default();
        for (name, property) in entries(properties) {
            all.message(1, &named(name, &self::schema(property)));
        }
        message.message(25, &all);
    }
    extensions(&mut message, 31, schema);
    message
}

/// `x-…` keys, each as YAML (JSON is YAML).
fn extensions(message: &mut Message, field: u32, of: &Value) {
    for (name, value) in entries(of).filter(|(name, _)| name.starts_with("x-")) {
        message.message(field, &named(name, &any(value)));
    }
}

fn any(value: &Value) -> Message {
    let mut message = Message::default();
    message.text(2, &value.to_string());
    message
}

/// An entry of a map: name and value.
fn named(name: &str, value: &Message) -> Message {
    let mut message = Message::default();
    message.text(1, name);
    message.message(2, value);
    message
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn items<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.as_str(), value))
}

/// A protobuf message: its fields, encoded. Empty texts and false flags are left out, as proto3 does.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn block(&mut self, field: u32, block: &[u8]) {
        self.varint(u64::from(field << 3 | 2));
        self.varint(block.len() as u64);
        self.bytes.extend_from_slice(block);
    }

    fn message(&mut self, field: u32, message: &Message) {
        self.block(field, &message.bytes);
    }

    fn text(&mut self, field: u32, text: &str) {
        if !text.is_empty() {
            self.block(field, text.as_bytes());
        }
    }

    fn texts<'v>(&mut self, field: u32, texts: impl Iterator<Item = &'v Value>) {
        texts
            .filter_map(Value::as_str)
            .for_each(|text| self.block(field, text.as_bytes()));
    }

    fn flag(&mut self, field: u32, flag: bool) {
        if flag {
            self.varint(u64::from(field << 3));
            self.varint(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lengths_are_varints() {
        let mut message = Message::default();
        message.text(31, &"x".repeat(300));
        assert_eq!(message.bytes[..4], [0xfa, 0x01, 0xac, 0x02]);
        message = Message::default();
        message.flag(4, true);
        message.flag(5, false);
        message.text(6, "");
        assert_eq!(message.bytes, [0x20, 0x01]);
    }
}
