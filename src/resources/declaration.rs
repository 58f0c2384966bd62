//! The declarations of resources: those of all built-in ones, made once from the tables of facts, and the handle that whatever
//! works with a resource holds, built-in or custom.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use super::custom::Custom;

/// A resource in one version, as discovery tells it, with what reads of it need to know.
#[derive(Debug)]
pub struct Resource {
    /// API group, `""` for the core group.
    pub group: Cow<'static, str>,
    /// API version, e.g. `v1`.
    pub version: Cow<'static, str>,
    /// Plural name as in URLs, e.g. `pods`.
    pub plural: Cow<'static, str>,
    /// Singular name, e.g. `pod`.
    pub singular: Cow<'static, str>,
    /// Kind, e.g. `Pod`.
    pub kind: Cow<'static, str>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Short names that kubectl accepts.
    pub short_names: Vec<Cow<'static, str>>,
    /// Categories (`all`, `api-extensions`).
    pub categories: Vec<Cow<'static, str>>,
    /// Verbs of the main resource, sorted.
    pub verbs: &'static [&'static str],
    /// Name in the store (`pods`, `deployments.apps`); `""` when objects are not stored (reviews, bindings,
    /// component statuses). Resources that show one stored object in two shapes have the same name here.
    pub storage: Cow<'static, str>,
    /// Hash that discovery shows, `""` when objects are not stored.
    pub storage_version_hash: Cow<'static, str>,
    /// Subresources, in discovery order.
    pub subresources: Vec<Subresource>,
    /// Table columns, by position.
    pub columns: Vec<Column>,
    /// Selectable fields beyond `metadata.name` and `metadata.namespace`, in this version's names.
    pub fields: Vec<Cow<'static, str>>,
    /// Whether `metadata.namespace` is a selectable field of this kind (some cluster-scoped kinds accept it).
    pub namespace_selectable: bool,
    /// Warning that every request for it gets, `""` for most.
    pub deprecation: Cow<'static, str>,
    /// How objects of it are written; that of a plain kind when they are not stored.
    pub strategy: Strategy,
    /// What only custom resources have; `None` for built-in ones.
    pub custom: Option<Box<Custom>>,
}

/// A resource that is held: a built-in one, which lives as long as the process, or a custom one, which lives as long as
/// somebody holds it. A copy costs nothing, or a count.
#[derive(Clone)]
pub struct ResourceRef(Held);

#[derive(Clone)]
enum Held {
    BuiltIn(&'static Resource),
    Custom(Arc<Resource>),
}

impl Deref for ResourceRef {
    type Target = Resource;

    fn deref(&self) -> &Resource {
        match &self.0 {
            Held::BuiltIn(resource) => resource,
            Held::Custom(resource) => resource,
        }
    }
}

impl std::fmt::Debug for ResourceRef {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.api_version(), self.plural)
    }
}

impl From<&'static Resource> for ResourceRef {
    fn from(resource: &'static Resource) -> Self {
        ResourceRef(Held::BuiltIn(resource))
    }
}

impl From<Arc<Resource>> for ResourceRef {
    fn from(resource: Arc<Resource>) -> Self {
        ResourceRef(Held::Custom(resource))
    }
}

impl ResourceRef {
    /// The position of a built-in resource in [`all`]; `None` for a custom one.
    pub fn built_in(&self) -> Option<usize> {
        match self.0 {
            Held::BuiltIn(resource) => all().element_offset(resource),
            Held::Custom(_) => None,
        }
    }
}

/// A subresource that is held, with its resource.
#[derive(Clone)]
pub struct SubresourceRef {
    resource: ResourceRef,
    index: usize,
}

impl SubresourceRef {
    /// The subresource of that name.
    pub fn find(resource: &ResourceRef, name: &str) -> Option<Self> {
        let index = resource.subresources.iter().position(|sub| sub.name == name)?;
        let resource = resource.clone();
        Some(SubresourceRef { resource, index })
    }

    /// Its position among those of its resource.
    pub fn index(&self) -> usize {
        self.index
    }
}

impl Deref for SubresourceRef {
    type Target = Subresource;

    fn deref(&self) -> &Subresource {
        // It was found there, and a resource does not change.
        &self.resource.subresources[self.index]
    }
}

impl std::fmt::Debug for SubresourceRef {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?}/{}", self.resource, self.name)
    }
}

/// What writes of a kind follow.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools)] // independent columns of a table of facts
pub struct Strategy {
    /// Which names objects may have.
    pub name_rule: NameRule,
    /// Longest name in bytes; 0 when only the URL bounds it.
    pub name_len_max: usize,
    /// Whether `metadata.generation` counts changes of everything but metadata and status.
    pub counts_generation: bool,
    /// Whether a status in a create is dropped.
    pub resets_status: bool,
    /// Whether a PUT of a missing object creates it.
    pub creates_on_update: bool,
    /// Whether a PUT must name a `resourceVersion`.
    pub update_needs_version: bool,
}

/// Rules for names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// RFC 1123 subdomain: `a-b.c`.
    Subdomain,
    /// RFC 1123 label: `a-b`.
    Label,
    /// Whatever may stand between two slashes of a URL.
    PathSegment,
}

/// One subresource (`status`, `scale`, `log`).
#[derive(Debug)]
pub struct Subresource {
    /// Name after the slash.
    pub name: &'static str,
    /// Kind that it takes and answers.
    pub kind: Cow<'static, str>,
    /// Group of that kind, `""` for the core group (already resolved when discovery leaves it out).
    pub group: Cow<'static, str>,
    /// Version of that kind (already resolved when discovery leaves it out).
    pub version: Cow<'static, str>,
    /// Whether discovery names group and version of the kind, because they are not those of the resource.
    pub foreign: bool,
    /// Verbs, sorted.
    pub verbs: &'static [&'static str],
}

/// One Table column.
#[derive(Debug)]
pub struct Column {
    /// Title, e.g. `Name`.
    pub name: Cow<'static, str>,
    /// OpenAPI type: `string`, `integer`, `number`, `boolean`, `date`.
    pub column_type: Cow<'static, str>,
    /// OpenAPI format, `name` marks the primary column, often `""`.
    pub format: Cow<'static, str>,
    /// Text for people.
    pub description: Cow<'static, str>,
    /// 0 is always shown, above 0 only in wide views.
    pub priority: i32,
}

/// Every built-in resource, in discovery order.
pub fn all() -> &'static [Resource] {
    static ALL: OnceLock<&'static [Resource]> = OnceLock::new();
    ALL.get_or_init(load)
}

/// The resource of that group (`""` is core), version and plural name.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    all()
        .iter()
        .find(|r| r.plural == plural && r.group == group && r.version == version)
}

/// The resource whose shape is the stored one for a storage name (`events`, `horizontalpodautoscalers.autoscaling`).
pub fn stored(storage: &str) -> Option<&'static Resource> {
    all().iter().find(|r| !storage.is_empty() && r.storage == storage)
}

impl Resource {
    /// `group/version`, or the version alone for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone().into_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Kind of its lists in two parts, e.g. `Pod` and `List`.
    pub fn list_kind(&self) -> (&str, &'static str) {
        match &self.custom {
            Some(custom) => (&custom.list_kind, ""),
            None => (&self.kind, "List"),
        }
    }

    /// Plural with the group, as Status messages and RBAC name it: `pods`, `deployments.apps`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone().into_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Whether its objects are questions, which are answered and never stored.
    pub fn is_review(&self) -> bool {
        matches!(&*self.group, "authentication.k8s.io" | "authorization.k8s.io")
    }

    /// Whether the main resource has that verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// The subresource of that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// The resource whose shape is stored for this one; itself except for `events.k8s.io` Events, `autoscaling/v1`
    /// autoscalers, and versions of custom resources that are not the stored one. `None` when objects are not stored.
    pub fn stored_shape(&self) -> Option<&Resource> {
        match &self.custom {
            None => stored(&self.storage),
            Some(custom) => Some(custom.stored.as_deref().unwrap_or(self)),
        }
    }

    /// Key in the store: `namespace/name`, or the name of a cluster-scoped object.
    pub fn key(&self, namespace: Option<&str>, name: &str) -> String {
        match namespace {
            Some(namespace) if self.namespaced => format!("{namespace}/{name}"),
            _ => name.to_owned(),
        }
    }
}

/// Storage names of resources whose objects are stored in another resource's shape.
const STORED_AS: &[(&str, &str, &str)] = &[("events.k8s.io", "events", "events")];

fn load() -> &'static [Resource] {
    let rows = || rows(include_str!("facts/resources.tsv"));
    let resources = rows().filter(|row| !row[2].contains('/')).map(|row| {
        let [group, version, plural, singular, kind] = [row[0], row[1], row[2], row[3], row[4]];
        let stored = !row[11].is_empty();
        let storage = match STORED_AS.iter().find(|(g, p, _)| *g == group && *p == plural) {
            Some((_, _, storage)) => Cow::Borrowed(*storage),
            None if !stored => Cow::Borrowed(""),
            None if group.is_empty() => Cow::Borrowed(plural),
            None => Cow::Owned(format!("{plural}.{group}")),
        };
        let prefix = format!("{plural}/");
        let subresources = rows()
            .filter(|sub| sub[0] == group && sub[1] == version)
            .filter_map(|sub| Some((sub[2].strip_prefix(&prefix)?, sub)))
            .map(|(name, sub)| Subresource {
                name,
                kind: sub[4].into(),
                group: if sub[6].is_empty() { group } else { sub[5] }.into(),
                version: if sub[6].is_empty() { version } else { sub[6] }.into(),
                foreign: !sub[6].is_empty(),
                verbs: leak(words(sub[10])),
            });
        let columns = self::rows(include_str!("facts/columns.tsv"))
            .filter(|column| column[0] == group && column[1] == version && column[2] == kind)
            .map(|column| Column {
                name: column[4].into(),
                column_type: column[5].into(),
                format: column[6].into(),
                description: "".into(),
                priority: column[7].parse().unwrap_or(0),
            });
        let labels = || {
            self::rows(include_str!("facts/field-selectors.tsv"))
                .filter(move |field| field[0] == group && field[1] == version && field[2] == kind)
                .map(|field| field[3])
        };
        let fields = labels().filter(|label| !label.starts_with("metadata."));
        let deprecation = match (group, plural) {
            ("", "endpoints") => "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
            ("", "componentstatuses") => "v1 ComponentStatus is deprecated in v1.19+",
            _ => "",
        };
        Resource {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            singular: singular.into(),
            kind: kind.into(),
            namespaced: row[7] == "yes",
            short_names: words(row[8]).map(Cow::Borrowed).collect(),
            categories: words(row[9]).map(Cow::Borrowed).collect(),
            verbs: leak(words(row[10])),
            strategy: strategy(&storage),
            storage,
            storage_version_hash: row[11].into(),
            subresources: subresources.collect(),
            columns: columns.collect(),
            fields: fields.map(Cow::Borrowed).collect(),
            deprecation: deprecation.into(),
            namespace_selectable: labels().any(|label| label == "metadata.namespace"),
            custom: None,
        }
    });
    leak(resources)
}

fn strategy(storage: &str) -> Strategy {
    let row = rows(include_str!("facts/strategies.tsv")).find(|row| row[0] == storage);
    let row = row.unwrap_or_else(|| vec!["", "subdomain", "253", "no", "-", "no", "no"]);
    Strategy {
        name_rule: match row[1] {
            "label" => NameRule::Label,
            "path" => NameRule::PathSegment,
            _ => NameRule::Subdomain,
        },
        name_len_max: row[2].parse().unwrap_or(0),
        counts_generation: row[3] == "yes",
        resets_status: row[4] == "reset",
        creates_on_update: row[5] == "yes",
        update_needs_version: row[6] == "yes",
    }
}

/// Rows of a table of facts without its heading; every row has as many cells as the heading.
pub(super) fn rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    table.lines().skip(1).map(|line| line.split('\t').collect())
}

fn words(cell: &'static str) -> impl Iterator<Item = &'static str> {
    cell.split(',').filter(|word| !word.is_empty())
}

/// The declarations live as long as the process; they are made once.
fn leak<T>(items: impl Iterator<Item = T>) -> &'static [T] {
    Box::leak(items.collect::<Vec<_>>().into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stored_resource_has_columns_and_a_first_shape() {
        for resource in all() {
            let shape = resource.stored_shape();
            assert_eq!(
                shape.is_some(),
                !resource.storage.is_empty(),
                "{}",
                resource.qualified()
            );
            assert_eq!(
                resource.has_verb("list"),
                !resource.columns.is_empty(),
                "{} lists without columns",
                resource.qualified()
            );
        }
    }

    #[test]
    fn every_stored_resource_has_a_strategy_and_every_strategy_a_resource() {
        let mut strategies: Vec<&str> = rows(include_str!("facts/strategies.tsv")).map(|row| row[0]).collect();
        let mut storages: Vec<&str> = all()
            .iter()
            .map(|r| &*r.storage)
            .filter(|name| !name.is_empty())
            .collect();
        strategies.sort_unstable();
        storages.sort_unstable();
        storages.dedup();
        assert_eq!(strategies, storages);
    }

    #[test]
    fn two_shapes_of_one_object_share_their_storage() {
        let new = find("events.k8s.io", "v1", "events").unwrap();
        assert_eq!(new.storage, "events");
        assert_eq!(new.stored_shape().unwrap().group, "");
        let old = find("autoscaling", "v1", "horizontalpodautoscalers").unwrap();
        assert_eq!(old.storage, "horizontalpodautoscalers.autoscaling");
        assert_eq!(old.stored_shape().unwrap().version, "v2");
    }

    #[test]
    fn subresources_resolve_the_group_of_their_kind() {
        let pods = find("", "v1", "pods").unwrap();
        let eviction = pods.subresource("eviction").unwrap();
        assert_eq!(
            (&*eviction.group, &*eviction.version, &*eviction.kind),
            ("policy", "v1", "Eviction")
        );
        assert!(eviction.foreign);
        let status = find("apps", "v1", "deployments")
            .unwrap()
            .subresource("status")
            .unwrap();
        assert_eq!(
            (&*status.group, &*status.version, &*status.kind),
            ("apps", "v1", "Deployment")
        );
        assert_eq!(status.verbs, ["get", "patch", "update"]);
    }
}
