//! Who holds how much of what there is a bounded number of: the bookkeeping, without clocks and tasks.
//!
//! A *pool* has places, all alike. A flow that asks for one gets it at once when it holds fewer than are free; otherwise
//! it waits in its own line, first come first served, and whenever a place comes free the waiting flow that holds fewest
//! gets it. That is the dynamic threshold of Choudhury and Hahne (1998, for buffers of switches): a flow alone gets half
//! of a pool, two flows a third each, and so on, so that something is always free for the next one to come.
//!
//! Two facts follow, and tests hold the code to them. After each operation no flow waits that holds fewer places than
//! are free; so whoever comes and gets a place at once overtakes nobody who could have had it. And a flow waits only
//! while it holds as many places as are free, or while none is free.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use slab::Slab;

use super::class::{CLASSES, Class};

/// What there is a bounded number of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Pool {
    /// Reads that are being answered: from the request's head to the head of the answer.
    Reads,
    /// Writes that are being worked on, from their whole body to their answer.
    Writes,
    /// Bodies above 32 KiB, of up to 3 MiB each, that are being read or worked on.
    Bodies,
    /// Answers that are made while the client reads them.
    Answers,
    /// Watches.
    Watches,
    /// Requests that are answered by backends, upgraded connections included.
    Elsewhere,
}

pub(super) const POOLS: [Pool; 6] = [
    Pool::Reads,
    Pool::Writes,
    Pool::Bodies,
    Pool::Answers,
    Pool::Watches,
    Pool::Elsewhere,
];

impl Pool {
    /// What figures call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Pool::Reads => "reads",
            Pool::Writes => "writes",
            Pool::Bodies => "large bodies",
            Pool::Answers => "answers",
            Pool::Watches => "watches",
            Pool::Elsewhere => "elsewhere",
        }
    }

    /// Whether a request may wait for a place. The others are asked for when the answer is there already.
    fn has_lines(self) -> bool {
        matches!(self, Pool::Reads | Pool::Writes | Pool::Bodies)
    }
}

/// A flow in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FlowId(usize);

#[cfg(test)]
impl FlowId {
    /// Any flow, where there is no table of them.
    pub(super) fn of(number: usize) -> Self {
        Self(number)
    }
}

/// A place in a line. Numbers are given out once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(u64);

/// What came of asking for a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// It is taken.
    Taken,
    /// It has to be waited for.
    Waits(Ticket),
    /// The line is full, or the pool has none.
    Refused,
}

/// Bounds on lines, over all pools.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineLimits {
    /// Places in the lines of one flow.
    pub flow_max: usize,
    /// Places in all lines.
    pub total_max: usize,
}

/// All pools and flows. `D` is what is kept beside a flow, `W` is how somebody who waits is told.
#[derive(Debug)]
pub(super) struct Shares<D, W> {
    /// By class and user.
    ids: [HashMap<Arc<str>, FlowId>; CLASSES.len()],
    flows: Slab<Flow<D, W>>,
    pools: [State; POOLS.len()],
    limits: LineLimits,
    next_ticket: u64,
}

#[derive(Debug)]
struct State {
    size: usize,
    free: usize,
    /// Flows with somebody in their line.
    waiting_flows: HashSet<FlowId>,
    waiting: usize,
}

#[derive(Debug)]
struct Flow<D, W> {
    class: Class,
    user: Arc<str>,
    data: D,
    /// Requests that may still ask for something.
    users: usize,
    held: [usize; POOLS.len()],
    lines: [BTreeMap<Ticket, W>; POOLS.len()],
}

impl<D: Clone, W> Shares<D, W> {
    /// `sizes` in the order of [`POOLS`].
    pub(super) fn new(sizes: [usize; POOLS.len()], limits: LineLimits) -> Self {
        Self {
            ids: Default::default(),
            flows: Slab::new(),
            pools: sizes.map(|size| State {
                size,
                free: size,
                waiting_flows: HashSet::new(),
                waiting: 0,
            }),
            limits,
            next_ticket: 0,
        }
    }

    /// Finds a flow, or makes it. It stays until as many requests have left as have entered, and then until [`Self::prune`].
    pub(super) fn enter(&mut self, class: Class, user: &str, make: impl FnOnce() -> D) -> (FlowId, D) {
        let ids = &mut self.ids[class as usize];
        let id = if let Some(id) = ids.get(user) {
            *id
        } else {
            let user: Arc<str> = user.into();
            let id = FlowId(self.flows.insert(Flow {
                class,
                user: user.clone(),
                data: make(),
                users: 0,
                held: [0; POOLS.len()],
                lines: Default::default(),
            }));
            ids.insert(user, id);
            id
        };
        let flow = &mut self.flows[id.0];
        flow.users += 1;
        (id, flow.data.clone())
    }

    /// A request is over.
    pub(super) fn leave(&mut self, id: FlowId) {
        self.flows[id.0].users -= 1;
    }

    /// Forgets flows without requests for which `is_idle` holds.
    pub(super) fn prune(&mut self, is_idle: impl Fn(&D) -> bool) {
        let ids = &mut self.ids;
        self.flows.retain(|_, flow| {
            let stays = flow.users > 0 || !is_idle(&flow.data);
            if !stays {
                ids[flow.class as usize].remove(&flow.user);
            }
            stays
        });
        for ids in ids {
            ids.shrink_to(16);
        }
        self.flows.shrink_to_fit();
    }

    /// Takes a place if one may be had at once. It overtakes nobody in the flow's own line: who stands there holds as many as
    /// are free.
    pub(super) fn take(&mut self, pool: Pool, id: FlowId) -> bool {
        let state = &mut self.pools[pool as usize];
        let flow = &mut self.flows[id.0];
        let takes = flow.held[pool as usize] < state.free;
        if takes {
            assert!(
                flow.lines[pool as usize].is_empty(),
                "a flow waits for places of {pool:?} that it may have"
            );
            state.free -= 1;
            flow.held[pool as usize] += 1;
        }
        takes
    }

    /// Takes a place, or one in the line for it.
    pub(super) fn ask(&mut self, pool: Pool, id: FlowId, waker: W) -> Asked {
        if self.take(pool, id) {
            return Asked::Taken;
        }
        let flow = &mut self.flows[id.0];
        let in_lines: usize = flow.lines.iter().map(BTreeMap::len).sum();
        let total: usize = self.pools.iter().map(|state| state.waiting).sum();
        if !pool.has_lines() || in_lines >= self.limits.flow_max || total >= self.limits.total_max {
            return Asked::Refused;
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        flow.lines[pool as usize].insert(ticket, waker);
        let state = &mut self.pools[pool as usize];
        state.waiting_flows.insert(id);
        state.waiting += 1;
        Asked::Waits(ticket)
    }

    /// How somebody who still waits is told; `None` when the place is theirs.
    pub(super) fn waiting(&mut self, pool: Pool, id: FlowId, ticket: Ticket) -> Option<&mut W> {
        self.flows[id.0].lines[pool as usize].get_mut(&ticket)
    }

    /// Gives a place back. Those who get one now are handed out, to be told.
    pub(super) fn give(&mut self, pool: Pool, id: FlowId) -> Vec<W> {
        let state = &mut self.pools[pool as usize];
        let held = &mut self.flows[id.0].held[pool as usize];
        assert!(
            *held > 0 && state.free < state.size,
            "a place of {pool:?} was given back twice"
        );
        *held -= 1;
        state.free += 1;
        self.grant(pool)
    }

    /// Gives up waiting. If the place was there already, it is given back: as [`Self::give`].
    pub(super) fn cancel(&mut self, pool: Pool, id: FlowId, ticket: Ticket) -> Vec<W> {
        let line = &mut self.flows[id.0].lines[pool as usize];
        if line.remove(&ticket).is_none() {
            return self.give(pool, id);
        }
        let is_empty = line.is_empty();
        let state = &mut self.pools[pool as usize];
        state.waiting -= 1;
        if is_empty {
            state.waiting_flows.remove(&id);
        }
        Vec::new()
    }

    fn grant(&mut self, pool: Pool) -> Vec<W> {
        let Self { flows, pools, .. } = self;
        let state = &mut pools[pool as usize];
        let mut told = Vec::new();
        // Fewest places first; then who has waited longest.
        while let Some(id) = state.waiting_flows.iter().copied().min_by_key(|id| {
            let flow = &flows[id.0];
            let first = flow.lines[pool as usize].keys().next().copied();
            (flow.held[pool as usize], first)
        }) && flows[id.0].held[pool as usize] < state.free
        {
            let flow = &mut flows[id.0];
            let line = &mut flow.lines[pool as usize];
            if let Some((_, waker)) = line.pop_first() {
                told.push(waker);
                flow.held[pool as usize] += 1;
                state.free -= 1;
                state.waiting -= 1;
            }
            if line.is_empty() {
                state.waiting_flows.remove(&id);
            }
        }
        told
    }

    /// Places of a pool, how many of them are taken, and how many wait for one.
    pub(super) fn figures(&self, pool: Pool) -> (usize, usize, usize) {
        let state = &self.pools[pool as usize];
        (state.size, state.size - state.free, state.waiting)
    }

    /// Each flow's class, what it keeps beside it, and what it holds and how many of it wait, in the order of [`POOLS`].
    pub(super) fn flows(&self) -> impl Iterator<Item = (Class, &D, [usize; POOLS.len()], [usize; POOLS.len()])> {
        self.flows.iter().map(|(_, flow)| {
            let waiting = POOLS.map(|pool| flow.lines[pool as usize].len());
            (flow.class, &flow.data, flow.held, waiting)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: LineLimits = LineLimits {
        flow_max: 12,
        total_max: 30,
    };

    fn shares(size: usize) -> Shares<(), usize> {
        Shares::new([size; POOLS.len()], LIMITS)
    }

    fn enter(shares: &mut Shares<(), usize>, name: &str) -> FlowId {
        shares.enter(Class::GlobalDefault, name, || ()).0
    }

    #[test]
    fn a_flow_alone_gets_half_and_the_next_one_finds_something_free() {
        let mut shares = shares(16);
        let greedy = enter(&mut shares, "greedy");
        let taken = (0..100).filter(|_| shares.take(Pool::Writes, greedy)).count();
        assert_eq!(taken, 8);
        let modest = enter(&mut shares, "modest");
        assert!(shares.take(Pool::Writes, modest));
        // Pools are apart from each other.
        assert!(shares.take(Pool::Reads, greedy));
    }

    #[test]
    fn the_last_place_of_a_pool_of_one_can_be_had() {
        let mut shares = shares(1);
        let a = enter(&mut shares, "a");
        assert_eq!(shares.ask(Pool::Writes, a, 0), Asked::Taken);
        let b = enter(&mut shares, "b");
        assert!(matches!(shares.ask(Pool::Writes, b, 1), Asked::Waits(_)));
        assert_eq!(shares.give(Pool::Writes, a), [1]);
    }

    #[test]
    fn who_holds_fewest_is_next_however_long_others_wait() {
        let mut shares = shares(3);
        let [a, b, c] = ["a", "b", "c"].map(|name| enter(&mut shares, name));
        assert!(shares.take(Pool::Reads, a) && shares.take(Pool::Reads, b) && shares.take(Pool::Reads, c));
        for waiter in 0..10 {
            assert!(matches!(shares.ask(Pool::Reads, a, waiter), Asked::Waits(_)));
        }
        let d = enter(&mut shares, "d");
        assert!(matches!(shares.ask(Pool::Reads, d, 77), Asked::Waits(_)));
        assert_eq!(shares.give(Pool::Reads, b), [77]);
        assert_eq!(shares.give(Pool::Reads, a), [0]);
    }

    #[test]
    fn lines_are_bounded_by_flow_and_in_all_and_answers_have_none() {
        let mut shares = shares(1);
        let ids: Vec<FlowId> = (0..4).map(|n| enter(&mut shares, &n.to_string())).collect();
        assert!(shares.take(Pool::Reads, ids[0]));
        for (id, most) in ids.iter().zip([12, 12, 6, 0]) {
            let waits = (0..50).filter(|n| matches!(shares.ask(Pool::Reads, *id, *n), Asked::Waits(_)));
            assert_eq!(waits.count(), most);
        }
        assert!(shares.take(Pool::Answers, ids[0]));
        assert_eq!(shares.ask(Pool::Answers, ids[3], 0), Asked::Refused);
    }

    #[test]
    fn a_place_that_came_too_late_goes_to_the_next_in_line() {
        let mut shares = shares(1);
        let [a, b] = ["a", "b"].map(|name| enter(&mut shares, name));
        assert!(shares.take(Pool::Reads, a));
        let Asked::Waits(first) = shares.ask(Pool::Reads, b, 1) else {
            panic!("there is a place");
        };
        assert!(matches!(shares.ask(Pool::Reads, b, 2), Asked::Waits(_)));
        assert_eq!(shares.give(Pool::Reads, a), [1]);
        assert_eq!(shares.cancel(Pool::Reads, b, first), [2]);
    }

    #[test]
    fn flows_without_requests_are_forgotten() {
        let mut shares = shares(4);
        let ids: Vec<FlowId> = (0..1000).map(|n| enter(&mut shares, &n.to_string())).collect();
        ids[..999].iter().for_each(|id| shares.leave(*id));
        shares.prune(|()| true);
        assert_eq!(
            (shares.ids[Class::GlobalDefault as usize].len(), shares.flows.len()),
            (1, 1)
        );
        assert_eq!(enter(&mut shares, "999"), ids[999]);
    }

    proptest! {
        /// Any order of asking, giving back and giving up: places are neither made nor lost, nobody waits who could
        /// have one, lines keep their order, and in the end everybody who waits is served.
        #[test]
        fn places_are_shared_whatever_happens(
            size in 1..20_usize,
            steps in proptest::collection::vec((0..5_usize, 0..6_u8, any::<prop::sample::Index>()), 0..300),
        ) {
            const POOL: Pool = Pool::Writes;
            let mut shares = shares(size);
            let ids: Vec<FlowId> = (0..5).map(|n| enter(&mut shares, &n.to_string())).collect();
            let mut holders: Vec<FlowId> = Vec::new();
            let mut waiters: BTreeMap<usize, (FlowId, Ticket)> = BTreeMap::new();
            let mut next = 0;
            let mut served_last: HashMap<FlowId, usize> = HashMap::new();
            let mut steps = steps.into_iter();
            loop {
                let told = match steps.next() {
                    Some((flow, 0..=3, _)) => {
                        match shares.ask(POOL, ids[flow], next) {
                            Asked::Taken => holders.push(ids[flow]),
                            Asked::Waits(ticket) => {
                                waiters.insert(next, (ids[flow], ticket));
                            }
                            Asked::Refused => {}
                        }
                        next += 1;
                        Vec::new()
                    }
                    Some((_, 4, index)) if !waiters.is_empty() => {
                        let waiter = *index.get(&waiters.keys().copied().collect::<Vec<_>>());
                        let (id, ticket) = waiters.remove(&waiter).unwrap();
                        prop_assert!(shares.waiting(POOL, id, ticket).is_some());
                        shares.cancel(POOL, id, ticket)
                    }
                    Some((_, _, index)) if !holders.is_empty() => {
                        let holder = index.index(holders.len());
                        shares.give(POOL, holders.swap_remove(holder))
                    }
                    Some(_) => Vec::new(),
                    None => match holders.pop() {
                        Some(id) => shares.give(POOL, id),
                        None => break,
                    },
                };
                for waiter in told {
                    let (id, ticket) = waiters.remove(&waiter).unwrap();
                    prop_assert!(shares.waiting(POOL, id, ticket).is_none());
                    let before = served_last.insert(id, waiter);
                    prop_assert!(before.is_none_or(|before| before < waiter), "a line lost its order");
                    holders.push(id);
                }
                let (_, taken, waiting) = shares.figures(POOL);
                prop_assert_eq!((taken, waiting), (holders.len(), waiters.len()));
                prop_assert!(taken <= size && waiting <= LIMITS.total_max);
                for id in &ids {
                    let held = holders.iter().filter(|holder| *holder == id).count();
                    let waits = waiters.values().any(|(waiter, _)| waiter == id);
                    prop_assert!(!waits || held >= size - taken, "{id:?} waits with {held}, {} free", size - taken);
                }
            }
            prop_assert_eq!(shares.figures(POOL), (size, 0, 0));
        }

        /// Flows that always want more hold equal shares, but for one place.
        #[test]
        fn flows_that_always_wait_hold_equal_shares(
            size in 4..100_usize,
            greedy in 1..4_usize,
            over in proptest::collection::vec(any::<prop::sample::Index>(), 1000),
        ) {
            const POOL: Pool = Pool::Reads;
            let mut shares: Shares<(), usize> =
                Shares::new([size; POOLS.len()], LineLimits { flow_max: 1000, total_max: 5000 });
            let ids: Vec<FlowId> = (0..greedy).map(|n| enter(&mut shares, &n.to_string())).collect();
            let mut holders: Vec<FlowId> = Vec::new();
            // The first one comes alone and takes what it can get, then the others come.
            for (flow, id) in ids.iter().enumerate() {
                for _ in 0..size {
                    if shares.ask(POOL, *id, flow) == Asked::Taken {
                        holders.push(*id);
                    }
                }
            }
            for over in over {
                let id = holders.swap_remove(over.index(holders.len()));
                for flow in shares.give(POOL, id) {
                    holders.push(ids[flow]);
                }
                if shares.ask(POOL, id, ids.iter().position(|other| *other == id).unwrap()) == Asked::Taken {
                    holders.push(id);
                }
            }
            let held: Vec<usize> = ids.iter().map(|id| holders.iter().filter(|holder| *holder == id).count()).collect();
            let share = size / (greedy + 1);
            prop_assert!(held.iter().all(|held| held.abs_diff(share) <= 1), "{held:?} of {size}");
        }
    }
}
