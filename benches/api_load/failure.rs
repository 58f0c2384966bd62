//! Why a run cannot be believed: a request failed, or an answer was not what it has to be.

use std::fmt;

/// One failed request. It ends the run.
#[derive(Debug)]
pub(crate) struct Failure {
    path: String,
    status: Option<http::StatusCode>,
    what: String,
    body_start: String,
}

/// Bytes of a body that a message shows.
const BODY_SHOWN_MAX: usize = 400;

impl Failure {
    /// The connection or the stream broke.
    pub(crate) fn connection(path: &str, error: impl fmt::Display) -> Self {
        Self {
            path: path.to_owned(),
            status: None,
            what: error.to_string(),
            body_start: String::new(),
        }
    }

    /// An answer that must not be: of the wrong status, or of the wrong content.
    pub(crate) fn answer(path: &str, status: http::StatusCode, what: impl Into<String>, body: &[u8]) -> Self {
        Self {
            path: path.to_owned(),
            status: Some(status),
            what: what.into(),
            body_start: String::from_utf8_lossy(&body[..body.len().min(BODY_SHOWN_MAX)]).into_owned(),
        }
    }

    /// A right status with the wrong content.
    pub(crate) fn content(path: &str, what: impl Into<String>, body: &[u8]) -> Self {
        Self::answer(path, http::StatusCode::OK, what, body)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.what)?;
        if let Some(status) = self.status {
            write!(f, "; status {}", status.as_u16())?;
        }
        if !self.body_start.is_empty() {
            write!(f, "; the body begins: {}", self.body_start)?;
        }
        Ok(())
    }
}
