//! The `flatkube` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    flatkube::cli::main()
}
