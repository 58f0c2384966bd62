//! Pods on nodes that are simulated within this process: their logs are to be had here, and nothing else is there to talk to.

use std::fmt::Debug;

use http::{HeaderValue, header};

use crate::api::body::{Body, Response};
use crate::api::request::Query;
use crate::api::status::Status;
use crate::store::Object;

/// Nodes that are simulated within this process.
pub(crate) trait Simulated: Debug + Send + Sync {
    /// Whether it is one of those.
    fn has(&self, node: &str) -> bool;

    /// What a container of a Pod on one of those has printed.
    ///
    /// # Errors
    /// What a kubelet says of a container that has no log yet.
    fn log(&self, pod: &Object, container: &str) -> Result<String, String>;
}

/// The answer to a request for a log: the last lines that are asked for, and so many bytes at most. It ends where the log ends now, even
/// if more is waited for.
///
/// # Errors
/// 400 for a container that has none yet.
pub(super) fn log(nodes: &dyn Simulated, pod: &Object, container: &str, query: &Query) -> Result<Response, Status> {
    let text = nodes.log(pod, container).map_err(Status::bad_request)?;
    let number = |name: &str| query.get(name).and_then(|text| text.parse().ok());
    let text = end_of(&text, number("tailLines"), number("limitBytes")).to_owned();
    let mut response = http::Response::new(Body::parts([text.into()]));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    Ok(response)
}

/// So many of the last lines, and of those so many bytes.
fn end_of(text: &str, lines: Option<usize>, bytes: Option<usize>) -> &str {
    let from = match lines {
        None => 0,
        Some(0) => text.len(),
        Some(lines) => {
            let body = text.strip_suffix('\n').unwrap_or(text);
            body.rmatch_indices('\n').nth(lines - 1).map_or(0, |(at, _)| at + 1)
        }
    };
    let text = &text[from..];
    &text[..text.floor_char_boundary(bytes.unwrap_or(usize::MAX))]
}

/// What is said of what needs a process.
pub(super) fn nothing_runs(pod: &str, node: &str) -> Status {
    let mut status = Status::plain(
        501,
        format!("pod {pod} is on the simulated node {node}: nothing runs there that could be talked to"),
    );
    status.reason = "NotImplemented";
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_counted_in_lines_and_cut_in_bytes() {
        assert_eq!(end_of("a\nb\nc\n", None, None), "a\nb\nc\n");
        assert_eq!(end_of("a\nb\nc\n", Some(2), None), "b\nc\n");
        assert_eq!(end_of("a\nb\nc\n", Some(9), None), "a\nb\nc\n");
        assert_eq!(end_of("a\nb\nc", Some(1), None), "c");
        assert_eq!(end_of("a\n", Some(0), None), "");
        assert_eq!(end_of("aä\n", None, Some(2)), "a");
        assert_eq!(end_of("", Some(1), Some(1)), "");
    }
}
