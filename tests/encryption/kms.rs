//! A plugin of the tests, which speaks KMS v2 over a unix socket, and servers that ask it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::runtime::Runtime;

use crate::process::runtime;
use crate::{Place, assert_hidden, compact, seen, text, wait_until_gone, write};

/// What the plugin has, and how often it was asked for what.
#[derive(Default)]
struct Keys {
    current: String,
    /// By its id, the byte that each byte is mixed with.
    keys: BTreeMap<String, u8>,
    asked: BTreeMap<String, usize>,
}

struct Plugin {
    keys: Arc<Mutex<Keys>>,
    runtime: Option<Runtime>,
}

impl Plugin {
    fn start(socket: &Path) -> Plugin {
        let keys = Arc::new(Mutex::new(Keys::default()));
        let runtime = runtime();
        let _ = std::fs::remove_file(socket);
        let entered = runtime.enter();
        let listener = UnixListener::bind(socket).expect("a socket");
        let served = keys.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let keys = served.clone();
                let service = service_fn(move |request| answer(keys.clone(), request));
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        drop(entered);
        Plugin {
            keys,
            runtime: Some(runtime),
        }
    }

    fn has(&self, keys: &[(&str, u8)], current: &str) {
        let mut state = self.keys.lock().expect("no panic");
        state.keys = keys.iter().map(|(name, byte)| ((*name).to_owned(), *byte)).collect();
        current.clone_into(&mut state.current);
        state.asked.clear();
    }

    fn asked(&self, method: &str) -> usize {
        self.keys
            .lock()
            .expect("no panic")
            .asked
            .get(method)
            .copied()
            .unwrap_or(0)
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

type Body = StreamBody<futures_util::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

async fn answer(keys: Arc<Mutex<Keys>>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    assert_eq!(request.headers()["content-type"], "application/grpc");
    let message = request
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes()
        .slice(5..);
    let told = told(&keys, &method, &message);
    let mut trailers = HeaderMap::new();
    let mut frames = Vec::new();
    match told {
        Ok(message) => {
            let mut frame = BytesMut::new();
            frame.put_u8(0);
            frame.put_u32(message.len() as u32);
            frame.put_slice(&message);
            frames.push(Ok(Frame::data(frame.freeze())));
            trailers.insert("grpc-status", "0".parse().expect("a value"));
        }
        Err(reason) => {
            trailers.insert("grpc-status", "3".parse().expect("a value"));
            trailers.insert("grpc-message", reason.parse().expect("a value"));
        }
    }
    frames.push(Ok(Frame::trailers(trailers)));
    let body = StreamBody::new(futures_util::stream::iter(frames));
    Ok(Response::builder()
        .header("content-type", "application/grpc")
        .body(body)
        .expect("an answer"))
}

fn told(keys: &Mutex<Keys>, method: &str, message: &[u8]) -> Result<Vec<u8>, String> {
    let mut keys = keys.lock().expect("no panic");
    *keys.asked.entry(method.to_owned()).or_default() += 1;
    let fields = fields(message);
    let field = |number: u8| fields.get(&number).cloned().unwrap_or_default();
    let mixed = |bytes: &[u8], key: &str| {
        let byte = keys.keys.get(key).ok_or_else(|| format!("no key {key}"))?;
        Ok::<Vec<u8>, String>(bytes.iter().map(|each| each ^ byte).collect())
    };
    Ok(match method {
        "Status" => encoded(&[b"v2", b"ok", keys.current.as_bytes()]),
        "Encrypt" => encoded(&[&mixed(&field(1), &keys.current)?, keys.current.as_bytes()]),
        "Decrypt" => {
            let key = String::from_utf8(field(3)).map_err(|error| error.to_string())?;
            encoded(&[&mixed(&field(1), &key)?])
        }
        other => return Err(format!("no method {other}")),
    })
}

/// A message of fields 1, 2, … that are shorter than 128 bytes.
fn encoded(fields: &[&[u8]]) -> Vec<u8> {
    let mut message = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        message.extend([(index as u8 + 1) << 3 | 2, field.len() as u8]);
        message.extend_from_slice(field);
    }
    message
}

fn fields(mut message: &[u8]) -> BTreeMap<u8, Vec<u8>> {
    let mut fields = BTreeMap::new();
    while let [tag, len, rest @ ..] = message {
        let (value, rest) = rest.split_at(usize::from(*len));
        fields.insert(tag >> 3, value.to_vec());
        message = rest;
    }
    fields
}

fn provider(socket: &Path) -> Value {
    json!({ "kms": { "apiVersion": "v2", "name": "test", "endpoint": format!("unix://{}", text(socket)), "timeout": "10s" } })
}

fn name_of(key: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, key.as_bytes());
    let digits = u64::from_be_bytes(digest.as_ref()[..8].try_into().unwrap());
    format!("k8s:enc:kms:v2:test:{digits:016x}:")
}

#[test]
fn a_plugin_is_asked_for_seeds_and_its_keys_can_change_and_go() {
    let place = Place::new();
    let runtime = runtime();
    let socket = place.path("kms.sock");
    let plugin = Plugin::start(&socket);
    plugin.has(&[("key-1", 0x55)], "key-1");
    place.configure(&[provider(&socket)]);
    let server = place.encrypted();
    let markers = runtime.block_on(write(&server));
    let before = runtime.block_on(seen(&server));
    assert_eq!(
        [plugin.asked("Encrypt"), plugin.asked("Decrypt")],
        [1, 0],
        "one seed for all writes"
    );
    assert_hidden(&place, "data", &markers);
    assert!(!place.holding("data", &name_of("key-1")).is_empty());
    server.kill();

    plugin.has(&[("key-1", 0x55)], "key-1");
    let server = place.encrypted();
    assert_eq!(runtime.block_on(seen(&server)), before);
    let mut client = runtime.block_on(crate::connect(&server));
    let more = runtime.block_on(client.post(crate::SECRETS, &crate::secret("more", "more-of-it")));
    assert_eq!(more.expect("an answer").status, 201);
    let gone = runtime.block_on(client.delete(&format!("{}/more", crate::SECRETS)));
    assert_eq!(gone.expect("an answer").status, 200);
    assert_eq!(
        [plugin.asked("Encrypt"), plugin.asked("Decrypt")],
        [0, 1],
        "the seed serves on"
    );
    server.kill();

    plugin.has(&[("key-1", 0x55), ("key-2", 0x66)], "key-2");
    let server = place.encrypted();
    wait_until_gone(&place, &server, &name_of("key-1"));
    let data = |seen: &[Value]| seen[4]["data"].clone();
    assert_eq!(data(&runtime.block_on(seen(&server))), data(&before));
    assert!(!place.holding("data", &name_of("key-2")).is_empty());
    assert_hidden(&place, "data", &markers);
    compact(&server);
    assert!(server.end("TERM").status.success());

    plugin.has(&[("key-2", 0x66)], "key-2");
    let server = place.encrypted();
    assert_eq!(data(&runtime.block_on(seen(&server))), data(&before));
    assert!(server.end("TERM").status.success());

    let refusal = || {
        let config = place.path("encryption.yaml");
        let more = ["--encryption-provider-config", text(&config)];
        place.start("data", &more).err().expect("it does not start").log
    };
    plugin.has(&[("key-2", 0x67)], "key-2");
    let log = refusal();
    assert!(log.contains("does not open it: its bytes were changed"), "{log}");
    plugin.has(&[("key-3", 1)], "key-3");
    let log = refusal();
    assert!(
        log.contains("kms test: Decrypt: it refuses: no key key-2 (status 3)"),
        "{log}"
    );
    drop(plugin);
    let log = refusal();
    assert!(log.contains("kms test: Status: its socket"), "{log}");
}
