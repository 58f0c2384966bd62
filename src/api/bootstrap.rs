//! Objects that every server has: written at start when they are missing, or, for the server's own address, when it changed.

mod reconcile;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use super::server::StartError;
use crate::auth::{FRONT_PROXY_NAME, Pki};
use crate::resources::{self, Resource};
use crate::store::{Change, Object, Precondition, Store, Write, WriteError};
use crate::tree::{Value, json};

/// Writes what is missing. `address` is where the server listens.
///
/// # Errors
/// When an object cannot be written.
pub(super) async fn run(store: &Arc<Store>, address: SocketAddr) -> Result<(), StartError> {
    let now_s = jiff::Timestamp::now().as_second();
    let mut writes = Vec::new();
    for (resource, object) in resources::bootstrap(now_s) {
        let key = key_of(resource, &object);
        if stored(store, resource, &key)?.is_none() {
            writes.push(write(resource, key, Precondition::Absent, &object)?);
        }
    }
    for (resource, object) in resources::bootstrap_rbac(now_s) {
        let key = key_of(resource, &object);
        match stored(store, resource, &key)? {
            None => writes.push(write(resource, key, Precondition::Absent, &object)?),
            Some(present) => {
                if let Some(mended) = reconcile::mended(&object, parsed(&present)?) {
                    writes.push(write(
                        resource,
                        key,
                        Precondition::Revision(present.revision()),
                        &mended,
                    )?);
                }
            }
        }
    }
    if let Some(advertised) = advertised(address.ip()) {
        for (resource, mut object) in resources::own_endpoints(now_s, advertised, address.port()) {
            let key = key_of(resource, &object);
            let precondition = match stored(store, resource, &key)? {
                None => Precondition::Absent,
                Some(present) => {
                    let old = parsed(&present)?;
                    if ["subsets", "endpoints", "ports"]
                        .iter()
                        .all(|part| old[*part] == object[*part])
                    {
                        continue;
                    }
                    for kept in ["uid", "creationTimestamp"] {
                        object["metadata"][kept] = old["metadata"][kept].clone();
                    }
                    Precondition::Revision(present.revision())
                }
            };
            writes.push(write(resource, key, precondition, &object)?);
        }
    }
    // All at once: they share the log's first sync.
    let writes: Vec<_> = writes
        .into_iter()
        .map(|write| {
            let store = store.clone();
            tokio::spawn(async move { store.write(write).await })
        })
        .collect();
    for write in writes {
        match write.await.map_err(|error| StartError::Bootstrap(error.to_string()))? {
            Ok(_) | Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(StartError::Bootstrap(error.to_string())),
        }
    }
    Ok(())
}

/// Tells aggregated API servers whom to believe: clients with certificates of this server's authority, and this server when it
/// says who asks (the ConfigMap `kube-system/extension-apiserver-authentication`).
///
/// # Errors
/// When the ConfigMap cannot be written.
pub(super) async fn tell_authorities(store: &Arc<Store>, pki: &Pki, client_ca_pem: &str) -> Result<(), StartError> {
    let list = |text: &str| format!("[\"{text}\"]");
    let data = json!({
        "client-ca-file": format!("{}{client_ca_pem}", pki.ca_pem),
        "requestheader-client-ca-file": pki.front_proxy_ca,
        "requestheader-allowed-names": list(FRONT_PROXY_NAME),
        "requestheader-username-headers": list("X-Remote-User"),
        "requestheader-uid-headers": list("X-Remote-Uid"),
        "requestheader-group-headers": list("X-Remote-Group"),
        "requestheader-extra-headers-prefix": list("X-Remote-Extra-"),
    });
    let Some(resource) = resources::find("", "v1", "configmaps") else {
        return Ok(());
    };
    let key = "kube-system/extension-apiserver-authentication";
    // Whoever takes it away wants it gone.
    let Some(present) = stored(store, resource, key)? else {
        return Ok(());
    };
    let mut object = parsed(&present)?;
    if object["data"] == data {
        return Ok(());
    }
    object["data"] = data;
    let write = write(
        resource,
        key.to_owned(),
        Precondition::Revision(present.revision()),
        &object,
    )?;
    match store.write(write).await {
        Ok(_) | Err(WriteError::Conflict { .. }) => Ok(()),
        Err(error) => Err(StartError::Bootstrap(error.to_string())),
    }
}

fn key_of(resource: &Resource, object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str();
    resource.key(text("namespace"), text("name").unwrap_or_default())
}

fn stored(store: &Store, resource: &Resource, key: &str) -> Result<Option<Object>, StartError> {
    let found = store.view().get(&resource.storage, key);
    found.map_err(|damaged| StartError::Store(damaged.into()))
}

fn parsed(present: &Object) -> Result<Value, StartError> {
    let json = present.json().map_err(|damaged| StartError::Store(damaged.into()))?;
    serde_json::from_slice(json).map_err(|error| StartError::Bootstrap(error.to_string()))
}

fn write(resource: &Resource, key: String, precondition: Precondition, object: &Value) -> Result<Write, StartError> {
    let prepared = resources::encode(resource, object).map_err(|error| StartError::Bootstrap(error.to_string()))?;
    Ok(Write {
        resource: Arc::from(&*resource.storage),
        key,
        precondition,
        uid: None,
        change: Change::Put(prepared),
    })
}

/// The address under which Pods find a server that listens on `bind`: that one, or, when it is a loopback address or none in
/// particular, the one that this machine has towards others. `None` without a network.
fn advertised(bind: IpAddr) -> Option<IpAddr> {
    if !bind.is_loopback() && !bind.is_unspecified() {
        return Some(bind);
    }
    // Nothing is sent: a UDP socket that is connected has the address that packets to there would have. The other side is of
    // the range for documentation (RFC 5737).
    let socket = UdpSocket::bind((IpAddr::from([0, 0, 0, 0]), 0)).ok()?;
    socket.connect((IpAddr::from([192, 0, 2, 1]), 9)).ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback() && !own.is_unspecified()).then_some(own)
}
