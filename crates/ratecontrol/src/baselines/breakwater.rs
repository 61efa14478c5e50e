//! Breakwater (Cho et al., "Overload control for us-scale RPCs with Breakwater", OSDI 2020).
//!
//! A server has credits; whoever calls it may do so only with one, and has it back with the answer. So credits bound what is at the server
//! at any time. Every round trip it compares how long requests wait with a target: below it there are more credits, one or a thousandth of
//! the clients; above it they become fewer, by two hundredths for each target's worth of excess and at most by half. A request that would
//! wait for more than twice the target is dropped all the same: credits were promised when the queue was shorter.
//!
//! Its clients are told what they may send and keep no queue of their own here (its authors let one build for ten microseconds), so a call
//! without a credit is refused before it costs the server anything. In a fleet every instance is a server to those that call it; TopFull
//! (section 6.1) measures it that way.

use plimsoll_core::Nanos;

/// What may be set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The wait that it aims at. The authors' fits services that take microseconds; 20 ms is what DAGOR goes by, so that both baselines are
    /// held to the same.
    pub target: Nanos,
    /// How often credits change: a round trip between services of milliseconds.
    pub round_trip: Nanos,
    /// Credits that are added for each client: 0.001, and one at least.
    pub increase: f64,
    /// The part that is taken away for each target's worth of excess: 0.02.
    pub decrease: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            target: Nanos::from_millis(20),
            round_trip: Nanos::from_millis(10),
            increase: 0.001,
            decrease: 0.02,
        }
    }
}

/// Where an instance drops, as a multiple of the target.
const DROP_AT: f64 = 2.0;
/// The least that is left of the credits after a change.
const LEAST_LEFT: f64 = 0.5;
/// Changes that are made up for after a pause: more would give credits that nobody has asked for.
const MOST_BEHIND: u64 = 8;

/// One instance's admission.
#[derive(Clone, Debug)]
pub struct Breakwater {
    settings: Settings,
    credits: f64,
    changes_at: Nanos,
}

impl Breakwater {
    /// With as many credits as it has workers.
    pub fn new(settings: Settings, workers: u32, now: Nanos) -> Breakwater {
        let credits = f64::from(workers.max(1));
        Breakwater { settings, credits, changes_at: now + settings.round_trip }
    }

    /// Whether a request may enter, when so many are at the instance, working or waiting, which would make it wait for `delay`, and so many
    /// call it.
    pub fn admits(&mut self, outstanding: u32, delay: Nanos, clients: u32, now: Nanos) -> bool {
        if now >= self.changes_at {
            let behind = 1 + now.since(self.changes_at).0 / self.settings.round_trip.0.max(1);
            (0..behind.min(MOST_BEHIND)).for_each(|_| self.change(delay, clients, outstanding));
            self.changes_at += Nanos(behind.saturating_mul(self.settings.round_trip.0));
        }
        f64::from(outstanding) < self.credits.max(1.0)
            && delay.0 as f64 <= DROP_AT * self.settings.target.0 as f64
    }

    /// How many requests may be here at once.
    pub fn credits(&self) -> f64 {
        self.credits
    }

    fn change(&mut self, delay: Nanos, clients: u32, outstanding: u32) {
        let target = self.settings.target.0 as f64;
        let excess = (delay.0 as f64 - target) / target;
        if excess >= 0.0 {
            self.credits *= (1.0 - self.settings.decrease * excess).max(LEAST_LEFT);
        } else if f64::from(outstanding) >= self.credits * LEAST_LEFT {
            // Credits that nobody uses are not added to; the authors cap them at 64 for each client instead.
            self.credits += (self.settings.increase * f64::from(clients)).max(1.0);
        }
        self.credits = self.credits.max(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    #[test]
    fn credits_follow_the_target_as_the_paper_says() {
        let mut breakwater = Breakwater::new(Settings::default(), 100, Nanos::ZERO);
        assert!(breakwater.admits(99, MS(0), 10, MS(1)));
        assert!(!breakwater.admits(100, MS(0), 10, MS(2)), "no credit is left");
        assert!(breakwater.admits(100, MS(19), 10, MS(10)), "a round trip later there is one more");
        assert_eq!(breakwater.credits(), 101.0);
        breakwater.admits(100, MS(19), 5_000, MS(20));
        assert_eq!(breakwater.credits(), 106.0, "a thousandth of the clients");
        breakwater.admits(100, MS(30), 10, MS(30));
        assert!(
            (breakwater.credits() - 106.0 * 0.99).abs() < 1e-9,
            "half a target above it costs a hundredth"
        );
        breakwater.admits(100, Nanos::from_secs(10), 10, MS(40));
        assert!((breakwater.credits() - 106.0 * 0.99 * 0.5).abs() < 1e-9, "never more than half at once");
    }

    #[test]
    fn who_would_wait_twice_the_target_is_dropped() {
        let mut breakwater = Breakwater::new(Settings::default(), 100, Nanos::ZERO);
        assert!(breakwater.admits(0, MS(40), 10, MS(1)));
        assert!(!breakwater.admits(0, MS(41), 10, MS(2)));
    }

    #[test]
    fn credits_never_run_out_nor_grow_in_a_pause() {
        let mut breakwater = Breakwater::new(Settings::default(), 4, Nanos::ZERO);
        (1..1_000u64).for_each(|i| _ = breakwater.admits(4, Nanos::from_secs(1), 10, MS(10 * i)));
        assert_eq!(breakwater.credits(), 1.0);
        assert!(breakwater.admits(0, MS(0), 10, Nanos::from_secs(100)), "an idle server takes one");
        (0..1_000u64).for_each(|i| _ = breakwater.admits(0, MS(0), 10, Nanos::from_secs(200 + i)));
        assert!(breakwater.credits() < 20.0, "{}: what nobody uses does not grow", breakwater.credits());
    }
}
