//! The memory of a request does not depend on how many objects its answer has.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use flatkube::api::Stopper;
use flatkube::api::negotiate::{Answer, MetaVersion, Shape};
use flatkube::api::read::{self, Compress, Reader};
use flatkube::api::request::{Query, RequestInfo, Verb};
use flatkube::auth::User;
use flatkube::resources::{self, Resource};
use flatkube::store::disk::sim::SimDisk;
use flatkube::store::{ArchiveError, Archiver, Change, Durability, Options, Precondition, RowFrame, Store, Write};
use http_body::Body as _;
use serde_json::json;

/// The bound that the design states, in bytes.
const LIVE_BYTES_MAX: u64 = 256 * 1024;

struct KindArchiver;

impl Archiver for KindArchiver {
    fn layout(&self, resource: &str) -> u32 {
        resources::layout(resource)
    }

    fn archive(&self, _: &str, _: &str, _: &[u8]) -> Result<Vec<u8>, ArchiveError> {
        unreachable!("the layout does not change")
    }

    fn row_frame(&self, resource: &str) -> Option<RowFrame> {
        resources::KindArchiver::default().row_frame(resource)
    }
}

fn configmaps() -> &'static Resource {
    resources::find("", "v1", "configmaps").unwrap()
}

async fn fill(store: &Arc<Store>, objects: usize) {
    let mut writes = tokio::task::JoinSet::new();
    for n in 0..objects {
        let name = format!("object-{n:06}");
        let object = json!({
            "metadata": {"name": name, "namespace": "a", "uid": format!("u-{n}"),
                "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"l": "1"}},
            "data": {"k": "v".repeat(500)},
        });
        let write = Write {
            resource: "configmaps".into(),
            key: format!("a/{name}"),
            precondition: Precondition::Any,
            uid: None,
            change: Change::Put(resources::encode(configmaps(), &object.into()).unwrap()),
        };
        let store = store.clone();
        writes.spawn(async move { store.write(write).await.map(drop) });
    }
    while let Some(done) = writes.join_next().await {
        done.unwrap().unwrap();
    }
}

/// The result of a future that does not have to wait.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// Lists everything and drops each frame as a client takes it; returns the largest number of bytes that were allocated at
/// any moment, and the length of the body.
fn live_bytes(reader: &Reader, shape: Shape, query: &str) -> (u64, usize) {
    let info = RequestInfo {
        verb: Verb::List,
        resource: configmaps().into(),
        subresource: None,
        namespace: None,
        name: None,
        query: Query::new(query),
        answer: Answer {
            shape,
            ..Answer::default()
        },
        user: Arc::new(User::default()),
        peer: ([127, 0, 0, 1], 1).into(),
        audit: None,
        headers: http::HeaderMap::new(),
    };
    let mut len = 0;
    let allocated = measure(|| {
        let mut body = at_once(read::list(reader, &info)).unwrap().into_body();
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut cx) {
            len += frame.unwrap().into_data().unwrap().len();
        }
    });
    (allocated.bytes_max, len)
}

#[test]
fn a_body_holds_a_bounded_number_of_bytes_however_long_it_is() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for objects in [500, 5_000] {
        let options = Options {
            durability: Durability::Os,
            background: false,
            ..Options::default()
        };
        let store = Store::open(Arc::new(SimDisk::new()), options, Arc::new(KindArchiver)).unwrap();
        runtime.block_on(fill(&store, objects));
        let (_stopper, stopping) = Stopper::new();
        let reader = Reader {
            store,
            stopping,
            continue_key: [3; 32],
            compress: Compress::default(),
            notice: flatkube::api::read::Notice::default(),
        };
        for shelved in [false, true] {
            if shelved {
                reader.store.maintain(true);
            }
            for (shape, query) in [
                (Shape::Object, ""),
                (Shape::Object, "labelSelector=l%3D1"),
                (Shape::Object, "labelSelector=l!%3D2"),
                (Shape::Object, "limit=4000"),
                (Shape::Object, "limit=400"),
                (Shape::PartialList(MetaVersion::V1), ""),
                (Shape::Table(MetaVersion::V1), ""),
                (Shape::Table(MetaVersion::V1), "includeObject=Object"),
            ] {
                let (live, len) = live_bytes(&reader, shape, query);
                assert!(len > 200 * 400, "{len} bytes answered {query}");
                assert!(
                    live <= LIVE_BYTES_MAX,
                    "{live} bytes for {shape:?} {query} of {objects} objects ({len} bytes), shelved: {shelved}"
                );
            }
        }
    }
}
