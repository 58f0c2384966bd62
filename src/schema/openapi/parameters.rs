//! Parameters of operations: type and meaning.

use serde_json::{Value, json};

/// Name, type and meaning of each query parameter.
const QUERY: [(&str, &str, &str); 36] = [
    (
        "allowWatchBookmarks",
        "boolean",
        "Asks a watch for BOOKMARK events, which carry a resourceVersion to resume from.",
    ),
    (
        "command",
        "string",
        "The command to run, without a shell; repeat it for each argument.",
    ),
    (
        "container",
        "string",
        "The container of the Pod; may be left out when there is only one.",
    ),
    (
        "continue",
        "string",
        "Where the next page of a list begins: the token that the page before carried.",
    ),
    (
        "dryRun",
        "string",
        "\"All\" goes through every stage of the request and keeps nothing.",
    ),
    (
        "fieldManager",
        "string",
        "Name of who makes the changes, up to 128 printable characters. Apply requires it.",
    ),
    (
        "fieldSelector",
        "string",
        "Limits what is returned to objects whose fields match; not every field may be selected by.",
    ),
    (
        "fieldValidation",
        "string",
        "What to do about unknown and duplicate fields: Ignore drops them, Warn (the default) drops them with a warning \
         each, Strict refuses the request.",
    ),
    ("follow", "boolean", "Goes on with the log as it is written."),
    (
        "force",
        "boolean",
        "Takes over fields that other managers own. Apply only.",
    ),
    (
        "gracePeriodSeconds",
        "integer",
        "Seconds before the object is deleted; 0 deletes at once; the kind's default if absent.",
    ),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Deletes an object that cannot be read from storage, without its finalizers. Dangerous.",
    ),
    (
        "insecureSkipTLSVerifyBackend",
        "boolean",
        "Reads the log without checking the certificate of the kubelet.",
    ),
    (
        "labelSelector",
        "string",
        "Limits what is returned to objects whose labels match.",
    ),
    (
        "limit",
        "integer",
        "At most so many objects in one answer; the rest is fetched with continue.",
    ),
    ("limitBytes", "integer", "At most so many bytes of the log."),
    (
        "orphanDependents",
        "boolean",
        "Deprecated: use propagationPolicy. Whether dependents stay.",
    ),
    ("path", "string", "The rest of the URL, passed on."),
    ("ports", "integer", "Ports to forward; required with websockets."),
    ("pretty", "string", "\"true\" indents the answer."),
    (
        "previous",
        "boolean",
        "The log of the instance of the container that ended before.",
    ),
    (
        "propagationPolicy",
        "string",
        "What happens to dependents: Orphan, Background or Foreground.",
    ),
    (
        "resourceVersion",
        "string",
        "Which revision to read, together with resourceVersionMatch, or to watch from.",
    ),
    (
        "resourceVersionMatch",
        "string",
        "How resourceVersion is meant for a list: Exact or NotOlderThan.",
    ),
    (
        "sendInitialEvents",
        "boolean",
        "A watch begins with an ADDED event for each object, then a bookmark that says so.",
    ),
    (
        "shardSelector",
        "string",
        "Limits what is returned to one shard of the objects.",
    ),
    (
        "sinceSeconds",
        "integer",
        "Lines of the log not older than so many seconds.",
    ),
    ("stderr", "boolean", "Redirect the standard error of the call."),
    ("stdin", "boolean", "Redirect the standard input of the call."),
    ("stdout", "boolean", "Redirect the standard output of the call."),
    ("stream", "string", "Which stream of the log: All, Stdout or Stderr."),
    ("tailLines", "integer", "So many lines from the end of the log."),
    (
        "timeoutSeconds",
        "integer",
        "Ends a list or watch after so many seconds.",
    ),
    ("timestamps", "boolean", "Each line of the log begins with its time."),
    ("tty", "boolean", "Allocate a terminal for the call."),
    ("watch", "boolean", "Stream of changes instead of a list."),
];

/// One query parameter: in version 3 its type lies in a schema of its own.
pub(super) fn query(name: &str, v3: bool) -> Value {
    let (_, ty, meaning) = QUERY
        .iter()
        .find(|(known, ..)| *known == name)
        .copied()
        .unwrap_or((name, "string", ""));
    if v3 {
        json!({"name": name, "in": "query", "description": meaning, "schema": {"type": ty, "uniqueItems": true}})
    } else {
        json!({"name": name, "in": "query", "description": meaning, "type": ty, "uniqueItems": true})
    }
}

/// One parameter in the path.
pub(super) fn path(name: &str, kind: &str, v3: bool) -> Value {
    let meaning = match name {
        "name" => format!("Name of the {kind}."),
        "namespace" => "Namespace of the object.".to_owned(),
        _ => "The rest of the URL, passed on.".to_owned(),
    };
    if v3 {
        json!({"name": name, "in": "path", "description": meaning, "required": true,
               "schema": {"type": "string", "uniqueItems": true}})
    } else {
        json!({"name": name, "in": "path", "description": meaning, "required": true, "type": "string", "uniqueItems": true})
    }
}
