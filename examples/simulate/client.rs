//! A client that lists and then watches, as controllers do: it must see each event once and in order, and what it holds
//! must always be what a list at its revision gives.

use std::collections::BTreeMap;
use std::sync::Arc;

use flatkube::store::{Damaged, EventKind, Follower, HistoryError, Range, Selection, Store};

use crate::chance::Chance;
use crate::judge::{self, is_in};
use crate::model::{Model, RESOURCES};

/// A place in the history of one resource and what was made of it. It outlives the server.
pub(crate) struct Client {
    resource: usize,
    namespace: Option<&'static str>,
    position: u64,
    /// Revisions of the live objects, by key.
    held: BTreeMap<String, u64>,
    watch: Option<Follower>,
    pub(crate) relists: u64,
}

impl Client {
    pub(crate) fn new(store: &Arc<Store>, chance: &mut Chance) -> Result<Client, Damaged> {
        let mut client = Client {
            resource: chance.below(RESOURCES.len()),
            namespace: chance.namespace(),
            position: 0,
            held: BTreeMap::new(),
            watch: None,
            relists: 0,
        };
        client.list(store)?;
        Ok(client)
    }

    /// One that reads all history that is there of a resource.
    pub(crate) fn from_floor(store: &Arc<Store>, model: &Model, chance: &mut Chance) -> Client {
        let resource = chance.below(RESOURCES.len());
        let stats = store.stats();
        let floor = stats.resources.iter().find(|of| of.name == RESOURCES[resource]);
        let position = floor
            .map_or(0, |of| of.floor)
            .max(model.restarted_at)
            .max(model.first());
        let held = model.at(resource, position).into_iter();
        Client {
            resource,
            namespace: None,
            position,
            held: held.map(|(key, index)| (key, model.done(index).revision)).collect(),
            watch: None,
            relists: 0,
        }
    }

    /// The server is gone; the place is kept.
    pub(crate) fn disconnect(&mut self) {
        self.watch = None;
    }

    fn list(&mut self, store: &Arc<Store>) -> Result<(), Damaged> {
        let view = store.view();
        let range = Range {
            namespace: self.namespace.map(str::to_owned),
            after: None,
        };
        self.held.clear();
        let mut listing = view.list(RESOURCES[self.resource], range, &Selection::default());
        while let Some(run) = listing.next(7)? {
            self.held
                .extend(run.objects().map(|object| (object.key().to_owned(), object.revision())));
        }
        self.position = view.revision();
        self.watch = None;
        Ok(())
    }

    /// Takes at most `events` events.
    pub(crate) fn take(&mut self, store: &Arc<Store>, model: &Model, events: usize) -> Result<(), Damaged> {
        for _ in 0..events {
            let next = match &mut self.watch {
                Some(watch) => watch.next(),
                None => match store.follow(RESOURCES[self.resource], self.namespace, self.position) {
                    Ok(watch) => {
                        self.watch = Some(watch);
                        continue;
                    }
                    Err(error) => Err(error),
                },
            };
            let (namespace, resource) = (self.namespace, self.resource);
            let mut expected = model
                .after(resource, self.position)
                .filter(|index| is_in(&model.done(*index).key, namespace));
            match next {
                Ok(Some(event)) => {
                    let Some(index) = expected.next() else {
                        panic!(
                            "an event of {} at {} that nobody made",
                            event.object.key(),
                            event.revision
                        );
                    };
                    judge::event(model, index, &event)?;
                    self.position = event.revision;
                    let key = event.object.key().to_owned();
                    match event.kind {
                        EventKind::Deleted => drop(self.held.remove(&key)),
                        EventKind::Created | EventKind::Updated => drop(self.held.insert(key, event.revision)),
                    }
                }
                Ok(None) => {
                    let missed = expected.next().map(|index| model.done(index));
                    assert!(missed.is_none(), "a watch of {} misses {missed:?}", RESOURCES[resource]);
                    self.position = self.watch.as_ref().map_or(self.position, Follower::position);
                    let state = model.at(resource, self.position).into_iter();
                    let listed: BTreeMap<String, u64> = state
                        .filter(|(key, _)| is_in(key, namespace))
                        .map(|(key, index)| (key, model.done(index).revision))
                        .collect();
                    assert_eq!(self.held, listed, "list + watch of {} and a list", RESOURCES[resource]);
                    return Ok(());
                }
                Err(HistoryError::TooOld { floor, current }) => {
                    drop(expected);
                    assert!(floor > self.position && current == model.revision());
                    let newest_discarded = model.after(resource, floor - 1).next();
                    assert!(
                        floor == model.restarted_at
                            || newest_discarded.is_some_and(|index| model.done(index).revision == floor),
                        "{} is too old below {floor}, where nothing was written",
                        RESOURCES[resource]
                    );
                    self.relists += 1;
                    self.list(store)?;
                }
                Err(HistoryError::Damaged(damaged)) => return Err(damaged),
                Err(error) => panic!("a watch of {} from {}: {error}", RESOURCES[resource], self.position),
            }
        }
        Ok(())
    }
}
