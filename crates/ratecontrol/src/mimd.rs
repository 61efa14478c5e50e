//! Fixed steps: 5 % less while the SLO is missed, 1 % more while it is met (section 6.2). What TopFull is compared with.

use crate::stepwise::{Actor, State};

/// Multiplicative increase, multiplicative decrease.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mimd {
    /// The part that is taken away in a second,
    pub decrease: f64,
    /// and that is added.
    pub increase: f64,
}

impl Default for Mimd {
    fn default() -> Mimd {
        Mimd { decrease: 0.05, increase: 0.01 }
    }
}

impl Actor for Mimd {
    fn name(&self) -> &'static str {
        "mimd"
    }

    fn act(&mut self, state: &State) -> f64 {
        if state.latency > 1.0 { -self.decrease } else { self.increase }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slo_decides() {
        let state = |latency| State { goodput: 0.5, latency, rate_per_s: 100.0, offered_per_s: 1_000.0 };
        assert_eq!(Mimd::default().act(&state(1.01)), -0.05);
        assert_eq!(Mimd::default().act(&state(1.0)), 0.01);
    }
}
