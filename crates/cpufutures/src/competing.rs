//! The weight that is eligible beside a thread at a time, as a distribution.
//!
//! The paper weighs with the mean weight that is eligible (Eq. 6). But w/(w+X) is not linear in X: beside one that is there half the time a
//! thread gets 1 and 1/2 by turns, 3/4 in all, not 1/1.5. So the competing weight is taken as nothing with the probability that nobody is
//! there, else as two values with probabilities that have its mean, variance and skewness (the Gauss quadrature of two points). That is
//! exact for one competitor, for two of the same weight, and for any that are always there, and near for others of similar weights. Where
//! weights are orders of magnitude apart and the heavy ones are rarely there, two values are too few for what they stand for.

/// The weight that is eligible at a time, a sum of independent parts: its first three cumulants, and whether it is nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Competing {
    mean: f64,
    variance: f64,
    third: f64,
    most: f64,
    /// How many are always there, and the probability that none of the others is.
    always: i32,
    absent: f64,
}

impl Competing {
    /// Nobody.
    pub const NONE: Competing =
        Competing { mean: 0.0, variance: 0.0, third: 0.0, most: 0.0, always: 0, absent: 1.0 };

    /// Adds one of this weight that is there for this part of the time.
    pub fn add(&mut self, weight: f64, present: f64) {
        self.count(weight, present, 1.0);
        match present < 1.0 {
            true => self.absent *= 1.0 - present,
            false => self.always += 1,
        }
    }

    /// Takes one away that was added.
    pub fn without(mut self, weight: f64, present: f64) -> Competing {
        self.count(weight, present, -1.0);
        match present < 1.0 {
            true => self.absent = (self.absent / (1.0 - present)).min(1.0),
            false => self.always -= 1,
        }
        self
    }

    fn count(&mut self, weight: f64, present: f64, times: f64) {
        let spread = weight * weight * present * (1.0 - present) * times;
        self.mean += weight * present * times;
        self.variance += spread;
        self.third += weight * spread * (1.0 - 2.0 * present);
        self.most += weight * times;
    }

    /// The CPUs that a weight gets beside these, of `room`.
    pub fn share(&self, room: f64, weight: f64, limit: f64) -> f64 {
        self.mean(|x| (room * weight / (weight + x)).min(limit))
    }

    /// The mean of `f`: of nothing, and of two values that have the cumulants of what is not nothing.
    fn mean(&self, f: impl Fn(f64) -> f64) -> f64 {
        let none = if self.always > 0 { 0.0 } else { self.absent };
        let some = 1.0 - none;
        if some < 1e-9 {
            return f(0.0);
        }
        let all = self.mean.max(0.0);
        let variance = self.variance.max(0.0);
        // Of what is not nothing: moments about zero, then about the mean.
        let mean = all / some;
        let second = (variance + all * all) / some;
        let third = (self.third + 3.0 * variance * all + all.powi(3)) / some;
        let variance = second - mean * mean;
        // What is left of a difference of great numbers is no variance.
        if variance <= 1e-9 * mean * mean {
            return none * f(0.0) + some * f(mean);
        }
        let skew = (third - 3.0 * mean * second + 2.0 * mean.powi(3)) / (2.0 * variance);
        let root = skew.hypot(variance.sqrt());
        let (low, high) = ((mean + skew - root).max(0.0), (mean + skew + root).min(self.most));
        let above = ((mean - low) / (high - low).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        none * f(0.0) + some * ((1.0 - above) * f(low) + above * f(high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The mean over all combinations of those that are there.
    fn exact(room: f64, weight: f64, others: &[(f64, f64)]) -> f64 {
        let of = |set: u32| {
            let there = |at: usize| set >> at & 1 == 1;
            let (mut chance, mut all) = (1.0, 0.0);
            for (at, &(other, present)) in others.iter().enumerate() {
                chance *= if there(at) { present } else { 1.0 - present };
                all += if there(at) { other } else { 0.0 };
            }
            chance * (room * weight / (weight + all)).min(1.0)
        };
        (0..1 << others.len()).map(of).sum()
    }

    fn found(room: f64, weight: f64, others: &[(f64, f64)]) -> f64 {
        let mut all = Competing::NONE;
        others.iter().for_each(|&(weight, present)| all.add(weight, present));
        all.share(room, weight, 1.0)
    }

    #[test]
    fn one_that_is_there_half_the_time_leaves_three_quarters() {
        assert_eq!(found(1.0, 1024.0, &[]), 1.0);
        assert!((found(1.0, 1024.0, &[(1024.0, 0.5)]) - 0.75).abs() < 1e-9);
        assert!((found(1.0, 1024.0, &[(1024.0, 1.0), (2048.0, 1.0)]) - 0.25).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn one_and_two_equals_are_exact(
            weight in 3.0f64..90_000.0,
            others in prop::collection::vec((3.0f64..90_000.0, 0.01f64..=1.0), 2..7),
        ) {
            let off = |others: &[(f64, f64)]| (found(1.0, weight, others) - exact(1.0, weight, others)).abs();
            prop_assert!(off(&others[..1]) < 1e-6 && off(&[others[0], (others[0].0, others[1].1)]) < 1e-6);
        }

        /// Six times is eight nice values.
        #[test]
        fn others_of_similar_weights_are_near(
            weight in 3.0f64..90_000.0,
            least in 3.0f64..15_000.0,
            others in prop::collection::vec((1.0f64..6.0, 0.01f64..=1.0), 2..7),
        ) {
            let others: Vec<(f64, f64)> = others.iter().map(|&(times, present)| (times * least, present)).collect();
            let off = (found(1.0, weight, &others) - exact(1.0, weight, &others)).abs();
            prop_assert!(off < 0.06, "{off}");
        }

        #[test]
        fn who_is_taken_away_was_never_there(
            others in prop::collection::vec((3.0f64..90_000.0, 0.01f64..=1.0), 1..7),
        ) {
            let mut all = Competing::NONE;
            others.iter().for_each(|&(weight, present)| all.add(weight, present));
            let (weight, present) = others[0];
            let without = all.without(weight, present).share(1.0, 1024.0, 1.0);
            let never = found(1.0, 1024.0, &others[1..]);
            prop_assert!((without - never).abs() < 1e-3, "{without} for {never}");
        }
    }
}
