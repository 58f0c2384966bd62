//! The `flatkube` command.

fn main() {}
