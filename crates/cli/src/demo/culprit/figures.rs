//! Figures of what a load saw, and how long everything stood still.

use plimsoll_core::Nanos;
use plimsoll_simulator::stats::Histogram;

use super::stage::{Fate, Request};

/// Figures of the requests that were to be sent in a span of time.
pub struct Figures {
    pub came: usize,
    pub answered: usize,
    pub span_s: f64,
    /// Of those that were answered.
    latencies: Histogram,
}

impl Figures {
    pub fn between(requests: &[Request], from: Nanos, to: Nanos) -> Figures {
        let (mut came, mut answered, mut latencies) = (0, 0, Histogram::default());
        for request in requests.iter().filter(|request| (from..to).contains(&request.at)) {
            came += 1;
            if request.fate == Fate::Answered {
                answered += 1;
                latencies.record(request.latency);
            }
        }
        Figures { came, answered, span_s: to.since(from).as_secs_f64(), latencies }
    }

    pub fn answered_per_s(&self) -> f64 {
        self.answered as f64 / self.span_s
    }

    /// Nothing where nobody came.
    pub fn answered_pct(&self) -> Option<f64> {
        (self.came > 0).then(|| 100.0 * self.answered as f64 / self.came as f64)
    }

    pub fn quantile_ms(&self, fraction: f64) -> Option<f64> {
        self.latencies.quantile(fraction).map(Nanos::as_millis_f64)
    }
}

/// The longest time between `from` and `to` in which nobody was answered.
pub fn standstill(requests: &[Request], from: Nanos, to: Nanos) -> Nanos {
    let answered = requests.iter().filter_map(Request::answered_at).filter(|at| (from..to).contains(at));
    let mut ends: Vec<Nanos> = answered.chain([to]).collect();
    ends.sort_unstable();
    let gaps = ends.iter().scan(from, |last, &end| Some(end.since(std::mem::replace(last, end))));
    gaps.max().unwrap_or(Nanos::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn request(at_ms: u64, latency_ms: u64, fate: Fate) -> Request {
        Request { at: MS(at_ms), latency: MS(latency_ms), fate }
    }

    #[test]
    fn figures_are_of_those_that_were_asked_in_the_span() {
        let requests = [
            request(999, 1, Fate::Answered),
            request(1_000, 10, Fate::Answered),
            request(1_500, 30, Fate::Answered),
            request(2_000, 5_000, Fate::Lost),
            request(2_999, 1, Fate::Cancelled),
            request(3_000, 1, Fate::Answered),
        ];
        let figures = Figures::between(&requests, MS(1_000), MS(3_000));
        assert_eq!((figures.came, figures.answered, figures.answered_per_s()), (4, 2, 1.0));
        assert_eq!(figures.answered_pct(), Some(50.0));
        let p99 = figures.quantile_ms(0.99).unwrap();
        assert!((29.5..30.6).contains(&p99), "{p99}");
        let nobody = Figures::between(&requests, MS(4_000), MS(5_000));
        assert_eq!((nobody.answered_pct(), nobody.quantile_ms(0.5)), (None, None));
    }

    #[test]
    fn a_standstill_is_the_longest_time_without_an_answer() {
        let requests = [
            request(0, 100, Fate::Answered),
            request(10, 1_000, Fate::Cancelled),
            request(20, 2_080, Fate::Answered),
            request(30, 2_970, Fate::Answered),
        ];
        assert_eq!(standstill(&requests, Nanos::ZERO, MS(4_000)), MS(2_000));
        assert_eq!(standstill(&requests, Nanos::ZERO, MS(9_000)), MS(6_000), "the end counts, too");
        assert_eq!(standstill(&[], MS(1_000), MS(2_000)), MS(1_000));
    }
}
