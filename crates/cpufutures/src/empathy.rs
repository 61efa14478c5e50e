//! Empathy: a job of little importance gives way to what runs beside it (section 5.2).
//!
//! Two ways: it runs only on cycles that nobody else wants ([`IdleOnly`]), or it is slowed, but never more than a bound
//! ([`MaxSlowdown`], or [`Pauses`] where its share cannot be set). Both decide from what was [`Seen`] since the last look.

mod account;
mod idle_only;
mod max_slowdown;
mod pauses;
mod rivals;
mod window;

use plimsoll_core::Nanos;

pub use idle_only::IdleOnly;
pub use max_slowdown::MaxSlowdown;
pub use pauses::Pauses;

/// What was seen from one look to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// For how long.
    pub length: Nanos,
    /// How long the job's threads ran, together.
    pub job_ran: Nanos,
    /// How long they were ready to run without running, together. A pause is none.
    pub job_waited: Nanos,
    /// What they would run on an idle machine, in milliseconds a second together; no more than the CPUs have. What they want they want
    /// while they are paused, too: it is told by the time in which they are not.
    pub job_desired_ms_per_s: f64,
    /// How long all others ran, together.
    pub others_ran: Nanos,
    /// How long all others were ready to run without running, together.
    pub others_waited: Nanos,
    /// What all CPUs have, in milliseconds a second.
    pub cpus_ms_per_s: f64,
    /// What the job got in the last second, in milliseconds a second.
    pub job_actual_ms_per_s: f64,
    /// What the others would run on an idle machine, in milliseconds a second together; no more than the CPUs have.
    pub others_desired_ms_per_s: f64,
    /// What they got in the last second, in milliseconds a second.
    pub others_actual_ms_per_s: f64,
    /// How much CPU time of the last second the job took from others who were waiting for it, in milliseconds a second.
    pub taken_ms_per_s: f64,
    /// Whether the job was paused.
    pub paused: bool,
}
