//! Looking whether an AuthenticationConfiguration file has changed.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use metrics::{counter, gauge};

use crate::auth::Authenticator;

const RELOADS: &str = "apiserver_authentication_config_controller_automatic_reloads_total";
const LAST: &str = "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds";

/// Looks at the file, whenever it is asked to.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    stamp: Option<Stamp>,
    text: Vec<u8>,
}

/// What changes when a file does: which it is, how long, and when it was changed, in nanoseconds.
type Stamp = (u64, u64, i64, i64);

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
}

impl Follower {
    /// Of a file that held `text` when it was read last.
    pub fn new(path: PathBuf, text: Vec<u8>) -> Self {
        // The first look reads it, whatever happened since.
        Self {
            path,
            stamp: None,
            text,
        }
    }

    /// Takes the file up in `authenticator` if it holds something else than before. What cannot be used is logged, and what was
    /// before stays. Costs a question to the file system; call it where that may take its time, within a runtime.
    pub fn look(&mut self, authenticator: &Authenticator) {
        let stamp = stamp(&self.path);
        if stamp.is_none() || stamp == self.stamp {
            return;
        }
        let Ok(text) = std::fs::read(&self.path) else { return };
        self.stamp = stamp;
        if text == self.text {
            return;
        }
        let status = match authenticator.configure(&text) {
            Ok(()) => {
                tracing::info!(file = %self.path.display(), "the authentication configuration was taken up anew");
                "success"
            }
            Err(why) => {
                let file = self.path.display();
                tracing::error!(%file, why, "the authentication configuration cannot be used; what was before stays");
                "failure"
            }
        };
        self.text = text;
        counter!(RELOADS, "status" => status).increment(1);
        gauge!(LAST, "status" => status).set(jiff::Timestamp::now().as_second() as f64);
    }
}
