//! What one service can do, learned from what it does.
//!
//! The unit of load is the service's whole capacity: what finishes `1 / cost` requests a second is full. The cost is the utilisation over
//! the requests served; while everything is busy, what is served *is* the capacity. Where nobody counts what is served, the admitted
//! requests that should have come by now stand for it; and where nobody knows a utilisation, or it says no more than "all", the queue tells:
//! a wait that grows by half a second in a second means a load of 1.5. What comes in of each request that was admitted, retries and
//! branches included, is learned beside it.

use plimsoll_core::Nanos;

use crate::observation::ServiceSignal;
use crate::topology::ApiId;

use super::costs::{Costs, Sample};

/// A service that is busier than this may as well be full: more would not show.
pub(super) const FULL: f64 = 0.98;
/// A service that stays full without a reason is taken to do less, by this factor a step.
const MORE: f64 = 1.15;
/// How many calls come of each request is followed within about this time.
const CALLS_S: f64 = 3.0;
/// What is seen of a service in one step.
pub(super) struct Seen<'a> {
    pub now: Nanos,
    pub signal: ServiceSignal,
    /// Calls a second that should have come of each caller, by what was admitted, and
    pub flows: &'a [f64],
    /// who the callers are.
    pub users: &'a [(ApiId, f64)],
    /// in all.
    pub expected_per_s: f64,
    /// Whether what was admitted also came: nothing else on the way held much of it up.
    pub settled: bool,
    /// How long requests wait here, by what is known of the latencies of its callers.
    pub inferred_wait_s: Option<f64>,
    /// How long they may.
    pub patience_s: f64,
    /// Whether an API that calls it comes close to missing its SLO.
    pub late: bool,
}

/// How full services are to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Goal {
    /// The utilisation to fill one to where its queue is not known.
    pub utilization: f64,
    /// The wait to keep where it is, as a part of the patience.
    pub wait: f64,
    /// The time in which a queue that is too long is to be worked off.
    pub drain: Nanos,
}

/// What is known of a service.
#[derive(Clone, Debug)]
pub(super) struct Service {
    /// Load that calls served here are.
    costs: Costs,
    /// Calls that come for each that was expected.
    calls: f64,
    /// Whether that was ever seen.
    counted: bool,
    /// When something was last heard, and what the wait was.
    heard: Option<Nanos>,
    wait_s: Option<f64>,
    /// The part of the wait to keep that is kept: less where callers wait in many places.
    caution: f64,
    /// Steps running in which it was full, and in which it was though it should not have been.
    full: u32,
    stuck: u32,
    /// Calls a second that were expected in the step before.
    expected: f64,
    /// Load that it may take, in parts of its capacity.
    allowed: f64,
    /// Whether limits are in force for its sake: it is overloaded, or would be again.
    pub held: bool,
}

impl Default for Service {
    fn default() -> Service {
        Service {
            costs: Costs::default(),
            calls: 1.0,
            counted: false,
            heard: None,
            wait_s: None,
            caution: 1.0,
            full: 0,
            stuck: 0,
            expected: 0.0,
            allowed: 1.0,
            held: false,
        }
    }
}

impl Service {
    /// Load that a call a second of this API is that was expected; nothing before anything was learned.
    pub fn cost(&self, api: ApiId) -> Option<f64> {
        self.costs.of(api).map(|cost| cost * self.calls)
    }

    /// Whether anything was learned of what calls cost.
    pub fn is_learned(&self) -> bool {
        self.costs.is_known()
    }

    /// Load that it may take, in parts of its capacity.
    pub fn allowed(&self) -> f64 {
        self.allowed
    }

    /// Learns from a step in which something was heard.
    pub fn learn(&mut self, seen: &Seen<'_>, goal: &Goal) {
        let seconds = self.heard.map_or(0.0, |heard| seen.now.since(heard).as_secs_f64()).clamp(0.0, 5.0);
        self.heard = Some(seen.now);
        let wait_s = seen.signal.queue_delay.map(Nanos::as_secs_f64);
        let full = seen.signal.utilization.is_some_and(|utilization| utilization >= FULL);
        let growth = match (wait_s, self.wait_s) {
            (Some(wait), Some(before)) if seconds > 0.0 => Some((wait - before) / seconds),
            _ => None,
        };
        let waited = self.wait_s.is_some_and(|wait| wait > 0.0);
        self.wait_s = wait_s;
        self.costs.callers(seen.users);
        self.learn_costs(seen, seconds, full, waited, growth);
        self.full = if full { (self.full + 1).min(8) } else { 0 };
        self.expected = seen.expected_per_s;
        self.allowed = self.allow(seen, goal, seconds, full);
    }

    fn learn_costs(&mut self, seen: &Seen<'_>, seconds: f64, full: bool, waited: bool, growth: Option<f64>) {
        let waits = self.wait_s.is_some_and(|wait| wait > 0.5 * seen.patience_s);
        // Where the queue is not known, who was full may have had one.
        let was_full = self.wait_s.is_none() && self.full > 0;
        let long = self.wait_s.is_some_and(|wait| wait > 4.0 * seen.patience_s);
        let (expected, flows) = (seen.expected_per_s, || seen.flows.iter().copied());
        let mut take = |mean: f64, calls: f64, mixed: bool| {
            if calls >= 1.0 {
                self.costs.take(Sample { mean, calls, seconds, mixed, full }, flows());
            }
        };
        let seconds = seconds.max(0.1);
        if let Some(served) = seen.signal.served_per_s {
            // Behind a long queue, those served came long ago, in another mix.
            if let Some(utilization) = seen.signal.utilization.or(waits.then_some(1.0)) {
                take(utilization / served, served * seconds, seen.settled && !long && !was_full);
            }
            // While a queue grows or shrinks, what is served is not what comes.
            if seen.settled && !full && !was_full && !long && expected > 0.0 {
                let part = if self.counted { 1.0 - (-seconds / CALLS_S).exp() } else { 1.0 };
                self.counted = true;
                self.calls += ((served / expected).clamp(0.1, 10.0) - self.calls) * part;
            }
            return;
        }
        match (seen.signal.utilization, growth) {
            // Full: the queue tells how much comes. One that is empty tells nothing.
            (utilization, Some(growth)) if (full || utilization.is_none()) && self.wait_s > Some(0.0) => {
                take((1.0 + growth).max(0.05) / expected, expected * seconds, false);
            }
            // What is worked on is what comes, unless some of it came before.
            (Some(utilization), _) if !full && !waited && seen.settled => {
                take(utilization / expected, expected * seconds, false);
            }
            // All are busy and nobody knows the queue. More costs than was known, if no more comes than before: or there was a queue
            // already, and then that it costs less shows as soon as that is gone.
            (Some(utilization), _) if full && self.wait_s.is_none() => {
                let known = self.costs.mean(flows()).map_or(0.0, |mean| mean * self.calls * expected);
                if self.full > 0 && known < 1.1 {
                    self.costs.grow(MORE);
                } else if expected >= self.expected {
                    self.costs.at_least(utilization / expected, flows());
                }
            }
            (Some(_), _) => {}
            (None, _) => {}
        }
    }

    /// The load that leaves the right queue: a short one, so that no worker is ever idle, and what is too long is worked off.
    fn allow(&mut self, seen: &Seen<'_>, goal: &Goal, seconds: f64, full: bool) -> f64 {
        // What is decided now shows in the next step. Corrected any faster than that, it would swing.
        let drain_s = goal.drain.as_secs_f64().max(2.0 * seconds);
        let least = 0.05;
        if let Some(wait) = self.wait_s {
            let keep = goal.wait * seen.patience_s;
            if !seen.late {
                self.caution = (self.caution * 1.02).min(1.0);
            } else if wait < 2.0 * keep {
                self.caution = (self.caution * 0.9).max(0.2);
            }
            return (1.0 - (wait - keep * self.caution) / drain_s).clamp(least, 1.05);
        }
        // Everything is busy though no more comes than fits: there is a queue that nobody tells of.
        let mean = self.costs.mean(seen.flows.iter().copied());
        let fits = mean.is_some_and(|mean| mean * self.calls * seen.expected_per_s <= FULL);
        self.stuck = if full && fits { (self.stuck + 1).min(8) } else { 0 };
        let unseen = 0.8f64.powi(self.stuck.saturating_sub(1) as i32);
        let inferred = seen.inferred_wait_s.filter(|_| full).unwrap_or(0.0);
        let late = (inferred - 3.0 * seen.patience_s).max(0.0) / drain_s;
        (goal.utilization * unseen - late).clamp(least, 1.0)
    }
}
