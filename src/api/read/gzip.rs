//! Compresses a body while it is sent.

use std::io::Write as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::{Body, Frame};

use super::chunks::CHUNK_LEN;
use crate::api::body::BodyError;

/// Bodies shorter than this are sent as they are, in bytes (as upstream does).
pub(super) const GZIP_LEN_MIN: usize = 128 * 1024;
/// Speed matters more than size on the networks that API servers stand in; upstream uses level 1 too.
const LEVEL: u32 = 1;

/// Most bodies that are compressed at a time: each holds some 300 KiB until its client has taken it.
const BODIES_MAX: usize = 64;
/// Bodies of the process that are being compressed.
static BODIES: AtomicUsize = AtomicUsize::new(0);

/// A place among [`BODIES_MAX`].
pub(super) struct Place(());

impl Place {
    /// A place, if one is free; else the body goes out as it is.
    pub(super) fn take() -> Option<Self> {
        let more = |bodies: usize| (bodies < BODIES_MAX).then_some(bodies + 1);
        let taken = BODIES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then_some(Self(()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        BODIES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `body`, as one gzip member.
pub(super) struct Gzip<B> {
    _place: Place,
    body: B,
    /// A frame that is not wholly compressed yet: long slices are taken a chunk at a time.
    input: Bytes,
    /// `None` once the trailer is out.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<B> Gzip<B> {
    pub(super) fn new(body: B, place: Place) -> Self {
        Self {
            _place: place,
            body,
            input: Bytes::new(),
            encoder: Some(GzEncoder::new(Vec::new(), Compression::new(LEVEL))),
        }
    }
}

impl<B> Body for Gzip<B>
where
    B: Body<Data = Bytes, Error = BodyError> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        loop {
            let Some(encoder) = &mut this.encoder else {
                return Poll::Ready(None);
            };
            if encoder.get_ref().len() >= CHUNK_LEN {
                let compressed = std::mem::take(encoder.get_mut());
                return Poll::Ready(Some(Ok(Frame::data(compressed.into()))));
            }
            if this.input.is_empty() {
                match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                    Some(Ok(frame)) => this.input = frame.into_data().unwrap_or_default(),
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => {
                        let finished = this.encoder.take().map(GzEncoder::finish).transpose();
                        return Poll::Ready(match finished {
                            Ok(last) => last.map(|last| Ok(Frame::data(last.into()))),
                            Err(error) => Some(Err(BodyError::Other(error.to_string()))),
                        });
                    }
                }
                continue;
            }
            let piece = this.input.split_to(this.input.len().min(CHUNK_LEN));
            let written = encoder.write_all(&piece);
            if let Err(error) = written {
                return Poll::Ready(Some(Err(BodyError::Other(error.to_string()))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn one_member_that_decompresses_to_the_body() {
        let parts: Vec<Bytes> = (0..200_usize)
            .map(|n| Bytes::from(format!("{n} ").repeat(n * 40)))
            .collect();
        let plain: Vec<u8> = parts.concat();
        let body = Gzip::new(crate::api::body::Body::parts(parts), Place::take().unwrap());
        let compressed = body.collect().await.unwrap().to_bytes();
        assert!(compressed.len() < plain.len() / 2);
        let mut decoder = flate2::bufread::GzDecoder::new(&compressed[..]);
        let mut back = Vec::new();
        decoder.read_to_end(&mut back).unwrap();
        assert!(back == plain);
        assert!(decoder.into_inner().is_empty(), "nothing behind the member");
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_does_not_end_cleanly() {
        struct Broken(bool);
        impl Body for Broken {
            type Data = Bytes;
            type Error = BodyError;
            fn poll_frame(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
                let first = !std::mem::replace(&mut self.0, true);
                Poll::Ready(Some(if first {
                    Ok(Frame::data(Bytes::from_static(b"x")))
                } else {
                    Err(BodyError::Damaged("y".into()))
                }))
            }
        }
        assert!(matches!(
            Gzip::new(Broken(false), Place::take().unwrap()).collect().await,
            Err(BodyError::Damaged(_))
        ));
    }
}
