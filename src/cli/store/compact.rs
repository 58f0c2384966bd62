//! `flatkube store compact`: everything on shelves, history gone, of a running server or of a stopped one's directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use indicatif::HumanBytes;

use super::directory::Directory;
use crate::api::compact::{Compacted, PATH, compact};
use crate::api::server::StartError;
use crate::cli::client::{Client, JSON};
use crate::cli::progress::Quiet;
use crate::cli::{Exit, Failure, kubeconfig};
use crate::resources::KindArchiver;
use crate::store::disk::RealDisk;
use crate::store::{Durability, Options, Store};

#[derive(Debug, clap::Args)]
#[command(
    long_about = "Moves everything that is in the log to shelves and lets history go: of a running server, or, with DIR, of a stopped \
        one. A running server does both by itself as time passes (history: five minutes, or 64 MiB if that is more); this does it \
        now. It is what 'etcdctl compact' and 'etcdctl defrag' are for etcd, in one, and neither reads nor writes wait for it. \
        Watches that are up to date go on; one that resumes from a revision that was let go has to list again. The log \
        goes on in a segment of 1 MiB.",
    after_long_help = "\
Examples:
  Of a running server:
      flatkube store compact
      flatkube store compact --keep-history 10m

  Of a directory, before it is copied:
      flatkube store compact ./data"
)]
pub(in crate::cli) struct Compact {
    /// The data directory of a stopped server; without it a running server is asked
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Let go only what is older than this, as far as whole segments of the log are (such as 10m or 2h)
    #[arg(long, value_name = "AGE", value_parser = age)]
    keep_history: Option<Duration>,

    /// The kubeconfig of the server; its user must be in the group system:masters
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", default_value_os_t = kubeconfig::default_path())]
    kubeconfig: PathBuf,

    #[command(flatten)]
    quiet: Quiet,
}

fn age(text: &str) -> Result<Duration, String> {
    let age: jiff::SignedDuration = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    Duration::try_from(age).map_err(|_| "an age is not negative".to_owned())
}

/// Whole seconds that keep no less: nought would let all history go.
fn whole_seconds(age: Duration) -> u64 {
    age.as_secs().saturating_add(u64::from(age.subsec_nanos() > 0))
}

pub(super) fn run(arguments: &Compact) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failure, format!("cannot start the runtime: {error}")))?;
    let keep = arguments.keep_history.unwrap_or_default();
    let bar = arguments.quiet.bytes(None, "compact");
    bar.enable_steady_tick(Duration::from_millis(100));
    let compacted = if let Some(directory) = &arguments.directory {
        of_directory(&runtime, directory, keep)?
    } else {
        let client = Client::new(&kubeconfig::read(&arguments.kubeconfig)?)?;
        let path = format!("{PATH}?keepSeconds={}", whole_seconds(keep));
        let answer = runtime.block_on(client.send(Method::POST, &path, JSON, Bytes::new()))?;
        serde_json::from_slice(&answer)
            .map_err(|error| Failure::new(Exit::Failure, format!("the server's answer is not understood: {error}")))?
    };
    bar.finish_and_clear();
    if arguments.quiet.is_quiet() {
        return Ok(());
    }
    let Compacted {
        revision,
        before,
        after,
    } = compacted;
    super::print(
        format!(
            "revision {revision}: log {} -> {}, shelves {} -> {}\n",
            HumanBytes(before.log_bytes),
            HumanBytes(after.log_bytes),
            HumanBytes(before.shelf_bytes),
            HumanBytes(after.shelf_bytes),
        )
        .as_bytes(),
    )
}

fn of_directory(runtime: &tokio::runtime::Runtime, directory: &Path, keep: Duration) -> Result<Compacted, Failure> {
    let (path, durability) = {
        let opened = Directory::open(directory)?;
        let is_os = opened.manifest().durability_os;
        (
            opened.path().to_owned(),
            if is_os { Durability::Os } else { Durability::Fsync },
        )
    };
    let smallest = Options::default().segment_bytes_first;
    let options = Options {
        durability,
        background: false,
        committer_thread: false,
        segment_bytes: smallest,
        history_bytes: u64::MAX,
        shelve_pause: Duration::ZERO,
        ..Options::default()
    };
    let disk = RealDisk::create(&path).map_err(|error| Failure::io("open", &path, &error))?;
    let store = Store::open(Arc::new(disk), options, Arc::new(KindArchiver::default()));
    let store = store.map_err(|error| crate::cli::server::explain(StartError::Store(error)))?;
    let compacted = runtime.block_on(compact(&store, keep));
    store.close();
    compacted.map_err(|error| {
        let exit = match error {
            crate::store::ShelveError::NoSpace => Exit::DiskFull,
            crate::store::ShelveError::Damaged => Exit::Damaged,
            _ => Exit::Failure,
        };
        Failure::new(exit, error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_not_cut_short_to_whole_seconds() {
        for (text, seconds) in [("500ms", 1), ("1s", 1), ("1s 1ns", 2), ("2h", 7200), ("0s", 0)] {
            assert_eq!(whole_seconds(age(text).unwrap()), seconds, "{text}");
        }
        assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
    }
}
