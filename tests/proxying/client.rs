//! A server with a node and a Pod, and a client of its plain address.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::calls::{TOKEN, write_tokens};
use crate::process::Server;

/// A server on plain HTTP, too.
pub(crate) struct Started {
    pub(crate) server: Server,
    pub(crate) dir: tempfile::TempDir,
}

impl Started {
    pub(crate) fn new(arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let tokens = dir.path().join("tokens.csv");
        write_tokens(&tokens);
        let data = dir.path().join("data");
        let mut all = vec![
            "--data-dir",
            data.to_str().expect("plain"),
            "--durability",
            "os",
            "--http-bind",
            "127.0.0.1:0",
            "--token-auth-file",
            tokens.to_str().expect("plain"),
        ];
        all.extend(arguments);
        let server = Server::start(&all).unwrap_or_else(|ended| panic!("{ended:?}"));
        Started { server, dir }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.http_address()
    }

    /// Sends a request on a connection of its own; the answer's body is still to be read.
    pub(crate) async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address()).await.expect("a connection");
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .expect("HTTP");
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "api.example:6443")
            .header("authorization", format!("Bearer {TOKEN}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).expect("a request");
        sender.send_request(request).await.expect("an answer")
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        Answer::of(self.open(Method::GET, path, &[], Bytes::new()).await).await
    }

    /// In a form.
    pub(crate) async fn get_as(&self, path: &str, form: &str) -> Answer {
        let accept = format!("application/json;as={form};v=v1;g=meta.k8s.io");
        Answer::of(self.open(Method::GET, path, &[("accept", &accept)], Bytes::new()).await).await
    }

    pub(crate) async fn send(&self, method: Method, path: &str, kind: &str, body: &Value) -> Answer {
        let body = body.to_string().into();
        Answer::of(self.open(method, path, &[("content-type", kind)], body).await).await
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) {
        let answer = self.send(Method::POST, path, "application/json", object).await;
        assert_eq!(answer.code, 201, "{}", answer.text());
    }

    pub(crate) async fn merge(&self, path: &str, patch: &Value) {
        let answer = self
            .send(Method::PATCH, path, "application/merge-patch+json", patch)
            .await;
        assert_eq!(answer.code, 200, "{}", answer.text());
    }

    /// A node whose kubelet is at `kubelet`.
    pub(crate) async fn node(&self, name: &str, kubelet: SocketAddr, features: &[&str]) {
        self.create("/api/v1/nodes", &json!({"metadata": {"name": name}})).await;
        let status = json!({"status": {
            "addresses": [{"type": "Hostname", "address": "nowhere.invalid"},
                          {"type": "InternalIP", "address": kubelet.ip().to_string()}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port()}},
            "declaredFeatures": features,
        }});
        self.merge(&format!("/api/v1/nodes/{name}/status"), &status).await;
    }

    /// A running Pod `name` in `default` with one container `main`, on `node`, with the address `ip`.
    pub(crate) async fn pod(&self, name: &str, node: &str, ip: &str) {
        let account = json!({"metadata": {"name": "default"}, "automountServiceAccountToken": false});
        let _ = self
            .send(
                Method::POST,
                "/api/v1/namespaces/default/serviceaccounts",
                "application/json",
                &account,
            )
            .await;
        let spec = json!({"nodeName": node, "containers": [
            {"name": "main", "image": "registry.example/main:1", "ports": [{"containerPort": 8080}]}]});
        let pod = json!({"metadata": {"name": name}, "spec": spec});
        self.create("/api/v1/namespaces/default/pods", &pod).await;
        let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}});
        self.merge(&format!("/api/v1/namespaces/default/pods/{name}/status"), &status)
            .await;
    }

    /// A figure of `/metrics`, summed over its labels.
    pub(crate) async fn figure(&self, name: &str) -> f64 {
        let text = self.get("/metrics").await.text();
        let lines = text
            .lines()
            .filter(|line| line.starts_with(name) && !line.starts_with('#'));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}

/// A whole answer.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) async fn of(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("the whole body").to_bytes();
        Answer {
            code: head.status.as_u16(),
            headers: head.headers,
            body,
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn message(&self) -> String {
        let value: Value = serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no Status: {}", self.text()));
        value["message"].as_str().unwrap_or("").to_owned()
    }
}
