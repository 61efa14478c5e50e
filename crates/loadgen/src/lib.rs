//! Open-loop HTTP load with honest latencies.
//!
//! A client that waits for an answer before it sends the next request slows down with the server, and its latencies
//! leave out the time that nobody could have asked ("coordinated omission"). Here the schedule of a run is fixed
//! before it starts, and latency runs from the moment at which a request should have left.
//!
//! [`run()`] carries a [`Plan`] out on threads of its own and returns a [`Report`]. One thread sends: tokio's
//! current-thread runtime, a pool of hyper connections, and a timer that is finer than tokio's.

pub mod cli;

mod clock;
mod connection;
mod log;
mod pool;
mod report;
mod run;
mod schedule;
mod stats;
mod system;
mod target;
mod template;
mod tls;
mod worker;

pub use log::Entry;
pub use report::{Figures, Report, Table};
pub use run::{Plan, Progress, run};
pub use schedule::{Arrival, Arrivals, MAX_RATE_PER_S, Rate, Spacing};
pub use stats::{ErrorKind, Outcome};
pub use system::pin_thread;
pub use target::HttpVersion;
