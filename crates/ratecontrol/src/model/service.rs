//! What one service can do, learned from what it does.
//!
//! The unit of load is the service's whole capacity: what finishes `1 / cost` requests a second is full. The cost is the utilisation over
//! the requests served; while everything is busy, what is served *is* the capacity. Where nobody counts what is served, the admitted
//! requests that should have come by now stand for it; and where nobody knows a utilisation, or it says no more than "all", the queue tells:
//! a wait that grows by half a second in a second means a load of 1.5. What comes in of each request that was admitted, retries and
//! branches included, is learned beside it.

use plimsoll_core::Nanos;

use crate::observation::ServiceSignal;
use crate::topology::{ApiId, OwnTime};

use super::costs::{Costs, Sample};
use super::untold::{Came, Untold};

/// A service that is busier than this may as well be full: more would not show.
const FULL: f64 = 0.98;
/// A service that stays full without a reason is taken to do less, by this factor a step; one in front of which nobody waits, though by what is
/// known it should be full, to do as much more.
const MORE: f64 = 1.15;
/// Where nobody tells the queue, who is busier than this may have had one that grew: less was served than came. It had if that is not
/// nearly what was expected.
const QUIET: f64 = 0.9;
const NEARLY: f64 = 0.1;
/// Those who are answered in time are all who get through, if no more than this part is not.
const FEW: f64 = 0.05;
/// See [`Service::guess`].
const MOST_LATE: f64 = 0.5;
/// How many calls come of each request is followed within about this time.
const CALLS_S: f64 = 3.0;
/// Calls that are enough for a sample of what they cost,
const ENOUGH: f64 = 16.0;
/// and for how long at most they are waited for, in seconds.
const LONG_S: f64 = 2.0;

/// No more than this is let in to make a queue longer that is too short: whoever is wrong is so by a tenth at most.
const MOST: f64 = 1.1;
/// And no less than this: who is let in shows what can be done.
const LEAST: f64 = 0.05;
/// Over how many seconds it is seen what is lost,
pub(super) const LOST_S: f64 = 3.0;
/// how much more idleness than lateness is as good as the same,
const EVEN: f64 = 0.005;
/// by how much the wait is changed in a step,
const SLOWLY: f64 = 0.04;
/// and from how much to how much of the usual.
const SHORTEST: f64 = 0.2;
/// See [`SHORTEST`].
const LONGEST: f64 = 4.0;

/// What is seen of a service in one step.
pub(super) struct Seen<'a> {
    pub now: Nanos,
    pub signal: ServiceSignal,
    /// Whether anybody ever said how busy it is.
    pub says_busy: bool,
    /// Calls a second that should have come of each caller, by what was admitted, and
    pub flows: &'a [f64],
    /// who the callers are,
    pub users: &'a [(ApiId, f64)],
    /// and how long the service works for a call of each, as far as traces tell.
    pub own_times: &'a [OwnTime],
    /// in all.
    pub expected_per_s: f64,
    /// The times of which it may be how busy it is said to be, the latest first, and the flows in each.
    pub times: &'a [(Nanos, Nanos)],
    /// See there.
    pub past: &'a [f64],
    /// Whether what was admitted also came: nothing else on the way held much of it up.
    pub settled: bool,
    /// How long requests wait here, by what is known of the latencies of its callers.
    pub inferred_wait_s: Option<f64>,
    /// Calls a second that came of those requests that were answered in time since something was heard last; zero where that is not known.
    pub answered_per_s: f64,
    /// How long they may.
    pub patience_s: f64,
    /// The part of what was let in of its callers that was not answered in time.
    pub late: f64,
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

/// What was seen of a service in a few steps.
#[derive(Clone, Debug, Default)]
struct Tally {
    /// Calls that were served, over how long, and the parts of that in which its capacity was busy.
    calls: f64,
    seconds: f64,
    busy_s: f64,
    /// As of [`Sample`].
    mixed: bool,
    full: bool,
    /// Calls of each caller that should have come.
    flows: Vec<f64>,
}

impl Tally {
    /// Adds a step: the part of the capacity that was busy, calls a second, and so on.
    fn add(&mut self, busy: f64, served_per_s: f64, seconds: f64, mixed: bool, flows: &[f64]) {
        if self.seconds <= 0.0 {
            (self.calls, self.busy_s, self.mixed, self.full) = (0.0, 0.0, true, true);
            self.flows.clear();
            self.flows.resize(flows.len(), 0.0);
        }
        self.calls += served_per_s * seconds;
        self.seconds += seconds;
        self.busy_s += busy * seconds;
        self.mixed &= mixed;
        self.full &= busy >= FULL;
        self.flows.iter_mut().zip(flows).for_each(|(sum, flow)| *sum += flow * seconds);
    }

    /// A sample, if there is enough for one; then it begins anew with the next step.
    fn sample(&mut self, enough: f64) -> Option<Sample> {
        let Tally { calls, seconds, busy_s, mixed, full, .. } = *self;
        if calls < enough && seconds < LONG_S {
            return None;
        }
        self.seconds = 0.0;
        (calls >= 1.0).then(|| Sample { mean: busy_s / calls, calls, seconds, mixed, full })
    }
}

/// What is known of a service.
#[derive(Clone, Debug)]
pub(super) struct Service {
    /// Load that calls served here are.
    costs: Costs,
    /// Calls that came, and that were expected by what was admitted; what was long ago hardly counts any more.
    came: f64,
    due: f64,
    /// What was seen since the costs last learned: calls of few steps may be too few to tell anything.
    tally: Tally,
    /// When something was last heard, what the wait was, and how many calls waited.
    heard: Option<Nanos>,
    wait_s: Option<f64>,
    waiting: Option<f64>,
    /// Its queue where nobody tells it.
    untold: Untold,
    /// How many times the wait to keep is kept, and the part of the workers that had nothing to do of late.
    caution: f64,
    idle: f64,
    /// Steps running in which it was full, and in which it was though it should not have been.
    full: u32,
    stuck: u32,
    /// Steps running in which nobody waited though it should have been full, and nobody said how busy it was.
    spare: u32,
    /// Calls a second that were expected in the step before.
    expected: f64,
    /// Load that it may take, in parts of its capacity.
    allowed: f64,
    /// Whether limits are in force for its sake: it is overloaded, or would be again.
    pub held: bool,
    /// It is full, and who calls it is kept out: the priority of the most important of them.
    pub owed_to: Option<u32>,
}

impl Default for Service {
    fn default() -> Service {
        Service {
            costs: Costs::default(),
            came: 1.0,
            due: 1.0,
            tally: Tally::default(),
            heard: None,
            wait_s: None,
            waiting: None,
            untold: Untold::default(),
            caution: 1.0,
            idle: 0.0,
            full: 0,
            stuck: 0,
            spare: 0,
            expected: 0.0,
            allowed: 1.0,
            held: false,
            owed_to: None,
        }
    }
}

impl Service {
    /// Load that a call a second of this API is that was expected; nothing before anything was learned.
    pub fn cost(&self, api: ApiId) -> Option<f64> {
        self.costs.of(api).map(|cost| cost * self.calls())
    }

    /// How far off the load may be, as a part of it, where callers call so often.
    pub fn unsure(&mut self, flows: &[f64]) -> f64 {
        self.costs.unsure(flows.iter().copied())
    }

    /// How many times what is known the load may be, by what was seen but once.
    pub fn suspected(&self) -> f64 {
        self.costs.suspected()
    }

    /// Calls that come for each that is expected.
    fn calls(&self) -> f64 {
        (self.came / self.due).clamp(0.1, 10.0)
    }

    /// Whether anything was learned of what calls cost.
    pub fn is_learned(&self) -> bool {
        self.costs.is_known()
    }

    /// Load that it may take, in parts of its capacity.
    pub fn allowed(&self) -> f64 {
        self.allowed
    }

    /// How long ago something was heard, if it ever was.
    pub fn heard_for(&self, now: Nanos) -> Option<Nanos> {
        self.heard.map(|heard| now.since(heard))
    }

    /// Whether it holds up so much of what comes that what goes on from here is another thing, by what is told of it now.
    pub fn holds_up(&self, signal: &ServiceSignal, patience_s: f64) -> bool {
        match (signal.queue_delay, signal.utilization) {
            (Some(wait), Some(_)) => wait.as_secs_f64() > 2.0 * patience_s,
            // While a queue is worked off more goes on than comes.
            (Some(wait), None) => wait.as_secs_f64().max(self.wait_s.unwrap_or(0.0)) > patience_s,
            (None, utilization) => utilization.is_some_and(|utilization| utilization >= FULL),
        }
    }

    /// Takes in what came in a step where nobody tells its queue.
    pub fn reckon(&mut self, now: Nanos, load: f64, seconds: f64) {
        self.untold.go_on(now, load, seconds);
        if self.heard.is_some() && self.wait_s.is_none() {
            self.allowed = self.untold.allowed().clamp(LEAST, 1.0);
        }
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
        let waits = wait_s.is_some_and(|wait| self.is_full(wait, seen.patience_s));
        self.wait_s = wait_s;
        if self.costs.callers(seen.users) {
            self.tally = Tally::default();
        }
        self.costs.tell(seen.own_times, seen.flows.iter().copied());
        let settled = seen.settled && wait_s.is_none_or(|wait| wait <= 4.0 * seen.patience_s);
        let busy = seen.signal.utilization.or(waits.then_some(1.0));
        match seen.signal.served_per_s {
            Some(served) => self.count(seen, served, busy, seconds, settled),
            None => self.guess(seen, seconds, full, waited, growth),
        }
        if !seen.says_busy {
            self.outgrow(seen);
        }
        if wait_s.is_none() && !full {
            let load = self.load(&seen.past[..seen.flows.len()]);
            self.untold.begin(seen.now, load, seconds);
        }
        self.full = if full { (self.full + 1).min(8) } else { 0 };
        self.expected = seen.expected_per_s;
        self.allowed = self.allow(seen, goal, seconds, full);
    }

    /// Whether it was full all the time, by how long requests wait now and did before. While a queue grew out of nothing it was for a part of the
    /// time, which is better than nothing known.
    fn is_full(&self, wait_s: f64, patience_s: f64) -> bool {
        if self.costs.is_known() {
            wait_s.min(self.wait_s.unwrap_or(0.0)) > 0.1 * patience_s
        } else {
            wait_s > 0.5 * patience_s
        }
    }

    /// Learns where it is told what was served. Behind a long queue, those served came long ago, in another mix; so it may have been where
    /// the queue is not known and all were busy before.
    fn count(&mut self, seen: &Seen<'_>, served_per_s: f64, busy: Option<f64>, seconds: f64, settled: bool) {
        let seconds = seconds.max(0.1);
        let full = busy.is_some_and(|busy| busy >= FULL);
        let was_full = self.wait_s.is_none() && self.full > 0;
        if let Some(busy) = busy {
            self.tally.add(busy, served_per_s, seconds, settled && !was_full, seen.flows);
            // A first guess is better than none.
            let enough = if self.costs.is_known() { ENOUGH } else { 1.0 };
            if let Some(sample) = self.tally.sample(enough) {
                self.costs.take(sample, self.tally.flows.iter().copied());
            }
        }
        // What came is what was served and what the queue grew by. Where it is not known: what was served, unless there was one.
        let before = self.waiting;
        let mean = self.costs.mean(seen.flows.iter().copied());
        let per_busy = match busy {
            // Where nobody says how busy it is, what was served in a step is a worse guess than what was learned.
            Some(busy) if seen.says_busy || mean.is_none() => {
                Some(served_per_s / busy).filter(|_| busy > 0.0)
            }
            _ => mean.map(|mean| 1.0 / mean),
        };
        // What was served can be done, whatever one sample of a queue may have said.
        if !seen.says_busy && mean.is_some_and(|mean| served_per_s * mean * self.costs.suspected() > MOST) {
            self.costs.trust();
        }
        // Nobody is nobody, whatever the service can do.
        self.waiting = match self.wait_s {
            Some(wait) if wait > 0.0 => per_busy.map(|per_s| wait * per_s),
            nobody => nobody,
        };
        let quiet = busy.is_none_or(|busy| busy < QUIET);
        // What was let in only now has not come yet.
        let changed = (seen.expected_per_s - self.expected).abs();
        let steady = changed <= NEARLY * seen.expected_per_s.max(self.expected);
        let nearly = (served_per_s / (seen.expected_per_s * self.calls()) - 1.0).abs() < NEARLY;
        let grew = match (self.waiting, before) {
            (Some(waiting), Some(before)) => waiting - before,
            _ if self.wait_s.is_none() && !full && !was_full && ((steady && quiet) || nearly) => 0.0,
            _ => return,
        };
        // How many wait is told by how long they do, so nearly; beside a long queue, few who come are lost in that.
        let waiting = self.waiting.unwrap_or(0.0) + before.unwrap_or(0.0);
        let shows = seen.expected_per_s * seconds > NEARLY * waiting;
        if settled && shows {
            let keep = (-seconds / CALLS_S).exp();
            self.came = (self.came * keep + served_per_s * seconds + grew).max(0.0);
            self.due = self.due * keep + seen.expected_per_s * seconds;
        }
    }

    /// The load that so many calls of each caller are, by what is known; zero before anything is.
    fn load(&mut self, flows: &[f64]) -> f64 {
        let mean = self.costs.mean(flows.iter().copied()).unwrap_or(0.0);
        mean * self.calls() * flows.iter().sum::<f64>()
    }

    /// Of the times that may be told of, those in which it was the least busy and the most, by what came.
    fn least_and_most<'a>(&mut self, seen: &Seen<'a>) -> [(Came, &'a [f64]); 2] {
        let mut came =
            seen.times.iter().zip(seen.past.chunks_exact(seen.flows.len())).map(|(time, flows)| {
                let load = self.load(flows);
                // By what is known now: costs may have been learned since.
                let busy = self.untold.between(time.0, time.1).filter(|came| came.load > 0.0);
                let busy = busy.map_or(load, |came| came.busy * load / came.load);
                (Came { load, busy }, flows)
            });
        let first = came.next().unwrap_or((Came::default(), seen.flows));
        came.fold([first; 2], |[least, most], one| {
            let busy = |of: &(Came, _)| of.0.busy;
            let least = if busy(&one) < busy(&least) { one } else { least };
            [least, if busy(&one) > busy(&most) { one } else { most }]
        })
    }

    /// Learns where nobody counts what is served.
    fn guess(&mut self, seen: &Seen<'_>, seconds: f64, full: bool, waited: bool, growth: Option<f64>) {
        let seconds = seconds.max(0.1);
        let [(least, fewest), (most, all)] = self.least_and_most(seen);
        let is_new = !self.costs.is_known();
        let mut take = |load: f64, flows: &[f64]| {
            let expected: f64 = flows.iter().sum();
            let (mean, calls) = (load / expected, expected * seconds);
            if calls >= 1.0 {
                self.costs.take(Sample { mean, calls, seconds, mixed: false, full }, flows.iter().copied());
            }
        };
        match (seen.signal.utilization, growth) {
            // Full: the queue tells how much comes. One that is empty tells nothing.
            (utilization, Some(growth)) if (full || utilization.is_none()) && self.wait_s > Some(0.0) => {
                take((1.0 + growth).max(0.05), seen.flows);
            }
            // What is worked on is what comes, unless some of it came before. Where it is not known when that was, what fits any of the times
            // says nothing new; nor does it that all were busy for a part of one, of how much came then.
            (Some(utilization), _) if !full && !waited && seen.settled => {
                if is_new || most.busy <= 0.0 {
                    take(utilization, all);
                } else if utilization >= most.busy {
                    take(utilization * most.load / most.busy, all);
                } else if utilization <= least.busy && !least.is_capped() {
                    take(utilization * least.load / least.busy, fewest);
                }
            }
            // All are busy, nobody knows the queue, and by what is known there is none. Where latencies tell that nobody waits, it may be chance.
            // Where they do not tell, more costs than was known, if no more comes than before: or there was a queue already, and then that it
            // costs less shows as soon as that is gone.
            (Some(utilization), _)
                if full && self.wait_s.is_none() && !self.untold.explains(seen.now, seconds) =>
            {
                // Where hardly anybody is answered in time, nobody tells what gets through either.
                let tells = !is_new && seen.late <= MOST_LATE;
                match seen.inferred_wait_s {
                    Some(wait) if tells && (wait > seen.patience_s || utilization <= most.load) => {}
                    Some(_) if tells => take(utilization, all),
                    _ if self.full > 0 && most.load < 1.1 => self.costs.grow(MORE),
                    _ if seen.expected_per_s >= self.expected => {
                        self.costs.at_least(utilization / all.iter().sum::<f64>(), all.iter().copied());
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        if full && self.wait_s.is_none() && !is_new {
            self.get_through(seen, seconds);
        }
    }

    /// Learns from who got through it while it was full and was answered: it can do no less. And no more, where latencies tell that others wait and
    /// nothing else holds up who got through.
    fn get_through(&mut self, seen: &Seen<'_>, seconds: f64) {
        let (calls, mean) = (seen.answered_per_s * seconds, 1.0 / seen.answered_per_s);
        let waits = seen.inferred_wait_s.is_some_and(|wait| wait > seen.patience_s);
        let all = seen.settled && waits && seen.late <= FEW;
        let known = self.costs.mean(seen.flows.iter().copied());
        if calls >= 1.0 && (all || known.is_some_and(|known| mean < known)) {
            let sample = Sample { mean, calls, seconds, mixed: false, full: false };
            self.costs.take(sample, seen.flows.iter().copied());
        }
    }

    /// Learns that it can do more where only a queue tells: who has room has none, however much that is. In two steps running, as what comes of
    /// few calls in one may be anything.
    fn outgrow(&mut self, seen: &Seen<'_>) {
        let load = if self.wait_s == Some(0.0) { self.load(seen.flows) } else { 0.0 };
        if load * self.costs.suspected() >= FULL {
            self.costs.trust();
        }
        let has_room = load >= FULL;
        self.spare = if has_room { (self.spare + 1).min(2) } else { 0 };
        if self.spare >= 2 {
            self.costs.grow(1.0 / MORE);
        }
    }

    /// The load that leaves the right queue: a short one, so that no worker is ever idle, and what is too long is worked off.
    fn allow(&mut self, seen: &Seen<'_>, goal: &Goal, seconds: f64, full: bool) -> f64 {
        // What is decided now shows in the next step. Corrected any faster than that, it would swing.
        let drain_s = goal.drain.as_secs_f64().max(2.0 * seconds);
        if let Some(wait) = self.wait_s {
            let keep = goal.wait * seen.patience_s;
            self.balance(seen, seconds, wait < 2.0 * keep * self.caution);
            return (1.0 - (wait - keep * self.caution) / drain_s).clamp(LEAST, MOST);
        }
        // Everything is busy though no more comes than fits, and by what is known there is no queue: there is one, if latencies do not tell.
        let fits = self.costs.is_known() && self.load(seen.flows) <= FULL;
        let is_stuck =
            full && fits && seen.inferred_wait_s.is_none() && !self.untold.explains(seen.now, seconds);
        self.stuck = if is_stuck { (self.stuck + 1).min(8) } else { 0 };
        let unseen = 0.8f64.powi(self.stuck.saturating_sub(1) as i32);
        let told_s = seen.inferred_wait_s.filter(|_| full).unwrap_or(0.0);
        let late_s = (self.untold.unexplained_s(told_s) - 3.0 * seen.patience_s).max(0.0);
        let fill = goal.utilization * unseen - late_s / drain_s;
        self.untold.aim(seen.patience_s, fill, drain_s);
        self.untold.allowed().clamp(LEAST, 1.0)
    }

    /// A wait is right when as much is lost because workers have nothing to do as because answers come late. Services with few workers
    /// need a longer one than others; where callers wait in many places, each has to be shorter.
    fn balance(&mut self, seen: &Seen<'_>, seconds: f64, is_kept: bool) {
        let part = 1.0 - (-seconds / LOST_S).exp();
        self.idle += (1.0 - seen.signal.utilization.unwrap_or(1.0) - self.idle) * part;
        if !self.held {
            self.caution += (1.0 - self.caution) * SLOWLY;
        } else if self.idle > seen.late + EVEN {
            self.caution = (self.caution * (1.0 + SLOWLY)).min(LONGEST);
        } else if seen.late > self.idle && is_kept {
            self.caution = (self.caution * (1.0 - SLOWLY)).max(SHORTEST);
        }
    }
}
