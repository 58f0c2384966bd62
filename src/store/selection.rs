//! What a reader asks of an object besides its key: requirements on labels and selectable fields, answered from the
//! sidecar alone.
//!
//! The meaning of each operator is that of Kubernetes' label selectors ("Labels and Selectors", API conventions) and of
//! its field selectors: an object without the label satisfies `NotIn`, `!=` and `!name`, and none of the others.

use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use flatkube_format::shelf::{PostingKind, posting_hash};
use flatkube_format::sidecar::ArchivedSidecar;

use super::error::Damaged;
use super::object::{Object, name_of, namespace_of};
use super::postings::{narrow, narrow_pair, of_name};

/// Requirements that must all hold. Empty: everything is selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// All of these must hold.
    pub requirements: Vec<Requirement>,
}

/// How candidates for a selection are found.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// What lists the fewest of them.
    pub(super) rarest: Listed,
    /// The other requirements that postings list.
    pub(super) others: Vec<Listed>,
    /// Whether postings and keys decide about every requirement, collisions of hashes aside.
    pub(super) is_decided: bool,
}

/// One condition on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// The label is there and its value is one of `values` (`=`, `==`, `in`). No value: never true.
    LabelIn {
        /// Name of the label.
        name: String,
        /// Accepted values.
        values: Vec<String>,
    },
    /// The label is missing, or its value is none of `values` (`!=`, `notin`).
    LabelNotIn {
        /// Name of the label.
        name: String,
        /// Refused values.
        values: Vec<String>,
    },
    /// The label is there, whatever its value.
    LabelExists(String),
    /// The label is missing (`!name`).
    LabelAbsent(String),
    /// The label's value is a decimal integer greater than `value` (`>`).
    LabelAbove {
        /// Name of the label.
        name: String,
        /// Exclusive lower bound.
        value: i64,
    },
    /// The label's value is a decimal integer less than `value` (`<`).
    LabelBelow {
        /// Name of the label.
        name: String,
        /// Exclusive upper bound.
        value: i64,
    },
    /// The selectable field has this value; a field that the object lacks has the value `""`.
    FieldIs {
        /// Path of the field, e.g. `status.phase`.
        name: String,
        /// Demanded value.
        value: String,
    },
    /// The selectable field has another value; a field that the object lacks has the value `""`.
    FieldIsNot {
        /// Path of the field.
        name: String,
        /// Refused value.
        value: String,
    },
    /// One of the object's owners has this UID. No UID: never true.
    OwnedBy(String),
    /// The object has owners.
    Owned,
    /// `metadata.name`, which is read from the key.
    Name {
        /// The name to compare with.
        value: String,
        /// `true`: must be equal; `false`: must differ.
        is: bool,
    },
    /// `metadata.namespace`, which is read from the key; cluster-scoped objects have `""`.
    Namespace {
        /// The namespace to compare with.
        value: String,
        /// `true`: must be equal; `false`: must differ.
        is: bool,
    },
}

impl Selection {
    /// Selects everything.
    pub fn all() -> Selection {
        Selection::default()
    }

    /// Whether no requirement restricts the selection.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether every requirement holds for the object with this key and sidecar.
    pub fn matches_parts(&self, key: &str, sidecar: &ArchivedSidecar) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.holds(key, sidecar))
    }

    /// Whether every requirement holds for `object`. Reads the sidecar only if a requirement asks about it.
    pub fn matches(&self, object: &Object) -> Result<bool, Damaged> {
        if !self.key_matches(object.key()) {
            return Ok(false);
        }
        Ok(!self.needs_sidecar() || self.matches_parts(object.key(), object.sidecar()?))
    }

    /// Whether the sidecar has to be read to decide; `false` when only keys are asked about.
    pub(super) fn needs_sidecar(&self) -> bool {
        self.requirements.iter().any(|requirement| !requirement.is_of_key())
    }

    /// Whether there are requirements on the key.
    pub(super) fn asks_for_keys(&self) -> bool {
        self.requirements.iter().any(Requirement::is_of_key)
    }

    /// How candidates for this selection are found, given what it costs to look at those of each requirement; `None` if
    /// no requirement lists them.
    pub(super) fn plan(&self, cost: impl Fn(&Listed) -> usize) -> Option<Plan> {
        let mut others: Vec<Listed> = self.requirements.iter().filter_map(Requirement::postings).collect();
        let of_key = self
            .requirements
            .iter()
            .filter(|requirement| requirement.is_of_key())
            .count();
        let is_decided = others.len() + of_key == self.requirements.len() && others.iter().all(|one| one.is_exact);
        let rarest = match others.len() {
            0 => return None,
            1 => 0,
            _ => others.iter().enumerate().min_by_key(|(_, listed)| cost(listed))?.0,
        };
        Some(Plan {
            rarest: others.swap_remove(rarest),
            others,
            is_decided,
        })
    }

    /// Whether the requirements on the key hold; those on the sidecar are taken as fulfilled.
    pub(super) fn key_matches(&self, key: &str) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.key_holds(key).unwrap_or(true))
    }
}

impl Requirement {
    /// Whether the requirement holds for the object with this key and sidecar.
    pub fn holds(&self, key: &str, sidecar: &ArchivedSidecar) -> bool {
        match self {
            Requirement::LabelIn { name, values } => sidecar
                .label(name)
                .is_some_and(|value| values.iter().any(|accepted| accepted == value)),
            Requirement::LabelNotIn { name, values } => sidecar
                .label(name)
                .is_none_or(|value| values.iter().all(|refused| refused != value)),
            Requirement::LabelExists(name) => sidecar.label(name).is_some(),
            Requirement::LabelAbsent(name) => sidecar.label(name).is_none(),
            Requirement::LabelAbove { name, value } => integer(sidecar.label(name)).is_some_and(|found| found > *value),
            Requirement::LabelBelow { name, value } => integer(sidecar.label(name)).is_some_and(|found| found < *value),
            Requirement::FieldIs { name, value } => sidecar.field(name).unwrap_or("") == value,
            Requirement::FieldIsNot { name, value } => sidecar.field(name).unwrap_or("") != value,
            Requirement::OwnedBy(uid) => is_owned_by(sidecar, uid),
            Requirement::Owned => !sidecar.owners.is_empty(),
            Requirement::Name { .. } | Requirement::Namespace { .. } => self.key_holds(key).unwrap_or(true),
        }
    }

    /// The answer of a requirement on the key, `None` for one on the sidecar.
    fn key_holds(&self, key: &str) -> Option<bool> {
        match self {
            Requirement::Name { value, is } => Some((name_of(key) == value) == *is),
            Requirement::Namespace { value, is } => Some((namespace_of(key).unwrap_or("") == value) == *is),
            _ => None,
        }
    }

    fn is_of_key(&self) -> bool {
        matches!(self, Requirement::Name { .. } | Requirement::Namespace { .. })
    }

    /// Where objects that can satisfy this requirement are listed; `None` when no posting lists them all: for negative
    /// operators, and for a field that must be empty, which objects may also lack.
    pub(super) fn postings(&self) -> Option<Listed> {
        let label_name = |name: &str| posting_hash(PostingKind::LabelName, name, "");
        match self {
            Requirement::LabelIn { name, values } => {
                let mut sought: Vec<_> = values
                    .iter()
                    .map(|value| Sought::new(PostingKind::Label, name, value))
                    .collect();
                sought.sort_by_key(|sought| sought.hash);
                sought.dedup_by_key(|sought| sought.hash);
                Some(Listed {
                    name: Some(label_name(name)),
                    sought,
                    is_exact: true,
                })
            }
            Requirement::LabelExists(name)
            | Requirement::LabelAbove { name, .. }
            | Requirement::LabelBelow { name, .. } => {
                let sought = vec![Sought::new(PostingKind::LabelName, name, "")];
                let is_exact = matches!(self, Requirement::LabelExists(_));
                Some(Listed {
                    name: Some(label_name(name)),
                    sought,
                    is_exact,
                })
            }
            Requirement::FieldIs { name, value } if !value.is_empty() => Some(Listed {
                name: None,
                sought: vec![Sought::new(PostingKind::Field, name, value)],
                is_exact: true,
            }),
            // The number of an empty UID is that of everything with owners.
            Requirement::OwnedBy(uid) if uid.is_empty() => Some(Listed {
                name: None,
                sought: Vec::new(),
                is_exact: true,
            }),
            Requirement::OwnedBy(uid) => Some(Listed {
                name: None,
                sought: vec![Sought::new(PostingKind::Owner, "", uid)],
                is_exact: true,
            }),
            Requirement::Owned => Some(Listed {
                name: None,
                sought: vec![Sought::new(PostingKind::Owner, "", "")],
                is_exact: true,
            }),
            _ => None,
        }
    }
}

/// Postings that together list every object that can satisfy a requirement.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    /// Hash of the label's name; `None` for a field.
    name: Option<u64>,
    /// In order of their hashes.
    pub(super) sought: Vec<Sought>,
    /// Whether all that is listed satisfies the requirement, collisions of hashes aside.
    pub(super) is_exact: bool,
}

/// One label, label name or field that is looked up.
#[derive(Clone, Debug)]
pub(super) struct Sought {
    kind: PostingKind,
    name: String,
    value: String,
    /// Its number in shelves.
    pub(super) hash: u64,
    /// Names it within this process: a keyed hash whose key nobody knows, so that nobody makes two that are equal.
    pub(super) proof: u64,
}

/// Key of [`Sought::proof`].
static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Sought {
    fn new(kind: PostingKind, name: &str, value: &str) -> Sought {
        Sought {
            kind,
            name: name.to_owned(),
            value: value.to_owned(),
            hash: posting_hash(kind, name, value),
            // 0 stands for nothing.
            proof: SECRET.hash_one((kind as u8, name, value)).max(1),
        }
    }

    /// Whether the object with this sidecar has it.
    pub(super) fn is_of(&self, sidecar: &ArchivedSidecar) -> bool {
        match self.kind {
            PostingKind::Label => sidecar.label(&self.name) == Some(&self.value),
            PostingKind::LabelName => sidecar.label(&self.name).is_some(),
            PostingKind::Field => sidecar.field(&self.name) == Some(&self.value),
            PostingKind::Owner if self.value.is_empty() => !sidecar.owners.is_empty(),
            PostingKind::Owner => is_owned_by(sidecar, &self.value),
        }
    }

    /// Whether it is an owner, which older shelves do not list.
    pub(super) fn is_owner(&self) -> bool {
        self.kind == PostingKind::Owner
    }
}

fn is_owned_by(sidecar: &ArchivedSidecar, uid: &str) -> bool {
    !uid.is_empty() && sidecar.owners.iter().any(|owner| owner == uid)
}

impl Listed {
    /// The ranges of hashes to look up in a delta.
    pub(super) fn in_delta(&self) -> Vec<RangeInclusive<u32>> {
        let narrowed = |sought: &Sought| match (sought.kind, self.name) {
            (PostingKind::LabelName, _) => of_name(sought.hash),
            (_, Some(name)) => {
                let hash = narrow_pair(name, sought.hash);
                hash..=hash
            }
            (_, None) => {
                let hash = narrow(sought.hash);
                hash..=hash
            }
        };
        let mut ranges: Vec<_> = self.sought.iter().map(narrowed).collect();
        ranges.sort_unstable_by_key(|range| *range.start());
        ranges.dedup();
        ranges
    }
}

fn integer(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}
