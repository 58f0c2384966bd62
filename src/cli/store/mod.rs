//! `flatkube store`: looking into the data directory of a stopped server.

use std::io::{self, Write};
use std::path::PathBuf;

use super::{Exit, Failure};

/// The tools for a stopped server's data.
#[derive(Debug, clap::Subcommand)]
#[command(
    long_about = "Tools for the files of a stopped server. They change nothing, and refuse a directory that a server \
        is using: what they say about files in motion would be wrong."
)]
pub(super) enum Command {
    /// Show a table of what is stored, by resource
    Stats(Stats),
    /// Check every checksum and every archive
    #[command(after_long_help = "\
Examples:
      flatkube store verify ./data && echo sound

Exits with 6 on damage, after naming each damaged place as FILE: offset N: REASON.")]
    Verify(Directory),
    /// Show one object: its record, its sidecar, and where it lies
    Inspect(Inspect),
    /// Write all objects as JSON lines
    Export(Export),
}

#[derive(Debug, clap::Args)]
pub(super) struct Directory {
    /// The data directory of the server (or the store directory in it)
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
      flatkube store stats ./data")]
pub(super) struct Stats {
    #[command(flatten)]
    directory: Directory,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
      flatkube store inspect ./data pods default/web-0
      flatkube store inspect ./data nodes node-0001
      flatkube store inspect ./data deployments.apps shop/cart")]
pub(super) struct Inspect {
    #[command(flatten)]
    directory: Directory,

    /// The storage resource: the plural, and the group behind a dot where there is one
    resource: String,

    /// NAMESPACE/NAME, or NAME for what has no namespace
    key: String,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  All objects, one a line, each as {\"resource\":...,\"key\":...,\"revision\":...,\"object\":{...}}:
      flatkube store export ./data > objects.jsonl

  Only the Pods' names:
      flatkube store export ./data --resource pods | jq -r .key")]
pub(super) struct Export {
    #[command(flatten)]
    directory: Directory,

    /// Only this storage resource (such as pods or deployments.apps)
    #[arg(long)]
    resource: Option<String>,
}

pub(super) fn run(command: &Command) -> Result<(), Failure> {
    let directory = match command {
        Command::Stats(arguments) => &arguments.directory,
        Command::Verify(directory) => directory,
        Command::Inspect(arguments) => &arguments.directory,
        Command::Export(arguments) => &arguments.directory,
    };
    let _ = (command_line_resource(command), &directory.directory);
    Err(Failure::new(Exit::Failure, "this version cannot look into stores"))
}

fn command_line_resource(command: &Command) -> Option<(&str, Option<&str>)> {
    match command {
        Command::Inspect(arguments) => Some((&arguments.resource, Some(&arguments.key))),
        Command::Export(arguments) => arguments.resource.as_deref().map(|resource| (resource, None)),
        _ => None,
    }
}

/// Writes to standard output. A reader that went away (`| head`) ends the command without a complaint.
pub(super) fn print(text: &[u8]) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    match output.write_all(text).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(
            Exit::of_io(&error),
            format!("cannot write to standard output: {error}"),
        )),
        _ => Ok(()),
    }
}
