//! A real directory.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{FallocateFlags, FlockOperation};

use super::{Disk, DiskFile, refuse_published};
use crate::store::files;
use crate::store::map::Map;

/// A directory of the file system.
pub struct RealDisk {
    directory: PathBuf,
    writable: bool,
    /// Device and inode of the file that was locked last.
    locked: Mutex<Option<(u64, u64)>>,
}

impl RealDisk {
    /// The directory at `directory`, made if it is missing (mode 0700: it holds Secrets).
    pub fn create(directory: impl Into<PathBuf>) -> io::Result<RealDisk> {
        use std::os::unix::fs::DirBuilderExt;
        let directory = directory.into();
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)?;
        Ok(RealDisk {
            directory,
            writable: true,
            locked: Mutex::default(),
        })
    }

    /// An existing directory, of which nothing will be changed.
    pub fn read_only(directory: impl Into<PathBuf>) -> io::Result<RealDisk> {
        let directory = directory.into();
        std::fs::read_dir(&directory)?;
        Ok(RealDisk {
            directory,
            writable: false,
            locked: Mutex::default(),
        })
    }

    /// Where the directory is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn refuse_read_only(&self) -> io::Result<()> {
        if self.writable {
            Ok(())
        } else {
            Err(io::Error::new(
                io::ErrorKind::ReadOnlyFilesystem,
                "the data directory was opened for reading only",
            ))
        }
    }
}

impl Disk for RealDisk {
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        let path = self.directory.join(files::LOCK);
        let file = if self.writable {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(path)?
        } else {
            match File::open(path) {
                // Nobody has ever run a server here, so nobody holds the lock.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Box::new(())),
                other => other?,
            }
        };
        let operation = if self.writable {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        rustix::fs::flock(&file, operation)?;
        *self.locked.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity(&file.metadata()?));
        Ok(Box::new(file))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
                && name != files::LOCK
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.refuse_read_only()?;
        let path = self.directory.join(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        Ok(Arc::new(RealFile::new(file, name)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(self.writable)
            .open(self.directory.join(name))?;
        Ok(Arc::new(RealFile::new(file, name)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.refuse_read_only()?;
        std::fs::rename(self.directory.join(from), self.directory.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.refuse_read_only()?;
        std::fs::remove_file(self.directory.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }

    fn check_in_place(&self) -> io::Result<()> {
        let locked = *self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        let found = std::fs::metadata(self.directory.join(files::LOCK)).map(|found| identity(&found))?;
        match locked {
            Some(locked) if locked != found => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "another directory is in its place",
            )),
            _ => Ok(()),
        }
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

/// What tells a file from every other that exists at the same time.
fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

struct RealFile {
    file: File,
    name: Box<str>,
    map: Mutex<Weak<Map>>,
}

impl RealFile {
    fn new(file: File, name: &str) -> RealFile {
        RealFile {
            file,
            name: name.into(),
            map: Mutex::new(Weak::new()),
        }
    }

    fn current_map(&self) -> Option<Arc<Map>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len) {
            // File systems without fallocate: reserve by writing zeroes.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                let zeroes = vec![0; 1 << 20];
                let mut at = self.len()?;
                while at < len {
                    let step = (len - at).min(zeroes.len() as u64);
                    self.file.write_all_at(&zeroes[..step as usize], at)?;
                    at += step;
                }
                Ok(())
            }
            other => Ok(other?),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        refuse_published(self.current_map().as_ref(), offset)?;
        self.file.write_all_at(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    fn check_in_place(&self) -> io::Result<()> {
        if self.file.metadata()?.nlink() > 0 {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("the file {} was removed", self.name),
        ))
    }

    fn map(&self) -> io::Result<Arc<Map>> {
        let mut slot = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(map) = slot.upgrade() {
            return Ok(map);
        }
        let map = Arc::new(Map::new(&self.file, self.file.metadata()?.len() as usize, &self.name)?);
        *slot = Arc::downgrade(&map);
        Ok(map)
    }
}
