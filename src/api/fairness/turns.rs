//! Whose work the server's threads do next.
//!
//! Places bound how many requests there are; they do not say in which order the threads come to them. tokio polls tasks
//! first come first served, so two hundred tasks of one user would stand before the one of another. Here each flow has a
//! *tag*: the time that was spent on it so far, divided by its weight. A flow whose tag is less than [`SLICE`] ahead of
//! the *virtual time* is polled as if nothing were here: two loads of atomics. One that is further ahead stands in line.
//! A *round* then lets everything run that is ready (`yield_now`, which asks the sockets, too), sets the virtual time to
//! the lowest tag in line, and wakes about one slice of work of the flow that has it; this is start-time fair queueing
//! (Goyal, Vin and Cheng, 1996), with the measured cost instead of a foretold one. So no flow gets more than another
//! that wants something, but for one slice and one poll; a flow alone is held up by one round a slice; and who asks
//! now and then never stands in line.
//!
//! A poll cannot be interrupted. The longest is that of a large write, some tens of milliseconds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::class::WEIGHT_USUAL;
use super::shares::FlowId;

/// How far a flow may be ahead, of a usual user's weight.
const SLICE: Duration = Duration::from_millis(2);
/// Most waiting polls of a flow that are woken at one go, however short they are.
const WOKEN_MAX: u64 = 64;

/// What is kept of a flow here.
#[derive(Debug)]
pub(super) struct Pace {
    weight: u32,
    tag_ns: AtomicU64,
    /// What a poll costs, about.
    mean_ns: AtomicU64,
    in_line: AtomicU32,
}

impl Pace {
    pub(super) fn new(weight: u32) -> Self {
        Self {
            weight,
            tag_ns: AtomicU64::new(0),
            mean_ns: AtomicU64::new(0),
            in_line: AtomicU32::new(0),
        }
    }

    /// Polls that stand in line.
    pub(super) fn in_line(&self) -> u32 {
        self.in_line.load(Relaxed)
    }
}

/// The virtual time and the lines.
#[derive(Debug)]
pub(super) struct Turns {
    virtual_ns: AtomicU64,
    lines: Mutex<Lines>,
    /// Polls that a round wakes at least, if there are so many.
    round: usize,
}

#[derive(Debug, Default)]
struct Lines {
    lines: BTreeMap<FlowId, Line>,
    next_ticket: u64,
    /// Polls in all lines.
    in_lines: usize,
    /// A task goes through rounds.
    has_rounds: bool,
}

#[derive(Debug)]
struct Line {
    pace: Arc<Pace>,
    waiting: BTreeMap<u64, Waker>,
}

impl Turns {
    /// For so many threads that poll.
    pub(super) fn new(threads: usize) -> Self {
        Self {
            virtual_ns: AtomicU64::new(0),
            lines: Mutex::default(),
            // Two for each: one to be polled and one to follow it without a round in between.
            round: 2 * threads.max(1),
        }
    }

    /// A panic while the lock is held leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the next poll for this flow has to stand in line.
    pub(super) fn must_wait(&self, pace: &Pace) -> bool {
        pace.in_line.load(Relaxed) > 0 || self.is_ahead(pace)
    }

    fn is_ahead(&self, pace: &Pace) -> bool {
        pace.tag_ns.load(Relaxed) > self.virtual_ns.load(Relaxed) + SLICE.as_nanos() as u64
    }

    /// Polls in all lines.
    pub(super) fn in_lines(&self) -> usize {
        self.lock().in_lines
    }

    /// Notes what a poll for the flow has cost.
    pub(super) fn charge(&self, pace: &Pace, cost: Duration) {
        let cost_ns = cost.as_nanos() as u64;
        let mean_ns = match pace.mean_ns.load(Relaxed) {
            0 => cost_ns,
            mean_ns => mean_ns - mean_ns / 8 + cost_ns / 8,
        };
        pace.mean_ns.store(mean_ns, Relaxed);
        let weighted_ns = cost_ns * u64::from(WEIGHT_USUAL) / u64::from(pace.weight);
        // Whoever asked for nothing in the meantime has saved up nothing.
        pace.tag_ns.fetch_max(self.virtual_ns.load(Relaxed), Relaxed);
        pace.tag_ns.fetch_add(weighted_ns, Relaxed);
    }

    /// Stands in line. Whether somebody has to [`Self::go_round`] now.
    pub(super) fn wait(&self, id: FlowId, pace: &Arc<Pace>, waker: &Waker) -> (TurnTicket, bool) {
        let mut lines = self.lock();
        let number = lines.next_ticket;
        lines.next_ticket += 1;
        let line = lines.lines.entry(id).or_insert_with(|| Line {
            pace: pace.clone(),
            waiting: BTreeMap::new(),
        });
        line.waiting.insert(number, waker.clone());
        lines.in_lines += 1;
        pace.in_line.fetch_add(1, Relaxed);
        (
            TurnTicket { id, number },
            !std::mem::replace(&mut lines.has_rounds, true),
        )
    }

    /// Whether the turn has come; if it has not, `waker` is woken when it does.
    pub(super) fn has_come(&self, ticket: TurnTicket, waker: &Waker) -> bool {
        let mut lines = self.lock();
        let line = lines.lines.get_mut(&ticket.id);
        match line.and_then(|line| line.waiting.get_mut(&ticket.number)) {
            Some(waiting) => {
                waiting.clone_from(waker);
                false
            }
            None => true,
        }
    }

    /// Leaves the line, if not by having the turn.
    pub(super) fn leave(&self, ticket: TurnTicket) {
        let mut lines = self.lock();
        if let Some(line) = lines.lines.get_mut(&ticket.id)
            && line.waiting.remove(&ticket.number).is_some()
        {
            line.pace.in_line.fetch_sub(1, Relaxed);
            if line.waiting.is_empty() {
                lines.lines.remove(&ticket.id);
            }
            lines.in_lines -= 1;
        }
    }

    /// One round: whom to wake. `None` when nobody stands in line; then somebody has to begin anew.
    fn round(&self) -> Option<Vec<Waker>> {
        let mut lines = self.lock();
        let mut woken = Vec::new();
        // What was planned for a flow in this round and is not charged yet.
        let mut planned_ns: BTreeMap<FlowId, u64> = BTreeMap::new();
        while woken.len() < self.round {
            let ahead = |(id, line): &(&FlowId, &mut Line)| {
                let planned_ns = planned_ns.get(id).copied().unwrap_or(0);
                let first = line.waiting.keys().next().copied();
                (line.pace.tag_ns.load(Relaxed) + planned_ns, first)
            };
            let Some((&id, line)) = lines.lines.iter_mut().min_by_key(ahead) else {
                break;
            };
            let Line { pace, waiting } = line;
            if woken.is_empty() {
                self.virtual_ns.fetch_max(pace.tag_ns.load(Relaxed), Relaxed);
            }
            let mean_ns = pace.mean_ns.load(Relaxed).max(1);
            let slice_ns = SLICE.as_nanos() as u64 * u64::from(pace.weight) / u64::from(WEIGHT_USUAL);
            for _ in 0..(slice_ns / mean_ns).clamp(1, WOKEN_MAX) {
                let Some((_, waker)) = waiting.pop_first() else { break };
                pace.in_line.fetch_sub(1, Relaxed);
                *planned_ns.entry(id).or_default() += mean_ns * u64::from(WEIGHT_USUAL) / u64::from(pace.weight);
                woken.push(waker);
            }
            if waiting.is_empty() {
                lines.lines.remove(&id);
            }
        }
        lines.in_lines -= woken.len();
        if woken.is_empty() {
            lines.has_rounds = false;
            return None;
        }
        Some(woken)
    }

    /// Goes through rounds until nobody stands in line.
    pub(super) async fn go_round(self: Arc<Self>) {
        let mut going = Going {
            turns: self,
            is_done: false,
        };
        loop {
            tokio::task::yield_now().await;
            let Some(woken) = going.turns.round() else {
                going.is_done = true;
                return;
            };
            woken.into_iter().for_each(Waker::wake);
        }
    }
}

/// When the runtime ends, nobody goes through rounds any more; whoever comes then begins anew.
struct Going {
    turns: Arc<Turns>,
    is_done: bool,
}

impl Drop for Going {
    fn drop(&mut self) {
        if !self.is_done {
            self.turns.lock().has_rounds = false;
        }
    }
}

/// A place in a flow's line.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnTicket {
    id: FlowId,
    number: u64,
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use proptest::prelude::*;

    use super::*;

    /// Flows, numbered, with polls that stand in line; wakers say their flow's number.
    struct Simulated {
        turns: Turns,
        paces: Vec<Arc<Pace>>,
        woken: Arc<Mutex<Vec<usize>>>,
    }

    struct Teller(Arc<Mutex<Vec<usize>>>, usize);

    impl Wake for Teller {
        fn wake(self: Arc<Self>) {
            self.0.lock().unwrap().push(self.1);
        }
    }

    impl Simulated {
        fn new(threads: usize, weights: &[u32]) -> Self {
            Self {
                turns: Turns::new(threads),
                paces: weights.iter().map(|weight| Arc::new(Pace::new(*weight))).collect(),
                woken: Arc::default(),
            }
        }

        fn stand_in_line(&self, flow: usize) -> TurnTicket {
            let waker = Arc::new(Teller(self.woken.clone(), flow)).into();
            self.turns.wait(FlowId::of(flow), &self.paces[flow], &waker).0
        }

        /// The flows whose polls are woken by one round, in order.
        fn round(&self) -> Vec<usize> {
            self.turns.round().into_iter().flatten().for_each(Waker::wake);
            std::mem::take(&mut self.woken.lock().unwrap())
        }

        fn charge(&self, flow: usize, cost: Duration) {
            self.turns.charge(&self.paces[flow], cost);
        }

        fn must_wait(&self, flow: usize) -> bool {
            self.turns.must_wait(&self.paces[flow])
        }
    }

    const MS: Duration = Duration::from_millis(1);

    proptest! {
        /// Whatever polls cost, as long as each flow has enough of them in line for a round: what flows have got, by their weights,
        /// differs by a slice and a poll at most, at any moment.
        #[test]
        fn flows_that_always_want_time_get_equal_shares(
            costs_us in proptest::collection::vec(20..30_000_u64, 2..6),
            weights in proptest::collection::vec(prop_oneof![Just(1_u32), Just(4), Just(16)], 6),
            backlog in 100..200_usize,
            threads in 1..5_usize,
        ) {
            let simulated = Simulated::new(threads, &weights[..costs_us.len()]);
            let mut got_us = vec![0.0; costs_us.len()];
            let weighted = |flow: usize| costs_us[flow] as f64 * f64::from(WEIGHT_USUAL) / f64::from(weights[flow]);
            for (flow, cost_us) in costs_us.iter().enumerate() {
                simulated.charge(flow, Duration::from_micros(*cost_us));
                got_us[flow] += weighted(flow);
                (0..backlog).for_each(|_| _ = simulated.stand_in_line(flow));
            }
            let poll_us = (0..costs_us.len()).map(weighted).fold(0.0, f64::max);
            for _ in 0..200 {
                for flow in simulated.round() {
                    simulated.charge(flow, Duration::from_micros(costs_us[flow]));
                    got_us[flow] += weighted(flow);
                    simulated.stand_in_line(flow);
                    let (least, most) = got_us.iter().fold((f64::MAX, 0.0_f64), |(least, most), got| {
                        (least.min(*got), most.max(*got))
                    });
                    let allowed = SLICE.as_micros() as f64 + 2.0 * poll_us;
                    prop_assert!(most - least <= allowed, "{got_us:?}, allowed {allowed}");
                }
            }
        }
    }

    #[test]
    fn with_equal_costs_flows_differ_by_one_request() {
        let simulated = Simulated::new(2, &[WEIGHT_USUAL; 3]);
        let mut polled = [1_u32; 3];
        for flow in 0..3 {
            simulated.charge(flow, 5 * MS);
            // The first one is greedy.
            (0..if flow == 0 { 200 } else { 3 }).for_each(|_| _ = simulated.stand_in_line(flow));
        }
        for _ in 0..100 {
            for flow in simulated.round() {
                simulated.charge(flow, 5 * MS);
                simulated.stand_in_line(flow);
                polled[flow] += 1;
                assert!(
                    polled.iter().max().unwrap() - polled.iter().min().unwrap() <= 1,
                    "{polled:?}"
                );
            }
        }
    }

    #[test]
    fn who_asks_now_and_then_never_stands_in_line() {
        let simulated = Simulated::new(2, &[WEIGHT_USUAL; 2]);
        let (greedy, modest) = (0, 1);
        simulated.charge(greedy, 10 * MS);
        (0..200).for_each(|_| _ = simulated.stand_in_line(greedy));
        for _ in 0..500 {
            assert!(!simulated.must_wait(modest));
            simulated.charge(modest, MS);
            for flow in simulated.round() {
                simulated.charge(flow, 10 * MS);
                simulated.stand_in_line(flow);
            }
        }
    }

    #[test]
    fn who_asked_for_nothing_has_saved_up_nothing() {
        let simulated = Simulated::new(2, &[WEIGHT_USUAL; 2]);
        let mut polled = [0_u32; 2];
        simulated.charge(0, 5 * MS);
        (0..20).for_each(|_| _ = simulated.stand_in_line(0));
        for round in 0..200 {
            if round == 100 {
                polled = [0; 2];
                simulated.charge(1, 5 * MS);
                (0..20).for_each(|_| _ = simulated.stand_in_line(1));
            }
            for flow in simulated.round() {
                simulated.charge(flow, 5 * MS);
                simulated.stand_in_line(flow);
                polled[flow] += 1;
            }
        }
        assert!(polled[0].abs_diff(polled[1]) <= 4, "{polled:?}");
    }

    #[test]
    fn a_flow_is_held_up_once_a_slice_and_catches_up_with_one_round() {
        let simulated = Simulated::new(2, &[WEIGHT_USUAL]);
        let free = (0..1000).take_while(|_| {
            simulated.charge(0, MS / 10);
            !simulated.must_wait(0)
        });
        assert_eq!(free.count(), 20);
        simulated.stand_in_line(0);
        assert_eq!(simulated.round(), [0]);
        assert!(!simulated.must_wait(0));
    }

    #[test]
    fn short_polls_are_woken_by_the_slice_and_a_line_keeps_its_order() {
        let simulated = Simulated::new(1, &[WEIGHT_USUAL; 2]);
        simulated.charge(0, 10 * MS);
        (0..100).for_each(|_| simulated.charge(0, MS / 10));
        let tickets: Vec<_> = (0..100).map(|_| simulated.stand_in_line(0)).collect();
        let woken = simulated.round().len();
        assert!((15..60).contains(&woken), "{woken}");
        let has_come = |ticket: &TurnTicket| simulated.turns.has_come(*ticket, Waker::noop());
        assert!(tickets[..woken].iter().all(has_come) && !tickets[woken..].iter().any(has_come));
    }

    #[test]
    fn who_leaves_is_not_woken_and_lines_end_empty() {
        let simulated = Simulated::new(1, &[WEIGHT_USUAL]);
        simulated.charge(0, 10 * MS);
        let tickets: Vec<_> = (0..3).map(|_| simulated.stand_in_line(0)).collect();
        simulated.turns.leave(tickets[1]);
        assert_eq!(simulated.round().len(), 2);
        // The turn came and was not taken: that is no place in line any more.
        for ticket in tickets {
            simulated.turns.leave(ticket);
        }
        assert_eq!((simulated.turns.in_lines(), simulated.paces[0].in_line()), (0, 0));
        assert!(simulated.turns.round().is_none());
        let waker = Waker::noop();
        assert!(
            simulated.turns.wait(FlowId::of(0), &simulated.paces[0], waker).1,
            "nobody goes round"
        );
    }
}
