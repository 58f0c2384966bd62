//! A small HTTP client for the plain address.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::LONG;

/// The first bytes of what comes back on a connection that is written by hand: `HTTP/1.1 504`.
///
/// # Panics
/// When nothing comes.
pub(crate) async fn first_line(socket: &mut TcpStream) -> String {
    let mut line = [0; 12];
    let read = timeout(LONG, socket.read_exact(&mut line)).await;
    read.expect("no answer").expect("it was hung up");
    String::from_utf8_lossy(&line).into_owned()
}

#[derive(Clone)]
pub(crate) struct Client {
    inner: Legacy<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
    token: Option<&'static str>,
}

/// An answer: code, headers, body.
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Value,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, token: Option<&'static str>) -> Self {
        Self {
            inner: Legacy::builder(TokioExecutor::new()).build_http(),
            address,
            token,
        }
    }

    /// Sends a request; the answer's body is still to be read.
    pub(crate) async fn open(&self, method: &str, path: &str, kind: &str, body: Bytes) -> http::Response<Incoming> {
        let mut request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(format!("http://{}{path}", self.address));
        if let Some(token) = self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if !kind.is_empty() {
            request = request.header("content-type", kind);
        }
        self.inner
            .request(request.body(Full::new(body)).unwrap())
            .await
            .unwrap()
    }

    pub(crate) async fn send(&self, method: &str, path: &str, kind: &str, body: Bytes) -> Answer {
        let (head, body) = self.open(method, path, kind, body).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Answer {
            code: head.status,
            headers: head.headers,
            body,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", Bytes::new()).await
    }

    /// A list as a Table without objects.
    pub(crate) async fn table(&self, path: &str) -> Answer {
        let path = format!("{path}?includeObject=None");
        self.get_as(&path, "application/json;as=Table;v=v1;g=meta.k8s.io").await
    }

    /// A GET with these headers too.
    pub(crate) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::builder().uri(format!("http://{}{path}", self.address));
        if let Some(token) = self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let (head, body) = self.inner.request(request).await.unwrap().into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer {
            code: head.status,
            headers: head.headers,
            body: serde_json::from_slice(&bytes).unwrap(),
        }
    }

    /// A GET that accepts this media type.
    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.get_with(path, &[("accept", accept)]).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, "application/json", body.to_string().into())
            .await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, "application/json", body.to_string().into())
            .await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Answer {
        self.send("PATCH", path, "application/merge-patch+json", body.to_string().into())
            .await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, "", Bytes::new()).await
    }

    /// With options.
    pub(crate) async fn delete_with(&self, path: &str, options: &Value) -> Answer {
        self.send("DELETE", path, "application/json", options.to_string().into())
            .await
    }
}
