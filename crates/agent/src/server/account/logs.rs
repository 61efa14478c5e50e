//! What is put into a log, by one task or by all, in ns of doing so: pure.
//!
//! The disk that it goes to is busy with it for a while. Where that one stands still, so does everybody, also who has filled the log: what was put in before
//! still counts as taken then, of those, too, that are gone since. Else nobody would be to blame for what everybody waits for; or whoever was the
//! last to put in a little.

use plimsoll_core::Nanos;

/// How long what was put in keeps the disk busy.
const LASTS: Nanos = Nanos::from_millis(500);

/// What was put in lately.
#[derive(Clone, Copy, Debug, Default)]
pub struct Logs {
    /// Since the last look.
    ns: u64,
    /// For which part of the time in which that was read; of several, the sum.
    rate: f64,
    /// The highest such part of late, faded.
    before: f64,
}

impl Logs {
    /// Somebody put something in for so long since that was last read.
    pub fn put(&mut self, ns: u64, over: Nanos) {
        self.ns += ns;
        self.rate += ns as f64 / over.0.max(1) as f64;
    }

    /// What counts as taken since the last look, `elapsed` ago.
    pub fn taken(&mut self, elapsed: Nanos) -> u64 {
        let faded = (-(elapsed.0 as f64) / LASTS.0 as f64).exp();
        let rate = self.rate.max(self.before * faded);
        let taken = self.ns.max((rate * elapsed.0 as f64) as u64);
        *self = Logs { before: rate, ..Logs::default() };
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_lasts_while_nothing_more_is() {
        let look = Nanos::from_millis(100);
        let mut logs = Logs::default();
        let mut after = |ns, over| {
            logs.put(ns, over);
            logs.taken(look)
        };
        assert_eq!(after(90_000_000, look), 90_000_000);
        assert_eq!(after(90_000_000, look), 90_000_000, "no more than it was");
        let still: Vec<u64> = (0..10).map(|_| after(0, look)).collect();
        assert!(still.windows(2).all(|pair| pair[1] < pair[0]), "{still:?}");
        assert!(still[4] > 30_000_000 && still[9] < 20_000_000, "{still:?}");
        // What came together over a longer time counts once, and then as what it was in so short a time.
        assert_eq!(after(5_000_000_000, Nanos::from_secs(5)), 5_000_000_000);
        assert!(after(0, look) < 100_000_000);
    }
}
