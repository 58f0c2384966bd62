//! May the caller: what a request asks for in the words of authorization, and the 403 for what nobody allows.
//!
//! How a path is read: <https://kubernetes.io/docs/reference/access-authn-authz/authorization/#determine-the-request-verb>.

use std::borrow::Cow;

use http::Method;
use http::request::Parts;
use percent_encoding::percent_decode_str;

use super::Api;
use super::audited;
use super::path::{Route, Target};
use super::query::Query;
use super::request::RequestInfo;
use super::status::{Details, Status};
use crate::auth::User;
use crate::auth::authorization::{Asked, Attributes, Decision, What, is_master};
use crate::resources::Resource;

/// Lets a request pass that may be made.
///
/// # Errors
/// 403 in upstream's words.
pub(super) fn check(api: &Api, user: &User, head: &Parts, route: &Route) -> Result<(), Status> {
    let recording = audited::of(api, head);
    // Whoever may do everything costs nothing; whether it is alive a server tells everybody.
    if is_master(user) || matches!(route, Route::Health(_, None)) {
        if let Some(recording) = recording {
            recording.decided(true, "");
        }
        return Ok(());
    }
    asked(head, route, |verb, what| {
        let attributes = Attributes { user, verb, what };
        let decision = api.authorizer.decide(&api.reader.store.view(), &attributes);
        if let Some(recording) = recording {
            recording.decided(decision.is_allowed(), decision.reason());
        }
        judged(&attributes, &decision)
    })
}

/// What a request asks for: the verb, and what it is about.
pub(super) fn asked<R>(head: &Parts, route: &Route, then: impl FnOnce(&'static str, What<'_>) -> R) -> R {
    let raw = head.uri.path();
    let path = match raw.contains('%').then(|| percent_decode_str(raw).decode_utf8()) {
        None | Some(Err(_)) => Cow::Borrowed(raw),
        Some(Ok(decoded)) => decoded,
    };
    let query = head.uri.query().unwrap_or("");
    let (selector, selected);
    let named = match route {
        Route::Resource(target) => Some((of_target(target), target.watch)),
        _ => of_path(&path),
    };
    let (verb, what) = match named {
        None => (lower(&head.method), What::Path(&path)),
        Some((mut asked, watch)) => {
            let verb = if watch {
                "watch"
            } else {
                verb(&head.method, asked.name, query)
            };
            selector = field_selector(verb, query);
            asked.fields = &selector;
            selected = selected_name(verb, asked.name, &selector);
            if let Some(name) = &selected {
                asked.name = name;
            }
            (verb, What::Resource(asked))
        }
    };
    then(verb, what)
}

/// Lets a change of what is not there yet pass as the creation that it is, by who may create it: the verb of the request was asked
/// for already, and says nothing of that.
///
/// # Errors
/// 403 in upstream's words.
pub(super) fn may_create(api: &Api, info: &RequestInfo) -> Result<(), Status> {
    let resource = &info.resource;
    let asked = of_object(resource, info.namespace.as_deref(), info.name.as_deref());
    demand(
        api,
        &Attributes {
            user: &info.user,
            verb: "create",
            what: What::Resource(asked),
        },
    )
}

/// Lets something be done that may be done.
///
/// # Errors
/// 403 in upstream's words.
pub(super) fn demand(api: &Api, attributes: &Attributes<'_>) -> Result<(), Status> {
    judged(attributes, &api.authorizer.decide(&api.reader.store.view(), attributes))
}

fn judged(attributes: &Attributes<'_>, decision: &Decision) -> Result<(), Status> {
    if decision.is_allowed() {
        Ok(())
    } else {
        Err(forbidden(attributes, &decision.reason()))
    }
}

/// 403 for what is not allowed.
fn forbidden(attributes: &Attributes<'_>, reason: &str) -> Status {
    let (user, verb) = (&attributes.user.name, attributes.verb);
    let because = |mut why: String| {
        if !reason.is_empty() {
            why.push_str(": ");
            why.push_str(reason);
        }
        why
    };
    match attributes.what {
        What::Path(path) => {
            let why = because(format!("User \"{user}\" cannot {verb} path \"{path}\""));
            let mut status = Status::forbidden("", "", "", &why);
            status.details = Some(Box::<Details>::default());
            status
        }
        What::Resource(asked) => {
            let Asked {
                group,
                resource,
                subresource,
                namespace,
                name,
                ..
            } = asked;
            let slash = if subresource.is_empty() { "" } else { "/" };
            let scope = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace \"{namespace}\"")
            };
            let why = because(format!(
                "User \"{user}\" cannot {verb} resource \"{resource}{slash}{subresource}\" in API group \"{group}\" {scope}"
            ));
            Status::forbidden(group, resource, name, &why)
        }
    }
}

/// What a path of a resource that is served names.
fn of_target(target: &Target) -> Asked<'_> {
    Asked {
        subresource: target.subresource.as_ref().map_or("", |sub| sub.name),
        ..of_object(&target.resource, target.namespace.as_deref(), target.name.as_deref())
    }
}

/// An object of a resource, or with no name all of them.
fn of_object<'a>(resource: &'a Resource, namespace: Option<&'a str>, name: Option<&'a str>) -> Asked<'a> {
    let name = name.unwrap_or("");
    // A Namespace is in itself.
    let is_namespace = resource.plural == "namespaces" && resource.group.is_empty();
    Asked {
        group: &resource.group,
        resource: &resource.plural,
        namespace: if is_namespace { name } else { namespace.unwrap_or("") },
        name,
        ..Asked::default()
    }
}

/// What a path names, whether anything of that kind is served or not, and whether it asks for a watch; `None` for a path of no
/// resource.
fn of_path(path: &str) -> Option<(Asked<'_>, bool)> {
    let mut parts = path.trim_matches('/').split('/');
    let mut asked = Asked::default();
    match parts.next()? {
        "api" => {}
        "apis" => asked.group = parts.next()?,
        _ => return None,
    }
    parts.next()?;
    let mut first = parts.next()?;
    let watch = first == "watch";
    if watch {
        first = parts.next()?;
    }
    let mut next = parts.next();
    if first == "namespaces"
        && let Some(namespace) = next
    {
        asked.namespace = namespace;
        let mut ahead = parts.clone();
        if let Some(resource) = ahead.next()
            && !matches!(resource, "status" | "finalize")
        {
            first = resource;
            next = ahead.next();
            parts = ahead;
        }
    }
    asked.resource = first;
    asked.name = next.unwrap_or("");
    asked.subresource = parts.next().unwrap_or("");
    Some((asked, watch))
}

/// The verb of a request for a resource.
fn verb(method: &Method, name: &str, query: &str) -> &'static str {
    match (method, name.is_empty()) {
        (&Method::GET | &Method::HEAD, false) => "get",
        (&Method::GET | &Method::HEAD, true) if Query::new(query).flag("watch") => "watch",
        (&Method::GET | &Method::HEAD, true) => "list",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, false) => "delete",
        (&Method::DELETE, true) => "deletecollection",
        _ => "",
    }
}

/// The field selector of a request that may have one; `""` without.
fn field_selector(verb: &str, query: &str) -> String {
    if !matches!(verb, "list" | "watch" | "deletecollection") || !query.contains("fieldSelector") {
        return String::new();
    }
    let selector = Query::new(query)
        .get("fieldSelector")
        .map_or_else(String::new, Cow::into_owned);
    // In a value that is escaped anything may stand that only looks like a term: such a selector narrows nothing.
    if selector.contains('\\') {
        String::new()
    } else {
        selector
    }
}

/// The one object that a field selector leaves of a list: rules about names are about it.
fn selected_name(verb: &str, name: &str, selector: &str) -> Option<String> {
    if !name.is_empty() || !matches!(verb, "list" | "watch") {
        return None;
    }
    let value = selector.split(',').find_map(|term| {
        let (field, value) = term.split_once('=')?;
        (field.trim() == "metadata.name").then(|| value.strip_prefix('=').unwrap_or(value).trim())
    })?;
    let is_segment = !value.is_empty() && !matches!(value, "." | "..") && !value.contains(['/', '%', '\\']);
    is_segment.then(|| value.to_owned())
}

fn lower(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        Method::CONNECT => "connect",
        Method::TRACE => "trace",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_resources_are_read_whether_they_are_served_or_not() {
        for (path, expected) in [
            ("/api/v1/pods", ("", "pods", "", "", "")),
            ("/api/v1/namespaces/a", ("", "namespaces", "", "a", "a")),
            ("/api/v1/namespaces/a/status", ("", "namespaces", "status", "a", "a")),
            ("/api/v1/namespaces/a/pods/p/log", ("", "pods", "log", "a", "p")),
            (
                "/apis/x.example.com/v1/namespaces/a/foos",
                ("x.example.com", "foos", "", "a", ""),
            ),
            (
                "/apis/x.example.com/v1/foos/f/status",
                ("x.example.com", "foos", "status", "", "f"),
            ),
        ] {
            let (asked, watch) = of_path(path).unwrap();
            let Asked {
                group,
                resource,
                subresource,
                namespace,
                name,
                ..
            } = asked;
            assert_eq!((group, resource, subresource, namespace, name), expected, "{path}");
            assert!(!watch);
        }
        for path in [
            "/",
            "/api",
            "/api/v1",
            "/apis/apps/v1",
            "/metrics",
            "/openapi/v3/api/v1",
        ] {
            assert!(of_path(path).is_none(), "{path}");
        }
        assert!(of_path("/api/v1/watch/namespaces/a/pods").unwrap().1);
    }

    #[test]
    fn a_selector_of_one_name_is_about_that_object() {
        let name = |selector| selected_name("list", "", selector);
        assert_eq!(name("metadata.name=a").as_deref(), Some("a"));
        assert_eq!(name("spec.x=b,metadata.name==a").as_deref(), Some("a"));
        assert_eq!(name("metadata.name!=a"), None);
        assert_eq!(name("metadata.name=a/b"), None);
        assert_eq!(selected_name("get", "b", "metadata.name=a"), None);
        assert_eq!(
            field_selector("watch", "fieldSelector=metadata.name%3Da"),
            "metadata.name=a"
        );
        let escaped = r"fieldSelector=spec.nodeName!%3Dx%5C,metadata.name%3Da";
        assert_eq!(field_selector("list", escaped), "");
        assert_eq!(field_selector("get", "fieldSelector=metadata.name%3Da"), "");
    }
}
