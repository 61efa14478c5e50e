//! Sums in which what is past fades: a window without edges.

use plimsoll_core::Nanos;

/// By how much what is `elapsed` old has faded if it fades to 1/e within `span`.
pub fn factor(elapsed: Nanos, span: Nanos) -> f64 {
    (-(elapsed.0 as f64) / span.0 as f64).exp()
}

/// Two sums that belong together, a count and an amount, say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pair {
    /// The first.
    pub count: f64,
    /// The second.
    pub amount: f64,
}

impl Pair {
    /// Fades both and adds to both.
    pub fn add(&mut self, factor: f64, count: f64, amount: f64) {
        self.count = self.count * factor + count;
        self.amount = self.amount * factor + amount;
    }

    /// The second over the first; 0 of nothing.
    pub fn ratio(&self) -> f64 {
        // Below a millionth of an event there is nothing but what has faded.
        if self.count > 1e-6 { self.amount / self.count } else { 0.0 }
    }
}
