//! The work queue of a controller: keys that want a look, each once however often it was asked for.
//!
//! A key that is being worked on and is asked for again comes back when the work on it is done, so that two workers never have
//! one key, and the last word is never missed. Failures come back later and later. Rules: `client-go/util/workqueue`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::figures::Figures;

/// How long a key waits after its first failure; twice as long after each further one.
const RETRY_FIRST: Duration = Duration::from_millis(5);
/// How long it waits at most, unless its queue says otherwise.
pub(super) const RETRY_MAX: Duration = Duration::from_secs(1000);

/// A queue of keys. Its memory follows the number of different keys in it.
#[derive(Debug)]
pub(super) struct Queue<K> {
    state: Mutex<State<K>>,
    added: Notify,
    figures: Figures,
    retry_max: Duration,
}

#[derive(Debug)]
struct State<K> {
    /// In the order in which they are handed out.
    ready: VecDeque<K>,
    /// What is in `ready`, and what is to go there when the work on it is done; since when.
    asked: HashMap<K, Instant>,
    working: HashMap<K, Instant>,
    /// What is to be asked for later, the soonest on top; numbers keep the order of equal moments.
    later: BinaryHeap<Reverse<(Instant, u64, Later<K>)>>,
    /// When each key of `later` is to be asked for; what else is there of it counts no more.
    due: HashMap<K, Instant>,
    numbers: u64,
    failures: HashMap<K, u32>,
}

/// A key that is not compared: when and number decide.
#[derive(Debug)]
struct Later<K>(K);

impl<K> PartialEq for Later<K> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<K> Eq for Later<K> {}

impl<K> PartialOrd for Later<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Later<K> {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

/// What became of the work on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// It is as it should be.
    Settled,
    /// It failed, or was overtaken: once more, after a while.
    Again,
    /// It wants another look at that time.
    After(Duration),
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                ready: VecDeque::new(),
                asked: HashMap::new(),
                working: HashMap::new(),
                later: BinaryHeap::new(),
                due: HashMap::new(),
                numbers: 0,
                failures: HashMap::new(),
            }),
            added: Notify::new(),
            figures: Figures::none(),
            retry_max: RETRY_MAX,
        }
    }
}

impl<K> Queue<K> {
    /// One whose figures have this name.
    pub(super) fn named(name: &'static str) -> Self {
        Self {
            figures: Figures::named(name),
            ..Self::default()
        }
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// The same, whose keys wait no longer than this after a failure.
    pub(super) fn retrying_within(self, retry_max: Duration) -> Self {
        Self { retry_max, ..self }
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_depth(&self, state: &State<K>) {
        self.figures.depth.set(state.ready.len() as f64);
    }

    /// Asks for a look at this key. Costs nothing when it is asked for already.
    pub(super) fn add(&self, key: K) {
        let mut state = self.state();
        self.figures.adds.increment(1);
        let is_ready = state.ask(key);
        self.tell_depth(&state);
        drop(state);
        if is_ready {
            self.added.notify_one();
        }
    }

    /// Asks for a look after a while.
    pub(super) fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        self.state().ask_later(key, delay);
        // A sleeping worker may have to wake earlier than it meant to.
        self.added.notify_one();
    }

    /// The next key. It belongs to the caller until [`Queue::done`]. Cancel-safe.
    pub(super) async fn next(&self) -> K {
        loop {
            let added = self.added.notified();
            let now = Instant::now();
            let (key, due, more) = {
                let mut state = self.state();
                let taken = state.take(now);
                self.tell_depth(&state);
                taken
            };
            if let Some((key, since)) = key {
                self.figures.waited.record(now.duration_since(since).as_secs_f64());
                // Somebody else has to wait for what is due while this one is worked on.
                if more || due.is_some() {
                    self.added.notify_one();
                }
                return key;
            }
            match due {
                None => added.await,
                Some(due) => tokio::select! {
                    () = added => {}
                    () = tokio::time::sleep_until(due) => {}
                },
            }
        }
    }

    /// Gives a key back.
    pub(super) fn done(&self, key: &K, done: Done) {
        let mut state = self.state();
        if let Some(since) = state.working.remove(key) {
            self.figures.worked.record(since.elapsed().as_secs_f64());
        }
        match done {
            Done::Settled => {
                state.failures.remove(key);
            }
            Done::Again => {
                let failures = state.failures.entry(key.clone()).or_insert(0);
                let delay = RETRY_FIRST.saturating_mul(1 << (*failures).min(20)).min(self.retry_max);
                *failures += 1;
                self.figures.retries.increment(1);
                state.ask_later(key.clone(), delay);
            }
            Done::After(delay) => {
                state.failures.remove(key);
                state.ask_later(key.clone(), delay);
            }
        }
        if state.asked.contains_key(key) {
            state.ready.push_back(key.clone());
        }
        self.tell_depth(&state);
        drop(state);
        self.added.notify_one();
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// `true` when a worker can take it.
    fn ask(&mut self, key: K) -> bool {
        if self.asked.contains_key(&key) {
            return false;
        }
        self.asked.insert(key.clone(), Instant::now());
        if self.working.contains_key(&key) {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    fn ask_later(&mut self, key: K, delay: Duration) {
        let due = Instant::now() + delay;
        if self.due.get(&key).is_some_and(|sooner| *sooner <= due) {
            return;
        }
        self.numbers += 1;
        self.due.insert(key.clone(), due);
        self.later.push(Reverse((due, self.numbers, Later(key))));
    }

    /// A key to work on, and since when it was asked for; else when the next one is due. And whether there are more.
    fn take(&mut self, now: Instant) -> (Option<(K, Instant)>, Option<Instant>, bool) {
        while self.later.peek().is_some_and(|Reverse((due, ..))| *due <= now) {
            if let Some(Reverse((due, _, Later(key)))) = self.later.pop()
                && self.due.get(&key) == Some(&due)
            {
                self.due.remove(&key);
                self.ask(key);
            }
        }
        let key = self.ready.pop_front().map(|key| {
            let since = self.asked.remove(&key).unwrap_or(now);
            self.working.insert(key.clone(), now);
            (key, since)
        });
        let due = self.later.peek().map(|Reverse((due, ..))| *due);
        (key, due, !self.ready.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn queue() -> Arc<Queue<&'static str>> {
        Arc::default()
    }

    async fn none(queue: &Queue<&'static str>) -> bool {
        tokio::time::timeout(Duration::ZERO, queue.next()).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_handed_out_once_and_again_if_it_was_asked_for_meanwhile() {
        let queue = queue();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        assert_eq!(queue.next().await, "a");
        assert_eq!(queue.next().await, "b");
        queue.add("a");
        queue.add("a");
        assert!(none(&queue).await, "nobody else may have what is worked on");
        queue.done(&"b", Done::Settled);
        assert!(none(&queue).await);
        queue.done(&"a", Done::Settled);
        assert_eq!(queue.next().await, "a");
        queue.done(&"a", Done::Settled);
        assert!(none(&queue).await);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_come_back_later_and_later_until_one_succeeds() {
        let queue = queue();
        queue.add("a");
        let mut waited = Vec::new();
        for _ in 0..4 {
            let before = Instant::now();
            assert_eq!(queue.next().await, "a");
            waited.push(before.elapsed().as_millis());
            queue.done(&"a", Done::Again);
        }
        assert_eq!(queue.next().await, "a");
        queue.done(&"a", Done::Settled);
        queue.add("a");
        queue.next().await;
        queue.done(&"a", Done::Again);
        let before = Instant::now();
        queue.next().await;
        waited.push(before.elapsed().as_millis());
        assert!(
            waited.is_sorted_by(|a, b| a <= b) || waited[4] < waited[3],
            "{waited:?}"
        );
        assert!(waited[0] == 0 && (5..=6).contains(&waited[1]) && (10..=11).contains(&waited[2]));
        assert!((5..=6).contains(&waited[4]), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_no_longer_than_their_queue_says() {
        let queue = Queue::default().retrying_within(Duration::from_mins(1));
        queue.add("a");
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            let before = Instant::now();
            queue.next().await;
            longest = longest.max(before.elapsed());
            queue.done(&"a", Done::Again);
        }
        assert_eq!(longest.as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_asked_for_at_a_later_moment_comes_then_even_to_a_worker_that_sleeps() {
        let queue = queue();
        let worker = tokio::spawn({
            let queue = queue.clone();
            async move { (queue.next().await, Instant::now()) }
        });
        tokio::task::yield_now().await;
        let before = Instant::now();
        queue.add_after("late", Duration::from_secs(50));
        queue.add_after("soon", Duration::from_secs(2));
        queue.add_after("soon", Duration::from_secs(3));
        let (key, at) = worker.await.unwrap();
        assert_eq!((key, (at - before).as_secs()), ("soon", 2));
        queue.done(&"soon", Done::Settled);
        assert_eq!((queue.next().await, before.elapsed().as_secs()), ("late", 50));
    }
}
