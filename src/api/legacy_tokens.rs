//! Secrets whose tokens are used say when they were last.

use std::sync::Arc;

use super::{Api, Client};
use crate::auth::User;
use crate::auth::authorization::MASTERS;
use crate::resources;

/// The label; its value is a day, UTC.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const SECRETS: &str = "secrets";

/// Labels Secrets until the server stops.
pub(super) async fn run(api: Arc<Api>) {
    let (Some(uses), Some(secrets)) = (api.authenticator.legacy_uses(), resources::stored(SECRETS)) else {
        return;
    };
    let user = User::authenticated("system:apiserver", "", vec![MASTERS.to_owned()]);
    let client = Client::new(api.clone(), user, "kube-apiserver");
    let secrets = secrets.into();
    loop {
        let key = tokio::select! {
            () = api.reader.stopping.stopped() => return,
            key = uses.next() => key,
        };
        let today = jiff::Timestamp::now().strftime("%F").to_string();
        let edit = |old: &crate::tree::Value| {
            let labels = &old["metadata"]["labels"];
            // A day that is not over yet where the other server's clock is ahead stays.
            if labels[LAST_USED].as_str().is_some_and(|day| day >= today.as_str()) {
                return None;
            }
            let mut new = old.clone();
            new["metadata"]["labels"][LAST_USED] = today.as_str().into();
            Some(new)
        };
        if let Err(error) = client.change(&secrets, None, &key, edit).await {
            tracing::warn!(%key, %error, "the use of a token is not noted");
        }
    }
}
