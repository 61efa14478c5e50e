//! Whether more at once got more done.
//!
//! Where a CPU has nothing to do, more workers may help; but what all wait for may as well be a disk, a lock or the clients, and then more of them
//! only take caches from each other. So a number that has grown by some part is kept until it shows, and taken back unless more
//! was done. Section 5.3 of the paper does not need this: its workers wait for nothing but CPUs.

use plimsoll_core::Nanos;

/// A number that has grown so many times has to show what it is good for.
const GROWN: f64 = 1.25;
/// For how long what is done is counted,
const TRIAL: Nanos = Nanos::from_secs(1);
/// and how many must have been done: of fewer it is chance how many there are.
const TELLING: u64 = 200;
/// So many times as much has to be done as before. A quarter more of them, each of whom does as much as before, do a quarter more; but no more than
/// fits into what CPUs have left, which is a twentieth at least where more are asked for.
const FOLLOWED: f64 = 1.05;
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
            Some(proven) if number as f64 >= GROWN * proven.number as f64 => {
                if !is_tried {
                    return Advice::Stay;
                }
                if count >= TELLING && here.per_s < FOLLOWED * proven.per_s {
                    self.rests_until = now + REST;
                    return Advice::Back(proven.number);
                }
                self.prove(now, done, here);
                Advice::Rise
            }
            Some(proven) if number >= proven.number => {
                if is_tried && number == proven.number {
                    self.prove(now, done, here);
                }
                if now < self.rests_until { Advice::Stay } else { Advice::Rise }
            }
            // The first, or fewer than before, for another reason.
            _ if is_tried => {
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
    use super::*;
    use proptest::prelude::*;

    const LOOK: Nanos = Nanos::from_millis(200);

    /// Numbers over so many looks, each a quarter more than the one before where it may rise, while so much is done a second.
    fn run(following: &mut Following, from: i64, looks: u64, per_s: impl Fn(i64) -> f64) -> Vec<i64> {
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
