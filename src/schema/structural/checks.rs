//! What a schema demands of values beside their type.

use super::arena::Run;
use super::formats::Format;

/// One demand: 16 bytes. Floating point numbers are their bits, so that equal demands are found to be equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Check {
    /// Branches, at least one of which holds.
    AnyOf(Run),
    /// Branches, just one of which holds.
    OneOf(Run),
    /// Branches, all of which hold.
    AllOf(Run),
    /// A node that does not hold.
    Not(u32),
    /// Characters of a text.
    MaxLength(i64),
    MinLength(i64),
    /// In `patterns`.
    Pattern(u32),
    Format(Format),
    /// A format that is not known, a name. Only defaults mind it.
    OtherFormat(u32),
    MultipleOf(u64),
    Maximum(u64),
    Below(u64),
    Minimum(u64),
    Above(u64),
    MinItems(i64),
    MaxItems(i64),
    UniqueItems,
    /// Values.
    Enum(Run),
    MinProperties(i64),
    MaxProperties(i64),
    /// Names.
    Required(Run),
}
