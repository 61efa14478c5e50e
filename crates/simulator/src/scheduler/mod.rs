//! CPU schedulers on virtual time: what a machine's tasks get when they want more than there is.
//!
//! A [`Machine`] runs the tasks of a [`Workload`] on its CPUs as a [`Scheduler`] says, and counts for how long each ran and waited, as a
//! kernel does. There are two schedulers, those of the paper on CPU Futures (section 4.3): [`o1`] treats equals unequally, [`fair`]
//! gives shares. Nothing here is random but what a workload draws from its seed: the same seed gives the same run.
//!
//! | part | does |
//! | --- | --- |
//! | [`machine`] | virtual time, the tasks' states, their accounts |
//! | [`o1`] | Linux before 2.6.23: dynamic priorities, interactivity, active and expired arrays |
//! | [`mod@array`] | the two arrays of a CPU of it |
//! | [`fair`] | shares by weight, in the manner of EEVDF, with groups |
//! | [`entity`] | what shares a CPU: tasks and groups of them |
//! | [`programs`] | tasks that compute, sleep, and do it again |
//! | [`pool`] | workers that serve clients, who wait for an answer before they ask again |
//!
//! **What is left out**: what switching costs, caches, and affinity. Interrupts take no time.

pub mod array;
pub mod entity;
pub mod fair;
pub mod machine;
pub mod o1;
pub mod pool;
pub mod programs;

pub use fair::Fair;
pub use machine::{Account, Attributes, Left, Machine, Scheduler, Sleep, Step, Task, Wakes, Workload};
pub use o1::O1;
pub use pool::Pool;
pub use programs::Programs;
