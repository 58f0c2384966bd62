//! What is computed for a kind, beyond its declaration.

use crate::tree::Value;

use super::cell::Cell;
use super::lookup;
use super::row::Row;
use super::{
    Context, FieldError, Refusal, Resource, admission, apps, autoscaling, batch, certificates, core, devices,
    extension, flowcontrol, networking, policy, rbac, storage,
};

/// What a kind computes. Everything has a default that suits most kinds.
///
/// Objects are in their stored shape and in canonical form.
#[expect(
    clippy::struct_excessive_bools,
    reason = "a declaration: each switch stands by itself"
)]
pub(super) struct Kind {
    /// Name in the store.
    pub(super) storage: &'static str,
    /// Pushes the Table cells in column order.
    pub(super) cells: fn(&mut Row<'_>),
    /// Fills in what was left open, on every write.
    pub(super) defaults: fn(&mut Value),
    /// What the API server's own admission refuses of a new object.
    pub(super) admit: fn(&Value) -> Result<(), Refusal>,
    /// Fills in what only a new object gets, its first status above all.
    pub(super) prepare_create: fn(&mut Value, &Context<'_>),
    /// Fills in what follows from a change: old, new, subresource.
    pub(super) prepare_update: fn(&Value, &mut Value, Option<&str>, &Context<'_>),
    /// What is wrong with an object, new or changed.
    pub(super) validate: fn(&Value, &mut Vec<FieldError>),
    /// What is wrong with a new object only.
    pub(super) validate_create: fn(&Value, &mut Vec<FieldError>),
    /// What is wrong with a change: old, new, subresource.
    pub(super) validate_update: fn(&Value, &Value, Option<&str>, &mut Vec<FieldError>),
    /// What the rules of one of several versions have against a new object, or a change: the version that it is written in, old,
    /// new.
    pub(super) validate_version: fn(&Resource, Option<&Value>, &Value, &mut Vec<FieldError>),
    /// What is wrong with a change of status: old, new.
    pub(super) validate_status: fn(&Value, &Value, &mut Vec<FieldError>),
    /// Warnings about an object that is fine.
    pub(super) warnings: fn(&Value) -> Vec<String>,
    /// Warnings that only a new object gets, before the others.
    pub(super) warnings_create: fn(&Value) -> Vec<String>,
    /// Whether a change that leaves the generation as it is gets no warnings.
    pub(super) warns_of_changed_spec: bool,
    /// Whether kube-apiserver checks a changed object twice, and so tells of each fault twice.
    pub(super) checked_twice: bool,
    /// A field of metadata whose changes the generation counts too.
    pub(super) counted_metadata: Option<&'static str>,
    /// Whether the generation is given once and counts nothing.
    pub(super) generation_stays: bool,
    /// Whether defaults and what is wrong with an object are a matter of its spec alone: one that did not change is not
    /// looked at again.
    pub(super) spec_alone: bool,
    /// Fields of metadata that `/status` leaves as they are.
    pub(super) status_keeps: &'static [&'static str],
}

/// What of metadata clients may change: some kinds let `/status` change none of it.
pub(super) const METADATA: &[&str] = &["labels", "annotations", "finalizers", "ownerReferences"];

impl Kind {
    pub(super) const fn new(storage: &'static str) -> Kind {
        Kind {
            storage,
            cells: name_and_creation,
            defaults: |_| (),
            admit: |_| Ok(()),
            prepare_create: |_, _| (),
            prepare_update: |_, _, _, _| (),
            validate: |_, _| (),
            validate_create: |_, _| (),
            validate_update: |_, _, _, _| (),
            validate_version: |_, _, _, _| (),
            validate_status: |_, _, _| (),
            warnings: |_| Vec::new(),
            warnings_create: |_| Vec::new(),
            warns_of_changed_spec: false,
            checked_twice: false,
            counted_metadata: None,
            generation_stays: false,
            spec_alone: false,
            status_keeps: &[],
        }
    }

    pub(super) const fn spec_alone(self) -> Kind {
        Kind {
            spec_alone: true,
            ..self
        }
    }

    pub(super) const fn cells(self, cells: fn(&mut Row<'_>)) -> Kind {
        Kind { cells, ..self }
    }

    pub(super) const fn defaults(self, defaults: fn(&mut Value)) -> Kind {
        Kind { defaults, ..self }
    }

    pub(super) const fn admit(self, admit: fn(&Value) -> Result<(), Refusal>) -> Kind {
        Kind { admit, ..self }
    }

    pub(super) const fn prepare_create(self, prepare_create: fn(&mut Value, &Context<'_>)) -> Kind {
        Kind { prepare_create, ..self }
    }

    pub(super) const fn prepare_update(
        self,
        prepare_update: fn(&Value, &mut Value, Option<&str>, &Context<'_>),
    ) -> Kind {
        Kind { prepare_update, ..self }
    }

    pub(super) const fn counts_metadata(self, field: &'static str) -> Kind {
        Kind {
            counted_metadata: Some(field),
            ..self
        }
    }

    pub(super) const fn generation_stays(self) -> Kind {
        Kind {
            generation_stays: true,
            ..self
        }
    }

    pub(super) const fn status_keeps(self, fields: &'static [&'static str]) -> Kind {
        Kind {
            status_keeps: fields,
            ..self
        }
    }

    pub(super) const fn validate(self, validate: fn(&Value, &mut Vec<FieldError>)) -> Kind {
        Kind { validate, ..self }
    }

    pub(super) const fn validate_create(self, validate_create: fn(&Value, &mut Vec<FieldError>)) -> Kind {
        Kind {
            validate_create,
            ..self
        }
    }

    pub(super) const fn validate_status(self, validate_status: fn(&Value, &Value, &mut Vec<FieldError>)) -> Kind {
        Kind {
            validate_status,
            ..self
        }
    }

    pub(super) const fn validate_version(
        self,
        validate_version: fn(&Resource, Option<&Value>, &Value, &mut Vec<FieldError>),
    ) -> Kind {
        Kind {
            validate_version,
            ..self
        }
    }

    pub(super) const fn warnings(self, warnings: fn(&Value) -> Vec<String>) -> Kind {
        Kind { warnings, ..self }
    }

    pub(super) const fn warnings_create(self, warnings_create: fn(&Value) -> Vec<String>) -> Kind {
        Kind {
            warnings_create,
            ..self
        }
    }

    pub(super) const fn warns_of_changed_spec(self) -> Kind {
        Kind {
            warns_of_changed_spec: true,
            ..self
        }
    }

    pub(super) const fn checked_twice(self) -> Kind {
        Kind {
            checked_twice: true,
            ..self
        }
    }

    pub(super) const fn validate_update(
        self,
        validate_update: fn(&Value, &Value, Option<&str>, &mut Vec<FieldError>),
    ) -> Kind {
        Kind {
            validate_update,
            ..self
        }
    }
}

/// All kinds with something of their own, by group.
const GROUPS: &[&[Kind]] = &[
    core::KINDS,
    admission::KINDS,
    apps::KINDS,
    autoscaling::KINDS,
    batch::KINDS,
    certificates::KINDS,
    devices::KINDS,
    flowcontrol::KINDS,
    networking::KINDS,
    policy::KINDS,
    rbac::KINDS,
    storage::KINDS,
    extension::KINDS,
];

static PLAIN: Kind = Kind::new("");

/// The kind of that name in the store.
pub(super) fn of(storage: &str) -> &'static Kind {
    GROUPS
        .iter()
        .copied()
        .flatten()
        .find(|kind| kind.storage == storage)
        .unwrap_or(&PLAIN)
}

/// The Table cells of an object in its stored shape; name and age when the resource is not known.
pub fn cells(resource: Option<&Resource>, object: &Value) -> Vec<Cell> {
    let mut row = Row::new(object);
    match resource {
        Some(resource) => match &resource.custom {
            Some(custom) => return custom.cells.row(object),
            None => (of(&resource.storage).cells)(&mut row),
        },
        None => name_and_age(&mut row),
    }
    row.finish()
}

/// The selectable fields of an object in its stored shape, with Go's zero value where one is absent.
pub(super) fn field_value(resource: &Resource, object: &Value, field: &str) -> String {
    match (&*resource.storage, field) {
        // A Pod on the host's network is selected by `true` and `false`, whether or not the field is written.
        ("pods", "spec.hostNetwork") | ("nodes", "spec.unschedulable") => {
            lookup::boolean(object, &pointer(field)).unwrap_or(false).to_string()
        }
        ("pods", "status.podIPs") => {
            let ips = lookup::list(object, "/status/podIPs")
                .iter()
                .map(|ip| lookup::text(ip, "/ip"));
            ips.collect::<Vec<_>>().join(",")
        }
        ("jobs.batch", "status.successful") => lookup::integer(object, "/status/succeeded").unwrap_or(0).to_string(),
        ("replicationcontrollers", "status.replicas") => {
            lookup::integer(object, "/status/replicas").unwrap_or(0).to_string()
        }
        ("events", "source") => match lookup::text(object, "/source/component") {
            "" => lookup::text(object, "/reportingComponent").to_owned(),
            component => component.to_owned(),
        },
        _ => lookup::field_text(object, field).to_owned(),
    }
}

fn pointer(field: &str) -> String {
    format!("/{}", field.replace('.', "/"))
}

/// What kinds without columns of their own show.
fn name_and_creation(row: &mut Row<'_>) {
    row.name().text_at("/metadata/creationTimestamp");
}

/// Name and age: kinds that show nothing else.
pub(super) fn name_and_age(row: &mut Row<'_>) {
    row.name().age();
}

#[cfg(test)]
mod tests {
    use crate::tree::json;

    use super::*;
    use crate::resources::find;

    /// The cell as a recorded answer shows it, ages masked.
    fn masked(cell: &Cell) -> Value {
        match cell {
            Cell::Null | Cell::Revision | Cell::Json(_) => Value::Null,
            Cell::Bool(value) => json!(value),
            Cell::Integer(value) => json!(value),
            Cell::Number(value) => json!(value),
            Cell::Text(text) => json!(text),
            Cell::Age(0) => json!("<unknown>"),
            Cell::Age(_) => json!("<age>"),
            Cell::TextAge { before, after, .. } => json!(format!("{before}<age>{after}")),
            Cell::Duration { end: 0, .. } => json!("<ignored>"),
            Cell::Duration { start, end } => json!(crate::resources::duration::human_duration(end - start)),
        }
    }

    #[test]
    fn cells_are_those_that_kube_apiserver_printed() {
        let mut wrong = Vec::new();
        for line in include_str!("testdata/tables.jsonl").lines() {
            let recorded: Value = serde_json::from_str(line).unwrap();
            let part = |i: usize| recorded["resource"][i].as_str().unwrap();
            let resource = find(part(0), part(1), part(2)).unwrap();
            let mut cells = cells(Some(resource), &recorded["object"]);
            let conditions = match cells.last() {
                Some(Cell::Json(conditions)) => serde_json::from_str(conditions).unwrap(),
                _ => Value::Null,
            };
            cells.truncate(resource.columns.len());
            let cells: Vec<Value> = cells.iter().map(masked).collect();
            let expected = &recorded["cells"];
            if json!(cells) != *expected || conditions != recorded["conditions"] {
                wrong.push(format!(
                    "{} expected {expected}\n got {} {conditions}",
                    part(2),
                    json!(cells)
                ));
            }
        }
        assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
    }

    #[test]
    fn every_kind_fills_every_column() {
        for resource in crate::resources::all()
            .iter()
            .filter(|resource| !resource.storage.is_empty())
        {
            let count = cells(Some(resource), &json!({})).len();
            assert_eq!(count, resource.columns.len(), "{}", resource.qualified());
        }
    }

    #[test]
    fn every_kind_with_cells_of_its_own_is_declared() {
        for kind in GROUPS.iter().copied().flatten() {
            assert!(crate::resources::stored(kind.storage).is_some(), "{}", kind.storage);
        }
    }
}
