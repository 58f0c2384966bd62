//! Names of objects. What texts may be names at all stands in [`crate::scalars::names`].

use super::{NameRule, Strategy};
use crate::scalars::names::{SUBDOMAIN_LEN_MAX, too_long};
pub(super) use crate::scalars::names::{
    dns_1035_label, is_underscored_subdomain, label, label_value, path_segment, qualified_name, subdomain,
};

/// What is wrong with the name of an object of a kind; nothing if it may be one.
///
/// `prefix`: the text is a `generateName`, so a dash at its end will be followed by more.
pub(super) fn object_name(strategy: &Strategy, name: &str, prefix: bool) -> Vec<String> {
    let masked = name
        .strip_suffix('-')
        .filter(|rest| prefix && !rest.is_empty())
        .map(|rest| format!("{rest}a"));
    let name = masked.as_deref().unwrap_or(name);
    match strategy.name_rule {
        NameRule::PathSegment => path_segment(name, prefix),
        NameRule::Label => label(name),
        NameRule::Subdomain => {
            let mut wrong = subdomain(name);
            let max = strategy.name_len_max;
            if wrong.is_empty() && max < SUBDOMAIN_LEN_MAX && name.len() > max {
                wrong.push(too_long(max));
            }
            wrong
        }
    }
}

/// Longest generated name before its suffix, in bytes: with five more characters it is a label.
const GENERATED_BASE_LEN_MAX: usize = 58;

/// A name from `generateName`: the prefix, cut if need be, and five random characters that make no words.
pub fn generate(prefix: &str) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut end = prefix.len().min(GENERATED_BASE_LEN_MAX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    // The first five bytes of a version 4 UUID are random.
    let random = uuid::Uuid::new_v4().into_bytes();
    let suffix = random[..5]
        .iter()
        .map(|&byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]));
    prefix[..end].chars().chain(suffix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::find;

    #[test]
    fn a_generated_name_is_valid_and_no_longer_than_a_label() {
        let strategy = &find("", "v1", "namespaces").unwrap().strategy;
        for prefix in ["a-".to_owned(), "n".repeat(70), format!("{}é", "n".repeat(57))] {
            let name = generate(&prefix);
            assert!(name.len() <= 63, "{name}");
            if prefix.is_ascii() {
                assert_eq!(object_name(strategy, &name, false), [""; 0]);
            }
        }
        assert_ne!(generate("a-"), generate("a-"));
        assert_eq!(object_name(strategy, "gen-", true), [""; 0]);
        assert_eq!(object_name(strategy, "gen-", false).len(), 1);
    }
}
