//! The ConfigMap `kube-root-ca.crt` of each namespace: by it Pods know that they speak with this server.

use std::sync::Arc;

use super::{NAMESPACES, is_active, made};
use crate::api::Client;
use crate::controllers::claim::gone_is_fine;
use crate::controllers::failure::Failure;
use crate::controllers::queue::Done;
use crate::controllers::runtime::{Change, Controller};
use crate::resources::{self, ResourceRef};
use crate::store::View;
use crate::tree::{Value, json};

const MAPS: &str = "configmaps";
const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
/// kube-controller-manager's words.
const DESCRIBED: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the \
    internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// Publishes the certificate of the authority that signed the server's own, in every namespace, and mends what was made of it.
pub(in crate::controllers) struct Publisher {
    client: Client,
    maps: ResourceRef,
    data: Value,
}

impl Publisher {
    /// `certificate`: PEM. `None` if there is no such kind.
    pub(in crate::controllers) fn new(client: Client, certificate: &str) -> Option<Self> {
        Some(Self {
            client,
            maps: resources::stored(MAPS)?.into(),
            data: json!({"ca.crt": certificate}),
        })
    }

    /// What is to be stored in place of `map`; `None` when it is as it should be.
    fn mended(&self, map: &Value) -> Option<Value> {
        let is_described = !map["metadata"]["annotations"][DESCRIPTION].is_null();
        if map["data"] == self.data && is_described {
            return None;
        }
        let mut new = map.clone();
        new["data"] = self.data.clone();
        new["metadata"]["annotations"][DESCRIPTION] = DESCRIBED.into();
        Some(new)
    }
}

impl Controller for Publisher {
    fn resource(&self) -> &'static str {
        NAMESPACES
    }

    fn watches(&self) -> &'static [&'static str] {
        &[MAPS]
    }

    fn concerned(&self, change: &Change<'_>, _: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        let namespace = change.object.namespace();
        let ours = namespace.filter(|_| change.object.name() == NAME);
        Ok(ours.map(Arc::from).into_iter().collect())
    }

    async fn look(&self, namespace: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        if !is_active(&view, namespace)? {
            return Ok(Done::Settled);
        }
        let key = self.maps.key(Some(namespace), NAME);
        if let Some(object) = view.get(MAPS, &key)? {
            if self.mended(&self.client.read(&self.maps, &object)?).is_some() {
                let mend = |old: &Value| self.mended(old);
                gone_is_fine(self.client.change(&self.maps, None, &key, mend).await)?;
            }
        } else {
            let map = json!({
                "metadata": {"name": NAME, "namespace": namespace, "annotations": {DESCRIPTION: DESCRIBED}},
                "data": self.data.clone(),
            });
            made(self.client.create(&self.maps, Some(namespace), map).await)?;
        }
        Ok(Done::Settled)
    }
}
