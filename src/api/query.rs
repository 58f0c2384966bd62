//! The query string of a request.

use std::borrow::Cow;

/// A query string, decoded pair by pair when asked. Nothing is allocated for a request without one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    raw: String,
}

impl Query {
    /// `raw` is what follows the `?`, still percent-encoded.
    pub fn new(raw: &str) -> Self {
        Self { raw: raw.to_owned() }
    }

    /// True if there is no parameter at all.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// All pairs in their order, percent-decoded, `+` read as a space.
    pub fn pairs(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        form_urlencoded::parse(self.raw.as_bytes())
    }

    /// The first value of `name`, or `None` when the parameter is absent.
    pub fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        if self.raw.is_empty() {
            return None;
        }
        self.pairs().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// All values of `name`.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Cow<'a, str>> {
        self.pairs().filter(move |(key, _)| key == name).map(|(_, value)| value)
    }

    /// A boolean as upstream converts it from a query: absent is false; `0` and `false` (in any case) are false;
    /// everything else, the empty value included, is true.
    /// (`Convert_Slice_string_To_bool` of apimachinery.)
    pub fn flag(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_flags_read_as_upstream_does() {
        let query = Query::new("labelSelector=a%3Db%2Cc&x=1+2&watch=&w0=0&wf=False&w1=yes&x=3");
        assert_eq!(query.get("labelSelector").as_deref(), Some("a=b,c"));
        assert_eq!(query.get("x").as_deref(), Some("1 2"));
        assert_eq!(query.all("x").collect::<Vec<_>>(), ["1 2", "3"]);
        assert!(query.flag("watch"));
        assert!(query.flag("w1"));
        assert!(!query.flag("w0"));
        assert!(!query.flag("wf"));
        assert!(!query.flag("absent"));
    }
}
