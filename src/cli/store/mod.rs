//! `flatkube store`: looking into the data directory of a stopped server; backups of a running one.

mod backup;
mod compact;
mod directory;
mod documents;
mod export;
mod import;
mod inspect;
mod live;
mod repair;
mod stats;
mod verify;

use std::io::{self, Write};
use std::path::PathBuf;

use super::progress::Quiet;
use super::{Exit, Failure};
use directory::Directory as Opened;

/// The tools for a server's data.
#[derive(Debug, clap::Subcommand)]
#[command(
    long_about = "Tools for the data of a server. backup, compact and import ask a running one. The others look at the files of a stopped \
        one: they change nothing unless they are told to, and refuse a directory that a server is using, because what they say about files in \
        motion would be wrong."
)]
pub(super) enum Command {
    /// Show a table of what is stored, by resource
    Stats(Stats),
    /// Check every checksum and every archive; repair what is damaged
    Verify(Verify),
    /// Show one object: its record, its sidecar, and where it lies
    Inspect(Inspect),
    /// Write all objects as JSON lines
    Export(export::Export),
    /// Write objects from a file or a live cluster into a running server
    Import(import::Import),
    /// Take a backup of a running server
    Backup(backup::Backup),
    /// Move everything to shelves now and let history go
    Compact(compact::Compact),
    /// Make a data directory of a backup
    Restore(backup::Restore),
}

#[derive(Debug, clap::Args)]
pub(super) struct Directory {
    /// The data directory of the server (or the store directory in it)
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(
    long_about = "Checks every checksum and every archive of a stopped server's directory, and names each damaged place as FILE: \
        offset N: REASON. Nothing is changed without --repair.\n\n\
        With --repair, what is damaged is made whole from what else proves it: a shelf from the log, an index from its \
        objects, a header from the manifest. Then revisions and history stay as they are. What cannot be had from anywhere is \
        named, and given up only with --accept-loss: the rest goes on 2^32 revisions higher and without history, so that \
        clients list again and none believes in what is lost. All files as they were are kept in DIR/aside-DATE (hard links, as \
        far as the file system has them).",
    after_long_help = "\
Examples:
      flatkube store verify ./data && echo sound

  What would be done, and what would be lost:
      flatkube store verify --repair --dry-run ./data

  Mend, if nothing is lost by it:
      flatkube store verify --repair ./data

Exit codes:
  0  sound, or repaired
  3  written in a newer format: nothing was changed
  4  a server is using it: nothing was changed
  6  damaged; with --repair: it cannot be repaired, or not without a loss that was not accepted: nothing was changed"
)]
pub(super) struct Verify {
    #[command(flatten)]
    directory: Directory,

    /// Repair what is damaged, if nothing is lost by it
    #[arg(long)]
    repair: bool,

    /// Say what would be done, and what would be lost, and do nothing
    #[arg(long, requires = "repair")]
    dry_run: bool,

    /// Repair even if what is named as lost is lost by it
    #[arg(long, requires = "repair")]
    accept_loss: bool,

    #[command(flatten)]
    quiet: Quiet,
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

pub(super) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Stats(arguments) => stats::run(&Opened::open(&arguments.directory.directory)?),
        Command::Verify(arguments) => {
            let directory = &arguments.directory.directory;
            if arguments.repair {
                let permission = repair::Permission {
                    dry_run: arguments.dry_run,
                    accept_loss: arguments.accept_loss,
                };
                return repair::run(directory, &permission, arguments.quiet);
            }
            verify::run(&Opened::open(directory)?, arguments.quiet)
        }
        Command::Inspect(arguments) => inspect::run(
            &Opened::open(&arguments.directory.directory)?,
            &arguments.resource,
            &arguments.key,
        ),
        Command::Backup(arguments) => backup::back_up(arguments),
        Command::Compact(arguments) => compact::run(arguments),
        Command::Restore(arguments) => backup::restore(arguments),
        Command::Export(arguments) => export::run(arguments),
        Command::Import(arguments) => import::run(arguments),
    }
}

/// Keeps servers from starting on a data directory while the answer lives.
///
/// # Errors
/// When one runs on it, or there is none.
pub(super) fn hold(data_dir: &std::path::Path) -> Result<impl Sized + use<>, Failure> {
    directory::Directory::open(data_dir)
}

/// Writes to standard output.
pub(super) fn print(text: &[u8]) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    output
        .write_all(text)
        .and_then(|()| output.flush())
        .map_err(|error| output_failed(&error))
}

/// A reader that went away (`| head`) ends the command without a complaint.
fn output_failed(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    Failure::new(Exit::of_io(error), format!("cannot write to standard output: {error}"))
}
