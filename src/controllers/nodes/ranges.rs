//! Every node gets a range of addresses for its Pods.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::numbering::Numbering;
use super::{NODES, RUN_MAX};
use crate::api::Client;
use crate::controllers::claim::gone_is_fine;
use crate::controllers::event::{Level, Recorder};
use crate::controllers::failure::Failure;
use crate::controllers::metadata::is_same;
use crate::controllers::queue::Done;
use crate::controllers::runtime::Controller;
use crate::controllers::settings::Settings;
use crate::resources::{self, ResourceRef};
use crate::store::{Range, Selection, View};
use crate::tree::Value;

pub(in crate::controllers) struct NodeRanges {
    client: Client,
    recorder: Recorder,
    nodes: ResourceRef,
    book: Mutex<Book>,
}

/// Whose each range is. About 120 bytes a node.
#[derive(Debug)]
struct Book {
    numberings: Vec<Numbering>,
    held: HashMap<Box<str>, Vec<String>>,
    /// What nodes have that were there before is in it.
    is_complete: bool,
}

impl NodeRanges {
    /// `None` if there are no nodes, or they get no ranges.
    pub(in crate::controllers) fn new(client: Client, recorder: Recorder, settings: &Settings) -> Option<Self> {
        let numberings: Vec<Numbering> = settings.cluster_ranges.iter().copied().map(Numbering::new).collect();
        if numberings.is_empty() {
            return None;
        }
        Some(Self {
            client,
            recorder,
            nodes: resources::stored(NODES)?.into(),
            book: Mutex::new(Book {
                numberings,
                held: HashMap::new(),
                is_complete: false,
            }),
        })
    }

    /// Does something with the book, in which all is that nodes have.
    fn with_book<T>(&self, view: &Arc<View>, work: impl FnOnce(&mut Book) -> T) -> Result<T, Failure> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        if !book.is_complete {
            let mut listing = view.list(NODES, Range::default(), &Selection::all());
            while let Some(run) = listing.next(RUN_MAX)? {
                for object in run.objects() {
                    let node = self.client.read(&self.nodes, &object)?;
                    book.hold(object.key(), ranges(&node));
                }
            }
            book.is_complete = true;
        }
        Ok(work(&mut book))
    }
}

impl Book {
    fn note(&mut self, ranges: &[String], is_taken: bool) {
        for numbering in &mut self.numberings {
            for range in ranges {
                numbering.note(range, is_taken);
            }
        }
    }

    fn hold(&mut self, node: &str, ranges: Vec<String>) {
        if ranges.is_empty() || self.held.get(node) == Some(&ranges) {
            return;
        }
        self.free(node);
        self.note(&ranges, true);
        self.held.insert(node.into(), ranges);
    }

    fn free(&mut self, node: &str) {
        if let Some(ranges) = self.held.remove(node) {
            self.note(&ranges, false);
        }
    }

    /// One of each family, or none.
    fn take(&mut self, node: &str) -> Option<Vec<String>> {
        let taken: Vec<String> = self.numberings.iter_mut().filter_map(Numbering::take).collect();
        if taken.len() < self.numberings.len() {
            self.note(&taken, false);
            return None;
        }
        self.held.insert(node.into(), taken.clone());
        Some(taken)
    }
}

fn ranges(node: &Value) -> Vec<String> {
    let ranges = node["spec"]["podCIDRs"].as_array().into_iter().flatten();
    ranges.filter_map(|range| range.as_str().map(str::to_owned)).collect()
}

impl Controller for NodeRanges {
    fn resource(&self) -> &'static str {
        NODES
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(NODES, key)? else {
            self.with_book(&view, |book| book.free(key))?;
            return Ok(Done::Settled);
        };
        let node = self.client.read(&self.nodes, &object)?;
        let present = ranges(&node);
        if !present.is_empty() {
            self.with_book(&view, |book| book.hold(key, present))?;
            return Ok(Done::Settled);
        }
        let held = self.with_book(&view, |book| book.held.get(key).cloned().or_else(|| book.take(key)))?;
        let Some(taken) = held else {
            let message = format!("Node {key} status is now: CIDRNotAvailable");
            self.recorder.tell(&node, Level::Normal, "CIDRNotAvailable", message);
            return Ok(Done::Again);
        };
        let edit = |old: &Value| {
            (is_same(old, &node) && ranges(old).is_empty()).then(|| {
                let mut new = old.clone();
                new["spec"]["podCIDR"] = taken[0].as_str().into();
                new["spec"]["podCIDRs"] = taken
                    .iter()
                    .map(|range| Value::from(range.as_str()))
                    .collect::<Vec<_>>()
                    .into();
                new
            })
        };
        gone_is_fine(self.client.change(&self.nodes, None, key, edit).await)?;
        Ok(Done::Settled)
    }
}
