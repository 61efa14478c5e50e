//! Whether more at once got more done.
//!
//! Where a CPU has nothing to do, more workers may help; but what all wait for may as well be a disk, a lock or the clients, and then more of them
//! only take caches from each other. So a number that has grown by some part is kept until it shows, and taken back unless more
//! was done. A little more is done at one time than at another anyway; so where it is only a little, it is looked at once more, beside the former
//! number again. Section 5.3 of the paper does not need this: its workers wait for nothing but CPUs.

use plimsoll_core::Nanos;

/// A number that has grown so many times grows no further until it has shown what it is good for.
const GROWN: f64 = 1.25;
/// For how long what is done is counted,
const TRIAL: Nanos = Nanos::from_secs(1);
/// and how many must have been done: of fewer it is chance how many there are.
const TELLING: u64 = 200;
/// So many times as much has to be done as before. A quarter more of them, each of whom does as much as before, do a quarter more; but no more than
/// fits into what CPUs have left, which is a twentieth at least where more are asked for.
const FOLLOWED: f64 = 1.05;
/// From half of that quarter on, it is no chance.
const CLEAR: f64 = 1.125;
/// What was taken back is not tried again before that.
const REST: Nanos = Nanos::from_secs(10);

/// What is to be done with the number in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It may grow.
    Rise,
    /// It is not to grow yet.
    Stay,
    /// It is to be this one again: more got no more done.
    Back(i64),
}

#[derive(Clone, Copy, Debug)]
struct Proven {
    number: i64,
    per_s: f64,
}

/// Follows what is done while so many are at work at once.
#[derive(Clone, Debug, Default)]
pub struct Following {
    proven: Option<Proven>,
    number: i64,
    /// Since when the number is in force, and what was done until then.
    since: (Nanos, u64),
    rests_until: Nanos,
    /// A little more was done with more at work: it has to show that twice.
    once: bool,
}

impl Following {
    /// Takes the number in force, and how much was ever done.
    pub fn look(&mut self, now: Nanos, number: i64, done: u64) -> Advice {
        if number != self.number {
            (self.number, self.since) = (number, (now, done));
        }
        let (length, count) = (now.since(self.since.0), done.saturating_sub(self.since.1));
        let is_tried = length >= TRIAL;
        let here = Proven { number, per_s: count as f64 * 1e9 / length.0.max(1) as f64 };
        match self.proven {
            // Also where it has grown by less, as nobody has had to wait since.
            Some(proven) if number > proven.number && is_tried => {
                let more_than = |times: f64| count < TELLING || here.per_s >= times * proven.per_s;
                let is_more = more_than(FOLLOWED);
                if is_more && (self.once || more_than(CLEAR)) {
                    self.once = false;
                    self.prove(now, done, here);
                    return Advice::Rise;
                }
                self.once = is_more;
                if !is_more {
                    self.rests_until = now + REST;
                }
                Advice::Back(proven.number)
            }
            Some(proven) if number >= proven.number => {
                let is_former = number == proven.number;
                if is_tried {
                    self.prove(now, done, here);
                }
                let is_looked_at_again = self.once && is_former && !is_tried;
                let has_grown = number as f64 >= GROWN * proven.number as f64;
                let stays = has_grown || now < self.rests_until || is_looked_at_again;
                if stays { Advice::Stay } else { Advice::Rise }
            }
            // The first, or fewer than before, for another reason.
            _ if is_tried => {
                self.once = false;
                self.prove(now, done, here);
                Advice::Rise
            }
            _ => Advice::Stay,
        }
    }

    fn prove(&mut self, now: Nanos, done: u64, here: Proven) {
        (self.proven, self.since) = (Some(here), (now, done));
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::rng;
    use proptest::prelude::*;
    use rand::RngExt;

    use super::*;

    const LOOK: Nanos = Nanos::from_millis(200);

    /// Numbers over so many looks, each a quarter more than the one before where it may rise, while so much is done a second.
    fn run(following: &mut Following, from: i64, looks: u64, mut per_s: impl FnMut(i64) -> f64) -> Vec<i64> {
        let (mut number, mut done) = (from, 0.0);
        let one = |look| {
            done += per_s(number) * LOOK.0 as f64 / 1e9;
            number = match following.look(Nanos(LOOK.0 * look), number, done as u64) {
                Advice::Rise => number + (number / 4).max(1),
                Advice::Stay => number,
                Advice::Back(to) => to,
            };
            number
        };
        (1..=looks).map(one).collect()
    }

    #[test]
    fn what_gets_more_done_grows_as_long_as_it_does() {
        let numbers = run(&mut Following::default(), 8, 100, |number| 100.0 * number.min(40) as f64);
        assert!(*numbers.iter().max().unwrap() < 80, "{numbers:?}");
        let enough = numbers[60..].iter().filter(|&&number| (32..=60).contains(&number)).count();
        assert!(enough >= 36, "{numbers:?}");
    }

    #[test]
    fn what_gets_no_more_done_is_taken_back_and_rarely_tried_again() {
        let numbers = run(&mut Following::default(), 8, 500, |_| 10_000.0);
        assert!(numbers.iter().all(|&number| number <= 10), "{numbers:?}");
        let more = numbers.iter().filter(|&&number| number > 8).count();
        assert!((30..=75).contains(&more), "a tenth of the time: {more}");
    }

    #[test]
    fn what_is_done_more_by_chance_lets_it_grow_hardly_ever() {
        for seed in 0..10 {
            let (mut rng, mut tenths) = (rng::seeded(seed, 0), 0);
            let mut machine = 1.0;
            // A machine whose speed goes up and down by a few per cent a second.
            let mut per_s = |_| {
                if tenths % 5 == 0 {
                    machine = rng.random_range(0.95..1.05);
                }
                tenths += 1;
                10_000.0 * machine
            };
            let numbers = run(&mut Following::default(), 8, 1_500, &mut per_s);
            let more = numbers.iter().filter(|&&number| number > 10).count();
            assert!(more < 300, "seed {seed}: a fifth of the time at most, {more} of 1500 looks");
        }
    }

    #[test]
    fn a_little_more_that_lasts_is_taken() {
        // A tenth more, whenever more than eight are at work.
        let numbers =
            run(&mut Following::default(), 8, 50, |number| if number > 8 { 11_000.0 } else { 10_000.0 });
        assert!(numbers[40..].iter().all(|&number| number >= 10), "{numbers:?}");
        let former = numbers.iter().filter(|&&number| number == 8).count();
        assert!((8..=14).contains(&former), "two seconds with eight, no more: {numbers:?}");
    }

    #[test]
    fn what_has_grown_a_little_and_got_no_more_done_does_not_stay() {
        let mut following = Following::default();
        let mut look = |ms: u64, number| following.look(Nanos::from_millis(ms), number, 10 * ms);
        assert_eq!((look(200, 8), look(1_200, 8)), (Advice::Stay, Advice::Rise));
        assert_eq!((look(1_400, 9), look(2_200, 9)), (Advice::Rise, Advice::Rise));
        assert_eq!(look(2_400, 9), Advice::Back(8));
        assert_eq!(
            (look(2_600, 8), look(12_200, 8), look(12_600, 8)),
            (Advice::Stay, Advice::Stay, Advice::Rise)
        );
    }

    #[test]
    fn a_little_more_counts_for_the_number_it_showed_above_alone() {
        let (mut following, mut done, mut ms) = (Following::default(), 0, 0);
        // What it advises after more than a second with so many.
        let mut advice = |number, per_s: u64| {
            let (begun, ended) = (ms + 200, ms + 1_400);
            (ms, done) = (ended, done + per_s * 7 / 5);
            following.look(Nanos::from_millis(begun), number, done - per_s * 6 / 5);
            following.look(Nanos::from_millis(ended), number, done)
        };
        assert_eq!((advice(8, 10_000), advice(9, 10_800)), (Advice::Rise, Advice::Back(8)));
        // Fewer meanwhile, for another reason.
        assert_eq!((advice(6, 8_000), advice(7, 8_600)), (Advice::Rise, Advice::Back(6)));
        assert_eq!((advice(6, 8_000), advice(7, 8_600)), (Advice::Rise, Advice::Rise));
    }

    #[test]
    fn too_few_tell_nothing() {
        let numbers = run(&mut Following::default(), 8, 100, |_| 20.0);
        assert!(*numbers.last().unwrap() > 100, "{numbers:?}");
    }

    proptest! {
        /// It is taken back only to where it was before.
        #[test]
        fn back_is_always_less(told in prop::collection::vec((1i64..300, 0u64..5_000, 1u64..2_000), 0..100)) {
            let mut following = Following::default();
            let (mut now, mut done) = (Nanos::ZERO, 0);
            for (number, more, later) in told {
                (now, done) = (now + Nanos::from_millis(later), done + more);
                if let Advice::Back(to) = following.look(now, number, done) {
                    prop_assert!(to < number && to >= 1);
                }
            }
        }
    }
}
