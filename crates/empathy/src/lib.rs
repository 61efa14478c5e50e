//! Empathy (CPU Futures, section 5.2): runs a job on the cycles that nobody wants, or never slower than it may be and no faster
//! than that takes.
//!
//! ```text
//!  command, --pid --plan--> hold ----levers----> the job's processes
//!                            ^  \----undo------> guard: puts back, however this ends
//!     herald --watch--> IdleOnly or MaxSlowdown
//! ```
//!
//! | part | does |
//! | --- | --- |
//! | [`plan`] | which means there are here |
//! | `levers/` | one file a means: control group, scheduling, autogroup, stop |
//! | [`hold`] | the plan, in use |
//! | [`guard`], [`undo`] | what must be put back, and the process that sees to it |
//! | [`tree`] | which processes are the job's |
//! | [`watch`] | what the job gets and costs others; what to do about it is [`plimsoll_cpufutures::empathy`]'s |
//! | [`run`] | from the start to the exit code; signals |

pub mod cli;
mod clock;
pub mod guard;
pub mod hold;
pub mod job;
pub mod levers;
pub mod plan;
pub mod process;
pub mod report;
pub mod rights;
pub mod run;
pub mod signals;
pub mod tree;
pub mod undo;
pub mod watch;
