//! How long to wait before trying again what failed.

use std::time::Duration;

/// After the first failure, and the longest: a database that restarts is found again soon, one that is gone costs little.
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(10);

/// Failures in a row.
#[derive(Debug, Default)]
pub struct Retry {
    failures: u32,
}

impl Retry {
    /// Another attempt failed: how long to wait before the next.
    pub fn failed(&mut self) -> Duration {
        let wait = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        wait
    }

    /// An attempt succeeded: how many had failed.
    pub fn succeeded(&mut self) -> u32 {
        std::mem::take(&mut self.failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_that_fail_become_rare_and_never_cease() {
        let mut retry = Retry::default();
        let waits: Vec<u64> = (0..1_000).map(|_| retry.failed().as_millis() as u64).collect();
        assert_eq!(waits[..7], [200, 400, 800, 1_600, 3_200, 6_400, 10_000]);
        assert!(waits[7..].iter().all(|&ms| ms == 10_000));
        assert_eq!(retry.succeeded(), 1_000);
        assert_eq!(retry.failed(), FIRST);
    }
}
