//! A plain HTTP client with a bearer token: one keep-alive connection, whole answers, or a watch read line by line.

#![allow(dead_code)]

use std::net::SocketAddr;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// The token that [`write_tokens`] writes, of a member of system:masters.
pub(crate) const TOKEN: &str = "token-of-the-tests";

/// Writes a token file for `--token-auth-file` at `path`.
pub(crate) fn write_tokens(path: &Path) {
    std::fs::write(path, format!("{TOKEN},admin,uid-admin,\"system:masters\"\n")).expect("a token file");
}

/// One connection.
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Why there is no whole answer: the connection broke.
pub(crate) type Broken = Box<dyn std::error::Error + Send + Sync>;

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self, Broken> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Client { sender })
    }

    async fn begin(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<hyper::Response<Incoming>, Broken> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("authorization", format!("Bearer {TOKEN}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.sender.ready().await?;
        Ok(self.sender.send_request(request.body(Full::new(body.into()))?).await?)
    }

    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Answer, Broken> {
        let response = self.begin(method, path, headers, body).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok(Answer { status, body })
    }

    pub(crate) async fn get(&mut self, path: &str, accept: &str) -> Result<Answer, Broken> {
        self.send(Method::GET, path, &[("accept", accept)], Bytes::new()).await
    }

    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> Result<Answer, Broken> {
        self.send(
            Method::POST,
            path,
            &[("content-type", "application/json")],
            body.to_string(),
        )
        .await
    }

    pub(crate) async fn put(&mut self, path: &str, body: &Value) -> Result<Answer, Broken> {
        self.send(
            Method::PUT,
            path,
            &[("content-type", "application/json")],
            body.to_string(),
        )
        .await
    }

    pub(crate) async fn delete(&mut self, path: &str) -> Result<Answer, Broken> {
        self.send(Method::DELETE, path, &[], Bytes::new()).await
    }

    /// Takes the connection for an answer without an end.
    pub(crate) async fn watch(mut self, path: &str, accept: &str) -> Result<Watch, Broken> {
        let response = self
            .begin(Method::GET, path, &[("accept", accept)], Bytes::new())
            .await?;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        Ok(Watch {
            body: response.into_body(),
            pending: BytesMut::new(),
            _sender: self.sender,
        })
    }
}

/// An answer without an end.
pub(crate) struct Watch {
    body: Incoming,
    pending: BytesMut,
    _sender: SendRequest<Full<Bytes>>,
}

impl Watch {
    /// The next line, without its end; `None` when the server ended the watch.
    pub(crate) async fn line(&mut self) -> Result<Option<Bytes>, Broken> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let mut line = self.pending.split_to(end + 1);
                line.truncate(end);
                return Ok(Some(line.freeze()));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Some(data) = frame?.data_ref() {
                        self.pending.extend_from_slice(data);
                    }
                }
            }
        }
    }
}
