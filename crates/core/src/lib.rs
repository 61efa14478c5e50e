//! What every part of Plimsoll speaks.
//!
//! Nothing here reads a clock, a random device, a socket or a file, and nothing here knows a policy. Policies
//! depend on this crate alone; hosts (sentry, simulator, testbed) bring the time and the randomness.

pub mod average;
pub mod backlog;
pub mod bucket;
pub mod class;
pub mod classify;
pub mod config;
pub mod estimator;
pub mod histogram;
pub mod ladder;
pub mod rng;
pub mod slo;
pub mod sync;
pub mod text;
pub mod time;
pub mod verdict;
pub mod window;

pub use class::{ClassId, MAX_CLASSES, ranks};
pub use ladder::Ladder;
pub use rng::Rng;
pub use slo::{Percentile, Slo, Statistic};
pub use time::Nanos;
pub use verdict::{Grant, Limit, Mechanism, Quantity, Refusal, Verdict};
