//! The four allocations of a thread (section 3.1), how much slower than on an idle machine it runs, and both of several together.

/// What a thread wanted and got over the last second, and what it will get over the next; all in milliseconds of CPU time a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Allocations {
    /// What it would have got on an idle machine (Eq. 1).
    pub desired_ms_per_s: f64,
    /// What it got.
    pub actual_ms_per_s: f64,
    /// What it will get; never more than it desires (Eq. 4 and 7).
    pub predicted_ms_per_s: f64,
    /// The most that it could get if it wanted all (Eq. 3 and 8).
    pub potential_ms_per_s: f64,
    /// How long it was ready to run without running.
    pub waited_ms_per_s: f64,
    /// Whether `desired` may be wrong: it seems to have a fixed amount of work to do every second, or waited so long that little is
    /// known of what it wants (section 4.2).
    pub low_confidence: bool,
}

impl Allocations {
    /// How many times slower than on an idle machine it ran, from 1 on. A thread that desires nothing is not slowed; one that got
    /// nothing of what it desired is slowed infinitely.
    ///
    /// The paper's text divides the other way round, but says "5x slower" throughout, as this does.
    pub fn slowdown(&self) -> f64 {
        slowdown(self.desired_ms_per_s, self.actual_ms_per_s)
    }

    /// The same of the next second.
    pub fn predicted_slowdown(&self) -> f64 {
        slowdown(self.desired_ms_per_s, self.predicted_ms_per_s)
    }
}

/// The allocations of several threads together: of a process, of all processes of a name, of a cgroup. The paper has none; this is what
/// `plimsoll top`, its bill and the agent's metrics mean by them.
///
/// What was desired, got and waited, and what is predicted, are sums: slowed are all together by the sum of what they desire over the sum of
/// what they got. The potential is that of the one that could get the most: what each of two could get, both together could not.
/// Together they are of low confidence if those that are desire more than half of it all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    of: Allocations,
    /// What those of low confidence desire.
    unsure_ms_per_s: f64,
}

impl Sum {
    /// One thread more.
    pub fn add(&mut self, of: &Allocations) {
        let unsure_ms_per_s = if of.low_confidence { of.desired_ms_per_s } else { 0.0 };
        self.merge(&Sum { of: *of, unsure_ms_per_s });
    }

    /// All of these more.
    pub fn merge(&mut self, more: &Sum) {
        let (sum, of) = (&mut self.of, &more.of);
        sum.desired_ms_per_s += of.desired_ms_per_s;
        sum.actual_ms_per_s += of.actual_ms_per_s;
        sum.predicted_ms_per_s += of.predicted_ms_per_s;
        sum.waited_ms_per_s += of.waited_ms_per_s;
        let potential = sum.potential_ms_per_s.max(of.potential_ms_per_s);
        sum.potential_ms_per_s = potential.max(sum.predicted_ms_per_s);
        self.unsure_ms_per_s += more.unsure_ms_per_s;
        sum.low_confidence = self.unsure_ms_per_s > sum.desired_ms_per_s / 2.0;
    }

    /// Of all that were added; nothing of none.
    pub fn allocations(&self) -> &Allocations {
        &self.of
    }
}

fn slowdown(desired: f64, got: f64) -> f64 {
    if desired <= 0.0 { 1.0 } else { (desired / got.max(0.0)).max(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdown_is_desired_over_got() {
        let of = |desired_ms_per_s, actual_ms_per_s| {
            Allocations { desired_ms_per_s, actual_ms_per_s, ..Allocations::default() }.slowdown()
        };
        assert_eq!(of(500.0, 100.0), 5.0);
        assert_eq!(of(100.0, 500.0), 1.0);
        assert_eq!(of(0.0, 0.0), 1.0);
        assert_eq!(of(1.0, 0.0), f64::INFINITY);
    }

    #[test]
    fn together_they_get_the_sum_and_could_get_what_one_could() {
        let one = |desired_ms_per_s, actual_ms_per_s, potential_ms_per_s, low_confidence| Allocations {
            desired_ms_per_s,
            actual_ms_per_s,
            predicted_ms_per_s: actual_ms_per_s / 2.0,
            potential_ms_per_s,
            waited_ms_per_s: desired_ms_per_s - actual_ms_per_s,
            low_confidence,
        };
        let all =
            [one(900.0, 300.0, 500.0, false), one(100.0, 100.0, 700.0, true), one(0.5, 0.0, 10.0, true)];
        let mut sum = Sum::default();
        all.iter().for_each(|of| sum.add(of));
        let expected = Allocations {
            desired_ms_per_s: 1_000.5,
            actual_ms_per_s: 400.0,
            predicted_ms_per_s: 200.0,
            potential_ms_per_s: 700.0,
            waited_ms_per_s: 600.5,
            low_confidence: false,
        };
        assert_eq!(*sum.allocations(), expected);
        // In parts it is the same, and one that is most of it decides how sure it is.
        let mut parts = [Sum::default(); 2];
        parts[0].add(&all[0]);
        all[1..].iter().for_each(|of| parts[1].add(of));
        assert!(parts[1].allocations().low_confidence);
        let [mut first, second] = parts;
        first.merge(&second);
        assert_eq!(first, sum);
        sum.add(&one(2_000.0, 2_000.0, 1.0, true));
        assert!(sum.allocations().low_confidence);
        assert_eq!(sum.allocations().potential_ms_per_s, 1_200.0, "what is predicted of all");
        assert_eq!(*Sum::default().allocations(), Allocations::default());
    }
}
