//! Objects from a file: JSON lines, JSON documents one behind the other, or YAML documents; compressed or not; lists taken apart.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use serde_json::Value;

use crate::cli::{Exit, Failure};

/// Bytes of one YAML document: more than any object may have.
const DOCUMENT_BYTES_MAX: usize = 64 << 20;

/// Tells every object of `input` to `take`.
pub(super) fn read(
    input: impl Read + 'static,
    path: &Path,
    take: &mut dyn FnMut(Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io("read", path, &error);
    let mut input: Box<dyn BufRead> = Box::new(BufReader::with_capacity(1 << 20, input));
    if input.fill_buf().map_err(failed)?.starts_with(&[0x1f, 0x8b]) {
        input = Box::new(BufReader::with_capacity(1 << 20, MultiGzDecoder::new(input)));
    }
    let is_json = loop {
        let bytes = input.fill_buf().map_err(failed)?;
        let blank = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        match bytes.get(blank) {
            Some(byte) => break *byte == b'{' || *byte == b'[',
            None if bytes.is_empty() => return Ok(()),
            None => input.consume(blank),
        }
    };
    if is_json {
        for document in serde_json::Deserializer::from_reader(input).into_iter() {
            let document: Value = document.map_err(|error| unreadable(path, &error))?;
            take_apart(document, path, take)?;
        }
        return Ok(());
    }
    let mut document = String::new();
    let mut line = String::new();
    loop {
        line.clear();
        let is_end = input.read_line(&mut line).map_err(failed)? == 0;
        let is_mark = line.trim_end() == "---" || line.starts_with("--- ");
        if is_end || is_mark {
            if document
                .lines()
                .any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
            {
                let value: Value = serde_saphyr::from_str(&document).map_err(|error| unreadable(path, &error))?;
                take_apart(value, path, take)?;
            }
            document.clear();
        } else {
            document.push_str(&line);
        }
        if document.len() > DOCUMENT_BYTES_MAX {
            return Err(unreadable(path, &"a document of more than 64 MiB"));
        }
        if is_end {
            return Ok(());
        }
    }
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Failure, format!("{} is not readable: {error}", path.display()))
        .advise("give JSON lines (flatkube store export), JSON or YAML documents, or a List of them")
}

/// A list's items, or the object itself.
fn take_apart(
    mut document: Value,
    path: &Path,
    take: &mut dyn FnMut(Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if let Value::Array(items) = document {
        return items.into_iter().try_for_each(|item| take_apart(item, path, take));
    }
    let text = |field: &str| document[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version.is_empty() || kind.is_empty() {
        return Err(unreadable(path, &"an object without apiVersion or kind"));
    }
    let Some(item_kind) = kind.strip_suffix("List").filter(|_| document["items"].is_array()) else {
        return take(document);
    };
    let Value::Array(items) = document["items"].take() else {
        return Ok(());
    };
    for mut item in items {
        // Items of a typed list leave out what all have in common.
        if let Some(fields) = item.as_object_mut().filter(|_| !item_kind.is_empty()) {
            fields.entry("apiVersion").or_insert_with(|| api_version.clone().into());
            fields.entry("kind").or_insert_with(|| item_kind.into());
        }
        take_apart(item, path, take)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write as _};

    use super::*;

    fn names(bytes: &[u8]) -> Vec<String> {
        let mut names = Vec::new();
        read(Cursor::new(bytes.to_vec()), Path::new("input"), &mut |object| {
            names.push(format!(
                "{}/{}",
                object["kind"].as_str().unwrap(),
                object["metadata"]["name"].as_str().unwrap()
            ));
            Ok(())
        })
        .unwrap();
        names
    }

    const LINES: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}
{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"b"}},{"metadata":{"name":"c"}}]}
{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"d"}}]}"#;

    #[test]
    fn lines_lists_and_compressed_lines_are_the_same_objects() {
        let expected = ["Pod/a", "Pod/b", "Pod/c", "Node/d"];
        assert_eq!(names(LINES.as_bytes()), expected);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(LINES.as_bytes()).unwrap();
        assert_eq!(names(&packed.finish().unwrap()), expected);
    }

    #[test]
    fn yaml_documents_are_told_apart() {
        let yaml = "# a file\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n---\n# nothing\n---\n\
                    apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {name: d}\n";
        assert_eq!(names(yaml.as_bytes()), ["Pod/a", "Node/d"]);
        assert!(names(b" \n").is_empty());
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for bytes in ["{\"kind\":\"Pod\"}", "{\"a\":", "just text: [", "[1]"] {
            let read = read(Cursor::new(bytes.as_bytes().to_vec()), Path::new("input"), &mut |_| {
                Ok(())
            });
            assert!(read.is_err(), "{bytes}");
        }
    }
}
