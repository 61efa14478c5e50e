//! How long to wait after failures in a row.

use plimsoll_core::Nanos;

/// After the first failure, and the longest: what fails for ever costs one attempt a minute.
const FIRST: Nanos = Nanos::from_secs(1);
const LONGEST: Nanos = Nanos::from_secs(60);

/// Failures in a row, and when to try again.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
    until: Nanos,
}

impl Backoff {
    /// Another attempt failed.
    pub fn failed(&mut self, now: Nanos) {
        let wait = FIRST.0.saturating_mul(1 << self.failures.min(20)).min(LONGEST.0);
        self.failures = self.failures.saturating_add(1);
        self.until = now + Nanos(wait);
    }

    /// An attempt succeeded, for good.
    pub fn succeeded(&mut self) {
        *self = Backoff::default();
    }

    /// Whether an attempt may be made now.
    pub fn allows(&self, now: Nanos) -> bool {
        now >= self.until
    }

    /// Whether the last attempt failed.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_that_fail_become_rare_and_never_cease() {
        let mut backoff = Backoff::default();
        let attempts: Vec<u64> = (0..3_600)
            .filter(|&s| {
                let may = backoff.allows(Nanos::from_secs(s));
                if may {
                    backoff.failed(Nanos::from_secs(s));
                }
                may
            })
            .collect();
        assert_eq!(attempts[..5], [0, 1, 3, 7, 15]);
        assert!((60..70).contains(&attempts.len()), "{}", attempts.len());
        backoff.succeeded();
        assert!(backoff.allows(Nanos::ZERO) && !backoff.is_failing());
    }
}
