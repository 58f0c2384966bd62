//! Requests and the bodies of their answers, as far as they are worked on only when it is their flow's turn.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::class::Class;
use super::shares::Pool;
use super::{Entrant, Fairness, Kind, LineFull, Patience, Reason, Visit};
use crate::api::body::{Body, BodyError, Response};
use crate::api::status::Status;

pin_project! {
    /// A request that is let in when a place and the threads' time are there for its flow. `work` is not polled before, and
    /// is dropped before its place is given back.
    pub(in crate::api) struct Gated<'a, F> {
        #[pin]
        work: F,
        fairness: &'a Arc<Fairness>,
        entrant: Entrant<'a>,
        phase: Phase,
        visit: Option<Visit>,
        // Since it waits to be let in.
        patience: Option<Patience>,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing was asked for yet.
    New,
    /// There is no place yet.
    Waiting,
    /// It has a place, and was not polled yet.
    Placed,
    /// It was polled.
    Begun,
    /// It passes by.
    Exempt,
}

impl<'a, F: Future<Output = Result<Response, Status>>> Gated<'a, F> {
    pub(in crate::api) fn new(fairness: &'a Arc<Fairness>, entrant: Entrant<'a>, work: F) -> Self {
        Self {
            work,
            fairness,
            entrant,
            phase: Phase::New,
            visit: None,
            patience: None,
        }
    }
}

impl<F: Future<Output = Result<Response, Status>>> Future for Gated<'_, F> {
    type Output = Result<Response, Status>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let class = this.entrant.class;
        if *this.phase == Phase::New {
            if class == Class::Exempt {
                this.fairness.figures.dispatched(class);
                *this.phase = Phase::Exempt;
            } else {
                let mut visit = this.fairness.visit(class, this.entrant.user);
                let has_place = this.entrant.kind == Kind::Write || visit.take(Pool::Reads);
                *this.phase = if has_place { Phase::Placed } else { Phase::Waiting };
                *this.visit = Some(visit);
            }
        }
        let Some(visit) = this.visit else {
            return this.work.poll(cx);
        };
        if *this.phase == Phase::Begun {
            ready!(visit.poll_turn(cx));
        } else {
            match entered(visit, this.phase, cx) {
                Poll::Ready(Ok(())) => {
                    this.fairness.figures.dispatched(class);
                    if let Some(patience) = this.patience.take() {
                        this.fairness.figures.waited(class, patience.begun.elapsed(), true);
                    }
                    *this.phase = Phase::Begun;
                }
                Poll::Ready(Err(LineFull)) => {
                    *this.visit = None;
                    return Poll::Ready(Err(this.fairness.refusal(class, Reason::LineFull, None)));
                }
                Poll::Pending => {
                    let patience = this.patience.get_or_insert_with(Patience::new);
                    ready!(patience.end.as_mut().poll(cx));
                    let begun = patience.begun;
                    *this.visit = None;
                    return Poll::Ready(Err(this.fairness.refusal(class, Reason::TimeOut, Some(begun))));
                }
            }
        }
        let begun = Instant::now();
        let polled = this.work.poll(cx);
        let Poll::Ready(answer) = polled else {
            visit.charge(begun.elapsed(), 0);
            return Poll::Pending;
        };
        let bytes = answer
            .as_ref()
            .map_or(0, |answer| answer.body().size_hint().exact().unwrap_or(0));
        visit.charge(begun.elapsed(), bytes);
        let Some(mut visit) = this.visit.take() else {
            return Poll::Ready(answer);
        };
        let is_watch = this.entrant.kind == Kind::Watch;
        Poll::Ready(match answer {
            Ok(answer) if answer.body().is_made_while_sent() => {
                let pool = if is_watch { Pool::Watches } else { Pool::Answers };
                if visit.change_place(pool) {
                    Ok(answer.map(|body| {
                        Body::stream(Paced {
                            body,
                            visit,
                            is_watch,
                            is_over: false,
                        })
                    }))
                } else {
                    drop(visit);
                    Err(this.fairness.refusal(class, Reason::ConcurrencyLimit, None))
                }
            }
            answer => answer,
        })
    }
}

pin_project! {
    /// A part of a request's work that runs beside it, in a task of its own: polled when it is the flow's turn. It holds no
    /// place; the request does.
    pub(in crate::api) struct InTurn<F> {
        #[pin]
        work: F,
        // `None` for those who pass by.
        visit: Option<Visit>,
    }
}

impl<F: Future> InTurn<F> {
    pub(in crate::api) fn new(fairness: &Arc<Fairness>, entrant: Entrant<'_>, work: F) -> Self {
        let is_exempt = entrant.class == Class::Exempt;
        let visit = (!is_exempt).then(|| fairness.visit(entrant.class, entrant.user));
        Self { work, visit }
    }
}

impl<F: Future> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let Some(visit) = this.visit else {
            return this.work.poll(cx);
        };
        ready!(visit.poll_turn(cx));
        let begun = Instant::now();
        let polled = this.work.poll(cx);
        visit.charge(begun.elapsed(), 0);
        polled
    }
}

/// Ready when the request may be polled for the first time.
fn entered(visit: &mut Visit, phase: &mut Phase, cx: &mut Context<'_>) -> Poll<Result<(), LineFull>> {
    if *phase == Phase::Waiting {
        ready!(visit.poll_place(Pool::Reads, cx))?;
        *phase = Phase::Placed;
    }
    if visit.turn.is_none() && visit.fairness.turns.must_wait(&visit.pace) && visit.lines_are_full() {
        return Poll::Ready(Err(LineFull));
    }
    visit.poll_turn(cx).map(Ok)
}

/// The body of an answer that is made while it is sent: each frame when it is the flow's turn.
struct Paced {
    body: Body,
    visit: Visit,
    is_watch: bool,
    /// A watch has told what there was when it began. Events that come later are not held up: a watch that lags does not
    /// cost less, and what wakes it are writes, which have waited for their turn.
    is_over: bool,
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if this.is_over {
            return Pin::new(&mut this.body).poll_frame(cx);
        }
        ready!(this.visit.poll_turn(cx));
        let begun = Instant::now();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        let bytes = match &polled {
            Poll::Ready(Some(Ok(frame))) => frame.data_ref().map_or(0, Bytes::len),
            Poll::Ready(_) => 0,
            Poll::Pending => {
                this.is_over = this.is_watch;
                0
            }
        };
        this.visit.charge(begun.elapsed(), bytes as u64);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use http_body_util::BodyExt as _;
    use metrics_exporter_prometheus::PrometheusBuilder;
    use tokio::sync::oneshot;
    use tokio::time;

    use super::super::{LINE_WAIT, LINES};
    use super::*;
    use crate::api::server::Limits;
    use crate::auth::User;

    fn fairness(places: usize) -> Arc<Fairness> {
        let limits = Limits {
            requests_inflight: places,
            mutating_inflight: places,
            answers: places,
            watches: places,
            ..Limits::default()
        };
        let recorder = PrometheusBuilder::new().build_recorder();
        Arc::new(Fairness::new(&limits, Arc::new(recorder)))
    }

    fn user(name: &str) -> User {
        User::authenticated(name, "", Vec::new())
    }

    fn taken(fairness: &Arc<Fairness>, pool: Pool) -> (usize, usize) {
        let (_, taken, waiting) = fairness.shares().figures(pool);
        (taken, waiting)
    }

    /// A request that is answered when it is told to.
    async fn told(answer: oneshot::Receiver<()>) -> Result<Response, Status> {
        let _ = answer.await;
        Ok(http::Response::new(Body::empty()))
    }

    /// A request that is over as soon as it is let in.
    fn short() -> impl Future<Output = Result<Response, Status>> {
        std::future::ready(Ok(http::Response::new(Body::empty())))
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_beyond_its_share_waits_for_its_users_own_and_holds_up_nobody_else() {
        let fairness = fairness(2);
        let (alice, bob) = (user("alice"), user("bob"));
        let (tell, is_told) = oneshot::channel();
        let mut first = Box::pin(Gated::new(&fairness, Entrant::other(&alice), told(is_told)));
        assert!((&mut first).now_or_never().is_none());
        let mut second = Box::pin(Gated::new(&fairness, Entrant::other(&alice), short()));
        assert!((&mut second).now_or_never().is_none());
        assert_eq!(taken(&fairness, Pool::Reads), (1, 1));
        let other = Gated::new(&fairness, Entrant::other(&bob), short());
        assert!(other.now_or_never().expect("bob waits for alice").is_ok());
        tell.send(()).unwrap();
        assert!(first.await.is_ok());
        assert!(second.now_or_never().expect("nobody is before it").is_ok());
        assert_eq!(taken(&fairness, Pool::Reads), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_told_to_try_again() {
        let fairness = fairness(2);
        let alice = user("alice");
        let (_tell, is_told) = oneshot::channel();
        let mut first = Box::pin(Gated::new(&fairness, Entrant::other(&alice), told(is_told)));
        assert!((&mut first).now_or_never().is_none());
        let begun = time::Instant::now();
        let refused = Gated::new(&fairness, Entrant::other(&alice), short())
            .await
            .unwrap_err();
        assert_eq!(begun.elapsed().as_secs(), LINE_WAIT.as_secs());
        assert_eq!((refused.code, refused.reason), (429, "TooManyRequests"));
        assert_eq!(refused.into_response().headers()["retry-after"], "1");
        assert_eq!(taken(&fairness, Pool::Reads), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_is_bounded_and_those_who_hang_up_leave_it() {
        let fairness = fairness(2);
        let alice = user("alice");
        let (_tell, is_told) = oneshot::channel();
        let mut first = Box::pin(Gated::new(&fairness, Entrant::other(&alice), told(is_told)));
        assert!((&mut first).now_or_never().is_none());
        let mut waiting: Vec<_> = (0..LINES.flow_max)
            .map(|_| Box::pin(Gated::new(&fairness, Entrant::other(&alice), short())))
            .collect();
        assert!(waiting.iter_mut().all(|request| request.now_or_never().is_none()));
        let refused = Gated::new(&fairness, Entrant::other(&alice), short()).now_or_never();
        assert_eq!(refused.expect("it waits").unwrap_err().code, 429);
        drop(waiting);
        assert_eq!(taken(&fairness, Pool::Reads), (1, 0));
        // Also of who was let in and never polled again.
        let mut second = Box::pin(Gated::new(&fairness, Entrant::other(&alice), short()));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        assert_eq!(taken(&fairness, Pool::Reads), (1, 0));
        drop(second);
        assert_eq!(taken(&fairness, Pool::Reads), (0, 0));
        fairness.upkeep();
        assert_eq!(fairness.shares().flows().count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn masters_never_wait() {
        let fairness = fairness(1);
        let admin = User::authenticated("admin", "", vec!["system:masters".into()]);
        let mut all: Vec<_> = (0..2000)
            .map(|_| Box::pin(Gated::new(&fairness, Entrant::other(&admin), std::future::pending())))
            .collect();
        assert!(all.iter_mut().all(|request| request.now_or_never().is_none()));
        assert_eq!(taken(&fairness, Pool::Reads), (0, 0));
        let last = Gated::new(&fairness, Entrant::other(&admin), short());
        assert!(last.now_or_never().expect("it waits").is_ok());
    }

    /// Frames that cost so much each, and then none for ever.
    struct Costly(usize, Duration);

    impl HttpBody for Costly {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            let begun = Instant::now();
            while begun.elapsed() < self.1 {}
            let Some(left) = self.0.checked_sub(1) else {
                return Poll::Pending;
            };
            self.0 = left;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    fn streaming(body: Costly) -> impl Future<Output = Result<Response, Status>> {
        std::future::ready(Ok(http::Response::new(Body::stream(body))))
    }

    #[tokio::test]
    async fn an_answer_that_is_made_while_it_is_read_is_made_in_turns_and_holds_no_place_among_the_reads() {
        let fairness = fairness(4);
        let alice = user("alice");
        let body = Costly(8, Duration::from_millis(3));
        let answer = Gated::new(&fairness, Entrant::other(&alice), streaming(body))
            .await
            .unwrap();
        assert_eq!(
            (taken(&fairness, Pool::Reads), taken(&fairness, Pool::Answers)),
            ((0, 0), (1, 0))
        );
        let mut body = answer.into_body();
        let mut at_once = 0;
        for _ in 0..8 {
            let mut frame = Box::pin(body.frame());
            match (&mut frame).now_or_never() {
                Some(_) => at_once += 1,
                None => assert!(frame.await.unwrap().is_ok()),
            }
        }
        assert!(at_once <= 1, "{at_once} frames did not wait for their turn");
        drop(body);
        assert_eq!(taken(&fairness, Pool::Answers), (0, 0));
        assert_eq!(fairness.turns.in_lines(), 0);
    }

    #[tokio::test]
    async fn what_runs_beside_a_request_is_polled_in_turns() {
        let fairness = fairness(4);
        let alice = user("alice");
        let part = || {
            InTurn::new(&fairness, Entrant::other(&alice), async {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(3) {}
            })
        };
        let mut parts: Vec<_> = (0..3).map(|_| Box::pin(part())).collect();
        let done = parts.iter_mut().filter_map(FutureExt::now_or_never).count();
        assert_eq!((done, fairness.turns.in_lines()), (1, 2));
        for part in parts.drain(1..) {
            part.await;
        }
        assert_eq!(fairness.turns.in_lines(), 0);
    }

    #[tokio::test]
    async fn open_answers_of_a_user_are_bounded() {
        let fairness = fairness(4);
        let (alice, bob) = (user("alice"), user("bob"));
        let mut open = Vec::new();
        for _ in 0..2 {
            let answer = Gated::new(&fairness, Entrant::other(&alice), streaming(Costly(1, Duration::ZERO))).await;
            open.push(answer.unwrap());
        }
        let answer = Gated::new(&fairness, Entrant::other(&alice), streaming(Costly(1, Duration::ZERO))).await;
        assert_eq!(answer.unwrap_err().code, 429);
        let answer = Gated::new(&fairness, Entrant::other(&bob), streaming(Costly(1, Duration::ZERO))).await;
        assert!(answer.is_ok());
    }
}
