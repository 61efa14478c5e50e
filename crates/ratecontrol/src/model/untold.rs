//! The queue of a service where nobody tells it: reckoned from what came and what the service can do.
//!
//! That all workers are busy says nothing of how much waits for them, and latencies tell of it only when those are answered who have waited.
//! But what came beyond what can be done waits, until as much less came. So it is known, too, how busy the service must have been at any time,
//! which is less than what came where that was too much, and more where something waited.

use std::collections::VecDeque;

use plimsoll_core::Nanos;

use super::past::STEPS;

/// For so long after those were answered who have waited, latencies tell of it still.
const TELLS: Nanos = Nanos::from_millis(1_500);
/// It is no longer than this, in seconds, unless so many times as long as requests may wait is longer: whoever waits for longer has left. Where
/// it is, latencies tell.
const LONGEST_S: f64 = 2.0;
const LONGEST: f64 = 20.0;
/// What is less than this, in seconds, is chance.
const CHANCE_S: f64 = 0.1;
/// See [`Came::is_capped`].
const CAPPED: f64 = 1.01;

/// How much came in a time, and how busy that must have kept the service, both in parts of what can be done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Came {
    pub load: f64,
    pub busy: f64,
}

impl Came {
    /// Whether more came than could be done, so that how busy the service was says less than all of it.
    pub fn is_capped(&self) -> bool {
        self.load > CAPPED * self.busy
    }
}

/// A queue as it is reckoned.
#[derive(Clone, Debug, Default)]
pub(super) struct Untold {
    /// The sums of both by the end of each step, the last steps only, in seconds.
    steps: VecDeque<(Nanos, Came)>,
    wait_s: f64,
    /// When it was last more than chance.
    was: Nanos,
    /// The longest wait that latencies may tell of still, and when that was.
    longest_s: f64,
    at: Nanos,
    /// As of [`Untold::aim`].
    patience_s: f64,
    fill: f64,
    drain_s: f64,
}

impl Untold {
    /// Sets how long requests may wait, what a service without a queue is filled to, and in what time one is worked off.
    pub fn aim(&mut self, patience_s: f64, fill: f64, drain_s: f64) {
        (self.patience_s, self.fill, self.drain_s) = (patience_s, fill, drain_s);
    }

    /// Takes in that for some time so much came, in parts of what can be done.
    pub fn go_on(&mut self, now: Nanos, load: f64, seconds: f64) {
        let Came { load: came, busy } = self.steps.back().map(|(_, sums)| *sums).unwrap_or_default();
        let sums =
            Came { load: came + load * seconds, busy: busy + (self.wait_s + load * seconds).min(seconds) };
        if self.steps.len() >= STEPS {
            self.steps.pop_front();
        }
        self.steps.push_back((now, sums));
        self.wait(now, load, seconds);
    }

    fn wait(&mut self, now: Nanos, load: f64, seconds: f64) {
        let most_s = LONGEST_S.max(LONGEST * self.patience_s);
        self.wait_s = (self.wait_s + (load - 1.0) * seconds).clamp(0.0, most_s);
        if self.wait_s > CHANCE_S {
            self.was = now;
        }
        if self.wait_s >= self.longest_s || now.since(self.at) > Nanos::from_secs_f64(self.longest_s) + TELLS
        {
            (self.longest_s, self.at) = (self.wait_s, now);
        }
    }

    /// There was none at the beginning of some time, as not all were busy all the time.
    pub fn begin(&mut self, now: Nanos, load: f64, seconds: f64) {
        self.wait_s = 0.0;
        self.wait(now, load, seconds);
    }

    /// What came from the end of one step to that of another; nothing where that is not known.
    pub fn between(&self, begin: Nanos, end: Nanos) -> Option<Came> {
        let at = |time: Nanos| {
            let place = self.steps.binary_search_by_key(&time, |&(at, _)| at).ok()?;
            Some(self.steps[place].1)
        };
        let (before, after, seconds) = (at(begin)?, at(end)?, end.since(begin).as_secs_f64());
        let part = |before: f64, after: f64| (after - before) / seconds;
        (seconds > 0.0)
            .then(|| Came { load: part(before.load, after.load), busy: part(before.busy, after.busy) })
    }

    /// Whether it explains that all are busy, where that is told every so many seconds: it may be of the time before the last.
    pub fn explains(&self, now: Nanos, seconds: f64) -> bool {
        self.was > Nanos::ZERO && now.since(self.was) <= Nanos::from_secs_f64(2.0 * seconds)
    }

    /// What of a wait that latencies tell of is not known already.
    pub fn unexplained_s(&self, told_s: f64) -> f64 {
        (told_s - self.longest_s).max(0.0)
    }

    /// The load that leaves none.
    pub fn allowed(&self) -> f64 {
        self.fill - self.wait_s / self.drain_s.max(1e-3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_beyond_what_can_be_done_waits_until_less_came() {
        let mut queue = Untold::default();
        queue.aim(0.1, 0.9, 2.0);
        let mut now = Nanos::ZERO;
        let mut go_on = |queue: &mut Untold, load: f64, seconds: u64| {
            for _ in 0..4 * seconds {
                now += Nanos::from_millis(250);
                queue.go_on(now, load, 0.25);
            }
            (100.0 * queue.wait_s).round() / 100.0
        };
        assert_eq!(go_on(&mut queue, 0.9, 5), 0.0);
        assert_eq!(go_on(&mut queue, 1.5, 2), 1.0);
        assert!((queue.allowed() - 0.4).abs() < 1e-9);
        assert_eq!(go_on(&mut queue, 0.5, 1), 0.5);
        // Who is answered now has waited for a second.
        assert_eq!((queue.unexplained_s(1.0), queue.unexplained_s(1.5)), (0.0, 0.5));
        assert_eq!(go_on(&mut queue, 0.5, 4), 0.0);
        assert_eq!(queue.unexplained_s(1.0), 1.0, "by now it is something else");
        assert!(!queue.explains(queue.was + Nanos::from_secs(3), 1.0));
        assert_eq!(go_on(&mut queue, 100.0, 5), LONGEST_S);
        assert!(queue.explains(queue.was + Nanos::from_secs(2), 1.0));
        queue.aim(0.2, 0.9, 2.0);
        assert_eq!(go_on(&mut queue, 100.0, 5), 4.0);
        queue.begin(Nanos::from_secs(60), 1.2, 1.0);
        assert!((queue.wait_s - 0.2).abs() < 1e-9);
    }

    #[test]
    fn how_busy_a_service_was_is_not_how_much_came() {
        let mut queue = Untold::default();
        queue.aim(0.1, 0.9, 2.0);
        let at = |quarter: u64| Nanos::from_millis(250 * quarter);
        for (quarter, load) in (1..).zip([0.5, 0.5, 3.0, 0.5, 0.5, 0.5]) {
            queue.go_on(at(quarter), load, 0.25);
        }
        let between = |begin, end| queue.between(at(begin), at(end)).unwrap();
        assert_eq!(between(1, 2), Came { load: 0.5, busy: 0.5 });
        // The third quarter of a second alone was more than enough; half of the rest of the time it went on with what had waited.
        assert_eq!(between(1, 3), Came { load: 1.75, busy: 0.75 });
        assert!(between(1, 3).is_capped() && !between(3, 5).is_capped());
        assert_eq!(between(3, 5), Came { load: 0.5, busy: 1.0 });
        assert_eq!((queue.between(at(0), at(3)), queue.between(at(3), at(3))), (None, None));
    }
}
