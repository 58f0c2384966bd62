//! A kubelet as far as an API server sees one: TLS, logs, SPDY and WebSocket. What its containers do is written here.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

#[path = "../../src/api/proxy/websocket.rs"]
#[allow(dead_code, unreachable_pub)]
mod websocket;

/// What it was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: http::HeaderMap,
    /// Common name of the client's certificate.
    pub(crate) client: String,
}

pub(crate) struct Kubelet {
    pub(crate) address: SocketAddr,
    /// Its certificate, as PEM.
    pub(crate) certificate: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Lines that containers whose log is followed have said.
    said: watch::Sender<usize>,
    /// Bytes that its endless log got rid of.
    written: Arc<AtomicUsize>,
    killed: watch::Sender<bool>,
}

/// Asks for certificates and believes all.
#[derive(Debug)]
struct Any(Arc<rustls::crypto::CryptoProvider>);

impl ClientCertVerifier for Any {
    fn client_auth_mandatory(&self) -> bool {
        false
    }
    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        &[]
    }
    fn verify_client_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: rustls::pki_types::UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &rustls::pki_types::CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &rustls::pki_types::CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// TLS of a server with a certificate of its own for `names`; and the certificate as PEM.
pub(crate) fn tls(names: &[&str]) -> (TlsAcceptor, String) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let mut config = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(Arc::new(Any(provider)))
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a pair");
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    (TlsAcceptor::from(Arc::new(config)), made.cert.pem())
}

/// The common name of the certificate that the other side showed.
pub(crate) fn common_name(tls: &rustls::ServerConnection) -> String {
    use x509_parser::prelude::FromDer as _;
    let Some(first) = tls.peer_certificates().and_then(|chain| chain.first()) else {
        return String::new();
    };
    let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(first).expect("a certificate");
    let name = certificate
        .subject()
        .iter_common_name()
        .next()
        .and_then(|name| name.as_str().ok());
    name.unwrap_or("").to_owned()
}

type Body = UnsyncBoxBody<Bytes, io::Error>;

fn full(text: impl Into<Bytes>) -> Body {
    UnsyncBoxBody::new(Full::new(text.into()).map_err(|never| match never {}))
}

fn answer(code: u16, text: impl Into<Bytes>) -> Response<Body> {
    Response::builder().status(code).body(full(text)).expect("an answer")
}

impl Kubelet {
    pub(crate) async fn start() -> Kubelet {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (acceptor, certificate) = tls(&["127.0.0.1"]);
        let kubelet = Kubelet {
            address: listener.local_addr().expect("an address"),
            certificate,
            seen: Arc::default(),
            said: watch::channel(0).0,
            written: Arc::default(),
            killed: watch::channel(false).0,
        };
        let (seen, written) = (kubelet.seen.clone(), kubelet.written.clone());
        let (said, killed) = (kubelet.said.subscribe(), kubelet.killed.subscribe());
        tokio::spawn(async move {
            let mut dead = killed.clone();
            loop {
                let socket = tokio::select! {
                    _ = dead.wait_for(|killed| *killed) => return,
                    accepted = listener.accept() => accepted.expect("a connection").0,
                };
                let (acceptor, seen, said, written) = (acceptor.clone(), seen.clone(), said.clone(), written.clone());
                let mut dead = killed.clone();
                let inner_dead = killed.clone();
                tokio::spawn(async move {
                    let serve = async {
                        let Ok(stream) = acceptor.accept(socket).await else {
                            return;
                        };
                        let client = common_name(stream.get_ref().1);
                        let service = service_fn(move |request: Request<Incoming>| {
                            seen.lock().expect("the list").push(Seen {
                                method: request.method().to_string(),
                                target: request.uri().to_string(),
                                headers: request.headers().clone(),
                                client: client.clone(),
                            });
                            let (said, written, dead) = (said.clone(), written.clone(), inner_dead.clone());
                            async move { Ok::<_, Infallible>(respond(request, said, written, dead)) }
                        });
                        let connection = hyper::server::conn::http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service)
                            .with_upgrades();
                        let _ = connection.await;
                    };
                    tokio::select! {
                        _ = dead.wait_for(|killed| *killed) => {}
                        () = serve => {}
                    }
                });
            }
        });
        kubelet
    }

    /// What it was asked for last.
    pub(crate) fn last(&self) -> Seen {
        self.seen
            .lock()
            .expect("the list")
            .last()
            .expect("it was asked")
            .clone()
    }

    /// The container says one more line.
    pub(crate) fn say(&self) {
        self.said.send_modify(|lines| *lines += 1);
    }

    pub(crate) fn written(&self) -> usize {
        self.written.load(Ordering::Relaxed)
    }

    /// All connections end at once.
    pub(crate) fn kill(&self) {
        self.killed.send_replace(true);
    }
}

fn respond(
    request: Request<Incoming>,
    said: watch::Receiver<usize>,
    written: Arc<AtomicUsize>,
    dead: watch::Receiver<bool>,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or("").to_owned();
    if let Some(container) = path.strip_prefix("/containerLogs/default/p/") {
        return log(container, &query, said, written);
    }
    if path.starts_with("/exec/") || path.starts_with("/attach/") || path.starts_with("/portForward/") {
        return stream(request, &path, &query, dead);
    }
    match path.as_str() {
        "/stats/summary" => answer(200, format!("summary of {query}")),
        "/redirect" => Response::builder()
            .status(302)
            .header("location", "/stats/")
            .body(full(""))
            .expect("an answer"),
        _ => answer(404, "404 page not found\n"),
    }
}

fn log(container: &str, query: &str, said: watch::Receiver<usize>, written: Arc<AtomicUsize>) -> Response<Body> {
    match query {
        "tailLines=400" => {
            return answer(
                400,
                format!("container \"{container}\" in pod \"p\" is waiting to start: ContainerCreating"),
            );
        }
        "tailLines=404" => return answer(404, "the server could not find the requested resource"),
        "tailLines=500" => return answer(500, "the disk is gone"),
        "tailLines=503" => return answer(503, "not now"),
        "tailLines=302" => {
            return Response::builder()
                .status(302)
                .header("location", "https://elsewhere.example/")
                .body(full(""))
                .expect("an answer");
        }
        _ => {}
    }
    if query.contains("follow=true") {
        let lines = async_lines(move |line| {
            let mut said = said.clone();
            async move {
                said.wait_for(|lines| *lines > line).await.ok()?;
                Some(Bytes::from(format!("line {line}\n")))
            }
        });
        return Response::new(lines);
    }
    if query.contains("previous=true") {
        // 1 GiB, as fast as it is taken.
        let lines = async_lines(move |line| {
            let written = written.clone();
            async move {
                written.fetch_add(1 << 16, Ordering::Relaxed);
                (line < 1 << 14).then(|| Bytes::from(vec![b'x'; 1 << 16]))
            }
        });
        return Response::new(lines);
    }
    answer(200, format!("log of {container} with {query}\n"))
}

/// A body of what `line` gives for each number.
fn async_lines<F>(line: impl Fn(usize) -> F + Send + 'static) -> Body
where
    F: Future<Output = Option<Bytes>> + Send + 'static,
{
    let stream = futures_util::stream::unfold((0, line), |(number, line)| async move {
        let bytes = line(number).await?;
        Some((Ok(Frame::data(bytes)), (number + 1, line)))
    });
    UnsyncBoxBody::new(StreamBody::new(stream))
}

fn stream(mut request: Request<Incoming>, path: &str, query: &str, dead: watch::Receiver<bool>) -> Response<Body> {
    let header = |name: &str| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("")
            .to_owned()
    };
    if query.contains("command=refuse") {
        return answer(404, "container not found (\"main\")");
    }
    let upgrade = header("upgrade").to_ascii_lowercase();
    let is_forward = path.starts_with("/portForward/");
    let mut response = Response::builder().status(101).header("connection", "Upgrade");
    let query = query.to_owned();
    let path = path.to_owned();
    if upgrade == "spdy/3.1" {
        let offered = header("x-stream-protocol-version");
        let chosen = if is_forward {
            "portforward.k8s.io"
        } else {
            "v4.channel.k8s.io"
        };
        assert!(
            offered.is_empty()
                || request
                    .headers()
                    .get_all("x-stream-protocol-version")
                    .iter()
                    .any(|it| it.to_str().unwrap().contains(chosen)),
            "{offered}"
        );
        response = response
            .header("upgrade", "SPDY/3.1")
            .header("x-stream-protocol-version", chosen);
    } else if upgrade == "websocket" {
        let protocol = websocket::protocols(request.headers()).next().map(str::to_owned);
        let fields = websocket::handshake(request.headers(), protocol.as_deref()).expect("a handshake");
        let mut answered = response.body(full("")).expect("an answer");
        answered.headers_mut().extend(fields);
        let on = hyper::upgrade::on(&mut request);
        spawn_until(dead, async move {
            if let Ok(upgraded) = on.await {
                let _ = speak_websocket(TokioIo::new(upgraded)).await;
            }
        });
        return answered;
    } else {
        return answer(400, "you must upgrade");
    }
    let on = hyper::upgrade::on(&mut request);
    spawn_until(dead, async move {
        let Ok(upgraded) = on.await else { return };
        let stream = TokioIo::new(upgraded);
        let _ = if path.starts_with("/portForward/") {
            forward_ports(stream).await
        } else {
            speak_spdy(stream, &query).await
        };
    });
    response.body(full("")).expect("an answer")
}

fn spawn_until(mut dead: watch::Receiver<bool>, work: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(async move {
        tokio::select! {
            _ = dead.wait_for(|killed| *killed) => {}
            () = work => {}
        }
    });
}

/// A container over `v5.channel.k8s.io`: what it hears it says again.
async fn speak_websocket<S: AsyncRead + AsyncWrite>(stream: S) -> io::Result<()> {
    let (read, write) = tokio::io::split(stream);
    let mut reader = websocket::Reader::new(read);
    let writer = websocket::Writer::new(write);
    writer.message(&[1], &[]).await?;
    let mut message = Vec::new();
    loop {
        match reader.next().await? {
            None | Some(websocket::Piece::Close) => return writer.shutdown().await,
            Some(websocket::Piece::Ping(payload)) => writer.pong(&payload).await?,
            Some(websocket::Piece::Data(is_first, bytes)) => {
                if is_first {
                    message.clear();
                }
                let start = message.is_empty();
                message.extend_from_slice(&bytes);
                let heard = if start { message.get(1..).unwrap_or(&[]) } else { &bytes };
                match message.first() {
                    Some(0) => writer.message(&[1], heard).await?,
                    Some(255) if message.len() > 1 => {
                        writer.message(&[3], br#"{"metadata":{},"status":"Success"}"#).await?;
                        writer.close(1000).await?;
                    }
                    _ => {}
                }
            }
        }
    }
}

/// A SPDY frame: control kind or 0, flags, stream, what is left of the body.
async fn frame<R: AsyncRead + Unpin>(reader: &mut R) -> io::Result<(u16, u8, u32, Vec<u8>)> {
    let mut head = [0; 8];
    reader.read_exact(&mut head).await?;
    let len = u32::from_be_bytes([0, head[5], head[6], head[7]]);
    let mut body = vec![0; len as usize];
    reader.read_exact(&mut body).await?;
    let word = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().expect("four")) & 0x7fff_ffff;
    if head[0] & 0x80 == 0 {
        return Ok((0, head[4], word(&head), body));
    }
    let kind = u16::from_be_bytes([head[2], head[3]]);
    let stream = if kind == 6 || body.len() < 4 { 0 } else { word(&body) };
    Ok((kind, head[4], stream, body))
}

async fn data<W: AsyncWrite + Unpin>(writer: &mut W, stream: u32, ends: bool, bytes: &[u8]) -> io::Result<()> {
    writer.write_all(&stream.to_be_bytes()).await?;
    writer
        .write_all(&(bytes.len() as u32 | u32::from(ends) << 24).to_be_bytes())
        .await?;
    writer.write_all(bytes).await?;
    writer.flush().await
}

/// Takes a stream. The block of no headers is zlib without compression; only the first has zlib's head.
async fn reply<W: AsyncWrite + Unpin>(writer: &mut W, stream: u32, is_first: bool) -> io::Result<()> {
    let block: &[u8] = &[0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let head: &[u8] = if is_first { &[0x78, 1] } else { &[] };
    let len = 4 + head.len() + block.len();
    let mut bytes = vec![0x80, 3, 0, 2, 0, 0, 0, len as u8];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(block);
    writer.write_all(&bytes).await?;
    writer.flush().await
}

/// A container over `v4.channel.k8s.io`: says what it hears, in the end how much on standard error, and fails with 7 if the
/// command is `fail`; `flood` says 64 MiB. Streams come in the order error, stdin, stdout, stderr, resize.
async fn speak_spdy<S: AsyncRead + AsyncWrite>(stream: S, query: &str) -> io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let has = |name: &str| query.split('&').any(|pair| pair == format!("{name}=1"));
    let tty = has("tty");
    let mut names = vec!["error"];
    names.extend(
        [
            ("stdin", has("input")),
            ("stdout", has("output")),
            ("stderr", has("error") && !tty),
            ("resize", tty),
        ]
        .iter()
        .filter(|(_, is)| *is)
        .map(|(name, _)| *name),
    );
    let mut streams = std::collections::HashMap::new();
    let mut ids = std::collections::HashMap::new();
    while streams.len() < names.len() {
        let (kind, _, stream, _) = frame(&mut reader).await?;
        if kind == 1 {
            let name = names[streams.len()];
            reply(&mut writer, stream, streams.is_empty()).await?;
            streams.insert(stream, name);
            ids.insert(name, stream);
        }
    }
    let mut heard = 0;
    let mut is_input = ids.contains_key("stdin");
    if query.contains("command=flood") {
        for _ in 0..1024 {
            data(&mut writer, ids["stdout"], false, &vec![b'y'; 1 << 16]).await?;
        }
    }
    while is_input {
        let (kind, flags, stream, body) = frame(&mut reader).await?;
        match (kind, streams.get(&stream)) {
            (6, _) => {
                let mut pong = vec![0x80, 3, 0, 6, 0, 0, 0, 4];
                pong.extend_from_slice(&body);
                writer.write_all(&pong).await?;
            }
            (0, Some(&"stdin")) => {
                heard += body.len();
                data(&mut writer, ids["stdout"], false, &body).await?;
                is_input = flags & 1 == 0 && !(tty && body.contains(&4));
            }
            (0, Some(&"resize")) => {
                let text = format!("resized to {}\r\n", String::from_utf8_lossy(&body).trim());
                data(&mut writer, ids["stdout"], false, text.as_bytes()).await?;
            }
            (7, _) => return Ok(()),
            _ => {}
        }
    }
    if let Some(stderr) = ids.get("stderr") {
        data(&mut writer, *stderr, false, format!("{heard} bytes\n").as_bytes()).await?;
        data(&mut writer, *stderr, true, &[]).await?;
    }
    if let Some(stdout) = ids.get("stdout") {
        data(&mut writer, *stdout, false, b"bye\n").await?;
        data(&mut writer, *stdout, true, &[]).await?;
    }
    let status: &[u8] = if query.contains("command=fail") {
        br#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: 7","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#
    } else {
        br#"{"metadata":{},"status":"Success"}"#
    };
    data(&mut writer, ids["error"], false, status).await?;
    data(&mut writer, ids["error"], true, &[]).await?;
    // As a kubelet does, it closes when the client has gone.
    while let Ok((_, _, _, _)) = frame(&mut reader).await {}
    writer.shutdown().await
}

/// Ports that say what they hear in upper case. For each connection an error stream comes first, then one of data.
async fn forward_ports<S: AsyncRead + AsyncWrite>(stream: S) -> io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut count = 0;
    let mut of_data = std::collections::HashMap::new();
    let mut last = 0;
    loop {
        let (kind, flags, stream, body) = frame(&mut reader).await?;
        match kind {
            1 => {
                reply(&mut writer, stream, count == 0).await?;
                if count % 2 == 1 {
                    of_data.insert(stream, last);
                }
                count += 1;
                last = stream;
            }
            6 => {
                let mut pong = vec![0x80, 3, 0, 6, 0, 0, 0, 4];
                pong.extend_from_slice(&body);
                writer.write_all(&pong).await?;
                writer.flush().await?;
            }
            0 => {
                if let Some(error) = of_data.get(&stream).copied() {
                    let ends = flags & 1 == 1;
                    data(&mut writer, stream, ends, &body.to_ascii_uppercase()).await?;
                    if ends {
                        data(&mut writer, error, true, &[]).await?;
                    }
                }
            }
            7 => return writer.shutdown().await,
            _ => {}
        }
    }
}

/// Waits until `met`, for long.
pub(crate) async fn until(what: &str, met: impl AsyncFn() -> bool) {
    let done = AtomicBool::new(false);
    let wait = async {
        while !done.load(Ordering::Relaxed) {
            if met().await {
                done.store(true, Ordering::Relaxed);
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(50), wait)
        .await
        .unwrap_or_else(|_| panic!("{what}"));
}
