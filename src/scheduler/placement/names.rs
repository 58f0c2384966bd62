//! Texts that many objects share, kept once.

use std::collections::HashSet;
use std::sync::Arc;

/// A text. Equal ones of one [`Names`] are the same bytes in memory.
pub(crate) type Name = Arc<str>;

/// Texts that are in use. Its memory follows theirs: what nobody holds any more goes when the table has doubled.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: HashSet<Name>,
    tidy_at: usize,
}

/// Fewer than these are not worth looking through.
const TIDY_MIN: usize = 1024;

impl Names {
    pub(crate) fn get(&mut self, text: &str) -> Name {
        if let Some(name) = self.known.get(text) {
            return name.clone();
        }
        if self.known.len() >= self.tidy_at.max(TIDY_MIN) {
            self.known.retain(|name| Arc::strong_count(name) > 1);
            self.tidy_at = 2 * self.known.len();
        }
        let name: Name = text.into();
        self.known.insert(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_and_unused_ones_go() {
        let mut names = Names::default();
        let kept = names.get("kept");
        assert!(Arc::ptr_eq(&kept, &names.get("kept")));
        for number in 0..5000 {
            names.get(&number.to_string());
        }
        assert!(names.known.len() <= 2 * TIDY_MIN, "{}", names.known.len());
        assert!(Arc::ptr_eq(&kept, &names.get("kept")));
    }
}
