//! Breakwater's steps in TopFull's place: a constant more while latency is below its target, and less by how far it is above (section
//! 6.3; Breakwater, section 3.1).

use crate::stepwise::{Actor, State};

/// Additive increase, multiplicative decrease.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aimd {
    /// The latency to keep, as a part of the SLO.
    pub target: f64,
    /// What is added in a second, as a part of what users send: Breakwater adds by the number of its clients.
    pub increase: f64,
    /// What part is taken away in a second when latency is at twice its target; in proportion to the excess.
    pub decrease: f64,
}

impl Default for Aimd {
    fn default() -> Aimd {
        // Breakwater's own (0.001 and 0.02) are for decisions every few microseconds; TopFull's authors tuned theirs and give no numbers.
        Aimd { target: 0.8, increase: 0.01, decrease: 0.2 }
    }
}

impl Actor for Aimd {
    fn name(&self) -> &'static str {
        "breakwater"
    }

    fn act(&mut self, state: &State) -> f64 {
        if state.latency < self.target {
            self.increase * state.offered_per_s / state.rate_per_s
        } else {
            -self.decrease * (state.latency - self.target) / self.target
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_by_what_is_sent_and_takes_by_the_excess() {
        let mut aimd = Aimd { target: 0.8, increase: 0.01, decrease: 0.2 };
        let mut act =
            |latency| aimd.act(&State { goodput: 1.0, latency, rate_per_s: 100.0, offered_per_s: 1_000.0 });
        assert!((act(0.7) - 0.1).abs() < 1e-12, "a hundredth of 1,000 is a tenth of 100");
        assert!((act(1.6) + 0.2).abs() < 1e-12 && (act(1.2) + 0.1).abs() < 1e-12);
    }
}
