//! The herald of a host: reads how long every thread ran and waited, ten times a second, and tells who is about to be short of CPU.
//!
//! ```text
//!  /proc, or BPF --Scene--> cpufutures --> top, yield, the agent's /futures and /metrics
//! ```
//!
//! | part | does |
//! | --- | --- |
//! | [`Herald`] | reads when it is time, within its budget; feeds the model |
//! | `bpf/` | the reader in the kernel, feature `bpf` |
//! | `pread/` | the reader that needs no right and no library |
//! | `describe.rs` | what changes rarely: names, groups, how threads are scheduled |
//! | [`view`] | what is known, as JSON tells it |
//! | [`listening`] | who listens on a TCP port |
//! | [`parse`] | files of `/proc`, taken apart |
//! | `groups.rs` | cgroups and autogroups, with their weights and quotas |
//! | `budget.rs` | reads less often before it costs more |
//!
//! Whoever uses it gives it a thread of its own: it blocks.

#[cfg(feature = "bpf")]
mod bpf;
mod budget;
pub mod cgroup;
pub mod clock;
mod describe;
mod groups;
mod herald;
pub mod listening;
pub mod parse;
mod pread;
mod proc;
mod reader;
mod scene;
mod scheduling;
pub mod view;

pub use herald::{Cost, Herald, Options};
pub use reader::Reader;
pub use scene::Described;
