//! By how much contention has risen since before requests became late.
//!
//! What made a request late happened while it ran. What was lost to a resource before the first of those who are late began was lost
//! beside requests that kept their objective, and is not why they are late now. A load that has been reading from the disk for minutes is
//! no culprit because somebody else locks a table.

use plimsoll_core::Nanos;

use crate::contention::SPAN;

/// Contention as it was before objectives were missed.
#[derive(Debug, Default)]
pub struct Rise {
    /// At least one window ago, and at most two; and at the beginning of this window.
    before: Vec<f64>,
    recent: Vec<f64>,
    began: Nanos,
}

impl Rise {
    /// Takes in the levels at a look at which objectives were kept. `limit` is how long a request may take.
    pub fn kept(&mut self, now: Nanos, limit: Nanos, levels: &[f64]) {
        // What happened fades over a span, so that a level tells of the time before.
        if now.since(self.began) >= limit + SPAN {
            self.began = now;
            std::mem::swap(&mut self.before, &mut self.recent);
            self.recent.clear();
            self.recent.extend_from_slice(levels);
        }
    }

    /// By how much this resource's level is above what it was.
    pub fn of(&self, resource: usize, level: f64) -> f64 {
        level - self.before.get(resource).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_ms;

    #[test]
    fn it_is_measured_from_before_those_who_are_late_began() {
        let mut rise = Rise::default();
        let limit = Nanos::from_millis(100);
        // One resource has always been contended, the other for the last 250 ms.
        for ms in (20..=3_000).step_by(20) {
            rise.kept(at_ms(ms), limit, &[0.4, if ms > 2_750 { 0.3 } else { 0.0 }]);
        }
        assert_eq!([rise.of(0, 0.4), rise.of(1, 0.3)], [0.0, 0.3]);
        assert_eq!(rise.of(2, 0.2), 0.2, "one that nobody has seen before");
    }

    #[test]
    fn what_stays_is_no_rise() {
        let mut rise = Rise::default();
        for ms in (20..=3_000).step_by(20) {
            rise.kept(at_ms(ms), Nanos::from_millis(100), &[if ms > 2_000 { 0.3 } else { 0.0 }]);
        }
        assert_eq!(rise.of(0, 0.3), 0.0);
    }
}
