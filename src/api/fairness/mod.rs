//! Limits on requests, and fairness between those who make them: a greedy client waits for itself, not others for it.
//!
//! The idea is that of kube-apiserver's Priority and Fairness: requests belong to *flows* (`class`: a user, within a level),
//! and flows share what is scarce. Two things are scarce, and each has its rule:
//!
//! - **What can be counted** (`shares`): requests that are worked on, large bodies in memory, answers that are made while they
//!   are read, watches. A flow holds at most as many as are free; who has to wait does so in a line of the flow's own.
//! - **The time of the threads** (`turns`): work is measured poll by poll, and a flow that has had more than others who want
//!   some stands back behind them. A place is held by a request from its head to the head of its answer; its body is paid for
//!   in time, frame by frame, so a client that does not read holds up nobody.
//!
//! Lines are bounded ([`LINES`]), and so is the time in them: then the answer is 429 with `Retry-After: 1`. Members of
//! `system:masters` and health checks pass by; only their large bodies count, because memory is the same for all.
//!
//! What nobody contends for costs two short locks, two looks at the clock and some atomics a request.

mod class;
mod figures;
mod gated;
mod shares;
mod turns;

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::PrometheusRecorder;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

use super::connection::Limits;
use super::request::{RequestInfo, Verb};
use super::status::Status;
use crate::auth::User;
use crate::resources::Resource;
use class::{Asked, Class};
use figures::{Figures, Reason};
pub(super) use figures::{WAIT, describe};
pub(super) use gated::{Gated, InTurn};
use shares::{FlowId, LineLimits, Pool, Shares, Ticket};
use turns::{Pace, TurnTicket, Turns};

/// Requests in line: of one flow, and of all.
const LINES: LineLimits = LineLimits {
    flow_max: 512,
    total_max: 8192,
};
/// How long a request waits in line before it is refused: a quarter of kube-apiserver's time for a request.
const LINE_WAIT: Duration = Duration::from_secs(15);
/// `Retry-After` of a refusal, seconds.
const RETRY_AFTER_S: u32 = 1;

/// All limits on requests, and what is known about the flows.
#[derive(Debug)]
pub(super) struct Fairness {
    shares: Mutex<Shares<Arc<Pace>, Waker>>,
    turns: Arc<Turns>,
    /// Writes of those who are exempt: as many as others have, and apart from them.
    exempt_writes: Arc<Semaphore>,
    figures: Figures,
}

/// What kind of request asks to be let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Takes a place among the reads.
    Read,
    /// The same until it has begun, then one among the watches.
    Watch,
    /// Takes a place among the writes once its body is there.
    Write,
}

impl Kind {
    fn of(verb: Verb) -> Self {
        match verb {
            Verb::Get | Verb::List => Self::Read,
            Verb::Watch => Self::Watch,
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => Self::Write,
        }
    }
}

/// Who asks to be let in, and for what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entrant<'a> {
    class: Class,
    user: &'a str,
    kind: Kind,
}

impl<'a> Entrant<'a> {
    /// A request for a resource.
    pub(super) fn resource(user: &'a User, resource: &Resource, verb: Verb) -> Self {
        Self::new(user, Some((resource, verb)), Kind::of(verb))
    }

    /// Any other request.
    pub(super) fn other(user: &'a User) -> Self {
        Self::new(user, None, Kind::Read)
    }

    /// As for [`Self::resource`].
    pub(super) fn of(info: &'a RequestInfo) -> Self {
        Self::resource(&info.user, &info.resource, info.verb)
    }

    fn new(user: &'a User, resource: Option<(&Resource, Verb)>, kind: Kind) -> Self {
        Self {
            class: class::class(&Asked { user, resource }),
            user: &user.name,
            kind,
        }
    }
}

impl Fairness {
    pub(super) fn new(limits: &Limits, recorder: Arc<PrometheusRecorder>) -> Self {
        // In the order of the pools.
        let sizes = [
            limits.requests_inflight,
            limits.mutating_inflight,
            limits.large_bodies,
            limits.answers,
            limits.watches,
            // The rest is for those who pass by.
            (limits.backends / 4 * 3).max(1),
        ];
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            shares: Mutex::new(Shares::new(sizes, LINES)),
            turns: Arc::new(Turns::new(threads)),
            exempt_writes: Arc::new(Semaphore::new(limits.mutating_inflight)),
            figures: Figures::new(recorder),
        }
    }

    /// A panic while the lock is held leaves nothing half done.
    fn shares(&self) -> MutexGuard<'_, Shares<Arc<Pace>, Waker>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place to work on a write, once its body is there. Waits for it.
    ///
    /// # Errors
    /// 429 when the line is full or does not move.
    pub(super) async fn write_place(self: &Arc<Self>, entrant: Entrant<'_>) -> Result<WritePlace, Status> {
        if entrant.class == Class::Exempt {
            // Closed only when the server is gone.
            let permit = self.exempt_writes.clone().acquire_owned().await;
            return Ok(WritePlace::Exempt(permit.map_err(Status::internal)?));
        }
        self.place(entrant, Pool::Writes).await.map(WritePlace::Shared)
    }

    /// A place for a large body. Waits for it.
    ///
    /// # Errors
    /// 429 when the line is full or does not move.
    pub(super) async fn body_place(self: &Arc<Self>, entrant: Entrant<'_>) -> Result<Place, Status> {
        self.place(entrant, Pool::Bodies).await
    }

    /// A place for a request that is answered elsewhere, as long as it lasts. `None` for those who pass by.
    ///
    /// # Errors
    /// 429 when the user has as many as it may.
    pub(super) fn stay(self: &Arc<Self>, entrant: Entrant<'_>) -> Result<Option<Place>, Status> {
        if entrant.class == Class::Exempt {
            return Ok(None);
        }
        let mut visit = self.visit(entrant.class, entrant.user);
        if visit.take(Pool::Elsewhere) {
            return Ok(Some(Place(visit)));
        }
        drop(visit);
        Err(self.refusal(entrant.class, Reason::ConcurrencyLimit, None))
    }

    async fn place(self: &Arc<Self>, entrant: Entrant<'_>, pool: Pool) -> Result<Place, Status> {
        let mut visit = self.visit(entrant.class, entrant.user);
        if visit.take(pool) {
            return Ok(Place(visit));
        }
        let begun = Instant::now();
        let came = std::future::poll_fn(|cx| visit.poll_place(pool, cx));
        let reason = match tokio::time::timeout(LINE_WAIT, came).await {
            Ok(Ok(())) => {
                self.figures.waited(entrant.class, begun.elapsed(), true);
                return Ok(Place(visit));
            }
            Ok(Err(LineFull)) => Reason::LineFull,
            Err(_) => Reason::TimeOut,
        };
        Err(self.refusal(entrant.class, reason, Some(begun)))
    }

    fn visit(self: &Arc<Self>, class: Class, user: &str) -> Visit {
        let (id, pace) = self.shares().enter(class, user, || Arc::new(Pace::new(class.weight())));
        Visit::new(self, id, pace)
    }

    /// The answer to a request that is not let in. `waiting_since` is when it took its place in line, if it did.
    fn refusal(&self, class: Class, reason: Reason, waiting_since: Option<Instant>) -> Status {
        self.figures.rejected(class, reason);
        if let Some(begun) = waiting_since {
            self.figures.waited(class, begun.elapsed(), false);
        }
        Status::too_many_requests("Too many requests, please try again later.", RETRY_AFTER_S)
    }

    /// Forgets flows that have asked for nothing lately. To be called now and then.
    pub(super) fn upkeep(&self) {
        self.shares().prune(|pace| pace.in_line() == 0);
    }
}

/// There is no place in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LineFull;

/// A place to work on a write.
#[derive(Debug)]
pub(super) enum WritePlace {
    Shared(#[expect(dead_code, reason = "held, and given back when dropped")] Place),
    Exempt(#[expect(dead_code, reason = "held, and given back when dropped")] OwnedSemaphorePermit),
}

/// A place of a pool, given back when dropped.
#[derive(Debug)]
pub(super) struct Place(#[expect(dead_code, reason = "held, and given back when dropped")] Visit);

/// A request's stay in its flow: the place it holds or waits for, and its place in the line for the threads' time. Ends with
/// the value, whatever became of the request.
#[derive(Debug)]
struct Visit {
    fairness: Arc<Fairness>,
    id: FlowId,
    pace: Arc<Pace>,
    place: Option<(Pool, Taken)>,
    turn: Option<TurnTicket>,
}

/// Whether a place is taken or waited for.
#[derive(Debug, Clone, Copy)]
enum Taken {
    Yes,
    Waits(Ticket),
}

impl Visit {
    fn new(fairness: &Arc<Fairness>, id: FlowId, pace: Arc<Pace>) -> Self {
        Self {
            fairness: fairness.clone(),
            id,
            pace,
            place: None,
            turn: None,
        }
    }

    /// Takes a place if one may be had at once.
    fn take(&mut self, pool: Pool) -> bool {
        let is_taken = self.fairness.shares().take(pool, self.id);
        if is_taken {
            self.place = Some((pool, Taken::Yes));
        }
        is_taken
    }

    /// Takes a place, or waits for one.
    fn poll_place(&mut self, pool: Pool, cx: &mut Context<'_>) -> Poll<Result<(), LineFull>> {
        let mut shares = self.fairness.shares();
        match self.place {
            Some((_, Taken::Yes)) => Poll::Ready(Ok(())),
            Some((_, Taken::Waits(ticket))) => {
                if let Some(waker) = shares.waiting(pool, self.id, ticket) {
                    waker.clone_from(cx.waker());
                    return Poll::Pending;
                }
                self.place = Some((pool, Taken::Yes));
                Poll::Ready(Ok(()))
            }
            None => match shares.ask(pool, self.id, cx.waker().clone()) {
                shares::Asked::Taken => {
                    self.place = Some((pool, Taken::Yes));
                    Poll::Ready(Ok(()))
                }
                shares::Asked::Waits(ticket) => {
                    self.place = Some((pool, Taken::Waits(ticket)));
                    Poll::Pending
                }
                shares::Asked::Refused => Poll::Ready(Err(LineFull)),
            },
        }
    }

    /// Gives the place back for one in another pool. Whether there was one.
    fn change_place(&mut self, pool: Pool) -> bool {
        self.give_back();
        self.take(pool)
    }

    fn give_back(&mut self) {
        if let Some(place) = self.place.take() {
            let told = give(&mut self.fairness.shares(), self.id, place);
            told.into_iter().for_each(Waker::wake);
        }
    }

    /// Whether lines are so long that this flow may not stand in them with one more new request.
    fn lines_are_full(&self) -> bool {
        self.pace.in_line() as usize >= LINES.flow_max || self.fairness.turns.in_lines() >= LINES.total_max
    }

    /// Ready when the flow may be worked for.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let turns = &self.fairness.turns;
        match self.turn {
            None if !turns.must_wait(&self.pace) => Poll::Ready(()),
            None => {
                let (ticket, is_first) = turns.wait(self.id, &self.pace, cx.waker());
                self.turn = Some(ticket);
                if is_first {
                    tokio::spawn(turns.clone().go_round());
                }
                Poll::Pending
            }
            Some(ticket) if turns.has_come(ticket, cx.waker()) => {
                self.turn = None;
                Poll::Ready(())
            }
            Some(_) => Poll::Pending,
        }
    }

    /// Notes what was done for the flow: for so long, and so many bytes that are still to be sent.
    fn charge(&self, spent: Duration, bytes: u64) {
        let sending = Duration::from_nanos(bytes / BYTES_PER_NS);
        self.fairness.turns.charge(&self.pace, spent + sending);
    }
}

/// How fast bytes are sent, about, once they are there: copied into the socket, and encrypted for most.
const BYTES_PER_NS: u64 = 2;

fn give(shares: &mut Shares<Arc<Pace>, Waker>, id: FlowId, place: (Pool, Taken)) -> Vec<Waker> {
    match place {
        (pool, Taken::Yes) => shares.give(pool, id),
        (pool, Taken::Waits(ticket)) => shares.cancel(pool, id, ticket),
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Some(ticket) = self.turn.take() {
            self.fairness.turns.leave(ticket);
        }
        let mut shares = self.fairness.shares();
        let told = self.place.take().map(|place| give(&mut shares, self.id, place));
        shares.leave(self.id);
        drop(shares);
        told.into_iter().flatten().for_each(Waker::wake);
    }
}

/// How long a request has been in line, and until when it stays there.
#[derive(Debug)]
struct Patience {
    begun: Instant,
    end: Pin<Box<Sleep>>,
}

impl Patience {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            end: Box::pin(sleep(LINE_WAIT)),
        }
    }
}
