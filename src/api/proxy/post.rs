//! Requests of this server's own that bring something: reviews and conversions, which webhooks answer.

use std::time::Duration;

use bytes::Bytes;
use http::header;
use http_body_util::Full;
use rustls::pki_types::CertificateDer;
use tokio::time::timeout;

use super::location::{Location, Reach, Tls};
use super::{Backends, dial};
use crate::remote;

/// Size of an answer, bytes: more than a patch that replaces the largest object takes.
const ANSWER_MAX: usize = 8 * 1024 * 1024;
/// Of what an answer that is an error says, so much is told on, bytes.
const TOLD_MAX: usize = 2048;

/// A place that something is posted to.
#[derive(Debug, Clone)]
pub(in crate::api) struct Post {
    pub(in crate::api) tls: Tls,
    /// What is connected to: a name or an address, and a port.
    pub(in crate::api) dialled: (String, u16),
    /// The host that the address names, with the port if it does.
    pub(in crate::api) authority: String,
    /// With the query; begins with `/`.
    pub(in crate::api) path: String,
}

impl Post {
    /// Posts JSON and reads the answer, a success.
    ///
    /// # Errors
    /// A sentence that says what failed, in the words of Go's client. Redirects are failures: whoever configures a webhook says
    /// where it is. Takes `within` at most.
    pub(in crate::api) async fn send(self, body: Vec<u8>, within: Duration) -> Result<Bytes, String> {
        let url = format!("https://{}{}", self.authority, self.path);
        let failed = |error: String| format!("Post {url:?}: {error}");
        let sent = timeout(within, self.exchange(body)).await;
        let (code, answer) = sent
            .unwrap_or_else(|_| Err("context deadline exceeded".into()))
            .map_err(failed)?;
        match code {
            200..=299 => Ok(answer),
            _ => Err(refused(
                code,
                &String::from_utf8_lossy(&answer[..answer.len().min(TOLD_MAX)]),
            )),
        }
    }

    async fn exchange(self, body: Vec<u8>) -> Result<(u16, Bytes), String> {
        let request = http::Request::post(&self.path)
            .header(header::HOST, &self.authority)
            .header(header::ACCEPT, "application/json, */*")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())?;
        let location = Location {
            tls: Some(self.tls),
            host: self.dialled.0,
            port: self.dialled.1,
            // Whoever configures webhooks may point them at this machine, though never at this server.
            reach: Reach::Any,
            path: String::new(),
            query: String::new(),
        };
        let answer = dial::send(dial::connect(&location).await?, request).await?;
        let code = answer.status().as_u16();
        Ok((code, dial::whole(answer.into_body(), ANSWER_MAX).await?))
    }
}

/// What Go's client makes of an answer that is no success.
fn refused(code: u16, text: &str) -> String {
    match code {
        400 => text.to_owned(),
        401 => "the server has asked for the client to provide credentials".into(),
        403 => format!("forbidden: {text}"),
        404 => "the server could not find the requested resource".into(),
        405 => "the server does not allow this method on the requested resource".into(),
        413 => "Request entity too large: limit is 3145728".into(),
        429 => "the server has received too many requests and has asked us to try again later".into(),
        503 => "the server is currently unable to handle the request".into(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .into()
        }
        500.. => format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        _ => format!("the server responded with the status code {code} but did not return more information"),
    }
}

impl Backends {
    /// Trust in a webhook by the authorities `roots` (`None`: those that the system knows), under `name`. This server shows it no
    /// certificate.
    ///
    /// # Errors
    /// When none of the authorities can be used.
    pub(in crate::api) fn webhook(&self, roots: Option<&[CertificateDer<'static>]>, name: &str) -> Result<Tls, String> {
        let known;
        let roots = if let Some(roots) = roots {
            roots
        } else {
            known = remote::system_roots();
            &known
        };
        Ok(Tls {
            config: self.trust.config(Some(roots), None)?,
            name: name.to_owned(),
        })
    }
}
