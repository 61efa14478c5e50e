//! How long requests took that ended since the last look, as coarsely as a ledger's lanes keep it (`docs/ledger.md`, "Lanes").

use plimsoll_core::Nanos;

const BINS: usize = 248;

/// Counts by bin.
#[derive(Clone, Debug)]
pub struct Latencies {
    bins: [u64; BINS],
    sum_ns: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { bins: [0; BINS], sum_ns: 0 }
    }
}

impl Latencies {
    /// A request ended; only what was not taken away has a latency.
    pub fn ended(&mut self, latency: Nanos, done: bool) {
        self.sum_ns += latency.0;
        if done {
            self.bins[bin(latency.0)] += 1;
        }
    }

    /// What a reader sees; it begins anew.
    pub fn take(&mut self, finished: &mut Vec<(u64, u64)>) -> u64 {
        for (bin, count) in self.bins.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            finished.push((middle(bin), std::mem::take(count)));
        }
        std::mem::take(&mut self.sum_ns)
    }
}

fn bin(latency_ns: u64) -> usize {
    let v = latency_ns >> 10;
    let shift = v.checked_ilog2().unwrap_or(0).saturating_sub(3) as u64;
    (((shift << 3) + (v >> shift)) as usize).min(BINS - 1)
}

/// In the middle of a bin, in ns.
fn middle(bin: usize) -> u64 {
    let bin = bin as u64;
    let shift = (bin >> 3).saturating_sub(1);
    let from = bin - (shift << 3);
    ((from << shift) << 10) + ((1 << shift) << 9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bin_is_no_wider_than_an_eighth_of_its_values() {
        for latency_us in [9, 20, 100, 1_234, 20_000, 1_000_000, 60_000_000] {
            let latency_ns = latency_us * 1_000;
            let seen = middle(bin(latency_ns));
            assert!(seen.abs_diff(latency_ns) <= latency_ns / 15, "{latency_ns} is seen as {seen}");
        }
        assert_eq!(middle(bin(0)), 512);
        assert_eq!(bin(u64::MAX), BINS - 1);
    }

    #[test]
    fn what_was_taken_away_counts_in_the_sum_alone() {
        let (mut latencies, mut finished) = (Latencies::default(), Vec::new());
        [(5, true), (5, true), (80, true), (500, false)]
            .iter()
            .for_each(|&(ms, done)| latencies.ended(Nanos::from_millis(ms), done));
        assert_eq!(latencies.take(&mut finished), 590_000_000);
        assert_eq!(finished.iter().map(|&(_, count)| count).collect::<Vec<_>>(), [2, 1]);
        finished.clear();
        assert_eq!((latencies.take(&mut finished), finished.len()), (0, 0));
    }
}
