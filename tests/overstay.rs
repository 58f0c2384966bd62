//! What slow readers keep of the past on the disk has a bound, and who is over it is broken off.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use flatkube::api::Stopper;
use flatkube::api::body::{Body, BodyError};
use flatkube::api::negotiate::Answer;
use flatkube::api::read::{self, Compress, Notice, Reader};
use flatkube::api::request::{Query, RequestInfo, Verb};
use flatkube::auth::User;
use flatkube::resources::{self, KindArchiver, Resource};
use flatkube::store::disk::sim::SimDisk;
use flatkube::store::{Change, Durability, Options, Precondition, Store, Write};
use http_body::Body as _;
use serde_json::json;

const OBJECTS: usize = 40;
/// Less than the objects have together.
const HISTORY_BYTES: u64 = 2 << 20;

fn configmaps() -> &'static Resource {
    resources::find("", "v1", "configmaps").unwrap()
}

/// The result of a future that does not have to wait.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// Writes all objects, and shelves them.
fn write_all(store: &Arc<Store>, generation: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for n in 0..OBJECTS {
        let name = format!("m{n:03}");
        let object = json!({"metadata": {"name": name, "namespace": "a", "uid": format!("u{n}"),
            "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"g": format!("{generation}")}},
            "data": {"k": "v".repeat(128 << 10)}});
        let write = Write {
            resource: "configmaps".into(),
            key: format!("a/{name}"),
            precondition: Precondition::Any,
            uid: None,
            change: Change::Put(resources::encode(configmaps(), &object.into()).unwrap()),
        };
        runtime.block_on(store.write(write)).unwrap();
    }
    store.maintain(true);
}

fn ask(reader: &Reader, verb: Verb) -> Body {
    let info = RequestInfo {
        verb,
        resource: configmaps().into(),
        subresource: None,
        namespace: None,
        name: None,
        query: Query::new(""),
        answer: Answer::default(),
        user: Arc::new(User::default()),
        peer: ([127, 0, 0, 1], 1).into(),
        audit: None,
        headers: http::HeaderMap::new(),
    };
    let response = match verb {
        Verb::Watch => at_once(read::watch(reader, &info)),
        _ => at_once(read::list(reader, &info)),
    };
    response.unwrap().into_body()
}

fn next(body: &mut Body) -> Option<Result<usize, BodyError>> {
    match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(frame) => frame.map(|frame| frame.map(|frame| frame.into_data().unwrap().len())),
        Poll::Pending => panic!("it waits"),
    }
}

#[tokio::test]
async fn answers_that_keep_more_of_the_past_than_history_may_have_are_broken_off() {
    let options = Options {
        durability: Durability::Os,
        background: false,
        history_bytes: HISTORY_BYTES,
        ..Options::default()
    };
    let store = Store::open(Arc::new(SimDisk::new()), options, Arc::new(KindArchiver::default())).unwrap();
    let written = |generation| {
        let store = store.clone();
        tokio::task::spawn_blocking(move || write_all(&store, generation))
    };
    written(0).await.unwrap();
    let (_stopper, stopping) = Stopper::new();
    let reader = Reader {
        store: store.clone(),
        stopping,
        continue_key: [3; 32],
        compress: Compress::Never,
        notice: Notice::default(),
    };
    let mut slow = [Verb::List, Verb::Watch].map(|verb| ask(&reader, verb));
    for body in &mut slow {
        assert!(next(body).unwrap().unwrap() > 0);
    }
    assert_eq!(store.overstayed(), None);

    written(1).await.unwrap();
    let kept = store.stats().retired_bytes;
    assert!(kept > HISTORY_BYTES, "{kept} bytes are kept for them");
    let mut late = ask(&reader, Verb::List);
    reader.notice.give(store.overstayed());
    for body in &mut slow {
        // What was made before is still sent.
        let mut sent = 0;
        let end = loop {
            match next(body) {
                Some(Ok(len)) => sent += len,
                end => break end,
            }
        };
        assert!(matches!(end, Some(Err(BodyError::Expired))));
        assert!(sent < 4 << 20, "{sent} bytes were sent after the notice");
    }
    assert!(next(&mut late).unwrap().is_ok(), "it keeps nothing of the past");
    drop(slow);
    assert_eq!((store.overstayed(), store.stats().retired_bytes), (None, 0));
}
