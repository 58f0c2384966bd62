//! Pods that want a node: who is next, who waits for a while, who waits for something to change.
//!
//! Rules: kube-scheduler's queue. Higher priority first, then who came earlier. A Pod for which no place was found waits until something
//! changes that may help it, and then as long as its backoff, which doubles with each attempt.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::placement::{PodId, Rules};

const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Who waited so long is tried again, whatever has changed.
const WAIT_MAX: Duration = Duration::from_mins(5);

/// The queue. About 150 bytes a Pod that wants a node: 15 MB at 100,000.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: HashMap<PodId, Entry>,
    /// Who can be tried now.
    active: BTreeSet<(Reverse<i64>, u64, PodId)>,
    /// Who can be tried at some time.
    later: BTreeSet<(Instant, PodId)>,
    /// Who waits for a change, by the time since when.
    waiting: BTreeSet<(Instant, PodId)>,
    numbers: u64,
}

#[derive(Debug)]
struct Entry {
    priority: i64,
    number: u64,
    attempts: u32,
    /// When the last attempt failed.
    failed: Option<Instant>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Active,
    Later(Instant),
    Waiting(Instant, Rules),
    /// It must not be tried: it has gates, or it is being placed.
    Held,
}

impl Queue {
    pub(super) fn holds(&self, id: PodId) -> bool {
        self.entries.contains_key(&id)
    }

    /// A new Pod, or one that has changed so that it may have another chance.
    pub(super) fn add(&mut self, id: PodId, priority: i64, is_gated: bool) {
        let attempts = self.entries.get(&id).map_or(0, |entry| entry.attempts);
        self.remove(id);
        self.numbers += 1;
        let entry = Entry {
            priority,
            number: self.numbers,
            attempts,
            failed: None,
            state: State::Held,
        };
        self.entries.insert(id, entry);
        if !is_gated {
            self.set(id, State::Active);
        }
    }

    pub(super) fn remove(&mut self, id: PodId) {
        if self.entries.contains_key(&id) {
            self.set(id, State::Held);
            self.entries.remove(&id);
        }
    }

    /// The next one; it is held until something is said of it.
    pub(super) fn pop(&mut self, now: Instant) -> Option<PodId> {
        while let Some((due, id)) = self.later.first().copied().filter(|(due, _)| *due <= now) {
            debug_assert!(due <= now);
            self.set(id, State::Active);
        }
        while let Some((_, id)) = self
            .waiting
            .first()
            .copied()
            .filter(|(since, _)| *since + WAIT_MAX <= now)
        {
            self.set(id, State::Active);
        }
        let (_, _, id) = self.active.first().copied()?;
        self.set(id, State::Held);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.attempts = entry.attempts.saturating_add(1);
        }
        Some(id)
    }

    /// When there is something to pop, if nothing is added.
    pub(super) fn due(&self) -> Option<Instant> {
        let later = self.later.first().map(|(due, _)| *due);
        let waiting = self.waiting.first().map(|(since, _)| *since + WAIT_MAX);
        later.into_iter().chain(waiting).min()
    }

    /// No place was found for it, because of these rules.
    pub(super) fn wait(&mut self, id: PodId, rules: Rules, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.failed = Some(now);
            self.set(id, State::Waiting(now, rules));
        }
    }

    /// What was decided could not be done: once more, after a while.
    pub(super) fn retry(&mut self, id: PodId, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.failed = Some(now);
            let due = now + backoff(entry.attempts);
            self.set(id, State::Later(due));
        }
    }

    /// Gives those that wait, and are told to by `may_help` (of a Pod and the rules that it failed by), another chance.
    pub(super) fn wake(&mut self, now: Instant, mut may_help: impl FnMut(PodId, Rules) -> bool) {
        let helped: Vec<PodId> = self
            .waiting
            .iter()
            .map(|(_, id)| *id)
            .filter(|id| match self.entries.get(id).map(|entry| entry.state) {
                Some(State::Waiting(_, rules)) => may_help(*id, rules),
                _ => false,
            })
            .collect();
        for id in helped {
            let Some(entry) = self.entries.get(&id) else { continue };
            let due = entry.failed.map(|failed| failed + backoff(entry.attempts));
            match due.filter(|due| *due > now) {
                Some(due) => self.set(id, State::Later(due)),
                None => self.set(id, State::Active),
            }
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn set(&mut self, id: PodId, state: State) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let place = (Reverse(entry.priority), entry.number, id);
        match entry.state {
            State::Active => drop(self.active.remove(&place)),
            State::Later(due) => drop(self.later.remove(&(due, id))),
            State::Waiting(since, _) => drop(self.waiting.remove(&(since, id))),
            State::Held => {}
        }
        entry.state = state;
        match state {
            State::Active => drop(self.active.insert(place)),
            State::Later(due) => drop(self.later.insert((due, id))),
            State::Waiting(since, _) => drop(self.waiting.insert((since, id))),
            State::Held => {}
        }
    }
}

fn backoff(attempts: u32) -> Duration {
    let doubled = attempts.saturating_sub(1).min(10);
    BACKOFF_FIRST.saturating_mul(1 << doubled).min(BACKOFF_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn priority_goes_first_then_age_and_who_fails_waits_for_a_change_and_its_backoff() {
        let mut queue = Queue::default();
        let now = Instant::now();
        for (id, priority) in [(1, 0), (2, 5), (3, 0), (4, 5)] {
            queue.add(id, priority, false);
        }
        queue.add(5, 100, true);
        let order: Vec<PodId> = std::iter::from_fn(|| queue.pop(now)).collect();
        assert_eq!(order, [2, 4, 1, 3], "one with gates is not tried");
        queue.wait(1, Rules::default(), now);
        queue.wait(3, Rules::default(), now);
        queue.retry(2, now);
        assert_eq!(queue.pop(now), None);
        queue.wake(now, |id, _| id == 3);
        assert_eq!(queue.due(), Some(now + BACKOFF_FIRST));
        let later = now + BACKOFF_FIRST;
        let order: Vec<PodId> = std::iter::from_fn(|| queue.pop(later)).collect();
        assert_eq!(order, [2, 3]);
        queue.wait(3, Rules::default(), later);
        queue.wake(later, |_, _| true);
        assert_eq!(queue.pop(later), Some(1), "its backoff is over");
        assert_eq!(queue.due(), Some(later + 2 * BACKOFF_FIRST));
        queue.wait(1, Rules::default(), later);
        queue.remove(3);
        assert_eq!(queue.pop(later + WAIT_MAX), Some(1), "nobody waits for ever");
        queue.add(5, 100, false);
        assert_eq!(queue.pop(now), Some(5));
    }
}
