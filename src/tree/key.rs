//! Names of the fields of a map.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;

use super::{Text, text_of};

/// The name of a field: one that the program knows, or one that was sent.
#[derive(Clone)]
pub enum Key {
    /// A name of a schema, or one in the code.
    Known(&'static str),
    /// Any other.
    Sent(Text),
}

impl Key {
    /// The name.
    #[inline]
    pub fn as_str(&self) -> &str {
        match self {
            Key::Known(name) => name,
            Key::Sent(name) => name,
        }
    }
}

impl Deref for Key {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        self
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        self
    }
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Key) -> bool {
        match (self, other) {
            (Key::Known(one), Key::Known(other)) if std::ptr::eq(*one, *other) => true,
            _ => self.as_str() == other.as_str(),
        }
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    #[inline]
    fn cmp(&self, other: &Key) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl PartialEq<str> for Key {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<Key> for str {
    fn eq(&self, other: &Key) -> bool {
        self == other.as_str()
    }
}

impl PartialEq<&str> for Key {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<String> for Key {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl From<&'static str> for Key {
    fn from(name: &'static str) -> Key {
        Key::Known(name)
    }
}

impl From<String> for Key {
    fn from(name: String) -> Key {
        Key::Sent(text_of(&name))
    }
}

impl From<&Key> for Key {
    fn from(name: &Key) -> Key {
        name.clone()
    }
}

impl From<Text> for Key {
    fn from(name: Text) -> Key {
        Key::Sent(name)
    }
}
