//! The simulated world: a store on a simulated disk, writers, readers and watchers, and what befalls them. One thread does
//! everything, in an order that the seed decides.
//!
//! # Invariants
//! - Every acknowledged write survives; of those under way the first few are there whole, the others not at all.
//! - Nothing that a reader saw is undone; revisions never go back and are never given twice.
//! - Every watcher sees each event once and in order, over restarts, within history; list + watch is a list later.
//! - A view never changes; the past reads as it was.
//! - Postings and sidecars say what a fresh parse of the JSON says.
//! - What rots is found: an answer is right or an error.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flatkube::store::disk::Disk as _;
use flatkube::store::disk::sim::{Hook, Operation, SimDisk};
use flatkube::store::{
    ArchiveError, Archiver, Change, Durability, HistoryError, Options, Precondition, Store, View, Write, WriteError,
    Written,
};

use crate::chance::Chance;
use crate::client::Client;
use crate::judge;
use crate::model::{Condition, Model, RESOURCES, Step};
use crate::plant::Plant;

/// Revisions jump by this much when a process without syncs ends uncleanly.
const JUMP: u64 = 1 << 32;
const CLIENTS_MAX: usize = 6;
const VIEWS_MAX: usize = 4;
/// Of these operations one may fail.
const FALLIBLE: [Operation; 7] = [
    Operation::Create,
    Operation::Allocate,
    Operation::Write,
    Operation::Read,
    Operation::SyncData,
    Operation::Rename,
    Operation::SyncDir,
];

/// What happened in a simulation, to see that it does not simulate nothing.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) writes: u64,
    pub(crate) maintenances: u64,
    pub(crate) restarts: u64,
    pub(crate) kills: u64,
    pub(crate) power_losses: u64,
    pub(crate) failures: u64,
    pub(crate) refused_for_space: u64,
    pub(crate) rot_found: u64,
    pub(crate) rot_mended: u64,
    pub(crate) relists: u64,
    pub(crate) backups: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Counts) {
        self.writes += other.writes;
        self.maintenances += other.maintenances;
        self.restarts += other.restarts;
        self.kills += other.kills;
        self.power_losses += other.power_losses;
        self.failures += other.failures;
        self.refused_for_space += other.refused_for_space;
        self.rot_found += other.rot_found;
        self.rot_mended += other.rot_mended;
        self.relists += other.relists;
        self.backups += other.backups;
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Written, WriteError>> + Send>>;

/// A write that was sent and, if the answer is there no longer, one whose server died.
struct UnderWay {
    step: Step,
    answer: Option<Answer>,
}

/// Looks at the store in the middle of its operations.
#[derive(Default)]
struct Onlooker {
    store: Mutex<Weak<Store>>,
    /// Newest revision that anybody could read.
    seen: AtomicU64,
    /// The manifest is being replaced: the store holds a lock that a commit might need.
    replacing: AtomicBool,
}

struct World {
    chance: Chance,
    disk: SimDisk,
    options: Options,
    store: Option<Arc<Store>>,
    failed: Arc<AtomicBool>,
    onlooker: Arc<Onlooker>,
    model: Model,
    under_way: VecDeque<UnderWay>,
    clients: Vec<Client>,
    views: Vec<Arc<View>>,
    plant: Option<Plant>,
    counts: Counts,
    verbose: bool,
}

/// Archives nothing anew: sidecars come with the writes.
struct NoArchiver;

impl Archiver for NoArchiver {
    fn layout(&self, _resource: &str) -> u32 {
        0
    }

    fn archive(&self, _resource: &str, key: &str, _json: &[u8]) -> Result<Vec<u8>, ArchiveError> {
        Err(ArchiveError(format!("{key}: nothing is archived anew here")))
    }
}

/// Simulates `steps` steps from `seed`.
///
/// # Panics
/// When an invariant does not hold.
pub(crate) fn simulate(seed: u64, steps: usize, plant: Option<Plant>, verbose: bool) -> Counts {
    let world = World::new(seed, plant, verbose);
    let shared = Arc::new(Mutex::new(world));
    let hook = hook(&shared);
    {
        let mut world = lock(&shared);
        world.onlooker = hook.1;
        world.reopen(&hook.0);
    }
    for _ in 0..steps {
        step(&shared, &hook.0);
    }
    let mut world = lock(&shared);
    world.disk.fail_no_more();
    world.disk.crash_at(u64::MAX);
    world.restart(&hook.0);
    world.start_again(&hook.0);
    world.check_everything();
    let relists: u64 = world.clients.iter().map(|client| client.relists).sum();
    world.counts.relists += relists;
    world.counts
}

fn lock(world: &Arc<Mutex<World>>) -> std::sync::MutexGuard<'_, World> {
    world.lock().expect("an invariant was broken before")
}

/// What happens between the disk operations of the store: readers look, and while it maintains itself, everything goes on.
fn hook(shared: &Arc<Mutex<World>>) -> (Hook, Arc<Onlooker>) {
    let onlooker = Arc::new(Onlooker::default());
    let (world, looks) = (Arc::downgrade(shared), onlooker.clone());
    let hook = move |_: Operation, name: &str| {
        if let Some(store) = looks.store.lock().expect("no panic").upgrade() {
            looks.seen.fetch_max(store.view().revision(), Ordering::Relaxed);
        }
        if name.starts_with("manifest") {
            looks.replacing.store(true, Ordering::Relaxed);
        } else if !name.is_empty() {
            looks.replacing.store(false, Ordering::Relaxed);
        }
        if looks.replacing.load(Ordering::Relaxed) {
            return;
        }
        let Some(world) = world.upgrade() else { return };
        // Locked: this is an operation of something that the world itself is doing.
        match world.try_lock() {
            Ok(mut world) => world.meanwhile(),
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => {}
        }
    };
    (Arc::new(hook), onlooker)
}

/// One step of the world.
fn step(shared: &Arc<Mutex<World>>, hook: &Hook) {
    let mut world = lock(shared);
    match world.chance.weighted(&[30, 25, 8, 12, 8, 4, 2, 2, 3, 2, 2, 2]) {
        0 => world.write(),
        1 => world.commit_some(),
        2 => {
            let all = world.chance.one_in(3);
            let store = world.store.clone();
            world.tell(|| format!("maintain, all: {all}"));
            world.counts.maintenances += 1;
            // Unlocked, so that the hook finds it so.
            drop(world);
            if let Some(store) = store {
                store.maintain(all);
            }
            world = lock(shared);
        }
        3 => world.watch(),
        4 => world.read(),
        5 => world.restart(hook),
        6 => world.kill(hook),
        7 => {
            let after = 1 + world.chance.below(60) as u64;
            if world.options.durability == Durability::Fsync {
                world.tell(|| format!("power loss after {after} operations"));
                world.disk.crash_at(world.disk.steps() + after);
            }
        }
        8 => {
            let operation = FALLIBLE[world.chance.below(FALLIBLE.len())];
            let n = 1 + world.chance.below(12) as u64;
            world.tell(|| format!("{operation:?} number {n} from here fails"));
            world.disk.fail(operation, n);
        }
        9 => world.run_out_of_space(),
        10 => world.rot(hook),
        _ => world.back_up(),
    }
    world.start_again(hook);
}

impl World {
    fn new(seed: u64, plant: Option<Plant>, verbose: bool) -> World {
        let mut chance = Chance::new(seed);
        let failed = Arc::new(AtomicBool::new(false));
        let on_fatal = {
            let failed = failed.clone();
            move |_: &str| failed.store(true, Ordering::Relaxed)
        };
        let segment = 8 << (10 + chance.below(2));
        let options = Options {
            durability: if chance.one_in(6) {
                Durability::Os
            } else {
                Durability::Fsync
            },
            history_bytes: 64 << (10 + chance.below(3)),
            history_bytes_min: 24 << (10 + chance.below(2)),
            history_age: Duration::ZERO,
            segment_bytes_first: segment,
            segment_bytes: segment * 2,
            part_bytes: 2 << (10 + chance.below(3)),
            shelve_min_bytes: 1 << (10 + chance.below(3)),
            shelve_quiet: Duration::from_hours(1),
            shelve_step_bytes: 1 << 10,
            shelve_pause: Duration::ZERO,
            batch_bytes_max: if chance.one_in(3) { 1 << 10 } else { 4 << 20 },
            background: false,
            committer_thread: false,
            on_fatal: Arc::new(on_fatal),
            ..Options::default()
        };
        let disk = SimDisk::new();
        if let Some(plant) = plant {
            #[cfg(feature = "planted")]
            plant.in_store();
            plant.in_disk(&disk);
        }
        World {
            chance,
            disk,
            options,
            store: None,
            failed,
            onlooker: Arc::default(),
            model: Model::default(),
            under_way: VecDeque::new(),
            clients: Vec::new(),
            views: Vec::new(),
            plant,
            counts: Counts::default(),
            verbose,
        }
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            eprintln!("{:6} r{:<5} {}", self.disk.steps(), self.model.revision(), what());
        }
    }

    fn store(&self) -> Arc<Store> {
        self.store.clone().expect("the store is open between steps")
    }

    /// Whether the world goes on with this store: neither power nor disk failed.
    fn is_well(&self) -> bool {
        !self.disk.crashed() && !self.failed.load(Ordering::Relaxed)
    }

    /// What others do while the store maintains itself.
    fn meanwhile(&mut self) {
        if self.store.is_none() || !self.is_well() || !self.chance.one_in(12) {
            return;
        }
        match self.chance.weighted(&[12, 4, 1, 2]) {
            0 => {
                self.write();
                self.commit_some();
            }
            1 => self.watch(),
            2 => self.back_up(),
            _ => self.read(),
        }
    }

    fn write(&mut self) {
        for _ in 0..=self.chance.below(5) {
            let step = self.random_write();
            self.send(step);
        }
    }

    fn random_write(&mut self) -> Step {
        let resource = self.chance.below(RESOURCES.len());
        let key = self.chance.key();
        let current = self
            .model
            .now(resource)
            .get(&key)
            .map(|index| self.model.done(*index).revision);
        let condition = match self.chance.below(10) {
            0 => Condition::Absent,
            1 => Condition::Exists,
            2 => Condition::At(self.model.revision().saturating_sub(self.chance.below(9) as u64)),
            3 | 4 => current.map_or(Condition::Absent, Condition::At),
            5 => Condition::Uid(format!(
                "uid-of-{}",
                if self.chance.one_in(4) { "another" } else { &key }
            )),
            _ => Condition::Any,
        };
        Step {
            resource,
            key,
            body: self.chance.body(),
            delete: self.chance.one_in(4),
            condition,
        }
    }

    /// Puts a write into the store's queue.
    fn send(&mut self, step: Step) {
        let prepared = step.body.prepared(&step.key);
        let (precondition, uid) = match &step.condition {
            Condition::Any => (Precondition::Any, None),
            Condition::Absent => (Precondition::Absent, None),
            Condition::Exists => (Precondition::Exists, None),
            Condition::At(revision) => (Precondition::Revision(*revision), None),
            Condition::Uid(uid) => (Precondition::Exists, Some(uid.clone())),
        };
        let write = Write {
            resource: RESOURCES[step.resource].into(),
            key: step.key.clone(),
            precondition,
            uid,
            change: if step.delete {
                Change::Delete(prepared)
            } else {
                Change::Put(prepared)
            },
        };
        let store = self.store();
        let mut answer: Answer = Box::pin(async move { store.write(write).await });
        let now = answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(
            now.is_pending() || !self.is_well(),
            "an answer before the commit: {now:?}"
        );
        self.tell(|| {
            let verb = if step.delete { "delete" } else { "put" };
            format!(
                "send {verb} {} {} if {:?}",
                RESOURCES[step.resource], step.key, step.condition
            )
        });
        self.under_way.push_back(UnderWay {
            step,
            answer: now.is_pending().then_some(answer),
        });
    }

    fn commit_some(&mut self) {
        let batches = if self.chance.one_in(4) { 1 } else { usize::MAX };
        self.commit(batches);
    }

    /// Commits at most so many batches, and compares the answers with the model.
    fn commit(&mut self, batches: usize) {
        let store = self.store();
        for _ in 0..batches {
            self.tell(|| "commit".into());
            let some = store.commit();
            if !self.is_well() {
                return;
            }
            self.take_answers();
            if !some {
                break;
            }
        }
        let revision = store.view().revision();
        assert_eq!(revision, self.model.revision(), "the view after a commit");
        self.onlooker.seen.fetch_max(revision, Ordering::Relaxed);
    }

    fn take_answers(&mut self) {
        while let Some(first) = self.under_way.front_mut() {
            let Some(answer) = &mut first.answer else { return };
            let Poll::Ready(result) = answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
                return;
            };
            let UnderWay { step, .. } = self.under_way.pop_front().expect("it is the first");
            self.answered(&step, result);
        }
    }

    /// What was answered before the process ended counts; of the rest it is unknown whether it was made.
    fn take_last_answers(&mut self) {
        for UnderWay { step, answer } in std::mem::take(&mut self.under_way) {
            let answer = answer.map(|mut answer| answer.as_mut().poll(&mut Context::from_waker(Waker::noop())));
            match answer {
                Some(Poll::Ready(Ok(written))) => {
                    assert!(
                        self.under_way.is_empty(),
                        "acknowledged behind one that was not: {step:?}"
                    );
                    self.answered(&step, Ok(written));
                }
                Some(Poll::Ready(Err(WriteError::NoSpace(_) | WriteError::Conflict { .. }))) => {}
                _ => self.under_way.push_back(UnderWay { step, answer: None }),
            }
        }
    }

    fn answered(&mut self, step: &Step, result: Result<Written, WriteError>) {
        self.counts.writes += 1;
        if matches!(result, Err(WriteError::NoSpace(_))) {
            self.counts.refused_for_space += 1;
            return;
        }
        let before = self.model.now(step.resource).get(&step.key);
        let before = before.map(|index| self.model.done(*index).revision);
        let made = self.model.apply(step);
        match result {
            Ok(written) => {
                assert!(made, "made against its condition: {step:?}");
                assert_eq!(written.revision, self.model.revision(), "revision of {step:?}");
                assert_eq!(
                    (written.object.key(), written.object.revision()),
                    (&*step.key, written.revision)
                );
            }
            Err(WriteError::Conflict { current }) => {
                assert!(!made, "refused without reason: {step:?}");
                let shown = current.map(|object| object.revision());
                // Who loses against a deletion of the same batch may be shown nothing.
                assert!(
                    shown == before || shown.is_none(),
                    "{shown:?} was shown for {before:?}: {step:?}"
                );
            }
            Err(error) => panic!("{step:?}: {error}"),
        }
    }

    fn watch(&mut self) {
        let store = self.store();
        if self.clients.is_empty() || (self.clients.len() < CLIENTS_MAX && self.chance.one_in(4)) {
            let client = Client::new(&store, &mut self.chance).expect("nothing is damaged");
            self.clients.push(client);
        }
        let index = self.chance.below(self.clients.len());
        let events = if self.chance.one_in(3) { 200 } else { 6 };
        let events = 1 + self.chance.below(events);
        self.clients[index]
            .take(&store, &self.model, events)
            .expect("nothing is damaged");
    }

    fn read(&mut self) {
        let store = self.store();
        let view = match self.chance.below(3) {
            0 => store.view(),
            1 if !self.views.is_empty() => {
                let index = self.chance.below(self.views.len());
                self.views[index].clone()
            }
            _ => return self.read_the_past(&store),
        };
        judge::view(&self.model, &view, None, &mut self.chance).expect("nothing is damaged");
        if self.views.len() < VIEWS_MAX {
            self.views.push(view);
        } else {
            let index = self.chance.below(VIEWS_MAX);
            self.views[index] = store.view();
        }
    }

    fn read_the_past(&mut self, store: &Arc<Store>) {
        let resource = self.chance.below(RESOURCES.len());
        let back = self.chance.below(80) as u64;
        let oldest = self.model.restarted_at.max(1);
        let revision = self.model.revision().saturating_sub(back).max(oldest);
        match store.view_at(RESOURCES[resource], revision) {
            Ok(past) => {
                judge::view(&self.model, &past, Some(resource), &mut self.chance).expect("nothing is damaged");
            }
            Err(HistoryError::TooOld { floor, .. }) => assert!(floor > revision),
            Err(error) => panic!("the past at {revision}: {error}"),
        }
    }

    /// A backup is a directory that holds the revision, and the history before it.
    fn back_up(&mut self) {
        self.counts.backups += 1;
        let backup = self.store().backup().expect("nothing is damaged");
        let disk = SimDisk::new();
        for file in &backup.files {
            let written = disk.create(&file.name).expect("it works");
            let bytes = file.pieces.concat();
            written.allocate(bytes.len() as u64).expect("there is space");
            written.write_at(&bytes, 0).expect("it works");
        }
        let store = Store::open(Arc::new(disk), self.options.clone(), Arc::new(NoArchiver));
        let store = store.expect("a backup is a directory");
        let view = store.view();
        let jump = view.revision() - backup.revision;
        assert_eq!(jump, 0, "nothing was lost");
        judge::view(&self.model, &view, None, &mut self.chance).expect("nothing is damaged");
        let mut reader = Client::from_floor(&store, &self.model, &mut self.chance);
        reader
            .take(&store, &self.model, usize::MAX)
            .expect("nothing is damaged");
    }

    /// Nothing is accepted for a while; afterwards everything works.
    fn run_out_of_space(&mut self) {
        self.commit(usize::MAX);
        if !self.is_well() {
            return;
        }
        let left = self.chance.below(30_000) as u64;
        self.tell(|| format!("{left} bytes of space left"));
        self.disk.limit_bytes(self.disk.used_bytes() + left);
        for _ in 0..=self.chance.below(8) {
            self.write();
            self.commit(usize::MAX);
            if !self.is_well() {
                return;
            }
            if self.chance.one_in(3) {
                self.store().maintain(self.chance.one_in(2));
            }
        }
        self.disk.limit_bytes(u64::MAX);
        if !self.is_well() {
            return;
        }
        let refused = self.counts.refused_for_space;
        let step = Step {
            condition: Condition::Any,
            delete: false,
            ..self.random_write()
        };
        self.send(step);
        self.commit(usize::MAX);
        assert!(
            self.counts.refused_for_space == refused || !self.is_well() || self.disk.has_failed(),
            "a write is refused though there is space again"
        );
    }

    /// Ends the process in order and starts it again.
    fn restart(&mut self, hook: &Hook) {
        self.tell(|| "restart".into());
        self.commit(usize::MAX);
        if self.is_well() {
            self.counts.restarts += 1;
            self.store().close();
        }
        if !self.is_well() {
            return;
        }
        self.disconnect();
        self.reopen(hook);
    }

    /// If disk or power failed.
    fn start_again(&mut self, hook: &Hook) {
        if self.disk.crashed() {
            self.power_lost(hook);
        } else if self.failed.load(Ordering::Relaxed) {
            self.tell(|| "the store failed".into());
            self.counts.failures += 1;
            self.kill(hook);
        }
    }

    /// Ends the process at once. Its files stay as they are, the page cache included.
    fn kill(&mut self, hook: &Hook) {
        self.tell(|| "kill".into());
        self.counts.kills += 1;
        self.disk = self.disk.after_kill();
        self.disconnect();
        self.reopen(hook);
    }

    /// Ends the machine.
    fn power_lost(&mut self, hook: &Hook) {
        self.tell(|| "power is lost".into());
        self.counts.power_losses += 1;
        self.disconnect();
        self.lose_power();
        self.reopen(hook);
    }

    fn lose_power(&mut self) {
        let chance = &mut self.chance;
        let disk = match chance.below(4) {
            0 => self.disk.after_crash(&mut || false),
            1 => self.disk.after_crash(&mut || true),
            2 => self.disk.after_crash(&mut || chance.one_in(2)),
            _ => self.disk.after_crash(&mut || chance.one_in(20)),
        };
        if let Some(plant) = self.plant {
            plant.in_disk(&disk);
        }
        self.disk = disk;
    }

    /// Nobody has a handle on the old process any more.
    fn disconnect(&mut self) {
        for client in &mut self.clients {
            client.disconnect();
        }
        self.views.clear();
        self.take_last_answers();
        *self.onlooker.store.lock().expect("no panic") = Weak::new();
        self.store = None;
        self.failed.store(false, Ordering::Relaxed);
    }

    /// Opens what is there, through more power losses perhaps, and settles which writes were made.
    fn reopen(&mut self, hook: &Hook) {
        self.disk.on_step(Some(hook.clone()));
        let syncs = self.options.durability == Durability::Fsync;
        if syncs && self.chance.one_in(4) {
            self.disk.crash_at(self.disk.steps() + 1 + self.chance.below(25) as u64);
        }
        let store = loop {
            let opened = Store::open(Arc::new(self.disk.clone()), self.options.clone(), Arc::new(NoArchiver));
            match opened {
                Ok(store) if self.is_well() => break store,
                Ok(store) => drop(store),
                Err(error) => {
                    self.tell(|| format!("not opened: {error}"));
                    assert!(
                        !self.is_well() || self.disk.has_failed(),
                        "a disk that works was refused: {error}"
                    );
                }
            }
            self.failed.store(false, Ordering::Relaxed);
            if self.disk.crashed() {
                self.lose_power();
                self.disk.on_step(Some(hook.clone()));
            } else {
                self.disk = self.disk.after_kill();
                self.disk.on_step(Some(hook.clone()));
            }
        };
        *self.onlooker.store.lock().expect("no panic") = Arc::downgrade(&store);
        self.settle(store.view().revision());
        self.store = Some(store);
        self.check_everything();
    }

    /// Which of the writes under way were made shows in the revision.
    fn settle(&mut self, found: u64) {
        self.tell(|| format!("opened at {found}"));
        if self.model.revision() == 0 {
            self.model = Model::new(found);
        }
        let seen = self.onlooker.seen.fetch_max(found, Ordering::Relaxed);
        assert!(found >= seen, "revision {found} after a reader saw {seen}");
        let jumped = found >= self.model.revision() + JUMP;
        assert!(!jumped || self.options.durability == Durability::Os, "revisions jumped");
        let reached = if jumped { found - JUMP } else { found };
        while self.model.revision() < reached
            && let Some(UnderWay { step, .. }) = self.under_way.pop_front()
        {
            self.model.apply(&step);
        }
        self.under_way.clear();
        assert_eq!(
            self.model.revision(),
            reached,
            "acknowledged writes are missing, or others are there"
        );
        if jumped {
            self.model.jump(found);
        }
    }

    fn check_everything(&mut self) {
        let store = self.store();
        judge::view(&self.model, &store.view(), None, &mut self.chance).expect("nothing is damaged");
        for client in &mut self.clients {
            client
                .take(&store, &self.model, usize::MAX)
                .expect("nothing is damaged");
        }
    }

    /// A bit of a copy of the directory flips while no process runs. Whatever is answered then is right or an error.
    fn rot(&mut self, hook: &Hook) {
        self.restart(hook);
        if !self.is_well() {
            return;
        }
        self.commit(usize::MAX);
        self.store().close();
        if !self.is_well() {
            return;
        }
        let copy = self.disk.after_crash(&mut || true);
        self.disconnect();
        let files = copy.files();
        let (name, len) = files[self.chance.below(files.len())].clone();
        if len > 0 {
            let offset = self.chance.below(len as usize) as u64;
            let mask = 1 << self.chance.below(8);
            self.tell(|| format!("{name} rots at {offset}"));
            copy.damage(&name, offset, mask);
            if self.look_at_rot(&copy).is_none() {
                self.counts.rot_found += 1;
            }
        }
        self.failed.store(false, Ordering::Relaxed);
        self.reopen(hook);
    }

    /// `None`: the damage was found and cannot be mended.
    fn look_at_rot(&mut self, disk: &SimDisk) -> Option<()> {
        let open = || Store::open(Arc::new(disk.clone()), self.options.clone(), Arc::new(NoArchiver)).ok();
        let store = open()?;
        let mut chance = Chance::new(self.chance.below(1 << 30) as u64);
        let first_look = judge::view(&self.model, &store.view(), None, &mut chance);
        store.scrub();
        let stats = store.stats();
        let second_look = judge::view(&self.model, &store.view(), None, &mut chance);
        let mut reader = Client::from_floor(&store, &self.model, &mut chance);
        let history = reader.take(&store, &self.model, usize::MAX);
        if let Err(damaged) = second_look.and(history) {
            assert!(!stats.damaged.is_empty(), "scrubbing does not tell of {damaged}");
            return None;
        }
        self.counts.rot_mended += u64::from(first_look.is_err());
        // What is damaged must not be copied into a place where it looks right.
        store.maintain(true);
        judge::view(&self.model, &store.view(), None, &mut chance).ok()
    }
}
