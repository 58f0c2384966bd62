//! Events as lines of a file, which is renamed when it is large, or of the standard output.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::sink::Backend;

/// How the file is kept.
#[derive(Debug, Clone, Default)]
pub struct Rotation {
    /// Bytes above which a file is put aside.
    pub bytes_max: u64,
    /// How long files that were put aside are kept; `None`: as long as there are not too many.
    pub age_max: Option<Duration>,
    /// How many of them are kept; `None`: any number.
    pub kept_max: Option<usize>,
    /// Whether they are compressed (gzip).
    pub compress: bool,
}

/// A file of lines.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    bytes: u64,
    /// Compresses and removes what was put aside.
    tidying: Option<JoinHandle<()>>,
}

impl Log {
    /// Opens or makes the file, for its owner alone.
    pub(super) fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        let file = open(path)?;
        Ok(Self {
            path: path.to_owned(),
            rotation,
            bytes: file.metadata()?.len(),
            file,
            tidying: None,
        })
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.bytes > 0 && self.bytes + lines.len() as u64 > self.rotation.bytes_max {
            self.rotate()?;
        }
        self.file.write_all(lines)?;
        self.bytes += lines.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let aside = self.name(&jiff::Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S%.6f").to_string());
        fs::rename(&self.path, &aside)?;
        self.file = open(&self.path)?;
        self.bytes = 0;
        if self.tidying.as_ref().is_none_or(JoinHandle::is_finished) {
            let (path, rotation) = (self.path.clone(), self.rotation.clone());
            let tidy = move || {
                if let Err(error) = tidy(&path, &rotation, SystemTime::now()) {
                    tracing::warn!(%error, "old audit logs are not tidied");
                }
            };
            self.tidying = thread::Builder::new().name("audit-tidy".into()).spawn(tidy).ok();
        }
        Ok(())
    }

    /// The name of a file that is put aside.
    fn name(&self, time: &str) -> PathBuf {
        let (stem, extension) = parts(&self.path);
        self.path.with_file_name(format!("{stem}-{time}{extension}"))
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Some(tidying) = self.tidying.take() {
            let _ = tidying.join();
        }
    }
}

impl Backend for Log {
    fn write(&mut self, events: &[Bytes], _: &AtomicBool) -> Result<(), String> {
        self.append(&joined(events))
            .map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

/// The standard output.
#[derive(Debug)]
pub(super) struct Output;

impl Backend for Output {
    fn write(&mut self, events: &[Bytes], _: &AtomicBool) -> Result<(), String> {
        let mut output = io::stdout().lock();
        let written = output.write_all(&joined(events)).and_then(|()| output.flush());
        written.map_err(|error| format!("standard output: {error}"))
    }
}

fn joined(events: &[Bytes]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(events.iter().map(|event| event.len() + 1).sum());
    for event in events {
        lines.extend_from_slice(event);
        lines.push(b'\n');
    }
    lines
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// A file's name before its extension, and the extension with its point.
fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| part.map(|it| it.to_string_lossy().into_owned());
    let extension = text(path.extension()).map_or_else(String::new, |it| format!(".{it}"));
    (text(path.file_stem()).unwrap_or_default(), extension)
}

/// Removes what is too old or too much of what was put aside, and compresses the rest.
fn tidy(path: &Path, rotation: &Rotation, now: SystemTime) -> io::Result<()> {
    let (stem, extension) = parts(path);
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let prefix = format!("{stem}-");
    let mut aside = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let time = plain
            .strip_prefix(&prefix)
            .and_then(|rest| rest.strip_suffix(&extension));
        // Names of our own begin with a year; nobody else's file is touched.
        if time.is_some_and(|time| time.len() >= 19 && time.as_bytes()[10] == b'T') {
            aside.push((name, entry.path()));
        }
    }
    // By time, the newest first.
    aside.sort_by(|one, other| other.cmp(one));
    for (index, (_, path)) in aside.iter().enumerate() {
        let age = fs::metadata(path)
            .and_then(|metadata| metadata.modified())
            .ok()
            .and_then(|modified| now.duration_since(modified).ok());
        let is_old = rotation.age_max.is_some_and(|max| age.is_some_and(|age| age > max));
        if is_old || rotation.kept_max.is_some_and(|max| index >= max) {
            fs::remove_file(path)?;
        } else if rotation.compress && path.extension().is_none_or(|extension| extension != "gz") {
            compress(path)?;
        }
    }
    Ok(())
}

fn compress(path: &Path) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    let target = PathBuf::from(name);
    // What a process left that ended in the middle is made anew.
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&target)?;
    let mut encoder = GzEncoder::new(file, Compression::default());
    io::copy(&mut File::open(path)?, &mut encoder)?;
    encoder.finish()?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_large_file_is_put_aside_compressed_and_too_many_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let rotation = Rotation {
            bytes_max: 10,
            kept_max: Some(2),
            compress: true,
            ..Rotation::default()
        };
        let mut log = Log::open(&path, rotation).unwrap();
        for text in ["one", "two", "three", "four", "five", "six"] {
            let event = Bytes::from(format!("{{{text}}}"));
            log.write(&[event], &AtomicBool::new(false)).unwrap();
            if let Some(tidying) = log.tidying.take() {
                tidying.join().unwrap();
            }
        }
        drop(log);
        assert_eq!(fs::read_to_string(&path).unwrap(), "{six}\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let aside = names(folder.path());
        assert_eq!(aside.len(), 3, "{aside:?}");
        let newest = aside.iter().rfind(|name| name.ends_with(".log.gz")).unwrap();
        let mut text = String::new();
        let file = File::open(folder.path().join(newest)).unwrap();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        assert_eq!(text, "{five}\n");
    }

    #[test]
    fn old_files_go_and_those_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        for name in [
            "audit.log",
            "audit-2020-01-01T00-00-00.000000.log",
            "audit-notes.log",
            "audit-other.txt",
        ] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        let rotation = Rotation {
            age_max: Some(Duration::from_mins(1)),
            ..Rotation::default()
        };
        let later = SystemTime::now() + Duration::from_secs(100);
        tidy(&path, &rotation, later).unwrap();
        assert_eq!(
            names(folder.path()),
            ["audit-notes.log", "audit-other.txt", "audit.log"]
        );
    }
}
