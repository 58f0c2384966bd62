//! What wants a look later, by moments of [`TICK_MS`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Moments that are told apart, milliseconds.
const TICK_MS: i64 = 20;

/// Keys and when they are due, each once: the soonest moment counts. About 150 bytes a key.
#[derive(Debug, Default)]
pub(super) struct Wheel {
    due: HashMap<Arc<str>, i64>,
    ticks: BTreeMap<i64, Vec<Arc<str>>>,
}

impl Wheel {
    /// Notes that a key wants a look at that time, in Unix milliseconds.
    pub(super) fn add(&mut self, key: Arc<str>, at_ms: i64) {
        let tick = at_ms.div_euclid(TICK_MS) + i64::from(at_ms.rem_euclid(TICK_MS) > 0);
        if self.due.get(&key).is_some_and(|sooner| *sooner <= tick) {
            return;
        }
        self.due.insert(key.clone(), tick);
        self.ticks.entry(tick).or_default().push(key);
    }

    /// Takes a key that is due.
    pub(super) fn take(&mut self, now_ms: i64) -> Option<Arc<str>> {
        loop {
            let mut first = self.ticks.first_entry()?;
            let tick = *first.key();
            if tick * TICK_MS > now_ms {
                return None;
            }
            match first.get_mut().pop() {
                None => drop(first.remove()),
                // What was put off or brought forward counts at its own moment alone.
                Some(key) if self.due.get(&key) == Some(&tick) => {
                    self.due.remove(&key);
                    return Some(key);
                }
                Some(_) => {}
            }
        }
    }

    /// When the next key is due, Unix milliseconds.
    pub(super) fn next_ms(&self) -> Option<i64> {
        self.ticks.first_key_value().map(|(tick, _)| tick * TICK_MS)
    }

    /// A key is of no interest any more.
    pub(super) fn forget(&mut self, key: &str) {
        if let Some(tick) = self.due.remove(key)
            && let Some(keys) = self.ticks.get_mut(&tick)
            && keys.len() == 1
        {
            self.ticks.remove(&tick);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_when_they_are_due_each_once_and_at_their_soonest() {
        let mut wheel = Wheel::default();
        wheel.add("b".into(), 1000);
        wheel.add("a".into(), 500);
        wheel.add("a".into(), 900);
        wheel.add("b".into(), 640);
        wheel.add("c".into(), 600);
        wheel.forget("c");
        assert_eq!(wheel.take(499), None);
        assert_eq!(wheel.take(500).as_deref(), Some("a"));
        assert_eq!(wheel.take(639), None);
        assert_eq!(wheel.next_ms(), Some(640));
        assert_eq!(wheel.take(2000).as_deref(), Some("b"));
        assert_eq!(wheel.take(2000), None);
        assert_eq!(wheel.next_ms(), None);
    }
}
