//! What scenarios stand on: the client's runtime, how much is measured, and the stores that several of them ask.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use crate::dataset::{self, Served};
use crate::limit::Limit;
use flatkube::store::Durability;

/// Objects of the small stores.
pub(crate) const SMALL: usize = 1_000;
/// Objects that carry `pick=yes` in every store.
pub(crate) const PICKED: usize = 100;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) runs: usize,
    /// Rounds of a run.
    pub(crate) rounds: usize,
    /// How long a half round (server or limit) should take. Zero: as few requests as possible.
    pub(crate) half_round: Duration,
    /// Whether a round goes before that does not count.
    pub(crate) warm: bool,
}

/// Which store is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum On {
    /// 1,000 ConfigMaps.
    SmallShelved,
    /// The same, nothing of it shelved.
    SmallDelta,
    /// 1,000 Pods.
    PodsShelved,
    /// `--objects` Pods.
    LargeShelved,
    /// The same after a quarter of it was updated: no larger delta stays unshelved.
    LargeDelta,
    /// Another `--objects` Pods, in a server that shelves in the background.
    LargeLive,
}

/// A store with its server, and a limit beside it.
pub(crate) struct Stock {
    pub(crate) served: Served,
    pub(crate) limit: Rc<Limit>,
}

/// Made once a run.
pub(crate) struct Stage {
    pub(crate) runtime: Rc<tokio::runtime::Runtime>,
    pub(crate) effort: Effort,
    /// Pods of the large store.
    pub(crate) objects: usize,
    kept: HashMap<On, Rc<Stock>>,
    /// The large store and whether its delta is as large as it gets.
    large: Option<(Rc<Stock>, On)>,
}

impl Stage {
    pub(crate) fn new(effort: Effort, objects: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        Self {
            runtime: Rc::new(runtime),
            effort,
            objects,
            kept: HashMap::new(),
            large: None,
        }
    }

    /// The store; made when it is first asked for, kept until the stage ends.
    pub(crate) fn stock(&mut self, on: On) -> Rc<Stock> {
        match on {
            On::LargeShelved | On::LargeDelta => self.large(on),
            On::LargeLive => self.kept.entry(on).or_insert_with(|| live(self.objects)).clone(),
            _ => self.kept.entry(on).or_insert_with(|| small(on)).clone(),
        }
    }

    fn large(&mut self, on: On) -> Rc<Stock> {
        let objects = self.objects;
        let (stock, is_on) = self
            .large
            .get_or_insert_with(|| (stock(shelved_pods(objects, Durability::Fsync)), On::LargeShelved));
        if *is_on != on {
            match on {
                On::LargeDelta => grow_delta(&stock.served, objects),
                _ => stock.served.shelve(),
            }
            *is_on = on;
        }
        stock.clone()
    }
}

fn stock(served: Served) -> Rc<Stock> {
    let limit = Rc::new(Limit::start(&served.data_dir));
    Rc::new(Stock { served, limit })
}

fn live(objects: usize) -> Rc<Stock> {
    stock(shelved_pods(objects, Durability::Fsync).restart(true, |_| {}))
}

/// A server of `objects` Pods, all shelved.
pub(crate) fn shelved_pods(objects: usize, durability: Durability) -> Served {
    eprintln!("  filling a store with {objects} Pods");
    let served = Served::start(durability, false);
    served.make_namespaces(crate::writes::NAMESPACES);
    served.fill_pods(objects, PICKED);
    served.shelve();
    served
}

fn small(on: On) -> Rc<Stock> {
    let served = Served::start(Durability::Os, false);
    if on == On::PodsShelved {
        served.fill_pods(SMALL, PICKED);
    } else {
        served.fill_config_maps(SMALL, PICKED);
    }
    if on != On::SmallDelta {
        served.shelve();
    }
    stock(served)
}

/// Updates every fourth Pod, a little under what the default options let grow; all picked ones are among them.
fn grow_delta(served: &Served, objects: usize) {
    served.fill((0..objects).step_by(4).map(|n| {
        let (resource, mut object) = dataset::pod(n, dataset::is_picked(n, objects, PICKED));
        object["metadata"]["annotations"]["bench.example.com/updated"] = "yes".into();
        (resource, object)
    }));
}
