//! The limit: a bare hyper server that answers every request with a constant body.
//!
//! It has the transport of the server that it is compared with (same TLS library and settings, same HTTP library) and
//! nothing else: no routing, no authentication, no headers but the body's length.

use std::convert::Infallible;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use flatkube::api::body::{Body, BodyError, Response};
use flatkube::store::disk::RealDisk;
use flatkube::store::{ArchiveError, Archiver, Change, Durability, Options, Precondition, Prepared, Store, Write};
use flatkube_format::sidecar::Sidecar;
use http_body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::client::{Target, client_tls};

/// A running limit.
pub(crate) struct Limit {
    pub(crate) target: Target,
    shared: Arc<Shared>,
    _runtime: tokio::runtime::Runtime,
}

struct Shared {
    body: Mutex<Vec<Bytes>>,
    /// When given, this file is read and answered instead.
    file: Mutex<Option<PathBuf>>,
    /// How many events the streaming path (`?watch`) has sent to everyone.
    events: watch::Sender<u64>,
    event: Mutex<Bytes>,
}

impl Limit {
    /// Serves with the certificates of the server whose data directory this is.
    pub(crate) fn start(data_dir: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let shared = Arc::new(Shared {
            body: Mutex::new(Vec::new()),
            file: Mutex::new(None),
            events: watch::channel(0).0,
            event: Mutex::new(Bytes::new()),
        });
        let acceptor = TlsAcceptor::from(server_tls(data_dir));
        let (plain, tls) = runtime.block_on(async {
            let plain = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let tls = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            (plain, tls)
        });
        let target = Target {
            plain: plain.local_addr().expect("an address"),
            tls: tls.local_addr().expect("an address"),
            client_tls: client_tls(data_dir),
        };
        runtime.spawn(accept(plain, None, shared.clone()));
        runtime.spawn(accept(tls, Some(acceptor), shared.clone()));
        Self {
            target,
            shared,
            _runtime: runtime,
        }
    }

    /// What is answered from now on: these slices, one frame each.
    pub(crate) fn set_body(&self, body: Vec<Bytes>) {
        *self.shared.body.lock().expect("no panic") = body;
    }

    /// Answers with what this file holds from now on, read anew each time.
    pub(crate) fn set_file(&self, path: &Path) {
        *self.shared.file.lock().expect("no panic") = Some(path.to_owned());
    }

    /// What one event of the streaming path is from now on.
    pub(crate) fn set_event(&self, event: Bytes) {
        *self.shared.event.lock().expect("no panic") = event;
    }

    /// Sends one event to everyone who asked with `?watch`.
    pub(crate) fn send_event(&self) {
        self.shared.events.send_modify(|count| *count += 1);
    }
}

fn server_tls(data_dir: &Path) -> Arc<rustls::ServerConfig> {
    let pki = data_dir.join("pki");
    let chain = CertificateDer::pem_file_iter(pki.join("server.crt"))
        .expect("a certificate")
        .map(|certificate| certificate.expect("a certificate"))
        .collect();
    let key = PrivateKeyDer::from_pem_file(pki.join("server.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    while let Ok((socket, _)) = listener.accept().await {
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        socket.set_nodelay(true).expect("a socket");
        tokio::spawn(connection(socket, acceptor, shared));
    }
}

async fn connection(socket: TcpStream, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    match acceptor {
        None => serve(socket, Builder::new(TokioExecutor::new()).http1_only(), shared).await,
        Some(acceptor) => {
            let stream = acceptor.accept(socket).await.expect("TLS");
            serve(stream, Builder::new(TokioExecutor::new()).http2_only(), shared).await;
        }
    }
}

async fn serve<S>(stream: S, builder: Builder<TokioExecutor>, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(answer(&shared, &request)) }
    });
    // The client closes its connection when a scenario ends.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

fn answer(shared: &Shared, request: &http::Request<hyper::body::Incoming>) -> Response {
    if request.uri().query().is_some_and(|query| query.starts_with("watch")) {
        let mut events = shared.events.subscribe();
        let sent = *events.borrow_and_update();
        let event = shared.event.lock().expect("no panic").clone();
        let changes = futures_of(events);
        return Response::new(Body::stream(Events {
            changes,
            sent,
            due: sent,
            event,
        }));
    }
    if let Some(path) = shared.file.lock().expect("no panic").as_ref() {
        return Response::new(Body::stream(FromFile::open(path)));
    }
    let mut response = {
        let body = shared.body.lock().expect("no panic");
        Response::new(match body.as_slice() {
            [one] => Body::from(one.clone()),
            many => Body::parts(many.to_vec()),
        })
    };
    // What is answered was compressed before; the client only wants to be told.
    if request.headers().contains_key("accept-encoding") {
        let gzip = http::HeaderValue::from_static("gzip");
        response.headers_mut().insert("content-encoding", gzip);
    }
    response
}

type Changes = Pin<Box<dyn Future<Output = (u64, watch::Receiver<u64>)> + Send>>;

fn futures_of(mut events: watch::Receiver<u64>) -> Changes {
    Box::pin(async move {
        if events.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        let count = *events.borrow_and_update();
        (count, events)
    })
}

struct Events {
    changes: Changes,
    sent: u64,
    due: u64,
    event: Bytes,
}

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while self.sent == self.due {
            match self.changes.as_mut().poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready((due, events)) => {
                    self.due = due;
                    self.changes = futures_of(events);
                }
            }
        }
        self.sent += 1;
        Poll::Ready(Some(Ok(Frame::data(self.event.clone()))))
    }
}

/// A file's bytes, read on blocking threads, one step ahead of what is sent.
struct FromFile {
    next: Option<JoinHandle<Step>>,
}

/// The file, and what was read of it; nothing at its end.
type Step = (File, std::io::Result<Bytes>);

impl FromFile {
    const STEP: usize = 1 << 20;

    fn open(path: &Path) -> Self {
        let path = path.to_owned();
        let first = move || read_on(File::open(path).expect("the limit's file"));
        Self {
            next: Some(tokio::task::spawn_blocking(first)),
        }
    }
}

fn read_on(mut file: File) -> Step {
    let mut bytes = Vec::with_capacity(FromFile::STEP);
    let read = (&mut file).take(FromFile::STEP as u64).read_to_end(&mut bytes);
    (file, read.map(|_| bytes.into()))
}

impl http_body::Body for FromFile {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(next) = &mut self.next else {
            return Poll::Ready(None);
        };
        let (file, bytes) = std::task::ready!(Pin::new(next).poll(cx)).expect("no panic");
        let bytes = bytes.expect("the limit's file can be read");
        if bytes.is_empty() {
            self.next = None;
            return Poll::Ready(None);
        }
        self.next = Some(tokio::task::spawn_blocking(move || read_on(file)));
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

/// Bodies from this size on are answered by the limit from a mapped file, smaller ones from memory.
const MAPPED_LEN_MIN: usize = 256 * 1024;
/// Slices of a mapped file that are sent as one frame.
const SLICE_LEN: usize = 8 << 20;

/// A constant body of the same bytes, in memory when it is small, in a mapped file of its size when it is not.
pub(crate) fn body_like(body: &Bytes) -> Vec<Bytes> {
    if body.len() < MAPPED_LEN_MIN {
        // A copy: the answer's own buffer would keep what else lies in it alive.
        return vec![Bytes::copy_from_slice(body)];
    }
    mapped(body)
}

/// The engine's own maps serve: each slice becomes an object that is shelved, so all of them lie in mapped files that are
/// as long as the body. The files lose their names at once; the maps live as long as the slices.
fn mapped(body: &[u8]) -> Vec<Bytes> {
    const RESOURCE: &str = "limits";
    // Where the revision goes; the body follows.
    const HEAD: &[u8] = br#"{""}"#;
    let folder = tempfile::tempdir_in(crate::dataset::base()).expect("a directory");
    let disk = Arc::new(RealDisk::create(folder.path()).expect("a directory"));
    let options = Options {
        durability: Durability::Os,
        background: false,
        ..Options::default()
    };
    let store = Store::open(disk, options, Arc::new(NoArchiver)).expect("a store");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let key = |number: usize| format!("slice-{number:06}");
    for (number, slice) in body.chunks(SLICE_LEN).enumerate() {
        let sidecar = Sidecar {
            splice: 2,
            metadata_tail: 2,
            ..Sidecar::default()
        };
        let prepared = Prepared {
            json: [HEAD, slice].concat(),
            splice: 2,
            sidecar: sidecar.archive(),
        };
        let write = Write {
            resource: RESOURCE.into(),
            key: key(number),
            precondition: Precondition::Absent,
            uid: None,
            change: Change::Put(prepared),
        };
        runtime.block_on(store.write(write)).expect("a write");
    }
    store.maintain(true);
    let view = store.view();
    let slices = body
        .chunks(SLICE_LEN)
        .enumerate()
        .map(|(number, slice)| {
            let object = view
                .get(RESOURCE, &key(number))
                .expect("intact bytes")
                .expect("an object");
            let stored = object.json_bytes().expect("intact bytes");
            stored.slice(stored.len() - slice.len()..)
        })
        .collect();
    store.close();
    slices
}

/// Slices of bodies have nothing to archive.
struct NoArchiver;

impl Archiver for NoArchiver {
    fn layout(&self, _: &str) -> u32 {
        0
    }

    fn archive(&self, _: &str, _: &str, _: &[u8]) -> Result<Vec<u8>, ArchiveError> {
        unreachable!("the layout does not change")
    }
}
