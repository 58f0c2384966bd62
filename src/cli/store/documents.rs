//! Objects from a file: JSON lines, JSON documents one behind the other, or YAML documents; compressed or not; lists taken apart.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use indicatif::HumanBytes;
use serde_json::Value;

use crate::cli::{Exit, Failure};

/// Bytes of one document that are held in memory.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    yaml: u64,
    json: u64,
}

/// YAML: more than any object may have. JSON: a List of a whole cluster, indented, is one document.
const BOUNDS: Bounds = Bounds {
    yaml: 64 << 20,
    json: 512 << 20,
};

/// Tells every object of `input` to `take`.
pub(super) fn read(
    input: impl Read + 'static,
    path: &Path,
    take: &mut dyn FnMut(Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    read_within(BOUNDS, input, path, take)
}

fn read_within(
    bounds: Bounds,
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
        read_json(bounds.json, input, path, take)
    } else {
        read_yaml(bounds.yaml, input, path, take)
    }
}

fn read_json(
    bytes_max: u64,
    input: Box<dyn BufRead>,
    path: &Path,
    take: &mut dyn FnMut(Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let left = Rc::new(Cell::new(bytes_max));
    let bounded = Bounded {
        input,
        left: left.clone(),
        bytes_max,
    };
    for document in serde_json::Deserializer::from_reader(bounded).into_iter() {
        let document: Value = document.map_err(|error| unreadable(path, &error))?;
        left.set(bytes_max);
        take_apart(document, path, take)?;
    }
    Ok(())
}

/// A reader that fails when one document takes more than its bytes. The parser asks for byte after byte, so what is left can be
/// set anew between two documents.
struct Bounded {
    input: Box<dyn BufRead>,
    left: Rc<Cell<u64>>,
    bytes_max: u64,
}

impl Read for Bounded {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 {
            return Err(io::Error::other(too_long(self.bytes_max)));
        }
        let wanted = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = self.input.read(&mut bytes[..wanted])?;
        self.left.set(left - count as u64);
        Ok(count)
    }
}

fn too_long(bytes_max: u64) -> String {
    format!("a document of more than {}", HumanBytes(bytes_max))
}

fn read_yaml(
    bytes_max: u64,
    mut input: Box<dyn BufRead>,
    path: &Path,
    take: &mut dyn FnMut(Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io("read", path, &error);
    let mut document = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        // One byte more than there is room for tells a line that is too long from one that just fits.
        let room = bytes_max - document.len() as u64;
        let mut bounded = input.by_ref().take(room + 1);
        let is_end = bounded.read_until(b'\n', &mut line).map_err(failed)? == 0;
        if line.len() as u64 > room {
            return Err(unreadable(path, &too_long(bytes_max)));
        }
        // A document may begin on the marker's line. The parser then sees the marker, too.
        let behind_mark = line
            .strip_prefix(b"---")
            .filter(|rest| rest.first().is_none_or(u8::is_ascii_whitespace));
        if is_end || behind_mark.is_some() {
            if document.split(|byte| *byte == b'\n').any(says_something) {
                let text = std::str::from_utf8(&document).map_err(|error| unreadable(path, &error))?;
                let value: Value = serde_saphyr::from_str(text).map_err(|error| unreadable(path, &error))?;
                take_apart(value, path, take)?;
            }
            document.clear();
        }
        if behind_mark.is_none_or(says_something) {
            document.extend_from_slice(&line);
        }
        if is_end {
            return Ok(());
        }
    }
}

/// Whether a line of YAML is more than blanks and a comment.
fn says_something(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    !line.is_empty() && !line.starts_with(b"#")
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
    // A list has no name. What has one is an object, such as a custom resource AllowList with items of its own.
    let is_list = document["items"].is_array() && document["metadata"]["name"].is_null();
    let Some(item_kind) = kind.strip_suffix("List").filter(|_| is_list) else {
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
    fn a_document_may_begin_on_the_line_of_its_marker() {
        let yaml = "---\t{apiVersion: v1, kind: Pod, metadata: {name: a}}\r\n\
                    --- {apiVersion: v1, kind: Pod,\n metadata: {name: b}}\n\
                    --- # the last\napiVersion: v1\nkind: Node\nmetadata:\n  name: ---d\n";
        assert_eq!(names(yaml.as_bytes()), ["Pod/a", "Pod/b", "Node/---d"]);
    }

    #[test]
    fn an_object_with_a_name_is_no_list() {
        let object = r#"{"apiVersion":"example.com/v1","kind":"AllowList","metadata":{"name":"a"},"items":["x"]}"#;
        assert_eq!(names(object.as_bytes()), ["AllowList/a"]);
        let list = r#"{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"b"}}]}"#;
        assert_eq!(names(list.as_bytes()), ["Pod/b"]);
    }

    /// Endless input, and how much of it was read.
    struct Endless(Rc<Cell<usize>>, &'static [u8]);

    impl Read for Endless {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let at = self.0.get();
            // Wrong code ends, too.
            if at > 64 << 20 {
                return Ok(0);
            }
            for (offset, byte) in bytes.iter_mut().enumerate() {
                *byte = *self.1.get(at + offset).unwrap_or(&b'a');
            }
            self.0.set(at + bytes.len());
            Ok(bytes.len())
        }
    }

    #[test]
    fn a_document_that_is_too_long_is_refused_before_it_is_held() {
        let bounds = Bounds { yaml: 1000, json: 1000 };
        for head in ["key: ", "kind: Pod\nkey: ", r#"{"key": ""#] {
            let told = Rc::new(Cell::new(0));
            let read = read_within(
                bounds,
                Endless(told.clone(), head.as_bytes()),
                Path::new("input"),
                &mut |_| Ok(()),
            );
            let said = read.expect_err(head).to_string();
            assert!(said.contains("a document of more than 1000 B"), "{said}");
            assert!(told.get() <= 2 << 20, "{head}: {} bytes were read", told.get());
        }
    }

    #[test]
    fn the_bound_is_of_each_document() {
        let yaml = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n".repeat(50);
        for (text, bytes) in [(LINES.repeat(50), 110), (yaml, 60)] {
            let mut count = 0;
            let bounds = Bounds {
                yaml: bytes,
                json: bytes,
            };
            let input = Cursor::new(text.into_bytes());
            read_within(bounds, input, Path::new("input"), &mut |_| {
                count += 1;
                Ok(())
            })
            .unwrap();
            assert!(count >= 50, "{count}");
        }
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
