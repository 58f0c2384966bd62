//! Writing anew, in the background, what another key sealed than the one that seals now.
//!
//! Each object is written by itself, with what it holds, on the condition that it is still at the revision that was read: a
//! write like any other, with a revision and an event, as kube-apiserver's storage migration makes them. What a client
//! wrote meanwhile is sealed by the right key already. A server that is killed on the way goes on at its next start.

use std::sync::Arc;
use std::time::Duration;

use flatkube_format::sidecar;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::Keyring;
use crate::store::{
    Change, Damaged, Object, Precondition, Prepared, Range, Sealing as _, Selection, Store, Write, WriteError,
};

/// Objects that are written at a time.
const AT_A_TIME: usize = 16;
/// How often it is looked whether the file has changed.
const LOOK: Duration = Duration::from_secs(5);
/// A plugin is asked every so many times.
const LOOKS_PER_STATUS: u32 = 12;

/// Keeps a store's objects sealed by the keys that are to seal them.
pub struct Upkeep {
    /// The keys of the store.
    pub keyring: Arc<Keyring>,
    /// The store that has them in its options.
    pub store: Arc<Store>,
    /// Whether the file is read again when it changes.
    pub reload: bool,
}

/// What came of one pass.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Pass {
    written: u64,
    failed: u64,
}

impl Upkeep {
    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_due = true;
        let mut said = None;
        let mut looks = 0_u32;
        loop {
            ticks.tick().await;
            looks += 1;
            if looks.is_multiple_of(LOOKS_PER_STATUS) {
                looks = 0;
                let keyring = self.keyring.clone();
                is_due |= tokio::task::spawn_blocking(move || keyring.look())
                    .await
                    .unwrap_or(false);
            }
            if self.reload {
                let (keyring, store) = (self.keyring.clone(), self.store.clone());
                match tokio::task::spawn_blocking(move || keyring.refresh(&store)).await {
                    Ok(Ok(changed)) => {
                        if changed {
                            tracing::info!("the encryption configuration was read again");
                        }
                        is_due |= changed;
                        said = None;
                    }
                    Ok(Err(reason)) => {
                        // Every five seconds the same would help nobody.
                        if said.as_ref() != Some(&reason) {
                            tracing::error!("{reason}");
                            said = Some(reason);
                        }
                    }
                    Err(_) => return,
                }
            }
            if !is_due {
                continue;
            }
            let pass = self.pass().await;
            if pass.written > 0 {
                tracing::info!(
                    objects = pass.written,
                    "objects were written anew by the key that encrypts now; what they were before is in the history until that is discarded"
                );
            }
            is_due = pass.failed > 0;
        }
    }

    /// Looks at every object of the covered resources, and writes those anew that are to be. Costs their sidecars, and of those
    /// the reading and writing.
    async fn pass(&self) -> Pass {
        let mut pass = Pass::default();
        let view = self.store.view();
        let names: Vec<String> = view.resources().map(str::to_owned).collect();
        for name in names.iter().filter(|name| self.keyring.covers(name)) {
            let resource: Arc<str> = Arc::from(&**name);
            let mut listing = view
                .list(name, Range::default(), &Selection::default())
                .reading_sidecars();
            let mut writes = JoinSet::new();
            loop {
                let object = match listing.next(1) {
                    Ok(Some(run)) => run.objects().next(),
                    Ok(None) => break,
                    Err(damaged) => {
                        pass.fail(&damaged);
                        break;
                    }
                };
                let Some(object) = object else { break };
                let write = match self.anew(&resource, &object) {
                    Ok(Some(write)) => write,
                    Ok(None) => continue,
                    Err(error) => {
                        pass.fail(&error);
                        continue;
                    }
                };
                if writes.len() >= AT_A_TIME
                    && let Some(done) = writes.join_next().await
                {
                    pass.note(done);
                }
                let store = self.store.clone();
                writes.spawn(async move { store.write(write).await.map(drop) });
            }
            while let Some(done) = writes.join_next().await {
                pass.note(done);
            }
        }
        pass
    }

    /// The write that seals an object anew, if it is to be.
    fn anew(&self, resource: &Arc<str>, object: &Object) -> Result<Option<Write>, String> {
        let told = |damaged: Damaged| damaged.to_string();
        if !self.keyring.is_stale(resource, object.sealed_by().map_err(told)?) {
            return Ok(None);
        }
        let json = object.json().map_err(told)?;
        let archive = self.store.archiver().archive(resource, object.key(), json);
        let archive = archive.map_err(|error| error.to_string())?;
        let splice = sidecar::access(&archive)
            .map_err(|error| error.to_string())?
            .splice
            .to_native();
        let (before, behind) = object.json_around_revision().map_err(told)?;
        Ok(Some(Write {
            resource: resource.clone(),
            key: object.key().to_owned(),
            precondition: Precondition::Revision(object.revision()),
            uid: None,
            change: Change::Put(Prepared {
                json: [before, behind].concat(),
                splice,
                sidecar: archive,
            }),
        }))
    }
}

impl Pass {
    fn fail(&mut self, error: &dyn std::fmt::Display) {
        if self.failed == 0 {
            tracing::error!(%error, "an object cannot be encrypted anew; it is tried again");
        }
        self.failed += 1;
    }

    fn note(&mut self, done: Result<Result<(), WriteError>, tokio::task::JoinError>) {
        match done {
            Ok(Ok(())) => self.written += 1,
            // Who wrote it meanwhile sealed it as it is to be.
            Ok(Err(WriteError::Conflict { .. })) => {}
            Ok(Err(error)) => self.fail(&error),
            Err(error) => self.fail(&error),
        }
    }
}
