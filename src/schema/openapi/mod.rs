//! The OpenAPI documents, made from the schemas and paths of the blob: version 3 by group-version, version 2 as a whole.
//!
//! A document is rendered when it is first asked for, straight into its compressed form, which is kept. The index needs no
//! rendering: hashes come from a stamp that `build.rs` makes of the schemas and of the code that renders them.

mod operations;
mod parameters;
mod protobuf;
mod render;
mod schemas;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use operations::Path;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::{LazyLock, OnceLock};

/// The level of the Kubernetes API that the documents describe.
const LEVEL: &str = "v1.36.2";

/// Changes with the schemas and with the code that renders them.
const STAMP: u64 = u64::from_le_bytes(*include_bytes!(concat!(env!("OUT_DIR"), "/openapi.stamp")));

/// One document, ready to send. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct Document {
    /// Names the content, upper-case hexadecimal: it changes whenever the content may. The ETag is this in quotes, and
    /// `?hash=` of the index names it.
    pub hash: String,
    /// The document, gzip. Cached: making it again costs nothing.
    pub gzip: Bytes,
    /// Bytes of the document before compression.
    pub length: usize,
}

impl Document {
    /// The document uncompressed; inflated at each call.
    pub fn plain(&self) -> Bytes {
        let mut plain = Vec::with_capacity(self.length);
        // What was compressed in this process inflates again.
        let _ = flate2::read::GzDecoder::new(&*self.gzip).read_to_end(&mut plain);
        Bytes::from(plain)
    }

    /// A document whose text is at hand. `key` is what its content depends on.
    pub(crate) fn of_text(key: &str, text: &[u8]) -> Document {
        Document::compress(key, |out| out.write_all(text))
    }

    fn compress(key: &str, write: impl FnOnce(&mut Counted) -> io::Result<()>) -> Document {
        let mut out = Counted {
            inner: GzEncoder::new(Vec::new(), Compression::default()),
            length: 0,
        };
        // Writing to memory does not fail.
        let _ = write(&mut out);
        let gzip = out.inner.finish().unwrap_or_default();
        Document {
            hash: hash(key),
            gzip: Bytes::from(gzip),
            length: out.length,
        }
    }
}

/// Counts what goes into the compressor.
struct Counted {
    inner: GzEncoder<Vec<u8>>,
    length: usize,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write_all(bytes)?;
        self.length += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A SHA-256 of the stamp and of the document's key.
pub(crate) fn hash(key: &str) -> String {
    use std::fmt::Write as _;
    let digest = ring::digest::digest(&ring::digest::SHA256, format!("{STAMP:x} {LEVEL} {key}").as_bytes());
    digest
        .as_ref()
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02X}");
            text
        })
}

/// A slot for each document of version 3. What operations there are is found again for each rendering.
static V3: LazyLock<BTreeMap<String, OnceLock<Document>>> = LazyLock::new(|| {
    operations::documents()
        .into_keys()
        .map(|key| (key, OnceLock::new()))
        .collect()
});

/// The index at `/openapi/v3`: JSON that names every group-version's document and its hash.
pub fn v3_index() -> Bytes {
    let paths: serde_json::Map<String, serde_json::Value> = V3
        .keys()
        .map(|key| {
            let url = format!("/openapi/v3/{key}?hash={}", hash(key));
            (key.clone(), serde_json::json!({"serverRelativeURL": url}))
        })
        .collect();
    Bytes::from(serde_json::json!({"paths": paths}).to_string())
}

/// The document at `/openapi/v3/{path}`, such as `api/v1`, `apis/apps/v1`, `version`. None: there is no such document.
///
/// The first call for a path renders it (CPU work of milliseconds to tens of milliseconds).
pub fn v3(path: &str) -> Option<Document> {
    let (key, slot) = V3.get_key_value(path)?;
    let document = slot.get_or_init(|| {
        let paths = operations::documents().remove(key).unwrap_or_default();
        Document::compress(key, |out| render::v3(&paths, out))
    });
    Some(document.clone())
}

/// What a document of version 2 has besides the built-in resources.
#[derive(Debug, Default)]
pub struct Extra {
    /// Paths with their operations.
    pub paths: Vec<(String, serde_json::Value)>,
    /// Schemas by name.
    pub definitions: Vec<(String, serde_json::Value)>,
}

/// The document at `/openapi/v2` as JSON. The first call renders it.
pub fn v2_json() -> Document {
    static DOCUMENT: OnceLock<Document> = OnceLock::new();
    DOCUMENT.get_or_init(|| v2_json_with("", &Extra::default())).clone()
}

/// The same with what is in `extra`, which `key` names the content of. Rendered anew at each call (CPU work of a tenth of a second).
pub fn v2_json_with(key: &str, extra: &Extra) -> Document {
    let paths = v2_paths();
    Document::compress(&format!("v2.json{key}"), |out| render::v2(&paths, extra, out))
}

/// The document at `/openapi/v2` as protobuf (`application/com.github.proto-openapi.spec.v2.v1.0+protobuf`). The first call
/// renders it.
pub fn v2_protobuf() -> Document {
    static DOCUMENT: OnceLock<Document> = OnceLock::new();
    DOCUMENT.get_or_init(|| v2_protobuf_with("", &Extra::default())).clone()
}

/// The same with what is in `extra`, as [`v2_json_with`].
pub fn v2_protobuf_with(key: &str, extra: &Extra) -> Document {
    let paths = v2_paths();
    Document::compress(&format!("v2.protobuf{key}"), |out| {
        out.write_all(&render::v2_protobuf(&paths, extra))
    })
}

/// A path of a built-in resource as version 2 has it.
pub fn v2_path(template: &str) -> Option<serde_json::Value> {
    let found = v2_paths().into_iter().find(|path| path.template == template)?;
    Some(render::v2_item(&found))
}

/// All paths, by path.
fn v2_paths() -> Vec<Path> {
    let mut paths: Vec<Path> = operations::documents().into_values().flatten().collect();
    paths.sort_by(|a, b| a.template.cmp(&b.template));
    paths
}

#[cfg(test)]
mod tests;
