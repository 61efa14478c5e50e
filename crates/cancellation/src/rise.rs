//! By how much contention has risen since before requests became late.
//!
//! What made a request late happened while it ran. What was lost to a resource before the first of those who are late began was lost
//! beside requests that kept their objective, and is not why they are late now. A load that has been reading from the disk for minutes is
//! no culprit because somebody else locks a table.
//!
//! What is compared is time, not the part of it that is lost: where next to nothing but one resource costs any time, nearly all of it is
//! lost there long before anybody is late, and goes on to be while requests take ten times as long.

use plimsoll_core::Nanos;

use crate::contention::SPAN;

/// What was lost before objectives were missed.
#[derive(Debug, Default)]
pub struct Rise {
    /// Of each resource, in ns: at least one window ago, and at most two; and at the beginning of this window.
    before: Vec<f64>,
    recent: Vec<f64>,
    began: Nanos,
}

impl Rise {
    /// Takes in a look at which objectives were kept: the levels, and of how much time they are parts. `limit` is how long a request may take.
    pub fn kept(&mut self, now: Nanos, limit: Nanos, levels: &[f64], ran_ns: f64) {
        // What happened fades over a span, so that a level tells of the time before.
        if now.since(self.began) >= limit + SPAN {
            self.began = now;
            std::mem::swap(&mut self.before, &mut self.recent);
            self.recent.clear();
            self.recent.extend(levels.iter().map(|level| level * ran_ns));
        }
    }

    /// What is lost to this resource now and was not before, as a part of the time for which requests ran.
    pub fn of(&self, resource: usize, level: f64, ran_ns: f64) -> f64 {
        level - self.before.get(resource).copied().unwrap_or(0.0) / ran_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at_ms;

    const RAN_NS: f64 = 1e9;

    fn kept(rise: &mut Rise, levels: impl Fn(u64) -> Vec<f64>) {
        for ms in (20..=3_000).step_by(20) {
            rise.kept(at_ms(ms), Nanos::from_millis(100), &levels(ms), RAN_NS);
        }
    }

    #[test]
    fn it_is_measured_from_before_those_who_are_late_began() {
        let mut rise = Rise::default();
        // One resource has always been contended, the other for the last 250 ms.
        kept(&mut rise, |ms| vec![0.4, if ms > 2_750 { 0.3 } else { 0.0 }]);
        assert_eq!([rise.of(0, 0.4, RAN_NS), rise.of(1, 0.3, RAN_NS)], [0.0, 0.3]);
        assert_eq!(rise.of(2, 0.2, RAN_NS), 0.2, "one that nobody has seen before");
    }

    #[test]
    fn what_stays_is_no_rise() {
        let mut rise = Rise::default();
        kept(&mut rise, |ms| vec![if ms > 2_000 { 0.3 } else { 0.0 }]);
        assert_eq!(rise.of(0, 0.3, RAN_NS), 0.0);
        // Neither where requests take longer because of something else.
        assert!(rise.of(0, 0.15, 2.0 * RAN_NS).abs() < 1e-9);
    }

    #[test]
    fn what_costs_ten_times_as_much_has_risen_though_all_was_lost_to_it_before() {
        let mut rise = Rise::default();
        kept(&mut rise, |_| vec![0.98]);
        assert!((rise.of(0, 0.99, 10.0 * RAN_NS) - 0.892).abs() < 1e-9);
    }
}
