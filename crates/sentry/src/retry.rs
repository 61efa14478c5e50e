//! The retry budget of a pool: retries may be a share of the requests and no more, so that they cannot add to an
//! overload that they did not cause.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// One retry, in the unit of the account.
const ONE: i64 = 1_000_000;
/// What may be saved up, so that a pool with little traffic can ride out the death of a server.
const SAVED: i64 = 20 * ONE;

/// An account that requests pay into and retries are paid from.
#[derive(Debug)]
pub struct RetryBudget {
    per_request: i64,
    account: AtomicI64,
}

impl RetryBudget {
    /// Retries may be this share of the requests, in 0..1.
    pub fn new(share: f64) -> RetryBudget {
        let per_request = (share * ONE as f64) as i64;
        let start = if per_request > 0 { SAVED } else { 0 };
        RetryBudget { per_request, account: AtomicI64::new(start) }
    }

    /// A request is sent for the first time.
    #[inline]
    pub fn deposit(&self) {
        // The rare race that lets the account exceed what may be saved costs nothing.
        if self.per_request > 0 && self.account.load(Relaxed) < SAVED {
            self.account.fetch_add(self.per_request, Relaxed);
        }
    }

    /// Whether a request may be sent again.
    pub fn withdraw(&self) -> bool {
        let take = |account: i64| (account >= ONE).then_some(account - ONE);
        self.account.fetch_update(Relaxed, Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_the_requests() {
        let budget = RetryBudget::new(0.1);
        let saved = (0..100).filter(|_| budget.withdraw()).count();
        assert_eq!(saved, 20);
        (0..1_000).for_each(|_| budget.deposit());
        assert_eq!(
            (0..1_000).filter(|_| budget.withdraw()).count(),
            20,
            "no more is saved than at the start"
        );
        let mut retried = 0;
        for _ in 0..1_000 {
            budget.deposit();
            retried += usize::from(budget.withdraw());
        }
        assert_eq!(retried, 100);
    }

    #[test]
    fn no_budget_no_retries() {
        let budget = RetryBudget::new(0.0);
        (0..1_000).for_each(|_| budget.deposit());
        assert!(!budget.withdraw());
    }
}
