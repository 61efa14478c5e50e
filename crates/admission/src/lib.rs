//! Admission: may this request enter the queue?
//!
//! One file a policy, one [`policy::Policy`] trait, one [`Gate`] that hosts drive. Nothing here reads a clock or
//! draws randomness of its own.
//!
//! | policy | lets a request in | from |
//! | --- | --- | --- |
//! | [`bouncer`] | if its class's percentiles are expected to meet their objectives | Bouncer, section 3 |
//! | [`allowance`] | and a share of every class in any case | Bouncer, section 4.1 |
//! | [`underserved`] | and more of the classes refused most | Bouncer, section 4.2 |
//! | [`maxql`] | while the queue is short | Bouncer, section 5.2.1 |
//! | [`maxqwt`] | while the expected wait is short | Bouncer, section 5.2.2 |
//! | [`accept_fraction`] | with the probability that fits the capacity | Bouncer, section 5.2.3 |
//! | [`codel`] | unless the queue has been standing | RFC 8289 |
//! | [`limit`] | while fewer than a self-finding limit are in the system | AIMD, Vegas, Gradient2 |

pub mod accept_fraction;
pub mod adaptive;
pub mod allowance;
pub mod bouncer;
mod budget;
pub mod build;
pub mod codel;
pub mod fair_share;
mod gate;
pub mod limit;
pub mod maxql;
pub mod maxqwt;
pub mod policy;
mod ratios;
mod service_times;
pub mod underserved;

pub use gate::{Ask, Gate, GateSpec, Open, Outcome, Slots};
