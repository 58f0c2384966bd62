//! Selectors and labels without measure.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::connection::{Connection, Question};
use crate::failure::Failure;
use crate::process::{Setting, Who};
use crate::siege::{Attack, Ground, Outcome, fill};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) struct LongSelectors;

impl Attack for LongSelectors {
    const NAME: &'static str = "long-selectors";
    const TEXT: &'static str = "16 clients: selectors of 1,000,000 labels in the request line; the longest that fits into a head \
                                (9,000 labels) for lists and watches of 5,000 objects; objects of 150,000 labels, selected by \
                                the last; collections deleted with a body of 2.9 MiB";

    fn setting(&self) -> Setting {
        Setting {
            arguments: vec!["--history-bytes=256MiB".to_owned(), "--durability=os".to_owned()],
            ..Setting::default()
        }
    }

    async fn prepare(&self, ground: &Ground) -> Result<(), Failure> {
        fill(ground, MAPS, ground.size(5_000, 500), |number| {
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                   "metadata": {"name": format!("m-{number:05}"), "labels": {"n": format!("{number}")}}})
            .to_string()
        })
        .await
    }

    async fn run(&self, ground: &Ground) -> Result<Outcome, Failure> {
        let mut clients = tokio::task::JoinSet::new();
        let deadline = tokio::time::Instant::now() + ground.duration(30);
        for number in 0..16 {
            let address = ground.process.http;
            let server = ground.process.plain(Who::Attacker)?;
            clients.spawn(async move {
                let mut connection = Connection::open(&server).await?;
                let (mut rounds, mut faults) = (0_u64, Vec::new());
                while rounds == 0 || tokio::time::Instant::now() < deadline {
                    match number % 4 {
                        0 => faults.extend(a_million_labels(address).await?),
                        1 => faults.extend(longest(&mut connection).await?),
                        2 => faults.extend(many_labels(&mut connection, number, rounds).await?),
                        _ => faults.extend(large_options(&mut connection, number).await?),
                    }
                    rounds += 1;
                }
                Ok::<_, Failure>((number % 4, rounds, faults))
            });
        }
        let mut rounds = [0; 4];
        let mut faults = Vec::new();
        while let Some(done) = clients.join_next().await {
            let (kind, count, found) = done??;
            rounds[kind] += count;
            faults.extend(found);
        }
        let mut outcome = Outcome::new(16, "clients", 640 << 20).note(format!(
            "requests: {} of 1,000,000 labels, {} of 9,000, {} objects of 150,000 labels, {} large bodies for deleting",
            rounds[0], rounds[1], rounds[2], rounds[3]
        ));
        // Objects of 150,000 labels that were not shelved when they were last counted.
        outcome.left_max = 64 << 20;
        outcome.removed_max = 256 << 20;
        faults.truncate(5);
        outcome.faults = faults;
        Ok(outcome)
    }
}

fn selector(labels: usize) -> String {
    (0..labels).fold("n%20in%20(".to_owned(), |mut text, number| {
        let _ = write!(text, "{}{number}", if number == 0 { "" } else { "," });
        text
    }) + ")"
}

/// The answer must be 431: kube-apiserver's HTTP library has the same for heads over 1 MiB.
async fn a_million_labels(address: std::net::SocketAddr) -> Result<Option<String>, Failure> {
    let mut socket = TcpStream::connect(address).await?;
    let request = format!(
        "GET {MAPS}?labelSelector={} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        selector(1_000_000),
        Who::Attacker.token()
    );
    let _ = socket.write_all(request.as_bytes()).await;
    let mut line = [0; 12];
    Ok(
        match timeout(Duration::from_secs(20), socket.read_exact(&mut line)).await {
            Ok(Ok(_)) if &line[..] == b"HTTP/1.1 431" || &line[..] == b"HTTP/1.1 414" => None,
            // Hung up on in the middle of sending.
            Ok(Err(_)) => None,
            Ok(Ok(_)) => Some(format!("1,000,000 labels: {:?}", String::from_utf8_lossy(&line))),
            Err(_) => Some("1,000,000 labels: no answer".to_owned()),
        },
    )
}

async fn longest(connection: &mut Connection) -> Result<Option<String>, Failure> {
    let selector = selector(9_000);
    let answer = connection
        .ask(&Question::get(format!("{MAPS}?labelSelector={selector}")))
        .await?;
    if !answer.ends_with(b"}\n") {
        return Ok(Some("9,000 labels: no whole list".to_owned()));
    }
    let path = format!("{MAPS}?watch=1&timeoutSeconds=1&labelSelector={selector}");
    connection.ask(&Question::get(path)).await.map(|_| None)
}

async fn many_labels(connection: &mut Connection, client: usize, round: u64) -> Result<Option<String>, Failure> {
    let name = format!("wide-{client}");
    let labels: serde_json::Map<String, serde_json::Value> =
        (0..150_000).map(|label| (format!("l{label:06}"), json!(""))).collect();
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}).to_string();
    let path = format!("{MAPS}/{name}");
    if round > 0 {
        connection
            .ask(&Question::write(http::Method::DELETE, path, "", ""))
            .await?;
    }
    connection
        .ask(&Question::write(http::Method::POST, MAPS, "application/json", object))
        .await?;
    let found = connection
        .ask(&Question::get(format!("{MAPS}?labelSelector=l149999&limit=1")))
        .await?;
    Ok((!String::from_utf8_lossy(&found).contains("l149999"))
        .then(|| "an object of 150,000 labels is not found".to_owned()))
}

async fn large_options(connection: &mut Connection, client: usize) -> Result<Option<String>, Failure> {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"],
                         "preconditions": {"uid": "u".repeat(2_900_000)}});
    let path = format!("{MAPS}?labelSelector=n%3D{client}");
    let question = Question::write(http::Method::DELETE, path, "application/json", options.to_string());
    // It may be refused for what is in it; only to fall silent would be wrong.
    let _ = timeout(Duration::from_secs(20), connection.ask(&question)).await?;
    Ok(None)
}
