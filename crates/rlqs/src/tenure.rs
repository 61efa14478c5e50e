//! For how long whoever decides is to be listened to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use plimsoll_core::Nanos;

/// Until when somebody leads, by this process's own clock. All clones are one: whoever renews it does so for all who go by it.
///
/// Nobody has to be told that it is over, so it is over also for who was stopped, and looks at the clock for the first time since.
#[derive(Clone, Debug)]
pub struct Tenure(Arc<AtomicU64>);

impl Tenure {
    /// Up to, and without, this point.
    pub fn until(end: Nanos) -> Tenure {
        Tenure(Arc::new(AtomicU64::new(end.0)))
    }

    /// For as long as the process lasts.
    pub fn for_ever() -> Tenure {
        Tenure::until(Nanos(u64::MAX))
    }

    /// From now on it ends then.
    pub fn renew(&self, end: Nanos) {
        self.0.store(end.0, Relaxed);
    }

    /// When it ends.
    pub fn end(&self) -> Nanos {
        Nanos(self.0.load(Relaxed))
    }

    /// Whether it lasts.
    pub fn lasts(&self, now: Nanos) -> bool {
        now < self.end()
    }
}
