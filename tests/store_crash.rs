//! The store on a disk that loses power at every step, held against a simple model.
//!
//! What must hold after each crash, whatever the disk kept of what was not synced:
//! - every acknowledged write is there;
//! - of the writes that were under way, the first few are there whole, the others not at all;
//! - revisions go on where they ended, and nothing that a reader saw is undone;
//! - lists, gets, history and past states are those of the model.

mod store_toy;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use flatkube::store::disk::sim::{Operation, SimDisk};
use flatkube::store::{Durability, Options, Precondition, Store};
use proptest::prelude::*;
use store_toy::model::{Model, Step};
use store_toy::{Toy, options, runtime};

const RESOURCES: [&str; 3] = ["pods", "nodes", "leases.coordination.k8s.io"];

#[derive(Debug, Clone)]
enum Action {
    /// Writes that wait together.
    Write(Vec<Step>),
    /// Shelve what is due, or everything, and retire.
    Maintain(bool),
    /// Close and open again.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let precondition = prop_oneof![
        6 => Just(Precondition::Any),
        1 => Just(Precondition::Absent),
        1 => Just(Precondition::Exists),
    ];
    let value =
        prop_oneof![3 => (1..400_usize).prop_map(Some), 1 => Just(None), 1 => (2000..6000_usize).prop_map(Some)];
    (0..RESOURCES.len(), 0..4_usize, 0..6_u8, value, precondition, 0..26_u8).prop_map(
        |(resource, namespace, name, value, precondition, letter)| Step {
            resource: RESOURCES[resource],
            key: match namespace {
                0 => format!("n{name}"),
                namespace => format!("{}/n{name}", ["a", "ab", "a-b"][namespace - 1]),
            },
            value: value.map(|len| char::from(b'a' + letter).to_string().repeat(len)),
            precondition,
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => prop::collection::vec(step(), 1..6).prop_map(Action::Write),
        2 => any::<bool>().prop_map(Action::Maintain),
        1 => Just(Action::Restart),
    ]
}

/// How a crash treats what was not synced.
#[derive(Debug, Clone, Copy)]
enum Survival {
    Nothing,
    Everything,
    Random(u64),
}

impl Survival {
    fn crash(self, disk: &SimDisk) -> SimDisk {
        let mut state = match self {
            Survival::Nothing => return disk.after_crash(&mut || false),
            Survival::Everything => return disk.after_crash(&mut || true),
            Survival::Random(seed) => seed | 1,
        };
        disk.after_crash(&mut || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state & 4 == 0
        })
    }
}

fn survival() -> impl Strategy<Value = Survival> {
    prop_oneof![
        Just(Survival::Nothing),
        Just(Survival::Everything),
        any::<u64>().prop_map(Survival::Random)
    ]
}

/// Tiny, and with so little history that segments retire all the time.
fn tiny() -> Options {
    Options {
        history_bytes: 64 << 10,
        history_bytes_min: 24 << 10,
        history_age: std::time::Duration::ZERO,
        idle_marker: std::time::Duration::from_hours(1),
        ..options()
    }
}

fn open(disk: &SimDisk, options: &Options) -> Option<Arc<Store>> {
    match Store::open(Arc::new(disk.clone()), options.clone(), Arc::new(Toy)) {
        Ok(store) => Some(store),
        Err(error) if disk.crashed() => {
            drop(error);
            None
        }
        Err(error) => panic!("a disk that works was refused: {error}"),
    }
}

/// Runs the actions until the power is gone. The model knows the acknowledged writes; those under way are given back.
/// With `check`, everything is compared after each action.
fn live(
    disk: &SimDisk,
    options: &Options,
    actions: &[Action],
    model: &mut Option<Model>,
    check: bool,
) -> (Vec<Step>, u64) {
    let runtime = runtime();
    let Some(mut store) = open(disk, options) else {
        return (Vec::new(), 0);
    };
    let model = model.get_or_insert_with(|| Model::new(store.view().revision()));
    for action in actions {
        match action {
            Action::Write(steps) => {
                let mut answers: Vec<_> = steps.iter().map(|step| Box::pin(store.write(step.write()))).collect();
                let results: Vec<_> = runtime.block_on(async {
                    let mut results: Vec<_> = answers.iter().map(|_| None).collect();
                    std::future::poll_fn(|context| {
                        for (answer, result) in answers.iter_mut().zip(&mut results) {
                            if result.is_none()
                                && let std::task::Poll::Ready(ready) = answer.as_mut().poll(context)
                            {
                                *result = Some(ready);
                            }
                        }
                        if results.iter().all(Option::is_some) {
                            std::task::Poll::Ready(())
                        } else {
                            std::task::Poll::Pending
                        }
                    })
                    .await;
                    results.into_iter().flatten().collect()
                });
                drop(answers);
                for (index, (step, result)) in steps.iter().zip(&results).enumerate() {
                    if disk.crashed() && matches!(result, Err(flatkube::store::WriteError::Failed(_))) {
                        // Later ones may not be acknowledged either.
                        assert!(results[index..].iter().all(Result::is_err));
                        return (steps[index..].to_vec(), store.view().revision());
                    }
                    model.answered(step, result);
                }
            }
            Action::Maintain(all) => store.maintain(*all),
            Action::Restart => {
                let seen = store.view().revision();
                store.close();
                drop(store);
                if disk.crashed() {
                    return (Vec::new(), seen);
                }
                match open(disk, options) {
                    Some(next) => store = next,
                    None => return (Vec::new(), seen),
                }
            }
        }
        if check && !disk.crashed() {
            model.check(&store, &RESOURCES);
        }
    }
    let seen = store.view().revision();
    drop(store);
    (Vec::new(), seen)
}

/// Opens what a crash left, settles which of the writes under way were made, and compares.
fn settle(disk: &SimDisk, options: &Options, under_way: &[Step], seen: u64, model: &mut Option<Model>) {
    let store = open(disk, options).expect("the disk works");
    let found = store.view().revision();
    assert!(found >= seen, "revision {found} after readers saw {seen}");
    // The crash came before the store was there.
    let model = model.get_or_insert_with(|| Model::new(found));
    for step in under_way {
        if model.revision() < found {
            model.apply(step);
        }
    }
    assert_eq!(model.revision(), found, "acknowledged writes are missing");
    model.check(&store, &RESOURCES);
}

/// One life after the other, each ended by a power loss.
fn lives(options: &Options, lives: &[(Vec<Action>, u64, Survival)], check: bool, plant: impl Fn(&SimDisk)) {
    let mut disk = SimDisk::new();
    let mut model = None;
    for (actions, crash_at, survival) in lives {
        plant(&disk);
        disk.crash_at(*crash_at);
        let (under_way, seen) = live(&disk, options, actions, &mut model, check);
        disk = survival.crash(&disk);
        settle(&disk, options, &under_way, seen, &mut model);
        disk = survival.crash(&disk);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_actions_survive_crashes_at_any_step(
        story in prop::collection::vec((prop::collection::vec(action(), 1..25), 1..300_u64, survival()), 1..4)
    ) {
        lives(&tiny(), &story, true, |_| {});
    }
}

/// A fixed story that rotates, shelves, retires and restarts.
fn story() -> Vec<Action> {
    let mut actions = Vec::new();
    for round in 0..14_usize {
        let step = |index: usize| Step {
            resource: RESOURCES[(round + index) % 2],
            key: format!("a/n{}", (round * 5 + index * 3) % 11),
            value: (index != 3 || round < 4).then(|| "x".repeat(150 + 40 * ((round + index) % 30))),
            precondition: Precondition::Any,
        };
        actions.push(Action::Write((0..4).map(step).collect()));
        if round % 4 == 3 {
            actions.push(Action::Maintain(round % 8 == 7));
        }
        if round == 9 {
            actions.push(Action::Restart);
        }
    }
    actions
}

fn steps_of_the_story() -> u64 {
    let disk = SimDisk::new();
    let mut model = None;
    let (under_way, _) = live(&disk, &tiny(), &story(), &mut model, true);
    assert!(under_way.is_empty());
    let steps = disk.steps();
    // What it is meant to do, it does.
    let stats = open(&disk, &tiny()).unwrap().stats();
    assert!(
        stats
            .resources
            .iter()
            .any(|resource| resource.parts > 0 && resource.floor > 0),
        "{stats:?}"
    );
    steps
}

#[test]
fn a_crash_at_every_step_of_a_story_is_survived() {
    let steps = steps_of_the_story();
    assert!(steps > 150, "the story is too short: {steps}");
    for step in 1..=steps {
        for survival in [Survival::Nothing, Survival::Everything, Survival::Random(step * 7919)] {
            let one = [(story(), step, survival)];
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| lives(&tiny(), &one, false, |_| {}))) {
                eprintln!("crash at step {step} of {steps}, {survival:?}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[test]
fn a_crash_during_recovery_is_survived() {
    let steps = steps_of_the_story();
    for first in (3..steps).step_by(17) {
        for second in 1..=14 {
            let survival = Survival::Random(first * 31 + second);
            lives(
                &tiny(),
                &[(story(), first, survival), (Vec::new(), second, survival)],
                false,
                |_| {},
            );
        }
    }
}

/// A process that is killed leaves what it has not synced; a power loss while the next one recovers takes some of it back, the
/// name of the newest manifest, too.
#[test]
fn a_power_loss_while_a_killed_one_is_recovered_from_is_survived() {
    let steps = steps_of_the_story();
    for killed_at in 3..steps {
        for lost_at in 1..=12 {
            let disk = SimDisk::new();
            disk.crash_at(killed_at);
            let mut model = None;
            let (under_way, seen) = live(&disk, &tiny(), &story(), &mut model, false);
            let disk = disk.after_kill();
            disk.crash_at(lost_at);
            drop(open(&disk, &tiny()));
            let survival = Survival::Random(killed_at * 31 + lost_at);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| {
                settle(&survival.crash(&disk), &tiny(), &under_way, seen, &mut model);
            })) {
                eprintln!("killed at step {killed_at} of {steps}, power lost at {lost_at}, {survival:?}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// The tests above can fail: with a disk that lies about syncs they do.
#[test]
fn a_disk_that_lies_is_found_out() {
    for plant in [
        |disk: &SimDisk| disk.lie_about(Operation::SyncData, ""),
        |disk: &SimDisk| disk.lie_about(Operation::SyncDir, ""),
    ] {
        let found_out = (1..steps_of_the_story()).step_by(11).any(|step| {
            let one = [(story(), step, Survival::Nothing)];
            catch_unwind(AssertUnwindSafe(|| lives(&tiny(), &one, false, plant))).is_err()
        });
        assert!(found_out);
    }
}

#[test]
fn without_syncs_a_crash_of_the_process_alone_loses_nothing() {
    let options = Options {
        durability: Durability::Os,
        ..tiny()
    };
    for step in (1..steps_of_the_story()).step_by(7) {
        let disk = SimDisk::new();
        disk.crash_at(step);
        let mut model = None;
        let (_, seen) = live(&disk, &options, &story(), &mut model, false);
        let store = open(&Survival::Everything.crash(&disk), &options).unwrap();
        assert!(store.view().revision() >= seen);
        if let Some(model) = model.filter(|model| model.revision() == seen) {
            for resource in RESOURCES {
                let now = store_toy::model::read(&store.view(), resource);
                assert!(now.len() >= model.count(resource).saturating_sub(4), "{resource}");
            }
        }
    }
}

/// Without syncs anything of the log may be missing after a power loss, but what is there is whole, and no revision that
/// was seen before comes back with other contents.
#[test]
fn without_syncs_a_power_loss_leaves_a_store_that_opens_and_jumps() {
    let options = Options {
        durability: Durability::Os,
        ..tiny()
    };
    for step in 1..steps_of_the_story() {
        let disk = SimDisk::new();
        disk.crash_at(step);
        let (_, seen) = live(&disk, &options, &story(), &mut None, false);
        let crashed = Survival::Random(step * 104_729).crash(&disk);
        let store = open(&crashed, &options).expect("the disk works");
        let found = store.view().revision();
        assert!(found >= seen, "step {step}: {found} after {seen}");
        if found > 1 << 32 {
            assert!(store.follow("pods", None, seen.min(found - 1)).is_err());
        }
        for resource in RESOURCES {
            // Reads every object, and compares its JSON with its revision and sidecar.
            store_toy::model::read(&store.view(), resource);
        }
        let write = store_toy::put("pods", "a/after", "1", Precondition::Any);
        assert!(runtime().block_on(store.write(write)).expect("it is writable").revision > found);
        store.maintain(true);
        store.close();
        drop(store);
        let store = open(&crashed, &options).expect("it was closed in order");
        assert!(store.view().get("pods", "a/after").expect("it is readable").is_some());
    }
}
