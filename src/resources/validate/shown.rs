//! Values as the messages of kube-apiserver show them.

use crate::tree::Value;

/// An object as kube-apiserver's inner types show it: with capitals.
pub(in crate::resources) fn capitalized(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| {
                let name = match name.as_str() {
                    "ip" => "IP".to_owned(),
                    "uid" => "UID".to_owned(),
                    name => {
                        let mut letters = name.chars();
                        let first = letters.next().map(|first| first.to_ascii_uppercase());
                        first.into_iter().chain(letters).collect::<String>()
                    }
                };
                (name, capitalized(value))
            });
            Value::Object(fields.collect())
        }
        Value::Array(list) => list.iter().map(capitalized).collect(),
        other => other.clone(),
    }
}
