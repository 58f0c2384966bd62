//! From a CustomResourceDefinition to the resources that it adds.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use base64::Engine as _;

use super::path::Path;
use super::{Cells, Custom, Figures, Gate, Reads, ScalePaths, Source, VersionSchema};
use crate::resources::declaration::{Column, NameRule, Resource, ResourceRef, Strategy, Subresource};
use crate::resources::lookup::{boolean, condition, integer, list, text, texts};
use crate::schema::structural::Structural;
use crate::tree::Value;

/// Verbs of a custom resource, in the order in which kube-apiserver tells them.
const VERBS: &[&str] = &[
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];
/// Verbs that are told while the definition is being deleted.
pub(crate) const VERBS_ENDING: &[&str] = &["delete", "deletecollection", "get", "list", "watch"];
const SUBRESOURCE_VERBS: &[&str] = &["get", "patch", "update"];

/// A definition that is served: its versions, in the order of its `spec.versions`.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Name of the definition, which is the name of its objects in the store: `widgets.example.com`.
    pub name: Arc<str>,
    /// API group.
    pub group: Arc<str>,
    /// All versions.
    pub versions: Vec<Version>,
}

/// What all share that is compiled of one definition.
#[derive(Debug, Clone, Default)]
pub struct Life {
    /// Creations pass it; it is closed before the objects of a definition are deleted.
    pub gate: Arc<Gate>,
    /// Objects up to this revision may have been written under another schema. 0: none.
    pub settled_after: Arc<AtomicU64>,
    /// Whether the definition asks for something else by now, or is gone: what has no end of its own ends then. Each generation has
    /// one.
    pub overtaken: Arc<AtomicBool>,
}

/// A version of a definition.
#[derive(Debug, Clone)]
pub struct Version {
    /// The resource.
    pub resource: ResourceRef,
    /// Whether the API serves it.
    pub served: bool,
}

impl Definition {
    /// Number of what sidecars of its objects hold, and the names of their selectable fields.
    pub fn layout(&self) -> Option<(u32, BTreeSet<String>)> {
        let cells = &self.stored()?.custom.as_ref()?.cells;
        let fields = cells.fields.iter().map(|(name, _)| name.clone()).collect();
        Some((cells.layout, fields))
    }

    /// The resource that objects are stored as.
    pub fn stored(&self) -> Option<&ResourceRef> {
        self.versions
            .iter()
            .map(|version| &version.resource)
            .find(|resource| resource.custom.as_ref().is_some_and(|custom| custom.stored.is_none()))
    }
}

/// Whether a condition of the definition holds.
pub fn is_true(definition: &Value, kind: &str) -> bool {
    condition(definition, kind).is_some_and(|condition| text(condition, "/status") == "True")
}

/// The finalizer that keeps a definition until its objects are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Whether a definition is being deleted and waits for its objects to go.
pub fn is_ending(definition: &Value) -> bool {
    let is_deleting = !definition["metadata"]["deletionTimestamp"].is_null();
    is_deleting
        && list(definition, "/metadata/finalizers")
            .iter()
            .any(|finalizer| *finalizer == FINALIZER)
}

/// Compiles a definition whose names are accepted; `None` when it names no version to store, or is not established.
///
/// The gate of `life` is that of the same definition before its change, so that a creation under way meets the end of either. The
/// selectable fields in `hidden` are noted of objects that are written, but cannot be selected by yet.
pub fn compile(definition: &Value, life: &Life, hidden: &BTreeSet<String>) -> Option<Definition> {
    if !is_true(definition, "Established") {
        return None;
    }
    let versions = list(definition, "/spec/versions");
    let stored = versions
        .iter()
        .find(|version| boolean(version, "/storage") == Some(true))?;
    let conversion = &definition["spec"]["conversion"];
    let maker = Maker {
        conversion: (conversion["strategy"] == "Webhook").then(|| Arc::new(conversion["webhook"].clone())),
        definition,
        life,
        hidden,
        stored,
        versions: versions
            .iter()
            .map(|version| VersionSchema {
                api_version: format!("{}/{}", text(definition, "/spec/group"), text(version, "/name")),
                schema: schema(version),
            })
            .collect(),
        hash: storage_version_hash(definition, stored),
    };
    let stored_resource = ResourceRef::from(Arc::new(maker.resource(stored, None)));
    let made = versions.iter().map(|version| Version {
        resource: if std::ptr::eq(version, stored) {
            stored_resource.clone()
        } else {
            ResourceRef::from(Arc::new(maker.resource(version, Some(&stored_resource))))
        },
        served: boolean(version, "/served") == Some(true),
    });
    Some(Definition {
        name: text(definition, "/metadata/name").into(),
        group: text(definition, "/spec/group").into(),
        versions: made.collect(),
    })
}

/// What discovery shows of the version that objects are stored in, as kube-apiserver makes it of the type's name.
fn storage_version_hash(definition: &Value, stored: &Value) -> String {
    const LEN: usize = 8;
    let name = format!(
        "{}/{}/{}",
        text(definition, "/spec/group"),
        text(stored, "/name"),
        text(definition, "/status/acceptedNames/kind")
    );
    let digest = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest.as_ref()[..LEN])
}

struct Maker<'a> {
    conversion: Option<Arc<Value>>,
    definition: &'a Value,
    life: &'a Life,
    hidden: &'a BTreeSet<String>,
    stored: &'a Value,
    versions: Arc<[VersionSchema]>,
    hash: String,
}

fn owned(text: &str) -> Cow<'static, str> {
    Cow::Owned(text.to_owned())
}

impl Maker<'_> {
    fn resource(&self, version: &Value, stored: Option<&ResourceRef>) -> Resource {
        let definition = self.definition;
        let name = |field: &str| text(definition, &format!("/status/acceptedNames/{field}"));
        let names = |field: &str| {
            texts(definition, &format!("/status/acceptedNames/{field}"))
                .into_iter()
                .map(owned)
                .collect()
        };
        let (group, kind) = (owned(text(definition, "/spec/group")), owned(name("kind")));
        let version_name = owned(text(version, "/name"));
        let has_status = !version["subresources"]["status"].is_null();
        let scale = scale_paths(&version["subresources"]["scale"]);
        let mut subresources = Vec::new();
        if has_status {
            subresources.push(Subresource {
                name: "status",
                kind: kind.clone(),
                group: group.clone(),
                version: version_name.clone(),
                foreign: false,
                verbs: SUBRESOURCE_VERBS,
            });
        }
        if scale.is_some() {
            subresources.push(Subresource {
                name: "scale",
                kind: "Scale".into(),
                group: "autoscaling".into(),
                version: "v1".into(),
                foreign: true,
                verbs: SUBRESOURCE_VERBS,
            });
        }
        let (columns, cells) = columns(version);
        let cells = self.cells(version, cells, &columns, stored.is_none());
        Resource {
            plural: owned(name("plural")),
            singular: owned(name("singular")),
            namespaced: text(definition, "/spec/scope") != "Cluster",
            short_names: names("shortNames"),
            categories: names("categories"),
            verbs: VERBS,
            storage: owned(text(definition, "/metadata/name")),
            storage_version_hash: Cow::Owned(self.hash.clone()),
            subresources,
            columns,
            fields: selectable(version)
                .filter(|(name, _)| !self.hidden.contains(name))
                .map(|(name, _)| Cow::Owned(name))
                .collect(),
            namespace_selectable: false,
            deprecation: deprecation(version, &group, &version_name, &kind),
            strategy: Strategy {
                name_rule: NameRule::Subdomain,
                name_len_max: 253,
                counts_generation: true,
                resets_status: has_status,
                creates_on_update: false,
                update_needs_version: true,
            },
            custom: Some(Box::new(Custom {
                stored: stored.cloned(),
                versions: self.versions.clone(),
                list_kind: name("listKind").to_owned(),
                schema: self.schema(version),
                cells,
                conversion: self.conversion.clone(),
                mixed: list(definition, "/status/storedVersions")
                    .iter()
                    .any(|other| other.as_str() != self.stored["name"].as_str()),
                scale,
                // From the first moment on: its condition is written a little later, after a crash at the next start.
                terminating: is_true(definition, "Terminating") || is_ending(definition),
                fingerprint: format!(
                    "{}/{}",
                    text(definition, "/metadata/uid"),
                    integer(definition, "/metadata/generation").unwrap_or(0)
                ),
                reads: Reads {
                    settled_after: self.life.settled_after.clone(),
                    // What a webhook converts is shown by what it says.
                    by_schema: self.conversion.is_none() && version["schema"] != self.stored["schema"],
                },
                overtaken: self.life.overtaken.clone(),
                figures: Figures::default(),
                gate: self.life.gate.clone(),
            })),
            group,
            version: version_name,
            kind,
        }
    }

    fn schema(&self, version: &Value) -> Option<Arc<Structural>> {
        let name = text(version, "/name");
        let found = self
            .versions
            .iter()
            .find(|other| other.api_version.rsplit('/').next() == Some(name));
        found?.schema.clone()
    }

    /// What the sidecars of this version hold. Those that are stored hold the selectable fields of all versions.
    fn cells(&self, version: &Value, sources: Vec<Source>, columns: &[Column], is_stored: bool) -> Cells {
        let mut fields = Vec::new();
        let versions = list(self.definition, "/spec/versions").iter();
        for (name, path) in versions.flat_map(selectable) {
            if !fields.iter().any(|(known, _)| *known == name) {
                fields.push((name, path));
            }
        }
        fields.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut hash = crc32fast::Hasher::new();
        hash.update(b"custom 1");
        let mut hash_text = |text: &str| {
            hash.update(text.as_bytes());
            hash.update(b"\0");
        };
        for (column, at) in columns
            .iter()
            .zip(std::iter::once("").chain(sources.iter().map(|source| &*source.text)))
        {
            hash_text(&column.column_type);
            hash_text(at);
        }
        hash_text("");
        for (field, _) in &fields {
            hash_text(field);
        }
        Cells {
            sources,
            fields: if is_stored { fields } else { Vec::new() },
            own: selectable(version).collect(),
            layout: hash.finalize(),
        }
    }
}

fn schema(version: &Value) -> Option<Arc<Structural>> {
    match Structural::compile(&version["schema"]["openAPIV3Schema"]) {
        Ok(schema) => Some(Arc::new(schema)),
        Err(error) => {
            tracing::warn!(%error, version = text(version, "/name"), "the schema of a custom resource cannot be used");
            None
        }
    }
}

fn deprecation(version: &Value, group: &str, name: &str, kind: &str) -> Cow<'static, str> {
    if boolean(version, "/deprecated") != Some(true) {
        return Cow::Borrowed("");
    }
    match text(version, "/deprecationWarning") {
        "" => Cow::Owned(format!("{group}/{name} {kind} is deprecated")),
        warning => owned(warning),
    }
}

/// The columns of a version, and where all but the first, the name, come from.
fn columns(version: &Value) -> (Vec<Column>, Vec<Source>) {
    const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some \
        resources may allow a client to request the generation of an appropriate name automatically. Name is primarily \
        intended for creation idempotence and configuration definition. Cannot be updated. More info: \
        https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
    const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It \
        is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. \
        It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More \
        info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
    let mut columns = vec![Column {
        name: "Name".into(),
        column_type: "string".into(),
        format: "name".into(),
        description: NAME.into(),
        priority: 0,
    }];
    let mut sources = Vec::new();
    let declared = list(version, "/additionalPrinterColumns");
    for column in declared {
        let path = text(column, "/jsonPath");
        columns.push(Column {
            name: owned(text(column, "/name")),
            column_type: owned(text(column, "/type")),
            format: owned(text(column, "/format")),
            description: owned(text(column, "/description")),
            priority: integer(column, "/priority")
                .and_then(|it| it.try_into().ok())
                .unwrap_or(0),
        });
        sources.push(Source::new(text(column, "/type"), path));
    }
    if declared.is_empty() {
        columns.push(Column {
            name: "Age".into(),
            column_type: "date".into(),
            format: "".into(),
            description: CREATED.into(),
            priority: 0,
        });
        sources.push(Source::new("date", ".metadata.creationTimestamp"));
    }
    (columns, sources)
}

/// The selectable fields of a version: their names in selectors, and their paths.
fn selectable(version: &Value) -> impl Iterator<Item = (String, Path)> {
    list(version, "/selectableFields").iter().filter_map(|field| {
        let path = text(field, "/jsonPath");
        Some((path.strip_prefix('.')?.to_owned(), Path::compile(path).ok()?))
    })
}

fn scale_paths(scale: &Value) -> Option<ScalePaths> {
    if scale.is_null() {
        return None;
    }
    let fields = |field: &str| -> Vec<String> {
        let path = Path::compile(scale[field].as_str().unwrap_or(""));
        let names = path
            .ok()
            .and_then(|path| Some(path.fields()?.into_iter().map(str::to_owned).collect()));
        names.unwrap_or_default()
    };
    Some(ScalePaths {
        spec: fields("specReplicasPath"),
        status: fields("statusReplicasPath"),
        selector: Some(fields("labelSelectorPath")).filter(|path| !path.is_empty()),
    })
}
