//! `flatkube store backup` and `flatkube store restore`.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use flatkube_format::manifest::Manifest;
use indicatif::{HumanBytes, HumanDuration, ProgressBar};

use super::directory::{Directory, STORE_FOLDER};
use super::verify;
use crate::api::backup::{PATH, REVISION};
use crate::cli::client::{Client, Download};
use crate::cli::progress::Quiet;
use crate::cli::{Exit, Failure, kubeconfig};
use crate::store::files;

#[derive(Debug, clap::Args)]
#[command(
    long_about = "Takes a backup of a running server: one file with everything that is stored, at one revision, and the \
        history before it. Neither reads nor writes wait for it. It holds every Secret; the file is readable for its owner \
        only. Certificates and keys (the folder pki in the data directory) are not in it.",
    after_long_help = "\
Examples:
      flatkube store backup --output monday.tar
      flatkube store backup --output - | ssh elsewhere 'cat > monday.tar'"
)]
pub(in crate::cli) struct Backup {
    /// The file to write, which must not exist yet; - for standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// The kubeconfig of the server; its user must be in the group system:masters
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", default_value_os_t = kubeconfig::default_path())]
    kubeconfig: PathBuf,

    #[command(flatten)]
    quiet: Quiet,
}

#[derive(Debug, clap::Args)]
#[command(
    long_about = "Makes a data directory of a backup, which flatkube server can be started on. Every checksum is checked \
        before the directory counts as one. Put the folder pki of the old data directory beside the store to keep its \
        certificates; without it the server makes new ones.",
    after_long_help = "\
Examples:
      flatkube store restore monday.tar ./restored && flatkube server --data-dir ./restored

  Clients that saw later revisions than the backup's must not meet them again with other contents:
      flatkube store restore monday.tar ./restored --bump-revisions"
)]
pub(in crate::cli) struct Restore {
    /// The backup; - for standard input
    file: PathBuf,

    /// The data directory to make; what is in it must not be a store
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Go on at a revision 2^32 higher, and without history, so that clients list anew
    #[arg(long)]
    bump_revisions: bool,

    #[command(flatten)]
    quiet: Quiet,
}

/// Standard input or output.
pub(super) fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

pub(super) fn back_up(arguments: &Backup) -> Result<(), Failure> {
    let client = Client::new(&kubeconfig::read(&arguments.kubeconfig)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failure, format!("cannot start the runtime: {error}")))?;
    let started = Instant::now();
    if is_standard(&arguments.output) {
        let output = &mut io::stdout().lock();
        return runtime
            .block_on(download(&client, output, &arguments.output, arguments.quiet))
            .map(|_| ());
    }
    let output = &arguments.output;
    let failed = |doing| move |error: io::Error| Failure::io(doing, output, &error);
    let mut file = create_new(output)?;
    let taken = runtime
        .block_on(download(&client, &mut file, output, arguments.quiet))
        .and_then(|taken| {
            file.sync_all().map_err(failed("sync"))?;
            Ok(taken)
        })
        // Half a backup is none.
        .inspect_err(|_| drop(fs::remove_file(output)))?;
    if !arguments.quiet.is_quiet() {
        eprintln!(
            "revision {}, {}, in {}: {}",
            taken.revision,
            HumanBytes(taken.bytes),
            HumanDuration(started.elapsed()),
            output.display()
        );
    }
    Ok(())
}

/// A new file that only its owner may read.
pub(super) fn create_new(path: &Path) -> Result<File, Failure> {
    create(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::new(Exit::Usage, format!("{} exists already", path.display()))
            .advise("name another file, or remove it"),
        _ => Failure::io("create", path, &error),
    })
}

fn create(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

struct Taken {
    revision: String,
    bytes: u64,
}

async fn download(client: &Client, output: &mut impl Write, path: &Path, quiet: Quiet) -> Result<Taken, Failure> {
    let Download { mut body, headers, len } = client.download(PATH).await?;
    let revision = headers.get(REVISION).and_then(|value| value.to_str().ok());
    let revision = revision.unwrap_or("unknown").to_owned();
    let bar: ProgressBar = quiet.bytes(len, "backup");
    let mut bytes = 0;
    while let Some(data) = body.next().await? {
        output
            .write_all(&data)
            .map_err(|error| Failure::io("write", path, &error))?;
        bytes += data.len() as u64;
        bar.set_position(bytes);
    }
    output.flush().map_err(|error| Failure::io("write", path, &error))?;
    bar.finish_and_clear();
    if len.is_some_and(|len| len != bytes) {
        return Err(Failure::new(Exit::Failure, "the server's answer broke off").advise("try again"));
    }
    Ok(Taken { revision, bytes })
}

pub(super) fn restore(arguments: &Restore) -> Result<(), Failure> {
    let directory = &arguments.directory;
    let store = directory.join(STORE_FOLDER);
    if store.exists() {
        return Err(
            Failure::new(Exit::Usage, format!("{} has a store already", directory.display()))
                .advise("name a new directory: nothing is overwritten"),
        );
    }
    fs::create_dir_all(directory).map_err(|error| Failure::io("create", directory, &error))?;
    // It gets its name when it is whole.
    let unfinished = tempfile::Builder::new()
        .prefix("restoring-")
        .tempdir_in(directory)
        .map_err(|error| Failure::io("create a folder in", directory, &error))?;
    let (input, len): (Box<dyn Read>, _) = if is_standard(&arguments.file) {
        (Box::new(io::stdin().lock()), None)
    } else {
        let file = File::open(&arguments.file).map_err(|error| Failure::io("open", &arguments.file, &error))?;
        let len = file.metadata().map(|metadata| metadata.len()).ok();
        (Box::new(file), len)
    };
    let bar = arguments.quiet.bytes(len, "restore");
    unpack(bar.wrap_read(input), unfinished.path(), &arguments.file)?;
    bar.finish_and_clear();
    verify::run(&Directory::open(unfinished.path())?, arguments.quiet)?;
    if arguments.bump_revisions {
        bump(&unfinished.path().join(files::MANIFEST))?;
    }
    let finished = unfinished.keep();
    fs::rename(&finished, &store)
        .and_then(|()| File::open(directory)?.sync_all())
        .map_err(|error| Failure::io("put into place", &store, &error))
}

/// Unpacks the files of a store, and nothing else.
fn unpack(input: impl Read, into: &Path, archive: &Path) -> Result<(), Failure> {
    let unusable = |error: io::Error| {
        Failure::new(Exit::Damaged, format!("{} is no backup: {error}", archive.display()))
            .advise("it may have been cut off; take another")
    };
    let mut whole = false;
    for entry in tar::Archive::new(input).entries().map_err(unusable)? {
        let mut entry = entry.map_err(unusable)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let is_file = entry.header().entry_type().is_file();
        if !is_file || name.contains('/') || !(name == files::MANIFEST || files::is_disposable(&name)) {
            return Err(unusable(io::Error::other(format!("{name:?} is no file of a store"))));
        }
        whole |= name == files::MANIFEST;
        let path = into.join(&name);
        let written = create(&path).and_then(|file| {
            let mut file = BufWriter::with_capacity(1 << 20, file);
            io::copy(&mut entry, &mut file)?;
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
        });
        written.map_err(|error| Failure::io("write", &path, &error))?;
    }
    if !whole {
        return Err(unusable(io::Error::other("it has no manifest")));
    }
    Ok(())
}

/// Makes the manifest one of a server without syncs that ended uncleanly: after which revisions jump and history starts
/// anew.
fn bump(path: &Path) -> Result<(), Failure> {
    let failed = |doing| move |error: io::Error| Failure::io(doing, path, &error);
    let bytes = fs::read(path).map_err(failed("read"))?;
    let damaged = |error: flatkube_format::FormatError| {
        Failure::new(Exit::Damaged, format!("{}: {}", path.display(), error.reason))
    };
    let manifest = Manifest {
        durability_os: true,
        clean: false,
        ..Manifest::decode(&bytes).map_err(damaged)?
    };
    let bytes = manifest.encode().map_err(damaged)?;
    fs::write(path, bytes)
        .and_then(|()| File::open(path)?.sync_all())
        .map_err(failed("write"))
}
