//! Which policer: the exact one while the sentry can afford it, the cheap one once its own load is too high, and back when
//! that has been low for long enough (Cataclysm, section 3.3, end).

use plimsoll_core::Nanos;

/// Busier than this, as a share of the CPU time that it may have, and the sentry changes to the threshold,
const HIGH: f64 = 0.8;
/// less busy than this,
const LOW: f64 = 0.6;
/// with no more than this share of the requests that came at the change, or being cheap is all that made it less busy,
const FEWER: f64 = 0.75;
/// or less busy than being cheap alone can have made it: then it was busy with something else,
const IDLE: f64 = 0.3;
/// and for so long, and it changes back. Long, because a change back that was too early costs what it saved.
const CALM: Nanos = Nanos::from_secs(15);

/// How requests are policed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policer {
    /// Many at once of a class and size, [`crate::batch`].
    Batch,
    /// By class and size, without looking at each: [`crate::threshold`].
    Threshold,
}

/// Changes between the two. Begins with the exact one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Switch {
    /// While it is the cheap one: the most requests a second that came while the sentry was too busy.
    cheap: Option<f64>,
    calm_since: Option<Nanos>,
}

impl Switch {
    /// The policer to use from now on, with the sentry this busy, the share of its CPU time in 0..1, by so many requests a second.
    pub fn turn(&mut self, busy: f64, per_s: f64, now: Nanos) -> Policer {
        if busy > HIGH {
            self.cheap = Some(self.cheap.map_or(per_s, |before| before.max(per_s)));
        }
        let fewer = self.cheap.is_none_or(|before| per_s <= before * FEWER);
        let calm = busy < IDLE || (busy < LOW && fewer);
        self.calm_since = if calm { self.calm_since.or(Some(now)) } else { None };
        if self.calm_since.is_some_and(|since| now.since(since) >= CALM) {
            self.cheap = None;
        }
        if self.cheap.is_some() { Policer::Threshold } else { Policer::Batch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_at_once_and_back_after_a_calm() {
        let mut switch = Switch::default();
        let mut turn = |busy, s| switch.turn(busy, busy * 10_000.0, Nanos::from_secs(s));
        assert_eq!(turn(0.7, 0), Policer::Batch);
        assert_eq!(turn(0.85, 1), Policer::Threshold);
        assert_eq!(turn(0.7, 2), Policer::Threshold);
        assert_eq!(turn(0.5, 3), Policer::Threshold);
        assert_eq!(turn(0.65, 10), Policer::Threshold, "not calm enough");
        assert_eq!(turn(0.5, 11), Policer::Threshold);
        assert_eq!(turn(0.5, 25), Policer::Threshold);
        assert_eq!(turn(0.5, 26), Policer::Batch);
        assert_eq!(turn(0.79, 27), Policer::Batch);
    }

    #[test]
    fn a_load_that_goes_to_and_fro_does_not_make_it_go_to_and_fro() {
        let mut switch = Switch::default();
        let busy = |s: u64| if s.is_multiple_of(10) { 0.9 } else { 0.4 };
        let turn = |s| switch.turn(busy(s), busy(s) * 1e4, Nanos::from_secs(s));
        let found: Vec<Policer> = (0..600).map(turn).collect();
        assert_eq!(found.windows(2).filter(|pair| pair[0] != pair[1]).count(), 0);
    }

    #[test]
    fn nor_does_one_that_is_only_borne_because_the_policer_is_cheap() {
        let mut switch = Switch::default();
        let mut busy = 0.9;
        let mut changes = 0;
        for s in 0..600 {
            let policer = switch.turn(busy, 50_000.0, Nanos::from_secs(s));
            let next = if policer == Policer::Threshold { 0.5 } else { 0.9 };
            changes += usize::from(next != busy);
            busy = next;
        }
        assert_eq!(changes, 1);
    }

    #[test]
    fn a_load_that_was_somebody_else_s_does_not_keep_it() {
        let mut switch = Switch::default();
        let mut turn = |busy, s| switch.turn(busy, 100.0, Nanos::from_secs(s));
        assert_eq!([turn(0.9, 0), turn(0.5, 1), turn(0.5, 30)], [Policer::Threshold; 3]);
        assert_eq!([turn(0.2, 31), turn(0.2, 46)], [Policer::Threshold, Policer::Batch]);
    }
}
