//! The identity behind a request.

use std::collections::BTreeMap;

/// The group of everybody whose credentials were checked.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of everybody without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// What names of service accounts begin with: `system:serviceaccount:NAMESPACE:NAME`.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Who a request comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// Name, e.g. `alice`, `system:anonymous`.
    pub name: String,
    /// Stable id, may be empty.
    pub uid: String,
    /// Groups, `system:authenticated` included.
    pub groups: Vec<String>,
    /// What else is known of the caller: lower-case keys, e.g. `authentication.kubernetes.io/pod-name`.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A caller without credentials.
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.into(),
            groups: vec![UNAUTHENTICATED.into()],
            ..Self::default()
        }
    }

    /// A caller whose credentials were checked; adds the group of all such callers.
    pub fn authenticated(name: impl Into<String>, uid: impl Into<String>, mut groups: Vec<String>) -> Self {
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.into());
        }
        Self {
            name: name.into(),
            uid: uid.into(),
            groups,
            ..Self::default()
        }
    }

    /// A service account, with the groups that it is in for being one.
    pub fn service_account(namespace: &str, name: &str, uid: impl Into<String>) -> Self {
        let groups = Self::service_account_groups(namespace);
        Self::authenticated(format!("{SERVICE_ACCOUNT}{namespace}:{name}"), uid, groups)
    }

    /// The groups of service accounts of a namespace.
    pub fn service_account_groups(namespace: &str) -> Vec<String> {
        vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ]
    }

    /// Namespace and name of the service account that a user's name stands for.
    pub fn service_account_of(name: &str) -> Option<(&str, &str)> {
        let (namespace, name) = name.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
        (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
    }

    /// This user as one that somebody else is taken for: with the groups that it is in for what it is.
    #[must_use]
    pub fn impersonated(mut self) -> Self {
        if self.groups.is_empty()
            && let Some((namespace, _)) = Self::service_account_of(&self.name)
        {
            self.groups = Self::service_account_groups(namespace);
        }
        self.known_or_not()
    }

    /// This user in the group of all that are known, or in that of those who are not: never in both by our doing.
    #[must_use]
    pub fn known_or_not(mut self) -> Self {
        let own = if self.name == ANONYMOUS {
            UNAUTHENTICATED
        } else {
            AUTHENTICATED
        };
        if !self.groups.iter().any(|group| group == own || group == UNAUTHENTICATED) {
            self.groups.push(own.to_owned());
        }
        self
    }

    /// Whether credentials were shown.
    pub fn is_anonymous(&self) -> bool {
        self.groups.iter().any(|group| group == UNAUTHENTICATED)
    }
}
