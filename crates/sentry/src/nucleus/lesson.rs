//! What one request teaches about its kind.

use std::sync::atomic::Ordering::Relaxed;

use http::HeaderMap;
use plimsoll_core::Nanos;
use plimsoll_policing::inherent::Inherent;

use super::stretch::Stretch;
use super::{Counts, Report, hear};
use crate::server::Server;

/// A request that computes or waits in more places at once than this, all the time, is one whose server counts in another unit.
const MOST_PARALLEL: u64 = 64;

/// A request's kind, and what its server says about it.
#[derive(Clone, Copy, Debug)]
pub struct Lesson {
    kind: u64,
    report: Report,
}

impl Lesson {
    /// About this kind, of which nothing has been said yet.
    pub fn about(kind: u64) -> Lesson {
        Lesson { kind, report: Report::default() }
    }

    /// Hears what a server says in the head or the trailers of a response; see [`hear`].
    pub fn hear(&mut self, headers: &mut HeaderMap, server: &Server, counts: &Counts, now: Nanos) {
        let report = hear(headers, counts);
        if report != Report::default() {
            server.load.note(&report, now);
            self.report = report.or(self.report);
        }
    }

    /// The request took the server `served`, as a gateway sees it; `alone` if the gateway sent the server nothing else meanwhile.
    ///
    /// A server that tells the CPU time but no time for data needed none. Where it does not tell the CPU time, or what it tells
    /// cannot be, all that the request took counts as such. How long it waited at the server is no part of what it needed.
    pub fn learn(&self, inherent: &Inherent, stretch: &Stretch, counts: &Counts, served: Nanos, alone: bool) {
        let Report { cpu, data, queue_delay, in_service, .. } = self.report;
        // A server cannot have kept a request waiting for longer than it had it.
        let queue_delay = queue_delay.filter(|&delay| delay < served);
        let worked = served - queue_delay.unwrap_or(Nanos::ZERO);
        if let Some(needed) = inherent.of(self.kind) {
            stretch.note(needed, worked);
        }
        let Some(cpu) = cpu else { return inherent.learn(self.kind, worked, Nanos::ZERO) };
        let data = data.unwrap_or(Nanos::ZERO);
        if (cpu + data).0 > served.0.saturating_mul(MOST_PARALLEL) {
            counts.implausible.fetch_add(1, Relaxed);
            return inherent.learn(self.kind, worked, Nanos::ZERO);
        }
        inherent.learn(self.kind, cpu, data);
        // Alpha is what is left once the CPU time is known, of a request that shared its server with none. A server that works on
        // one at a time has always only one; then it must say how long that one had to wait.
        let alone = match in_service {
            Some(requests) => requests <= 1.0 && (alone || queue_delay.is_some()),
            None => alone,
        };
        if alone {
            inherent.fit(worked, cpu, data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn lesson(cpu: Option<u64>, data: Option<u64>) -> Lesson {
        let report = Report { cpu: cpu.map(MS), data: data.map(MS), ..Report::default() };
        Lesson { kind: 7, report }
    }

    /// What is known of the kind after this lesson alone, in milliseconds.
    fn learnt(lesson: Lesson, counts: &Counts) -> f64 {
        let inherent = Inherent::new(64);
        lesson.learn(&inherent, &Stretch::default(), counts, MS(40), false);
        (inherent.of(7).unwrap().as_millis_f64() * 1e3).round() / 1e3
    }

    #[test]
    fn what_the_server_tells_counts_and_else_all_that_it_took() {
        let counts = Counts::default();
        assert_eq!(learnt(lesson(Some(10), Some(5)), &counts), 15.0, "alpha is 1 as long as none is known");
        assert_eq!(learnt(lesson(Some(10), None), &counts), 10.0);
        assert_eq!(learnt(lesson(None, Some(5)), &counts), 40.0);
        assert_eq!(learnt(lesson(None, None), &counts), 40.0);
        assert_eq!(counts.all()[2], ("implausible", 0));
    }

    #[test]
    fn another_unit_is_noticed() {
        let counts = Counts::default();
        // Milliseconds where seconds are wanted.
        assert_eq!(learnt(lesson(Some(10_000), Some(5_000)), &counts), 40.0);
        assert_eq!(counts.all()[2], ("implausible", 1));
    }

    #[test]
    fn alpha_comes_from_requests_that_had_their_server_to_themselves() {
        let report = Report { cpu: Some(MS(10)), data: Some(MS(20)), ..Report::default() };
        // Two seconds of data for one of waiting, but for what is said besides.
        let fitted = |alone: bool, queue_delay: Option<u64>, in_service: Option<f32>| {
            let (inherent, counts) = (Inherent::new(64), Counts::default());
            let report = Report { queue_delay: queue_delay.map(MS), in_service, ..report };
            let whole = MS(50 + queue_delay.unwrap_or(0));
            Lesson { kind: 7, report }.learn(&inherent, &Stretch::default(), &counts, whole, alone);
            inherent.tick();
            (inherent.alpha() * 1e3).round() / 1e3
        };
        assert_eq!(fitted(true, None, None), 2.0);
        assert_eq!(fitted(false, None, None), 1.0, "nothing was fitted");
        assert_eq!(fitted(true, None, Some(2.0)), 1.0, "others use the server, too");
        assert_eq!(fitted(false, None, Some(1.0)), 1.0, "others waited in front of it");
        assert_eq!(fitted(false, Some(90), Some(1.0)), 2.0, "and how long they did is known");
        assert_eq!(fitted(true, Some(90), Some(1.0)), 2.0);
    }
}
