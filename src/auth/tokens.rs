//! Static bearer tokens, in kube-apiserver's CSV form: `token,user,uid,"group1,group2"`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::User;
use super::issuer::digest_of;

/// The users of a token file.
///
/// Tokens are kept as SHA-256 digests, so that a lookup's time tells nothing about how much of a guess is right.
#[derive(Debug, Default)]
pub struct Tokens {
    users: HashMap<[u8; 32], Arc<User>>,
}

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("token file {}: {reason}", path.display())]
pub struct TokenFileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong, with the line where one is to blame.
    pub reason: String,
}

impl Tokens {
    /// Reads a token file: at least three columns (token, user name, uid) and optionally a fourth with groups separated
    /// by commas. Of two lines with the same token the last counts, as upstream.
    ///
    /// # Errors
    /// When the file cannot be read or a line does not have that form.
    pub fn read(path: &Path) -> Result<Self, TokenFileError> {
        let failed = |reason: String| TokenFileError {
            path: path.to_owned(),
            reason,
        };
        let file = std::fs::File::open(path).map_err(|error| failed(format!("cannot read: {error}")))?;
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(csv::Trim::Headers)
            .comment(Some(b'#'))
            .from_reader(file);
        let mut users = HashMap::new();
        for record in reader.records() {
            let record = record.map_err(|error| failed(error.to_string()))?;
            let line = record.position().map_or(0, csv::Position::line);
            if record.len() < 3 {
                return Err(failed(format!(
                    "line {line}: expected token,user,uid and optionally \"group1,group2\", found {} columns",
                    record.len()
                )));
            }
            if record[0].is_empty() || record[1].is_empty() {
                return Err(failed(format!("line {line}: the token or the user name is empty")));
            }
            let groups = record
                .get(3)
                .unwrap_or("")
                .split(',')
                .map(str::trim)
                .filter(|group| !group.is_empty());
            let user = User::authenticated(&record[1], &record[2], groups.map(str::to_owned).collect());
            users.insert(digest_of(&record[0]), Arc::new(user));
        }
        Ok(Self { users })
    }

    /// The user of the token with this SHA-256.
    pub(super) fn user_of(&self, digest: &[u8; 32]) -> Option<Arc<User>> {
        self.users.get(digest).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Tokens, TokenFileError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Tokens::read(file.path())
    }

    #[test]
    fn groups_are_one_quoted_column() {
        let tokens = read("t1,admin,uid-admin,\"system:masters,ops\"\nt2,alice,uid-alice\n").unwrap();
        let admin = tokens.user_of(&digest_of("t1")).unwrap();
        assert_eq!(admin.name, "admin");
        assert_eq!(admin.uid, "uid-admin");
        assert_eq!(admin.groups, ["system:masters", "ops", "system:authenticated"]);
        assert_eq!(
            tokens.user_of(&digest_of("t2")).unwrap().groups,
            ["system:authenticated"]
        );
        assert_eq!(tokens.user_of(&digest_of("t3")), None);
    }

    #[test]
    fn a_short_line_is_refused_with_its_number() {
        let error = read("t1,admin,u\nt2,alice\n").unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
