//! A watcher: lists once, then follows events over all restarts from the last revision that it saw, as controllers do.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use crate::client::{Broken, Client};
use crate::model::{Kind, Ledger, Version, is_ours, name, revision};

/// Objects by name, with their revisions.
pub(crate) type Objects = BTreeMap<String, (Version, u64)>;

/// The object that says how far all watchers are: written when nothing else is.
pub(crate) const SENTINEL: &str = "sentinel";

pub(crate) struct Watcher {
    pub(crate) kind: Kind,
    /// Follows only objects with an even number.
    pub(crate) selective: bool,
    state: Option<State>,
    ledger: Arc<Ledger>,
    events: Arc<AtomicU64>,
}

struct State {
    objects: Objects,
    /// The last revision that the server told of.
    newest: u64,
    /// The first list was at this one.
    since: u64,
    /// Events since the last snapshot, but deletions: the object and whether it was new.
    seen: HashMap<u64, (String, Version, bool)>,
}

/// What watchers tell as they run.
pub(crate) enum Told {
    /// It knows where to follow from.
    Listed,
    /// It has seen the sentinel change.
    Snapshot(Snapshot),
}

/// What a watcher knew when it saw the sentinel.
pub(crate) struct Snapshot {
    pub(crate) kind: Kind,
    pub(crate) selective: bool,
    pub(crate) sentinel: u64,
    pub(crate) objects: Objects,
    pub(crate) since: u64,
    pub(crate) seen: HashMap<u64, (String, Version, bool)>,
}

impl Watcher {
    pub(crate) fn new(kind: Kind, selective: bool, ledger: Arc<Ledger>, events: Arc<AtomicU64>) -> Self {
        Watcher {
            kind,
            selective,
            state: None,
            ledger,
            events,
        }
    }

    /// Forgets everything: it will list again.
    pub(crate) fn forget(&mut self) {
        self.state = None;
    }

    fn url(&self, query: &str) -> String {
        let selector = if self.selective {
            "labelSelector=parity%3Deven&"
        } else {
            ""
        };
        format!("{}?{selector}{query}", self.kind.collection())
    }

    /// Follows until the connection breaks. Each time that the sentinel changes, it tells what it knows.
    pub(crate) async fn run(mut self, address: SocketAddr, told: UnboundedSender<Told>) -> Watcher {
        // The server is killed at some time.
        let _: Result<(), Broken> = self.follow(address, &told).await;
        self
    }

    async fn follow(&mut self, address: SocketAddr, told: &UnboundedSender<Told>) -> Result<(), Broken> {
        if self.state.is_none() {
            let mut client = Client::connect(address).await?;
            let list = client.get(&self.url(""), "application/json").await?;
            let list = list.json();
            self.state = Some(State {
                objects: objects(self.kind, &list),
                newest: revision(&list),
                since: revision(&list),
                seen: HashMap::new(),
            });
        }
        let _ = told.send(Told::Listed);
        let from = self.state.as_ref().map_or(0, |state| state.newest);
        let url = self.url(&format!("watch=true&allowWatchBookmarks=true&resourceVersion={from}"));
        let mut watch = Client::connect(address).await?.watch(&url, "application/json").await?;
        while let Some(line) = watch.line().await? {
            if self.ledger.is_powerless() {
                return Err("the power is gone".into());
            }
            let event: Value = serde_json::from_slice(&line).expect("a whole line is a whole event");
            self.take(&event, told);
        }
        Ok(())
    }

    fn take(&mut self, event: &Value, told: &UnboundedSender<Told>) {
        let state = self.state.as_mut().expect("it has listed");
        let (object, word) = (&event["object"], event["type"].as_str().expect("a type"));
        assert_ne!(word, "ERROR", "after revision {}: {event}", state.newest);
        let at = revision(object);
        if word == "BOOKMARK" {
            assert!(at >= state.newest, "a bookmark at {at} after {}", state.newest);
            state.newest = at;
            return;
        }
        assert!(at > state.newest, "an event at {at} after {}: {event}", state.newest);
        state.newest = at;
        if !is_ours(object) {
            return;
        }
        self.events.fetch_add(1, Ordering::Relaxed);
        let (key, version) = (name(object), self.kind.version(object));
        self.ledger.check_sent(key, version);
        self.ledger.give_out(self.kind, key, at);
        let before = match word {
            "DELETED" => state.objects.remove(key),
            _ => state.objects.insert(key.to_owned(), (version, at)),
        };
        match word {
            "ADDED" => assert!(before.is_none(), "{key} was added, but was there: {event}"),
            "MODIFIED" => assert!(before.is_some(), "{key} was changed, but was not there: {event}"),
            "DELETED" => assert!(before.is_some(), "{key} was deleted, but was not there: {event}"),
            other => panic!("an event of type {other}"),
        }
        if word != "DELETED" {
            state.seen.insert(at, (key.to_owned(), version, word == "ADDED"));
        }
        if key == SENTINEL {
            // Who does not take it has failed.
            let _ = told.send(Told::Snapshot(Snapshot {
                kind: self.kind,
                selective: self.selective,
                sentinel: at,
                objects: state.objects.clone(),
                since: state.since,
                seen: std::mem::take(&mut state.seen),
            }));
        }
    }
}

/// The test's objects in a list.
pub(crate) fn objects(kind: Kind, list: &Value) -> Objects {
    let items = list["items"].as_array().unwrap_or_else(|| panic!("not a list: {list}"));
    let ours = items.iter().filter(|item| is_ours(item));
    ours.map(|item| (name(item).to_owned(), (kind.version(item), revision(item))))
        .collect()
}
