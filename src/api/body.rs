//! Response bodies: slices of mapped files, small rendered buffers, and streams of either.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;

/// What every handler answers with.
pub type Response = http::Response<Body>;

/// Why a body broke off. hyper resets the stream (HTTP/2) or the connection (HTTP/1.1), so that the client can tell a
/// broken answer from a complete one.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Stored bytes failed their checksum or their archive check.
    #[error("damaged data: {0}")]
    Damaged(String),
    /// Data waited for 60 s and the client took none of it.
    #[error("the client does not read")]
    TooSlow,
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// The state that the answer shows was replaced long ago, and too much of the disk is kept for it.
    #[error("the revision is no longer retained")]
    Expired,
    /// Anything else; the text says what.
    #[error("{0}")]
    Other(String),
}

/// A response body. The common forms need no allocation of their own.
pub struct Body(Form);

enum Form {
    Empty,
    One(Bytes),
    Parts { parts: VecDeque<Bytes>, left: u64 },
    Stream(UnsyncBoxBody<Bytes, BodyError>),
}

impl Body {
    /// No bytes.
    pub fn empty() -> Self {
        Self(Form::Empty)
    }

    /// A body of known length made of slices that are sent in order; each becomes one frame.
    pub fn parts(parts: impl Into<VecDeque<Bytes>>) -> Self {
        let mut parts = parts.into();
        parts.retain(|part| !part.is_empty());
        let left = parts.iter().map(|part| part.len() as u64).sum();
        Self(Form::Parts { parts, left })
    }

    /// A body whose frames are made while the client reads.
    pub fn stream<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Send + 'static,
    {
        Self(Form::Stream(UnsyncBoxBody::new(body)))
    }

    /// The bytes of a body that is held whole and is no larger than `max` bytes; copied where it is in parts.
    pub fn held(&self, max: usize) -> Option<Bytes> {
        match &self.0 {
            Form::Empty => Some(Bytes::new()),
            Form::One(bytes) => (bytes.len() <= max).then(|| bytes.clone()),
            Form::Parts { parts, left } => (*left <= max as u64).then(|| {
                let mut whole = Vec::with_capacity(*left as usize);
                for part in parts {
                    whole.extend_from_slice(part);
                }
                whole.into()
            }),
            Form::Stream(_) => None,
        }
    }

    /// Whether frames are made while the client reads.
    pub fn is_made_while_sent(&self) -> bool {
        matches!(self.0, Form::Stream(_))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            Self::empty()
        } else {
            Self(Form::One(bytes))
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(Bytes::from(bytes))
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::from(Bytes::from_static(text.as_bytes()))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Body")
            .field("size", &http_body::Body::size_hint(self))
            .finish()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Form::Empty => Poll::Ready(None),
            Form::One(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Form::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Form::Parts { parts, left } => Poll::Ready(parts.pop_front().map(|part| {
                *left -= part.len() as u64;
                Ok(Frame::data(part))
            })),
            Form::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Form::Empty => true,
            Form::One(_) => false,
            Form::Parts { parts, .. } => parts.is_empty(),
            Form::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Form::Empty => SizeHint::with_exact(0),
            Form::One(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Form::Parts { left, .. } => SizeHint::with_exact(*left),
            Form::Stream(body) => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn parts_are_sent_in_order_and_their_length_is_known_before() {
        let body = Body::parts(vec![
            Bytes::from_static(b"ab"),
            Bytes::new(),
            Bytes::from_static(b"cde"),
        ]);
        assert_eq!(body.size_hint().exact(), Some(5));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abcde");
    }
}
