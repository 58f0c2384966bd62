//! `flatkube store verify --repair`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::{Directory, STORE_FOLDER};
use super::verify;
use crate::cli::progress::Quiet;
use crate::cli::{Exit, Failure};
use crate::resources::KindArchiver;
use crate::store::disk::{Disk, RealDisk};
use crate::store::repair::{Diagnosis, RepairError, examine};
use crate::store::{Options, files};

/// What `--repair` may do.
pub(super) struct Permission {
    pub(super) dry_run: bool,
    pub(super) accept_loss: bool,
}

pub(super) fn run(directory: &Path, permission: &Permission, quiet: Quiet) -> Result<(), Failure> {
    let inside = directory.join(STORE_FOLDER);
    let store = if inside.is_dir() { inside } else { directory.to_owned() };
    if !fs::read_dir(&store).is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(|entry| is_of_store(&entry))))
    {
        return Err(
            Failure::new(Exit::Failure, format!("there is no store in {}", directory.display()))
                .advise("name the directory that was given to 'flatkube server --data-dir'"),
        );
    }
    let disk = if permission.dry_run {
        RealDisk::read_only(&store)
    } else {
        RealDisk::create(&store)
    };
    let disk: Arc<dyn Disk> = Arc::new(disk.map_err(|error| Failure::io("open", &store, &error))?);
    let lock = disk
        .lock()
        .map_err(|error| super::directory::lock_failed(&store, &error))?;

    let bar = quiet.bytes(Some(bytes_of(&store)?), "look");
    let diagnosis =
        examine(&*disk, &KindArchiver::default(), &|bytes| bar.inc(bytes)).map_err(|error| failed(&error))?;
    bar.finish_and_clear();
    for damaged in &diagnosis.damaged {
        eprintln!("{}: offset {}: {}", damaged.file, damaged.offset, damaged.reason);
    }
    if diagnosis.is_sound() && diagnosis.leftovers.is_empty() {
        return super::print(b"sound: nothing is to be repaired\n");
    }
    super::print(report(&diagnosis, permission.dry_run).as_bytes())?;
    let (damaged, lost) = (diagnosis.damaged.len(), diagnosis.losses.len());
    let places = if damaged == 1 { "place is" } else { "places are" };
    if permission.dry_run {
        if damaged == 0 {
            return Ok(());
        }
        return Err(Failure::new(
            Exit::Damaged,
            format!("{damaged} {places} damaged; nothing was changed"),
        )
        .advise("do it: the same command without --dry-run"));
    }
    if lost > 0 && !permission.accept_loss {
        return Err(Failure::new(
            Exit::Damaged,
            "something cannot be saved, as named above; nothing was changed",
        )
        .advise(
            "restore a backup, if there is one; or lose exactly what is named: the same command with --accept-loss",
        ));
    }
    let aside = put_aside(directory, &store, &diagnosis)?;
    let bar = quiet.bytes(None, "repair");
    let options = Options::default();
    let done = diagnosis.carry_out(&disk, &KindArchiver::default(), options.part_bytes, &|bytes| {
        bar.inc(bytes);
    });
    bar.finish_and_clear();
    done.map_err(|error| failed(&error))?;
    drop(lock);
    verify::run(&Directory::open(&store)?, quiet)?;
    eprintln!(
        "repaired; the files as they were are in {}: remove it when nobody misses anything",
        aside.display()
    );
    Ok(())
}

fn is_of_store(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    name.to_str()
        .is_some_and(|name| name == files::MANIFEST || files::is_disposable(name))
}

fn report(diagnosis: &Diagnosis, dry_run: bool) -> String {
    use std::fmt::Write as _;
    let mut report = String::new();
    let _ = writeln!(report, "{}", if dry_run { "would be done:" } else { "to be done:" });
    for line in diagnosis.plan() {
        let _ = writeln!(report, "  {line}");
    }
    if diagnosis.losses.is_empty() {
        let _ = writeln!(report, "lost: nothing");
    } else {
        let _ = writeln!(report, "lost:");
    }
    for loss in &diagnosis.losses {
        let _ = writeln!(report, "  {loss}");
    }
    report
}

fn bytes_of(store: &Path) -> Result<u64, Failure> {
    let sum = fs::read_dir(store).and_then(|entries| {
        entries
            .map(|entry| entry?.metadata())
            .try_fold(0, |sum, metadata| Ok(sum + metadata?.len()))
    });
    sum.map_err(|error| Failure::io("read", store, &error))
}

fn failed(error: &RepairError) -> Failure {
    let exit = match error {
        RepairError::NewerFormat(_) => Exit::NewerFormat,
        RepairError::Hopeless(_) => Exit::Damaged,
        RepairError::Io { source, .. } => Exit::of_io(source),
    };
    Failure::new(exit, error.to_string())
}

/// Gives every file of the store a second name in a folder of its own. A segment that the next server goes on writing is copied.
fn put_aside(directory: &Path, store: &Path, diagnosis: &Diagnosis) -> Result<PathBuf, Failure> {
    use std::os::unix::fs::DirBuilderExt as _;
    let aside = directory.join(jiff::Timestamp::now().strftime("aside-%Y-%m-%dT%H-%M-%SZ").to_string());
    let kept = fs::DirBuilder::new().mode(0o700).create(&aside).and_then(|()| {
        for entry in fs::read_dir(store)? {
            let entry = entry?;
            if !entry.file_type()?.is_file() || entry.file_name() == files::LOCK {
                continue;
            }
            let (from, to) = (entry.path(), aside.join(entry.file_name()));
            let is_written_on = entry
                .file_name()
                .to_str()
                .is_some_and(|name| diagnosis.is_written_on(name));
            if is_written_on || fs::hard_link(&from, &to).is_err() {
                fs::copy(&from, &to)?;
                File::open(&to)?.sync_all()?;
            }
        }
        File::open(&aside)?.sync_all()?;
        File::open(directory)?.sync_all()
    });
    kept.map_err(|error: io::Error| Failure::io("keep the originals in", &aside, &error))?;
    Ok(aside)
}
