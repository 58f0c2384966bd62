//! Where a value stands in its object, put into words only when something is wrong with it.

use std::fmt;

/// A path from the root, a chain on the stack.
#[derive(Clone, Copy)]
pub(super) struct Path<'p> {
    before: Option<&'p Path<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Root,
    /// A named field: no dot at the root.
    Field(&'p str),
    /// A field that the schema does not name: with a dot at the root too, as upstream words it.
    Entry(&'p str),
    /// A field in brackets.
    Bracketed(&'p str),
    Index(usize),
}

impl<'p> Path<'p> {
    pub(super) const ROOT: Path<'static> = Path {
        before: None,
        step: Step::Root,
    };

    fn then<'n>(&'n self, step: Step<'n>) -> Path<'n>
    where
        'p: 'n,
    {
        Path {
            before: Some(self),
            step,
        }
    }

    pub(super) fn field<'n>(&'n self, name: &'n str) -> Path<'n> {
        self.then(Step::Field(name))
    }

    pub(super) fn entry<'n>(&'n self, name: &'n str) -> Path<'n> {
        self.then(Step::Entry(name))
    }

    pub(super) fn bracketed<'n>(&'n self, name: &'n str) -> Path<'n> {
        self.then(Step::Bracketed(name))
    }

    pub(super) fn index(&self, index: usize) -> Path<'_> {
        self.then(Step::Index(index))
    }

    pub(super) fn is_root(&self) -> bool {
        matches!(self.step, Step::Root)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(before) = self.before else { return Ok(()) };
        before.fmt(f)?;
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) if before.is_root() => f.write_str(name),
            Step::Field(name) | Step::Entry(name) => write!(f, ".{name}"),
            Step::Bracketed(name) => write!(f, "[{name}]"),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}
