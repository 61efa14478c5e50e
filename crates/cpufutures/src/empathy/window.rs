//! What a job desired and got, over the time for which a limit on its slowdown holds.

use std::collections::VecDeque;

use plimsoll_core::Nanos;

use super::Seen;

/// Over so long the limit holds.
pub(super) const WINDOW: Nanos = Nanos::from_secs(10);

/// What was desired and got.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Got {
    pub length: Nanos,
    pub desired_ms: f64,
    pub ran_ms: f64,
}

impl Got {
    /// In one look.
    pub fn of(seen: &Seen) -> Got {
        let ms = |time: Nanos| time.0 as f64 / 1e6;
        Got {
            length: seen.length,
            desired_ms: seen.job_desired_ms_per_s * ms(seen.length) / 1e3,
            ran_ms: ms(seen.job_ran),
        }
    }

    pub fn add(&mut self, other: Got) {
        self.length = Nanos(self.length.0 + other.length.0);
        self.desired_ms += other.desired_ms;
        self.ran_ms += other.ran_ms;
    }

    pub fn slowdown(&self) -> f64 {
        if self.desired_ms <= 0.0 { 1.0 } else { (self.desired_ms / self.ran_ms.max(1e-3)).max(1.0) }
    }
}

/// The looks of the last ten seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    looks: VecDeque<Got>,
    /// The worst slowdown over any whole window.
    worst: Option<f64>,
}

impl Window {
    /// One more look.
    pub fn remember(&mut self, got: Got) {
        self.looks.push_back(got);
        let total: u64 = self.looks.iter().map(|got| got.length.0).sum();
        let mut over = total.saturating_sub(WINDOW.0);
        while let Some(first) = self.looks.front().filter(|first| first.length.0 <= over) {
            over -= first.length.0;
            self.looks.pop_front();
        }
        if total >= WINDOW.0 {
            let now = self.over(WINDOW).slowdown();
            self.worst = Some(self.worst.map_or(now, |worst| worst.max(now)));
        }
    }

    /// What the last looks come to that are so long together.
    pub fn over(&self, length: Nanos) -> Got {
        let mut all = Got::default();
        for got in self.looks.iter().rev() {
            if all.length >= length {
                break;
            }
            all.add(*got);
        }
        all
    }

    /// The worst slowdown over any whole window, or over all where there was none.
    pub fn worst(&self) -> f64 {
        self.worst.unwrap_or_else(|| self.over(WINDOW).slowdown())
    }
}
