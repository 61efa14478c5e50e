//! What a server last said about itself. It counts the less the older it is, and after [`STALE`] not at all.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use plimsoll_core::Nanos;

use super::Report;

/// How long a report says something about a server.
pub const STALE: Nanos = Nanos::from_secs(10);
/// A stamp counts tenths of a second: enough for thirteen years.
const TENTH: Nanos = Nanos::from_millis(100);

/// A server's load, in its own words. Lock-free; of two reports at once either may be the newest.
#[derive(Debug, Default)]
pub struct Load {
    /// How long a request waits there before the server begins with it, in seconds.
    pub queue_delay_s: Said,
    /// Requests that it works on.
    pub in_service: Said,
    /// How busy its CPUs are; 1 is all of them.
    pub cpu_utilization: Said,
}

impl Load {
    /// The server has said this now.
    pub fn note(&self, report: &Report, now: Nanos) {
        let note = |said: &Said, number: Option<f32>| {
            if let Some(number) = number {
                said.set(number, now);
            }
        };
        note(&self.queue_delay_s, report.queue_delay.map(|delay| delay.as_secs_f64() as f32));
        note(&self.in_service, report.in_service);
        note(&self.cpu_utilization, report.cpu_utilization);
    }
}

/// A number, and when it was said: in one word, so that no two are mixed.
#[derive(Debug, Default)]
pub struct Said(AtomicU64);

impl Said {
    fn set(&self, number: f32, now: Nanos) {
        // Zero is never.
        let stamp = (now.0 / TENTH.0).max(1);
        self.0.store(stamp << 32 | u64::from(number.to_bits()), Relaxed);
    }

    /// The number, if it was said within [`STALE`], and how much it counts, from 1 down to 0.
    pub fn get(&self, now: Nanos) -> Option<(f64, f64)> {
        let word = self.0.load(Relaxed);
        let (stamp, number) = (word >> 32, f32::from_bits(word as u32));
        let age = now.since(Nanos(stamp * TENTH.0));
        (stamp > 0 && age < STALE).then(|| (f64::from(number), 1.0 - age.as_secs_f64() / STALE.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_fades_and_is_forgotten() {
        let load = Load::default();
        let at = |s: u64| Nanos::from_secs(s);
        assert_eq!(load.in_service.get(at(1)), None);
        load.note(&Report { in_service: Some(3.0), ..Report::default() }, at(100));
        assert_eq!(load.in_service.get(at(100)), Some((3.0, 1.0)));
        assert_eq!(load.in_service.get(at(105)), Some((3.0, 0.5)));
        assert_eq!(load.in_service.get(at(110)), None);
        assert_eq!(load.queue_delay_s.get(at(100)), None, "of that it said nothing");
        load.note(&Report { queue_delay: Some(Nanos::ZERO), ..Report::default() }, Nanos::ZERO);
        assert_eq!(load.queue_delay_s.get(Nanos::ZERO), Some((0.0, 1.0)), "none is something to say");
        load.note(&Report { in_service: Some(5.0), ..Report::default() }, at(111));
        assert_eq!(load.in_service.get(at(111)), Some((5.0, 1.0)));
    }
}
