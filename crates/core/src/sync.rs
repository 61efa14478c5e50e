//! The atomics that the lock-free parts are built on. Under the feature `shuttle` they are the model
//! checker's, so that the very same code is explored interleaving by interleaving.

#[cfg(feature = "shuttle")]
pub use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(feature = "shuttle"))]
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The lock, unless somebody has it. Never waited for: whoever finds it taken leaves the work to the one who holds it. That one who
/// held it panicked does not matter: what it guards here is renewed again and again.
#[allow(clippy::disallowed_types)]
pub fn try_lock<T>(lock: &std::sync::Mutex<T>) -> Option<std::sync::MutexGuard<'_, T>> {
    match lock.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}
