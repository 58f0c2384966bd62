//! `flatkube completions`: what a shell needs to complete our command line.

use clap::CommandFactory;
use clap_complete::Shell;

use super::{CommandLine, Failure};

/// Arguments of `flatkube completions`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  bash, for this user:
      mkdir -p ~/.local/share/bash-completion/completions
      flatkube completions bash > ~/.local/share/bash-completion/completions/flatkube

  zsh, into a directory of $fpath:
      flatkube completions zsh > ~/.zfunc/_flatkube

  fish:
      flatkube completions fish > ~/.config/fish/completions/flatkube.fish")]
pub(super) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut CommandLine::command(), "flatkube", &mut text);
    super::store::print(&text)
}
