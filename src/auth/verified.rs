//! Tokens whose signature was proven before, so that it is not proven with every request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The SHA-256 of a token.
pub(super) type Digest = [u8; 32];

/// Values by the digest of the token that they are of. Two generations: when the young one is full it becomes the old one, and
/// who is asked for in the old one is young again; so what is used stays. Holds 2 × 2,048 values at most; of the size that
/// service accounts have (700 bytes each, reckoned as the sum of their texts) that is 3 MiB, however many objects there are.
#[derive(Debug)]
pub(super) struct Verified<T> {
    generations: Mutex<[HashMap<Digest, Arc<T>>; 2]>,
}

/// Values of one generation.
const GENERATION: usize = 2048;

impl<T> Default for Verified<T> {
    fn default() -> Self {
        Self {
            generations: Mutex::default(),
        }
    }
}

impl<T> Verified<T> {
    /// What is known of a token.
    pub(super) fn get(&self, digest: &Digest) -> Option<Arc<T>> {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let [young, old] = &mut *generations;
        if let Some(found) = young.get(digest) {
            return Some(found.clone());
        }
        let found = old.remove(digest)?;
        insert(&mut generations, *digest, found.clone());
        Some(found)
    }

    /// Notes what was proven of a token.
    pub(super) fn insert(&self, digest: Digest, value: Arc<T>) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        insert(&mut generations, digest, value);
    }

    /// Forgets a token.
    pub(super) fn remove(&self, digest: &Digest) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        for generation in &mut *generations {
            generation.remove(digest);
        }
    }
}

fn insert<T>(generations: &mut [HashMap<Digest, Arc<T>>; 2], digest: Digest, value: Arc<T>) {
    if generations[0].len() >= GENERATION {
        generations.swap(0, 1);
        generations[0].clear();
    }
    generations[0].insert(digest, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_is_bounded() {
        let verified = Verified::default();
        let digest = |number: usize| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_le_bytes());
            digest
        };
        for number in 0..10 * GENERATION {
            verified.insert(digest(number), Arc::new(number));
            assert_eq!(verified.get(&digest(0)).as_deref(), Some(&0));
        }
        let held: usize = verified.generations.lock().unwrap().iter().map(HashMap::len).sum();
        assert!(held <= 2 * GENERATION && held > GENERATION, "{held}");
        verified.remove(&digest(0));
        assert!(verified.get(&digest(0)).is_none());
    }
}
