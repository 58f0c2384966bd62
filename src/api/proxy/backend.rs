//! Backends of aggregated APIs: the requests of clients that are passed on to them, and this server's own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tokio::time::timeout;

use super::location::{Location, Reach, Tls};
use super::upgrade::{self, Asking};
use super::{Guest, dial, forward, headers};
use crate::api::Api;
use crate::api::aggregation::without_redirect;
use crate::api::body::Response;
use crate::api::fairness::Entrant;
use crate::api::peer::Peer;
use crate::api::status::Status;
use crate::auth::User;

/// For an answer to a request of this server's own.
const ANSWER: Duration = Duration::from_secs(5);
/// Size of such an answer, bytes.
const ANSWER_MAX: usize = 4 * 1024 * 1024;

/// A backend of an aggregated API.
#[derive(Debug)]
pub(in crate::api) struct Backend {
    pub(in crate::api) tls: Tls,
    pub(in crate::api) host: String,
    pub(in crate::api) port: u16,
}

impl Backend {
    fn at(&self, path: &str, query: &str) -> Location {
        Location {
            tls: Some(self.tls.clone()),
            host: self.host.clone(),
            port: self.port,
            // Whoever makes APIServices may point them at this machine.
            reach: Reach::Any,
            path: path.to_owned(),
            query: query.to_owned(),
        }
    }

    /// The whole address of a path.
    pub(in crate::api) fn url(&self, path: &str) -> String {
        self.at(path, "").url()
    }

    /// Asks for a path as this server itself: the code and the body.
    ///
    /// # Errors
    /// A sentence that says what failed. Takes five seconds at most.
    pub(in crate::api) async fn get(&self, path: &str) -> Result<(u16, Bytes), String> {
        let location = self.at(path, "");
        let user = User {
            name: "system:kube-aggregator".into(),
            groups: vec!["system:masters".into()],
            ..User::default()
        };
        let mut request = http::Request::get(path)
            .header(header::HOST, &self.tls.name)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("flatkube/", env!("CARGO_PKG_VERSION")))
            .body(Empty::<Bytes>::new())
            .map_err(|error| error.to_string())?;
        headers::set_identity(request.headers_mut(), &user);
        let asked = async {
            let answer = dial::send(dial::connect(&location).await?, request).await?;
            let code = answer.status().as_u16();
            Ok((code, dial::whole(answer.into_body(), ANSWER_MAX).await?))
        };
        let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
        timeout(ANSWER, asked).await.unwrap_or_else(|_| Err(late.into()))
    }

    /// Passes a request of `user` on.
    ///
    /// # Errors
    /// 429 when the user has too many open, 400 for an upgrade to neither WebSocket nor SPDY; inside, a sentence that says why the backend does not answer.
    pub(in crate::api) async fn answer(
        &self,
        api: &Arc<Api>,
        peer: &Arc<Peer>,
        user: Arc<User>,
        mut head: http::request::Parts,
        body: Incoming,
    ) -> Result<Result<Response, String>, Status> {
        let entrant = Entrant::other(&user);
        let guest = Guest::new(api, peer.address, entrant, "aggregated", Some(user.clone()))?;
        let location = self.at(head.uri.path(), head.uri.query().unwrap_or(""));
        let host = self.tls.name.clone();
        let asking = Asking {
            method: head.method,
            upgrade: head.extensions.remove::<OnUpgrade>(),
            fields: head.headers,
            peer: peer.clone(),
        };
        if asking.is_upgrade() {
            if !asking.is_known() {
                return Err(upgrade::required());
            }
            let answered = upgrade::through(&location, &host, None, asking, guest).await;
            return Ok(answered.map_err(|status| status.message));
        }
        let fields: HeaderMap = match forward::outgoing(asking.fields, false, &guest) {
            Ok(fields) => fields,
            Err(why) => return Ok(Err(why)),
        };
        let answered = forward::forward(&location, asking.method, &host, fields, body, None, guest).await;
        Ok(answered.map(without_redirect))
    }
}
