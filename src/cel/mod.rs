//! The Common Expression Language, as Kubernetes speaks it: the rules of custom resources, policies, match conditions.
//!
//! From text to answer: `lexer` and `parser` (with `macros`) make a tree, `check` finds the type of every part and which function
//! each call means (`declarations`, `unify`), `cost` tells how dear it can become, `program` keeps what is ready to run, `machine`
//! runs it over [`crate::tree::Value`]s that it borrows. `shape` is what expressions see of a schema, `functions` is what can be
//! called, `rules` is `x-kubernetes-validations`. What differs from kube-apiserver stands in `docs/cel.md`.
//!
//! Everything is bounded: expressions in length and depth, types in weight, runs in cost and in work, patterns in size.

mod ast;
pub mod authorizer;
#[cfg(test)]
mod bounds;
mod check;
mod cost;
mod declarations;
mod environment;
mod functions;
mod identity;
mod lazy;
mod lexer;
mod machine;
mod macros;
mod parser;
mod program;
pub mod rules;
pub mod run;
#[cfg(test)]
mod semantics;
mod shape;
mod source;
mod tree;
mod types;
mod unify;
mod value;
mod words;

pub use environment::Environment;
pub use program::Program;
pub use source::CompileError;
pub use words::is_identifier;
