//! The controller as a process, with servers that are processes and a sentry that says and hears what a test wants.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // Threads and clocks are what this is about.

mod entry;
mod etcd;
mod faults;
mod harness;
mod kubernetes;
mod link;
mod live;
#[path = "../common/ports.rs"]
mod ports;
mod sentry;
mod servers;
mod sizing;
mod takeover;
