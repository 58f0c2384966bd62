//! From a URL path to what it names. Knows every path of the API, the legacy `/watch/` paths included.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use percent_encoding::percent_decode_str;

use super::{backup, compact};
use crate::resources::custom::Registry;
use crate::resources::{self, Resource, ResourceRef, SubresourceRef};

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// A resource, an object or a subresource.
    Resource(Target),
    /// `/`.
    Root,
    /// `/api`.
    Versions,
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(Cow<'static, str>),
    /// `/api/v1`, `/apis/GROUP/VERSION`: group (`""` is core) and version.
    GroupVersion(Cow<'static, str>, Cow<'static, str>),
    /// `/version`.
    Version,
    /// `/healthz`, `/livez`, `/readyz` and one check below them.
    Health(Health, Option<String>),
    /// `/flatkube/v1/backup`.
    Backup,
    /// `/flatkube/v1/compact`.
    Compact,
    /// `/openid/v1/jwks`.
    KeySet,
    /// `/.well-known/openid-configuration`.
    OpenIdConfiguration,
    /// `/metrics`.
    Metrics,
    /// `/openapi/v2`.
    OpenApiV2,
    /// `/openapi/v3`.
    OpenApiV3,
    /// `/openapi/v3/PATH`.
    OpenApiV3Document(String),
    /// Below a served API root, but nothing there: a 404 Status.
    NoResource,
    /// Nothing here: 404 in plain text, as upstream's mux answers.
    NotFound,
}

/// The three health endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    /// `/healthz`
    Healthz,
    /// `/livez`
    Livez,
    /// `/readyz`
    Readyz,
}

/// A path of a resource.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub resource: ResourceRef,
    pub subresource: Option<SubresourceRef>,
    pub namespace: Option<String>,
    pub name: Option<String>,
    /// What follows a subresource that takes a path (`proxy`).
    pub rest: Option<String>,
    /// A legacy `/watch/` path.
    pub watch: bool,
}

impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        let (own, others): (&Resource, &Resource) = (&self.resource, &other.resource);
        std::ptr::eq(own, others)
            && self.subresource.as_ref().map(|sub| sub.name) == other.subresource.as_ref().map(|sub| sub.name)
            && (&self.namespace, &self.name, &self.rest, self.watch)
                == (&other.namespace, &other.name, &other.rest, other.watch)
    }
}

impl Eq for Target {}

/// The built-in resources by group, version and plural name.
struct Served {
    versions: Vec<(&'static str, &'static str, HashMap<&'static str, usize>)>,
}

fn served() -> &'static Served {
    static SERVED: OnceLock<Served> = OnceLock::new();
    SERVED.get_or_init(|| {
        let mut versions: Vec<(&'static str, &'static str, HashMap<&'static str, usize>)> = Vec::new();
        for (index, resource) in resources::all().iter().enumerate() {
            let place = versions
                .iter()
                .position(|(g, v, _)| *g == resource.group && *v == resource.version);
            let place = place.unwrap_or_else(|| {
                versions.push((&resource.group, &resource.version, HashMap::new()));
                versions.len() - 1
            });
            versions[place].2.insert(&resource.plural, index);
        }
        Served { versions }
    })
}

/// Finds out what a path (without its query) names.
pub(super) fn route(custom: &Registry, path: &str) -> Route {
    let decoded = if path.contains('%') {
        match percent_decode_str(path).decode_utf8() {
            Ok(decoded) => decoded,
            Err(_) => return Route::NotFound,
        }
    } else {
        Cow::Borrowed(path)
    };
    let trimmed = decoded.trim_matches('/');
    if trimmed.is_empty() {
        return Route::Root;
    }
    let mut segments = trimmed.split('/');
    match segments.next() {
        Some("api") => core(custom, segments),
        Some("apis") => named(custom, segments),
        Some("version") => leaf(segments, Route::Version),
        Some("flatkube") if trimmed == backup::PATH.trim_start_matches('/') => Route::Backup,
        Some("flatkube") if trimmed == compact::PATH.trim_start_matches('/') => Route::Compact,
        Some("openid") if trimmed == "openid/v1/jwks" => Route::KeySet,
        Some(".well-known") if trimmed == ".well-known/openid-configuration" => Route::OpenIdConfiguration,
        Some("metrics") => leaf(segments, Route::Metrics),
        Some("healthz") => health(segments, Health::Healthz),
        Some("livez") => health(segments, Health::Livez),
        Some("readyz") => health(segments, Health::Readyz),
        Some("openapi") => match segments.next() {
            Some("v2") => leaf(segments, Route::OpenApiV2),
            Some("v3") => match trimmed.strip_prefix("openapi/v3/") {
                None => Route::OpenApiV3,
                Some(document) => Route::OpenApiV3Document(document.to_owned()),
            },
            _ => Route::NotFound,
        },
        _ => Route::NotFound,
    }
}

type Segments<'a> = std::str::Split<'a, char>;

fn leaf(mut segments: Segments<'_>, route: Route) -> Route {
    if segments.next().is_none() {
        route
    } else {
        Route::NotFound
    }
}

fn health(mut segments: Segments<'_>, health: Health) -> Route {
    let check = segments.next().map(str::to_owned);
    leaf(segments, Route::Health(health, check))
}

fn core(custom: &Registry, mut segments: Segments<'_>) -> Route {
    match segments.next() {
        None => Route::Versions,
        Some("v1") => below_version(custom, "", "v1", segments),
        Some(_) => Route::NoResource,
    }
}

fn named(custom: &Registry, mut segments: Segments<'_>) -> Route {
    let Some(group) = segments.next() else {
        return Route::Groups;
    };
    // The core group has no name and is not served below /apis.
    let built_in = served()
        .versions
        .iter()
        .find(|(g, _, _)| !g.is_empty() && *g == group)
        .map(|(g, _, _)| Cow::Borrowed(*g));
    let found = built_in.or_else(|| custom.served().has_group(group).then(|| group.to_owned().into()));
    let Some(found) = found else { return Route::NotFound };
    match segments.next() {
        None => Route::Group(found),
        Some(version) => below_version(custom, group, version, segments),
    }
}

fn below_version(custom: &Registry, group: &str, version: &str, segments: Segments<'_>) -> Route {
    if let Some((group, version, resources)) = served().versions.iter().find(|(g, v, _)| *g == group && *v == version) {
        let find = |plural: &str| Some(ResourceRef::from(&resources::all()[*resources.get(plural)?]));
        let sole = segments.clone().next().is_none();
        return match below(find, segments) {
            _ if sole => Route::GroupVersion(Cow::Borrowed(group), Cow::Borrowed(version)),
            None => Route::NoResource,
            Some(target) => Route::Resource(target),
        };
    }
    let served = custom.served();
    let Some(resources) = served.version(group, version) else {
        // Upstream leaves what is below a group of custom resources to their own handler, whose words these are.
        return if served.has_group(group) {
            Route::NotFound
        } else {
            Route::NoResource
        };
    };
    if segments.clone().next().is_none() {
        return Route::GroupVersion(group.to_owned().into(), version.to_owned().into());
    }
    below(|plural| resources.get(plural).cloned(), segments).map_or(Route::NotFound, Route::Resource)
}

/// What the path names below a version, whose resources `find` finds.
fn below(find: impl Fn(&str) -> Option<ResourceRef>, mut segments: Segments<'_>) -> Option<Target> {
    let mut first = segments.next();
    let watch = first == Some("watch");
    if watch {
        first = segments.next();
    }
    let mut parts = [None; 4];
    for part in &mut parts {
        *part = segments.next();
    }
    let rest: Vec<&str> = segments.collect();
    // namespaces/NS/RESOURCE…, but namespaces/NS/{status,finalize} is a subresource of the namespace.
    let (namespace, plural, name, sub, mut rest) = match (first, parts) {
        (Some("namespaces"), [Some(namespace), Some(plural), name, sub])
            if find("namespaces").is_none_or(|resource| resource.subresource(plural).is_none()) =>
        {
            (Some(namespace), plural, name, sub, rest)
        }
        (Some(plural), [name, sub, next, after]) => {
            let all: Vec<&str> = next.into_iter().chain(after).chain(rest).collect();
            (None, plural, name, sub, all)
        }
        (None, _) => return None,
    };
    let empty = |part: Option<&str>| part == Some("");
    let resource = find(plural)?;
    if empty(namespace)
        || empty(name)
        || empty(sub)
        || namespace.is_some() != resource.namespaced && (namespace.is_some() || name.is_some())
    {
        return None;
    }
    let subresource = match sub {
        None => None,
        Some(sub) => Some(SubresourceRef::find(&resource, sub)?),
    };
    let rest = (!rest.is_empty()).then(|| std::mem::take(&mut rest).join("/"));
    // Only `proxy` takes a path below it.
    if rest.is_some() && sub != Some("proxy") || watch && sub.is_some() {
        return None;
    }
    Some(Target {
        resource,
        subresource,
        namespace: namespace.map(str::to_owned),
        name: name.map(str::to_owned),
        rest,
        watch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Target {
        match route(&Registry::default(), path) {
            Route::Resource(target) => target,
            other => panic!("{path} is {other:?}"),
        }
    }

    fn told(target: &Target) -> (&str, Option<&str>, Option<&str>, Option<&str>, bool) {
        (
            &target.resource.plural,
            target.namespace.as_deref(),
            target.name.as_deref(),
            target.subresource.as_ref().map(|sub| sub.name),
            target.watch,
        )
    }

    #[test]
    fn paths_of_resources_are_read_as_upstream_reads_them() {
        assert_eq!(told(&target("/api/v1/pods")), ("pods", None, None, None, false));
        assert_eq!(
            told(&target("/api/v1/namespaces/a/pods/p/status")),
            ("pods", Some("a"), Some("p"), Some("status"), false)
        );
        assert_eq!(
            told(&target("/api/v1/namespaces/a")),
            ("namespaces", None, Some("a"), None, false)
        );
        assert_eq!(
            told(&target("/api/v1/namespaces/a/status")),
            ("namespaces", None, Some("a"), Some("status"), false)
        );
        assert_eq!(
            told(&target("/api/v1/watch/namespaces/a/configmaps/c")),
            ("configmaps", Some("a"), Some("c"), None, true)
        );
        assert_eq!(
            told(&target("/api/v1/watch/namespaces")),
            ("namespaces", None, None, None, true)
        );
        assert_eq!(
            told(&target("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode")),
            ("clusterroles", None, Some("system:node"), None, false)
        );
        let proxied = target("/api/v1/nodes/n/proxy/metrics/cadvisor");
        assert_eq!(told(&proxied), ("nodes", None, Some("n"), Some("proxy"), false));
        assert_eq!(proxied.rest.as_deref(), Some("metrics/cadvisor"));
    }

    #[test]
    fn what_is_not_there_is_told_apart_by_how_far_the_path_leads() {
        for path in [
            "/api/v1/widgets",
            "/api/v2/pods",
            "/apis/apps/v9/deployments",
            "/apis/apps/v1/namespaces/a/pods",
            "/api/v1/namespaces/a/pods/p/unknown",
            "/api/v1/namespaces/a/nodes",
            "/api/v1/pods/p",
            "/api/v1/namespaces/a/pods/p/status/more",
            "/api/v1/namespaces//pods",
        ] {
            assert_eq!(route(&Registry::default(), path), Route::NoResource, "{path}");
        }
        for path in [
            "/nothing/here",
            "/apis/none.example.com/v1/widgets",
            "/version/x",
            "/api%ff",
        ] {
            assert_eq!(route(&Registry::default(), path), Route::NotFound, "{path}");
        }
    }
}
