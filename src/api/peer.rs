//! The other end of a connection: who it is, what it has open, and when it has overstayed.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;

use crate::auth::Presented;

/// The other end of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// What the client's certificate says of it, if one was shown.
    pub(super) certificate: Option<Presented>,
    /// Whether the connection is encrypted.
    pub(super) is_tls: bool,
    /// What of the server's the connection takes, given back when the last request that came over it is done.
    _place: Option<Place>,
    /// Set when the connection was upgraded: its [`Patient`](super::stream::Patient) socket looks at it.
    upgraded: Arc<AtomicBool>,
    /// Requests that were begun.
    requests: AtomicU64,
    /// Those of them whose answer is not handed over whole.
    open: AtomicUsize,
    /// Last frames of HTTP/2 answers that hyper still holds, by the turn in which they were handed over: odd and even.
    /// Nothing else watches over them, because a stream's task ends when it has handed over the last one.
    last_frames: [AtomicUsize; 2],
    turn: AtomicUsize,
}

impl Peer {
    pub(super) fn new(address: SocketAddr, certificate: Option<Presented>) -> Self {
        Self {
            address,
            certificate,
            is_tls: false,
            _place: None,
            upgraded: Arc::default(),
            requests: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            last_frames: Default::default(),
            turn: AtomicUsize::new(0),
        }
    }

    /// The same, with its place among the connections and the flag of its socket.
    pub(super) fn holding(self, place: Place, upgraded: Arc<AtomicBool>, is_tls: bool) -> Self {
        Self {
            _place: Some(place),
            upgraded,
            is_tls,
            ..self
        }
    }

    /// Notes that the connection no longer speaks HTTP.
    pub(super) fn upgraded(&self) {
        self.upgraded.store(true, Ordering::Relaxed);
    }

    /// Notes that a request begins. It is open while what is given back lives.
    pub(super) fn begin(self: &Arc<Self>) -> Open {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(Arc::clone(self))
    }

    fn is_idle(&self) -> bool {
        let waiting = |frames: &AtomicUsize| frames.load(Ordering::Relaxed) > 0;
        self.open.load(Ordering::Relaxed) == 0 && !self.last_frames.iter().any(waiting)
    }

    /// Begins the next turn. Returns whether a last frame is still there from the turn before the one that ends: it has
    /// waited for a whole turn at least.
    fn next_turn(&self) -> bool {
        let turn = self.turn.load(Ordering::Relaxed) + 1;
        if self.last_frames[turn % 2].load(Ordering::Relaxed) > 0 {
            return true;
        }
        self.turn.store(turn, Ordering::Relaxed);
        false
    }
}

/// A connection's place among all, among those of its address, and its part in what the server waits for when it ends.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) _permit: OwnedSemaphorePermit,
    pub(super) _counted: Counted,
    pub(super) _alive: mpsc::Sender<()>,
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Open(Arc<Peer>);

impl Open {
    /// Notes that the last frame of an HTTP/2 answer is handed over. hyper holds it while what is given back lives.
    pub(super) fn last_frame(&self) -> LastFrame {
        let peer = Arc::clone(&self.0);
        let slot = peer.turn.load(Ordering::Relaxed) % 2;
        peer.last_frames[slot].fetch_add(1, Ordering::Relaxed);
        LastFrame { peer, slot }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// See [`Open::last_frame`].
#[derive(Debug)]
pub(super) struct LastFrame {
    peer: Arc<Peer>,
    slot: usize,
}

impl Drop for LastFrame {
    fn drop(&mut self) {
        self.peer.last_frames[self.slot].fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is to be done with a connection that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    /// It has nothing open: it is told to go, and ended at the next look.
    Dismiss,
    /// It is ended at once, for the reason that is named.
    End(&'static str),
}

/// How long a connection may do nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stay {
    /// Until its first request.
    pub(super) first: Duration,
    /// Without a request that is open.
    pub(super) idle: Duration,
    /// For the last frame of an answer to be taken; a client may get up to twice that.
    pub(super) patience: Duration,
}

/// The clock of one connection: it looks now and then whether the client does anything.
#[derive(Debug)]
pub(super) struct Clock {
    begun: Instant,
    requests: u64,
    active: Instant,
    turned: Instant,
    dismissed: bool,
}

impl Clock {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            begun: now,
            requests: 0,
            active: now,
            turned: now,
            dismissed: false,
        }
    }

    pub(super) fn look(&mut self, peer: &Peer, stay: Stay, now: Instant) -> Verdict {
        let requests = peer.requests.load(Ordering::Relaxed);
        if requests == 0 && now.duration_since(self.begun) >= stay.first {
            return Verdict::End("silent");
        }
        if now.duration_since(self.turned) >= stay.patience {
            self.turned = now;
            if peer.next_turn() {
                return Verdict::End("slow");
            }
        }
        if requests != self.requests || !peer.is_idle() {
            self.requests = requests;
            self.active = now;
            return Verdict::Keep;
        }
        if self.dismissed {
            return Verdict::End("idle");
        }
        if requests > 0 && now.duration_since(self.active) >= stay.idle {
            self.dismissed = true;
            return Verdict::Dismiss;
        }
        Verdict::Keep
    }
}

/// How many connections each address has, so that one cannot take them all.
#[derive(Debug)]
pub(super) struct Addresses {
    max: usize,
    counts: std::sync::Mutex<std::collections::HashMap<IpAddr, usize>>,
}

/// One connection of an address, counted while it lives.
#[derive(Debug)]
pub(super) struct Counted {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Addresses {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            counts: std::sync::Mutex::default(),
        }
    }

    /// Counts one more, unless the address has as many as it may.
    pub(super) fn count(self: &Arc<Self>, address: IpAddr) -> Option<Counted> {
        let mut counts = self.counts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let count = counts.entry(address).or_insert(0);
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(Counted {
            addresses: Arc::clone(self),
            address,
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let counts = &self.addresses.counts;
        let mut counts = counts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAY: Stay = Stay {
        first: Duration::from_secs(30),
        idle: Duration::from_secs(90),
        patience: Duration::from_mins(1),
    };

    fn peer() -> Arc<Peer> {
        Arc::new(Peer::new("127.0.0.1:1".parse().unwrap(), None))
    }

    #[test]
    fn who_asks_nothing_is_ended_and_who_is_done_is_dismissed_first() {
        let peer = peer();
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut clock = Clock::new(begun);
        assert_eq!(clock.look(&peer, STAY, at(29)), Verdict::Keep);
        assert_eq!(Clock::new(begun).look(&peer, STAY, at(30)), Verdict::End("silent"));
        let open = peer.begin();
        assert_eq!(clock.look(&peer, STAY, at(31)), Verdict::Keep);
        // A watch may be silent for as long as it likes.
        assert_eq!(clock.look(&peer, STAY, at(500)), Verdict::Keep);
        drop(open);
        assert_eq!(clock.look(&peer, STAY, at(580)), Verdict::Keep);
        assert_eq!(clock.look(&peer, STAY, at(590)), Verdict::Dismiss);
        assert_eq!(clock.look(&peer, STAY, at(591)), Verdict::End("idle"));
    }

    #[test]
    fn a_last_frame_that_nobody_takes_ends_the_connection_after_a_whole_turn() {
        let peer = peer();
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut clock = Clock::new(begun);
        let (taken, left) = (peer.begin().last_frame(), peer.begin().last_frame());
        assert_eq!(clock.look(&peer, STAY, at(60)), Verdict::Keep);
        drop(taken);
        assert_eq!(clock.look(&peer, STAY, at(119)), Verdict::Keep);
        assert_eq!(clock.look(&peer, STAY, at(120)), Verdict::End("slow"));
        drop(left);
        assert_eq!(clock.look(&peer, STAY, at(180)), Verdict::Keep);
    }

    #[test]
    fn an_address_has_its_share_and_gives_it_back() {
        let addresses = Arc::new(Addresses::new(2));
        let (one, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let first = addresses.count(one);
        let _second = addresses.count(one);
        assert!(first.is_some() && addresses.count(one).is_none());
        assert!(addresses.count(other).is_some());
        drop(first);
        assert!(addresses.count(one).is_some());
        assert_eq!(addresses.counts.lock().unwrap().len(), 1, "who has none is forgotten");
    }
}
