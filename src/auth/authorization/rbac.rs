//! Who has which rules: roles and bindings of the store, compiled into an index by subject.
//!
//! Rules: <https://kubernetes.io/docs/reference/access-authn-authz/rbac/>.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use serde::Deserialize;

use super::{Attributes, Decision, Rule, Verdict, What, Why};
use crate::auth::User;
use crate::store::{Damaged, Range, ResourceState, Selection, View};

const CLUSTER_ROLES: usize = 0;
const ROLES: usize = 1;
const CLUSTER_BINDINGS: usize = 2;
const BINDINGS: usize = 3;
/// Where roles and bindings are stored.
const STORED: [&str; 4] = [
    "clusterroles.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
];
/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 256;
/// Roles that are missing which a refusal names; the others are left out.
const MISSING_MAX: usize = 16;

/// The compiled roles and bindings of a store; made anew, from what changed, when the log has changed one.
#[derive(Debug, Default)]
pub(super) struct Rbac {
    compiled: ArcSwap<Compiled>,
    /// Taken by the one who compiles: nothing is compiled twice.
    compiling: Mutex<()>,
}

type Roles = HashMap<Arc<str>, (u64, Arc<Role>)>;
type Bindings = Vec<(Arc<str>, u64, Arc<Binding>)>;

#[derive(Debug, Default)]
struct Compiled {
    /// The state of each resource that it was made of.
    of: [ResourceState; 4],
    /// The newest revision of the store at which that was still so.
    seen: AtomicU64,
    /// By key in the store: the object's revision, and what it says.
    roles: [Roles; 2],
    bindings: [Bindings; 2],
    users: HashMap<Box<str>, Grants>,
    groups: HashMap<Box<str>, Grants>,
}

/// A role's rules.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Role {
    rules: Option<Vec<Rule>>,
}

impl Role {
    fn rules(&self) -> &[Rule] {
        self.rules.as_deref().unwrap_or_default()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Binding {
    subjects: Option<Vec<SubjectText>>,
    role_ref: RoleRef,
    /// The key in the store.
    #[serde(skip)]
    key: Arc<str>,
}

impl Binding {
    /// Where the binding is: `""` for the whole cluster.
    fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    fn subjects(&self) -> &[SubjectText] {
        self.subjects.as_deref().unwrap_or_default()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SubjectText {
    kind: Box<str>,
    name: Box<str>,
    namespace: Box<str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RoleRef {
    kind: Box<str>,
    name: Box<str>,
}

#[derive(Debug, Default)]
struct Grants {
    everywhere: Vec<Grant>,
    within: HashMap<Box<str>, Vec<Grant>>,
}

/// A role that a binding gives to a subject.
#[derive(Debug, Clone)]
pub(super) struct Grant {
    /// `None`: there is no such role.
    role: Option<Arc<Role>>,
    binding: Arc<Binding>,
    /// Which of the binding's subjects.
    subject: usize,
}

impl Grant {
    /// Why something is allowed.
    pub(super) fn told(&self) -> String {
        let binding = &*self.binding;
        let (kind, named) = match binding.key.split_once('/') {
            Some((namespace, name)) => ("RoleBinding", format!("{name}/{namespace}")),
            None => ("ClusterRoleBinding", binding.key.to_string()),
        };
        let RoleRef {
            kind: role_kind, name, ..
        } = &binding.role_ref;
        let mut text = format!("RBAC: allowed by {kind} \"{named}\" of {role_kind} \"{name}\"");
        if let Some(subject) = binding.subjects().get(self.subject) {
            let _ = match (&*subject.kind, &*subject.namespace) {
                ("ServiceAccount", "") => {
                    write!(text, " to ServiceAccount \"{}/{}\"", subject.name, binding.namespace())
                }
                ("ServiceAccount", namespace) => write!(text, " to ServiceAccount \"{}/{namespace}\"", subject.name),
                (kind, _) => write!(text, " to {kind} \"{}\"", subject.name),
            };
        }
        text
    }

    fn missing(&self) -> String {
        let RoleRef { kind, name } = &self.binding.role_ref;
        format!(
            "{}.rbac.authorization.k8s.io \"{name}\" not found",
            kind.to_ascii_lowercase()
        )
    }
}

impl Rbac {
    pub(super) fn decide(&self, view: &Arc<View>, attributes: &Attributes<'_>) -> Result<Decision, Damaged> {
        let compiled = self.compiled(view)?;
        let namespace = match attributes.what {
            What::Resource(asked) => asked.namespace,
            What::Path(_) => "",
        };
        let mut missing: Vec<String> = Vec::new();
        for grant in compiled.grants(attributes.user, namespace) {
            match &grant.role {
                Some(role) if role.rules().iter().any(|rule| rule.allows(attributes)) => {
                    return Ok(Decision {
                        verdict: Verdict::Allow,
                        why: Why::Granted(grant.clone()),
                    });
                }
                Some(_) => {}
                None => note(&mut missing, grant.missing()),
            }
        }
        let why = match missing.as_slice() {
            [] => Why::Nothing,
            [one] => Why::Text(format!("RBAC: {one}")),
            several => Why::Text(format!("RBAC: [{}]", several.join(", "))),
        };
        Ok(Decision {
            verdict: Verdict::NoOpinion,
            why,
        })
    }

    pub(super) fn rules_of(
        &self,
        view: &Arc<View>,
        user: &User,
        namespace: &str,
    ) -> Result<(Vec<Rule>, Vec<String>), Damaged> {
        let compiled = self.compiled(view)?;
        let (mut rules, mut missing) = (Vec::new(), Vec::new());
        for grant in compiled.grants(user, namespace) {
            match &grant.role {
                Some(role) => rules.extend_from_slice(role.rules()),
                None => note(&mut missing, grant.missing()),
            }
        }
        Ok((rules, missing))
    }

    pub(super) fn rules_of_role(
        &self,
        view: &Arc<View>,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Vec<Rule>>, Damaged> {
        let compiled = self.compiled(view)?;
        let role = compiled.role(namespace, name);
        Ok(role.map(|role| role.rules().to_vec()))
    }

    /// Whether the rules of a role of the cluster allow something.
    pub(super) fn role_allows(
        &self,
        view: &Arc<View>,
        name: &str,
        attributes: &Attributes<'_>,
    ) -> Result<bool, Damaged> {
        let compiled = self.compiled(view)?;
        let role = compiled.role("", name);
        Ok(role.is_some_and(|role| role.rules().iter().any(|rule| rule.allows(attributes))))
    }

    /// The roles and bindings of the view. Costs two loads when nothing was written since, four look-ups by name when something
    /// else was.
    fn compiled(&self, view: &Arc<View>) -> Result<arc_swap::Guard<Arc<Compiled>>, Damaged> {
        let known = self.compiled.load();
        if known.is_of(view) {
            return Ok(known);
        }
        let _compiling = self.compiling.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.compiled.load();
        // Somebody may have compiled a newer state meanwhile: that one decides, too.
        if known.is_of(view) || known.seen.load(Ordering::Relaxed) > view.revision() {
            return Ok(known);
        }
        let next = Compiled::of(view, &known)?;
        self.compiled.store(Arc::new(next));
        Ok(self.compiled.load())
    }
}

fn note(missing: &mut Vec<String>, text: String) {
    if missing.len() < MISSING_MAX && !missing.contains(&text) {
        missing.push(text);
    }
}

impl Compiled {
    fn is_of(&self, view: &View) -> bool {
        let seen = self.seen.load(Ordering::Relaxed);
        if seen != 0 && seen == view.revision() {
            return true;
        }
        let same = seen != 0
            && STORED
                .iter()
                .zip(&self.of)
                .all(|(storage, state)| state.is_of(view, storage));
        if same {
            self.seen.fetch_max(view.revision(), Ordering::Relaxed);
        }
        same
    }

    /// Parses what is new and takes over the rest; then indexes everything. Costs some 200 ns an object, and the parsing of what
    /// changed.
    fn of(view: &Arc<View>, known: &Compiled) -> Result<Compiled, Damaged> {
        let mut next = Compiled {
            of: STORED.map(|storage| view.state(storage)),
            seen: AtomicU64::new(view.revision()),
            ..Compiled::default()
        };
        for (index, which) in [CLUSTER_ROLES, ROLES].into_iter().enumerate() {
            each(view, STORED[which], |object| {
                let key: Arc<str> = object.key().into();
                let role = match known.roles[index].get(&key) {
                    Some((revision, role)) if *revision == object.revision() => role.clone(),
                    // What is stored was valid when it was written; a role that cannot be read gives nothing.
                    _ => Arc::new(serde_json::from_slice(object.json()?).unwrap_or_default()),
                };
                next.roles[index].insert(key, (object.revision(), role));
                Ok(())
            })?;
        }
        for (index, which) in [CLUSTER_BINDINGS, BINDINGS].into_iter().enumerate() {
            let before = &known.bindings[index];
            each(view, STORED[which], |object| {
                let found = before.binary_search_by(|(key, _, _)| (**key).cmp(object.key()));
                let entry = match found.map(|place| &before[place]) {
                    Ok(entry) if entry.1 == object.revision() => entry.clone(),
                    _ => {
                        let key: Arc<str> = object.key().into();
                        let mut binding: Binding = serde_json::from_slice(object.json()?).unwrap_or_default();
                        binding.key = key.clone();
                        (key, object.revision(), Arc::new(binding))
                    }
                };
                next.bindings[index].push(entry);
                Ok(())
            })?;
        }
        next.index();
        Ok(next)
    }

    fn index(&mut self) {
        let (mut users, mut groups) = (HashMap::new(), HashMap::new());
        for (_, _, binding) in self.bindings.iter().flatten() {
            let namespace = binding.namespace();
            let place = match &*binding.role_ref.kind {
                "ClusterRole" => "",
                _ => namespace,
            };
            let role = self.role(place, &binding.role_ref.name);
            for (subject, text) in binding.subjects().iter().enumerate() {
                let subjects = if &*text.kind == "Group" {
                    &mut groups
                } else {
                    &mut users
                };
                let Some(who) = text.known_as(namespace) else { continue };
                let grants: &mut Grants = subjects.entry(who).or_default();
                let list = if namespace.is_empty() {
                    &mut grants.everywhere
                } else {
                    grants.within.entry(namespace.into()).or_default()
                };
                list.push(Grant {
                    role: role.cloned(),
                    binding: binding.clone(),
                    subject,
                });
            }
        }
        self.users = users;
        self.groups = groups;
    }

    fn role(&self, namespace: &str, name: &str) -> Option<&Arc<Role>> {
        let found = if namespace.is_empty() {
            self.roles[0].get(name)
        } else {
            self.roles[1].get(&*format!("{namespace}/{name}"))
        };
        found.map(|(_, role)| role)
    }

    /// Everything that is given to a user and his groups: in the whole cluster first, then in the namespace.
    fn grants<'a>(&'a self, user: &'a User, namespace: &'a str) -> impl Iterator<Item = &'a Grant> {
        let asked = move || {
            let groups = user.groups.iter().filter_map(|group| self.groups.get(group.as_str()));
            self.users.get(user.name.as_str()).into_iter().chain(groups)
        };
        let within = (!namespace.is_empty()).then(|| asked().filter_map(move |grants| grants.within.get(namespace)));
        let everywhere = asked().flat_map(|grants| &grants.everywhere);
        everywhere.chain(within.into_iter().flatten().flatten())
    }
}

impl SubjectText {
    /// The name of the user or group that is meant by a subject of a binding in `namespace`.
    fn known_as(&self, namespace: &str) -> Option<Box<str>> {
        match &*self.kind {
            "User" | "Group" => Some(self.name.clone()),
            "ServiceAccount" => {
                let own = if self.namespace.is_empty() {
                    namespace
                } else {
                    &self.namespace
                };
                (!own.is_empty()).then(|| format!("system:serviceaccount:{own}:{}", self.name).into())
            }
            _ => None,
        }
    }
}

fn each(
    view: &Arc<View>,
    storage: &str,
    mut see: impl FnMut(&crate::store::Object) -> Result<(), Damaged>,
) -> Result<(), Damaged> {
    let mut listing = view.list(storage, Range::default(), &Selection::all());
    while let Some(run) = listing.next(RUN_MAX)? {
        for object in run.objects() {
            see(&object)?;
        }
    }
    Ok(())
}
