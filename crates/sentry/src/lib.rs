//! The sentry: the gateway in front of a pool of servers.

pub mod clock;
pub mod config_file;
pub mod decisions;
pub mod logging;
pub mod supervisor;
