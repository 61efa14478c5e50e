//! CoDel: refuse when requests have been standing in the queue for too long (Nichols and Jacobson, "Controlling
//! Queue Delay", 2012; RFC 8289). It judges when a request leaves the queue, by how long it really waited.
//!
//! As long as some request of the last `interval` waited less than `target`, the queue is doing its job of
//! absorbing bursts. Once none did, one request is refused, then the next after `interval / sqrt(2)`,
//! `interval / sqrt(3)` and so on, until a wait is below the target again.

use plimsoll_core::{ClassId, Grant, Limit, Mechanism, Nanos, Quantity, Refusal, Rng, Verdict};

use crate::policy::{Policy, Scene};

/// The wait that is tolerated as a standing queue, RFC 8289's default.
pub const TARGET: Nanos = Nanos::from_millis(5);
/// How long it is tolerated, RFC 8289's default.
pub const INTERVAL: Nanos = Nanos::from_millis(100);

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
    /// When the next request is refused; `None` while nothing is.
    next_refusal: Option<Nanos>,
    /// Refusals in this episode.
    refused: u32,
}

impl Codel {
    /// With these parameters; [`TARGET`] and [`INTERVAL`] are the usual ones.
    #[allow(clippy::disallowed_types)]
    pub fn new(target: Nanos, interval: Nanos) -> Codel {
        Codel { target, interval, control: std::sync::Mutex::default() }
    }

    fn spacing(&self, refused: u32) -> Nanos {
        Nanos((self.interval.0 as f64 / f64::from(refused.max(1)).sqrt()) as u64)
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
            control.next_refusal = None;
            return Verdict::Admit(Grant::Estimate);
        }
        let deadline = *control.above_since_deadline.get_or_insert(now + self.interval);
        if now < deadline || control.next_refusal.is_some_and(|next| now < next) {
            return Verdict::Admit(Grant::Estimate);
        }
        match control.next_refusal {
            // An episode goes on: the next refusal follows from the last one's time, not from now.
            Some(due) => {
                control.refused += 1;
                control.next_refusal = Some(due + self.spacing(control.refused));
            }
            // A new episode soon after one starts near the rate that was needed then.
            None => {
                control.refused = control.refused.saturating_sub(2).max(1);
                control.next_refusal = Some(now + self.spacing(control.refused));
            }
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
}
