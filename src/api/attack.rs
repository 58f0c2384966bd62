//! Ways in for tests that attack what otherwise only a socket leads to (`fuzz/`). No part of the interface.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{self, Crowd, Limits};
use super::path::{self, Route};
use super::peer::Peer;
use super::read::{Compress, Notice, Position, Reader, field_selector, label_selector};
use super::{Api, Stopper, bootstrap};
use crate::admission::plugins::Plugins;
use crate::auth::{Authenticator, AuthenticatorConfig, Presented, User};
use crate::resources::custom::Registry;
use crate::resources::{Resource, ResourceRef};
use crate::store::{Requirement, Store};

/// The secret that authenticates continue tokens here.
const CONTINUE_KEY: [u8; 32] = [7; 32];
/// Of both ends.
const ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 1);

/// An API without listeners. Lives as long as it serves.
#[derive(Debug)]
pub struct Served {
    api: Arc<Api>,
    limits: Limits,
    stopper: Stopper,
}

impl Served {
    /// Serves `store`.
    ///
    /// # Errors
    /// When a stored Service cannot be read.
    pub fn new(store: Arc<Store>, limits: Limits) -> Result<Self, String> {
        let (stopper, stopping) = Stopper::new();
        let authenticator = Authenticator::new(store.clone(), AuthenticatorConfig::default());
        let reader = Reader {
            store,
            stopping,
            continue_key: CONTINUE_KEY,
            compress: Compress::Always,
            notice: Notice::default(),
        };
        let api = Arc::new(Api::new(
            reader,
            authenticator,
            limits.clone(),
            None,
            Arc::default(),
            Plugins::without_accounts(),
            None,
        )?);
        Ok(Self { api, limits, stopper })
    }

    /// Answers what comes over `stream`, HTTP/1.1 or HTTP/2, until it ends. `user` is who a client certificate stands for;
    /// `None` for a client without one.
    pub async fn connection<S>(&self, stream: S, user: Option<User>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let peer = Arc::new(Peer::new(ADDRESS.into(), user.map(Presented::of)));
        let crowd = Crowd::new(self.limits.connections);
        let builder = connection::builder(&self.limits, &crowd);
        connection::serve(stream, builder, peer, &self.api, &crowd).await;
    }

    /// Says that the server ends.
    pub fn stop(&self) {
        self.stopper.stop();
    }
}

/// Writes the objects that every server has.
///
/// # Errors
/// When the store does not take them.
pub async fn fill(store: &Arc<Store>) -> Result<(), String> {
    bootstrap::run(store, ADDRESS.into())
        .await
        .map_err(|error| error.to_string())
}

/// The requirements of a label selector.
///
/// # Errors
/// The message of a 400.
pub fn labels(selector: &str) -> Result<Vec<Requirement>, String> {
    label_selector(selector)
}

/// The requirements of a field selector on `resource`.
///
/// # Errors
/// The message of a 400.
pub fn fields(selector: &str, resource: &Resource) -> Result<Vec<Requirement>, String> {
    field_selector(selector, resource)
}

/// A continue token of the storage resource: a list at `revision` goes on behind the key `after`.
pub fn token(resource: &str, revision: Option<u64>, after: &str) -> String {
    let after = after.to_owned();
    Position { revision, after }.to_token(&CONTINUE_KEY, resource)
}

/// What [`token`] was made of; `None` for everything that it did not make.
pub fn token_position(resource: &str, token: &str) -> Option<(Option<u64>, String)> {
    let position = Position::from_token(token, &CONTINUE_KEY, resource)?;
    Some((position.revision, position.after))
}

/// What a path names: a resource with its namespace, name and subresource. `None` for every other path.
pub fn path(path: &str) -> Option<(ResourceRef, [Option<String>; 3])> {
    match path::route(&Registry::default(), path) {
        Route::Resource(target) => {
            let subresource = target.subresource.map(|subresource| subresource.name.to_owned());
            Some((target.resource, [target.namespace, target.name, subresource]))
        }
        _ => None,
    }
}
