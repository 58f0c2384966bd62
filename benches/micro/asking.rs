//! The API's reads without connections: a request as it is after routing, and its answer pulled to the end.

use std::sync::Arc;

use bytes::Bytes;
use flatkube::api::Stopper;
use flatkube::api::body::Body;
use flatkube::api::negotiate::{Answer, Shape};
use flatkube::api::read::{self, Compress, Reader};
use flatkube::api::request::{Query, RequestInfo, Verb};
use flatkube::auth::User;
use flatkube::resources::Resource;
use flatkube::store::Store;
use http::HeaderMap;
use http_body_util::BodyExt as _;

/// What asks a store through the API's read path.
pub(crate) struct Asking {
    reader: Reader,
    /// Watches end when it goes.
    _stopper: Stopper,
}

impl Asking {
    pub(crate) fn of(store: &Arc<Store>) -> Self {
        let (stopper, stopping) = Stopper::new();
        let reader = Reader {
            store: store.clone(),
            stopping,
            continue_key: [1; 32],
            compress: Compress::default(),
            notice: flatkube::api::read::Notice::default(),
        };
        Self {
            reader,
            _stopper: stopper,
        }
    }

    /// The bytes of the answer to a get or a list.
    pub(crate) async fn answer_len(&self, info: &RequestInfo) -> usize {
        let response = match info.verb {
            Verb::Get => read::get(&self.reader, info).await,
            _ => read::list(&self.reader, info).await,
        };
        let mut body = response.expect("an answer").into_body();
        let mut len = 0;
        while let Some(frame) = body.frame().await {
            len += frame.expect("intact bytes").into_data().expect("data").len();
        }
        len
    }

    /// The body of a watch.
    pub(crate) async fn watch(&self, info: &RequestInfo) -> Body {
        read::watch(&self.reader, info).await.expect("a watch").into_body()
    }
}

/// The next events of a watch, as bytes.
pub(crate) async fn events(watch: &mut Body) -> Bytes {
    let frame = watch.frame().await.expect("a watch goes on").expect("intact bytes");
    frame.into_data().expect("data")
}

/// A request for a collection.
pub(crate) fn request(verb: Verb, resource: &'static Resource, query: &str, shape: Shape) -> RequestInfo {
    RequestInfo {
        verb,
        resource: resource.into(),
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
        headers: HeaderMap::new(),
    }
}

/// A get.
pub(crate) fn get(resource: &'static Resource, (namespace, name): (String, String)) -> RequestInfo {
    RequestInfo {
        namespace: Some(namespace),
        name: Some(name),
        ..request(Verb::Get, resource, "", Shape::Object)
    }
}
