//! Connecting to a backend, and one request there. Errors are told in the words of Go's network library, which are those that
//! kube-apiserver passes on and people search for.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::location::{Location, Reach, is_proxyable};
use super::{outbound, tls};

/// For a connection to be made, the name of the backend to be found included.
const DIAL: Duration = Duration::from_secs(30);
/// For a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A backend that is gone without a word is noticed after some of these.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Size of the head of a backend's answer, bytes; and of what is read of its body at one go.
const HEAD_MAX: usize = 64 * 1024;

/// A connection to a backend.
pub(super) enum Connection {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

macro_rules! inner {
    ($self:ident, $inner:ident => $call:expr) => {
        match $self.get_mut() {
            Connection::Plain(stream) => {
                let $inner = Pin::new(stream);
                $call
            }
            Connection::Tls(stream) => {
                let $inner = Pin::new(&mut **stream);
                $call
            }
        }
    };
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        inner!(self, inner => inner.poll_read(cx, buf))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        inner!(self, inner => inner.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        inner!(self, inner => inner.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Connection::Plain(stream) => stream.is_write_vectored(),
            Connection::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, inner => inner.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, inner => inner.poll_shutdown(cx))
    }
}

/// Why an address may not be connected to.
pub(super) const NOT_ALLOWED: &str = "address not allowed";

/// Connects.
///
/// # Errors
/// A sentence that says what failed.
pub(super) async fn connect(location: &Location) -> Result<Connection, String> {
    let addresses = timeout(DIAL, addresses(location))
        .await
        .map_err(|_| format!("dial tcp: lookup {}: i/o timeout", location.host))??;
    let mut failed = String::new();
    for address in addresses {
        match timeout(DIAL, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return secure(stream, location).await,
            Ok(Err(error)) => failed = format!("dial tcp {address}: {}", cause(&error)),
            Err(_) => failed = format!("dial tcp {address}: i/o timeout"),
        }
    }
    Err(failed)
}

/// The addresses of a location that may be connected to. What was checked is what is connected to: the name is not looked
/// up again.
async fn addresses(location: &Location) -> Result<Vec<SocketAddr>, String> {
    let found: Vec<SocketAddr> = if let Ok(address) = location.host.parse::<IpAddr>() {
        vec![SocketAddr::new(address, location.port)]
    } else {
        let found = tokio::net::lookup_host((location.host.as_str(), location.port)).await;
        let found = found.map_err(|_| format!("dial tcp: lookup {}: no such host", location.host))?;
        // One name has no thousands of addresses.
        found.take(16).collect()
    };
    if found.is_empty() {
        return Err(format!("dial tcp: lookup {}: no such host", location.host));
    }
    if location.reach == Reach::Proxyable && !found.iter().all(|address| is_proxyable(address.ip())) {
        return Err(NOT_ALLOWED.into());
    }
    if !found.iter().all(|address| outbound::allows(address.ip())) {
        return Err(NOT_ALLOWED.into());
    }
    Ok(found)
}

async fn secure(stream: TcpStream, location: &Location) -> Result<Connection, String> {
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let _ = rustix::net::sockopt::set_tcp_keepidle(&stream, KEEPALIVE);
    let _ = rustix::net::sockopt::set_tcp_keepintvl(&stream, KEEPALIVE);
    let Some(tls) = &location.tls else {
        return Ok(Connection::Plain(stream));
    };
    let name = ServerName::try_from(tls.name.clone()).map_err(|_| format!("tls: {:?} is no name", tls.name))?;
    let connector = TlsConnector::from(tls.config.clone());
    match timeout(HANDSHAKE, connector.connect(name, stream)).await {
        Ok(Ok(stream)) => Ok(Connection::Tls(Box::new(stream))),
        Ok(Err(error)) => Err(tls::told(&error)),
        Err(_) => Err("net/http: TLS handshake timeout".into()),
    }
}

fn cause(error: &io::Error) -> String {
    let text = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::CONNREFUSED) => "connection refused",
        Some(Errno::HOSTUNREACH) => "no route to host",
        Some(Errno::NETUNREACH) => "network is unreachable",
        Some(Errno::CONNRESET) => "connection reset by peer",
        Some(Errno::TIMEDOUT) => "connection timed out",
        Some(Errno::INVAL) => "invalid argument",
        _ => return error.to_string(),
    };
    format!("connect: {text}")
}

/// A body as a whole, of `max` bytes at most.
pub(super) async fn whole(body: Incoming, max: usize) -> Result<Bytes, String> {
    let collected = Limited::new(body, max).collect().await;
    let collected = collected.map_err(|error| {
        if error.is::<LengthLimitError>() {
            format!("the answer is larger than {max} bytes")
        } else {
            error.to_string()
        }
    })?;
    Ok(collected.to_bytes())
}

/// Sends one request on a connection of its own; upgrades are to be had of the answer.
///
/// # Errors
/// A sentence that says what failed.
pub(super) async fn send<B>(
    connection: Connection,
    request: http::Request<B>,
) -> Result<http::Response<Incoming>, String>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(HEAD_MAX)
        .handshake(TokioIo::new(connection))
        .await
        .map_err(|error| told(&error))?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to a backend ended");
        }
    });
    sender.send_request(request).await.map_err(|error| told(&error))
}

/// What a broken exchange is called.
fn told(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_closed() {
        return "EOF".into();
    }
    let source = std::error::Error::source(error).map(ToString::to_string);
    source.unwrap_or_else(|| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(host: &str, port: u16, reach: Reach) -> Location {
        Location {
            tls: None,
            host: host.into(),
            port,
            reach,
            path: String::new(),
            query: String::new(),
        }
    }

    async fn failed(location: &Location) -> String {
        connect(location).await.err().expect("there is nobody")
    }

    #[tokio::test]
    async fn a_refused_connection_is_told_as_go_tells_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let expected = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
        assert_eq!(failed(&location("127.0.0.1", port, Reach::Any)).await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_backend_that_says_nothing_is_not_waited_for_for_long() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let trust = tls::Trust::new(None);
        let silent = Location {
            tls: Some(super::super::Tls {
                config: trust.config(None, None).unwrap(),
                name: "127.0.0.1".into(),
            }),
            ..location("127.0.0.1", port, Reach::Any)
        };
        let begun = tokio::time::Instant::now();
        assert_eq!(failed(&silent).await, "net/http: TLS handshake timeout");
        assert_eq!(begun.elapsed(), HANDSHAKE);
        drop(listener);
    }

    #[tokio::test]
    async fn names_and_addresses_of_this_machine_are_not_proxied_to() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in [
            "127.0.0.1",
            "localhost",
            "0.0.0.0",
            "::ffff:127.0.0.1",
            "169.254.169.254",
        ] {
            assert_eq!(
                failed(&location(host, port, Reach::Proxyable)).await,
                NOT_ALLOWED,
                "{host}"
            );
        }
        assert!(connect(&location("127.0.0.1", port, Reach::Any)).await.is_ok());
    }
}
