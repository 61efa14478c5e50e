//! What the run is held to, computed from what became of every request and nothing else.

use plimsoll_core::Nanos;

use super::watch::{Fate, Seen};

/// The response time at or below which 95 in 100 of them lie; nothing where there are none.
pub fn p95(times: impl Iterator<Item = Nanos>) -> Option<Nanos> {
    let mut times: Vec<Nanos> = times.collect();
    let rank = (times.len() as f64 * 0.95).ceil() as usize;
    times.sort_unstable();
    times.get(rank.checked_sub(1)?).copied()
}

/// The requests that came in each stretch of time of this length, in order.
pub fn windows(requests: &[Seen], length: Nanos) -> Vec<&[Seen]> {
    let last = requests.last().map_or(0, |last| last.arrival.at.0 / length.0 + 1);
    let mut rest = requests;
    let window = |i| {
        let within = rest.partition_point(|seen| seen.arrival.at.0 / length.0 <= i);
        let (window, after) = rest.split_at(within);
        rest = after;
        window
    };
    (0..last).map(window).collect()
}

/// The 95th percentile of what was let in, in each stretch of time in which something was; with its beginning.
pub fn p95s(requests: &[Seen], length: Nanos) -> Vec<(Nanos, Nanos)> {
    let windows = windows(requests, length).into_iter().enumerate();
    let of = |(i, window): (usize, &[Seen])| {
        Some((Nanos(i as u64 * length.0), p95(window.iter().filter_map(Seen::response))?))
    };
    windows.filter_map(of).collect()
}

/// What answers within `target` are worth at most: in each stretch of time the processes work for as long as it is, on what is
/// worth most for its time first, and on a part of the last (a fractional knapsack). `classes` are worth and mean service time of
/// each: how long one request of a class happens to take nobody knows before.
pub fn optimum(requests: &[Seen], classes: &[(f64, Nanos)], processes: u32, length: Nanos) -> f64 {
    let capacity_s = length.as_secs_f64() * f64::from(processes);
    let value_of = |window: &&[Seen]| {
        let mut items: Vec<(f64, f64)> = window
            .iter()
            .map(|seen| classes[seen.arrival.class.index()])
            .map(|(worth, size)| (worth, size.as_secs_f64()))
            .collect();
        items.sort_by(|a, b| (b.0 / b.1).total_cmp(&(a.0 / a.1)));
        let (mut left_s, mut value) = (capacity_s, 0.0);
        for (worth, size_s) in items {
            let part = (left_s / size_s).clamp(0.0, 1.0);
            value += worth * part;
            left_s -= size_s * part;
        }
        value
    };
    windows(requests, length).iter().map(value_of).sum()
}

/// What was earned with answers within `target`.
pub fn earned(requests: &[Seen], classes: &[(f64, Nanos)], target: Nanos) -> f64 {
    let in_time = |seen: &&Seen| seen.response().is_some_and(|response| response <= target);
    requests.iter().filter(in_time).map(|seen| classes[seen.arrival.class.index()].0).sum()
}

/// The share, in per cent, of the requests that have classes below them that were refused while a lesser one was in service. `ranks`
/// are those of the classes.
pub fn inverted_pct(requests: &[Seen], ranks: &[u16]) -> f64 {
    let last = requests.iter().map(|seen| ranks[seen.arrival.class.index()]).max().unwrap_or(0);
    let important = requests.iter().filter(|seen| ranks[seen.arrival.class.index()] < last);
    let (mut came, mut inverted) = (0u64, 0u64);
    for seen in important {
        came += 1;
        inverted += u64::from(matches!(seen.fate, Fate::Refused { inverted: true, .. }));
    }
    100.0 * inverted as f64 / came.max(1) as f64
}

/// The share of what came that was let in, in per cent; nothing where nothing came.
pub fn admitted_pct<'a>(requests: impl Iterator<Item = &'a Seen>) -> Option<f64> {
    let (mut came, mut admitted) = (0u64, 0u64);
    for seen in requests {
        came += 1;
        admitted += u64::from(seen.is_admitted());
    }
    (came > 0).then(|| 100.0 * admitted as f64 / came as f64)
}

/// The least share of its promised minimum that any class had in any stretch of time, in per cent; where it asked for less than that,
/// of what it asked for.
pub fn least_promise_pct(requests: &[Seen], promised_per_s: &[f64], length: Nanos) -> f64 {
    let mut least = f64::INFINITY;
    for window in windows(requests, length) {
        for (class, per_s) in promised_per_s.iter().enumerate() {
            let of_class = || window.iter().filter(|seen| seen.arrival.class.index() == class);
            let owed = (per_s * length.as_secs_f64()).min(of_class().count() as f64);
            if owed > 0.0 {
                let admitted = of_class().filter(|seen| seen.is_admitted()).count() as f64;
                least = least.min(100.0 * (admitted / owed).min(1.0));
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{ClassId, Grant, Limit};

    use super::*;
    use crate::engine::Arrival;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn seen(at_ms: u64, class: u16, fate: Fate) -> Seen {
        Seen { arrival: Arrival { at: MS(at_ms), class: ClassId(class), service: MS(10) }, fate }
    }

    fn served(at_ms: u64, class: u16, response_ms: u64) -> Seen {
        seen(at_ms, class, Fate::Served(Grant::Estimate, MS(response_ms)))
    }

    fn refused(at_ms: u64, class: u16, inverted: bool) -> Seen {
        seen(at_ms, class, Fate::Refused { limit: Limit::Mean, inverted })
    }

    #[test]
    fn a_95th_percentile_is_the_19th_of_20() {
        assert_eq!(p95((1..=20).rev().map(MS)), Some(MS(19)));
        assert_eq!(p95(std::iter::once(MS(7))), Some(MS(7)));
        assert_eq!(p95(std::iter::empty()), None);
    }

    #[test]
    fn every_request_is_in_the_window_it_came_in() {
        let requests = [served(0, 0, 1), served(999, 0, 1), served(1_000, 0, 1), served(3_500, 0, 1)];
        let lengths: Vec<usize> = windows(&requests, MS(1_000)).iter().map(|window| window.len()).collect();
        assert_eq!(lengths, [2, 1, 0, 1]);
        let times = p95s(&requests, MS(1_000));
        assert_eq!(times.iter().map(|&(at, _)| at).collect::<Vec<_>>(), [MS(0), MS(1_000), MS(3_000)]);
    }

    /// By hand: in a second two processes do two seconds of work. Of ten of 400 ms worth 4 and ten of 100 ms worth 2, the small ones
    /// are worth more for their time; they take one second, and the other is two and a half of the big ones.
    #[test]
    fn the_optimum_takes_what_is_worth_most_for_its_time_and_a_part_of_the_last() {
        let classes = [(4.0, MS(400)), (2.0, MS(100))];
        let requests: Vec<Seen> = (0..20).map(|i| refused(i, (i % 2) as u16, false)).collect();
        assert!((optimum(&requests, &classes, 2, MS(1_000)) - (10.0 * 2.0 + 2.5 * 4.0)).abs() < 1e-9);
        // What nobody asks for is not sold, and what is late earns nothing.
        assert!((optimum(&requests[..4], &classes, 2, MS(1_000)) - 12.0).abs() < 1e-9);
        let requests = [served(0, 0, 50), served(1, 1, 51), served(2, 1, 49), refused(3, 0, false)];
        assert!((earned(&requests, &classes, MS(50)) - 6.0).abs() < 1e-9);
    }

    #[test]
    fn inversions_are_a_share_of_all_that_have_somebody_below_them() {
        let requests = [
            served(0, 0, 1),
            refused(1, 0, true),
            refused(2, 1, false),
            served(3, 1, 1),
            refused(4, 2, false),
        ];
        assert!((inverted_pct(&requests, &[0, 1, 2]) - 25.0).abs() < 1e-9);
        assert_eq!(inverted_pct(&requests, &[0, 0, 0]), 0.0);
    }

    #[test]
    fn a_promise_is_kept_where_it_was_asked_for() {
        // Ten a second were promised: in the first second eight came and six were let in, in the second all of four.
        let first = (0..8).map(|i| if i < 6 { served(i, 0, 1) } else { refused(i, 0, false) });
        let second = (0..4).map(|i| served(1_000 + i, 0, 1));
        let requests: Vec<Seen> = first.chain(second).collect();
        assert!((least_promise_pct(&requests, &[10.0], MS(1_000)) - 75.0).abs() < 1e-9);
        assert!((least_promise_pct(&requests, &[3.0], MS(1_000)) - 100.0).abs() < 1e-9);
        assert_eq!(admitted_pct(requests.iter()), Some(1_000.0 / 12.0));
    }
}
