//! Locks, semaphores and pools that account for themselves, for threads: in place of those of `std`.
//!
//! They account for the [current task](crate::Task::run); where there is none they are what they are in `std`, and account for nobody. Who finds
//! them free does not wait, so a wait is one that really happened.

mod mutex;
mod pool;
mod rwlock;
mod semaphore;

pub use mutex::{Mutex, MutexGuard};
pub use pool::{Pool, Pooled};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Permit, Semaphore};
