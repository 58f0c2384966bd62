//! A writer: makes every kind of write to keys of its own, one after the other, until the connection breaks.

use std::sync::Arc;

use hyper::{Method, StatusCode};
use serde_json::Value;

use crate::client::{Answer, Broken, Client};
use crate::model::{Acknowledged, Change, Kind, Known, Ledger, Version, name, revision};

/// Keys of each kind that a writer has.
const KEYS_PER_KIND: usize = 5;

/// What one writer knows, from kill to kill.
pub(crate) struct Writer {
    number: usize,
    /// Value of the label `writer` of its objects.
    label: String,
    pub(crate) keys: Vec<(Kind, String, Known)>,
}

impl Writer {
    pub(crate) fn new(number: usize) -> Self {
        let label = format!("w{number}");
        let keys = Kind::ALL
            .into_iter()
            .flat_map(|kind| (0..KEYS_PER_KIND).map(move |key| (kind, key)));
        Writer {
            number,
            keys: keys
                .map(|(kind, key)| (kind, format!("{label}-{key}"), Known::default()))
                .collect(),
            label,
        }
    }

    /// Writes until the connection breaks; everything that is acknowledged has a revision above `floor`.
    pub(crate) async fn run(
        mut self,
        address: std::net::SocketAddr,
        seed: u64,
        floor: u64,
        ledger: Arc<Ledger>,
    ) -> Writer {
        let mut random = fastrand::Rng::with_seed(seed ^ ((self.number as u64) << 32));
        let mut newest = floor;
        if let Ok(mut client) = Client::connect(address).await {
            while self.step(&mut client, &mut random, &mut newest, &ledger).await.is_ok() {}
        }
        self
    }

    async fn step(
        &mut self,
        client: &mut Client,
        random: &mut fastrand::Rng,
        newest: &mut u64,
        ledger: &Ledger,
    ) -> Result<(), Broken> {
        if random.u8(..) < 6 {
            return self.delete_all(client, Kind::ALL[random.usize(..2)], ledger).await;
        }
        let index = random.usize(..self.keys.len());
        let (kind, name, known) = &mut self.keys[index];
        let (kind, path) = (*kind, kind.path(name));
        let number = random.u64(..);
        ledger.sending(name, number);
        let Some((version, at)) = known.acknowledged else {
            let version = Version {
                number,
                status: None,
                deleting: false,
            };
            known.under_way = Some(Change::To(version));
            let body = kind.object(name, &self.label, number);
            let answer = answered(client.post(kind.collection(), &body).await, ledger)?;
            assert_eq!(answer.status, StatusCode::CREATED, "{name}: {answer:?}");
            known.acknowledge(kind, name, &answer.json(), true, newest, ledger);
            return Ok(());
        };
        let patch = "application/merge-patch+json";
        let renumbered = Version { number, ..version };
        // What was left half deleted is deleted again.
        let choice = if version.deleting { 2 } else { random.u8(..16) };
        let answer = match choice {
            // Refused: nothing is under way.
            0 => {
                let body = kind.object(name, &self.label, number);
                let answer = answered(client.post(kind.collection(), &body).await, ledger)?;
                assert_eq!(answer.status, StatusCode::CONFLICT, "{name}: {answer:?}");
                return Ok(());
            }
            1 => {
                let body = kind.patch(number, Some(at - 1)).to_string();
                let answer = answered(
                    client
                        .send(Method::PATCH, &path, &[("content-type", patch)], body)
                        .await,
                    ledger,
                )?;
                assert_eq!(answer.status, StatusCode::CONFLICT, "{name}: {answer:?}");
                return Ok(());
            }
            2..5 => {
                known.under_way = Some(Change::Away);
                let answer = answered(client.delete(&format!("{path}?gracePeriodSeconds=0")).await, ledger)?;
                assert_eq!(answer.status, StatusCode::OK, "{name}: {answer:?}");
                *known = Known::default();
                ledger.acknowledge();
                return Ok(());
            }
            5..9 if kind == Kind::Pod => {
                known.under_way = Some(Change::To(Version {
                    status: Some(number),
                    ..version
                }));
                let (path, body) = (format!("{path}/status"), Kind::status_patch(number).to_string());
                client
                    .send(Method::PATCH, &path, &[("content-type", patch)], body)
                    .await
            }
            5..9 => {
                known.under_way = Some(Change::To(renumbered));
                let mut body = kind.object(name, &self.label, number);
                body["metadata"]["resourceVersion"] = at.to_string().into();
                client.put(&path, &body).await
            }
            choice => {
                known.under_way = Some(Change::To(renumbered));
                let body = kind.patch(number, (choice > 12).then_some(at)).to_string();
                client
                    .send(Method::PATCH, &path, &[("content-type", patch)], body)
                    .await
            }
        };
        let answer = answered(answer, ledger)?;
        assert_eq!(answer.status, StatusCode::OK, "{name}: {answer:?}");
        known.acknowledge(kind, name, &answer.json(), false, newest, ledger);
        Ok(())
    }

    /// Deletes all objects of a kind. Any of them may be gone when the answer does not come.
    async fn delete_all(&mut self, client: &mut Client, kind: Kind, ledger: &Ledger) -> Result<(), Broken> {
        let of_kind = |(of, _, known): &&mut (Kind, String, Known)| *of == kind && known.acknowledged.is_some();
        for (_, _, known) in self.keys.iter_mut().filter(of_kind) {
            known.under_way = Some(Change::Away);
        }
        let path = format!(
            "{}?gracePeriodSeconds=0&labelSelector=writer%3D{}",
            kind.collection(),
            self.label
        );
        let answer = answered(client.delete(&path).await, ledger)?;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {answer:?}");
        for (_, _, known) in self.keys.iter_mut().filter(of_kind) {
            *known = Known::default();
            ledger.acknowledge();
        }
        Ok(())
    }

    /// Takes what was found after a restart.
    pub(crate) fn settle(&mut self, found: impl Fn(Kind, &str) -> Option<(Version, u64)>) {
        for (kind, name, known) in &mut self.keys {
            known.settle(name, found(*kind, name));
        }
    }
}

/// A server that stops in order may say so, and one whose disk has failed, before it ends: the write may be there or not.
fn answered(answer: Result<Answer, Broken>, ledger: &Ledger) -> Result<Answer, Broken> {
    match answer {
        Ok(_) if ledger.is_powerless() => Err("the power is gone".into()),
        Ok(answer)
            if answer.status == StatusCode::INTERNAL_SERVER_ERROR
                && answer.json()["message"]
                    .as_str()
                    .is_some_and(|message| message.contains("the disk failed, nothing is written any more")) =>
        {
            Err("the disk failed".into())
        }
        Ok(answer) if answer.status == StatusCode::SERVICE_UNAVAILABLE => Err("the server is stopping".into()),
        other => other,
    }
}

impl Known {
    /// Takes the answer to what is under way.
    fn acknowledge(&mut self, kind: Kind, key: &str, object: &Value, created: bool, newest: &mut u64, ledger: &Ledger) {
        let (version, revision) = (kind.version(object), revision(object));
        assert_eq!(name(object), key);
        assert_eq!(
            Some(Change::To(version)),
            self.under_way,
            "{key}: another version was acknowledged"
        );
        assert!(revision > *newest, "{key}: revision {revision} after {newest}");
        *newest = revision;
        *self = Known {
            acknowledged: Some((version, revision)),
            under_way: None,
        };
        ledger.written(Acknowledged {
            kind,
            name: key.to_owned(),
            version,
            revision,
            created,
        });
    }
}
