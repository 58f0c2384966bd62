//! A simulated disk that loses power, fails and rots.
//!
//! # The faults it injects
//! - **Power loss at any step.** Every operation that changes something is a step; at the chosen one the disk stops:
//!   that operation and all later ones fail, and [`SimDisk::after_crash`] gives the disk that a restarted process finds.
//! - **Lost, torn and reordered writes.** Of every file, the writes since its last completed `sync_data` survive in any
//!   combination of 512-byte sectors, and so do changes of its length. A sync that was interrupted promises nothing.
//! - **Lost names.** Creations, renames and removals since the last completed `sync_dir` survive in any combination;
//!   each one alone is atomic.
//! - **Failing operations.** [`SimDisk::fail`] lets the nth operation of a kind fail with an I/O error. A write that fails
//!   may have reached the cache in part (a short write). After a failed `sync_data` the kernel believes its pages clean:
//!   they are read as they were written, a *later sync does not make them durable*, and a power loss keeps any
//!   combination of their sectors, old or new. Only writing them again helps.
//! - **No space.** [`SimDisk::limit_bytes`] makes `allocate` fail with `StorageFull`, after which a part of the space may
//!   be taken.
//! - **Rot.** [`SimDisk::damage`] flips bits at rest.
//!
//! A store must survive the first five: nothing acknowledged is lost, nothing half is served. Rot it must find.
//!
//! # What it does not do
//! A name that was synced is never lost, sectors are never written to a wrong place, and reads of a file that works are
//! right.
//!
//! Bytes live in memfd files, so maps are the same as on a real disk and outlive a crash in the process that held them.

mod file;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, PoisonError};

use file::{SimFile, SimInode};

use super::{Disk, DiskFile};
use crate::sync::{Mutex, MutexGuard};

/// Says for each unsynced change whether it survives a crash. Any function of any kind will do: a random bit, "all",
/// "none".
pub type Survives<'a> = &'a mut dyn FnMut() -> bool;

/// What a disk is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// [`Disk::create`]
    Create,
    /// [`DiskFile::allocate`]
    Allocate,
    /// [`DiskFile::write_at`]
    Write,
    /// [`DiskFile::read_at`]
    Read,
    /// [`DiskFile::sync_data`]
    SyncData,
    /// [`Disk::rename`]
    Rename,
    /// [`Disk::remove`]
    Remove,
    /// [`Disk::sync_dir`]
    SyncDir,
}

/// Called before each changing operation with the name of its file (`""` for the directory). It may use the disk.
pub type Hook = Arc<dyn Fn(Operation, &str) + Send + Sync>;

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
    /// Of each kind: how many there were.
    counts: BTreeMap<Operation, u64>,
    /// Operations that will fail: their kind and number.
    failing: Vec<(Operation, u64)>,
    has_failed: bool,
    /// Planted faults, to see that the tests can fail: kinds of operations that say yes and do nothing, on files whose
    /// names begin like this.
    lies: Vec<(Operation, String)>,
    bytes_max: u64,
    locked: bool,
    hook: Option<Hook>,
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn power_lost() -> io::Error {
    io::Error::other("simulated power loss")
}

fn broken() -> io::Error {
    io::Error::other("simulated I/O error")
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
                counts: BTreeMap::new(),
                failing: Vec::new(),
                has_failed: false,
                lies: Vec::new(),
                bytes_max: u64::MAX,
                locked: false,
                hook: None,
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

    /// Lets the `n`th `operation` from now on (1 = the next) fail with an I/O error.
    pub fn fail(&self, operation: Operation, n: u64) {
        let mut state = lock(&self.state);
        let at = state.counts.get(&operation).copied().unwrap_or_default() + n;
        state.failing.push((operation, at));
    }

    /// Takes back all that [`SimDisk::fail`] said and has not happened.
    pub fn fail_no_more(&self) {
        lock(&self.state).failing.clear();
    }

    /// Whether an operation failed as [`SimDisk::fail`] said.
    pub fn has_failed(&self) -> bool {
        lock(&self.state).has_failed
    }

    /// Bytes that all files together may be allocated.
    pub fn limit_bytes(&self, bytes_max: u64) {
        lock(&self.state).bytes_max = bytes_max;
    }

    /// Bytes that all files together have.
    pub fn used_bytes(&self) -> u64 {
        lock(&self.state).used_bytes()
    }

    /// Plants a fault: `operation` on files whose names begin with `prefix` says yes and does nothing. For syncs.
    pub fn lie_about(&self, operation: Operation, prefix: &str) {
        lock(&self.state).lies.push((operation, prefix.to_owned()));
    }

    /// Calls `hook` before each changing operation from now on.
    pub fn on_step(&self, hook: Option<Hook>) {
        lock(&self.state).hook = hook;
    }

    /// Flips bits of a durable file: `file[offset] ^= mask`. For a disk that no store is running on.
    ///
    /// # Panics
    /// When there is no such file or byte.
    pub fn damage(&self, name: &str, offset: u64, mask: u8) {
        lock(&self.state).names[name].damage(offset, mask);
    }

    /// Names and lengths of the files, in the order of the names.
    pub fn files(&self) -> Vec<(String, u64)> {
        let state = lock(&self.state);
        let len = |inode: &SimInode| inode.file.metadata().map_or(0, |meta| meta.len());
        state
            .names
            .iter()
            .map(|(name, inode)| (name.clone(), len(inode)))
            .collect()
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

    /// The disk as the next process finds it after this one was killed: nothing is lost, and what was not durable still is
    /// not. Faults that were planned do not go along.
    pub fn after_kill(&self) -> SimDisk {
        let mut state = lock(&self.state);
        let names = std::mem::take(&mut state.names);
        let next = SimDisk::with_names(names);
        {
            let mut next = lock(&next.state);
            next.durable_names = std::mem::take(&mut state.durable_names);
            next.name_changes = std::mem::take(&mut state.name_changes);
            next.lies.clone_from(&state.lies);
        }
        // Whoever still holds the old handle finds it dead.
        state.crash_at = Some(state.steps);
        next
    }

    /// Tells the hook of an operation that is about to happen. No lock is held meanwhile.
    fn announce(&self, operation: Operation, name: &str) {
        let hook = lock(&self.state).hook.clone();
        if let Some(hook) = hook {
            hook(operation, name);
        }
    }
}

/// What becomes of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    /// The power goes in the middle of it.
    Interrupted,
    /// The device reports an error.
    Failed,
}

impl Fate {
    fn result(self) -> io::Result<()> {
        match self {
            Fate::Done => Ok(()),
            Fate::Interrupted => Err(power_lost()),
            Fate::Failed => Err(broken()),
        }
    }
}

impl State {
    /// Counts a changing operation and says what becomes of it. `Err` when the power is already gone.
    fn step(&mut self, operation: Operation) -> io::Result<Fate> {
        let gone = |state: &State| state.crash_at.is_some_and(|at| state.steps >= at);
        if gone(self) {
            return Err(power_lost());
        }
        self.steps += 1;
        let failed = self.count(operation);
        Ok(match (gone(self), failed) {
            (true, _) => Fate::Interrupted,
            (false, true) => Fate::Failed,
            (false, false) => Fate::Done,
        })
    }

    /// Counts an operation and says whether it is one that fails.
    fn count(&mut self, operation: Operation) -> bool {
        let count = self.counts.entry(operation).or_default();
        *count += 1;
        let fails = self.failing.contains(&(operation, *count));
        self.has_failed |= fails;
        fails
    }

    fn lies(&self, operation: Operation, name: &str) -> bool {
        self.lies
            .iter()
            .any(|(lie, prefix)| *lie == operation && name.starts_with(prefix))
    }

    fn used_bytes(&self) -> u64 {
        let len = |inode: &Arc<SimInode>| inode.file.metadata().map_or(0, |meta| meta.len());
        self.names.values().map(len).sum()
    }

    fn inode(&self, name: &str) -> io::Result<&Arc<SimInode>> {
        self.names
            .get(name)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no file {name}")))
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
        self.announce(Operation::Create, name);
        let mut state = lock(&self.state);
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let fate = state.step(Operation::Create)?;
        if fate == Fate::Failed {
            return Err(broken());
        }
        let inode = SimInode::empty()?;
        state.names.insert(name.to_owned(), inode.clone());
        state.name_changes.push(NameChange::Link {
            name: name.to_owned(),
            inode: inode.clone(),
        });
        fate.result()?;
        Ok(Arc::new(SimFile {
            name: name.into(),
            inode,
            disk: self.clone(),
        }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let inode = lock(&self.state).inode(name)?.clone();
        Ok(Arc::new(SimFile {
            name: name.into(),
            inode,
            disk: self.clone(),
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.announce(Operation::Rename, from);
        let mut state = lock(&self.state);
        let inode = state.inode(from)?.clone();
        let fate = state.step(Operation::Rename)?;
        if fate == Fate::Failed {
            return Err(broken());
        }
        state.names.remove(from);
        state.names.insert(to.to_owned(), inode.clone());
        state.name_changes.push(NameChange::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
            inode,
        });
        fate.result()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        lock(&self.state).inode(name)?;
        self.announce(Operation::Remove, name);
        let mut state = lock(&self.state);
        let fate = state.step(Operation::Remove)?;
        if fate == Fate::Failed {
            return Err(broken());
        }
        state.names.remove(name);
        state.name_changes.push(NameChange::Unlink { name: name.to_owned() });
        fate.result()
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.announce(Operation::SyncDir, "");
        let mut state = lock(&self.state);
        state.step(Operation::SyncDir)?.result()?;
        if !state.lies(Operation::SyncDir, "") {
            state.name_changes.clear();
            state.durable_names = state.names.clone();
        }
        Ok(())
    }

    fn path(&self, name: &str) -> String {
        format!("sim:/{name}")
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

    #[test]
    fn after_a_failed_sync_only_writing_again_makes_bytes_durable() {
        let disk = SimDisk::new();
        let file = disk.create("a").unwrap();
        file.allocate(512).unwrap();
        disk.sync_dir().unwrap();
        file.write_at(&[1; 512], 0).unwrap();
        disk.fail(Operation::SyncData, 1);
        assert!(file.sync_data().is_err());
        let first_byte = |disk: &SimDisk, survives: bool| {
            let mut byte = [7];
            let lost = disk.after_crash(&mut || survives);
            lost.open("a")
                .unwrap()
                .read_at(&mut byte, 0)
                .map(|()| byte[0])
                .unwrap_or_default()
        };
        file.sync_data().unwrap();
        assert_eq!((first_byte(&disk, false), first_byte(&disk, true)), (0, 1));
        file.write_at(&[1; 512], 0).unwrap();
        file.sync_data().unwrap();
        assert_eq!(first_byte(&disk, false), 1);
    }

    #[test]
    fn a_killed_process_leaves_everything_and_makes_nothing_durable() {
        let disk = SimDisk::new();
        let file = disk.create("a").unwrap();
        file.write_at(b"xy", 0).unwrap();
        let next = disk.after_kill();
        assert!(file.write_at(b"z", 0).is_err(), "the dead process writes no more");
        let mut bytes = [0; 2];
        next.open("a").unwrap().read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"xy");
        assert!(next.after_crash(&mut || false).list().unwrap().is_empty());
    }
}
