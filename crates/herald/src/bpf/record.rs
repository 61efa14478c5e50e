//! What BPF tells of one thread.

/// What is told beside the counters. A thread of which it is the same is described rarely.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Like {
    group: u64,
    cpus: u64,
    cpus_allowed: u32,
    pub policy: u32,
    pub nice: i32,
    pub comm: [u8; 16],
}

/// One thread, as `struct record` of `bpf/tasks.bpf.c` has it.
pub struct Record {
    pub pid: u32,
    pub tid: u32,
    pub started_ns: u64,
    pub run_ns: u64,
    pub wait_ns: u64,
    /// It ran or waited when it was read.
    pub is_ready: bool,
    pub like: Like,
}

impl Record {
    pub const SIZE: usize = 80;

    pub fn parse(bytes: &[u8; Record::SIZE]) -> Record {
        let u64_at = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let u32_at = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Record {
            pid: u32_at(0),
            tid: u32_at(4),
            started_ns: u64_at(8),
            run_ns: u64_at(16),
            wait_ns: u64_at(24),
            is_ready: u32_at(60) != 0,
            like: Like {
                group: u64_at(32),
                cpus: u64_at(40),
                cpus_allowed: u32_at(48),
                policy: u32_at(52),
                nice: u32_at(56) as i32,
                comm: std::array::from_fn(|byte| bytes[64 + byte]),
            },
        }
    }
}
