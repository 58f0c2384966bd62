//! The ServiceAccount `default` of each namespace.

use std::sync::Arc;

use super::{NAMESPACES, is_active, made};
use crate::api::Client;
use crate::controllers::failure::Failure;
use crate::controllers::queue::Done;
use crate::controllers::runtime::{Change, Controller};
use crate::resources::{self, ResourceRef};
use crate::store::View;
use crate::tree::json;

const ACCOUNTS: &str = "serviceaccounts";
const NAME: &str = "default";

/// Makes the ServiceAccount that Pods have which name none, in every namespace; again when it is deleted.
pub(in crate::controllers) struct DefaultAccounts {
    client: Client,
    accounts: ResourceRef,
}

impl DefaultAccounts {
    /// `None` if there is no such kind.
    pub(in crate::controllers) fn new(client: Client) -> Option<Self> {
        let accounts = resources::stored(ACCOUNTS)?.into();
        Some(Self { client, accounts })
    }
}

impl Controller for DefaultAccounts {
    fn resource(&self) -> &'static str {
        NAMESPACES
    }

    fn watches(&self) -> &'static [&'static str] {
        &[ACCOUNTS]
    }

    fn concerned(&self, change: &Change<'_>, _: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        let is_ours = change.is_gone && change.object.name() == NAME;
        Ok(change
            .object
            .namespace()
            .filter(|_| is_ours)
            .map(Arc::from)
            .into_iter()
            .collect())
    }

    async fn look(&self, namespace: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let key = self.accounts.key(Some(namespace), NAME);
        if is_active(&view, namespace)? && view.get(ACCOUNTS, &key)?.is_none() {
            let account = json!({"metadata": {"name": NAME, "namespace": namespace}});
            made(self.client.create(&self.accounts, Some(namespace), account).await)?;
        }
        Ok(Done::Settled)
    }
}
