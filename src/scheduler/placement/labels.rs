//! Labels, and what selects by them.

use super::names::{Name, Names};
use crate::tree::Value;

/// Labels, sorted by their keys. 32 bytes a label, besides the texts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Labels(Box<[(Name, Name)]>);

impl Labels {
    pub(crate) fn of(map: &Value, names: &mut Names) -> Self {
        // The keys of a map are in order.
        let labels = map.as_object().into_iter().flatten();
        Self(
            labels
                .filter_map(|(key, value)| Some((names.get(key), names.get(value.as_str()?))))
                .collect(),
        )
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Name> {
        let at = self.0.binary_search_by(|(other, _)| (**other).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Name, Name)> {
        self.0.iter()
    }
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Requirement {
    key: Name,
    is: Is,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Is {
    In(Vec<Name>),
    NotIn(Vec<Name>),
    There,
    Absent,
    Above(i64),
    Below(i64),
    /// What is written makes no sense, and is met by nothing.
    Never,
}

impl Requirement {
    pub(super) fn equal(key: Name, value: Name) -> Self {
        Self {
            key,
            is: Is::In(vec![value]),
        }
    }

    /// Of `matchExpressions` (in selectors of labels) or `matchFields`.
    fn of(expression: &Value, names: &mut Names) -> Self {
        let values: Vec<Name> = expression["values"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|value| Some(names.get(value.as_str()?)))
            .collect();
        let number = || match values.as_slice() {
            [one] => one.parse::<i64>().ok(),
            _ => None,
        };
        let is = match expression["operator"].as_str().unwrap_or("") {
            "In" => Is::In(values),
            "NotIn" => Is::NotIn(values),
            "Exists" => Is::There,
            "DoesNotExist" => Is::Absent,
            "Gt" => number().map_or(Is::Never, Is::Above),
            "Lt" => number().map_or(Is::Never, Is::Below),
            _ => Is::Never,
        };
        Self {
            key: names.get(expression["key"].as_str().unwrap_or("")),
            is,
        }
    }

    fn holds(&self, value: Option<&str>) -> bool {
        let among = |values: &[Name]| value.is_some_and(|value| values.iter().any(|other| **other == *value));
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.is {
            Is::In(values) => among(values),
            Is::NotIn(values) => !among(values),
            Is::There => value.is_some(),
            Is::Absent => value.is_none(),
            Is::Above(bound) => number().is_some_and(|number| number > *bound),
            Is::Below(bound) => number().is_some_and(|number| number < *bound),
            Is::Never => false,
        }
    }
}

/// A selector of labels (`LabelSelector`). One without requirements selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Selector(Vec<Requirement>);

impl Selector {
    /// `None` where there is none, which selects nothing.
    pub(crate) fn of(selector: &Value, names: &mut Names) -> Option<Self> {
        selector.as_object()?;
        let mut requirements = equalities(&selector["matchLabels"], names);
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            requirements.push(Requirement::of(expression, names));
        }
        Some(Self(requirements))
    }

    /// Of a plain map (`spec.selector` of a Service).
    pub(crate) fn of_map(map: &Value, names: &mut Names) -> Self {
        Self(equalities(map, names))
    }

    /// Of `matchLabelExpressions`, whose entries are a key and the values that it may have.
    pub(crate) fn of_topology(expressions: &Value, names: &mut Names) -> Self {
        let expressions = expressions.as_array().into_iter().flatten();
        let among = expressions.map(|one| {
            let values = one["values"].as_array().into_iter().flatten();
            Requirement {
                key: names.get(one["key"].as_str().unwrap_or("")),
                is: Is::In(values.filter_map(|value| Some(names.get(value.as_str()?))).collect()),
            }
        });
        Self(among.collect())
    }

    /// What both select.
    pub(crate) fn and(&mut self, more: &Selector) {
        for requirement in &more.0 {
            self.require(requirement.clone());
        }
    }

    pub(super) fn require(&mut self, requirement: Requirement) {
        if !self.0.contains(&requirement) {
            self.0.push(requirement);
        }
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn selects(&self, labels: &Labels) -> bool {
        self.0
            .iter()
            .all(|requirement| requirement.holds(labels.get(&requirement.key).map(|value| &**value)))
    }
}

fn equalities(map: &Value, names: &mut Names) -> Vec<Requirement> {
    let pairs = map.as_object().into_iter().flatten();
    pairs
        .filter_map(|(key, value)| Some(Requirement::equal(names.get(key), names.get(value.as_str()?))))
        .collect()
}

/// One of the terms of a node selector, any of which may hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NodeTerm {
    labels: Vec<Requirement>,
    /// The one field is `metadata.name`.
    fields: Vec<Requirement>,
}

impl NodeTerm {
    pub(crate) fn of(term: &Value, names: &mut Names) -> Self {
        let mut list = |field: &str| -> Vec<Requirement> {
            let expressions = term[field].as_array().into_iter().flatten();
            expressions.map(|one| Requirement::of(one, names)).collect()
        };
        Self {
            labels: list("matchExpressions"),
            fields: list("matchFields"),
        }
    }

    /// A term that says nothing is met by no node.
    pub(crate) fn holds(&self, name: &str, labels: &Labels) -> bool {
        if self.labels.is_empty() && self.fields.is_empty() {
            return false;
        }
        let field = |requirement: &Requirement| match &*requirement.key {
            "metadata.name" => requirement.holds(Some(name)),
            _ => false,
        };
        self.fields.iter().all(field)
            && self
                .labels
                .iter()
                .all(|one| one.holds(labels.get(&one.key).map(|value| &**value)))
    }

    /// The nodes that it is about, where it names them.
    pub(super) fn names(&self) -> Option<&[Name]> {
        self.fields.iter().find_map(|requirement| match &requirement.is {
            Is::In(values) if &*requirement.key == "metadata.name" => Some(values.as_slice()),
            _ => None,
        })
    }
}

/// `nodeSelectorTerms`.
pub(crate) fn node_terms(selector: &Value, names: &mut Names) -> Option<Vec<NodeTerm>> {
    let terms = selector["nodeSelectorTerms"].as_array()?;
    Some(terms.iter().map(|term| NodeTerm::of(term, names)).collect())
}
