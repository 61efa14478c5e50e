//! The only file of the sentry that reads a clock: everything else is given the time.
#![allow(clippy::disallowed_methods)] // Somebody has to, and it is here.

use std::cell::Cell;
use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use plimsoll_core::Nanos;

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What the first call returns, so that points shortly before it can be expressed.
const AHEAD: Nanos = Nanos::from_secs(1);

thread_local! {
    static COARSE: Cell<Nanos> = const { Cell::new(Nanos::ZERO) };
}

/// The time, from about the first call in this process on: monotonic, the same for all threads.
pub fn now() -> Nanos {
    AHEAD + Nanos::from(ORIGIN.elapsed())
}

/// The time, remembered for [`coarse`].
pub fn refresh() -> Nanos {
    let now = now();
    COARSE.set(now);
    now
}

/// How old [`coarse`] may be.
pub const COARSENESS: Nanos = Nanos::from_millis(50);

/// The time when this thread last called [`refresh`], which it does at every request and in every sweep: good enough
/// to move a timeout, and nearly free.
pub fn coarse() -> Nanos {
    COARSE.get()
}

/// The point in tokio's time at which `at` is reached; far in the future where it is out of tokio's range.
pub fn timer(at: Nanos) -> tokio::time::Instant {
    const FOREVER: Nanos = Nanos::from_secs(100 * 365 * 24 * 3600);
    tokio::time::Instant::from_std(*ORIGIN) + at.since(AHEAD).min(FOREVER).into()
}

/// The time of day, since 1970. For logs; may jump.
pub fn wall() -> Nanos {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(Nanos::ZERO, Nanos::from)
}
