//! What a reader asks of an object besides its key: requirements on labels and selectable fields, answered from the
//! sidecar alone.
//!
//! The meaning of each operator is that of Kubernetes' label selectors ("Labels and Selectors", API conventions) and of
//! its field selectors: an object without the label satisfies `NotIn`, `!=` and `!name`, and none of the others.

use std::ops::RangeInclusive;

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
        let label = |name: &str, values: &[String]| {
            let mut pairs: Vec<u64> = values
                .iter()
                .map(|value| posting_hash(PostingKind::Label, name, value))
                .collect();
            pairs.sort_unstable();
            pairs.dedup();
            Listed {
                name: Some(posting_hash(PostingKind::LabelName, name, "")),
                values: Some(pairs),
            }
        };
        match self {
            Requirement::LabelIn { name, values } => Some(label(name, values)),
            Requirement::LabelExists(name)
            | Requirement::LabelAbove { name, .. }
            | Requirement::LabelBelow { name, .. } => Some(Listed {
                values: None,
                ..label(name, &[])
            }),
            Requirement::FieldIs { name, value } if !value.is_empty() => Some(Listed {
                name: None,
                values: Some(vec![posting_hash(PostingKind::Field, name, value)]),
            }),
            _ => None,
        }
    }
}

/// Posting hashes that together list every object with one of some values, or with a label of some name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// Hash of the label's name; `None` for a field.
    pub(super) name: Option<u64>,
    /// Hashes of the label or field with each accepted value, sorted; `None`: the label with any value.
    pub(super) values: Option<Vec<u64>>,
}

impl Listed {
    /// The hashes to look up in a shelf.
    pub(super) fn in_shelf(&self) -> &[u64] {
        self.values.as_deref().unwrap_or(self.name.as_slice())
    }

    /// The ranges of hashes to look up in a delta.
    pub(super) fn in_delta(&self) -> Vec<RangeInclusive<u32>> {
        match (self.name, &self.values) {
            (Some(name), None) => vec![of_name(name)],
            (name, values) => {
                let narrow = |&pair: &u64| {
                    let hash = name.map_or_else(|| narrow(pair), |name| narrow_pair(name, pair));
                    hash..=hash
                };
                let mut ranges: Vec<_> = values.iter().flatten().map(narrow).collect();
                ranges.sort_unstable_by_key(|range| *range.start());
                ranges.dedup();
                ranges
            }
        }
    }
}

fn integer(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}
