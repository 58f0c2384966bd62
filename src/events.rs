//! Events: what a controller or the scheduler did or could not do, told to whoever looks (`kubectl describe`).
//!
//! Rules of client-go's correlator: the same event again raises the count of the first; many that differ in their text only become
//! one; of one object no more than a burst and then one in five minutes. They are written by a task of their own: nobody waits
//! for one, and when too many wait the next ones are dropped.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::api::Client;
use crate::resources::{self, ResourceRef, time_text};
use crate::tree::{Value, json};

/// Events that wait to be written.
const WAITING_MAX: usize = 1000;
/// Different events that are remembered; then all are forgotten, and begin anew.
const REMEMBERED_MAX: usize = 4096;
/// Events that differ in their message alone before they become one.
const SIMILAR_MAX: u32 = 10;
/// How long similar events count as one row.
const SIMILAR_FOR: Duration = Duration::from_mins(10);
/// Events of one object at once, and how long until there may be one more.
const BURST: f64 = 25.0;
const ONE_MORE_AFTER: Duration = Duration::from_mins(5);

/// Tells events. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    sender: mpsc::Sender<Told>,
}

/// Whether something is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Level {
    Normal,
    Warning,
}

#[derive(Debug)]
struct Told {
    /// `involvedObject`.
    about: Value,
    level: Level,
    reason: &'static str,
    message: String,
    /// The node that tells it; empty: none.
    host: String,
}

impl Told {
    /// What of an object it is about: its UID, and the field of a part of it.
    fn subject(&self) -> String {
        let text = |field: &str| self.about[field].as_str().unwrap_or("");
        format!("{}{}", text("uid"), text("fieldPath"))
    }
}

impl Recorder {
    /// A recorder, and the task that writes what it is told, in the name of `component`.
    pub(crate) fn new(client: Client, component: &'static str) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self { sender }, write(client, component, receiver))
    }

    /// Tells something about an object, which has its kind and apiVersion.
    pub(crate) fn tell(&self, object: &Value, level: Level, reason: &'static str, message: String) {
        self.tell_from("", object, None, (level, reason, message));
    }

    /// Tells something on a node's behalf, perhaps about a part of the object (`spec.containers{NAME}`).
    pub(crate) fn tell_from(
        &self,
        host: &str,
        object: &Value,
        field: Option<&str>,
        (level, reason, message): (Level, &'static str, String),
    ) {
        let metadata = &object["metadata"];
        let about = json!({
            "apiVersion": object["apiVersion"].as_str(),
            "kind": object["kind"].as_str(),
            "namespace": metadata["namespace"].as_str(),
            "name": metadata["name"].as_str(),
            "uid": metadata["uid"].as_str(),
            "resourceVersion": metadata["resourceVersion"].as_str(),
            "fieldPath": field,
        });
        // An event more or less decides nothing.
        let _ = self.sender.try_send(Told {
            about,
            level,
            reason,
            message,
            host: host.to_owned(),
        });
    }
}

/// What is remembered of events.
#[derive(Debug, Default)]
struct Correlator {
    written: HashMap<(String, Level, &'static str, String), Written>,
    similar: HashMap<(String, Level, &'static str), (Instant, u32)>,
    spent: HashMap<String, (Instant, f64)>,
}

#[derive(Debug)]
struct Written {
    key: String,
    count: i64,
}

/// What is to be done about an event.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    Drop,
    Create { message: String },
    Count { key: String, count: i64 },
}

impl Correlator {
    fn plan(&mut self, told: &Told, now: Instant) -> Plan {
        if self.written.len() + self.similar.len() + self.spent.len() > REMEMBERED_MAX {
            *self = Self::default();
        }
        let uid = told.subject();
        let (last, spent) = self.spent.entry(uid.clone()).or_insert((now, 0.0));
        let back = now.duration_since(*last).as_secs_f64() / ONE_MORE_AFTER.as_secs_f64();
        (*last, *spent) = (now, (*spent - back).max(0.0));
        if *spent + 1.0 > BURST {
            return Plan::Drop;
        }
        *spent += 1.0;
        let key = (uid.clone(), told.level, told.reason, told.message.clone());
        if let Some(written) = self.written.get_mut(&key) {
            written.count += 1;
            return Plan::Count {
                key: written.key.clone(),
                count: written.count,
            };
        }
        let (since, different) = self
            .similar
            .entry((uid.clone(), told.level, told.reason))
            .or_insert((now, 0));
        if now.duration_since(*since) > SIMILAR_FOR {
            (*since, *different) = (now, 0);
        }
        *different += 1;
        if *different <= SIMILAR_MAX {
            return Plan::Create {
                message: told.message.clone(),
            };
        }
        let message = format!("(combined from similar events): {}", told.message);
        // They share one place, whatever the text.
        match self.written.get_mut(&(uid, told.level, told.reason, String::new())) {
            None => Plan::Create { message },
            Some(written) => {
                written.count += 1;
                Plan::Count {
                    key: written.key.clone(),
                    count: written.count,
                }
            }
        }
    }

    fn remember(&mut self, told: &Told, message: &str, key: String) {
        let uid = told.subject();
        let text = if message == told.message {
            told.message.clone()
        } else {
            String::new()
        };
        self.written
            .insert((uid, told.level, told.reason, text), Written { key, count: 1 });
    }
}

async fn write(client: Client, component: &'static str, mut told: mpsc::Receiver<Told>) {
    let Some(events) = resources::find("", "v1", "events").map(ResourceRef::from) else {
        return;
    };
    let mut correlator = Correlator::default();
    while let Some(told) = told.recv().await {
        let now = jiff::Timestamp::now();
        let time = time_text(now.as_second());
        match correlator.plan(&told, Instant::now()) {
            Plan::Drop => {}
            Plan::Count { key, count } => {
                let edit = |old: &Value| {
                    let mut event = old.clone();
                    event["count"] = count.into();
                    event["lastTimestamp"] = time.as_str().into();
                    Some(event)
                };
                if let Err(error) = client.change(&events, None, &key, edit).await {
                    tracing::debug!(%key, %error, "an event cannot be counted");
                    // It may have gone: the next one is written anew.
                    correlator.written.retain(|_, written| written.key != key);
                }
            }
            Plan::Create { message } => {
                let about = &told.about;
                let namespace = about["namespace"].as_str().unwrap_or("default");
                let name = format!("{}.{:x}", about["name"].as_str().unwrap_or(""), now.as_nanosecond());
                let host = Some(told.host.as_str()).filter(|host| !host.is_empty());
                let event = json!({
                    "metadata": {"name": name, "namespace": namespace},
                    "involvedObject": about,
                    "reason": told.reason,
                    "message": message,
                    "source": {"component": component, "host": host},
                    "firstTimestamp": time,
                    "lastTimestamp": time,
                    "count": 1,
                    "type": if told.level == Level::Normal { "Normal" } else { "Warning" },
                    "reportingComponent": component,
                    "reportingInstance": told.host.as_str(),
                });
                match client.create(&events, Some(namespace), event).await {
                    Ok(_) => correlator.remember(&told, &message, format!("{namespace}/{name}")),
                    // Nothing is created in a namespace that goes.
                    Err(error) => tracing::debug!(%name, %error, "an event cannot be written"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(uid: &str, message: &str) -> Told {
        Told {
            about: json!({"uid": uid}),
            level: Level::Normal,
            reason: "R",
            message: message.to_owned(),
            host: String::new(),
        }
    }

    /// Plans, and remembers as if it had been written.
    fn tell(correlator: &mut Correlator, told: &Told, now: Instant) -> Plan {
        let plan = correlator.plan(told, now);
        if let Plan::Create { message } = &plan {
            correlator.remember(told, message, format!("ns/{message}"));
        }
        plan
    }

    #[tokio::test]
    async fn the_same_again_is_counted_and_many_of_a_sort_become_one() {
        let (mut correlator, now) = (Correlator::default(), Instant::now());
        let created = |message: &str| Plan::Create {
            message: message.into(),
        };
        assert_eq!(tell(&mut correlator, &told("u", "m"), now), created("m"));
        let counted = Plan::Count {
            key: "ns/m".into(),
            count: 2,
        };
        assert_eq!(tell(&mut correlator, &told("u", "m"), now), counted);
        for number in 1..10 {
            let message = format!("m{number}");
            assert_eq!(tell(&mut correlator, &told("u", &message), now), created(&message));
        }
        let combined = "(combined from similar events): m10";
        assert_eq!(tell(&mut correlator, &told("u", "m10"), now), created(combined));
        let counted = Plan::Count {
            key: format!("ns/{combined}"),
            count: 2,
        };
        assert_eq!(tell(&mut correlator, &told("u", "m11"), now), counted);
        assert_eq!(tell(&mut correlator, &told("other", "m11"), now), created("m11"));
    }

    #[tokio::test]
    async fn one_object_has_a_burst_and_then_one_in_five_minutes() {
        let (mut correlator, now) = (Correlator::default(), Instant::now());
        let written = |correlator: &mut Correlator, now| {
            (0..40)
                .filter(|_| tell(correlator, &told("u", "m"), now) != Plan::Drop)
                .count()
        };
        assert_eq!(written(&mut correlator, now), 25);
        assert_eq!(written(&mut correlator, now + ONE_MORE_AFTER), 1);
        assert_eq!(written(&mut correlator, now + 100 * ONE_MORE_AFTER), 25);
    }
}
