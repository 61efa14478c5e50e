//! The sentry: the gateway in front of a pool of servers.

pub mod balance;
pub mod clock;
pub mod config_file;
pub mod decisions;
pub mod logging;
pub mod record;
pub mod slots;
pub mod state;
pub mod stats;
pub mod supervisor;
pub mod worker;

mod admit;
mod body;
mod client;
mod connections;
mod deadline;
mod guard;
mod headers;
mod health;
mod listener;
mod peer;
mod proxy;
mod refuse;
mod retry;
mod thread;
mod ticket;
mod timeouts;
mod tls;
mod upgrade;
mod upload;
mod upstream;
