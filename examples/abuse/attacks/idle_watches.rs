//! Many watches that have nothing to tell.

use std::sync::Arc;

use crate::connection::{Connection, Question};
use crate::failure::Failure;
use crate::frames::connect_from;
use crate::process::Who;
use crate::siege::{Attack, Ground, Outcome};

/// What an idle watch over TLS may cost, bytes of private memory.
const EACH_MAX: u64 = 48 * 1024;

pub(crate) struct IdleWatches;

impl Attack for IdleWatches {
    const NAME: &'static str = "idle-watches";
    const TEXT: &'static str = "10,000 watches, each on a TLS connection of its own (HTTP/2), of a namespace in which \
                                nothing happens";

    async fn run(&self, ground: &Ground) -> Result<Outcome, Failure> {
        let count = ground.size(10_000, 200);
        let server = Arc::new(ground.process.tls(Who::Attacker)?);
        let address = ground.process.https;
        let mut tasks = tokio::task::JoinSet::new();
        for first in 0..16 {
            let server = server.clone();
            tasks.spawn(async move {
                let mut open = Vec::new();
                for number in (first..count).step_by(16) {
                    let mut connection = Connection::over(connect_from(number, address).await?, &server).await?;
                    let path = "/api/v1/namespaces/default/configmaps?watch=1&allowWatchBookmarks=false";
                    let answer = connection.send(&Question::get(path)).await?;
                    open.push((connection, answer));
                }
                Ok::<_, Failure>(open)
            });
        }
        let mut open = Vec::new();
        while let Some(opened) = tasks.join_next().await {
            open.extend(opened??);
        }
        ground.hold(15).await;
        Ok(Outcome::new(count as u64, "watches", count as u64 * EACH_MAX + (4 << 20)).holding(open))
    }
}
