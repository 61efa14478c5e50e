//! How many servers a load needs, by a bound on the mean response time of a G/G/1 queue (Cataclysm, section 4.1).
//!
//! The paper takes Kingman's bound (Eq. 14), which grows beyond all bounds when little arrives: a request every second would need
//! half a second of patience, whatever it costs. Daley's (The inequality GI/G/1, 1977) is never above it, the same under full
//! load, and a multiple of the service time under none. And the paper gives each server a queue of its own; behind a sentry all slots
//! of all servers share one, so what is taken is the bound of that: of one server that is as fast as all slots together. With several
//! slots that is an estimate of the wait; of the queues whose wait is known, M/M/m, it is a bound still.

use plimsoll_core::Nanos;

/// What arrives, and what it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Requests a second: lambda.
    pub per_s: f64,
    /// Squared coefficient of variation of the time between them: sigma_a^2 times lambda^2. 1 for Poisson arrivals, more for bursts.
    pub arrivals_scv: f64,
    /// Mean service time in seconds: E\[S\].
    pub service_s: f64,
    /// Squared coefficient of variation of the service time: sigma_b^2 over E\[S\]^2.
    pub service_scv: f64,
}

impl Load {
    /// A mix of classes: `(requests a second, mean service time in seconds, its squared coefficient of variation)` of each.
    pub fn mix(classes: impl IntoIterator<Item = (f64, f64, f64)>, arrivals_scv: f64) -> Load {
        let (mut per_s, mut first, mut second) = (0.0, 0.0, 0.0);
        for (rate, mean, scv) in classes {
            per_s += rate;
            first += rate * mean;
            second += rate * mean * mean * (1.0 + scv);
        }
        let service_s = if per_s > 0.0 { first / per_s } else { 0.0 };
        let service_scv =
            if service_s > 0.0 { (second / per_s / (service_s * service_s) - 1.0).max(0.0) } else { 0.0 };
        Load { per_s, arrivals_scv, service_s, service_scv }
    }

    /// Whether all of it can be: finite, and nothing negative. What a server reports need not be.
    pub fn is_sane(&self) -> bool {
        [self.per_s, self.arrivals_scv, self.service_s, self.service_scv]
            .iter()
            .all(|v| (0.0..=1e12).contains(v))
    }

    /// The mean response time with so many slots; without end where they are not enough.
    pub fn response(&self, slots: u32) -> Nanos {
        let slots = f64::from(slots);
        let busy = self.per_s * self.service_s / slots;
        if self.per_s <= 0.0 {
            return Nanos::from_secs_f64(self.service_s);
        }
        if busy >= 1.0 {
            return Nanos::MAX;
        }
        let variability = (2.0 - busy) * self.arrivals_scv + busy * self.service_scv;
        let wait_s = self.service_s / slots * variability / (2.0 * (1.0 - busy));
        Nanos::from_secs_f64(self.service_s + wait_s)
    }

    /// The fewest slots with which the mean response time is within `target`.
    ///
    /// # Errors
    /// The target is not above the mean service time: no number of servers meets it.
    pub fn slots_for(&self, target: Nanos) -> Result<u32, Unattainable> {
        let service = Nanos::from_secs_f64(self.service_s);
        if self.per_s <= 0.0 {
            return Ok(1);
        }
        if target <= service {
            return Err(Unattainable { target, service });
        }
        // More slots never respond later: the first that will do is found by halving.
        let (mut too_few, mut enough) = (0, 1);
        while self.response(enough) > target {
            too_few = enough;
            enough = match enough.checked_mul(2) {
                Some(more) => more,
                None => return Ok(u32::MAX),
            };
        }
        while enough - too_few > 1 {
            let middle = too_few + (enough - too_few) / 2;
            if self.response(middle) > target { too_few = middle } else { enough = middle }
        }
        Ok(enough)
    }

    /// The greatest rate at which so many slots respond within `target`, requests a second, everything else being equal.
    pub fn capacity(&self, slots: u32, target: Nanos) -> f64 {
        let (mut within, mut beyond) = (0.0, f64::from(slots) / self.service_s.max(1e-12));
        for _ in 0..64 {
            let middle = (within + beyond) / 2.0;
            if (Load { per_s: middle, ..*self }).response(slots) <= target {
                within = middle
            } else {
                beyond = middle
            }
        }
        within
    }
}

/// A mean response time that cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unattainable {
    /// What is wanted.
    pub target: Nanos,
    /// What serving alone takes.
    pub service: Nanos,
}

impl std::fmt::Display for Unattainable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Unattainable { target, service } = self;
        write!(
            f,
            "a mean of {target} cannot be had where serving takes {service} on average; write more than that"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn loads()(per_s in 0.1f64..5_000.0, service_ms in 0.1f64..500.0, a in 0.0f64..8.0, b in 0.0f64..8.0) -> Load {
            Load { per_s, arrivals_scv: a, service_s: service_ms / 1e3, service_scv: b }
        }
    }

    proptest! {
        /// Eq. 14 as the paper writes it, for one server: what it finds enough is enough here, and under full load they agree.
        #[test]
        fn never_more_than_eq_14(load in loads(), busy in 0.001f64..0.999, times in 1.001f64..50.0) {
            let (load, target_s) = (Load { per_s: busy / load.service_s, ..load }, load.service_s * times);
            let sigma_a2 = load.arrivals_scv / load.per_s.powi(2);
            let sigma_b2 = load.service_scv * load.service_s.powi(2);
            let bound = 1.0 / (load.service_s + (sigma_a2 + sigma_b2) / (2.0 * (target_s - load.service_s)));
            let within = |per_s| (Load { per_s, ..load }).response(1) <= Nanos::from_secs_f64(target_s);
            prop_assert!(load.per_s > bound || within(load.per_s), "{} of {bound}", load.per_s);
            let full = Load { per_s: 0.999 / load.service_s, ..load };
            let by_eq_14 = {
                let variances = load.arrivals_scv / full.per_s.powi(2) + sigma_b2;
                load.service_s + full.per_s * variances / (2.0 * (1.0 - 0.999))
            };
            let ours = full.response(1).as_secs_f64();
            prop_assert!((ours / by_eq_14 - 1.0).abs() < 0.001, "{ours} {by_eq_14}");
        }

        /// The waiting time of M/M/1 is known, and so is that of M/M/m (Erlang's C): neither is above the bound.
        #[test]
        fn never_less_than_erlang(busy in 0.01f64..0.99, slots in 1u32..60) {
            let load = Load { per_s: busy * f64::from(slots) * 10.0, arrivals_scv: 1.0, service_s: 0.1, service_scv: 1.0 };
            let offered = busy * f64::from(slots);
            // Erlang's B by its recursion, C from B.
            let b = (1..=slots).fold(1.0, |b, m| offered * b / (f64::from(m) + offered * b));
            let c = b / (1.0 - busy * (1.0 - b));
            let exact_s = 0.1 + c * 0.1 / (f64::from(slots) * (1.0 - busy));
            prop_assert!(load.response(slots).as_secs_f64() >= exact_s * 0.999_999);
        }

        #[test]
        fn slots_are_the_fewest_that_will_do(load in loads(), times in 1.01f64..20.0) {
            let target = Nanos::from_secs_f64(load.service_s * times);
            let slots = load.slots_for(target).unwrap();
            prop_assert!(load.response(slots) <= target);
            prop_assert!(slots == 1 || load.response(slots - 1) > target);
        }

        #[test]
        fn capacity_is_the_most_that_will_do(load in loads(), slots in 1u32..200, times in 1.1f64..20.0) {
            let target = Nanos::from_secs_f64(load.service_s * times);
            let most = load.capacity(slots, target);
            let [at_most, beyond] = [most, most * 1.001 + 1e-6].map(|per_s| Load { per_s, ..load }.response(slots));
            prop_assert!(at_most <= target);
            prop_assert!(beyond > target);
        }
    }

    #[test]
    fn a_mix_has_the_mean_and_the_variance_of_its_parts() {
        // Half 10 ms, half 30 ms, both constant: mean 20 ms, variance 100 ms^2.
        let load = Load::mix([(5.0, 0.010, 0.0), (5.0, 0.030, 0.0)], 1.0);
        assert!((load.per_s - 10.0).abs() < 1e-12 && (load.service_s - 0.020).abs() < 1e-12);
        assert!((load.service_scv - 0.25).abs() < 1e-9);
    }

    #[test]
    fn a_target_below_the_service_time_is_an_error_and_an_idle_pool_needs_one() {
        let load = Load { per_s: 10.0, arrivals_scv: 1.0, service_s: 0.1, service_scv: 1.0 };
        assert!(load.slots_for(Nanos::from_millis(100)).unwrap_err().to_string().contains("100ms"));
        assert_eq!((Load { per_s: 0.0, ..load }).slots_for(Nanos::from_millis(1)), Ok(1));
    }
}
