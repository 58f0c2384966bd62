//! Selections by fields whose values stand in converted objects alone: each version has its own selectable fields.

use form_urlencoded::Serializer;

use crate::api::query::Query;
use crate::api::read::field_selector;
use crate::api::request::{RequestInfo, Verb};
use crate::api::status::Status;
use crate::resources::Resource;
use crate::store::Requirement;
use crate::tree::Value;

const PARAMETER: &str = "fieldSelector";

/// Requirements on fields that a definition lets clients select by.
pub(super) struct Selected(Vec<Requirement>);

impl Selected {
    /// What `info` requires; `asked`, its copy, requires it no longer where it reads, but still what every object has: name and
    /// namespace. (A deletion looks at its objects by itself.)
    ///
    /// # Errors
    /// 400 for a malformed selector, or one of unknown fields.
    pub(super) fn of(info: &RequestInfo, asked: &mut RequestInfo) -> Result<Self, Status> {
        let reads = matches!(info.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
        let Some(selector) = info.query.get(PARAMETER).filter(|text| reads && !text.is_empty()) else {
            return Ok(Self(Vec::new()));
        };
        let terms = field_selector(&selector, &info.resource).map_err(Status::bad_request)?;
        let (own, kept): (Vec<_>, Vec<_>) = terms.into_iter().partition(is_of_definition);
        if !own.is_empty() && asked.verb != Verb::DeleteCollection {
            let kept: Vec<String> = kept.iter().filter_map(term).collect();
            let others = info.query.pairs().filter(|(name, _)| name != PARAMETER);
            let query = Serializer::new(String::new())
                .extend_pairs(others)
                .append_pair(PARAMETER, &kept.join(","))
                .finish();
            asked.query = Query::new(&query);
        }
        Ok(Self(own))
    }

    pub(super) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object, in the version of `resource`, is selected.
    pub(super) fn selects(&self, resource: &Resource, object: &Value) -> bool {
        let field = |name: &str| {
            let custom = resource.custom.as_ref();
            custom.map_or_else(String::new, |custom| custom.cells.selectable(name, object))
        };
        self.0.iter().all(|requirement| match requirement {
            Requirement::FieldIs { name, value } => field(name) == *value,
            Requirement::FieldIsNot { name, value } => field(name) != *value,
            _ => true,
        })
    }
}

fn is_of_definition(requirement: &Requirement) -> bool {
    matches!(
        requirement,
        Requirement::FieldIs { .. } | Requirement::FieldIsNot { .. }
    )
}

/// A requirement as selectors write it.
fn term(requirement: &Requirement) -> Option<String> {
    let (field, value, is) = match requirement {
        Requirement::Name { value, is } => ("metadata.name", value, *is),
        Requirement::Namespace { value, is } => ("metadata.namespace", value, *is),
        _ => return None,
    };
    let mut escaped = String::with_capacity(value.len());
    for letter in value.chars() {
        if matches!(letter, '\\' | ',' | '=') {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    Some(format!("{field}{}{escaped}", if is { "=" } else { "!=" }))
}
