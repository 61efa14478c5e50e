//! From arrival to slot: the gate decides, the queue waits.
//!
//! Everything that concerns the gate fails open. A policy that panics, or whose ticks are so late that it knows
//! nothing, lets requests in; then only `max_queue` holds them.
//!
//! In shadow mode requests go on at once whatever the gate says. So that what it says means something, each request
//! that it would have let in holds a slot, or a place in the queue for one, of its own account while it is
//! served. That account cannot know how fast the server would have been with less to do, so under a real
//! overload it errs towards refusing.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::LazyLock;

use http::HeaderMap;
use plimsoll_admission::{Ask, Outcome};
use plimsoll_core::config::{FairShare, Mode, Sentry};
use plimsoll_core::estimator::Wait;
use plimsoll_core::{ClassId, Grant, Limit, Mechanism, Nanos, Quantity, Refusal, Verdict};
use tokio::sync::oneshot;

use crate::clock;
use crate::decisions::{Decision, Stage};
use crate::headers::client_address;
use crate::police::{self, Policed};
use crate::thread::{Thread, View};
use crate::ticket::{End, Hold, Ticket};

/// What became of a request.
pub enum Admission {
    /// It may go to a server.
    In(Ticket),
    /// It may not.
    Refused(Refusal),
    /// Nobody waits for it any more.
    ClientGone,
}

/// A request that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When.
    pub at: Nanos,
    /// What it is.
    pub class: ClassId,
    /// When its client stops waiting.
    pub deadline: Option<Nanos>,
    /// A hash of what tells its client from others, where the class shares fairly.
    pub client: Option<u64>,
    /// Which requests it is like: see [`kind`](crate::nucleus::kind::kind).
    pub kind: u64,
}

/// What tells the client of a request from others. The hash is keyed, so that nobody can choose to collide.
pub fn client_key(by: &FairShare, config: &Sentry, peer: IpAddr, headers: &HeaderMap) -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    match by {
        FairShare::Address => KEY.hash_one(client_address(config, peer, headers)),
        FairShare::Header(name) => KEY.hash_one(headers.get(name).map(|value| value.as_bytes())),
    }
}

/// Calls the gate. Nothing where it panics, which the panic hook reports and the metrics count.
pub fn guarded<R>(view: &View, call: impl FnOnce() -> R) -> Option<R> {
    let result = catch_unwind(AssertUnwindSafe(call));
    if result.is_err() {
        view.thread_stats().policy_panics.bump();
    }
    result.ok()
}

/// Decides about a request and waits for its turn, unless its client is `gone` before that.
pub async fn admit(
    thread: &Thread,
    view: &Rc<View>,
    arrival: Arrival,
    gone: impl Future<Output = ()>,
) -> Admission {
    let Arrival { at: arrived, class, deadline, client: key, .. } = arrival;
    let (pool, stats) = (view.pool(class), view.stats(class));
    stats.offered.bump();
    if let Some(refusal) = view.beyond_rate(class, arrived) {
        return Admission::Refused(refusal);
    }
    if pool.mode() == Mode::Off {
        stats.unjudged.bump();
        return Admission::In(Ticket::new(Rc::clone(view), class, Hold::Nothing, arrived, arrived));
    }
    let mut gone = pin!(gone);
    let promised = match &pool.police {
        None => false,
        Some(police) => match police::ask(police, thread, view, &arrival, gone.as_mut()).await {
            Policed::Pass { promised } => promised,
            Policed::Refused(refusal) => return Admission::Refused(refusal),
            Policed::ClientGone => {
                stats.gone.bump();
                return Admission::ClientGone;
            }
        },
    };
    // It may have waited for its class to be processed.
    let now = clock::coarse().max(arrived);
    let ticket = |hold| Ticket::new(Rc::clone(view), class, hold, arrived, now);

    let ask = Ask { class: view.class(class).in_pool, deadline, client: key, promised };
    let mut expected = Nanos::ZERO;
    let offer = || {
        expected = pool.gate.expected_wait();
        thread.with_rng(|rng| pool.gate.offer(&ask, now, rng))
    };
    let verdict = if pool.judges(now) { guarded(view, offer) } else { None };
    let queued = match verdict {
        Some(verdict) => {
            view.log(class, now, Stage::Gate, verdict);
            match verdict {
                Verdict::Refuse(refusal) if pool.mode() == Mode::Enforce => {
                    return Admission::Refused(refusal);
                }
                Verdict::Refuse(_) => return Admission::In(ticket(Hold::Nothing)),
                Verdict::Admit(grant) => Queued::new(view, class, Some(grant), Some(expected), now),
            }
        }
        None => {
            if let Some(refusal) = view.queue_is_full(class) {
                return Admission::Refused(refusal);
            }
            let admit = || {
                let expected = pool.gate.expected_wait();
                pool.gate.admit_unjudged(ask.class);
                expected
            };
            let expected = if pool.judges(now) { None } else { guarded(view, admit) };
            Queued::new(view, class, None, expected, now)
        }
    };

    if pool.slots.try_take() {
        return match queued.start(arrived, now) {
            Ok(hold) => Admission::In(ticket(hold)),
            Err(refusal) => refused_at_start(pool.mode(), refusal, ticket),
        };
    }
    if pool.mode() == Mode::Shadow {
        let (end, ended) = oneshot::channel();
        tokio::task::spawn_local(shadow(queued, arrived, ended));
        return Admission::In(ticket(Hold::Shadow(end)));
    }
    wait(view, arrival, queued, gone).await
}

/// Lets a call in that nobody judges: it lasts for as long as it likes, and holds nothing.
pub fn pass_by(view: &Rc<View>, class: ClassId, now: Nanos) -> Admission {
    let stats = view.stats(class);
    stats.offered.bump();
    stats.unjudged.bump();
    Admission::In(Ticket::new(Rc::clone(view), class, Hold::Nothing, now, now))
}

/// When its deadline has passed.
pub async fn passed(deadline: Option<Nanos>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(clock::timer(deadline)).await,
        None => std::future::pending().await,
    }
}

fn refused_at_start(mode: Mode, refusal: Refusal, ticket: impl FnOnce(Hold) -> Ticket) -> Admission {
    match mode {
        Mode::Enforce => Admission::Refused(refusal),
        Mode::Shadow | Mode::Off => Admission::In(ticket(Hold::Nothing)),
    }
}

/// Waits for a slot, for as long as somebody waits for the response.
async fn wait(
    view: &Rc<View>,
    arrival: Arrival,
    queued: Queued,
    gone: impl Future<Output = ()>,
) -> Admission {
    let Arrival { at, class, deadline, .. } = arrival;
    let pool = view.pool(class);
    let late = passed(deadline);
    let expired = |mut queued: Queued, now: Nanos| {
        queued.refused = true;
        Admission::Refused(view.expired(&arrival, pool.mode() == Mode::Enforce, now))
    };
    tokio::select! {
        biased;
        () = pool.slots.take() => {}
        () = gone => return Admission::ClientGone,
        () = late => return expired(queued, clock::refresh()),
    }
    let now = clock::refresh();
    if deadline.is_some_and(|deadline| deadline <= now) {
        pool.slots.release();
        return expired(queued, now);
    }
    match queued.start(at, now) {
        Ok(hold) => Admission::In(Ticket::new(Rc::clone(view), class, hold, at, now)),
        Err(refusal) => Admission::Refused(refusal),
    }
}

/// What a request would go through if the mode were not shadow: waits for a slot and holds it until the request ends.
async fn shadow(queued: Queued, arrived: Nanos, mut ended: oneshot::Receiver<End>) {
    // A ticket always says how it ended.
    const UNKNOWN: End = End { served: Nanos::ZERO, outcome: Outcome::Unmeasured };
    let (view, class) = (Rc::clone(&queued.view), queued.class);
    tokio::select! {
        biased;
        // It was served before its turn came. What it took is worth knowing all the same.
        end = &mut ended => queued.measure(end.unwrap_or(UNKNOWN)),
        () = view.pool(class).slots.take() => {
            let now = clock::refresh();
            if let Ok(Hold::Slot { expected_wait, waited }) = queued.start(arrived, now) {
                let end = ended.await.unwrap_or(UNKNOWN);
                view.leave_slot(class, expected_wait, waited, end);
            }
        }
    }
}

/// A request that waits. Unless it is started, it is taken back when this is dropped.
struct Queued {
    view: Rc<View>,
    class: ClassId,
    /// Why the policy let it into the queue, if the policy was asked.
    grant: Option<Grant>,
    /// How long it was to wait as the gate sees it, where the gate knows about it.
    expected_wait: Option<Nanos>,
    /// When it entered the queue.
    since: Nanos,
    waits: bool,
    /// Its client was told that its turn will not come; else one that is taken back has no client any more.
    refused: bool,
}

impl Queued {
    fn new(
        view: &Rc<View>,
        class: ClassId,
        grant: Option<Grant>,
        expected_wait: Option<Nanos>,
        since: Nanos,
    ) -> Queued {
        Queued { view: Rc::clone(view), class, grant, expected_wait, since, waits: true, refused: false }
    }

    /// It is let in for good. Not before: who is in the queue may still be refused, or leave.
    fn count_admitted(&self) {
        let stats = self.view.stats(self.class);
        self.grant.map_or(&stats.unjudged, |grant| stats.granted(grant)).bump();
    }

    /// It has taken a slot, which it holds from now on, or gives back where the policy says no after all.
    fn start(mut self, arrived: Nanos, now: Nanos) -> Result<Hold, Refusal> {
        self.waits = false;
        let view = &self.view;
        let (pool, waited) = (view.pool(self.class), now.since(self.since));
        let in_pool = view.class(self.class).in_pool;
        if self.expected_wait.is_some() {
            match guarded(view, || pool.gate.start(in_pool, waited, now)) {
                Some(Verdict::Refuse(refusal)) => {
                    pool.slots.release();
                    view.log(self.class, now, Stage::Queue, Verdict::Refuse(refusal));
                    return Err(refusal);
                }
                Some(Verdict::Admit(_)) => {}
                None => self.expected_wait = None,
            }
        }
        self.count_admitted();
        self.view.stats(self.class).wait.record(now.since(arrived));
        Ok(Hold::Slot { expected_wait: self.expected_wait, waited })
    }

    /// It was served without ever having had a slot.
    fn measure(mut self, end: End) {
        self.waits = false;
        self.count_admitted();
        if self.expected_wait.is_none() {
            return;
        }
        let pool = self.view.pool(self.class);
        let in_pool = self.view.class(self.class).in_pool;
        guarded(&self.view, || {
            if pool.gate.start(in_pool, Nanos::ZERO, clock::coarse()).is_admit() {
                pool.gate.finish(in_pool, Wait::default(), end.served, end.outcome);
            }
        });
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        if !self.waits {
            return;
        }
        if !self.refused {
            self.view.stats(self.class).gone.bump();
        }
        if self.expected_wait.is_some() {
            let pool = self.view.pool(self.class);
            let in_pool = self.view.class(self.class).in_pool;
            guarded(&self.view, || pool.gate.abandon(in_pool));
        }
    }
}

impl View {
    /// Offers a verdict to the log, and counts a refusal. A request that may enter the queue is not counted as let in
    /// before it leaves it.
    fn log(&self, class: ClassId, at: Nanos, stage: Stage, verdict: Verdict) {
        self.log_as(class, at, stage, verdict, self.pool(class).mode() == Mode::Enforce);
    }

    /// The same, of a mechanism that is enforced, or is not.
    pub fn log_as(&self, class: ClassId, at: Nanos, stage: Stage, verdict: Verdict, enforced: bool) {
        let stats = self.stats(class);
        match verdict {
            Verdict::Admit(_) => {}
            Verdict::Refuse(refusal) if enforced => stats.refused(refusal.mechanism).bump(),
            Verdict::Refuse(refusal) => stats.would_refuse(refusal.mechanism).bump(),
        }
        let queued = self.pool(class).slots.waiting();
        self.routing.decisions.push(class, &Decision { at, stage, verdict, enforced, queued });
    }

    /// The deadline of a request has passed while it waited: says and counts why it is dropped.
    pub fn expired(&self, arrival: &Arrival, enforced: bool, now: Nanos) -> Refusal {
        let Arrival { at, class, deadline, .. } = *arrival;
        let allowed = deadline.map_or(Nanos::MAX, |deadline| deadline.since(at));
        let refusal = self.pool(class).gate.expired(now.since(at), allowed);
        self.log_as(class, now, Stage::Queue, Verdict::Refuse(refusal), enforced);
        refusal
    }

    /// The one limit that holds even where no policy does.
    fn queue_is_full(&self, class: ClassId) -> Option<Refusal> {
        let pool = self.pool(class);
        let (waiting, most) = (pool.slots.waiting(), pool.config.max_queue);
        if pool.mode() != Mode::Enforce || waiting < most {
            return None;
        }
        let refusal = Refusal {
            mechanism: Mechanism::MaxQueue,
            limit: Limit::QueueLength,
            estimate: Quantity::Count(u64::from(waiting) + 1),
            objective: Quantity::Count(u64::from(most)),
            retry_after: Nanos::from_secs(1),
        };
        self.log(class, clock::coarse(), Stage::Gate, Verdict::Refuse(refusal));
        Some(refusal)
    }
}

#[cfg(test)]
pub(crate) mod tests;
