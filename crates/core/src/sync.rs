//! The atomics that the lock-free parts are built on. Under the feature `shuttle` they are the model
//! checker's, so that the very same code is explored interleaving by interleaving.

#[cfg(feature = "shuttle")]
pub use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(feature = "shuttle"))]
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
