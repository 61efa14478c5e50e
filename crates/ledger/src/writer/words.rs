//! The records of a ledger as they are mapped: words that are read and written in one access each.
//!
//! Every field is atomic, as the agent reads while the application writes. Plain stores in a given order are `Release` stores: on
//! x86-64 they cost the same, and neither compiler nor processor moves what comes before behind them.

use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::layout::{self, at};

#[cfg(target_endian = "big")]
compile_error!("a ledger's numbers are little-endian, and are mapped as they are");

/// The header.
#[repr(C)]
pub struct Header {
    pub magic: AtomicU64,
    pub version: AtomicU32,
    pub resources: AtomicU32,
    pub lanes: AtomicU32,
    pub tasks: AtomicU32,
    pub accounts: AtomicU32,
    unused_1: u32,
    pub pid: AtomicU64,
    pub pid_started: AtomicU64,
    pub created_ns: AtomicU64,
    unused_2: u64,
    pub app: [AtomicU64; 8],
    pub app_beat_ns: AtomicU64,
    pub tasks_refused: AtomicU64,
    pub accounts_refused: AtomicU64,
    pub resources_refused: AtomicU64,
    pub tasks_used: AtomicU32,
    pub accounts_used: AtomicU32,
    unused_3: [u64; 3],
    pub agent_beat_ns: AtomicU64,
    pub flags: AtomicU64,
    pub agent_pid: AtomicU64,
    unused_4: [u64; 5],
    pub clock_ns: AtomicU64,
    unused_5: [u64; 479],
}

/// A resource.
#[repr(C)]
pub struct Resource {
    pub kind: AtomicU32,
    unused: u32,
    pub capacity: AtomicU64,
    pub name: [AtomicU64; 6],
}

/// A lane.
#[repr(C)]
pub struct Lane {
    pub completed: AtomicU64,
    pub cancelled: AtomicU64,
    pub sum_ns: AtomicU64,
    unused: [u64; 5],
    pub bins: [AtomicU64; layout::BINS],
}

/// A task.
#[repr(C)]
pub struct Task {
    pub turn: AtomicU64,
    pub key: AtomicU64,
    pub started_ns: AtomicU64,
    pub done: AtomicU64,
    pub total: AtomicU64,
    pub deadline_ns: AtomicU64,
    pub flags: AtomicU32,
    pub tid: AtomicU32,
    unused: u64,
    pub label: [AtomicU64; 8],
}

/// An account.
#[repr(C)]
pub struct Account {
    pub owner: AtomicU64,
    pub gets: AtomicU64,
    pub frees: AtomicU64,
    pub slows: AtomicU64,
    pub wait_ns: AtomicU64,
    pub hold_ns: AtomicU64,
    pub waiting_since_ns: AtomicU64,
    pub holding_since_ns: AtomicU64,
}

const _: () = {
    assert!(size_of::<Header>() == layout::HEADER_BYTES);
    assert!(size_of::<Resource>() == layout::RESOURCE_BYTES);
    assert!(size_of::<Lane>() == layout::LANE_BYTES);
    assert!(size_of::<Task>() == layout::TASK_BYTES);
    assert!(size_of::<Account>() == layout::ACCOUNT_BYTES);
    assert!(offset_of!(Header, pid) == at::PID && offset_of!(Header, app) == at::APP);
    assert!(
        offset_of!(Header, app_beat_ns) == at::APP_BEAT_NS
            && offset_of!(Header, tasks_used) == at::TASKS_USED
    );
    assert!(
        offset_of!(Header, agent_beat_ns) == at::AGENT_BEAT_NS
            && offset_of!(Header, clock_ns) == at::CLOCK_NS
    );
    assert!(
        offset_of!(Resource, name) == 16 && offset_of!(Lane, bins) == 64 && offset_of!(Task, label) == 64
    );
};

/// Writes a text, all of it.
pub fn write_text<const WORDS: usize, const N: usize>(words: &[AtomicU64; WORDS], text: &[u8; N]) {
    const { assert!(WORDS * 8 == N) };
    for (word, bytes) in words.iter().zip(text.as_chunks::<8>().0) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
}
