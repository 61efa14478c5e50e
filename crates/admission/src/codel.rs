//! CoDel: refuse when requests have been standing in the queue for too long (Nichols and Jacobson, "Controlling
//! Queue Delay", 2012; RFC 8289). It judges when a request leaves the queue, by how long it really waited.
//!
//! As long as some request of the last `interval` waited less than `target`, the queue is doing its job of
//! absorbing bursts. Once none did, one request is refused, the next after `interval`, then after `interval / sqrt(2)`,
//! `interval / sqrt(3)` and so on, until a wait is below the target again. Where that was a short time ago, the next
//! episode begins at the rate that was needed then.

use plimsoll_core::{ClassId, Grant, Limit, Mechanism, Nanos, Quantity, Refusal, Rng, Verdict};

use crate::policy::{Policy, Scene};

/// The wait that is tolerated as a standing queue, RFC 8289's default.
pub const TARGET: Nanos = Nanos::from_millis(5);
/// How long it is tolerated, RFC 8289's default.
pub const INTERVAL: Nanos = Nanos::from_millis(100);
/// An episode that begins within so many intervals of the last one continues it (RFC 8289, section 5.5).
const RESUME_INTERVALS: u64 = 16;

/// A limit on the standing queue wait.
pub struct Codel {
    target: Nanos,
    interval: Nanos,
    // Only tried, never waited for: a thread that finds it taken serves its request, as CoDel would most of the time.
    #[allow(clippy::disallowed_types)]
    control: std::sync::Mutex<Control>,
}

#[derive(Default)]
struct Control {
    /// When the wait will have been above the target for an interval; `None` while it is below.
    above_since_deadline: Option<Nanos>,
    /// Whether an episode of refusals goes on.
    refusing: bool,
    /// When the next request is refused, or would have been if the last episode had gone on.
    next_refusal: Nanos,
    /// What the spacing of refusals follows from, now and when the episode began.
    count: u32,
    count_at_first: u32,
}

impl Codel {
    /// With these parameters; [`TARGET`] and [`INTERVAL`] are the usual ones.
    #[allow(clippy::disallowed_types)]
    pub fn new(target: Nanos, interval: Nanos) -> Codel {
        Codel { target, interval, control: std::sync::Mutex::default() }
    }

    fn spacing(&self, count: u32) -> Nanos {
        Nanos((self.interval.0 as f64 / f64::from(count).sqrt()) as u64)
    }
}

impl Policy for Codel {
    fn judge(&self, _scene: &Scene<'_>, _now: Nanos, _rng: &mut Rng) -> Verdict {
        Verdict::Admit(Grant::Estimate)
    }

    fn dequeued(&self, _class: ClassId, waited: Nanos, now: Nanos) -> Verdict {
        let Ok(mut control) = self.control.try_lock() else { return Verdict::Admit(Grant::Estimate) };
        if waited < self.target {
            control.above_since_deadline = None;
            control.refusing = false;
            return Verdict::Admit(Grant::Estimate);
        }
        let deadline = *control.above_since_deadline.get_or_insert(now + self.interval);
        if now < deadline || control.refusing && now < control.next_refusal {
            return Verdict::Admit(Grant::Estimate);
        }
        if control.refusing {
            // The next refusal follows from the last one's time, not from now.
            control.count += 1;
            let spacing = self.spacing(control.count);
            control.next_refusal += spacing;
        } else {
            let grown = control.count - control.count_at_first;
            let soon = now.since(control.next_refusal) < Nanos(RESUME_INTERVALS * self.interval.0);
            control.count = if soon { grown.max(1) } else { 1 };
            control.count_at_first = control.count;
            control.refusing = true;
            control.next_refusal = now + self.spacing(control.count);
        }
        Verdict::Refuse(Refusal {
            mechanism: Mechanism::Codel,
            limit: Limit::QueueWait,
            estimate: Quantity::Time(waited),
            objective: Quantity::Time(self.target),
            retry_after: waited,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = Nanos::from_millis(1);

    #[test]
    fn a_burst_is_absorbed_and_a_standing_queue_is_not() {
        let codel = Codel::new(TARGET, INTERVAL);
        let serve = |at_ms: u64, waited_ms: u64| {
            codel.dequeued(ClassId(0), Nanos::from_millis(waited_ms), Nanos::from_millis(at_ms)).is_admit()
        };
        assert!((0..90).all(|t| serve(t, 50)), "90 ms above the target are a burst");
        assert!(serve(91, 1), "which one short wait ends");
        assert!((92..192).all(|t| serve(t, 50)));
        let refused = (192..1_192).filter(|&t| !serve(t, 50)).count();
        // Spacings 100/sqrt(n) ms fit about (1000 / 200)^2 = 25 and some refusals into a second.
        assert!((20..=40).contains(&refused), "{refused}");
        assert!((1_192..1_300).all(|t| serve(t, 4)));
        assert!(codel.dequeued(ClassId(0), MS, Nanos::from_secs(9)).is_admit());
    }

    /// How long after the first refusal of an episode the second one comes, `pause` after an episode of ten seconds.
    fn second_refusal_after(pause: Nanos) -> Nanos {
        let codel = Codel::new(TARGET, INTERVAL);
        let stands = |now: Nanos| codel.dequeued(ClassId(0), Nanos(10 * TARGET.0), now).is_admit();
        let mut now = Nanos::ZERO;
        while now < Nanos::from_secs(10) {
            stands(now);
            now += MS;
        }
        assert!(codel.dequeued(ClassId(0), Nanos::ZERO, now).is_admit());
        now += pause;
        let mut refusals = Vec::new();
        while refusals.len() < 2 {
            if !stands(now) {
                refusals.push(now);
            }
            now += MS;
        }
        refusals[1].since(refusals[0])
    }

    #[test]
    fn an_episode_begins_at_the_rate_of_the_last_one_only_soon_after_it() {
        assert!(second_refusal_after(Nanos::from_millis(10)) < Nanos::from_millis(20));
        // The first refusal comes an interval after the pause.
        assert!(second_refusal_after(Nanos(14 * INTERVAL.0)) < Nanos::from_millis(20));
        assert_eq!(second_refusal_after(Nanos(16 * INTERVAL.0)), INTERVAL);
        assert_eq!(second_refusal_after(Nanos::from_secs(3 * 3_600)), INTERVAL);
    }
}
