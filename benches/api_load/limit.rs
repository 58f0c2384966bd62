//! The limit: a bare hyper server that answers every request with a constant body.
//!
//! It has the transport of the server that it is compared with (same TLS library and settings, same HTTP library) and
//! nothing else: no routing, no authentication, no headers but the body's length.

use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use flatkube::api::body::{Body, BodyError, Response};
use http_body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
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
        async move { Ok::<_, Infallible>(answer(&shared, request.uri())) }
    });
    // The client closes its connection when a scenario ends.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

fn answer(shared: &Shared, uri: &http::Uri) -> Response {
    if uri.query().is_some_and(|query| query.starts_with("watch")) {
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
    let body = shared.body.lock().expect("no panic");
    Response::new(match body.as_slice() {
        [one] => Body::from(one.clone()),
        many => Body::parts(many.to_vec()),
    })
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
