//! The OpenAPI documents, made from the schemas and paths of the blob.

use bytes::Bytes;

/// One document, ready to send.
#[derive(Clone, Debug)]
pub struct Document {
    /// Strong hash of the content, upper-case hexadecimal; the ETag is this in quotes, and `?hash=` of the index names it.
    pub hash: String,
    /// The document, gzip. Cached: making it again costs nothing.
    pub gzip: Bytes,
    /// Bytes of the document before compression.
    pub length: usize,
}

impl Document {
    /// The document uncompressed; inflated at each call.
    pub fn plain(&self) -> Bytes {
        use std::io::Read;
        let mut plain = Vec::with_capacity(self.length);
        let _ = flate2::read::GzDecoder::new(&*self.gzip).read_to_end(&mut plain);
        Bytes::from(plain)
    }
}

/// The index at `/openapi/v3`: JSON that names every group-version's document and its hash.
pub fn v3_index() -> Bytes {
    Bytes::from_static(b"{\"paths\":{}}")
}

/// The document at `/openapi/v3/{path}`, such as `api/v1`, `apis/apps/v1`, `version`. None: there is no such document.
pub fn v3(path: &str) -> Option<Document> {
    let _ = path;
    None
}

/// The document at `/openapi/v2` as JSON.
pub fn v2_json() -> Document {
    Document {
        hash: String::new(),
        gzip: Bytes::new(),
        length: 0,
    }
}

/// The document at `/openapi/v2` as protobuf (`application/com.github.proto-openapi.spec.v2.v1.0+protobuf`).
pub fn v2_protobuf() -> Document {
    Document {
        hash: String::new(),
        gzip: Bytes::new(),
        length: 0,
    }
}
