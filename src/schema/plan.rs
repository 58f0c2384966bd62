//! What walks along objects ask of a schema, laid out for them once: names side by side, types and list rules read already.

use std::sync::OnceLock;

use super::blob::BUILT_IN;
use super::shape::{Field, ListType, Schema, Type};
use crate::tree::Key;

/// The fields of a built-in schema, by name.
pub(crate) struct Plan {
    names: Box<[&'static str]>,
    fields: Box<[PlanField]>,
}

/// One field.
pub(crate) struct PlanField {
    /// Its name on the wire.
    pub(crate) name: &'static str,
    /// Its type.
    pub(crate) ty: Type<'static>,
    /// The field in the schema.
    pub(crate) field: Field<'static>,
    /// How server-side apply takes it, if it is a list.
    pub(crate) list: Option<ListType>,
    /// The keys of a list that is a map, by name.
    pub(crate) map_keys: Box<[&'static str]>,
    /// Whether it is a map that is one value to server-side apply.
    pub(crate) map_atomic: bool,
    /// Whether it must be there.
    pub(crate) required: bool,
    /// Its default in OpenAPI, as JSON text.
    pub(crate) default_json: Option<&'static str>,
    /// Name of the Go type where it is not the one that the type on the wire has.
    go: &'static str,
}

impl Plan {
    /// The plan of a built-in schema; it is made when the schema is first met.
    pub(crate) fn of(schema: Schema<'static>) -> &'static Plan {
        static PLANS: OnceLock<Box<[OnceLock<Plan>]>> = OnceLock::new();
        let plans = PLANS.get_or_init(|| Schema::all().map(|_| OnceLock::new()).collect());
        plans[schema.number as usize].get_or_init(|| {
            let fields: Box<[PlanField]> = schema.fields().map(PlanField::new).collect();
            Plan {
                names: fields.iter().map(|field| field.name).collect(),
                fields,
            }
        })
    }

    /// Number of the field of that name. `cursor` is where the search begins and is left behind what was found: fields
    /// mostly come in order.
    #[inline]
    pub(crate) fn find(&self, name: &str, cursor: &mut usize) -> Option<usize> {
        let (before, after) = self.names.split_at((*cursor).min(self.names.len()));
        let same = |known: &&str| *known == name;
        let found = match after.iter().position(same) {
            Some(at) => before.len() + at,
            None => before.iter().position(same)?,
        };
        *cursor = found + 1;
        Some(found)
    }

    /// [`Plan::find`] of a key, which mostly is the known name itself.
    #[inline]
    pub(crate) fn find_key(&self, key: &Key, cursor: &mut usize) -> Option<usize> {
        if let Key::Known(name) = key
            && let Some(ahead) = self.names.get(*cursor..)
            && let Some(at) = ahead.iter().position(|known| std::ptr::eq(*known, *name))
        {
            *cursor += at + 1;
            return Some(*cursor - 1);
        }
        self.find(key, cursor)
    }

    /// Field number `number`.
    #[inline]
    pub(crate) fn field(&self, number: usize) -> &PlanField {
        &self.fields[number]
    }
}

impl PlanField {
    fn new(field: Field<'static>) -> PlanField {
        let mut map_keys: Box<[&str]> = field.map_keys().collect();
        map_keys.sort_unstable();
        PlanField {
            name: field.name(),
            ty: field.ty(),
            field,
            list: field.list_type(),
            map_keys,
            map_atomic: field.map_atomic(),
            required: field.required(),
            default_json: field.default_json(),
            go: field.go_mark(),
        }
    }
}

/// A field that was found by its name.
pub(super) struct Known<'a> {
    /// Its name as a key of a map.
    pub(super) key: Key,
    pub(super) name: &'a str,
    pub(super) ty: Type<'a>,
    pub(super) go: &'a str,
    /// Its place among the fields of its schema.
    pub(super) number: usize,
}

impl<'a> Schema<'a> {
    /// The plan, for a built-in schema.
    pub(crate) fn plan(self) -> Option<&'static Plan> {
        self.blob.is(BUILT_IN).then(|| {
            Plan::of(Schema {
                blob: BUILT_IN,
                number: self.number,
            })
        })
    }

    /// The field of that name, searched from `cursor` on.
    #[inline]
    pub(super) fn known(self, name: &str, cursor: &mut usize) -> Option<Known<'a>> {
        if let Some(plan) = self.plan() {
            let number = plan.find(name, cursor)?;
            let field = plan.field(number);
            return Some(Known {
                key: Key::Known(field.name),
                name: field.name,
                ty: field.ty,
                go: field.go,
                number,
            });
        }
        let field = self.field(name)?;
        let first = self.fields().next().map_or(0, |field| field.number);
        Some(Known {
            key: Key::from(field.name().to_owned()),
            name: field.name(),
            ty: field.ty(),
            go: field.go_mark(),
            number: (field.number - first) as usize,
        })
    }
}
