//! A simulated disk that loses power.
//!
//! # The faults it injects
//! - **Power loss at any step.** Every operation that changes something is a step; at the chosen one the disk stops:
//!   that operation and all later ones fail, and [`SimDisk::after_crash`] gives the disk that a restarted process finds.
//! - **Lost and torn writes.** Of every file, the writes since its last completed `sync_data` survive in any combination
//!   of 512-byte sectors, and so do changes of its length. A sync that was interrupted promises nothing.
//! - **Lost names.** Creations, renames and removals since the last completed `sync_dir` survive in any combination;
//!   each one alone is atomic.
//! - **No space.** [`SimDisk::limit_bytes`] makes `allocate` fail with `StorageFull`.
//! - **Failing syncs.** [`SimDisk::fail_sync_at`] makes one `sync_data` fail with an I/O error.
//!
//! A store must survive all of them: nothing acknowledged is lost, nothing half is served.
//!
//! # What it does not do
//! Bytes that were synced do not rot here (flip them with [`SimDisk::damage`]), and a synced file is never lost.
//!
//! Bytes live in memfd files, so maps are the same as on a real disk and outlive a crash in the process that held them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::MemfdFlags;

use super::{Disk, DiskFile, refuse_published};
use crate::store::map::Map;

const SECTOR: u64 = 512;

/// Says for each unsynced change whether it survives a crash. Any function of any kind will do: a random bit, "all",
/// "none".
pub type Survives<'a> = &'a mut dyn FnMut() -> bool;

/// A simulated directory. Clones are handles on the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    names: BTreeMap<String, Arc<SimInode>>,
    durable_names: BTreeMap<String, Arc<SimInode>>,
    name_changes: Vec<NameChange>,
    steps: u64,
    crash_at: Option<u64>,
    syncs: u64,
    fail_sync_at: Option<u64>,
    bytes_max: u64,
    locked: bool,
    /// Planted faults, to see that the tests can fail.
    skip_sync_data: bool,
    skip_sync_dir: bool,
}

#[derive(Clone)]
enum NameChange {
    Link {
        name: String,
        inode: Arc<SimInode>,
    },
    Rename {
        from: String,
        to: String,
        inode: Arc<SimInode>,
    },
    Unlink {
        name: String,
    },
}

/// A file without a name. The order of locks: `State` before `Content`.
struct SimInode {
    file: File,
    content: Mutex<Content>,
}

#[derive(Default)]
struct Content {
    durable: Vec<u8>,
    unsynced: Vec<Change>,
    map: Weak<Map>,
}

enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Length(u64),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn power_lost() -> io::Error {
    io::Error::other("simulated power loss")
}

impl Default for SimDisk {
    fn default() -> SimDisk {
        SimDisk::new()
    }
}

impl SimDisk {
    /// An empty disk that never crashes.
    pub fn new() -> SimDisk {
        SimDisk::with_names(BTreeMap::new())
    }

    fn with_names(names: BTreeMap<String, Arc<SimInode>>) -> SimDisk {
        SimDisk {
            state: Arc::new(Mutex::new(State {
                durable_names: names.clone(),
                names,
                name_changes: Vec::new(),
                steps: 0,
                crash_at: None,
                syncs: 0,
                fail_sync_at: None,
                bytes_max: u64::MAX,
                locked: false,
                skip_sync_data: false,
                skip_sync_dir: false,
            })),
        }
    }

    /// Changing operations so far.
    pub fn steps(&self) -> u64 {
        lock(&self.state).steps
    }

    /// Loses power in the middle of changing operation number `step` (counted from 1, from the disk's birth).
    pub fn crash_at(&self, step: u64) {
        lock(&self.state).crash_at = Some(step);
    }

    /// Loses power now.
    pub fn crash(&self) {
        let mut state = lock(&self.state);
        state.crash_at = Some(state.steps);
    }

    /// Whether the power is gone.
    pub fn crashed(&self) -> bool {
        let state = lock(&self.state);
        state.crash_at.is_some_and(|at| state.steps >= at)
    }

    /// Lets the `n`th `sync_data` from now on (1 = the next) fail.
    pub fn fail_sync_at(&self, n: u64) {
        let mut state = lock(&self.state);
        state.fail_sync_at = Some(state.syncs + n);
    }

    /// Bytes that all files together may be allocated.
    pub fn limit_bytes(&self, bytes_max: u64) {
        lock(&self.state).bytes_max = bytes_max;
    }

    /// Bytes that all files together have.
    pub fn used_bytes(&self) -> u64 {
        let state = lock(&self.state);
        state
            .names
            .values()
            .map(|inode| inode.file.metadata().map_or(0, |meta| meta.len()))
            .sum()
    }

    /// Plants a fault: `sync_data` says yes and does nothing.
    pub fn skip_sync_data(&self, skip: bool) {
        lock(&self.state).skip_sync_data = skip;
    }

    /// Plants a fault: `sync_dir` says yes and does nothing.
    pub fn skip_sync_dir(&self, skip: bool) {
        lock(&self.state).skip_sync_dir = skip;
    }

    /// Flips bits of a durable file: `file[offset] ^= mask`. For a disk that no store is running on.
    ///
    /// # Panics
    /// When there is no such file or byte.
    pub fn damage(&self, name: &str, offset: u64, mask: u8) {
        let state = lock(&self.state);
        let inode = &state.names[name];
        let mut byte = [0];
        inode.file.read_exact_at(&mut byte, offset).expect("the byte exists");
        byte[0] ^= mask;
        inode.file.write_all_at(&byte, offset).expect("memory");
        lock(&inode.content).durable[offset as usize] = byte[0];
    }

    /// The disk as the next process finds it after this one lost power: what was synced, and of the rest what
    /// `survives` says.
    pub fn after_crash(&self, survives: Survives<'_>) -> SimDisk {
        let state = lock(&self.state);
        let mut names = state.durable_names.clone();
        for change in &state.name_changes {
            if !survives() {
                continue;
            }
            match change.clone() {
                NameChange::Link { name, inode } => drop(names.insert(name, inode)),
                NameChange::Rename { from, to, inode } => {
                    names.remove(&from);
                    names.insert(to, inode);
                }
                NameChange::Unlink { name } => drop(names.remove(&name)),
            }
        }
        let names = names
            .into_iter()
            .map(|(name, inode)| (name, inode.after_crash(survives)))
            .collect();
        SimDisk::with_names(names)
    }
}

impl State {
    /// Counts a changing operation. `Err` when the power is already gone; `Ok(true)` when it goes in the middle of it.
    fn step(&mut self) -> io::Result<bool> {
        let gone = |state: &State| state.crash_at.is_some_and(|at| state.steps >= at);
        if gone(self) {
            return Err(power_lost());
        }
        self.steps += 1;
        Ok(gone(self))
    }

    fn inode(&self, name: &str) -> io::Result<&Arc<SimInode>> {
        self.names
            .get(name)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no file {name}")))
    }
}

fn survive(dying: bool) -> io::Result<()> {
    if dying { Err(power_lost()) } else { Ok(()) }
}

impl SimInode {
    fn empty() -> io::Result<Arc<SimInode>> {
        let file = File::from(rustix::fs::memfd_create("flatkube-sim", MemfdFlags::CLOEXEC)?);
        Ok(Arc::new(SimInode {
            file,
            content: Mutex::default(),
        }))
    }

    fn after_crash(&self, survives: Survives<'_>) -> Arc<SimInode> {
        let content = lock(&self.content);
        let mut bytes = content.durable.clone();
        for change in &content.unsynced {
            match change {
                Change::Length(len) => {
                    if survives() && *len as usize > bytes.len() {
                        bytes.resize(*len as usize, 0);
                    }
                }
                Change::Write { offset, bytes: written } => {
                    let end = offset + written.len() as u64;
                    let mut at = *offset;
                    while at < end {
                        let next = ((at / SECTOR + 1) * SECTOR).min(end);
                        if survives() {
                            if bytes.len() < next as usize {
                                bytes.resize(next as usize, 0);
                            }
                            let piece = &written[(at - offset) as usize..(next - offset) as usize];
                            bytes[at as usize..next as usize].copy_from_slice(piece);
                        }
                        at = next;
                    }
                }
            }
        }
        let inode = SimInode::empty().expect("memfd");
        inode.file.write_all_at(&bytes, 0).expect("memory");
        lock(&inode.content).durable = bytes;
        inode
    }
}

impl Disk for SimDisk {
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        struct Unlock(Arc<Mutex<State>>);
        impl Drop for Unlock {
            fn drop(&mut self) {
                lock(&self.0).locked = false;
            }
        }
        let mut state = lock(&self.state);
        if state.locked {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.locked = true;
        Ok(Box::new(Unlock(self.state.clone())))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(lock(&self.state).names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = lock(&self.state);
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let dying = state.step()?;
        let inode = SimInode::empty()?;
        state.names.insert(name.to_owned(), inode.clone());
        state.name_changes.push(NameChange::Link {
            name: name.to_owned(),
            inode: inode.clone(),
        });
        survive(dying)?;
        Ok(Arc::new(SimFile {
            name: name.into(),
            inode,
            state: self.state.clone(),
        }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let inode = lock(&self.state).inode(name)?.clone();
        Ok(Arc::new(SimFile {
            name: name.into(),
            inode,
            state: self.state.clone(),
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = lock(&self.state);
        let inode = state.inode(from)?.clone();
        let dying = state.step()?;
        state.names.remove(from);
        state.names.insert(to.to_owned(), inode.clone());
        state.name_changes.push(NameChange::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
            inode,
        });
        survive(dying)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.inode(name)?;
        let dying = state.step()?;
        state.names.remove(name);
        state.name_changes.push(NameChange::Unlink { name: name.to_owned() });
        survive(dying)
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        survive(state.step()?)?;
        if !state.skip_sync_dir {
            state.name_changes.clear();
            state.durable_names = state.names.clone();
        }
        Ok(())
    }

    fn path(&self, name: &str) -> String {
        format!("sim:/{name}")
    }
}

struct SimFile {
    name: Box<str>,
    inode: Arc<SimInode>,
    state: Arc<Mutex<State>>,
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.inode.file.metadata()?.len())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        let dying = state.step()?;
        let before = self.len()?;
        if len > before {
            let used: u64 = state
                .names
                .values()
                .map(|inode| inode.file.metadata().map_or(0, |meta| meta.len()))
                .sum();
            if used + (len - before) > state.bytes_max {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.inode.file.set_len(len)?;
            lock(&self.inode.content).unsynced.push(Change::Length(len));
        }
        survive(dying)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        let dying = state.step()?;
        let mut content = lock(&self.inode.content);
        refuse_published(content.map.upgrade().as_ref(), offset)?;
        self.inode.file.write_all_at(bytes, offset)?;
        content.unsynced.push(Change::Write {
            offset,
            bytes: bytes.to_vec(),
        });
        survive(dying)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.inode.file.read_exact_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        survive(state.step()?)?;
        state.syncs += 1;
        if state.fail_sync_at == Some(state.syncs) {
            return Err(io::Error::other("simulated I/O error"));
        }
        if !state.skip_sync_data {
            let mut content = lock(&self.inode.content);
            for change in std::mem::take(&mut content.unsynced) {
                match change {
                    Change::Length(len) => {
                        let len = content.durable.len().max(len as usize);
                        content.durable.resize(len, 0);
                    }
                    Change::Write { offset, bytes } => {
                        let end = offset as usize + bytes.len();
                        if content.durable.len() < end {
                            content.durable.resize(end, 0);
                        }
                        content.durable[offset as usize..end].copy_from_slice(&bytes);
                    }
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_and_the_rest_survives_as_told() {
        let disk = SimDisk::new();
        let file = disk.create("a").unwrap();
        file.allocate(2048).unwrap();
        file.write_at(&[1; 1024], 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir().unwrap();
        file.write_at(&[2; 1024], 256).unwrap();

        let lost = disk.after_crash(&mut || false);
        let mut bytes = [0; 1280];
        lost.open("a").unwrap().read_at(&mut bytes, 0).unwrap();
        assert!(bytes[..1024].iter().all(|byte| *byte == 1) && bytes[1024..].iter().all(|byte| *byte == 0));

        let mut turn = false;
        let torn = disk.after_crash(&mut || {
            turn = !turn;
            turn
        });
        torn.open("a").unwrap().read_at(&mut bytes, 0).unwrap();
        assert_eq!(
            (bytes[255], bytes[256], bytes[511], bytes[512], bytes[1023], bytes[1024]),
            (1, 2, 2, 1, 1, 2)
        );
    }

    #[test]
    fn names_are_lost_without_a_sync_of_the_directory() {
        let disk = SimDisk::new();
        disk.create("a").unwrap().sync_data().unwrap();
        assert!(disk.after_crash(&mut || false).list().unwrap().is_empty());
        disk.sync_dir().unwrap();
        disk.rename("a", "b").unwrap();
        assert_eq!(disk.after_crash(&mut || false).list().unwrap(), ["a"]);
        assert_eq!(disk.after_crash(&mut || true).list().unwrap(), ["b"]);
    }

    #[test]
    fn nothing_works_after_the_crash() {
        let disk = SimDisk::new();
        let file = disk.create("a").unwrap();
        disk.crash_at(2);
        assert!(file.write_at(b"x", 0).is_err(), "step 2 is interrupted");
        assert!(file.sync_data().is_err() && disk.create("b").is_err() && disk.crashed());
    }
}
