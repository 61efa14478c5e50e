//! How long a class's requests wait to be processed, so that a more important request that comes a little later does not find the
//! servers taken by them (Cataclysm, section 3.4, Eq. 8-13).
//!
//! The paper bounds the probability that a request of a class comes *and* is refused while a lesser one is in service. With all
//! delays zero that is zero by its first factor, whatever happens to the requests that do come. Here it is the probability that a
//! request *that comes* is refused so: the same product without that factor, and of the most important class, for which there are
//! more lesser ones than for any other.
//!
//! Service times are taken for exponential, which makes the inner sum of the paper's approximation a closed form. Delays rise by
//! the same from class to class, as in the paper's experiment (section 6.2: 0, 50 and 100 ms).

use plimsoll_core::Nanos;

/// What the delays are to keep the probability below: the paper's epsilon.
pub const EPSILON: f64 = 0.05;
/// The shortest delay worth a timer.
const SHORTEST_S: f64 = 1e-3;

/// What competes for the servers, by rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contender {
    /// Requests a second.
    pub per_s: f64,
    /// Mean time from admission to the end, in seconds: the paper's N times the service time.
    pub stay_s: f64,
}

/// The delay of each class, by rank, the first being zero: the shortest that keep the probability of Eq. 7 below [`EPSILON`], or
/// as long as `longest` allows where none do. `refused` is the share of processed requests that found no room, the paper's p_drop;
/// without any there is room for all, and nobody waits.
pub fn delays(classes: &[Contender], refused: f64, longest: Nanos) -> Vec<Nanos> {
    let last = classes.len().saturating_sub(1);
    let missed = |step_s: f64| inversion(classes, step_s, refused) >= EPSILON;
    let step_s = if last == 0 || refused <= 0.0 || !missed(0.0) {
        0.0
    } else {
        // The probability falls with the delays, so the shortest that will do is found by halving.
        let (mut short, mut long) = (0.0, longest.as_secs_f64() / last as f64);
        while !missed(long) && long - short > SHORTEST_S {
            let middle = (short + long) / 2.0;
            if missed(middle) { short = middle } else { long = middle }
        }
        long
    };
    (0..classes.len()).map(|rank| Nanos::from_secs_f64(step_s * rank as f64)).collect()
}

/// The probability, by its union bound and so perhaps above one, that a request of the most important class is refused while a
/// lesser one is in service, when each class waits `step_s` longer than the one above it.
fn inversion(classes: &[Contender], step_s: f64, refused: f64) -> f64 {
    let mut none_above = 1.0;
    let mut inverted = 0.0;
    for (rank, class) in classes.iter().enumerate().skip(1) {
        let delay_s = step_s * rank as f64;
        let in_delay = class.per_s * delay_s;
        inverted += none_above
            * if delay_s > 0.0 {
                // Eq. 11, times the sum of Eq. 12 over the instants that have passed.
                -(-in_delay).exp_m1() / (delay_s / class.stay_s.max(1e-9)).exp_m1()
            } else {
                // What that tends to for ever shorter delays.
                class.per_s * class.stay_s
            };
        // Eq. 13: nobody more important came in its own delay. The most important class has none.
        none_above *= (-in_delay).exp();
    }
    refused * (1.0 - refused) * inverted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LONGEST: Nanos = Nanos::from_millis(400);

    fn contenders(per_s: &[f64]) -> Vec<Contender> {
        per_s.iter().map(|&per_s| Contender { per_s, stay_s: 0.2 }).collect()
    }

    #[test]
    fn nobody_waits_while_there_is_room_or_nobody_to_wait_for() {
        assert_eq!(delays(&contenders(&[50.0, 500.0, 900.0]), 0.0, LONGEST), [Nanos::ZERO; 3]);
        assert_eq!(delays(&contenders(&[50.0]), 0.9, LONGEST), [Nanos::ZERO]);
        assert!(delays(&[], 0.9, LONGEST).is_empty());
    }

    #[test]
    fn the_summand_without_delay_is_what_short_delays_tend_to() {
        let classes = contenders(&[50.0, 2.0, 3.0]);
        let [none, short] = [0.0, 1e-9].map(|step_s| inversion(&classes, step_s, 0.5));
        assert!((none - short).abs() < 1e-4, "{none} {short}");
    }

    /// Two classes, by hand: 0.25 times (1 - e^-1) times 1 / (e^0.5 - 1).
    #[test]
    fn one_lesser_class_is_the_paper_s_product() {
        let classes = contenders(&[50.0, 10.0]);
        let by_hand = 0.25 * (1.0 - (-1.0f64).exp()) / (0.5f64.exp() - 1.0);
        assert!((inversion(&classes, 0.1, 0.5) - by_hand).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn longer_delays_never_invert_more(
            per_s in prop::collection::vec(0.01f64..2_000.0, 2..8), step_s in 0.0f64..0.2, more in 1.0f64..4.0,
        ) {
            let classes = contenders(&per_s);
            let [short, long] = [step_s, step_s * more].map(|step_s| inversion(&classes, step_s, 0.5));
            prop_assert!(long <= short * (1.0 + 1e-9), "{short} {long}");
        }

        #[test]
        fn they_rise_by_rank_keep_to_the_bound_and_are_no_longer_than_it_takes(
            per_s in prop::collection::vec(0.01f64..2_000.0, 2..8),
            refused in 0.001f64..0.999,
        ) {
            let classes = contenders(&per_s);
            let found = delays(&classes, refused, LONGEST);
            prop_assert_eq!(found[0], Nanos::ZERO);
            prop_assert!(found.is_sorted() && found[found.len() - 1] <= LONGEST);
            let step_s = found[1].as_secs_f64();
            let longest_s = LONGEST.as_secs_f64() / (classes.len() - 1) as f64;
            let kept = inversion(&classes, step_s, refused) < EPSILON * 1.001;
            prop_assert!(kept || step_s > longest_s * 0.999);
            let shorter = step_s - SHORTEST_S;
            let shorter_will_do = shorter > 0.0 && inversion(&classes, shorter, refused) < EPSILON * 0.999;
            prop_assert!(!shorter_will_do);
        }
    }
}
