//! The commands of the `flatkube` binary.
