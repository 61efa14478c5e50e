//! How many workers of a service are busy, and for how long they have been.

use parking_lot::Mutex;
use plimsoll_core::Nanos;

use crate::clock::Clock;

/// Counts the time also of what has begun and not ended. Counted where calls end, it would swing by those that reach from one look into the
/// next; and as more than all is never busy, such a swing looks as if workers had had nothing to do.
pub(super) struct Busy {
    clock: Clock,
    sum: Mutex<Sum>,
}

#[derive(Default)]
struct Sum {
    workers: u64,
    /// Up to when, in ns of all workers together.
    until: Nanos,
    spent_ns: u64,
}

impl Sum {
    fn go_on(&mut self, now: Nanos) {
        self.spent_ns += self.workers * now.since(self.until).0;
        self.until = self.until.max(now);
    }
}

impl Default for Busy {
    /// Nobody is.
    fn default() -> Busy {
        Busy { clock: Clock::start(), sum: Mutex::default() }
    }
}

impl Busy {
    /// One more, until what is returned is dropped: with what it works on, or with its instance.
    pub fn begin(&self) -> Works<'_> {
        let mut sum = self.sum.lock();
        sum.go_on(self.clock.now());
        sum.workers += 1;
        Works(self)
    }

    /// The time that workers have spent by now, in ns.
    pub fn spent_ns(&self) -> u64 {
        let mut sum = self.sum.lock();
        sum.go_on(self.clock.now());
        sum.spent_ns
    }
}

/// A worker that is busy.
pub(super) struct Works<'a>(&'a Busy);

impl Drop for Works<'_> {
    fn drop(&mut self) {
        let mut sum = self.0.sum.lock();
        sum.go_on(self.0.clock.now());
        sum.workers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_busy_counts_before_it_is_done() {
        let busy = Busy::default();
        let clock = busy.clock;
        let before = clock.now();
        let two = [busy.begin(), busy.begin()];
        while busy.spent_ns() < 20_000_000 {
            assert!(clock.now() < Nanos::from_secs(10), "it does not count");
        }
        drop(two);
        let spent = busy.spent_ns();
        assert!(spent <= 2 * clock.now().since(before).0, "{spent} of two");
        assert_eq!(busy.spent_ns(), spent, "nobody is busy any more");
    }
}
