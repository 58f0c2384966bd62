//! What every controller of one kind of object shares: it learns of changes from the log, and looks at what is stored.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use metrics::Gauge;
use tokio::task::JoinSet;

use super::failure::{Failure, guarded};
use super::figures;
use super::queue::{Done, Queue, RETRY_MAX};
use crate::api::Client;
use crate::store::{Damaged, Event, EventKind, Object, Range, Selection, View};

/// Keys that one controller looks at side by side.
const WORKERS: usize = 4;
/// When to try again to read what could not be read.
const AGAIN: Duration = Duration::from_secs(1);
/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 256;

/// A controller of the objects of one resource.
///
/// A look may be had at any time and any number of times. It reads the newest view, in which its own earlier writes are: there is no
/// cache that lags behind, so nothing has to be remembered about writes that are under way. One key is never looked at by
/// two workers.
pub(super) trait Controller: Send + Sync + 'static {
    /// The resource whose objects it looks at, by its name in the store.
    fn resource(&self) -> &'static str;

    /// Other resources whose changes matter.
    fn watches(&self) -> &'static [&'static str] {
        &[]
    }

    /// Keys that want a look because an object of another resource changed.
    ///
    /// # Errors
    /// When what is stored cannot be read.
    fn concerned(&self, _change: &Change<'_>, _view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        Ok(Vec::new())
    }

    /// When a key whose look failed comes back at the latest.
    fn retry_max(&self) -> Duration {
        RETRY_MAX
    }

    /// Which objects of its own resource want a look at the start.
    fn begins_with(&self) -> Selection {
        Selection::all()
    }

    /// Whether an object of its own resource that was written or is gone wants a look. Told by its bytes: it is asked about every one.
    ///
    /// # Errors
    /// When they cannot be read; then it gets its look.
    fn is_about(&self, _object: &Object) -> Result<bool, Damaged> {
        Ok(true)
    }

    /// Keys that want a look at the start though no object has them: what objects that went meanwhile left behind.
    ///
    /// # Errors
    /// When what is stored cannot be read.
    fn left_over(&self, _view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        Ok(Vec::new())
    }

    /// Keys that want a look, besides its own, because an object of its own resource is gone.
    ///
    /// # Errors
    /// When what is stored cannot be read.
    fn bereaved(&self, _gone: &Object, _view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        Ok(Vec::new())
    }

    /// Looks at the object with this key, which may be gone, and does what has to be done.
    ///
    /// # Errors
    /// When it could not be done; the key comes back later.
    fn look(&self, key: &str) -> impl Future<Output = Result<Done, Failure>> + Send;
}

/// A change of an object that another one may depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'a> {
    /// Its resource, by its name in the store.
    pub(super) storage: &'static str,
    /// As it is; when it is gone, as it was last.
    pub(super) object: &'a Object,
    /// As it was before.
    pub(super) previous: Option<&'a Object>,
    /// Whether it is gone.
    pub(super) is_gone: bool,
}

impl<'a> Change<'a> {
    fn of(storage: &'static str, event: &'a Event) -> Self {
        Self {
            storage,
            object: &event.object,
            previous: event.previous.as_ref(),
            is_gone: event.kind == EventKind::Deleted,
        }
    }
}

/// Runs a controller until the server stops. `name` is that of its figures.
pub(super) async fn run(client: Client, name: &'static str, controller: impl Controller) {
    let stopping = client.stopping().clone();
    let controller = Arc::new(controller);
    let queue: Arc<Queue<Arc<str>>> = Arc::new(Queue::named(name).retrying_within(controller.retry_max()));
    let mut tasks = JoinSet::new();
    for _ in 0..WORKERS {
        tasks.spawn(work(controller.clone(), queue.clone()));
    }
    for &storage in controller.watches() {
        let lag = figures::lag(name, storage);
        tasks.spawn(follow(client.clone(), controller.clone(), queue.clone(), storage, lag));
    }
    let lag = figures::lag(name, controller.resource());
    tasks.spawn(follow(client, controller.clone(), queue, controller.resource(), lag));
    stopping.stopped().await;
    tasks.shutdown().await;
}

async fn work(controller: Arc<impl Controller>, queue: Arc<Queue<Arc<str>>>) {
    loop {
        let key = queue.next().await;
        let done = guarded(controller.look(&key)).await.unwrap_or_else(|error| {
            tracing::debug!(resource = controller.resource(), %key, %error, "a look is tried again");
            Done::Again
        });
        queue.done(&key, done);
    }
}

/// Follows one resource. Whenever it begins, all objects of the controller's own resource are asked for: what was missed follows from
/// looking at those.
async fn follow(
    client: Client,
    controller: Arc<impl Controller>,
    queue: Arc<Queue<Arc<str>>>,
    storage: &'static str,
    lag: Gauge,
) {
    let store = client.store().clone();
    let is_own = storage == controller.resource();
    let ask_for_all = async || {
        while let Err(error) = ask_for_all(&store.view(), &*controller, &queue) {
            tracing::warn!(resource = controller.resource(), %error, "objects cannot be listed");
            tokio::time::sleep(AGAIN).await;
        }
    };
    let note_concerned = async |event: &Event, keys: Result<Vec<Arc<str>>, Failure>| match keys {
        Ok(keys) => keys.into_iter().for_each(|key| queue.add(key)),
        Err(error) => {
            let key = event.object.key();
            tracing::warn!(resource = storage, key, %error, "whom an event concerns cannot be told");
            ask_for_all().await;
        }
    };
    loop {
        let revision = store.view().revision();
        let Ok(mut follower) = store.follow(storage, None, revision) else {
            continue;
        };
        ask_for_all().await;
        let mut taken = 0_usize;
        loop {
            match follower.next() {
                Ok(Some(event)) if is_own => {
                    if controller.is_about(&event.object).unwrap_or(true) {
                        queue.add(event.object.key().into());
                    }
                    if event.kind == EventKind::Deleted {
                        let keys = controller.bereaved(&event.object, &store.view());
                        note_concerned(&event, keys).await;
                    }
                }
                Ok(Some(event)) => {
                    let keys = controller.concerned(&Change::of(storage, &event), &store.view());
                    note_concerned(&event, keys).await;
                }
                Ok(None) => {
                    lag.set(0.0);
                    follower.changed().await;
                }
                // Behind the retained history: begins anew from what is stored.
                Err(_) => break,
            }
            taken += 1;
            if taken.is_multiple_of(RUN_MAX) {
                lag.set(store.view().revision().saturating_sub(follower.position()) as f64);
                // Others are let in between.
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Asks for a look at every object of a controller's resource, and at what others left behind.
fn ask_for_all(view: &Arc<View>, controller: &impl Controller, queue: &Queue<Arc<str>>) -> Result<(), Failure> {
    let mut listing = view.list(controller.resource(), Range::default(), &controller.begins_with());
    while let Some(run) = listing.next(RUN_MAX)? {
        run.objects().for_each(|object| queue.add(object.key().into()));
    }
    controller.left_over(view)?.into_iter().for_each(|key| queue.add(key));
    Ok(())
}
