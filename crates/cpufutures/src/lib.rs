//! CPU futures: who is about to be short of CPU?
//!
//! From how long every thread of a host ran and waited, this crate tells what it wanted, what it will get in the next second and
//! what it could get at most (CPU Futures, section 4). Nothing here reads a clock or a file: the herald of a host samples, and the
//! simulator does as it does.
//!
//! | part | does | from |
//! | --- | --- | --- |
//! | [`task`] | what is sampled: threads, the groups that they share CPUs in, the host | |
//! | [`allocation`] | the four allocations of a thread, and its slowdown; those of several together | section 3.1 |
//! | [`futures`] | all of it, for one host | section 4 |
//! | `census`, `timeline` | who is there, and when samples were taken | |
//! | `usage` | what a thread did, and what it wanted | sections 4.1 and 4.2, Eq. 1 |
//! | `predict`, `step` | what it will get: what it got, changed by what changed | section 4.3 |
//! | `compete`, `pools` | who competes with whom for which CPUs | |
//! | `share`, `competing` | what each gets and could get in proportion to its weight | section 4.3.2, Eq. 5-8 |
//! | `takers` | who took the CPU from whom | |
//! | [`timesharing`] | the same under a scheduler that gives priorities by behaviour | section 4.3.1, Eq. 2-4 |
//! | [`weights`] | the kernel's weights | |
//! | [`search`] | the search for a setting that is right | section 5.1 |
//! | [`empathy`] | a job that gives way to others | section 5.2 |
//! | [`sheepdog`] | a pool of workers none of which starves | section 5.3 |
//! | [`following`] | whether more of them get more done | |

pub mod allocation;
mod census;
mod compete;
mod competing;
pub mod empathy;
pub mod following;
pub mod futures;
mod pools;
mod predict;
pub mod search;
mod share;
pub mod sheepdog;
mod step;
mod takers;
pub mod task;
mod timeline;
pub mod timesharing;
mod usage;
pub mod weights;

pub use allocation::{Allocations, Sum};
pub use empathy::{IdleOnly, MaxSlowdown, Pauses, Seen};
pub use following::Following;
pub use futures::{Futures, Settings};
pub use search::{Search, Verdict};
pub use sheepdog::SheepDog;
pub use takers::Taker;
pub use task::{CpuSet, Group, Host, Policy, TaskId, TaskSample};
pub use timesharing::{PrioritySample, Timesharing};
