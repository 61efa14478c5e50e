//! Envoy's rate limit quota service (`envoy.service.rate_limit_quota.v3`): data planes report how many requests of each bucket they let
//! in and turned away, and are assigned how many they may let in, for some seconds at a time. A bucket is a class; whoever reports may
//! be a sentry or an Envoy.
//!
//! ```text
//!  sentry, Envoy --- client ---- usage of each bucket, every step -----> server --- Fleet --- demand ---> who decides the rates
//!                      ^                                                   |          ^                          |
//!                      '------ token bucket, three seconds to live --------'          '--- Rates, a revision ----'
//! ```
//!
//! A rate is decided for the whole fleet; [`fleet`] divides it among those who report, by what arrives at each.
//!
//! **Who leads.** Each leader has a revision, higher than that of all before it. The server says its own in the head of every stream
//! ([`REVISION`]); a client that has heard a higher one takes nothing from it. When the revision changes, all streams end, and also when
//! its [`Tenure`] is over: nothing is said by a leader that may lead no more. An Envoy
//! does not know about revisions: it holds to one server for as long as its stream lasts.
//!
//! The messages are written down here rather than taken from a crate: those that there are bring all of Envoy's API along, half a million
//! lines of it, for the eight that this needs.

pub mod assignment;
pub mod client;
pub mod fleet;
mod incoming;
pub mod messages;
pub mod server;
mod tenure;

use plimsoll_core::Nanos;

pub use tenure::Tenure;

/// From one report to the next, and from one assignment to the next.
pub const STEP: Nanos = Nanos::from_millis(250);
/// How long an assignment holds if it is not renewed: long enough for a leader to be restarted, or another one to take over. Whole
/// seconds, as Envoy cuts off the rest.
pub const TIME_TO_LIVE: Nanos = Nanos::from_secs(3);
/// In the head of a stream's answer: the revision of the leader that answers. In the head of a sentry's request: the highest that it has
/// heard; an Envoy does not say.
pub const REVISION: &str = "plimsoll-revision";
/// In a bucket's id: the class.
pub const CLASS: &str = "class";

/// Where the service is found.
const PATH: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
/// Longest message that is read, in bytes: a thousand buckets fit.
const LONGEST: usize = 256 << 10;
