//! Files of the simulated disk: what a process sees of them, and what of that would survive.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Weak};

use rustix::fs::MemfdFlags;

use super::super::{DiskFile, refuse_published};
use super::{Fate, Operation, SimDisk, Survives, lock};
use crate::store::map::Map;
use crate::sync::Mutex;

/// Bytes that a device writes whole or not at all.
const SECTOR: u64 = 512;

/// A file without a name. The order of locks: the disk's state before `Content`.
pub(super) struct SimInode {
    /// What a process reads: the page cache.
    pub(super) file: File,
    content: Mutex<Content>,
}

#[derive(Default)]
struct Content {
    durable: Vec<u8>,
    /// Since the last sync, in order.
    unsynced: Vec<Change>,
    /// What a failed sync left: a later sync does not touch it.
    abandoned: Vec<Change>,
    map: Weak<Map>,
}

enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Length(u64),
}

impl Change {
    /// Applies the sectors of the change that survive.
    fn apply(&self, to: &mut Vec<u8>, survives: Survives<'_>) {
        match self {
            Change::Length(len) => {
                if survives() && *len as usize > to.len() {
                    to.resize(*len as usize, 0);
                }
            }
            Change::Write { offset, bytes } => {
                let end = offset + bytes.len() as u64;
                let mut at = *offset;
                while at < end {
                    let next = ((at / SECTOR + 1) * SECTOR).min(end);
                    if survives() {
                        if to.len() < next as usize {
                            to.resize(next as usize, 0);
                        }
                        let piece = &bytes[(at - offset) as usize..(next - offset) as usize];
                        to[at as usize..next as usize].copy_from_slice(piece);
                    }
                    at = next;
                }
            }
        }
    }

    /// Whether `later` writes all bytes of this change again.
    fn is_covered_by(&self, later: &Change) -> bool {
        match (self, later) {
            (Change::Length(len), Change::Length(later)) => len <= later,
            (Change::Length(len), Change::Write { offset, bytes }) => *len <= offset + bytes.len() as u64,
            (Change::Write { .. }, Change::Length(_)) => false,
            (
                Change::Write { offset, bytes },
                Change::Write {
                    offset: later_offset,
                    bytes: later_bytes,
                },
            ) => later_offset <= offset && offset + bytes.len() as u64 <= later_offset + later_bytes.len() as u64,
        }
    }
}

impl SimInode {
    pub(super) fn empty() -> io::Result<Arc<SimInode>> {
        let file = File::from(rustix::fs::memfd_create("flatkube-sim", MemfdFlags::CLOEXEC)?);
        Ok(Arc::new(SimInode {
            file,
            content: Mutex::default(),
        }))
    }

    pub(super) fn damage(&self, offset: u64, mask: u8) {
        let mut byte = [0];
        self.file.read_exact_at(&mut byte, offset).expect("the byte exists");
        byte[0] ^= mask;
        self.file.write_all_at(&byte, offset).expect("memory");
        lock(&self.content).durable[offset as usize] = byte[0];
    }

    pub(super) fn after_crash(&self, survives: Survives<'_>) -> Arc<SimInode> {
        let content = lock(&self.content);
        let mut bytes = content.durable.clone();
        for change in content.abandoned.iter().chain(&content.unsynced) {
            change.apply(&mut bytes, survives);
        }
        let inode = SimInode::empty().expect("memfd");
        inode.file.write_all_at(&bytes, 0).expect("memory");
        lock(&inode.content).durable = bytes;
        inode
    }
}

/// An open file.
pub(super) struct SimFile {
    pub(super) name: Box<str>,
    pub(super) inode: Arc<SimInode>,
    pub(super) disk: SimDisk,
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.inode.file.metadata()?.len())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.disk.announce(Operation::Allocate, &self.name);
        let mut state = lock(&self.disk.state);
        let fate = state.step(Operation::Allocate)?;
        if fate == Fate::Failed {
            return fate.result();
        }
        let before = self.len()?;
        if len > before {
            if state.used_bytes() + (len - before) > state.bytes_max {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.inode.file.set_len(len)?;
            lock(&self.inode.content).unsynced.push(Change::Length(len));
        }
        fate.result()
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.announce(Operation::Write, &self.name);
        let mut state = lock(&self.disk.state);
        let fate = state.step(Operation::Write)?;
        let mut content = lock(&self.inode.content);
        refuse_published(content.map.upgrade().as_ref(), offset)?;
        // A write that fails was short.
        let written = match fate {
            Fate::Failed => &bytes[..bytes.len() / 2],
            Fate::Done | Fate::Interrupted => bytes,
        };
        self.inode.file.write_all_at(written, offset)?;
        content.unsynced.push(Change::Write {
            offset,
            bytes: written.to_vec(),
        });
        fate.result()
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        if lock(&self.disk.state).count(Operation::Read) {
            return Fate::Failed.result();
        }
        self.inode.file.read_exact_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.announce(Operation::SyncData, &self.name);
        let mut state = lock(&self.disk.state);
        let fate = state.step(Operation::SyncData)?;
        let mut content = lock(&self.inode.content);
        let content = &mut *content;
        match fate {
            Fate::Interrupted => return fate.result(),
            Fate::Failed => {
                content.abandoned.append(&mut content.unsynced);
                return fate.result();
            }
            Fate::Done => {}
        }
        if !state.lies(Operation::SyncData, &self.name) {
            for change in std::mem::take(&mut content.unsynced) {
                change.apply(&mut content.durable, &mut || true);
                content.abandoned.retain(|abandoned| !abandoned.is_covered_by(&change));
            }
        }
        Ok(())
    }

    fn map(&self) -> io::Result<Arc<Map>> {
        let mut content = lock(&self.inode.content);
        if let Some(map) = content.map.upgrade() {
            return Ok(map);
        }
        let map = Arc::new(Map::new(&self.inode.file, self.len()? as usize, &self.name)?);
        content.map = Arc::downgrade(&map);
        Ok(map)
    }
}
