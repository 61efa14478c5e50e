//! Shorthands of this crate's tests.

use plimsoll_core::Nanos;

use crate::scene::{Task, Use};

/// So many milliseconds after the origin.
pub fn at_ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// A background task that can be cancelled, of whose progress nothing is known, and which began at the origin.
pub fn task(id: u64) -> Task {
    Task {
        id,
        class: 0,
        started_ns: 0,
        deadline_ns: 0,
        done: 0,
        total: 0,
        request: false,
        cancellable: true,
        rerunnable: false,
    }
}

/// A request that began then.
pub fn request(id: u64, started_ms: u64) -> Task {
    Task { started_ns: started_ms * 1_000_000, request: true, ..task(id) }
}

/// A task that has been holding a unit for so long, all of the time since the last look.
pub fn holding(task: u32, resource: u32, held_ns: u64) -> Use {
    Use { task, resource, held: 1, held_ns, used: held_ns, recent: held_ns.min(20_000_000), waiting_ns: 0 }
}
