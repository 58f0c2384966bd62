//! The identity behind a request.

/// Who a request comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// Name, e.g. `alice`, `system:anonymous`.
    pub name: String,
    /// Stable id, may be empty.
    pub uid: String,
    /// Groups, `system:authenticated` included.
    pub groups: Vec<String>,
}

impl User {
    /// A caller without credentials.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".into(),
            uid: String::new(),
            groups: vec!["system:unauthenticated".into()],
        }
    }

    /// A caller whose credentials were checked; adds the group of all such callers.
    pub fn authenticated(name: impl Into<String>, uid: impl Into<String>, mut groups: Vec<String>) -> Self {
        let all = "system:authenticated";
        if !groups.iter().any(|group| group == all) {
            groups.push(all.into());
        }
        Self {
            name: name.into(),
            uid: uid.into(),
            groups,
        }
    }

    /// Whether credentials were shown.
    pub fn is_anonymous(&self) -> bool {
        self.groups.iter().any(|group| group == "system:unauthenticated")
    }
}
