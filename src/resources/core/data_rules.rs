//! Rules of ConfigMaps and Secrets.

use crate::tree::Value;
use base64::Engine;

use crate::resources::FieldError;
use crate::resources::validate::{At, FieldPath};
use crate::schema;

/// Most bytes that all values of one object may have together.
const DATA_LEN_MAX: usize = 1024 * 1024;
const KEY_RULE: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
    'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

pub(super) fn config_map(map: &Value, errors: &mut Vec<FieldError>) {
    let (texts, bytes) = (At::root(map).get("data"), At::root(map).get("binaryData"));
    let mut len = 0;
    for (key, value) in texts.entries() {
        check_key(key, &value.field, errors);
        if bytes.value.get(key).is_some() {
            errors.push(FieldError::invalid_text(
                &value.field,
                key,
                "duplicate of key present in binaryData",
            ));
        }
        len += value.text().len();
    }
    for (key, value) in bytes.entries() {
        check_key(key, &value.field, errors);
        len += decoded_len(value.text());
    }
    check_len(len, "", errors);
}

pub(super) fn secret(secret: &Value, errors: &mut Vec<FieldError>) {
    let secret = At::root(secret);
    let data = secret.get("data");
    let mut len = 0;
    for (key, value) in data.entries() {
        check_key(key, &value.field, errors);
        len += decoded_len(value.text());
    }
    check_len(len, "data", errors);
    let has = |key: &str| data.value.get(key).is_some();
    let has_content = |key: &str| {
        data.value
            .get(key)
            .and_then(Value::as_str)
            .is_some_and(|text| !text.is_empty())
    };
    let mut require = |keys: &[&str]| {
        for key in keys {
            errors.push(FieldError::required(format!("data[{key}]"), ""));
        }
    };
    match secret.get("type").text() {
        "kubernetes.io/tls" => {
            require(
                &["tls.crt", "tls.key"]
                    .into_iter()
                    .filter(|key| !has(key))
                    .collect::<Vec<_>>(),
            );
        }
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => require(&["username", "password"]),
        "kubernetes.io/ssh-auth" if !has_content("ssh-privatekey") => require(&["ssh-privatekey"]),
        "kubernetes.io/service-account-token" => {
            let annotations = secret.get("metadata.annotations");
            let name = "kubernetes.io/service-account.name";
            if annotations
                .value
                .get(name)
                .and_then(Value::as_str)
                .is_none_or(str::is_empty)
            {
                errors.push(FieldError::required(format!("metadata.annotations[{name}]"), ""));
            }
        }
        "kubernetes.io/dockercfg" => check_json(&data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => check_json(&data, ".dockerconfigjson", errors),
        _ => {}
    }
}

/// Warns of a certificate and key that no server can use, in the words of Go.
pub(super) fn secret_warnings(secret: &Value) -> Vec<String> {
    let secret = At::root(secret);
    if secret.get("type").text() != "kubernetes.io/tls" {
        return Vec::new();
    }
    let has_block = |key: &str| {
        let value = secret.get("data").value.get(key).and_then(Value::as_str).unwrap_or("");
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(value)
            .unwrap_or_default();
        x509_parser::pem::Pem::iter_from_buffer(&bytes).any(|block| block.is_ok())
    };
    let missing = [("tls.crt", "certificate"), ("tls.key", "key")]
        .into_iter()
        .find(|(key, _)| !has_block(key));
    let warning = missing.map(|(_, what)| format!("tls: failed to find any PEM data in {what} input"));
    warning.into_iter().collect()
}

/// The value must be there and be JSON.
fn check_json(data: &At<'_>, key: &str, errors: &mut Vec<FieldError>) {
    let field = format!("data[{key}]");
    let Some(value) = data.value.get(key).and_then(Value::as_str) else {
        errors.push(FieldError::required(field, ""));
        return;
    };
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(value)
        .unwrap_or_default();
    let fault = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(other) => format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            schema::go_word(&other)
        ),
        Err(_) => schema::json_fault(&bytes).unwrap_or_else(|| "must be valid JSON".to_owned()),
    };
    errors.push(FieldError::invalid_text(field, "<secret contents redacted>", fault));
}

pub(super) fn check_key(key: &str, field: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if key.len() > 253 {
        errors.push(FieldError::invalid_text(
            field,
            key,
            "must be no more than 253 characters",
        ));
    }
    if key.is_empty() || !key.bytes().all(known) {
        errors.push(FieldError::invalid_text(field, key, KEY_RULE));
    }
    if key == "." {
        errors.push(FieldError::invalid_text(field, key, "must not be '.'"));
    } else if key == ".." {
        errors.push(FieldError::invalid_text(field, key, "must not be '..'"));
    } else if key.starts_with("..") {
        errors.push(FieldError::invalid_text(field, key, "must not start with '..'"));
    }
}

fn check_len(len: usize, field: &str, errors: &mut Vec<FieldError>) {
    if len > DATA_LEN_MAX {
        errors.push(FieldError::too_long(
            if field.is_empty() { "[]" } else { field },
            DATA_LEN_MAX,
        ));
    }
}

fn decoded_len(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

/// An immutable object keeps its data, and stays immutable.
pub(super) fn immutable(old: &Value, new: &Value, fields: &[&str], errors: &mut Vec<FieldError>) {
    if old.get("immutable").and_then(Value::as_bool) != Some(true) {
        return;
    }
    for field in std::iter::once(&"immutable").chain(fields) {
        if old.get(*field) != new.get(*field) {
            errors.push(FieldError::forbidden(
                *field,
                "field is immutable when `immutable` is set",
            ));
        }
    }
}
