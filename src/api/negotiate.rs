//! Content negotiation: which form of an answer a client accepts.
//!
//! Rules are those of `k8s.io/apiserver/pkg/endpoints/handlers/negotiation`: clauses of `Accept` by falling quality,
//! the first that can be served wins; `as`, `g` and `v` ask for a Table or for metadata only.

use super::status::Status;

/// Encodings that objects can be sent in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `application/json`.
    Json,
    /// `application/yaml`. Handlers always make JSON; the router turns it into YAML.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`. Lists and watches are made in it, the rest is as for YAML.
    Protobuf,
}

/// Shapes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Objects as they are.
    Object,
    /// A `meta.k8s.io` Table of that version.
    Table(MetaVersion),
    /// `PartialObjectMetadata` for one object or in watch events.
    Partial(MetaVersion),
    /// `PartialObjectMetadataList` for a collection.
    PartialList(MetaVersion),
}

/// Versions of `meta.k8s.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaVersion {
    /// `meta.k8s.io/v1`.
    V1,
    /// `meta.k8s.io/v1beta1`.
    V1Beta1,
}

impl MetaVersion {
    /// `meta.k8s.io/v1` or `meta.k8s.io/v1beta1`.
    pub fn api_version(self) -> &'static str {
        match self {
            MetaVersion::V1 => "meta.k8s.io/v1",
            MetaVersion::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// How to answer a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Encoding of objects.
    pub format: Format,
    /// Shape of the answer.
    pub shape: Shape,
    /// Whether the client takes gzip.
    pub gzip: bool,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            format: Format::Json,
            shape: Shape::Object,
            gzip: false,
        }
    }
}

/// One clause of an `Accept` header.
#[derive(Debug, Clone)]
pub struct Clause<'a> {
    /// e.g. `application`, `*`.
    pub kind: &'a str,
    /// e.g. `json`, `*`.
    pub sub: &'a str,
    /// Parameters but `q`.
    pub parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl Clause<'_> {
    /// The value of a parameter, or the empty string.
    pub fn parameter(&self, name: &str) -> &str {
        self.parameters
            .iter()
            .find(|(key, _)| *key == name)
            .map_or("", |(_, value)| value)
    }

    /// Whether this clause takes `kind/sub`.
    pub fn takes(&self, kind: &str, sub: &str) -> bool {
        (self.kind == "*" && self.sub == "*") || (self.kind == kind && (self.sub == sub || self.sub == "*"))
    }
}

/// Most clauses that are looked at: a longer header is cut, not an error.
const CLAUSES_MAX: usize = 64;

/// The clauses of an `Accept` header by falling quality; equal quality keeps the order, exact types before wildcards.
pub fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = accept
        .split(',')
        .take(CLAUSES_MAX)
        .filter_map(|text| {
            let mut pieces = text.split(';').map(str::trim);
            let (kind, sub) = pieces.next()?.split_once('/').map(|(k, s)| (k.trim(), s.trim()))?;
            let mut clause = Clause {
                kind,
                sub,
                parameters: Vec::new(),
                quality: 1.0,
            };
            for piece in pieces {
                let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
                if name == "q" {
                    clause.quality = value.parse().unwrap_or(1.0);
                } else {
                    clause.parameters.push((name, value));
                }
            }
            Some(clause)
        })
        .collect();
    // Stable: equal clauses stay in the client's order.
    let rank = |clause: &Clause<'_>| u8::from(clause.kind == "*") + u8::from(clause.sub == "*");
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then_with(|| rank(a).cmp(&rank(b))));
    clauses
}

/// Which transformations an endpoint can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transforms {
    /// None: discovery, reviews.
    None,
    /// Table and metadata.
    Objects,
}

/// Chooses the answer for an `Accept` header. `has_messages` tells whether whole objects can be told in protobuf; their metadata
/// always can, a Table never.
///
/// # Errors
/// 406 when no clause can be served.
pub fn negotiate(
    accept: Option<&str>,
    accept_encoding: Option<&str>,
    transforms: Transforms,
    has_messages: impl Fn() -> bool,
) -> Result<Answer, Status> {
    let gzip = accept_encoding.is_some_and(takes_gzip);
    let accept = match accept {
        None | Some("" | "*/*" | "application/json") => {
            return Ok(Answer {
                gzip,
                ..Answer::default()
            });
        }
        Some(accept) => accept,
    };
    for clause in clauses(accept) {
        let format = if clause.takes("application", "json") {
            Format::Json
        } else if clause.takes("application", "yaml") {
            Format::Yaml
        } else if clause.takes("application", "vnd.kubernetes.protobuf") {
            Format::Protobuf
        } else {
            continue;
        };
        if let Some(shape) = shape(&clause, transforms) {
            let is_made = match (format, shape) {
                (Format::Protobuf, Shape::Table(_)) => false,
                (Format::Protobuf, Shape::Object) => has_messages(),
                _ => true,
            };
            if is_made {
                return Ok(Answer { format, shape, gzip });
            }
        }
    }
    Err(not_acceptable())
}

fn shape(clause: &Clause<'_>, transforms: Transforms) -> Option<Shape> {
    let name = clause.parameter("as");
    if name.is_empty() {
        return Some(Shape::Object);
    }
    if transforms == Transforms::None || clause.parameter("g") != "meta.k8s.io" {
        return None;
    }
    let version = match clause.parameter("v") {
        "v1" => MetaVersion::V1,
        "v1beta1" => MetaVersion::V1Beta1,
        _ => return None,
    };
    match name {
        "Table" => Some(Shape::Table(version)),
        "PartialObjectMetadata" => Some(Shape::Partial(version)),
        "PartialObjectMetadataList" => Some(Shape::PartialList(version)),
        _ => None,
    }
}

/// The Status for an `Accept` header that cannot be served.
pub fn not_acceptable() -> Status {
    let mut status = Status::not_acceptable(
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf",
    );
    status.details = Some(Box::default());
    status
}

pub(super) fn takes_gzip(accept_encoding: &str) -> bool {
    accept_encoding.split(',').any(|clause| {
        let mut pieces = clause.split(';').map(str::trim);
        pieces.next() == Some("gzip")
            && !pieces.any(|piece| piece.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0_f32)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape_of(accept: &str) -> Result<Shape, u16> {
        negotiate(Some(accept), None, Transforms::Objects, || true)
            .map(|a| a.shape)
            .map_err(|s| s.code)
    }

    #[test]
    fn kubectl_gets_a_table_and_falls_back_to_json_where_tables_are_not_made() {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(shape_of(accept), Ok(Shape::Table(MetaVersion::V1)));
        let plain = negotiate(Some(accept), None, Transforms::None, || true).unwrap();
        assert_eq!(plain.shape, Shape::Object);
    }

    #[test]
    fn quality_decides_and_unknown_types_are_passed_over() {
        let answer = |accept| {
            negotiate(Some(accept), None, Transforms::Objects, || true)
                .map(|a| a.format)
                .map_err(|s| s.code)
        };
        assert_eq!(answer("application/json;q=0.5,application/yaml"), Ok(Format::Yaml));
        assert_eq!(
            answer("application/vnd.kubernetes.protobuf,application/json"),
            Ok(Format::Protobuf)
        );
        let table = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(answer(table), Ok(Format::Json));
        let custom = |accept| negotiate(Some(accept), None, Transforms::Objects, || false).map(|a| a.format);
        assert_eq!(
            custom("application/vnd.kubernetes.protobuf,application/json").ok(),
            Some(Format::Json)
        );
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
        assert_eq!(custom(metadata).ok(), Some(Format::Protobuf));
        assert_eq!(answer("image/png"), Err(406));
        assert_eq!(answer("image/png, */*;q=0.1"), Ok(Format::Json));
        assert_eq!(shape_of("application/json;as=Sofa;v=v1;g=meta.k8s.io"), Err(406));
    }

    #[test]
    fn gzip_is_taken_unless_refused() {
        assert!(takes_gzip("deflate, gzip;q=0.5"));
        assert!(!takes_gzip("gzip;q=0"));
        assert!(!takes_gzip("br"));
    }
}
