//! Which plugins are on. (kube-apiserver's flags `--enable-admission-plugins` and `--disable-admission-plugins`.)

macro_rules! plugins {
    ($($name:ident $on:literal),+ $(,)?) => {
        /// A plugin of kube-apiserver that this server has.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(in crate::admission) enum Name {
            $(#[doc = concat!("`", stringify!($name), "`")] $name,)+
        }

        /// Names, and whether they are on by default.
        const ALL: &[(&str, Name, bool)] = &[$((stringify!($name), Name::$name, $on),)+];
    };
}

plugins! {
    CertificateApproval true,
    CertificateSigning true,
    CertificateSubjectRestriction true,
    DefaultIngressClass true,
    DefaultStorageClass true,
    LimitRanger true,
    MutatingAdmissionPolicy true,
    MutatingAdmissionWebhook true,
    // kube-apiserver's default is off, but every cluster that kubeadm makes turns it on.
    NodeRestriction true,
    OwnerReferencesPermissionEnforcement false,
    PersistentVolumeClaimResize true,
    PodSecurity true,
    PodTopologyLabels true,
    Priority true,
    ResourceQuota true,
    RuntimeClass true,
    ServiceAccount true,
    ValidatingAdmissionPolicy true,
    ValidatingAdmissionWebhook true,
}

/// Plugins that are always on here: they are part of what the server makes of an object.
const ALWAYS: &[&str] = &[
    "ClusterTrustBundleAttest",
    "DefaultTolerationSeconds",
    "NamespaceLifecycle",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
];

/// The plugins that are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plugins {
    on: u32,
}

impl Default for Plugins {
    fn default() -> Self {
        let on = ALL.iter().filter(|(.., on)| *on);
        Self {
            on: on.fold(0, |bits, (_, name, _)| bits | bit(*name)),
        }
    }
}

const fn bit(name: Name) -> u32 {
    1 << name as u32
}

impl Plugins {
    /// Those that are on by default, with some turned on and others off.
    ///
    /// # Errors
    /// Why not: an unknown name, one that is in both, or one that cannot be turned off.
    pub fn new(enable: &[String], disable: &[String]) -> Result<Self, String> {
        let mut plugins = Self::default();
        for (list, flag) in [
            (enable, "enable-admission-plugins"),
            (disable, "disable-admission-plugins"),
        ] {
            for name in list {
                let found = ALL.iter().find(|(known, ..)| known == name);
                match found {
                    Some((_, name, _)) if flag.starts_with("enable") => plugins.on |= bit(*name),
                    Some((_, name, _)) => plugins.on &= !bit(*name),
                    None if ALWAYS.contains(&name.as_str()) && flag.starts_with("enable") => {}
                    None if ALWAYS.contains(&name.as_str()) => {
                        return Err(format!("{flag} plugin {name:?} cannot be turned off"));
                    }
                    None => return Err(format!("{flag} plugin {name:?} is unknown")),
                }
            }
        }
        match enable.iter().find(|name| disable.contains(name)) {
            Some(name) => Err(format!(
                "[{name}] in enable-admission-plugins and disable-admission-plugins overlapped"
            )),
            None => Ok(plugins),
        }
    }

    /// Those that are on by default, but for the one that asks for ServiceAccounts: for servers in which nobody makes any.
    #[must_use]
    pub fn without_accounts() -> Self {
        let plugins = Self::default();
        Self {
            on: plugins.on & !bit(Name::ServiceAccount),
        }
    }

    pub(in crate::admission) fn has(self, name: Name) -> bool {
        self.on & bit(name) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(enable: &[&str], disable: &[&str]) -> Result<Plugins, String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Plugins::new(&owned(enable), &owned(disable))
    }

    #[test]
    fn plugins_are_turned_on_and_off_by_name() {
        let plugins = new(&["OwnerReferencesPermissionEnforcement"], &["ServiceAccount"]).unwrap();
        assert!(plugins.has(Name::OwnerReferencesPermissionEnforcement));
        assert!(!plugins.has(Name::ServiceAccount));
        assert!(plugins.has(Name::Priority));
        assert_eq!(new(&["NamespaceLifecycle"], &[]), Ok(Plugins::default()));
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        let unknown = "enable-admission-plugins plugin \"Quota\" is unknown";
        assert_eq!(new(&["Quota"], &[]), Err(unknown.to_owned()));
        let overlap = "[Priority] in enable-admission-plugins and disable-admission-plugins overlapped";
        assert_eq!(new(&["Priority"], &["Priority"]), Err(overlap.to_owned()));
        assert!(new(&[], &["NamespaceLifecycle"]).is_err());
    }
}
