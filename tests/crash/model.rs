//! What a key may hold: objects that are a function of a number, so that any half of one is seen, and what clients were
//! told of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::watch;

/// The two kinds of objects that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    ConfigMap,
    /// Has a status of its own, and a Table row with more in it.
    Pod,
}

impl Kind {
    pub(crate) const ALL: [Kind; 2] = [Kind::ConfigMap, Kind::Pod];

    pub(crate) fn collection(self) -> &'static str {
        match self {
            Kind::ConfigMap => "/api/v1/namespaces/default/configmaps",
            Kind::Pod => "/api/v1/namespaces/default/pods",
        }
    }

    pub(crate) fn path(self, name: &str) -> String {
        format!("{}/{name}", self.collection())
    }

    /// The object `name` of `writer` with this number in it, as it is created.
    pub(crate) fn object(self, name: &str, writer: &str, number: u64) -> Value {
        let labels = json!({ "writer": writer, "parity": parity(number) });
        match self {
            Kind::ConfigMap => json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": name, "labels": labels },
                "data": { "number": number.to_string(), "text": text(number) },
            }),
            Kind::Pod => json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": name, "labels": labels,
                    "annotations": { "number": number.to_string(), "text": text(number) },
                },
                "spec": { "containers": [{ "name": "one", "image": "registry.example/one:1" }] },
            }),
        }
    }

    /// A merge patch that gives an object another number; on the condition that it is at `revision`, if there is one.
    pub(crate) fn patch(self, number: u64, revision: Option<u64>) -> Value {
        let held = json!({ "number": number.to_string(), "text": text(number) });
        let mut patch = json!({ "metadata": { "labels": { "parity": parity(number) } } });
        match self {
            Kind::ConfigMap => patch["data"] = held,
            Kind::Pod => patch["metadata"]["annotations"] = held,
        }
        if let Some(revision) = revision {
            patch["metadata"]["resourceVersion"] = revision.to_string().into();
        }
        patch
    }

    /// A merge patch of a Pod's status.
    pub(crate) fn status_patch(number: u64) -> Value {
        json!({ "status": { "reason": number.to_string(), "message": text(number) } })
    }

    /// What an object holds.
    ///
    /// # Panics
    /// When it is not whole.
    pub(crate) fn version(self, object: &Value) -> Version {
        let name = name(object);
        let held = match self {
            Kind::ConfigMap => &object["data"],
            Kind::Pod => &object["metadata"]["annotations"],
        };
        let number = |text: &Value| {
            let number = text.as_str().and_then(|text| text.parse().ok());
            number.unwrap_or_else(|| panic!("{name} has no number: {object}"))
        };
        let found: u64 = number(&held["number"]);
        assert_eq!(held["text"], text(found), "{name} is there in half");
        assert_eq!(
            object["metadata"]["labels"]["parity"],
            parity(found),
            "{name} is there in half"
        );
        let status = &object["status"];
        let status = match self {
            Kind::Pod if !status["reason"].is_null() => {
                let found = number(&status["reason"]);
                assert_eq!(status["message"], text(found), "the status of {name} is there in half");
                Some(found)
            }
            _ => None,
        };
        Version {
            number: found,
            status,
            deleting: !object["metadata"]["deletionTimestamp"].is_null(),
        }
    }
}

/// From 17 bytes to 4 KiB.
fn text(number: u64) -> String {
    format!("{number:016x} ").repeat(1 << (number % 9))
}

fn parity(number: u64) -> &'static str {
    if number.is_multiple_of(2) { "even" } else { "odd" }
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"]
        .as_str()
        .unwrap_or("an object without a name")
}

/// The resourceVersion of an object or a list.
pub(crate) fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("no revision: {object}"))
}

/// Whether an object is one of the test's.
pub(crate) fn is_ours(object: &Value) -> bool {
    object["metadata"]["labels"]["writer"].is_string()
}

/// What an object is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) number: u64,
    pub(crate) status: Option<u64>,
    /// Marked for deletion: a Pod goes in two steps, and both are events.
    pub(crate) deleting: bool,
}

/// What a writer knows of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The last acknowledged version and its revision.
    pub(crate) acknowledged: Option<(Version, u64)>,
    /// The write whose answer has not come.
    pub(crate) under_way: Option<Change>,
}

/// What a write makes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    To(Version),
    Away,
}

impl Known {
    /// Takes what was found after a restart as the truth.
    ///
    /// # Panics
    /// When it is neither what was acknowledged nor what was under way.
    pub(crate) fn settle(&mut self, name: &str, found: Option<(Version, u64)>) {
        let as_acknowledged = found == self.acknowledged;
        let found_version = found.map(|(version, _)| version);
        let as_under_way = self.under_way == Some(found_version.map_or(Change::Away, Change::To));
        let marked = self.acknowledged.map(|(version, _)| Version {
            deleting: true,
            ..version
        });
        let half_deleted = self.under_way == Some(Change::Away) && marked.is_some() && found_version == marked;
        assert!(
            as_acknowledged || as_under_way || half_deleted,
            "{name}: found {found:?}, knew {self:?}"
        );
        *self = Known {
            acknowledged: found,
            under_way: None,
        };
    }
}

/// A create or update that was acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) version: Version,
    pub(crate) revision: u64,
    pub(crate) created: bool,
}

/// What all clients together were told.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Every revision that was given out, and for which object.
    given_out: Mutex<BTreeMap<u64, (Kind, String)>>,
    /// Numbers that were sent, and for which object.
    sent: Mutex<HashMap<u64, String>>,
    /// Creates and updates since the last settlement.
    pub(crate) acknowledged: Mutex<Vec<Acknowledged>>,
    /// Acknowledged writes, deletes included.
    pub(crate) writes: watch::Sender<u64>,
    /// The power is gone: of a real machine nobody would hear any more, so what is told from here on does not count. (ext4 may
    /// call a sync successful that was under way when it was shut down.)
    powerless: AtomicBool,
}

impl Ledger {
    /// Says that the power is about to go, or is back.
    pub(crate) fn set_powerless(&self, powerless: bool) {
        self.powerless.store(powerless, Ordering::SeqCst);
    }

    pub(crate) fn is_powerless(&self) -> bool {
        self.powerless.load(Ordering::SeqCst)
    }

    /// Notes the number of a write that is about to be sent.
    pub(crate) fn sending(&self, name: &str, number: u64) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.insert(number, name.to_owned());
    }

    /// Notes an acknowledgement without an object.
    pub(crate) fn acknowledge(&self) {
        self.writes.send_modify(|writes| *writes += 1);
    }

    /// Notes an acknowledged create or update.
    pub(crate) fn written(&self, written: Acknowledged) {
        self.give_out(written.kind, &written.name, written.revision);
        self.acknowledge();
        let mut acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        acknowledged.push(written);
    }

    /// Notes that `name` was seen at `revision`: nothing else may ever be.
    pub(crate) fn give_out(&self, kind: Kind, name: &str, revision: u64) {
        let mut given_out = self.given_out.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = given_out.entry(revision).or_insert_with(|| (kind, name.to_owned()));
        assert_eq!(*owner, (kind, name.to_owned()), "two objects at revision {revision}");
    }

    /// The highest revision that anybody was told of.
    pub(crate) fn highest(&self) -> u64 {
        let given_out = self.given_out.lock().unwrap_or_else(PoisonError::into_inner);
        given_out.last_key_value().map_or(0, |(revision, _)| *revision)
    }

    /// Nothing is there that nobody wrote.
    pub(crate) fn check_sent(&self, name: &str, version: Version) {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        for number in [Some(version.number), version.status].into_iter().flatten() {
            assert_eq!(
                sent.get(&number).map(String::as_str),
                Some(name),
                "nobody wrote {number}"
            );
        }
    }
}
