//! Whether a token of a service account is good: what it claims, held against the objects that are there now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use serde::Deserialize;
use subtle::ConstantTimeEq as _;

use super::User;
use super::issuer::{Bound, Claims, Issuer, LEEWAY_S, LegacyClaims, Named, Proven, digest_of};
use super::legacy_uses::LegacyUses;
use super::verified::Verified;
use crate::store::{Object, View};

/// Where a token's own name stands in a user's extras.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The label of a Secret whose token is no longer good.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// Tokens of service accounts: proves each once, and looks at each use whether its objects are still there.
#[derive(Debug)]
pub(super) struct ServiceAccounts {
    pub(super) issuer: Arc<Issuer>,
    verified: Verified<Account>,
    pub(super) uses: Arc<LegacyUses>,
}

/// A token that was proven.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) user: Arc<User>,
    pub(super) audiences: Vec<String>,
    /// From when to when, Unix seconds.
    begins_s: i64,
    ends_s: i64,
    /// What must be there.
    objects: Vec<Bond>,
    /// The revision of the store at which it was there.
    seen: AtomicU64,
    /// The Secret that a token lies in, by its key.
    holder: Option<String>,
    /// The day at which the Secret was told last that it is used: days of Unix time.
    noted: AtomicI64,
}

/// An object that a token hangs on.
#[derive(Debug)]
struct Bond {
    kind: BondKind,
    key: String,
    uid: String,
    /// Of a token that lies in a Secret: what the Secret must hold.
    token: Option<[u8; 32]>,
    /// The revision of the object that was looked at last.
    seen: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BondKind {
    ServiceAccount,
    Pod,
    Secret,
    Node,
}

impl BondKind {
    fn storage(self) -> &'static str {
        match self {
            Self::ServiceAccount => "serviceaccounts",
            Self::Pod => "pods",
            Self::Secret => "secrets",
            Self::Node => "nodes",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::ServiceAccount => "service account",
            Self::Pod => "pod",
            Self::Secret => "secret",
            Self::Node => "node",
        }
    }
}

impl ServiceAccounts {
    pub(super) fn new(issuer: Arc<Issuer>) -> Self {
        Self {
            issuer,
            verified: Verified::default(),
            uses: Arc::default(),
        }
    }

    /// Whom a token stands for in `view`; `None` for a token that is none of ours. `digest` is the token's. The first time
    /// the proof of a signature, then a comparison if nothing was written since, else a lookup for each object.
    ///
    /// # Errors
    /// Why it is not believed.
    pub(super) fn account(
        &self,
        view: &View,
        now_s: i64,
        token: &str,
        digest: [u8; 32],
    ) -> Option<Result<Arc<Account>, String>> {
        if let Some(account) = self.verified.get(&digest) {
            return Some(match account.check(view, now_s) {
                Ok(()) => {
                    account.note_use(now_s, &self.uses);
                    Ok(account)
                }
                Err(why) => {
                    self.verified.remove(&digest);
                    Err(why)
                }
            });
        }
        let account = self.issuer.prove(token)?.and_then(|proven| {
            let account = match proven {
                Proven::Bound(claims) => Account::of_claims(&claims),
                Proven::Legacy(claims) => Account::of_legacy(&claims, digest),
            }?;
            account.check(view, now_s).map(|()| Arc::new(account))
        });
        if let Ok(account) = &account {
            account.note_use(now_s, &self.uses);
            self.verified.insert(digest, account.clone());
        }
        Some(account)
    }
}

impl Account {
    fn of_claims(claims: &Claims) -> Result<Self, String> {
        let Bound {
            namespace,
            node,
            pod,
            secret,
            serviceaccount,
            ..
        } = &claims.kubernetes;
        if namespace.is_empty() || serviceaccount.name.is_empty() || serviceaccount.uid.is_empty() {
            return Err("token could not be validated due to missing private claim".into());
        }
        let mut user = User::service_account(namespace, &serviceaccount.name, serviceaccount.uid.clone());
        if claims.sub != user.name {
            return Err("token subject does not match its private claim".into());
        }
        let mut objects = vec![Bond::new(BondKind::ServiceAccount, Some(namespace), serviceaccount)];
        let mut extra = BTreeMap::new();
        let mut tell = |key: &str, value: &str| {
            if !value.is_empty() {
                let key = format!("authentication.kubernetes.io/{key}");
                extra.insert(key, vec![value.to_owned()]);
            }
        };
        if let Some(secret) = secret {
            objects.push(Bond::new(BondKind::Secret, Some(namespace), secret));
        }
        if let Some(pod) = pod {
            objects.push(Bond::new(BondKind::Pod, Some(namespace), pod));
            tell("pod-name", &pod.name);
            tell("pod-uid", &pod.uid);
        }
        if let Some(node) = node {
            // The node of a Pod is told; the Pod alone decides.
            if pod.is_none() {
                objects.push(Bond::new(BondKind::Node, None, node));
            }
            tell("node-name", &node.name);
            tell("node-uid", &node.uid);
        }
        if !claims.jti.is_empty() {
            extra.insert(CREDENTIAL_ID.into(), vec![format!("JTI={}", claims.jti)]);
        }
        user.extra = extra;
        Ok(Self {
            user: Arc::new(user),
            audiences: claims.aud.clone(),
            begins_s: claims.nbf,
            ends_s: claims.exp,
            objects,
            seen: AtomicU64::new(0),
            holder: None,
            noted: AtomicI64::new(0),
        })
    }

    fn of_legacy(claims: &LegacyClaims, digest: [u8; 32]) -> Result<Self, String> {
        let account = Named {
            name: claims.name.clone(),
            uid: claims.uid.clone(),
        };
        let whole = [&claims.namespace, &account.name, &account.uid, &claims.secret];
        if whole.iter().any(|text| text.is_empty()) {
            return Err("token could not be validated due to missing private claim".into());
        }
        let secret = Named {
            name: claims.secret.clone(),
            uid: String::new(),
        };
        let mut holder = Bond::new(BondKind::Secret, Some(&claims.namespace), &secret);
        holder.token = Some(digest);
        let objects = vec![
            Bond::new(BondKind::ServiceAccount, Some(&claims.namespace), &account),
            holder,
        ];
        Ok(Self {
            user: Arc::new(User::service_account(&claims.namespace, &account.name, account.uid)),
            // Such a token knows of no audiences: it is for this server.
            audiences: Vec::new(),
            begins_s: 0,
            ends_s: i64::MAX - LEEWAY_S,
            objects,
            seen: AtomicU64::new(0),
            holder: Some(format!("{}/{}", claims.namespace, claims.secret)),
            noted: AtomicI64::new(0),
        })
    }

    /// Lets the Secret that the token lies in say once a day that it is used. Costs a comparison else.
    fn note_use(&self, now_s: i64, uses: &LegacyUses) {
        let Some(holder) = &self.holder else { return };
        let today = now_s.div_euclid(24 * 3600);
        if self.noted.load(Ordering::Relaxed) != today && uses.note(holder) {
            self.noted.store(today, Ordering::Relaxed);
        }
    }

    /// Whether the token is good now.
    fn check(&self, view: &View, now_s: i64) -> Result<(), String> {
        if now_s > self.ends_s + LEEWAY_S {
            return Err("service account token has expired".into());
        }
        if now_s < self.begins_s - LEEWAY_S {
            return Err("service account token is not valid yet".into());
        }
        if self.seen.load(Ordering::Relaxed) == view.revision() && view.revision() > 0 {
            return Ok(());
        }
        let mut is_ending = false;
        for object in &self.objects {
            is_ending |= object.check(view, now_s)?;
        }
        // Time alone ends what is ending.
        if !is_ending {
            self.seen.store(view.revision(), Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Bond {
    fn new(kind: BondKind, namespace: Option<&str>, named: &Named) -> Self {
        Self {
            kind,
            key: namespace.map_or_else(|| named.name.clone(), |namespace| format!("{namespace}/{}", named.name)),
            uid: named.uid.clone(),
            token: None,
            seen: AtomicU64::new(0),
        }
    }

    /// Whether the object is there, and not gone for longer than clocks are apart. Gives whether it is ending.
    fn check(&self, view: &View, now_s: i64) -> Result<bool, String> {
        #[derive(Deserialize)]
        struct Metadata {
            #[serde(rename = "deletionTimestamp")]
            deletion: Option<String>,
        }
        let (kind, word) = (self.kind, self.kind.word());
        let is_account = kind == BondKind::ServiceAccount;
        let gone = || {
            let (_, name) = self.key.split_once('/').unwrap_or(("", &self.key));
            if is_account {
                format!("serviceaccounts \"{name}\" not found")
            } else {
                "service account token has been invalidated".into()
            }
        };
        let found = view.get(kind.storage(), &self.key).map_err(|error| error.to_string())?;
        let found = found.ok_or_else(gone)?;
        if found.revision() == self.seen.load(Ordering::Relaxed) {
            return Ok(false);
        }
        if self.token.is_none() {
            let sidecar = found.sidecar().map_err(|error| error.to_string())?;
            if *sidecar.uid != *self.uid {
                let (uid, claimed) = (&*sidecar.uid, &self.uid);
                return Err(if is_account {
                    format!("service account UID ({uid}) does not match claim ({claimed})")
                } else {
                    format!("{word} UID ({uid}) does not match service account {word} ref claim ({claimed})")
                });
            }
        }
        if let Some(token) = &self.token
            && !holds(found.json().map_err(|error| error.to_string())?, token)
        {
            return Err("service account token has been invalidated".into());
        }
        if self.token.is_some() && is_marked(&found)? {
            return Err(format!(
                "the token in secret {} has been marked invalid. Use tokens from the TokenRequest API or manually created \
                 secret-based tokens, or remove the '{INVALID_SINCE}' label from the secret to temporarily allow use of this token",
                self.key
            ));
        }
        let metadata = found.metadata().map_err(|error| error.to_string())?;
        let metadata: Metadata = serde_json::from_slice(metadata).map_err(|error| error.to_string())?;
        let Some(deletion) = metadata.deletion else {
            self.seen.store(found.revision(), Ordering::Relaxed);
            return Ok(false);
        };
        let deleted_s = deletion.parse().map_or(0, jiff::Timestamp::as_second);
        if deleted_s < now_s - LEEWAY_S {
            return Err(if is_account {
                format!("service account {} has been deleted", self.key)
            } else {
                gone()
            });
        }
        Ok(true)
    }
}

/// Whether a Secret says that its token is no longer good.
fn is_marked(secret: &Object) -> Result<bool, String> {
    let sidecar = secret.sidecar().map_err(|error| error.to_string())?;
    Ok(sidecar
        .labels
        .iter()
        .any(|label| label.name == INVALID_SINCE && !label.value.is_empty()))
}

/// Whether a Secret holds the token of this digest.
fn holds(secret: &[u8], token: &[u8; 32]) -> bool {
    use base64::Engine as _;
    #[derive(Deserialize)]
    struct Secret {
        #[serde(default)]
        data: BTreeMap<String, String>,
    }
    let Ok(secret) = serde_json::from_slice::<Secret>(secret) else {
        return false;
    };
    let held = secret.data.get("token").map_or("", String::as_str);
    let Ok(held) = base64::engine::general_purpose::STANDARD.decode(held) else {
        return false;
    };
    std::str::from_utf8(&held).is_ok_and(|held| digest_of(held).ct_eq(token).into())
}
