//! Events go an hour after they were written last (`--event-ttl`).
//!
//! kube-apiserver leaves that to etcd's leases: a write renews an Event's time, and nobody is asked when it is over, neither admission
//! nor finalizers. So here. When an Event was written last stands in it (`creationTimestamp`, the times of its managers). A walk
//! reads sidecars alone of those that are younger than the time to live, and is had when the oldest Event's time is over, not more often
//! than sixty times in a time to live: with 100,000 Events and an hour that is once a minute. Nothing is kept between walks but when
//! the next one is due.

use std::time::Duration;

use serde::Deserialize;
use tokio::task::JoinSet;

use super::failure::Failure;
use crate::api::Client;
use crate::resources::{self, ResourceRef};
use crate::store::{Object, Range, Selection};

const EVENTS: &str = "events";
/// Events that are deleted side by side: they share a sync.
const AT_ONCE: usize = 64;
/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 256;
/// Walks within one time to live, at most.
const WALKS_MAX: u32 = 60;

/// Deletes Events whose time is over, until the server stops.
pub(super) async fn run(client: Client, ttl: Duration) {
    let Some(events) = resources::stored(EVENTS).map(ResourceRef::from) else {
        return;
    };
    let stopping = client.stopping().clone();
    tokio::select! {
        () = stopping.stopped() => {}
        () = go_on(&client, &events, ttl) => {}
    }
}

async fn go_on(client: &Client, events: &ResourceRef, ttl: Duration) {
    let pause = (ttl / WALKS_MAX).max(Duration::from_secs(1));
    loop {
        let wait = match expire(client, events, ttl).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::warn!(%error, "Events that are over cannot be deleted");
                pause
            }
        };
        tokio::time::sleep(wait.max(pause)).await;
    }
}

/// Deletes the Events whose time is over now. Gives how long until the next one's is.
async fn expire(client: &Client, events: &ResourceRef, ttl: Duration) -> Result<Duration, Failure> {
    let view = client.store().view();
    let ttl_s = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
    let mut oldest_s = i64::MAX;
    let mut listing = view
        .list(EVENTS, Range::default(), &Selection::all())
        .reading_sidecars();
    let mut tasks: JoinSet<Result<(), Failure>> = JoinSet::new();
    while let Some(run) = listing.next(RUN_MAX)? {
        let now_s = jiff::Timestamp::now().as_second();
        for event in run.objects() {
            let mut written_s = event.sidecar()?.created_at().unwrap_or(0);
            if written_s.saturating_add(ttl_s) <= now_s {
                written_s = written_s.max(changed_s(&event, now_s)?);
            }
            if written_s.saturating_add(ttl_s) > now_s {
                oldest_s = oldest_s.min(written_s);
                continue;
            }
            if tasks.len() >= AT_ONCE
                && let Some(done) = tasks.join_next().await
            {
                done??;
            }
            let (client, events) = (client.clone(), events.clone());
            tasks.spawn(async move { Ok(client.expire(&events, &event).await?) });
        }
        // Others are let in between.
        tokio::task::yield_now().await;
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let left_s = oldest_s
        .saturating_add(ttl_s)
        .saturating_sub(jiff::Timestamp::now().as_second());
    Ok(Duration::from_secs(u64::try_from(left_s).unwrap_or(0)).min(ttl))
}

/// What of `metadata` says when an object was changed.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Managers<'a> {
    #[serde(borrow)]
    managed_fields: Vec<Manager<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Manager<'a> {
    #[serde(borrow)]
    time: std::borrow::Cow<'a, str>,
}

/// When an Event was changed last by its managers, Unix seconds, and not after now; 0 when that cannot be told.
fn changed_s(event: &Object, now_s: i64) -> Result<i64, Failure> {
    let metadata: Managers<'_> =
        serde_json::from_slice(event.metadata()?).map_err(|error| Failure::Metadata(event.key().to_owned(), error))?;
    let times = metadata.managed_fields.iter();
    let newest = times
        .filter_map(|manager| manager.time.parse::<jiff::Timestamp>().ok())
        .max();
    Ok(newest.map_or(0, |time| time.as_second().min(now_s)))
}
