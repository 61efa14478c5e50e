//! When an objective is missed and when all is well again, from what clients saw alone: whoever watches the server is held to that.

use plimsoll_core::Nanos;

use super::request::{Outcome, Request};

/// An objective is missed when more than the allowed share of what came in so much time was late.
const WINDOW: Nanos = Nanos::from_secs(1);
/// Of a 99th percentile.
const ALLOWED: f64 = 0.01;

/// When the objective that 99 % of requests are answered within `limit` was first missed, from `from` on.
///
/// A late request counts when it becomes late, not when it is answered: nobody can know earlier, and a client with a stop watch would not know
/// later. `requests` are in the order in which they were to be sent.
pub fn missed(requests: &[Request], limit: Nanos, from: Nanos) -> Option<Nanos> {
    let became_late = became_late(requests, limit);
    let late = became_late.iter().enumerate().filter(|&(_, &at)| at >= from);
    let missed = late.map(|(i, &at)| {
        let since = became_late.partition_point(|&other| other + WINDOW <= at);
        // Of those that came in a window of the same length and can be judged by now.
        let judged = |at: Nanos| requests.partition_point(|request| request.at + limit <= at);
        let came = judged(at) - judged(at.since(WINDOW));
        (at, (i + 1 - since) as f64 > ALLOWED * came as f64)
    });
    missed.filter(|&(_, is_missed)| is_missed).map(|(at, _)| at).next()
}

/// When the last late request was over of those that came from `from` on, until none had been late for as long as a window.
pub fn over(requests: &[Request], limit: Nanos, from: Nanos) -> Option<Nanos> {
    let late = requests.iter().filter(|request| request.at + limit >= from && is_late(request, limit));
    let mut over = None;
    let mut last = from;
    for request in late {
        if request.at > last + WINDOW {
            break;
        }
        last = request.at.max(from);
        over = over.max(Some(request.at + request.latency));
    }
    over
}

/// A failure is never in time.
fn is_late(request: &Request, limit: Nanos) -> bool {
    request.outcome != Outcome::Ok || request.latency > limit
}

fn became_late(requests: &[Request], limit: Nanos) -> Vec<Nanos> {
    let late = requests.iter().filter(|request| is_late(request, limit));
    let mut times: Vec<Nanos> = late.map(|request| request.at + request.latency.min(limit)).collect();
    times.sort_unstable();
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    /// A request every 10 ms for 10 s, each answered within a millisecond; from 5 s to 6 s all wait for the end of that time.
    fn requests() -> Vec<Request> {
        let request = |i: u64| {
            let at = 10 * i;
            let latency = if (5_000..6_000).contains(&at) { 6_000 - at } else { 1 };
            Request { at: MS(at), latency: MS(latency), outcome: Outcome::Ok }
        };
        (0..1_000).map(request).collect()
    }

    #[test]
    fn it_is_missed_when_the_second_of_a_hundred_becomes_late() {
        let requests = requests();
        assert_eq!(missed(&requests, MS(50), Nanos::ZERO), Some(MS(5_010 + 50)));
        assert_eq!(missed(&requests, MS(50), MS(5_100)), Some(MS(5_100)), "not before one looks");
        assert_eq!(missed(&requests, MS(50), MS(7_100)), None);
        assert_eq!(missed(&requests, MS(1_000), Nanos::ZERO), None);
    }

    #[test]
    fn one_late_request_in_a_hundred_is_allowed_and_a_failure_is_late() {
        let mut requests = requests();
        requests.truncate(500);
        requests[200].latency = MS(100);
        assert_eq!(missed(&requests, MS(50), Nanos::ZERO), None);
        requests[202].outcome = Outcome::Refused;
        assert_eq!(missed(&requests, MS(50), Nanos::ZERO), Some(MS(2_050)));
        // Too far from the other.
        requests[202].outcome = Outcome::Ok;
        requests[400].outcome = Outcome::Refused;
        assert_eq!(missed(&requests, MS(50), Nanos::ZERO), None);
    }

    #[test]
    fn it_is_over_when_the_last_late_request_is_answered() {
        let mut requests = requests();
        assert_eq!(over(&requests, MS(50), MS(5_000)), Some(MS(6_000)));
        requests[660].latency = MS(100);
        assert_eq!(over(&requests, MS(50), MS(5_000)), Some(MS(6_700)), "it goes on");
        requests[800].latency = MS(100);
        assert_eq!(over(&requests, MS(50), MS(5_000)), Some(MS(6_700)), "another matter");
        assert_eq!(over(&requests, MS(50), MS(8_500)), None);
    }
}
